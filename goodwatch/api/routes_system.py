"""What other machines ask goodwatch: is it alive, is it ready, how its discoveries fare, and its metrics."""

import asyncio
import gzip
from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from exporters.prometheus import Exporter, Snapshot
from goodwatch.api.problem import ProblemError, documented
from goodwatch.api.shapes import HealthShape
from goodwatch.app.discovering import DiscoveryView
from goodwatch.app.view import Views


class DiscoveryProblem(BaseModel):
    """Something that one discovery cannot do now."""

    at: str = Field(description="Where: a file, a DNS name, a namespace, a pod.")
    text: str = Field(description="What is wrong, what becomes of the targets, and what to do.")


class DiscoveryShape(BaseModel):
    """One discovery now."""

    name: str = Field(description="Its place in the configuration, such as dns_sd[0].")
    targets: int = Field(description="Targets as last seen; those that stay while it cannot look again included.")
    problems: list[DiscoveryProblem]


class DiscoveriesShape(BaseModel):
    """All discoveries in the order of the configuration."""

    discoveries: list[DiscoveryShape]


def discovery_routes(found: Callable[[], Sequence[DiscoveryView]]) -> APIRouter:
    """The route of discoveries; ``found`` is asked at each request, on the event loop."""
    router = APIRouter(prefix="/api/v1", tags=["targets"])

    @router.get("/discoveries", summary="How targets are found, and what is wrong with that")
    async def discoveries() -> DiscoveriesShape:
        """Every discovery of the configuration, with what it cannot do now; targets of the file are not among them."""
        return DiscoveriesShape(discoveries=[_discovery(one) for one in found()])

    return router


def _discovery(view: DiscoveryView) -> DiscoveryShape:
    problems = [DiscoveryProblem(at=at, text=text) for at, text in view.problems]
    return DiscoveryShape(name=view.name, targets=view.targets, problems=problems)


def health_routes(views: Views) -> APIRouter:
    """Probes for whoever supervises the process; they need no token."""
    router = APIRouter(tags=["system"])

    @router.get("/healthz", summary="Whether goodwatch works", responses=documented(503))
    async def healthz() -> HealthShape:
        """200 while the process works; 503 with the reasons when it does not, such as a store that cannot be written."""
        health = views.health()
        reasons = [] if health.store.ok else [("store", health.store.message)]
        if not health.ok or reasons:
            detail = health.message or health.store.message or "goodwatch is not healthy"
            raise ProblemError(503, detail, errors=reasons or [("goodwatch", detail)])
        return HealthShape(status="ok", message=health.message)

    @router.get("/readyz", summary="Whether the first numbers are there", responses=documented(503))
    async def readyz() -> HealthShape:
        """200 once the first round of scrapes is in; 503 before."""
        health = views.health()
        if not health.ready:
            raise ProblemError(503, health.message or "the first round of scrapes is not in yet")
        return HealthShape(status="ready", message=health.message)

    return router


def metrics_routes(exporter: Exporter) -> APIRouter:
    """The Prometheus exposition."""
    router = APIRouter(tags=["system"])

    @router.get(
        "/metrics",
        summary="Derived numbers for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
    )
    async def metrics(request: Request) -> Response:
        """Text format, or OpenMetrics when the caller asks for it."""
        # Values are read in the loop that owns them; rendering thousands of lines must not hold it up.
        return await asyncio.to_thread(_page, exporter, exporter.read(), request.headers)

    return router


def _page(exporter: Exporter, snapshot: Snapshot, asked: Mapping[str, str]) -> Response:
    body, content_type = exporter.render(snapshot, asked.get("accept", ""))
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if "gzip" in asked.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = gzip.compress(body, 5), "gzip"
    return Response(body, headers=headers)
