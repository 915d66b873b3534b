"""The pages of recommendations: the list, one with its diff and what it predicts, and what people say to it."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from goodwatch.api.problem import ProblemError
from goodwatch.api.ui.assets import Assets
from goodwatch.api.ui.format import interval, scalar
from goodwatch.api.ui.render import Renderer, prefix
from goodwatch.app.advising import Advising, Asked
from goodwatch.app.view import Views
from goodwatch.core.errors import ConfigError, NoDataError
from goodwatch.core.model import Bounds
from planner.recommendations import MOVES, Band, Predicted, Recommendation, State

_FORM_BYTES: Final = 16_384
#: what a button says and the state that it leads to
_BUTTONS: Final[dict[str, State]] = {"accept": "accepted", "decline": "declined", "applied": "applied"}
_TITLES: Final = {
    "attainment_ratio": ("Attainment", "ratio"), "ttft_p99_seconds": ("TTFT, P99", "s"), "tpot_p99_seconds": ("TPOT, P99", "s"),
    "usd_per_million_good_tokens": ("USD per million good tokens", "USD"), "vram_headroom_ratio": ("Free GPU memory", "ratio"),
}  # fmt: skip
#: state → tone of its badge
TONES: Final = {
    "proposed": "no-data", "accepted": "warning", "declined": "no-traffic", "applied": "warning", "verified": "good",
    "refuted": "bad", "inconclusive": "no-data",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of a recommendation, as text."""

    title: str
    now: str
    then: str
    band: str
    measured: str
    inside: bool | None


def recommendation_pages(advising: Advising, views: Views) -> APIRouter:
    """Routes of the list, one recommendation, and its buttons; include it beside ``pages``."""
    site = _Site(advising, Renderer(views, Assets(), requests=True), views)
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/recommendations", site.listed, methods=["GET"], include_in_schema=False)
    router.add_api_route("/recommendations", site.ask, methods=["POST"], include_in_schema=False)
    router.add_api_route("/recommendations/{id}", site.one, methods=["GET"], include_in_schema=False)
    router.add_api_route("/recommendations/{id}/{what}", site.say, methods=["POST"], include_in_schema=False)
    return router


class _Site:
    def __init__(self, advising: Advising, renderer: Renderer, views: Views) -> None:
        self._advising, self._renderer, self._views = advising, renderer, views

    async def listed(self, request: Request) -> Response:
        service = request.query_params.get("service") or None
        found = self._advising.all(service)
        rows = [(one, self._main(one), saving_text(one.saving_usd_per_week)) for one in found]
        values = {
            "rows": rows, "tones": TONES, "service": service or "", "problem": self._advising.problem,
            "services": [view.name for view in self._views.services()], "answers": self._stays(service),
        }  # fmt: skip
        return self._renderer.page(request, "recommendations", values)

    def _stays(self, service: str | None) -> list[tuple[str, str]]:
        """Services where the last look came to no advice, and why."""
        found = {name: answer.advice.reason for name, answer in self._advising.answers.items()} | self._advising.refused
        return [(name, reason) for name, reason in sorted(found.items()) if reason and service in (None, name)]

    @staticmethod
    def _main(one: Recommendation) -> Line | None:
        name = "usd_per_million_good_tokens" if one.mode == "save" else "attainment_ratio"
        found = one.metric(name)
        return None if found is None else line_of(found)

    async def one(self, request: Request, id: str) -> Response:
        found = self._advising.one(id)
        if found is None:
            return self._problem(request, 404, "No such recommendation", f"There is no recommendation {id[:64]!r}.")
        values = {
            "one": found, "lines": [line_of(p) for p in found.predicted], "saving": saving_text(found.saving_usd_per_week),
            "waiting": self._advising.waiting.get(found.id, ""), "tones": TONES, "can": [name for name, state in _BUTTONS.items() if state in MOVES[found.state]],
        }  # fmt: skip
        return self._renderer.page(request, "recommendation", values, live=False)

    async def ask(self, request: Request) -> Response:
        fields = await form_of(request)
        try:
            await self._advising.ask(Asked(fields.get("service", ""), "person"))
        except (NoDataError, ConfigError) as error:
            return self._problem(request, 400, "No advice", str(error))
        return RedirectResponse(f"{prefix(request)}/recommendations?service={quote(fields.get('service', ''))}", 303)

    async def say(self, request: Request, id: str, what: str) -> Response:
        state = _BUTTONS.get(what)
        if state is None:
            return self._problem(request, 404, "Nothing is here", f"There is no {what[:40]!r}.")
        fields = await form_of(request)
        try:
            await self._advising.move(id, state, "a person, on the page", fields.get("note", ""))
        except NoDataError as error:
            return self._problem(request, 404, "No such recommendation", str(error))
        except ConfigError as error:
            return self._problem(request, 409, "This cannot be done", str(error))
        return RedirectResponse(f"{prefix(request)}/recommendations/{quote(id, safe='')}", 303)

    def _problem(self, request: Request, status: int, title: str, text: str) -> Response:
        return self._renderer.page(request, "problem", {"title": title, "text": text}, status=status, live=False)


async def form_of(request: Request) -> dict[str, str]:
    """The first value of each field of a small form. Raises ``ProblemError`` (413)."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _FORM_BYTES:
            raise ProblemError(413, f"this form has at most {_FORM_BYTES} bytes; write a shorter note")
    return {name: found[0] for name, found in parse_qs(body.decode("utf-8", "replace"), max_num_fields=10).items()}


def line_of(one: Predicted) -> Line:
    """A prediction for the table."""
    title, unit = _TITLES.get(one.metric, (one.metric, ""))
    measured = "" if one.after is None else " ".join(scalar(unit, one.after)).strip()
    return Line(title, _point(unit, one.now), _point(unit, one.then), _between(unit, one.then), measured, one.inside)


def saving_text(band: Band | None) -> str:
    """Money of a week; "" where it is not known."""
    if band is None or band.high <= 0:
        return ""
    return f"{_point('USD', band)} ({_between('USD', band)}) a week"


def _point(unit: str, band: Band) -> str:
    return " ".join(scalar(unit, band.point)).strip()


def _between(unit: str, band: Band) -> str:
    if unit == "USD" and band.low < 0:
        return f"{' '.join(scalar(unit, band.low)).strip()} to {' '.join(scalar(unit, band.high)).strip()}"
    return " ".join(interval(unit, Bounds(band.low, band.high))).strip()
