"""What the pages of requests share: the service and range of a URL, the state of the intake, and errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request, Response

from goodwatch.api.request_query import link
from goodwatch.api.ui import request_forms as forms
from goodwatch.api.ui.ranges import PRESETS, TimeRange, time_range
from goodwatch.api.ui.render import Renderer
from goodwatch.app.request_view import RequestViews
from goodwatch.app.view import Views

#: an open page over a longer range is not read again by itself
_LIVE_S: Final = 6 * 3600.0
_PAGES: Final = (("heatmap", "Heatmap"), ("requests", "Requests"), ("costs", "Cost"), ("quality", "Quality"))


class AskedError(ValueError):
    """A URL that asks for nothing that there is; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What every page of requests is about: a service, a range, and the words of its URL."""

    service: str
    services: tuple[str, ...]
    chosen: TimeRange
    query: Mapping[str, str]

    def kept(self, *names: str, fixed: bool = False) -> dict[str, str]:
        """These parts of the query, service and range."""
        parts = {name: self.query[name] for name in names if self.query.get(name)}
        return {"service": self.service, **forms.range_parts(self.chosen, fixed=fixed), **parts}

    def words(self, *names: str) -> dict[str, str]:
        """Service and these parts, for a form that chooses another range."""
        return {"service": self.service, **{name: self.query[name] for name in names if self.query.get(name)}}

    @property
    def live(self) -> bool:
        """Whether the page is read again by itself."""
        return self.chosen.live and self.chosen.end_s - self.chosen.start_s <= _LIVE_S


def asked_of(request: Request, reads: RequestViews, now_s: float) -> Asked | None:
    """What a URL asks for; None when no service is known yet. Raises ``AskedError``."""
    query = dict(request.query_params)
    services = tuple(reads.services())
    try:
        chosen = forms.whole_seconds(time_range(query, now_s))
    except ValueError as error:
        raise AskedError(str(error)) from error
    name = query.get("service") or (services[0] if services else "")
    if not name:
        return None
    if name not in services:
        there = f"there are: {', '.join(services[:20])}" if services else "there is none yet"
        raise AskedError(f"service: there is no {name[:100]!r}; {there}")
    return Asked(name, services, chosen, query)


class Frame:
    """What the pages of requests share: the form's service and range, the state of the intake, and errors."""

    def __init__(self, reads: RequestViews, views: Views, renderer: Renderer) -> None:
        self.reads, self.views, self.renderer = reads, views, renderer

    def values(self, page: str, asked: Asked | None) -> dict[str, Any]:
        """Values of every template."""
        kept = asked.kept() if asked is not None else {}
        return {
            "asked": asked, "title": dict(_PAGES)[page], "path": page, "presets": tuple(PRESETS),
            "pages": [(path, title, link(**kept)) for path, title in _PAGES], "carry": link(**kept),
            "enabled": self.reads.enabled, "intake": self.reads.intake(), "problem": "",
            "selects": (), "more_selects": (), "fields": (), "seen": False, "some": False, "kept": {},
        }  # fmt: skip

    def answer(self, request: Request, template: str, values: dict[str, Any]) -> Response:
        """The page."""
        asked: Asked | None = values["asked"]
        return self.renderer.page(request, template, values, live=asked is not None and asked.live)

    def refused(self, request: Request, error: ValueError) -> Response:
        """A page that says what is wrong with the URL."""
        values = {"title": "This cannot be shown", "text": str(error)}
        return self.renderer.page(request, "problem", values, status=400, live=False)

    async def choices(self, asked: Asked) -> Mapping[str, Sequence[str | None]]:
        """Values to filter by."""
        return await self.reads.choices(asked.service, asked.chosen.start_s, asked.chosen.end_s)
