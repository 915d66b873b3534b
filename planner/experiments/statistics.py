"""Arithmetic of comparisons: intervals from few repeats, correlated values, and what few values may be shown as.

Plain floats and the standard library: an experiment has some dozens of runs, and nothing else here needs numpy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from goodwatch.core.exponential import enough
from planner.experiments.student import t_quantile
from planner.experiments.values import Measured, Metric

#: level of every interval. A verdict promises at most 5 % false alarms; the two points between are for what intervals
#: do not keep: heavy tails, a correlation that few runs show too low (tests/bench/experiments.py measures it)
LEVEL: Final = 0.97
#: two-sided 5 %: what equal arms reach in one case of twenty
_NOISE: Final = 0.975
#: share of real changes of the "detectable" size that are seen
POWER: Final = 0.8
#: below this many points a correlation of neighbours cannot be told from chance
_LEAST_FOR_CORRELATION: Final = 10
_HIGHEST: Final = 0.95
_QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
_TINY: Final = 1e-300


@dataclass(frozen=True, slots=True)
class Shown:
    """Values as they may be shown. ``quantiles`` holds only those that so many values support (n ≥ 1/(1-q))."""

    n: int
    least: float
    median: float
    most: float
    mean: float
    quantiles: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Candidate minus baseline on the scale of comparison (log for ratios), its standard error and its freedom.

    ``noise`` is the distance that two equal arms of these sizes reach in one case of twenty, measured on equal runs;
    None when there were too few of them.
    """

    change: float
    error: float
    freedom: float
    noise: float | None
    basis: str

    @property
    def reach(self) -> float:
        """Half the interval."""
        return t_quantile((1 + LEVEL) / 2, self.freedom) * self.error

    @property
    def detectable(self) -> float:
        """The smallest change that is seen in four cases of five."""
        return self.reach + t_quantile(POWER, self.freedom) * self.error


def quantile(values: Sequence[float], q: float, weights: Sequence[float] | None = None) -> float | None:
    """The ⌈q·n⌉-th smallest value; None when there are too few values to support it (the median needs two).

    With weights, the first value at which a share ``q`` of the weight is reached, and n is the effective number
    (Σw)² / Σw².

    Examples
    --------
    >>> quantile([3.0, 1.0, 2.0], 0.5), quantile([1.0, 2.0, 3.0], 0.95)
    (2.0, None)
    """
    if weights is None:
        n: float = len(values)
        if not enough(n, q):
            return None
        return sorted(values)[max(0, math.ceil(q * n - 1e-9) - 1)]
    whole, squares = math.fsum(weights), math.fsum(w * w for w in weights)
    if squares == 0 or not enough(whole * whole / squares * (1 + 1e-9), q):
        return None
    reached = 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        reached += weight
        if reached >= q * whole * (1 - 1e-12):
            return value
    return max(values)


def shown(values: Sequence[float]) -> Shown | None:
    """Minimum, median, maximum and mean, and the quantiles that so many values support; None without values.

    Examples
    --------
    >>> shown([1.0, 2.0, 9.0]).quantiles
    ((0.5, 2.0),)
    """
    if not values:
        return None
    ordered = sorted(values)
    held = tuple((q, found) for q in _QUANTILES if (found := quantile(ordered, q)) is not None)
    middle = ordered[(len(ordered) - 1) // 2]
    return Shown(len(ordered), ordered[0], middle, ordered[-1], math.fsum(ordered) / len(ordered), held)


def summary_of(measured: Measured, metric: Metric) -> float | None:
    """One number of one run; None when it has no values, or too few for the quantile that the metric names.

    Raises ``ValueError`` for a summary that is not mean, median, rate or p50 … p99.9.
    """
    if metric.summary == "rate":
        if measured.numerator is None or measured.denominator is None:
            return None
        return measured.numerator / measured.denominator
    if not measured.values:
        return None
    if metric.summary == "mean":
        weights = measured.weights
        if weights is None:
            return math.fsum(measured.values) / len(measured.values)
        whole = math.fsum(weights)
        return math.fsum(map(float.__mul__, weights, measured.values)) / whole if whole > 0 else None
    return quantile(measured.values, quantile_named(metric.summary), measured.weights)


def quantile_named(name: str) -> float:
    """The q of ``median``, ``p95`` or ``p99.9``. Raises ``ValueError`` for anything else."""
    try:
        q = 0.5 if name == "median" else float(name.removeprefix("p")) / 100
    except ValueError:
        q = 0.0
    if not 0 < q < 1 or (name[:1] != "p" and name != "median"):
        raise ValueError(f"summary {name!r}: write mean, median, rate, or a quantile as p95")
    return q


def change_of(summary: float, metric: Metric) -> float | None:
    """A summary on the scale on which arms are compared; None where a ratio has no meaning (0 and below)."""
    if metric.scale == "difference":
        return summary
    return math.log(summary) if summary > 0 else None


def lag_correlation(values: Sequence[float], *, fitted: int = 1) -> float:
    """Correlation of neighbours in a series, 0 to 0.95, corrected for the ``fitted`` parameters taken off before.

    Below ten points it cannot be told from chance, and 0 is given.

    Notes
    -----
    The estimate from n points is too low by about (1 + 3ρ)/n with a mean taken off (Kendall, Note on bias in the
    estimation of autocorrelation, 1954), and by about (2 + 4ρ)/n with a trend taken off.
    """
    return min(_HIGHEST, max(0.0, _raw_correlation(values, fitted)))


def _raw_correlation(values: Sequence[float], fitted: int) -> float:
    """As ``lag_correlation``, below 0 and above its ceiling as it comes out."""
    n = len(values)
    if n < _LEAST_FOR_CORRELATION:
        return 0.0
    mean = math.fsum(values) / n
    rest = [value - mean for value in values]
    spread = math.fsum(x * x for x in rest)
    if spread <= _TINY:
        return 0.0
    raw = math.fsum(x * y for x, y in pairwise(rest)) / spread
    offset, slope = (1, 3) if fitted == 1 else (2, 4)
    return (n * raw + offset) / (n - slope)


def _common_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Correlation of neighbours in two stretches of one process, its standard error added when there is any.

    A slow process seen through the noise of single runs looks less correlated at one step than it is over many; the
    addition is measured to make up for it (tests/bench/experiments.py, canary under a drift).
    """
    rho = min(_HIGHEST, (_raw_correlation(one, 1) + _raw_correlation(other, 1)) / 2)
    return min(_HIGHEST, rho + math.sqrt((1 - rho * rho) / (len(one) + len(other)))) if rho > 0 else 0.0


def trended(baseline: Sequence[tuple[float, float]], candidate: Sequence[tuple[float, float]]) -> Contrast | None:
    """A step between two stretches of (time, value), beside a straight drift through both; None below three each.

    Least squares of value on arm and time, so that a drift that goes on is not taken for the step. Where ten and more
    points show that neighbours are alike, the error is widened by (1 + ρ)/(1 - ρ) and the freedom cut by the same.
    A small arm that spreads more than a large one would lend its calm: then each arm counts with its own spread.
    """
    points = [*baseline, *candidate]
    n = len(points)
    if min(len(baseline), len(candidate)) < 3:
        return None
    times = [at for at, _ in points]
    arm = [0.0] * len(baseline) + [1.0] * len(candidate)
    values = _residuals(times, [value for _, value in points])
    step = _residuals(times, arm)
    room = math.fsum(x * x for x in step)
    if room <= 1e-9:
        return None
    change = math.fsum(x * y for x, y in zip(step, values, strict=True)) / room
    rest = [y - change * x for x, y in zip(step, values, strict=True)]
    ordered = [r for _, r in sorted(zip(times, rest, strict=True))]
    rho = lag_correlation(ordered, fitted=2)
    wider = (1 + rho) / (1 - rho)
    square, freedom = math.fsum(r * r for r in rest) / (n - 3) / room, n / wider - 3
    apart, apart_freedom = _unequal(step, rest, len(baseline))
    if apart > square * (1 + 1e-9):
        square, freedom = apart, min(freedom, apart_freedom / wider)
    error, freedom = math.sqrt(square * wider), max(1.0, freedom)
    own = _residuals([at for at, _ in baseline], [value for _, value in baseline])
    spread = math.sqrt(math.fsum(r * r for r in own) / (len(own) - 2) * wider)
    noise = t_quantile(_NOISE, freedom) * spread * math.sqrt(1 / len(baseline) + 1 / len(candidate))
    return Contrast(change, error, freedom, noise, f"step beside a drift, {len(baseline)} + {len(candidate)} runs")


def levels(baseline: Sequence[float], candidate: Sequence[float]) -> Contrast | None:
    """The plain difference of two means, each arm with a spread of its own; None below three runs each.

    Says what ``trended`` does not: a drift that bends at the change looks like a step beside a straight one, though the
    levels before and after are the same.
    """
    if min(len(baseline), len(candidate)) < 3:
        return None
    rho = (
        _common_correlation(baseline, candidate)
        if min(len(baseline), len(candidate)) >= _LEAST_FOR_CORRELATION
        else 0.0
    )
    (a, a_square, a_freedom), (b, b_square, b_freedom) = _centre(baseline, rho), _centre(candidate, rho)
    freedom = _welch((a_square, a_freedom), (b_square, b_freedom))
    return Contrast(b - a, math.sqrt(a_square + b_square), freedom, None, "difference of means")


def _unequal(step: Sequence[float], rest: Sequence[float], first: int) -> tuple[float, float]:
    """Squared error of a step, and its freedom, when each arm has a spread of its own; ``first`` values are arm one's.

    The three fitted parameters are taken off both arms alike. With arms of one size it is what pooling gives.
    """
    room = math.fsum(x * x for x in step)
    squares = [
        (math.fsum(r * r for r in own) / (len(own) - 1.5) * math.fsum(x * x for x in of) / room**2, len(own) - 1.5)
        for own, of in ((rest[:first], step[:first]), (rest[first:], step[first:]))
    ]
    return squares[0][0] + squares[1][0], _welch(*squares)


def blocked(
    blocks: Sequence[tuple[Sequence[float], Sequence[float]]],
    reference: Sequence[float] | None = None,
    spare: Sequence[float] = (),
    *,
    correlated: bool = False,
) -> Contrast | None:
    """Arms compared inside blocks of (baseline values, candidate values); None below three blocks.

    ``reference`` are differences candidate - baseline of blocks in which nothing was changed yet: they are taken off,
    and their spread counts as well. The mean of the blocks' differences has the error of their own spread, so whatever
    both arms of a block have in common (a slow machine, more load) is out. ``correlated``: the arms ran on machines of
    their own, so that differences of neighbouring blocks may be alike, which then widens it.
    ``spare`` are further pure residuals with the variance of one difference; each adds one to the freedom.
    """
    gaps = [_mean(b) - _mean(a) for a, b in blocks if a and b]
    if len(gaps) < 3 or (reference is not None and len(reference) < 3):
        return None
    rho = _common_correlation(gaps, gaps if reference is None else reference) if correlated else 0.0
    change, square, freedom = _centre(gaps, rho)
    if spare:
        rest = math.fsum(s * s for s in spare) / len(gaps)
        square = (square * freedom + rest) / (freedom + len(spare))
        freedom += len(spare)
    noise = _own_noise(blocks, len(gaps))
    basis = f"differences of {len(gaps)} blocks"
    if reference is not None:
        before, before_square, before_freedom = _centre(reference, rho)
        noise = t_quantile(_NOISE, before_freedom) * math.sqrt(before_square)
        freedom = _welch((square, freedom), (before_square, before_freedom))
        change, square = change - before, square + before_square
        basis += f", less {len(reference)} before the change"
    return Contrast(change, math.sqrt(square), freedom, noise, basis)


def bootstrapped(
    baseline: Sequence[float],
    candidate: Sequence[float],
    statistic: Callable[[Sequence[float]], float | None],
    *,
    seed: int = 1,
    resamples: int = 1000,
) -> tuple[float, float] | None:
    """97 % interval of statistic(candidate) - statistic(baseline) from within one run of each; None below 20 values.

    Whole stretches of neighbours are drawn (circular blocks, as long as the series is correlated), so that values that
    go up and down together are not taken for independent. It does not see what differs from run to run.

    Notes
    -----
    Blocks: D. N. Politis and J. P. Romano, A circular block-resampling procedure for stationary data, 1992; length
    from the correlation of neighbours after Carlstein, 1986.
    """  # fmt: skip
    if min(len(baseline), len(candidate)) < 20:
        return None
    rng = random.Random(seed)  # noqa: S311  no secret is made
    found = []
    for _ in range(resamples):
        first, second = statistic(_redrawn(baseline, rng)), statistic(_redrawn(candidate, rng))
        if first is not None and second is not None:
            found.append(second - first)
    if len(found) < resamples / 2:
        return None
    found.sort()
    edge = (1 - LEVEL) / 2
    return found[int(edge * len(found))], found[min(len(found) - 1, math.ceil((1 - edge) * len(found)) - 1)]


def block_length(values: Sequence[float]) -> int:
    """How many neighbours are drawn together: 1 when they are independent."""
    rho = lag_correlation(values)
    if rho < 2 / math.sqrt(len(values)):
        return 1
    length = float((2 * rho / (1 - rho * rho)) ** (2 / 3)) * float(len(values) ** (1 / 3))
    return min(len(values) // 4, max(2, math.ceil(length)))


def _redrawn(values: Sequence[float], rng: random.Random) -> list[float]:
    n, length = len(values), block_length(values)
    if length == 1:
        return rng.choices(values, k=n)
    twice = [*values, *values]
    drawn: list[float] = []
    while len(drawn) < n:
        start = rng.randrange(n)
        drawn += twice[start : start + length]
    return drawn[:n]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _residuals(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """What a straight line through (time, value) leaves."""
    middle, level = _mean(times), _mean(values)
    spread = math.fsum((t - middle) ** 2 for t in times)
    slope = math.fsum((t - middle) * v for t, v in zip(times, values, strict=True)) / spread if spread > 0 else 0.0
    return [v - level - slope * (t - middle) for t, v in zip(times, values, strict=True)]


def _centre(values: Sequence[float], rho: float) -> tuple[float, float, float]:
    """Mean, its squared error, and the freedom of that; neighbours that are alike by ``rho`` count as fewer."""
    n, mean = len(values), _mean(values)
    wider = (1 + rho) / (1 - rho)
    square = math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n * wider
    return mean, square, max(1.0, n / wider - 1)


def _welch(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Freedom of a sum of two squared errors (Welch and Satterthwaite)."""
    (a, a_freedom), (b, b_freedom) = one, other
    below = a * a / a_freedom + b * b / b_freedom
    return (a + b) ** 2 / below if below > 0 else min(a_freedom, b_freedom)


def _own_noise(blocks: Sequence[tuple[Sequence[float], Sequence[float]]], count: int) -> float | None:
    """How far equal arms would come apart, from baseline runs that follow each other: a drift is mostly out of it."""
    runs = [value for a, _ in blocks for value in a]
    steps = [later - earlier for earlier, later in pairwise(runs)]
    if len(steps) < 2:
        return None
    spread = math.sqrt(math.fsum(s * s for s in steps) / len(steps) / 2)
    each = len(runs) / count
    return t_quantile(_NOISE, len(steps)) * spread * math.sqrt(2 / (count * each))
