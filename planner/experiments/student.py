"""Student's t without a library: its quantiles, to the digits that an interval needs."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

_TINY: Final = 1e-300


def t_quantile(p: float, freedom: float) -> float:
    """The p-quantile of Student's t; ``p`` in [0.5, 1), ``freedom`` at least 1, taken down to tenths.

    Examples
    --------
    >>> round(t_quantile(0.975, 4), 3), round(t_quantile(0.975, 2), 3)
    (2.776, 4.303)
    """
    return _t_quantile(p, max(10, math.floor(min(freedom, 1e6) * 10 + 1e-9)) / 10)


@cache
def _t_quantile(p: float, freedom: float) -> float:
    low, high = 0.0, 1.0
    while _t_share(high, freedom) < p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_share(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def _t_share(t: float, freedom: float) -> float:
    """P(T ≤ t) for t ≥ 0."""
    x = freedom / (freedom + t * t)
    return 1 - _beta_share(x, freedom / 2, 0.5) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's way of evaluating it)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _away(1 + even * d), _away(1 + even / c)
        found *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _away(1 + odd * d), _away(1 + odd / c)
        found *= d * c
        if abs(d * c - 1) < 1e-12:
            break
    return front * found


def _away(value: float) -> float:
    """Not zero."""
    return value if abs(value) > _TINY else _TINY
