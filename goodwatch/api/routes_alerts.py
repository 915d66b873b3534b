"""Alerts over HTTP: webhooks of Alertmanager and Grafana in, alerts now and before out, silences, sinks."""

import asyncio
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from alerts.matchers import matchers_of
from goodwatch.api.alert_shapes import (
    IncidentsShape,
    SilenceAsked,
    SilenceShape,
    SilencesShape,
    SinksShape,
    TakenAlertsShape,
    incident_shape,
    silence_shape,
    sink_shape,
    taken_shape,
)
from goodwatch.api.problem import ProblemError, documented
from goodwatch.api.routes_query import instant_s
from goodwatch.app.alerting import AlertFilter, Alerting
from goodwatch.core.clock import Clock
from goodwatch.core.duration import duration_s
from goodwatch.core.errors import ConfigError

MOST_BYTES: Final = 4 * 1024 * 1024
MAX_ALERTS: Final = 1_000
_SHOWN_S: Final = 7 * 86_400.0
_LONGEST_SILENCE_S: Final = 366 * 86_400.0
#: FastAPI knows only bodies that it reads itself; this one is read with a limit
_WEBHOOK: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object", "required": ["alerts"],
                    "properties": {"alerts": {"type": "array", "items": {"type": "object"}}},
                }
            }
        },
    }
}  # fmt: skip


class AlertsAsked(BaseModel):
    """Which alerts."""

    service: str | None = Field(None, description="Of this service; empty: those that are about none that is known.")
    state: str | None = Field(None, description="firing or resolved.")
    source: str | None = Field(None, description="goodwatch, prometheus or grafana.")
    since: str | None = Field(None, description="Those that fired at or after this time; 7 days back without it.")
    limit: int = Field(100, ge=1, le=MAX_ALERTS, description=f"At most so many, up to {MAX_ALERTS}.")

    def wanted(self, now_s: float) -> AlertFilter:
        """The same as a value. Raises ``ProblemError`` (400)."""
        known = (("firing", "resolved"), ("goodwatch", "prometheus", "grafana"))
        for where, value, names in zip(("state", "source"), (self.state, self.source), known, strict=True):
            if value is not None and value not in names:
                raise _wrong(where, f"{value[:40]!r} is not one of {', '.join(names)}")
        since_s = now_s - _SHOWN_S if self.since is None else instant_s(self.since, now_s, "since")
        return AlertFilter(self.service, self.state, self.source, since_s, self.limit)


def alert_routes(alerting: Alerting, clock: Clock) -> APIRouter:
    """Routes of alerts, silences and sinks."""
    router = APIRouter(prefix="/api/v1", tags=["alerts"])
    _webhook_route(router, alerting)
    _silence_routes(router, alerting, clock)

    @router.get("/alerts", summary="Alerts now and before", responses=documented(400, 503))
    async def alerts(asked: Annotated[AlertsAsked, Query()]) -> IncidentsShape:
        """Those that fire first, then the newest first. Silenced alerts are there as well, and say so."""
        found = await alerting.incidents(asked.wanted(clock.now_s()))
        return IncidentsShape(alerts=[incident_shape(one) for one in found])

    @router.get("/alerts/sinks", summary="How those fare who are told")
    async def sinks() -> SinksShape:
        """Every sink of the configuration with what was sent and what is wrong."""
        return SinksShape(pages=alerting.pager, sinks=[sink_shape(one) for one in alerting.sinks()])

    return router


def _webhook_route(router: APIRouter, alerting: Alerting) -> None:
    @router.post(
        "/alerts/webhook", summary="Take a webhook of Alertmanager or Grafana",
        responses=documented(400, 413, 503), openapi_extra=_WEBHOOK,
    )  # fmt: skip
    async def webhook(request: Request) -> TakenAlertsShape:
        """Alertmanager's webhook (version 4) or Grafana's; keys may be missing. What is accepted is on the disk.

        Telling the same again changes nothing. 400 when none of its alerts is usable.
        """
        body = await _limited(request, alerting)
        try:
            taken = await alerting.receive(await asyncio.to_thread(_json, body, alerting))
        except ValueError as error:
            raise ProblemError(400, str(error)) from error
        if taken.refused and not taken.taken:
            errors = [(f"alerts[{place}]", what) for place, what in taken.refused]
            shown = "; ".join(f"{where}: {what}" for where, what in errors[:3])
            raise ProblemError(400, f"no alert is usable: {shown}", errors=errors)
        return taken_shape(taken)


def _silence_routes(router: APIRouter, alerting: Alerting, clock: Clock) -> None:
    @router.get("/silences", summary="Silences", responses=documented(503))
    async def silences(
        expired: Annotated[bool, Query(description="With those that are over.")] = False,
    ) -> SilencesShape:
        """The one that ends last first."""
        now_s = clock.now_s()
        return SilencesShape(silences=[silence_shape(one, now_s) for one in await alerting.silences(expired=expired)])

    @router.post("/silences", summary="Begin a silence", status_code=201, responses=documented(400, 409, 503))
    async def begin(asked: SilenceAsked) -> SilenceShape:
        """Alerts that all matchers fit are told to nobody until it ends; they are still recorded."""
        now_s = clock.now_s()
        starts_at_s, ends_at_s = _times(asked, now_s)
        try:
            matchers = matchers_of(asked.matchers)
        except ValueError as error:
            raise _wrong("matchers", str(error)) from error
        try:
            made = await alerting.silence(matchers, starts_at_s, ends_at_s, author=asked.author, comment=asked.comment)
        except ConfigError as error:
            raise ProblemError(409, str(error)) from error
        return silence_shape(made, now_s)

    @router.delete("/silences/{id}", summary="End a silence now", responses=documented(404, 503))
    async def end(id: str) -> SilenceShape:
        """It stays in the history."""
        over = await alerting.end_silence(id)
        if over is None:
            raise ProblemError(404, f"no silence {id[:100]!r} that is not over; GET /api/v1/silences lists them")
        return silence_shape(over, clock.now_s())


def _times(asked: SilenceAsked, now_s: float) -> tuple[float, float]:
    starts_at_s = now_s if asked.start is None else instant_s(asked.start, now_s, "start")
    if (asked.end is None) == (asked.duration is None):
        raise _wrong("end", "write end or duration, one of them")
    if asked.end is not None:
        ends_at_s = instant_s(asked.end, now_s, "end")
    else:
        try:
            ends_at_s = starts_at_s + duration_s(asked.duration)
        except ValueError as error:
            raise _wrong("duration", f"{str(asked.duration)[:64]!r} {error}") from error
    if ends_at_s <= max(starts_at_s, now_s):
        raise _wrong("end", "is over already, or not after start; write a later end")
    if ends_at_s - now_s > _LONGEST_SILENCE_S:
        raise _wrong("end", "is more than a year away; a silence that never ends is an alert to remove")
    return starts_at_s, ends_at_s


async def _limited(request: Request, alerting: Alerting) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            alerting.webhooks["too_large"] += 1
            raise ProblemError(413, f"the body is over {MOST_BYTES // 1024**2} MiB; set max_alerts at the sender")
    return bytes(body)


def _json(body: bytes, alerting: Alerting) -> object:
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        alerting.webhooks["unreadable"] += 1
        raise ProblemError(400, "the body is not JSON; send Alertmanager's webhook (version 4) or Grafana's") from error


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _wrong(where: str, what: str) -> ProblemError:
    return ProblemError(400, f"{where}: {what}", errors=[(where, what)])
