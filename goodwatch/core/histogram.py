"""Cumulative histograms: merging on shared bounds, and honest answers from buckets.

Everything here answers with an interval where a bucket edge hides the truth; nothing is interpolated.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from goodwatch.core.model import Bounds, Histogram

INF = math.inf


def cumulative(buckets: dict[float, float], *, count: float | None, total_sum: float | None) -> Histogram:
    """One histogram from its buckets, made monotone.

    A page read while the engine writes can be torn: a later bucket below an earlier one is lifted to it
    (client_python multiprocess files). Without ``+Inf`` the ``count`` closes the histogram, else the largest bucket.
    """
    le: list[float] = []
    counts: list[float] = []
    highest = 0.0
    for bound in sorted(buckets):
        highest = max(highest, buckets[bound])
        le.append(bound)
        counts.append(highest)
    if not le or le[-1] != INF:
        le.append(INF)
        counts.append(highest if count is None else max(highest, count))
    return Histogram(tuple(le), tuple(counts), total_sum)


def merged(histograms: Iterable[Histogram]) -> Histogram | None:
    """Sum of histograms on the bounds that all of them share; None when there are none.

    Two replicas of one service can have different bounds (version, model length, operator flag). Counts at a bound
    that one of them lacks are unknown, so that bound is dropped; ``+Inf`` is always shared.
    """
    items = list(histograms)
    if not items:
        return None
    shared: Sequence[float] = items[0].le
    if any(h.le != shared for h in items[1:]):
        common = set(items[0].le).intersection(*(h.le for h in items[1:]))
        shared = sorted(common)
    counts = [0.0] * len(shared)
    for h in items:
        if h.le == shared:
            picked: Iterable[float] = h.count
        else:
            at = dict(zip(h.le, h.count, strict=True))
            picked = (at[bound] for bound in shared)
        for i, c in enumerate(picked):
            counts[i] += c
    sums = [h.sum for h in items]
    total_sum = None if any(s is None for s in sums) else sum(s for s in sums if s is not None)
    return Histogram(tuple(shared), tuple(counts), total_sum)


def count_within(histogram: Histogram, limit: float) -> Bounds:
    """How many observations are at or below ``limit``: exact on a bucket bound, else the bucket's two counts.

    ``limit`` in the unit of the bounds. Above the top finite bound only the total is known as the upper end.

    Examples
    --------
    >>> h = Histogram((0.1, 0.5, INF), (2.0, 7.0, 9.0))
    >>> count_within(h, 0.5), count_within(h, 0.2)
    (Bounds(low=7.0, high=7.0), Bounds(low=2.0, high=7.0))
    """
    at = bisect_right(histogram.le, limit)
    low = histogram.count[at - 1] if at else 0.0
    exact = at > 0 and histogram.le[at - 1] == limit
    high = low if exact or at == len(histogram.le) else histogram.count[at]
    return Bounds(low, high)


def quantile(histogram: Histogram, q: float) -> Bounds | None:
    """The bucket that holds the ⌈q·n⌉-th smallest observation, as an interval; None without observations.

    The lower end is the bucket's lower bound (0 for the first), the upper end its upper bound, None in the +Inf
    bucket: "more than low".

    Examples
    --------
    >>> quantile(Histogram((0.1, 0.5, INF), (2.0, 7.0, 9.0)), 0.5)
    Bounds(low=0.1, high=0.5)
    """
    return rank_bounds(histogram, histogram, math.ceil(round(q * histogram.total, 9)))


def rank_bounds(at_most: Histogram, at_least: Histogram, rank: float) -> Bounds | None:
    """Where the ``rank``-th smallest value lies when only two cumulative envelopes are known.

    ``at_most`` counts, at each bound, the most values that can be there; ``at_least`` the fewest. Both share ``le``.
    """
    if rank < 1 or at_most.total < rank:
        return None
    first = bisect_left(at_most.count, rank)
    low = 0.0 if first == 0 else at_most.le[first - 1]
    last = bisect_left(at_least.count, rank)
    high = at_least.le[last] if last < len(at_least.le) else INF
    return Bounds(low, None if high == INF else high)


def mean(histogram: Histogram) -> float | None:
    """Sum over count; None without observations or without a sum."""
    return None if histogram.sum is None or histogram.total <= 0 else histogram.sum / histogram.total


def neighbours(le: Sequence[float], limit: float) -> tuple[float | None, float | None]:
    """The finite bounds just at or below and at or above ``limit``; equal when it is a bound."""
    finite = [b for b in le if b != INF]
    below = bisect_right(finite, limit)
    above = bisect_left(finite, limit)
    return (finite[below - 1] if below else None, finite[above] if above < len(finite) else None)
