"""Service level objectives: what is promised, and the arithmetic of error budgets and burn rates.

Events are counted and only then divided: ratios are never averaged. Durations are seconds, ratios 0..1.
Source of the arithmetic: Google SRE Workbook, chapter 5, "Alerting on SLOs".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from goodwatch.core.model import Limits

Severity = Literal["page", "ticket"]
Tokens = Literal["good", "output", "total"]

DAY_S: Final = 86_400.0


# --- what is promised -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Period:
    """Time over which an objective holds: rolling, or a calendar unit whose ``length_s`` is then nominal.

    ``starts`` and ``zone`` say when calendar units begin, as they were written; "" is midnight UTC.
    """

    length_s: float = 30 * DAY_S
    calendar: Literal["", "day", "week", "month", "quarter", "year"] = ""
    starts: str = ""
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """Valid requests that were served; a refusal for overload (408, 429) and an engine error are not."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Requests whose latency, a canonical histogram signal, is at most ``limit_s``."""

    signal: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class JointGoodput:
    """Requests that were served within every limit at once."""

    limits: Limits


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality scores of at least ``min_score`` (0..1); ``evaluator`` "" takes all of them."""

    min_score: float
    evaluator: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """Minutes in which a million tokens cost at most ``usd_per_million``; minutes without tokens do not count."""

    usd_per_million: float
    tokens: Tokens = "good"


@dataclass(frozen=True, slots=True)
class Custom:
    """Events that the operator counts: PromQL with ``$window`` for the range; ``good`` or ``bad``, and ``total``.

    With ``slice_s`` the events are slices of that length; one is good when at least ``slice_target`` of what it holds
    is good, and one that holds nothing does not count.
    """

    total: str
    good: str = ""
    bad: str = ""
    slice_s: float | None = None
    slice_target: float = 1.0


Indicator = Availability | Latency | JointGoodput | Quality | Cost | Custom


@dataclass(frozen=True, slots=True)
class Scope:
    """Which requests an SLO is about. Engines know the model only; the rest is known from request facts.

    ``by`` names labels (canonical: "model") that split the SLO: one budget for each value.
    """

    model: str = ""
    tenant: str = ""
    route: str = ""
    input_band: str = ""
    by: tuple[str, ...] = ()

    @property
    def needs_facts(self) -> bool:
        """Whether engines' own series cannot tell these requests apart."""
        return bool(self.tenant or self.route or self.input_band) or bool(set(self.by) - {"model"})


@dataclass(frozen=True, slots=True)
class Slo:
    """One service level objective: ``objective`` is the share of good events over ``period``, in (0, 1).

    ``select`` are label matchers of the service's series in Prometheus (label → value, or a regular expression after
    "~"); empty: the builder's own way of finding a service. ``requests_per_day`` is None when nobody said.
    """

    name: str
    service: str
    objective: float
    indicator: Indicator
    period: Period = Period()
    scope: Scope = Scope()
    description: str = ""
    owner: str = ""
    engines: tuple[str, ...] = ()
    select: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    min_failures: int = 5
    requests_per_day: float | None = None
    pages: bool = True
    tickets: bool = True

    @property
    def budget_ratio(self) -> float:
        """Share of events that may be bad."""
        return budget_ratio(self.objective)


# --- events and budgets -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Events:
    """Good and total events in one window; counts, never ratios."""

    good: float
    total: float

    def __add__(self, other: "Events") -> "Events":
        return Events(self.good + other.good, self.total + other.total)

    @property
    def bad(self) -> float:
        """Events that were not good; below 0 only when the data is broken."""
        return self.total - self.good

    @property
    def error_ratio(self) -> float | None:
        """Share of bad events, or ``None`` when nothing happened."""
        return None if self.total == 0 else self.bad / self.total


@dataclass(frozen=True, slots=True)
class Budget:
    """What is left of an error budget, as a share of it: 1 untouched, 0 used up, below 0 overdrawn.

    ``broken`` says that there were more good events than events: the number is then not to be shown.
    """

    left_ratio: float
    broken: bool = False


def budget_ratio(objective: float) -> float:
    """1 - objective without the noise of binary fractions (12 significant digits).

    With the noise, a burn of exactly 1 is above 1.

    Examples
    --------
    >>> budget_ratio(0.999), 1 - 0.999
    (0.001, 0.0010000000000000009)
    """
    return float(f"{1 - objective:.12g}")


def burn_rate(events: Events, objective: float) -> float | None:
    """How many times faster than sustainable the error budget is being spent.

    Returns
    -------
    float | None
        1.0 spends exactly the budget over the SLO period; ``None`` if no events.

    Examples
    --------
    >>> round(burn_rate(Events(good=986, total=1000), objective=0.99), 6)
    1.4
    """
    ratio = events.error_ratio
    return None if ratio is None else ratio / budget_ratio(objective)


def budget_left(events: Events | None, objective: float) -> Budget | None:
    """What is left of the budget after the events of one period.

    ``None`` without data. A period without events has its whole budget.

    Examples
    --------
    >>> budget_left(Events(good=995, total=1000), objective=0.99)
    Budget(left_ratio=0.5, broken=False)
    """
    if events is None:
        return None
    if events.total == 0:
        return Budget(1.0)
    left = 1 - events.bad / (events.total * budget_ratio(objective))
    return Budget(float(f"{left:.12g}"), broken=events.bad < 0)


# --- windows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BurnPair:
    """Two windows that must both burn: the long one makes it count, the short one makes it let go.

    It fires while the error ratio of both is strictly above ``threshold_ratio`` = ``factor`` × budget. ``fitted``: the
    recipe's factor was lowered, because a total outage would not reach it, or not in time.
    """

    tier: str
    severity: Severity
    long_s: float
    short_s: float
    factor: float
    threshold_ratio: float
    fitted: bool = False

    def budget_share(self, period_s: float) -> float:
        """Share of the period's budget that is gone when it fires at just this burn."""
        return self.factor * self.long_s / period_s

    def fires_after_s(self, error_ratio: float) -> float | None:
        """Seconds of steady traffic at ``error_ratio``, after a clean history, until it fires; None: never."""
        return None if error_ratio <= self.threshold_ratio else self.long_s * self.threshold_ratio / error_ratio

    def lets_go_after_s(self, error_ratio: float) -> float:
        """Seconds from the last error until it no longer fires, after a long time at ``error_ratio``."""
        return self.short_s * max(0.0, 1 - self.threshold_ratio / error_ratio)


@dataclass(frozen=True, slots=True)
class _Recipe:
    tier: str
    severity: Severity
    long_s: float
    share: float  # of the budget of a long period that may be gone when it fires
    factor_30d: float  # SRE Workbook, table 5-8
    factor_7d: float  # shares 8, 12.5, 20 and 42 %: with the shares of 30 days a week would ticket inside its budget
    reach: float  # how far on the way from budget to 1 the threshold may be; a total outage passes all of them


_RECIPES: Final = (
    _Recipe("fast", "page", 3_600.0, 0.02, 14.4, 13.44, 1 / 2),
    _Recipe("medium", "page", 6 * 3_600.0, 0.05, 6.0, 3.5, 1 / 3),
    _Recipe("slow", "ticket", DAY_S, 0.10, 3.0, 1.4, 1 / 4),
    _Recipe("long", "ticket", 3 * DAY_S, 0.10, 1.0, 0.98, 1 / 4),
)
_WEEK_S, _FOUR_WEEKS_S, _MONTH_S = 7 * DAY_S, 28 * DAY_S, 30 * DAY_S
#: a total outage has to page within this time where the fast pair alone would take longer
OUTAGE_PAGES_WITHIN_S: Final = 15 * 60.0


def burn_pairs(objective: float, period_s: float, *, scrape_interval_s: float = 15.0) -> tuple[BurnPair, ...]:
    """The pairs of windows that page and ticket for an objective over any period, fast ones first.

    From 28 to 30 days they are the SRE Workbook's: 2, 5, 10 and 10 % of the budget in 1 h, 6 h, 1 d and 3 d. Down to a
    week the factors do not fall under those of the weekly recipe; below a week all windows shrink with the period,
    above 30 days those of tickets grow with it. No threshold is further than half way (fast), a third (medium) or a
    quarter (tickets) from the budget to 1, and a fast pair that would need more than 15 minutes for a total outage gets
    one of a quarter of its length beside it.

    Raises
    ------
    ValueError
        A predicate ("leaves …") when the objective is not in (0, 1) or a window would hold fewer than two scrapes.
    """
    if not 0 < objective < 1:
        raise ValueError("is not between 0 and 1; write for example 0.99")
    pairs = [_pair(recipe, budget_ratio(objective), period_s) for recipe in _RECIPES]
    pairs[:0] = _outage(pairs[0])
    shortest = min(pair.short_s for pair in pairs)
    if shortest < 2 * scrape_interval_s:
        text = f"leaves a window of {shortest:g} s, which holds fewer than two scrapes of {scrape_interval_s:g} s"
        raise ValueError(f"{text}; write a longer period or scrape more often")
    return tuple(pairs)


def _pair(recipe: _Recipe, budget: float, period_s: float) -> BurnPair:
    long_s = recipe.long_s
    if period_s < _WEEK_S:
        long_s *= period_s / _WEEK_S
        factor = recipe.factor_7d
    elif period_s > _MONTH_S:
        long_s *= period_s / _MONTH_S if recipe.severity == "ticket" else 1.0
        factor = recipe.factor_30d
    else:
        factor = recipe.share * period_s / long_s
        factor = factor if period_s >= _FOUR_WEEKS_S else max(factor, recipe.factor_7d)
    long_s = _whole(long_s)
    threshold = float(f"{factor * budget:.12g}")
    most = float(f"{budget + recipe.reach * (1 - budget):.12g}")
    if threshold <= most:
        return BurnPair(recipe.tier, recipe.severity, long_s, long_s / 12, float(f"{factor:.12g}"), threshold)
    return BurnPair(
        recipe.tier, recipe.severity, long_s, long_s / 12, float(f"{most / budget:.12g}"), most, fitted=True
    )


def _outage(fast: BurnPair) -> list[BurnPair]:
    after_s = fast.fires_after_s(1.0)
    if after_s is not None and after_s <= OUTAGE_PAGES_WITHIN_S:
        return []
    return [BurnPair("outage", "page", fast.long_s / 4, fast.short_s, fast.factor, fast.threshold_ratio, fitted=True)]


def _whole(long_s: float) -> float:
    """Long windows are multiples of a minute whose twelfth is whole seconds: ranges are written in whole seconds."""
    step_s = 720.0 if long_s >= 7_200 else 12.0
    return max(step_s, round(long_s / step_s) * step_s)


# --- forecast ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds until the budget is used up at today's burn. ``None``: not within sight (it refills as fast).

    ``soonest_s`` and ``latest_s`` hold the truth with 95 % probability if the burn stays as it is.
    """

    expected_s: float | None
    soonest_s: float | None
    latest_s: float | None


def exhaustion(left_ratio: float, recent: Events, objective: float, period_s: float) -> Forecast | None:
    """When the budget ends if the recent window's burn goes on; ``None`` without events.

    The interval comes from the Wilson score interval of the recent error ratio: few events, wide interval.

    Examples
    --------
    >>> exhaustion(0.5, Events(good=990, total=1000), 0.99, 30 * 86400.0).expected_s / 86400
    15.0
    """
    ratio = recent.error_ratio
    if ratio is None:
        return None
    low, high = wilson(recent.bad, recent.total)
    budget = budget_ratio(objective)

    def ends_s(error_ratio: float) -> float | None:
        return max(0.0, left_ratio) * period_s * budget / error_ratio if error_ratio > 0 else None

    return Forecast(ends_s(ratio), ends_s(high), ends_s(low))


def wilson(bad: float, total: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson score interval of a share (E. B. Wilson, 1927); ``z`` 1.96 is 95 %. ``total`` above 0."""
    share = min(1.0, max(0.0, bad / total))
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def failures_that_trip(pair: BurnPair, requests_per_s: float) -> int:
    """The fewest failed requests in the long window that reach the pair's threshold at this traffic.

    Examples
    --------
    >>> failures_that_trip(BurnPair("fast", "page", 3600.0, 300.0, 14.4, 0.0144), 1 / 60)
    1
    """
    return max(1, math.floor(pair.threshold_ratio * requests_per_s * pair.long_s) + 1)
