"""Small drawings beside numbers: where an interval lies to its target, and an hour of attainment. Pure.

All positions are in the units of the drawing's view box; templates only write them down.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from goodwatch.api.ui.chart_rows import Row, row_text
from goodwatch.api.ui.format import utc
from goodwatch.core.model import Bounds, Number

Tone = Literal["good", "warning", "bad", ""]

BAR_WIDTH: Final = 100.0
STRIP_WIDTH: Final = 600.0
STRIP_HEIGHT: Final = 44.0
#: a latency bar reaches from a tenth of the target to ten times it
_DECADES: Final = 1.0
#: smaller than this a box could not be seen
_LEAST: Final = 3.0


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval on a line of 100, and the place of its target."""

    x: float
    width: float
    mark: float
    tone: Tone
    open: bool


@dataclass(frozen=True, slots=True)
class Box:
    """One window of a strip."""

    x: float
    y: float
    width: float
    height: float
    tone: Tone
    title: str


def tone_below(bounds: Bounds | None, limit: float | None) -> Tone:
    """Tone of a latency interval: good when all of it is at or below the target, bad when none of it is."""
    if bounds is None or limit is None:
        return ""
    if bounds.high is not None and bounds.high <= limit:
        return "good"
    return "bad" if bounds.low >= limit else "warning"


def tone_above(bounds: Bounds | None, objective: float | None) -> Tone:
    """Tone of an attainment interval: good when all of it reaches the objective, bad when none of it does."""
    if bounds is None or objective is None:
        return ""
    if bounds.low >= objective:
        return "good"
    return "bad" if bounds.high is not None and bounds.high < objective else "warning"


def latency_bar(number: Number, limit_s: float | None) -> Bar | None:
    """A latency interval around its target, on a logarithmic line; None without either."""
    bounds = number.bounds
    if bounds is None or not limit_s:
        return None

    def place(value_s: float) -> float:
        if value_s <= 0:
            return 0.0
        share = (math.log10(value_s / limit_s) + _DECADES) / (2 * _DECADES)
        return BAR_WIDTH * min(1.0, max(0.0, share))

    is_open = bounds.high is None or math.isinf(bounds.high)
    start = place(bounds.low)
    end = BAR_WIDTH if is_open else place(bounds.high or 0.0)
    return _bar(start, end, place(limit_s), tone_below(bounds, limit_s), is_open=is_open)


def attainment_bar(number: Number, objective: float | None) -> Bar | None:
    """An attainment interval on a line from 0 to 100 %, the objective marked; None without either."""
    bounds = number.bounds
    if bounds is None or objective is None:
        return None
    start, end = bounds.low * BAR_WIDTH, (1.0 if bounds.high is None else bounds.high) * BAR_WIDTH
    return _bar(start, end, objective * BAR_WIDTH, tone_above(bounds, objective), is_open=False)


def _bar(start: float, end: float, mark: float, tone: Tone, *, is_open: bool) -> Bar:
    width = max(_LEAST, end - start)
    return Bar(round(min(start, BAR_WIDTH - width), 2), round(width, 2), round(mark, 2), tone, is_open)


def strip(rows: Sequence[Row], start_s: float, end_s: float, objective: float | None) -> tuple[Box, ...]:
    """Attainment per window: a box from its lower to its upper end; nothing where there is no number."""
    boxes = []
    for row in rows:
        if row.low is None or row.end_s <= max(start_s, row.start_s) or row.start_s >= end_s:
            continue
        high = 1.0 if row.high is None else row.high
        left = max(0.0, (row.start_s - start_s) / (end_s - start_s)) * STRIP_WIDTH
        right = min(1.0, (row.end_s - start_s) / (end_s - start_s)) * STRIP_WIDTH
        height = max(_LEAST, (high - row.low) * STRIP_HEIGHT)
        boxes.append(
            Box(
                round(left, 1), round(min(strip_y(high), STRIP_HEIGHT - height), 1), round(right - left, 1),
                round(height, 1), tone_above(Bounds(row.low, high), objective),
                f"{utc(row.start_s, '%H:%M')}–{utc(row.end_s, '%H:%M')} UTC: {row_text('ratio', row)}",
            )
        )  # fmt: skip
    return tuple(boxes)


def strip_y(ratio: float) -> float:
    """Height of a ratio in the strip, from its top."""
    return round((1 - ratio) * STRIP_HEIGHT, 1)
