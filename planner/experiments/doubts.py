"""What keeps runs from being compared, whatever their spread: survivors, copies, coarse clocks, mixed units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from planner.experiments.statistics import Contrast, change_of, summary_of
from planner.experiments.values import Arm, Experiment, Metric, Run

#: factors between units of one thing (ms and s, MB and bytes …), and how near in decades a change must be to look so
_UNIT_DECADES: Final = (3, 6, 9)
_NEAR: Final = 0.12
#: a number with so many digits (of twelve: the rest is rounding), or so many different ones, is not met again by chance
_DIGITS: Final = 7
_MANY: Final = 5


def unplaced(experiment: Experiment, metric: Metric) -> str | None:
    """Why some counted runs have no place on the metric's scale while others have; None when all or none of them do.

    A run that did nothing is 0 images a second and has no ratio; one that broke has no latency. Without them the arm
    that breaks more often would look better.
    """
    for arm in (experiment.baseline, experiment.candidate):
        runs = [run for run in arm.runs if run.counts]
        found = [summary_of(run.measures[metric.name], metric) for run in runs if metric.name in run.measures]
        told = [value for value in found if value is not None]
        below = sum(change_of(value, metric) is None for value in told)
        if below:
            return (
                f"{metric.name}: {below} of {len(runs)} runs of arm {arm.name} are 0 or below, of which a ratio has no"
                " meaning; compare differences (scale: difference), or say why such a run is excluded"
            )
        if told and len(told) < len(runs):
            return (
                f"{metric.name}: {len(runs) - len(told)} of {len(runs)} counted runs of arm {arm.name} do not tell it, or"
                " have too few values for it; the others may be survivors: say why each is excluded"
            )
    return None


def copied(experiment: Experiment) -> str | None:
    """That two counted runs are one run, named twice; None when no two are alike to the last of many digits."""
    seen: dict[tuple[object, ...], tuple[Arm, Run]] = {}
    for arm in (experiment.baseline, experiment.candidate):
        for run in arm.runs:
            if not run.counts or not _telling(run):
                continue
            key = tuple(
                (name, one.values, one.numerator, one.denominator) for name, one in sorted(run.measures.items())
            )
            first, other = seen.setdefault(key, (arm, run))
            if other is not run:
                return (
                    f"run {other.position} of arm {first.name} and run {run.position} of arm {arm.name} are alike to the"
                    " last digit: one run, taken twice; repeat it, a copy is no repeat"
                )
    return None


def _telling(run: Run) -> bool:
    values = [
        v for one in run.measures.values() for v in (*one.values, one.numerator, one.denominator) if v is not None
    ]
    return len(set(values)) >= _MANY or any(
        not v.is_integer() and len(Decimal(f"{v:.12g}").normalize().as_tuple().digits) >= _DIGITS
        for v in map(float, values)
    )


def coarse(contrast: Contrast, metric: Metric, base: Sequence[float], cand: Sequence[float]) -> Contrast:
    """A contrast with the steps of the clock in it: values written as 0.1 may be anything from 0.05 to 0.15.

    The step's own error (h/√12 a run) is added to the spread. Where an arm spreads by less than a step, rounding errors
    are all the same and do not average out, so a change of one step is within the noise.

    Parameters
    ----------
    base, cand
        Runs on the scale of comparison (logarithms for ratios).
    """
    plain = [math.exp(v) for v in (*base, *cand)] if metric.scale == "ratio" else [*base, *cand]
    step = _step(plain) / (min(plain) if metric.scale == "ratio" else 1.0)
    error = math.hypot(contrast.error, step * math.sqrt((1 / len(base) + 1 / len(cand)) / 12))
    noise = contrast.noise
    if noise is not None and min(max(side) - min(side) for side in (base, cand)) < step:
        noise = max(noise, step * (1 + 1e-6))
    return replace(contrast, error=error, noise=noise)


def _step(values: Sequence[float]) -> float:
    """The place of the last digit in which any of these is written, 1 at most; read to nine digits, as logs lose some."""
    return min(10.0 ** min(0, exponent) for exponent in _exponents(values))


def _exponents(values: Sequence[float]) -> Iterator[int]:
    for value in values:
        exponent = Decimal(f"{value:.9g}").normalize().as_tuple().exponent
        yield exponent if isinstance(exponent, int) else 0


def one_unit(metric: Metric, value: float | None) -> str | None:
    """That a change is so near to a factor between units that the units must be looked at first; None else."""
    if metric.scale != "ratio" or value is None or value <= 0:
        return None
    decades = abs(math.log10(value))
    near = next((one for one in _UNIT_DECADES if abs(decades - one) <= _NEAR), None)
    if near is None:
        return None
    return f"{metric.name} differs {10**near:,} times: is one arm in another unit than {metric.unit or 'the other'}?"
