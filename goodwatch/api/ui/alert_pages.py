"""The page of alerts: what fires and fired, silences, who is told; and the forms that begin and end a silence."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from alerts.matchers import matchers_of
from goodwatch.api.problem import ProblemError
from goodwatch.api.ui.incident_tables import incident_rows
from goodwatch.api.ui.render import prefix
from goodwatch.api.ui.slo_ground import SloGround
from goodwatch.app.alerting import AlertFilter
from goodwatch.core.duration import duration_s
from goodwatch.core.errors import ConfigError, StoreError

_FORM_BYTES: Final = 32_768
_MOST_SHOWN: Final = 200
_LONGEST_S: Final = 366 * 86_400.0
_MOST_AUTHOR, _MOST_COMMENT = 200, 2000
#: how far back the history goes
RANGES: Final[Mapping[str, float]] = {"24h": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0, "90d": 7_776_000.0}
STATES: Final = ("firing", "resolved")
SOURCES: Final = ("goodwatch", "prometheus", "grafana")
_DURATIONS: Final = ("30m", "1h", "2h", "4h", "8h", "24h", "3d", "7d")
_NO_FORM: Final = {"matchers": "", "duration": "2h", "author": "", "comment": ""}


def add_alert_pages(router: APIRouter, ground: SloGround) -> None:
    """Add the routes of alerts and silences."""
    site = _Site(ground)
    router.add_api_route("/alerts", site.alerts, methods=["GET"], include_in_schema=False)
    router.add_api_route("/silences", site.silences, methods=["GET"], include_in_schema=False)
    router.add_api_route("/silences", site.begin, methods=["POST"], include_in_schema=False)
    router.add_api_route("/silences/{id}/end", site.end, methods=["POST"], include_in_schema=False)


class _Site:
    def __init__(self, ground: SloGround) -> None:
        self._ground = ground

    async def alerts(self, request: Request) -> Response:
        try:
            wanted = _filter(request.query_params, self._ground.views.now_s())
        except ValueError as error:
            return self._ground.refused(request, 400, "This cannot be shown", str(error))
        silenced = request.query_params.get("silence", "")[:500]
        return await self._page(request, wanted, {**_NO_FORM, "matchers": silenced}, "", opened=bool(silenced))

    async def silences(self, request: Request) -> Response:
        return RedirectResponse(f"{prefix(request)}/alerts#silences", 303)

    async def begin(self, request: Request) -> Response:
        fields = {**_NO_FORM, **await _form(request)}
        now_s = self._ground.views.now_s()
        try:
            matchers = matchers_of([line for line in fields["matchers"].splitlines() if line.strip()])
            ends_at_s = now_s + _length_s(fields["duration"])
            author, comment = _text(fields, "author", _MOST_AUTHOR), _text(fields, "comment", _MOST_COMMENT)
            await self._ground.alerting.silence(matchers, now_s, ends_at_s, author=author, comment=comment)
        except (ValueError, ConfigError, StoreError) as error:
            status = 503 if isinstance(error, StoreError) else 400
            wanted = _filter({}, now_s)
            return await self._page(request, wanted, fields, str(error), opened=True, status=status)
        return RedirectResponse(f"{prefix(request)}/alerts#silences", 303)

    async def end(self, request: Request, id: str) -> Response:
        try:
            over = await self._ground.alerting.end_silence(id)
        except StoreError as error:
            return self._ground.refused(request, 503, "The silence goes on", f"It cannot be ended now: {error}")
        if over is None:
            text = f"There is no silence {id[:100]!r} that is not over."
            return self._ground.refused(request, 404, "No such silence", text)
        return RedirectResponse(f"{prefix(request)}/alerts#silences", 303)

    async def _page(
        self, request: Request, wanted: AlertFilter, fields: Mapping[str, str], fault: str, *, opened: bool,
        status: int = 200,
    ) -> Response:  # fmt: skip
        ground, now_s = self._ground, self._ground.views.now_s()
        values: dict[str, Any] = {
            "wanted": wanted, "range": _range_of(request), "ranges": tuple(RANGES), "states": STATES,
            "sources": SOURCES, "services": [one.name for one in ground.views.services()], "form": fields,
            "fault": fault, "opened": opened, "durations": _DURATIONS, "pager": ground.alerting.pager,
            "sinks": ground.alerting.sinks(), "maintenance": ground.alerting.maintenance(),
            "most": _MOST_SHOWN, "problem": "", "rows": (), "silences": [], "over": [],
        }  # fmt: skip
        try:
            found = await ground.alerting.incidents(wanted)
            silences = await ground.alerting.silences(expired=True)
            values["rows"] = incident_rows(found, now_s, ground.slos.alerts())
            values["silences"] = [(one, one.state(now_s)) for one in silences if one.state(now_s) != "expired"]
            values["over"] = [one for one in silences if one.state(now_s) == "expired"][:20]
        except StoreError as error:
            values["problem"] = str(error)
        return ground.renderer.page(request, "alerts", values, status=status, live=not opened)


def _range_of(request: Request) -> str:
    key = request.query_params.get("range") or "7d"
    return key if key in RANGES else "7d"


def _filter(query: Mapping[str, str], now_s: float) -> AlertFilter:
    """Which incidents a URL asks for. Raises ``ValueError`` with what would be right."""
    for name, known in (("state", STATES), ("source", SOURCES), ("range", tuple(RANGES))):
        value = query.get(name)
        if value and value not in known:
            raise ValueError(f"{name}: {value[:40]!r} is not one of {', '.join(known)}")
    since_s = now_s - RANGES[query.get("range") or "7d"]
    return AlertFilter(
        query.get("service") or None, query.get("state") or None, query.get("source") or None, since_s, _MOST_SHOWN
    )


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _FORM_BYTES:
            raise ProblemError(413, f"a silence has at most {_FORM_BYTES} bytes")
    try:
        found = parse_qs(body.decode("utf-8", "replace"), max_num_fields=20)
    except ValueError as error:
        raise ProblemError(400, "this form has too many fields") from error
    return {name: values[0] for name, values in found.items()}


def _length_s(text: str) -> float:
    try:
        length_s = duration_s(text.strip())
    except ValueError as error:
        raise ValueError(f"for: {text[:40]!r} {error}") from error
    if not 0 < length_s <= _LONGEST_S:
        raise ValueError("for: write a time of at most a year; a silence that never ends is an alert to remove")
    return length_s


def _text(fields: Mapping[str, str], name: str, most: int) -> str:
    text = fields[name].strip()
    if not 0 < len(text) <= most:
        raise ValueError(f"{name}: write 1 to {most} characters, so that others know who did it and why")
    return text
