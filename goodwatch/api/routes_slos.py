"""SLOs over HTTP: budgets, burn by window, forecast, what ate the budget; drifts."""

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter

from goodwatch.api.problem import documented
from goodwatch.api.routes_query import unknown_name
from goodwatch.api.slo_shapes import (
    DriftsShape,
    SloDetail,
    SlosShape,
    drift_shape,
    slo_detail,
    slo_shape,
)
from goodwatch.app.slo_view import SloView, SloViews
from goodwatch.core.errors import StoreError
from goodwatch.signals.budget import CurvePoint, Eater

#: what a budget is split by, in the order in which it is shown
EATERS_BY: Final = ("target", "cause", "band", "tenant", "route", "model", "replica")


def slo_routes(slos: SloViews) -> APIRouter:
    """Routes of SLOs and drifts."""
    router = APIRouter(prefix="/api/v1", tags=["slos"])

    @router.get("/slos", summary="All SLOs")
    async def all_slos() -> SlosShape:
        """Those that fire first, then those with the least budget left."""
        return SlosShape(slos=[slo_shape(view) for view in slos.slos()], left_out=list(slos.left_out))

    @router.get("/slos/{name:path}", summary="One SLO", responses=documented(404, 503))
    async def one_slo(name: str) -> SloDetail:
        """Windows, thresholds, budget over the period, forecast, and what ate the budget.

        What ate it is counted over the period where it is split by target; else over the single requests that are
        kept, at most the last 14 days.
        """
        view = slos.slo(name)
        if view is None:
            raise unknown_name("SLO", name, [one.slo.name for one in slos.slos()])
        eaters, notes = await eaters_of(slos, name)
        return slo_detail(view, await curve_of(slos, view), eaters, notes)

    @router.get("/drifts", summary="Drifts that go on")
    async def drifts() -> DriftsShape:
        """Budgets that burn or end too soon, and slow trends; newest first."""
        return DriftsShape(drifts=[drift_shape(one) for one in slos.drifts()])

    return router


async def curve_of(slos: SloViews, view: SloView) -> Sequence[CurvePoint]:
    """The budget from where the period or its data begin up to now; () without any."""
    status = view.status
    if status is None or status.since_s is None:
        return ()
    return await slos.curve(view.slo.name, max(status.starts_s, status.since_s), status.at_s)


async def eaters_of(slos: SloViews, name: str) -> tuple[dict[str, Sequence[Eater]], dict[str, str]]:
    """What ate the budget by each of ``EATERS_BY``, and why one could not be read."""
    found: dict[str, Sequence[Eater]] = {}
    notes: dict[str, str] = {}
    for by in EATERS_BY:
        try:
            found[by] = await slos.eaters(name, by)
        except StoreError as error:
            found[by], notes[by] = (), str(error)
    return found, notes
