"""Drift: a service leaves what was promised, or where it was. An event with a beginning and an end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from goodwatch.core.slo import Severity

#: burn: over a pair of windows; forecast: the budget ends before its period; the others: a slow trend
DriftKind = Literal["burn", "forecast", "attainment", "latency", "cost", "quality"]


@dataclass(frozen=True, slots=True)
class Drift:
    """One SLO, or one number of a service, that is not where it should be.

    ``id`` stays the same from beginning to end and over restarts. ``value`` and ``expected`` are in the unit of
    ``signal`` (burn rates without unit, seconds, ratios 0..1, USD per million tokens); ``expected`` is where the number
    was, or what was promised; ``low`` and ``high`` hold the value with 95 % probability where that is known.
    """

    id: str
    service: str
    kind: DriftKind
    severity: Severity
    signal: str
    text: str
    began_s: float
    seen_s: float
    slo: str = ""
    value: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    ended_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
