"""The pages of what requests cost and how good their answers were."""

import math
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from goodwatch.api.request_query import COLUMNS, slice_of
from goodwatch.api.ui import request_forms as forms
from goodwatch.api.ui.money_tables import (
    QUALITY_COLUMNS,
    agreement_rows,
    bill_pieces,
    cost_tiles,
    judge_lines,
    known_partly,
    money_rows,
    quality_rows,
    quality_tiles,
)
from goodwatch.api.ui.request_frame import Asked, Frame, asked_of
from goodwatch.app.quality_reads import GROUPED_BY, QualityReads, QualityView
from goodwatch.app.request_view import Slice
from goodwatch.core.errors import StoreError

#: steps of time on the page of quality
_STEPS: Final = 24
_BY_TEXTS: Final = {
    "model": "model", "tenant": "tenant", "adapter": "adapter", "route": "route", "form": "form", "target": "target",
    "deployment": "what ran", "engine_version": "engine version", "quantization": "quantisation", "dtype": "number format",
}  # fmt: skip


def money_pages(frame: Frame, quality: QualityReads) -> APIRouter:
    """Routes of the pages of cost and quality."""
    site = _Site(frame, quality)
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/costs", site.costs, methods=["GET"], include_in_schema=False)
    router.add_api_route("/quality", site.quality, methods=["GET"], include_in_schema=False)
    return router


class _Site:
    def __init__(self, frame: Frame, quality: QualityReads) -> None:
        self._frame, self._quality = frame, quality
        self._reads = frame.reads

    async def costs(self, request: Request) -> Response:
        values: dict[str, Any] = {"cost": None}
        try:
            asked = asked_of(request, self._reads, self._frame.views.now_s())
            if asked is None:
                return self._frame.answer(request, "cost", self._frame.values("costs", None) | values)
            by = by_of(asked, COLUMNS, "tenant")
        except ValueError as error:
            return self._frame.refused(request, error)
        values |= self._frame.values("costs", asked) | _by_values(asked, COLUMNS, by)
        try:
            cost = await self._reads.cost(_slice(asked), by)
            _, against = await self._reads.attained(_slice(asked))
        except StoreError as error:
            return self._frame.answer(request, "cost", values | {"problem": str(error)})
        if cost.whole.requests:
            values |= {
                "seen": True, "cost": cost, "tiles": cost_tiles(cost), "pieces": bill_pieces(cost),
                "rows": money_rows(cost.lines), "partly": known_partly(against),
            }  # fmt: skip
        return self._frame.answer(request, "cost", values)

    async def quality(self, request: Request) -> Response:
        values: dict[str, Any] = {"found": None}
        try:
            asked = asked_of(request, self._reads, self._frame.views.now_s())
            if asked is None:
                return self._frame.answer(request, "quality", self._frame.values("quality", None) | values)
            by = by_of(asked, GROUPED_BY, "model")
            of = slice_of(asked.query, asked.service, asked.chosen.start_s, asked.chosen.end_s, field="engine_e2e_s")
        except ValueError as error:
            return self._frame.refused(request, error)
        values |= self._frame.values("quality", asked) | _by_values(asked, GROUPED_BY, by)
        try:
            choices = await self._frame.choices(asked)
            step_s = step_of(of.end_s - of.start_s)
            found = await self._quality.quality(of, by)
            steps = await self._quality.quality(of, by, step_s)
            judge = await self._quality.judge()
        except StoreError as error:
            return self._frame.answer(request, "quality", values | {"problem": str(error)})
        values |= {"more_selects": forms.column_selects(choices, asked.query), "kept": asked.words("by", *COLUMNS)}
        if found.whole.requests:
            values |= _quality_values(found, steps, asked, step_s) | {"judge": judge_lines(judge)}
        return self._frame.answer(request, "quality", values)


def _quality_values(found: QualityView, steps: QualityView, asked: Asked, step_s: float) -> dict[str, Any]:
    span_s = asked.chosen.start_s, asked.chosen.end_s
    return {
        "seen": True, "found": found, "step_s": step_s, "tiles": quality_tiles(found.whole),
        "columns": [title for _, title in QUALITY_COLUMNS],
        "rows": quality_rows(found.groups, steps.groups, *span_s, step_s),
        "agreements": agreement_rows(found.agreement, found.evaluators),
    }  # fmt: skip


def step_of(length_s: float) -> float:
    """Whole minutes that cut a range into about two dozen steps.

    Examples
    --------
    >>> step_of(3600), step_of(86400)
    (180.0, 3600.0)
    """
    return max(60.0, math.ceil(length_s / _STEPS / 60) * 60.0)


def by_of(asked: Asked, known: Sequence[str], usual: str) -> str:
    """The column that a page is split by. Raises ValueError."""
    by = asked.query.get("by") or usual
    if by not in known:
        raise ValueError(f"by: {by[:40]!r} is not one of {', '.join(known)}")
    return by


def _by_values(asked: Asked, known: Sequence[str], by: str) -> dict[str, Any]:
    pairs = [(name, _BY_TEXTS[name]) for name in known]
    return {"selects": (forms.select("by", "Split by", pairs, by),), "by": _BY_TEXTS[by], "kept": asked.words("by")}


def _slice(asked: Asked) -> Slice:
    return Slice(asked.service, asked.chosen.start_s, asked.chosen.end_s)
