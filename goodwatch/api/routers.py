"""Every group of routes of the running service beside those that any view has (``goodwatch.api.app``)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter

from goodwatch.api.routes_alerts import alert_routes
from goodwatch.api.routes_experiments import experiment_routes
from goodwatch.api.routes_quality import quality_routes
from goodwatch.api.routes_recommendations import recommendation_routes
from goodwatch.api.routes_reports import report_routes
from goodwatch.api.routes_requests import request_routes
from goodwatch.api.routes_slos import slo_routes
from goodwatch.api.routes_system import discovery_routes
from goodwatch.api.ui.experiment_pages import experiment_pages
from goodwatch.api.ui.pages import pages
from goodwatch.api.ui.recommendation_pages import recommendation_pages
from goodwatch.api.ui.report_pages import report_pages
from goodwatch.api.ui.request_pages import request_pages
from goodwatch.api.ui.slo_pages import slo_pages
from goodwatch.app.discovering import DiscoveryView
from goodwatch.app.improving import Improvement
from goodwatch.app.intake import Intake
from goodwatch.app.promises import Promises
from goodwatch.app.rating import Rating
from goodwatch.app.watch import Watch
from goodwatch.core.clock import Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the service that routes ask."""

    watch: Watch
    discoveries: Callable[[], Sequence[DiscoveryView]]
    intake: Intake
    rating: Rating
    promises: Promises
    improvement: Improvement
    clock: Clock


def routers(parts: Parts) -> tuple[APIRouter, ...]:
    """Pages and API, in the order in which paths are matched."""
    watch, loop, clock = parts.watch, parts.promises.loop, parts.clock
    alerting, better, reads = parts.promises.alerting, parts.improvement, parts.intake.reads
    quality = parts.rating.reads(reads)
    return (
        pages(watch, parts.discoveries, requests=True), discovery_routes(parts.discoveries),
        request_pages(reads, watch, quality), request_routes(reads, watch), quality_routes(parts.intake.store, quality, watch),
        slo_pages(loop.reads, alerting, watch, rules=lambda: loop.rules), slo_routes(loop.reads), alert_routes(alerting, clock),
        recommendation_pages(better.advising, watch), recommendation_routes(better.advising),
        experiment_pages(better.ledger, watch, requests=True), experiment_routes(better.ledger, clock),
        report_pages(better.archive, watch), report_routes(better.reporting),
    )  # fmt: skip
