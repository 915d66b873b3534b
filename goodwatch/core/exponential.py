"""Exponential histograms: bins whose bounds grow by 2^(1/32), so that counts add and quantiles stay within 1.1 %.

Bin ``i`` counts values in ``(2^(i/32), 2^((i+1)/32)]``: the bins of an OpenTelemetry exponential histogram of scale 5 and
of a Prometheus native histogram of schema 5 (whose index is one higher). Zero has a bin of its own.

The bounds are irrational, powers of two apart, so a value is on the right side of a bound exactly when it is on that
side of the largest double below it. ``LARGEST_WITHIN`` holds those doubles; they come from integer roots, not from
``log``, which is off by one bin at a bound.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from goodwatch.core.model import Bounds

SCALE: Final = 5
BINS_PER_DOUBLING: Final = 2**SCALE
RATIO: Final = math.exp2(1 / BINS_PER_DOUBLING)

#: What a quantile read from bins is off by at most: the value told halves the error of both ends of its bin.
RELATIVE_ERROR: Final = (RATIO - 1) / (RATIO + 1)

#: A true quantile lies below its interval, or above it, in at most this share of samples.
TAIL_RATIO: Final = 0.05

_MANTISSA_BITS: Final = 52


def _root(power: int) -> int:
    """The largest integer within 2^(power/32)."""
    value = 1 << power
    for _ in range(SCALE):
        value = math.isqrt(value)
    return value


#: For k in 0..31 the largest double within 2^(k/32), and the same as an integer of 53 bits.
LARGEST_WITHIN_53_BITS: Final = tuple(_root(_MANTISSA_BITS * BINS_PER_DOUBLING + k) for k in range(BINS_PER_DOUBLING))
LARGEST_WITHIN: Final = tuple(n / 2**_MANTISSA_BITS for n in LARGEST_WITHIN_53_BITS)


def bin_of(value: float) -> int:
    """The bin of a positive finite value. Raises ValueError for another: zero has its own bin, the rest has none.

    Examples
    --------
    >>> [bin_of(v) for v in (0.5, 1.0, 1.0000000000000002, 1.02, 1.03, 2.0)]
    [-33, -1, 0, 0, 1, 31]
    """
    if not 0 < value < math.inf:
        raise ValueError(f"{value!r} is in no bin: a bin holds positive finite values")
    mantissa, exponent = math.frexp(value)  # mantissa in [0.5, 1)
    return (exponent - 1) * BINS_PER_DOUBLING + bisect_left(LARGEST_WITHIN, 2 * mantissa) - 1


def upper_bound(index: int) -> float:
    """The largest double in bin ``index``: its upper bound, rounded down; infinite above the largest double.

    Examples
    --------
    >>> upper_bound(-1), upper_bound(31), round(upper_bound(0), 6)
    (1.0, 2.0, 1.021897)
    """
    exponent, step = divmod(index + 1, BINS_PER_DOUBLING)
    if exponent > 1023:
        return math.inf
    if exponent >= -1022:
        return math.ldexp(LARGEST_WITHIN[step], exponent)
    power = (exponent + 1074) * BINS_PER_DOUBLING + step  # subnormal: a whole number of 2^-1074
    return 0.0 if power < 0 else math.ldexp(_root(power), -1074)


def told_value(index: int) -> float:
    """The value in bin ``index`` that is nearest, in ratio, to both of its ends: off by ``RELATIVE_ERROR`` at most.

    Examples
    --------
    >>> round(told_value(0) / 1.0 - 1, 6), round(1 - told_value(0) / RATIO, 6)
    (0.01083, 0.01083)
    """
    return 2 * RATIO / (1 + RATIO) * math.exp2(index / BINS_PER_DOUBLING)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Counts by bin. ``zero`` counts zeros; ``count`` is by bin index; all of them may be weighted, and add."""

    zero: float = 0.0
    count: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def total(self) -> float:
        """All observations."""
        return self.zero + sum(self.count.values())

    def __add__(self, other: "Exponential") -> "Exponential":
        count = dict(self.count)
        for index, more in other.count.items():
            count[index] = count.get(index, 0.0) + more
        return Exponential(self.zero + other.zero, count)


def exponential(values: Iterable[float]) -> Exponential:
    """The histogram of values that are finite and not negative. Raises ValueError for others.

    Examples
    --------
    >>> exponential([0.0, 1.0, 1.0, 2.0])
    Exponential(zero=1.0, count={-1: 2.0, 31: 1.0})
    """
    zero, count = 0.0, dict[int, float]()
    for value in values:
        if value == 0:
            zero += 1
        else:
            index = bin_of(value)
            count[index] = count.get(index, 0.0) + 1
    return Exponential(zero, count)


def merged(histograms: Iterable[Exponential]) -> Exponential:
    """The histogram of all that the given ones counted."""
    return sum(histograms, Exponential())


def reached(position: float, total: float) -> float:
    """The cumulative count that reaches ``position`` of ``total``, less what floating point may have added.

    0.99 of 100 comes out as 99.00000000000001 in places; without this the 100th would be taken for the 99th.
    """
    return position - 1e-9 - 1e-12 * total


def quantile(histogram: Exponential, q: float) -> float | None:
    """The ⌈q·n⌉-th smallest observation, off by ``RELATIVE_ERROR`` at most; None without observations.

    Of weighted counts: the smallest value up to which the counts reach ``q`` of their total.

    Examples
    --------
    >>> quantile(exponential([0.0, 0.0, 1.0]), 0.5), round(quantile(exponential([3.0, 1.0, 2.0]), 0.5) or 0, 3)
    (0.0, 1.978)
    """
    total = histogram.total
    if total <= 0:
        return None
    wanted = reached(q * total, total)
    seen = histogram.zero
    if seen > 0 and seen >= wanted:
        return 0.0
    occupied = sorted(index for index, count in histogram.count.items() if count > 0)
    for index in occupied:
        seen += histogram.count[index]
        if seen >= wanted:
            return told_value(index)
    return told_value(occupied[-1]) if occupied else 0.0


def count_within(histogram: Exponential, limit: float) -> Bounds:
    """How many observations are at or below ``limit``: exact at the end of a bin, else the bin's two counts."""
    if limit < 0:
        return Bounds(0.0, 0.0)
    if limit == 0:
        return Bounds(histogram.zero, histogram.zero)
    if limit == math.inf:
        return Bounds(histogram.total, histogram.total)
    at = bin_of(limit)
    low = histogram.zero + sum(count for index, count in histogram.count.items() if index < at)
    here = histogram.count.get(at, 0.0)
    return Bounds(low + here, low + here) if limit == upper_bound(at) else Bounds(low, low + here)


def enough(count: float, q: float) -> bool:
    """Whether ``count`` observations support the q-quantile: n ≥ 1/(1-q) (design §3).

    Examples
    --------
    >>> enough(99, 0.99), enough(100, 0.99)
    (False, True)
    """
    return count >= round(1 / (1 - q), 6)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks (1 is the smallest observation) of the order statistics that enclose a quantile; None is open there."""

    low: int | None
    high: int | None


@lru_cache(maxsize=65536)
def interval_ranks(count: int, q: float) -> Ranks:
    """Which two of ``count`` observations enclose the q-quantile of what they were drawn from.

    Each end is passed in at most ``TAIL_RATIO`` of samples, whatever the distribution. Above it is open as long as
    even the largest observation is passed more often: while q^n > 0.05 (298 observations at q = 0.99).

    Notes
    -----
    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2 (confidence interval of a quantile).
    Of the n observations, those above the quantile are binomial of n and 1-q. Above a mean of 300 the normal
    approximation is used, rounded outwards: at most two ranks wider.

    Examples
    --------
    >>> interval_ranks(298, 0.99), interval_ranks(299, 0.99), interval_ranks(1000, 0.99)
    (Ranks(low=292, high=None), Ranks(low=293, high=299), Ranks(low=985, high=996))
    """
    above = count * (1 - q)
    if above > 300 and count * q > 300:
        reach = 1.6448536269514722 * math.sqrt(above * q) + 1  # the normal quantile of 1 - TAIL_RATIO
        return Ranks(math.floor(count - above - reach), math.ceil(count - above + reach))
    if above > 300:  # a low quantile: seen from the other end
        turned = interval_ranks(count, 1 - q)
        low = None if turned.high is None else count + 1 - turned.high
        return Ranks(low, None if turned.low is None else count + 1 - turned.low)
    fewest, most = _tails(count, 1 - q)
    return Ranks(None if most is None else count - most + 1, None if fewest is None else count - fewest)


def _tails(count: int, p: float) -> tuple[int | None, int | None]:
    """Of K binomial of ``count`` and ``p``: the largest j with P(K ≤ j) ≤ 0.05, the smallest with P(K ≥ j) ≤ 0.05."""
    odds = p / (1 - p)
    chance = (1 - p) ** count
    within, fewest = chance, (0 if chance <= TAIL_RATIO else None)
    k = 0
    while within < 1 - TAIL_RATIO and k < count:
        chance *= (count - k) / (k + 1) * odds
        k += 1
        within += chance
        if within <= TAIL_RATIO:
            fewest = k
    return fewest, (k + 1 if k < count else None)
