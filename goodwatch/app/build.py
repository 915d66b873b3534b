"""One service's view from what its targets said. Pure: values in, values out, so that it can run in a thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from collector.pipeline import Understood
from goodwatch.app.config import Service
from goodwatch.app.fleet import DESTRUCTIVE
from goodwatch.app.view import ServiceView, TargetView
from goodwatch.app.wiring import Priced, limits_of
from goodwatch.core.engine import Engine
from goodwatch.core.model import Deployment, Scrape, Target
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import Derived, derive
from goodwatch.signals.increments import rows_frame
from goodwatch.signals.saturation import binding_limits, stalls
from goodwatch.signals.verdict import Reach, verdict
from goodwatch.signals.windows import TargetWindow, target_windows


#: Reasons of failed scrapes in which something answered: a fault of telemetry, no proof that the engine is down.
_ANSWERED: Final = frozenset(
    {"http_status", "redirect", "body_limit", "sample_limit", "decode", "not_metrics", DESTRUCTIVE}
)


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What is known of one target now."""

    target: Target
    last: Scrape | None
    understood: Understood | None
    deployment: Deployment | None
    priced: Priced | None


@dataclass(frozen=True, slots=True)
class ServiceInputs:
    """Everything that a service's view is made of; ``rows`` and ``before`` are rows of ``frames.MINUTES``."""

    name: str
    service: Service | None
    targets: tuple[TargetFacts, ...]
    rows: list[dict[str, Any]]
    before: list[dict[str, Any]]
    start_s: float
    end_s: float


def service_view(inputs: ServiceInputs, engines: Mapping[str, Engine]) -> ServiceView:
    """Derive a service, its models and its targets over one window, and judge it."""
    service, limits = inputs.service, limits_of(inputs.service)
    objective = service.slo.objective if service and service.slo else None
    rows = rows_frame(inputs.rows)
    windows = target_windows(rows, rows_frame(inputs.before), inputs.start_s, inputs.end_s)
    prices = {f.target.name: f.priced.price if f.priced else Price(None, None) for f in inputs.targets}

    def of(some: Sequence[TargetWindow]) -> Derived:
        return derive(some, engines, limits, prices, start_s=inputs.start_s, end_s=inputs.end_s)

    whole = of(windows)
    by_model = {m: of([w for w in windows if w.model == m]) for m in sorted({w.model for w in windows if w.model})}
    standing, binding = stalls(rows), binding_limits(windows)
    judged = verdict(whole, limits, objective, _reach(inputs.targets), stalls=standing, saturations=binding)
    targets = tuple(target_view(f, of([w for w in windows if w.target == f.target.name])) for f in inputs.targets)
    return ServiceView(
        inputs.name, service.description if service else "", judged.state, judged.headline, limits, objective, whole,
        by_model, targets, tuple(binding), tuple(standing),
    )  # fmt: skip


def target_view(facts: TargetFacts, derived: Derived | None) -> TargetView:
    """One target as it is shown; its capability report is added where it is asked for."""
    target, last, understood = facts.target, facts.last, facts.understood
    return TargetView(
        target.name,
        target.url,
        target.service,
        up=None if last is None else last.up,
        last_scrape_s=None if last is None else last.ts,
        duration_s=None if last is None else last.duration_s,
        error="" if last is None else last.error,
        engine=understood.engine.name if understood and understood.engine else target.engine or "",
        engine_version=understood.version.text if understood else target.engine_version or "",
        models=understood.reading.models if understood and understood.reading else (),
        derived=derived,
        capability=None,
        deployment=facts.deployment,
        labels=dict(target.labels),
        price_note=_price_text(facts.priced),
    )


def _price_text(priced: Priced | None) -> str:
    """What a target costs and where the price is from; "" when it is not configured."""
    if priced is None or priced.price.usd_per_hour is None:
        return ""
    price = priced.price
    text = f"{price.gpus:g} × {price.gpu_hour_usd:g} USD/h"
    return "; ".join(t for t in (text, price.source, priced.doubt) if t)


def _reach(targets: Sequence[TargetFacts]) -> Reach:
    scraped = [f.last for f in targets if f.last is not None]
    failed = [s for s in scraped if not s.up]
    blind = bool(failed) and all(s.reason in _ANSWERED for s in failed)
    error = failed[0].error if failed else ""
    return Reach(len(targets), len(scraped) - len(failed), len(targets) - len(scraped), error, blind)
