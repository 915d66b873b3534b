"""What somebody needs who was just woken: one page of what is known of a service now, and the runbooks."""

import asyncio
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from alerts.runbooks import RUNBOOKS
from alerts.runbooks import page as runbook_page
from goodwatch.api.ui.incident_tables import incident_rows
from goodwatch.api.ui.markdown import html_of
from goodwatch.api.ui.slo_ground import SloGround
from goodwatch.api.ui.slo_tables import slo_row
from goodwatch.api.ui.tables import binding_rows, named_rows, target_state, up_count
from goodwatch.api.ui.tiles import service_tiles
from goodwatch.app.alerting import AlertFilter
from goodwatch.app.view import Event, ServiceView
from goodwatch.core.errors import GoodwatchError, StoreError

#: what changed before an incident is older than the incident
_EVENTS_S: Final = 6 * 3600.0
_ALERTS_S: Final = 86_400.0
_MOST_EVENTS, _MOST_ALERTS = 30, 20
#: what usually tells the cause, beside the tiles
_NUMBERS: Final = (
    "requests_waiting", "requests_running", "queue_p90_seconds", "kv_cache_used_max_ratio", "preemptions_per_s",
    "prefix_hit_ratio", "failed_per_s", "unaccounted_per_s", "request_rate_per_s", "output_tokens_per_s",
)  # fmt: skip


def add_incident_pages(router: APIRouter, ground: SloGround) -> None:
    """Add the routes of triage and runbooks."""
    site = _Site(ground)
    router.add_api_route("/triage", site.asked, methods=["GET"], include_in_schema=False)
    router.add_api_route("/triage/{service:path}", site.triage, methods=["GET"], include_in_schema=False)
    router.add_api_route("/docs/runbooks", site.runbooks, methods=["GET"], include_in_schema=False)
    router.add_api_route("/docs/runbooks/{kind}", site.runbook, methods=["GET"], include_in_schema=False)


class _Site:
    def __init__(self, ground: SloGround) -> None:
        self._ground = ground

    async def asked(self, request: Request) -> Response:
        """The form in which alerts link here: ``/triage?service=NAME&alert=NAME``."""
        return await self.triage(request, request.query_params.get("service", ""))

    async def triage(self, request: Request, service: str) -> Response:
        ground = self._ground
        view = ground.views.service(service)
        slos = [one for one in ground.slos.slos() if one.slo.service == service]
        if view is None and not slos:
            known = sorted({one.name for one in ground.views.services()} | {s.slo.service for s in ground.slos.slos()})
            there = f"There are: {', '.join(known[:20])}." if known else "There is none yet."
            return ground.refused(request, 404, "No such service", f"There is no service {service[:100]!r}. {there}")
        values: dict[str, Any] = {
            "name": service, "service": view, "alert": request.query_params.get("alert", "")[:100],
            "rows": [slo_row(one) for one in slos], **_service_values(view), **await self._alerts(service),
            **await self._events(service),
        }  # fmt: skip
        return ground.renderer.page(request, "triage", values)

    async def _alerts(self, service: str) -> dict[str, Any]:
        now_s = self._ground.views.now_s()
        wanted = AlertFilter(service=service, since_s=now_s - _ALERTS_S, limit=_MOST_ALERTS)
        try:
            found = await self._ground.alerting.incidents(wanted)
        except StoreError as error:
            return {"alerts": (), "alerts_problem": str(error)}
        return {"alerts": incident_rows(found, now_s, self._ground.slos.alerts()), "alerts_problem": ""}

    async def _events(self, service: str) -> dict[str, Any]:
        now_s = self._ground.views.now_s()
        found: list[Event] = []
        problem = ""
        try:
            found = await self._ground.views.events(now_s - _EVENTS_S, now_s, service=service)
        except GoodwatchError as error:  # what is known now must not be hidden by a broken store
            problem = str(error)
        events = sorted(found, key=lambda one: -one.ts)[:_MOST_EVENTS]
        return {"events": events, "events_problem": problem, "events_s": _EVENTS_S}

    async def runbooks(self, request: Request) -> Response:
        fires: dict[str, set[str]] = {}
        for rule in self._ground.rules():
            fires.setdefault(rule.kind, set()).add(rule.name)
        values = {"books": [(book, sorted(fires.get(kind, ()))) for kind, book in RUNBOOKS.items()], "html": ""}
        return self._ground.renderer.page(request, "runbook", {**values, "title": "Runbooks"}, live=False)

    async def runbook(self, request: Request, kind: str) -> Response:
        book = RUNBOOKS.get(kind.removesuffix(".md"))
        if book is None:
            text = f"There is no runbook {kind[:100]!r}. There are: {', '.join(RUNBOOKS)}."
            return self._ground.refused(request, 404, "No such runbook", text)
        rules = {rule.name: rule for rule in self._ground.rules() if rule.kind == book.kind}
        html = await asyncio.to_thread(lambda: html_of(runbook_page(book, rules.values())))
        values = {"html": html, "title": book.title, "books": ()}
        return self._ground.renderer.page(request, "runbook", values, live=False)


def _service_values(view: ServiceView | None) -> dict[str, Any]:
    """What the live numbers say; nothing where no target is seen."""
    if view is None:
        return {"tiles": (), "bindings": (), "notes": (), "numbers": (), "targets": (), "up": 0, "total": 0}
    up, total = up_count(view.targets)
    numbers = {name: view.derived.numbers[name] for name in _NUMBERS if name in view.derived.numbers}
    return {
        "tiles": service_tiles(view), "bindings": binding_rows(view.saturations), "numbers": named_rows(numbers),
        "targets": [(one, target_state(one)) for one in view.targets], "up": up, "total": total,
    }  # fmt: skip
