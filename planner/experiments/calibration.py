"""Were the planner's predictions right: was the measured change inside what was predicted, and how wide was that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from goodwatch.core.slo import wilson
from planner.experiments.designs import obstacle
from planner.experiments.values import Effect, Experiment, Metric, Prediction

#: name of the exported counter; its label ``inside`` is true or false
SERIES: Final = "goodwatch_planner_predictions_total"
#: one case of forty on either side is 5 % in all
_UNLIKELY: Final = 0.025
_TEXTS: Final = {
    "narrow": "intervals are too narrow: fewer hold than were promised",
    "wide": "intervals are wider than they need to be",
    "": "as many hold as were promised, as far as so few tell",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """One prediction and what was measured of it; both on the metric's scale of comparison.

    ``miss`` is how far outside the measured value was, in half widths of the interval (0 inside). ``certain`` is false
    when the interval of the measurement reaches over an end of the prediction, so that inside or outside is a near
    thing.
    """

    experiment: str
    metric: str
    at_s: float | None
    prediction: Prediction
    measured: float
    inside: bool
    miss: float
    width: float
    certain: bool
    ratio: bool = True  # whether the scale is candidate / baseline


@dataclass(frozen=True, slots=True)
class Calibration:
    """How often predictions held, against how often they should.

    ``coverage_ratio`` is None without predictions; ``low`` and ``high`` are its 95 % interval. ``sharpness`` is the
    median width of the intervals as a ratio upper / lower end (1.5: 50 % apart), which tells a planner that is right
    from one that says nothing. ``bias`` is the median of measured / predicted, where a point was predicted. Both are of
    metrics that are compared as ratios only: points of a share have no place beside them. ``fault`` is told only where
    the share would be so far off in less than one case of forty (exact binomial): one miss of one tells nothing.
    """

    predictions: int
    inside: int
    level: float | None
    coverage_ratio: float | None
    low: float | None
    high: float | None
    sharpness: float | None
    bias: float | None
    text: str
    fault: Literal["", "narrow", "wide"] = ""


def checked(experiment: Experiment) -> tuple[Checked, ...]:
    """Every prediction of an experiment whose verdict is about its change; nothing where something stood in the way."""
    if experiment.verdict is None:
        return ()
    metrics = {metric.name: metric for metric in experiment.metrics}
    effects = {effect.metric: effect for effect in experiment.verdict.effects}
    found = []
    for prediction in experiment.predictions:
        effect, metric = effects.get(prediction.metric), metrics.get(prediction.metric)
        if effect is None or metric is None or effect.value is None:
            continue
        if obstacle(experiment, effect.repeats) is not None:
            continue
        found.append(_check(experiment, metric, prediction, effect, effect.value))
    return tuple(found)


def _check(experiment: Experiment, metric: Metric, prediction: Prediction, effect: Effect, measured: float) -> Checked:
    ratio = metric.scale == "ratio" and min(prediction.low, measured) > 0
    low, high, value = (math.log(x) if ratio else x for x in (prediction.low, prediction.high, measured))
    half = (high - low) / 2
    beyond = max(low - value, value - high, 0.0)
    certain = True
    if effect.low is not None and effect.high is not None:
        certain = prediction.holds(effect.low) == prediction.holds(effect.high) == prediction.holds(measured)
    at_s = experiment.verdict.at_s if experiment.verdict else None
    return Checked(
        experiment.id, metric.name, at_s, prediction, measured, prediction.holds(measured),
        0.0 if beyond == 0 else math.inf if half == 0 else beyond / half, high - low, certain, metric.scale == "ratio",
    )  # fmt: skip


def calibration(found: Sequence[Checked]) -> Calibration:
    """Coverage, sharpness and bias of some predictions; the level is their mean level."""
    if not found:
        return Calibration(0, 0, None, None, None, None, None, None, "no prediction was checked yet")
    inside = sum(one.inside for one in found)
    level = math.fsum(one.prediction.level for one in found) / len(found)
    low, high = wilson(inside, len(found))
    widths = sorted(math.exp(min(700.0, one.width)) for one in found if one.ratio and one.prediction.low > 0)
    ratios = sorted(
        one.measured / one.prediction.value
        for one in found
        if one.ratio and one.prediction.value is not None and one.prediction.value > 0 and one.measured > 0
    )
    fault = _fault(inside, len(found), level)
    middle = [values[len(values) // 2] if values else None for values in (widths, ratios)]
    return Calibration(
        len(found), inside, level, inside / len(found), low, high, middle[0], middle[1],
        f"{inside} of {len(found)} inside their {level:.0%} intervals: {_TEXTS[fault]}", fault,
    )  # fmt: skip


def _fault(inside: int, n: int, level: float) -> Literal["", "narrow", "wide"]:
    chances = [math.comb(n, k) * level**k * (1 - level) ** (n - k) for k in range(n + 1)]
    if math.fsum(chances[: inside + 1]) < _UNLIKELY:
        return "narrow"
    return "wide" if math.fsum(chances[inside:]) < _UNLIKELY else ""


def over_time(found: Iterable[Checked], period_s: float) -> tuple[tuple[float, Calibration], ...]:
    """Calibration by period (its start, Unix seconds), oldest first; what has no time is left out."""
    periods: dict[float, list[Checked]] = {}
    for one in found:
        if one.at_s is not None:
            periods.setdefault(math.floor(one.at_s / period_s) * period_s, []).append(one)
    return tuple((start, calibration(periods[start])) for start in sorted(periods))


def series(found: Iterable[Checked]) -> tuple[tuple[dict[str, str], float], ...]:
    """Labels and value of each sample of ``SERIES``; both are there from the start, so that a rate has a beginning.

    Examples
    --------
    >>> series([])
    (({'inside': 'true'}, 0.0), ({'inside': 'false'}, 0.0))
    """
    counts = {True: 0.0, False: 0.0}
    for one in found:
        counts[one.inside] += 1
    return tuple(({"inside": str(inside).lower()}, count) for inside, count in counts.items())
