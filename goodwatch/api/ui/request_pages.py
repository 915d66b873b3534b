"""The pages of requests: the heatmap, the list, one trace; those of cost and quality are in ``money_pages``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl
from fastapi import APIRouter, Request, Response

from collector.capability import display_model
from goodwatch.api.request_files import FORMS, MAX_ROWS
from goodwatch.api.request_query import (
    FILTERS,
    Order,
    ask_of,
    field_text,
    link,
    measure_key,
    measure_text,
    order_of,
    orders,
    quantile_key,
    slice_of,
)
from goodwatch.api.ui import request_forms as forms
from goodwatch.api.ui.assets import Assets
from goodwatch.api.ui.format import digits
from goodwatch.api.ui.heatmap_cells import TONES, class_texts, held_against, map_table
from goodwatch.api.ui.money_pages import money_pages
from goodwatch.api.ui.render import Renderer
from goodwatch.api.ui.request_frame import Asked, Frame, asked_of
from goodwatch.api.ui.request_tables import (
    VERDICT_TONES,
    columns_of,
    fact_texts,
    lines_of,
    list_rows,
    missed_text,
    same_texts,
    score_rows,
    span_rows,
    target_rows,
    token_texts,
    verdict_text,
)
from goodwatch.api.ui.request_tiles import attained_tiles
from goodwatch.app.quality_reads import QualityReads
from goodwatch.app.request_view import MapView, RequestsView, RequestViews, Slice, TraceView
from goodwatch.app.view import Views
from goodwatch.core.errors import StoreError
from goodwatch.core.quality import QualityRules
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment_verdicts import tpot
from goodwatch.signals.heatmap import Ask, Measure

PAGE_ROWS: Final = 50


def request_pages(reads: RequestViews, views: Views, quality: QualityReads | None = None) -> APIRouter:
    """Routes of the heatmap, the list of requests, one trace, cost and quality; include it beside ``pages``.

    Without ``quality`` scores pass by the plain rules, and no judge is told of.
    """
    frame = Frame(reads, views, Renderer(views, Assets(), requests=True))
    site = _Site(frame)
    router = APIRouter(include_in_schema=False)
    router.include_router(money_pages(frame, quality or QualityReads(reads, QualityRules())))
    router.add_api_route("/heatmap", site.heatmap, methods=["GET"], include_in_schema=False)
    router.add_api_route("/requests", site.requests, methods=["GET"], include_in_schema=False)
    router.add_api_route("/requests/{trace_id}", site.trace, methods=["GET"], include_in_schema=False)
    return router


class _Site:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._reads = frame.reads

    async def heatmap(self, request: Request) -> Response:
        try:
            asked = asked_of(request, self._reads, self._frame.views.now_s())
            if asked is None:
                return self._frame.answer(request, "heatmap", self._frame.values("heatmap", None) | {"view": None})
            vantage = self._reads.vantage(asked.service)
            ask = ask_of(asked.query, vantage)
            query = {name: asked.query.get(name, "") for name in FILTERS}
            of = slice_of(query, asked.service, asked.chosen.start_s, asked.chosen.end_s, field=ask.field)
        except ValueError as error:
            return self._frame.refused(request, error)
        values = self._frame.values("heatmap", asked) | {"view": None}
        try:
            found = await self._frame.choices(asked)
            view = await self._reads.heatmap(of, ask)
        except StoreError as error:
            return self._frame.answer(request, "heatmap", values | {"problem": str(error)})
        values |= {
            "selects": (forms.measure_select(measure_key(ask)), forms.quantile_select(quantile_key(ask.quantile))),
            "more_selects": (*forms.column_selects(found, asked.query), *forms.word_selects(asked.query)),
            "kept": asked.words("measure", "q", *FILTERS),
            "some": any(found.values()),
        }
        if any(cell.requests for cell in view.map.cells):
            values |= {"seen": True, **self._map_values(asked, view, of, vantage)}
        return self._frame.answer(request, "heatmap", values)

    def _map_values(self, asked: Asked, view: MapView, of: Slice, vantage: Vantage) -> dict[str, Any]:
        ask = view.map.ask
        service = self._frame.views.service(asked.service)
        objective = service.objective if service is not None else None
        held = held_against(ask, self._reads.limits(asked.service), vantage, objective, of.equal)
        return {
            "view": view, "table": map_table(view, held, asked.kept(*FILTERS, fixed=True)), "held": held,
            "measure": measure_text(ask), "tones": TONES, "vantage": vantage.value, "basis": _basis_text(ask, view),
            "classes": class_texts(view.reconciled.by_class),
            "tiles": attained_tiles(view.attained, objective, vantage),
            "whole": not any(asked.query.get(name) for name in FILTERS),
        }  # fmt: skip

    async def requests(self, request: Request) -> Response:
        try:
            asked = asked_of(request, self._reads, self._frame.views.now_s())
            if asked is None:
                return self._frame.answer(request, "requests", self._frame.values("requests", None) | {"found": None})
            vantage = self._reads.vantage(asked.service)
            order = order_of(asked.query, vantage)
            of = slice_of(asked.query, asked.service, asked.chosen.start_s, asked.chosen.end_s, field=order.field)
            offset = _cursor(asked.query.get("cursor", ""))
        except ValueError as error:
            return self._frame.refused(request, error)
        values = self._frame.values("requests", asked) | {"found": None}
        try:
            choices = await self._frame.choices(asked)
            found = await self._reads.requests(
                of, order=order.column, descending=order.descending, limit=PAGE_ROWS, offset=offset
            )
        except StoreError as error:
            return self._frame.answer(request, "requests", values | {"problem": str(error)})
        values |= _form_values(asked, choices, order, vantage) | {
            "seen": bool(found.total),
            "some": any(choices.values()),
        }
        values |= _list_values(asked, found, order, offset)
        return self._frame.answer(request, "requests", values)

    async def trace(self, request: Request, trace_id: str) -> Response:
        values: dict[str, Any] = self._frame.values("requests", None) | {"trace_id": trace_id, "view": None}
        try:
            view = await self._reads.trace(trace_id.lower())
        except StoreError as error:
            return self._frame.answer(request, "request", values | {"problem": str(error)})
        if view is None:
            text = f"No trace {trace_id[:64]!r} is kept. Spans are kept for a day or so, requests for longer."
            return self._frame.renderer.page(
                request, "problem", {"title": "No such trace", "text": text}, status=404, live=False
            )
        return self._frame.answer(request, "request", values | self._trace_values(view))

    def _trace_values(self, view: TraceView) -> dict[str, Any]:
        facts = [view.facts[i] for i in range(view.facts.height)]
        return {
            "view": view, "requests": [self._request_values(one, view) for one in facts],
            "spans": span_rows(view.parts), "scores": score_rows(view.scores),
        }  # fmt: skip

    def _request_values(self, fact: pl.DataFrame, view: TraceView) -> dict[str, Any]:
        one = fact.row(0, named=True)
        vantage = self._reads.vantage(one["service"] or "")
        seen = {
            "ttft": one[f"{vantage.value}_ttft_s"], "tpot": fact.select(tpot(vantage).alias("tpot"))["tpot"][0],
            "e2e": one[f"{vantage.value}_e2e_s"],
        }  # fmt: skip
        return {
            "fact": one, "verdict": verdict_text(one["verdict"]), "tone": VERDICT_TONES.get(one["verdict"], ""),
            "missed": missed_text(one["missed"]), "lines": lines_of(one), "facts": fact_texts(one),
            "tokens": token_texts(one), "targets": target_rows(fact, view.limits, vantage, seen), "vantage": vantage.value,
        }  # fmt: skip


def _cursor(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise ValueError(f"cursor: {text[:40]!r} is not one of ours; follow the link to the next page")
    return int(text or 0)


def _basis_text(ask: Ask, view: MapView) -> str:
    """What the cells were made of, for the legend."""
    if view.made_of == "requests":
        return "made of single requests, so quantiles are exact; intervals are by order statistics, 95 % at each end" if ask.measure is Measure.LATENCY else (
            "made of single requests"
        )  # fmt: skip
    exact = (
        "; quantiles are within 1.1 % of the exact ones, intervals by order statistics, 95 % at each end"
        if ask.measure is Measure.LATENCY
        else ""
    )
    return f"made of sums by minute, hour and day{exact}"


def _form_values(
    asked: Asked, choices: Mapping[str, Sequence[str | None]], order: Order, vantage: Vantage
) -> dict[str, Any]:
    return {
        "selects": (forms.order_select(orders(vantage), order.key), *forms.word_selects(asked.query)),
        "more_selects": forms.column_selects(choices, asked.query),
        "kept": asked.words(*_KEPT),
        "fields": (
            ("input", "Input tokens", asked.query.get("input", ""), "64-255"),
            ("output", "Output tokens", asked.query.get("output", ""), "1024-"),
            ("over", f"{field_text(order.field)} over", asked.query.get("over", ""), "500ms"),
        ),
    }  # fmt: skip


_KEPT: Final = (*FILTERS, "input", "output", "over", "order")


def _list_values(asked: Asked, found: RequestsView, order: Order, offset: int) -> dict[str, Any]:
    columns = columns_of(found.rows) if found.total else ()
    short = {name: display_model(name) for name in found.rows["model"].drop_nulls().unique().to_list()}
    kept = asked.kept(*_KEPT, fixed=True)
    after = offset + found.rows.height
    return {
        "found": found, "columns": columns, "rows": list_rows(found.rows, columns, short), "order": order,
        "same": same_texts(found.rows),
        "first": offset + 1, "last": after, "total": digits(found.total),
        "before": link(**kept, cursor=str(max(0, offset - PAGE_ROWS)) if offset > PAGE_ROWS else None) if offset else "",
        "after": link(**kept, cursor=str(after)) if after < found.total and found.rows.height else "",
        "files": [(form.name, link(**kept, format=form.name)) for form in FORMS.values()], "most": digits(MAX_ROWS),
        "permanent": link(**kept),
    }  # fmt: skip
