"""The web pages: overview, one service, one target, and what the words mean."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from fastapi import APIRouter, Request, Response

from goodwatch import __version__
from goodwatch.api.ui.assets import Assets, static_routes
from goodwatch.api.ui.bars import Box, strip, strip_y
from goodwatch.api.ui.chart_rows import rows_by_name
from goodwatch.api.ui.charts import CHARTS, charts
from goodwatch.api.ui.format import ABSENCE_TEXTS, BASIS_TEXTS, scalar, seconds, shown
from goodwatch.api.ui.ranges import PRESETS, TimeRange, time_range
from goodwatch.api.ui.render import Renderer, safe_json
from goodwatch.api.ui.tables import (
    MODEL_COLUMNS,
    binding_rows,
    derived_cells,
    device_table,
    model_rows,
    named_rows,
    number_rows,
    signal_groups,
    target_state,
    up_count,
)  # fmt: skip
from goodwatch.api.ui.tiles import Tile, service_tiles, target_tiles
from goodwatch.api.ui.words import MENDS, VERDICTS, WORDS
from goodwatch.app.discovering import DiscoveryView
from goodwatch.app.view import Event, ServiceView, Views
from goodwatch.core.errors import GoodwatchError
from goodwatch.core.model import Limits, Number, SignalStatus
from goodwatch.signals.derive import MEANINGS
from goodwatch.signals.frames import DERIVED

_STRIP_S: Final = 3600.0
#: a page stays readable, and a restart loop must not fill it
_EVENTS_SHOWN: Final = 50
#: of one discovery on the overview: a namespace full of pods without a port is one mistake, and services come first
_PROBLEMS_SHOWN: Final = 5

Discoveries = Callable[[], Sequence[DiscoveryView]]


@dataclass(frozen=True, slots=True)
class Strip:
    """A small chart of attainment."""

    boxes: tuple[Box, ...]
    objective_y: float | None
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class OverviewItem:
    """One service on the overview."""

    service: ServiceView
    tiles: tuple[Tile, ...]
    up: int
    targets: int
    strip: Strip


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One discovery that cannot do all it should, with the first of its problems and how many more there are."""

    discovery: DiscoveryView
    shown: tuple[tuple[str, str], ...]
    more: int


def pages(views: Views, discoveries: Discoveries = tuple, *, requests: bool = False) -> APIRouter:
    """Routes of all pages and of their static files; include it at the root of the application.

    ``discoveries`` says how the discoveries fare, and is asked at each request, on the event loop. ``requests`` says
    that the pages of requests are there too. The router's lifespan makes the chart library while the service starts.
    """
    assets = Assets()
    site = _Site(views, Renderer(views, assets, requests=requests), discoveries)
    router = APIRouter(include_in_schema=False, lifespan=assets.warmed)
    router.include_router(static_routes(assets))
    router.add_api_route("/", site.overview, methods=["GET"], include_in_schema=False)
    router.add_api_route("/services/{name:path}", site.service, methods=["GET"], include_in_schema=False)
    router.add_api_route("/targets/{name:path}", site.target, methods=["GET"], include_in_schema=False)
    router.add_api_route("/about", site.about, methods=["GET"], include_in_schema=False)
    return router


class _Site:
    def __init__(self, views: Views, renderer: Renderer, discoveries: Discoveries) -> None:
        self._views, self._renderer, self._discoveries = views, renderer, discoveries

    async def overview(self, request: Request) -> Response:
        services = self._views.services()
        items = [
            OverviewItem(s, service_tiles(s), *up_count(s.targets), one)
            for s, one in zip(services, await asyncio.gather(*map(self._last_hour, services)), strict=True)
        ]
        states = list(Counter(s.state for s in services).items())
        first = services[0].derived if services else None
        discoveries = self._discoveries()
        values = {
            "services": items,
            "discoveries": discoveries,
            "shortfalls": _shortfalls(discoveries),
            "mends": _mends(discoveries),
            "states": states,
            "summary": ", ".join(f"{count} {state}" for state, count in states) or "no services",
            "window_s": first.end_s - first.start_s if first else 0.0,
        }
        return self._renderer.page(request, "overview", values)

    async def service(self, request: Request, name: str) -> Response:
        service = self._views.service(name)
        if service is None:
            return self._missing(request, "service", name, [s.name for s in self._views.services()])
        try:
            chosen = time_range(request.query_params, self._views.now_s())
        except ValueError as error:
            return self._problem(request, 400, "This is not a time range", str(error))
        frame, problem = await self._history(name, chosen.start_s, chosen.end_s)
        events = [] if problem else await self._views.events(chosen.start_s, chosen.end_s, service=name)
        drawn = await asyncio.to_thread(
            lambda: safe_json(
                charts(
                    frame, events, start_s=chosen.start_s, end_s=chosen.end_s, limits=service.limits,
                    objective=service.objective,
                )
            )
        )  # fmt: skip
        rows = rows_by_name(frame, ["attainment_ratio"]).get("attainment_ratio", [])
        boxes = strip(rows, chosen.start_s, chosen.end_s, service.objective)
        values = _service_values(service, chosen, events) | {
            "charts_json": drawn,
            "strip": _strip(service, boxes, chosen.start_s, chosen.end_s),
            "history_problem": problem,
        }
        return self._renderer.page(request, "service", values, live=chosen.live)

    async def target(self, request: Request, name: str) -> Response:
        target = self._views.target(name)
        if target is None:
            return self._missing(request, "target", name, [t.name for t in self._views.targets()])
        service = self._views.service(target.service)
        limits, objective = (service.limits, service.objective) if service else (Limits(), None)
        report = target.capability
        counts = report.counts if report else {}
        values = {
            "target": target,
            "state": target_state(target),
            "tiles": target_tiles(target, limits, objective),
            "report": report,
            "facts": dict(target.deployment.facts if target.deployment else report.facts if report else {}),
            "groups": signal_groups(report) if report else (),
            "counts": ", ".join(f"{counts.get(status, 0)} {status.value}" for status in SignalStatus),
            "numbers": number_rows(target.derived),
            "devices": device_table(target.devices),
            "device_numbers": named_rows(target.device_numbers),
        }
        return self._renderer.page(request, "target", values)

    async def about(self, request: Request) -> Response:
        discoveries = self._discoveries()
        values = {
            "version": __version__,
            "health": self._views.health(),
            "discoveries": discoveries,
            "mends": _mends(discoveries),
            "bases": BASIS_TEXTS,
            "absences": [(shown(Number.none("", absence)), text) for absence, text in ABSENCE_TEXTS.items()],
            "words": WORDS,
            "meanings": MEANINGS,
        }
        return self._renderer.page(request, "about", values, live=False)

    async def _last_hour(self, service: ServiceView) -> Strip:
        end = self._views.now_s()
        frame, _ = await self._history(service.name, end - _STRIP_S, end)
        rows = rows_by_name(frame, ["attainment_ratio"]).get("attainment_ratio", [])
        return _strip(service, strip(rows, end - _STRIP_S, end, service.objective), end - _STRIP_S, end)

    async def _history(self, service: str, start_s: float, end_s: float) -> tuple[pl.DataFrame, str]:
        """The series, or none and why: a broken store must not hide what is known now."""
        try:
            return await self._views.series(service, start_s, end_s), ""
        except GoodwatchError as error:
            return pl.DataFrame(schema=DERIVED), str(error)

    def _missing(self, request: Request, kind: str, name: str, known: list[str]) -> Response:
        there = f"There are: {', '.join(known[:20])}." if known else "There is none yet."
        return self._problem(request, 404, f"No such {kind}", f"There is no {kind} {name[:100]!r}. {there}")

    def _problem(self, request: Request, status: int, title: str, text: str) -> Response:
        return self._renderer.page(request, "problem", {"title": title, "text": text}, status=status, live=False)


def _mends(discoveries: Sequence[DiscoveryView]) -> dict[str, str]:
    """What to do, by name of the discovery; one of a kind that is not known here still has its own sentences."""
    return {d.name: MENDS.get(d.name.partition("[")[0], "") for d in discoveries}


def _shortfalls(discoveries: Sequence[DiscoveryView]) -> tuple[Shortfall, ...]:
    troubled = (d for d in discoveries if d.problems)
    return tuple(
        Shortfall(d, d.problems[:_PROBLEMS_SHOWN], max(0, len(d.problems) - _PROBLEMS_SHOWN)) for d in troubled
    )


def _service_values(service: ServiceView, chosen: TimeRange, events: list[Event]) -> dict[str, Any]:
    up, total = up_count(service.targets)
    return {
        "service": service,
        "up": up,
        "total": total,
        "tiles": service_tiles(service),
        "bindings": binding_rows(service.saturations),
        "notes": _notes(service),
        "range": chosen,
        "presets": tuple(PRESETS),
        "charts": CHARTS,
        "verdicts": VERDICTS,
        "limit_texts": limit_texts(service.limits, service.objective),
        "models": model_rows(service),
        "model_columns": MODEL_COLUMNS,
        "targets": [
            {
                "target": t,
                "state": target_state(t),
                "cells": derived_cells(t.derived, service.limits, service.objective) if t.derived else (),
            }
            for t in service.targets
        ],
        "events": sorted(events, key=lambda e: -e.ts)[:_EVENTS_SHOWN],
        "events_left_out": max(0, len(events) - _EVENTS_SHOWN),
    }


def limit_texts(limits: Limits, objective: float | None) -> dict[str, str]:
    """What the dashed line of a chart stands for, by the chart's ``limit``; "" where nothing is set.

    Examples
    --------
    >>> limit_texts(Limits(ttft_s=0.5), 0.99)["ttft_s"], limit_texts(Limits(), 0.99)["objective"]
    ('target 500 ms', 'objective 99 %')
    """
    times = {"ttft_s": limits.ttft_s, "tpot_s": limits.tpot_s, "e2e_s": limits.e2e_s}
    texts = {name: f"target {seconds(limit)}" if limit is not None else "" for name, limit in times.items()}
    shown_objective = "" if objective is None else "objective " + " ".join(scalar("ratio", objective))
    return {"": "", "objective": shown_objective, **texts}


def _strip(service: ServiceView, boxes: tuple[Box, ...], start_s: float, end_s: float) -> Strip:
    line = None if service.objective is None else strip_y(service.objective)
    return Strip(boxes, line, start_s, end_s)


def _notes(service: ServiceView) -> tuple[str, ...]:
    """What must be known to read the attainment: restarts in the window, what the engine does not count."""
    goodput = service.derived.goodput
    return () if goodput is None else (*goodput.broken, *goodput.notes)
