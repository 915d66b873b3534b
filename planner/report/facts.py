"""What a weekly report is made of: figures with their basis and interval, and why one is missing. Values only.

Money is USD. A figure that nobody knows has no value; it is never 0. ``Note`` keys are those of the texts, so that
every sentence can be said in every language; words of people (why something was declined) are quoted as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from planner.report.weeks import Week

#: why there is no number, as keys of the texts
Missing = Literal["no_data", "no_traffic", "not_measurable", "no_price", "no_facts"]
Basis = Literal["counted", "measured", "estimated", "bounded", "predicted"]
DAYS: Final = 7


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in the unit of its field; ``low`` and ``high`` where its interval is known.

    ``days``: on how many of the seven days it is based; fewer make a sum a part of the whole. Raises ``ValueError`` for
    a number that is not finite.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    basis: Basis | None = None
    missing: Missing = "no_data"
    days: int = DAYS

    def __post_init__(self) -> None:
        if not all(math.isfinite(x) for x in (self.value, self.low, self.high) if x is not None):
            raise ValueError("a figure must be finite; leave out what was not measured")

    @property
    def whole(self) -> bool:
        """Whether it is there and about the whole week."""
        return self.value is not None and self.days == DAYS


NONE: Final = Figure()


@dataclass(frozen=True, slots=True)
class Spend:
    """One week of a service or of one tenant.

    ``idle_usd`` was paid while nothing ran, and is of no tenant; ``wasted_usd`` went to requests that were late, failed or
    given up.
    """

    usd: Figure = NONE
    per_million_good_usd: Figure = NONE
    idle_usd: Figure = NONE
    wasted_usd: Figure = NONE


@dataclass(frozen=True, slots=True)
class TenantWeek:
    """One tenant of a service; ``tenant`` None is what nobody was named for."""

    tenant: str | None
    now: Spend
    before: Spend = field(default_factory=Spend)


@dataclass(frozen=True, slots=True)
class ServiceWeek:
    """One service. ``attainment_ratio`` is over the week; ``objective`` what was promised, None: nothing."""

    service: str
    now: Spend
    before: Spend = field(default_factory=Spend)
    tenants: tuple[TenantWeek, ...] = ()
    attainment_ratio: Figure = NONE
    objective: float | None = None


@dataclass(frozen=True, slots=True)
class SloState:
    """An SLO when the report was made; ``budget_left_ratio`` below 0 is overspent."""

    service: str
    slo: str
    objective: float
    budget_left_ratio: Figure = NONE
    firing: int = 0


@dataclass(frozen=True, slots=True)
class Advised:
    """One recommendation. ``strategy`` is the name of its kind, ``changes`` setting → new value.

    ``saving_usd``: USD a week against staying, at the traffic it was made from, below 0 where it costs more; ``confidence``:
    high, medium or low, "" where not told; ``mode``: whether it saves money or restores a promise.
    """

    id: str
    service: str
    strategy: str
    state: str
    saving_usd: Figure = NONE
    confidence: str = ""
    changes: Mapping[str, str] = field(default_factory=dict)
    restart: bool | None = None
    gate: bool = False
    why: str = ""
    mode: str = "save"


@dataclass(frozen=True, slots=True)
class Verified:
    """One experiment on cost that ended in the week: what the change of cost per good token was worth at this week's spend.

    ``predicted_usd`` and ``realised_usd`` are USD a week, above 0 where it became cheaper; ``change_ratio`` is cost after /
    cost before. ``inside``: whether the result lay in the predicted interval. ``vetoed``: quality lost too much.
    """

    id: str
    service: str
    factor: str
    outcome: Literal["better", "worse", "no_difference", "inconclusive"]
    change_ratio: Figure = NONE
    predicted_usd: Figure = NONE
    realised_usd: Figure = NONE
    inside: bool | None = None
    vetoed: bool = False

    @property
    def saves(self) -> bool:
        """Whether it may be called a saving: verdict better, no veto, and the whole interval above 0."""
        low = self.realised_usd.low
        return self.outcome == "better" and not self.vetoed and low is not None and low > 0


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A drift that went on in the week; ``kind`` as in ``goodwatch.core.drift``. Units are those of ``signal``."""

    service: str
    kind: str
    began_s: float
    ended_s: float | None = None
    signal: str = ""
    value: float | None = None
    expected: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something about the data that a reader must know: a key of the texts and what is filled in."""

    key: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WeekFacts:
    """Everything that one report says."""

    week: Week
    made_s: float
    services: tuple[ServiceWeek, ...] = ()
    slos: tuple[SloState, ...] = ()
    advised: tuple[Advised, ...] = ()
    verified: tuple[Verified, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    notes: tuple[Note, ...] = ()


def added(figures: tuple[Figure, ...]) -> Figure:
    """The sum of what is known; None where nothing is, and of the days of the one that knows fewest.

    Where a part is missing the sum is of the others: ``days`` 0 says that it is not the whole.

    Examples
    --------
    >>> added((Figure(2.0), Figure(3.0))).value, added((Figure(), Figure())).value, added((Figure(2.0), Figure())).days
    (5.0, None, 0)
    """
    known = [one for one in figures if one.value is not None]
    if not known:
        return figures[0] if figures else NONE
    days = min(one.days for one in known) if len(known) == len(figures) else 0
    bases = {one.basis for one in known}
    return Figure(
        math.fsum(one.value or 0.0 for one in known), basis=bases.pop() if len(bases) == 1 else "estimated", days=days
    )


def change_ratio(now: Figure, before: Figure) -> float | None:
    """Now / before - 1; None unless both are about whole weeks and the one before was above 0."""
    if not (now.whole and before.whole) or now.value is None or not before.value:
        return None
    return now.value / before.value - 1


def week_worth(ratio: Figure, usd: Figure) -> Figure:
    """What a change of cost is worth a week, USD: the same work at the old cost less ``usd``, which was paid after it.

    ``ratio`` is cost after / cost before with its interval; a cost that rose is worth less than 0.

    Examples
    --------
    >>> week_worth(Figure(0.8, 0.75, 0.9), Figure(400.0)).value
    100.0
    """
    if ratio.value is None or not usd.whole or usd.value is None:
        return Figure(missing="no_price" if usd.value is None else "no_data")

    def worth(x: float | None) -> float | None:
        return None if x is None or x <= 0 or usd.value is None else usd.value * (1 / x - 1)

    return Figure(worth(ratio.value), worth(ratio.high), worth(ratio.low), "estimated")
