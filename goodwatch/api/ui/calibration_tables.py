"""The planner's predictions against results as tables and a drawing. Pure."""

import math
from dataclasses import dataclass
from typing import Final

from goodwatch.api.ui.bars import STRIP_HEIGHT, STRIP_WIDTH, Box, Tone
from goodwatch.api.ui.format import digits, percent, utc
from goodwatch.app.experiment_ledger import Calibrated
from planner.experiments.calibration import Calibration, Checked

_MOST_CHECKED: Final = 100
#: with fewer, all could hold or none, and neither would surprise
_FEW: Final = 5
#: smaller than this a box could not be seen
_LEAST: Final = 3.0


@dataclass(frozen=True, slots=True)
class ShareRow:
    """Predictions of one metric or one step: how many were inside, as text with the interval."""

    name: str
    inside: str
    share: str
    interval: str
    promised: str
    width: str
    bias: str
    tone: Tone
    text: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """Coverage by step of time as boxes of a strip; ``promised_y`` is where it should be."""

    boxes: tuple[Box, ...]
    promised_y: float
    start_s: float
    end_s: float
    rows: tuple[ShareRow, ...]


@dataclass(frozen=True, slots=True)
class CheckedRow:
    """One prediction with its result."""

    one: Checked
    predicted: str
    measured: str
    word: str
    tone: Tone
    miss: str


def share_row(name: str, of: Calibration) -> ShareRow:
    """Calibration of some predictions as texts."""
    told = of.coverage_ratio is not None and of.low is not None and of.high is not None
    return ShareRow(
        name, f"{of.inside} of {of.predictions}", f"{percent(of.coverage_ratio)} %" if of.coverage_ratio is not None else "–",
        f"{percent(of.low or 0.0, 'down')}–{percent(of.high or 0.0, 'up')} %" if told else "",
        "–" if of.level is None else f"{percent(of.level)} %", "–" if of.sharpness is None else f"× {digits(of.sharpness)}",
        "–" if of.bias is None else f"× {digits(of.bias)}", tone_of(of), of.text,
    )  # fmt: skip


def tone_of(of: Calibration) -> Tone:
    """Bad when fewer hold than were promised, good when as many do, "" while there are too few to miss."""
    if of.predictions < _FEW:
        return ""
    tones: dict[str, Tone] = {"narrow": "bad", "wide": "warning", "": "good"}
    return tones[of.fault]


def metric_rows(found: Calibrated) -> tuple[ShareRow, ...]:
    """One row a metric, after one for all."""
    rows = [share_row(name, one) for name, one in found.by_metric.items()]
    return (share_row("all metrics", found.whole), *rows) if found.whole.predictions else ()


def steps_drawn(found: Calibrated) -> Drawn | None:
    """Coverage by step of time; None while nothing was checked."""
    if not found.steps or found.whole.level is None:
        return None
    start_s, end_s = found.steps[0][0], found.steps[-1][0] + found.step_s
    scale = STRIP_WIDTH / (end_s - start_s)
    boxes, rows = [], []
    for at_s, one in found.steps:
        row = share_row(utc(at_s, "%Y-%m-%d"), one)
        low, high = one.low or 0.0, one.high or 0.0
        boxes.append(Box(
            round((at_s - start_s) * scale + 1, 1), round((1 - high) * STRIP_HEIGHT, 1),
            round(max(_LEAST, found.step_s * scale - 2), 1), round(max(_LEAST, (high - low) * STRIP_HEIGHT), 1),
            row.tone, f"from {row.name}: {row.inside} inside, {row.share}, {row.interval}",
        ))  # fmt: skip
        rows.append(row)
    promised_y = round((1 - found.whole.level) * STRIP_HEIGHT, 1)
    return Drawn(tuple(boxes), promised_y, start_s, end_s, tuple(reversed(rows)))


def checked_rows(found: Calibrated) -> tuple[CheckedRow, ...]:
    """The newest predictions that were checked."""
    return tuple(_checked_row(one) for one in found.checked[:_MOST_CHECKED])


def _checked_row(one: Checked) -> CheckedRow:
    low, high, measured = (_change(one, x) for x in (one.prediction.low, one.prediction.high, one.measured))
    word, tone = ("inside", "good") if one.inside else ("outside", "bad")
    return CheckedRow(one, f"{low} to {high}", measured, word, tone, miss_text(one))  # type: ignore[arg-type]


def _change(one: Checked, value: float) -> str:
    if not one.ratio:
        return f"{value:+.3g}".replace("-", "−")
    return f"× {digits(value)}" if value >= 3 or value < 0.1 else f"{(value - 1) * 100:+.1f} %".replace("-", "−")


def miss_text(one: Checked | None) -> str:
    """How far outside, and whether that is sure."""
    if one is None:
        return ""
    far = (
        ""
        if one.inside
        else "no width was predicted"
        if math.isinf(one.miss)
        else f"{digits(one.miss)} half widths out"
    )
    near = "" if one.certain else "a near thing: the measurement reaches over an end"
    return "; ".join(filter(None, (far, near)))
