"""Services and events as they are now, definitions, and the reload of the configuration."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from exporters.prometheus import series_name
from goodwatch import __version__
from goodwatch.api.problem import ProblemError, documented
from goodwatch.api.routes_query import asked_range, unknown_name
from goodwatch.api.shapes import (
    EventsShape,
    MeaningsShape,
    ReloadedShape,
    ServiceDetail,
    ServicesShape,
    VersionShape,
    event_shape,
    meanings_shape,
    reloaded_shape,
    service_detail,
    service_shape,
)
from goodwatch.app.view import Views
from goodwatch.signals.derive import MEANINGS

#: more events than a person reads; the newest are kept
MAX_EVENTS: Final = 1000


def service_routes(views: Views) -> APIRouter:
    """Routes of services. Those of parts come first: names may have a slash in them."""
    router = APIRouter(prefix="/api/v1", tags=["services"])

    @router.get("/services", summary="All services, worst first")
    async def services() -> ServicesShape:
        """Numbers over the last window and what is wrong, for every service."""
        return ServicesShape(now_s=views.now_s(), services=[service_shape(view) for view in views.services()])

    @router.get("/services/{name:path}", summary="One service", responses=documented(404))
    async def service(name: str) -> ServiceDetail:
        """Its numbers by model, its targets, what binds and what stands still."""
        view = views.service(name)
        if view is None:
            raise unknown_name("service", name, [s.name for s in views.services()])
        return service_detail(view)

    return router


def event_routes(views: Views) -> APIRouter:
    """The route of events."""
    router = APIRouter(prefix="/api/v1", tags=["events"])

    @router.get("/events", summary="What happened", responses=documented(400, 404, 503))
    async def events(
        start: Annotated[str | None, Query(alias="from", description="Begin; default one hour before `to`.")] = None,
        end: Annotated[str | None, Query(alias="to", description="End; default now.")] = None,
        service: Annotated[str | None, Query(description="Only this service.")] = None,
    ) -> EventsShape:
        """Restarts, deployments, targets that went away; the newest 1000 of the range, oldest first."""
        if service is not None and views.service(service) is None:
            raise unknown_name("service", service, [s.name for s in views.services()])
        asked = asked_range(start, end, None, views.now_s())
        happened = await views.events(asked.start_s, asked.end_s, service=service)
        return EventsShape(
            start_s=asked.start_s, end_s=asked.end_s, truncated=len(happened) > MAX_EVENTS,
            events=[event_shape(event) for event in happened[-MAX_EVENTS:]],
        )  # fmt: skip

    return router


def about_routes(views: Views) -> APIRouter:
    """Definitions, version, and the one thing that can be changed over the API."""
    router = APIRouter(prefix="/api/v1", tags=["about"])

    @router.get("/meanings", summary="What every number means")
    async def meanings() -> MeaningsShape:
        """Units, definitions and exported names of numbers; what bases and absences say."""
        return meanings_shape({name: series_name(name) for name in MEANINGS})

    @router.get("/version", summary="What runs")
    async def version() -> VersionShape:
        """Version of goodwatch and of this API."""
        return VersionShape(version=__version__, api="v1")

    @router.post("/reload", summary="Read the configuration again", responses=documented(422))
    async def reload() -> ReloadedShape:
        """A configuration with a problem is refused (422 with all of them) and the old one stays."""
        outcome = await views.reload()
        if not outcome.ok:
            problems = [("configuration", text) for text in outcome.problems]
            raise ProblemError(422, "the configuration has problems; the old one stays", errors=problems)
        return reloaded_shape(outcome)

    return router
