"""A figure with the interval that should hold the truth, and the sentence that says where it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot


@dataclass(frozen=True, slots=True)
class Estimate:
    """One figure: ``low <= point <= high``, in the unit of its name, and its basis in words."""

    point: float
    low: float
    high: float
    basis: str = ""

    def scaled(self, factor: float) -> Estimate:
        """The same figure in another unit; ``factor`` is positive."""
        return Estimate(self.point * factor, self.low * factor, self.high * factor, self.basis)

    def at_least(self, floor: float) -> Estimate:
        """The same figure where nothing below ``floor`` is possible."""
        return Estimate(max(floor, self.point), max(floor, self.low), max(floor, self.high), self.basis)

    def widened(self, other: Estimate) -> Estimate:
        """The same point with an interval that holds both intervals."""
        return Estimate(self.point, min(self.low, other.low), max(self.high, other.high), self.basis)


def exactly(value: float, basis: str = "") -> Estimate:
    """A figure without doubt."""
    return Estimate(value, value, value, basis)


def within(point: float, *, below: float, above: float, basis: str = "") -> Estimate:
    """A figure with its doubt on either side, in the figure's own unit."""
    return Estimate(point, point - below, point + above, basis)


def total(parts: Iterable[Estimate], basis: str = "") -> Estimate:
    """Sum of figures whose doubts are independent: the points add, the half-widths add as squares.

    Examples
    --------
    >>> total([within(10, below=3, above=3), within(5, below=4, above=4)])
    Estimate(point=15, low=10.0, high=20.0, basis='')
    """
    point, below, above = 0.0, 0.0, 0.0
    for part in parts:
        point += part.point
        below = hypot(below, part.point - part.low)
        above = hypot(above, part.high - part.point)
    return Estimate(point, point - below, point + above, basis)


def less(whole: Estimate, part: Estimate, basis: str = "") -> Estimate:
    """What is left of ``whole`` when ``part`` is taken, doubts independent."""
    return total([whole, Estimate(-part.point, -part.high, -part.low)], basis)
