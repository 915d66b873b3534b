"""The pages of SLOs: all of them, and one; those of alerts and incidents come along."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from alerts.rules.values import Alert
from goodwatch.api.routes_slos import curve_of, eaters_of
from goodwatch.api.ui.alert_pages import add_alert_pages
from goodwatch.api.ui.assets import Assets
from goodwatch.api.ui.incident_pages import add_incident_pages
from goodwatch.api.ui.incident_tables import firing_rows, incident_rows
from goodwatch.api.ui.render import Renderer
from goodwatch.api.ui.slo_ground import SloGround
from goodwatch.api.ui.slo_tables import (
    HEIGHT,
    WIDTH,
    budget_chart,
    eater_tables,
    period_text,
    scope_text,
    slo_row,
    slo_tiles,
    what_text,
    window_rows,
)
from goodwatch.app.alerting import AlertFilter, Alerting
from goodwatch.app.slo_view import SloViews
from goodwatch.app.view import Views
from goodwatch.core.errors import StoreError

_SHOWN_S: Final = 30 * 86_400.0
_NAMED: Final = 20


def slo_pages(
    slos: SloViews,
    alerting: Alerting,
    views: Views,
    *,
    rules: Callable[[], Sequence[Alert]] = tuple,
    requests: bool = True,
) -> APIRouter:
    """Routes of SLOs, alerts, silences, triage and runbooks; include it beside ``pages``.

    ``requests`` says that the pages of requests are there too. Who may begin and end silences is decided by
    ``goodwatch.api.auth``: a POST needs the role admin and must come from goodwatch's own pages.
    """
    ground = SloGround(slos, alerting, views, Renderer(views, Assets(), requests=requests), rules)
    site = _Site(ground)
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/slos", site.slos, methods=["GET"], include_in_schema=False)
    router.add_api_route("/slos/{name:path}", site.slo, methods=["GET"], include_in_schema=False)
    add_alert_pages(router, ground)
    add_incident_pages(router, ground)
    return router


class _Site:
    def __init__(self, ground: SloGround) -> None:
        self._ground = ground

    async def slos(self, request: Request) -> Response:
        ground = self._ground
        service = request.query_params.get("service", "")
        views = ground.slos.slos()
        services = sorted({view.slo.service for view in views})
        shown = [view for view in views if not service or view.slo.service == service]
        values = {
            "rows": [slo_row(view) for view in shown], "service": service, "services": services, "some": bool(views),
            "firing": sum(bool(view.firing) for view in shown), "left_out": ground.slos.left_out,
            "pager": ground.alerting.pager, "drifts": [d for d in ground.slos.drifts() if service in ("", d.service)],
        }  # fmt: skip
        return ground.renderer.page(request, "slos", values)

    async def slo(self, request: Request, name: str) -> Response:
        ground = self._ground
        view = ground.slos.slo(name)
        if view is None:
            known = ", ".join(one.slo.name for one in ground.slos.slos()[:_NAMED])
            there = f"There are: {known}." if known else "There is none yet."
            return ground.refused(request, 404, "No such SLO", f"There is no SLO {name[:100]!r}. {there}")
        eaters, problems = await eaters_of(ground.slos, name)
        values: dict[str, Any] = {
            "view": view, "slo": view.slo, "row": slo_row(view), "tiles": slo_tiles(view), "what": what_text(view.slo),
            "scope": scope_text(view.slo), "period": period_text(view.slo), "windows": window_rows(view),
            "chart": budget_chart(view, await curve_of(ground.slos, view)), "width": WIDTH, "height": HEIGHT,
            "eaters": eater_tables(eaters, problems), "firing": firing_rows(view.firing), "problem": "",
            "pager": ground.alerting.pager, "known_service": ground.views.service(view.slo.service) is not None,
        }  # fmt: skip
        since_s = ground.views.now_s() - _SHOWN_S
        try:
            found = await ground.alerting.incidents(AlertFilter(service=view.slo.service, since_s=since_s, limit=1000))
            shown = {one.fingerprint for one in view.firing}  # they stand above
            mine = [
                one
                for one in found
                if one.labels.get("slo") == name and (one.ends_at_s or one.fingerprint not in shown)
            ][:_NAMED]
            values["history"] = incident_rows(mine, ground.views.now_s())
        except StoreError as error:
            values |= {"history": (), "problem": str(error)}
        return ground.renderer.page(request, "slo", values)
