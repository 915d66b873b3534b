"""Products and quotients of figures that are in doubt: relative doubts are independent and add as squares (logarithms)."""

from __future__ import annotations

from math import exp, hypot, log

from planner.estimate import Estimate


def product(*factors: Estimate, basis: str = "") -> Estimate:
    """The product of figures above 0; one that is 0 makes it 0.

    Examples
    --------
    >>> product(Estimate(2.0, 1.0, 4.0), Estimate(3.0, 3.0, 3.0))
    Estimate(point=6.0, low=3.0, high=12.0, basis='')
    """
    point, below, above = 1.0, 0.0, 0.0
    for one in factors:
        if one.point <= 0:
            return Estimate(0.0, 0.0, 0.0, basis)
        point *= one.point
        below = hypot(below, log(one.point / one.low) if one.low > 0 else float("inf"))
        above = hypot(above, log(one.high / one.point))
    # the point stays inside its ends whatever the rounding
    return Estimate(point, min(point, point * exp(-below)), max(point, point * exp(above)), basis)


def inverse(one: Estimate) -> Estimate:
    """1 / a figure above 0; one that may be 0 has no upper end."""
    return Estimate(1 / one.point, 1 / one.high, 1 / one.low if one.low > 0 else float("inf"), one.basis)


def quotient(of: Estimate, by: Estimate, basis: str = "") -> Estimate:
    """``of / by``, both above 0."""
    return product(of, inverse(by), basis=basis)
