"""Drift: a budget that burns or ends too soon, and numbers that slowly leave where they were. Pure.

A trend is looked for in hourly values of one number. Each hour of the last day is compared with what was usual at that
hour: of the same hour of the week where there are two weeks of history, else of the same hour on the days before. The
median of a day's differences is the shift; its interval comes from how far the medians of other days lie apart (median
absolute deviation), so that neither the seasons nor single hours nor noise that lasts for hours make a drift. Where a
day is too noisy, three days may tell. It is called a drift when the interval is on the bad side of nothing and the shift is large enough to matter; it ends when the
shift is half of that or less.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Literal, get_args

from goodwatch.core.drift import Drift, DriftKind
from goodwatch.core.slo import DAY_S, BurnPair, Severity, Slo, wilson
from goodwatch.signals.budget import SloStatus, TargetStatus

HOUR_S: Final = 3_600.0
WEEK_S: Final = 7 * DAY_S
#: so much history is looked at
HISTORY_S: Final = 5 * WEEK_S
#: the shift is the median over so many hours: a day, or three where a day is too noisy to tell
SPANS_HOURS: Final = (24, 72)
#: the share of them that must have a value and something to compare with
_LEAST_SHARE: Final = 2 / 3
#: other spans, each a day apart, that the spread is told from
_LEAST_DAYS: Final = 6
#: days of history before anything is said
LEAST_HISTORY_S: Final = 8 * DAY_S
#: Of the median absolute deviation of a normal distribution (1.4826) times this many standard deviations: one false
#: alarm in some months, see tests/signals/test_drift.py, where it is measured.
_SIGMAS: Final = 2.6
_MAD_TO_SIGMA: Final = 1.4826

Worse = Literal["up", "down"]


# --- trends -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hour:
    """One number over ``[at_s, at_s + 3600)``."""

    at_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Shift:
    """How far the last day is from what was usual; ``low`` and ``high`` hold the shift with about 95 %.

    Relative (0.2 is 20 % more) where the number is a positive amount, else in its own unit. ``value`` and ``expected``
    are medians of the last day and of what was usual, in the number's unit.
    """

    shift: float
    low: float
    high: float
    sigma: float
    value: float
    expected: float


@dataclass(frozen=True, slots=True)
class Trend:
    """A number that is watched: what it is, which way is worse, and from which shift on it matters.

    ``relative`` compares logarithms: latencies and costs multiply. Ratios are compared as they are.
    """

    service: str
    kind: DriftKind
    signal: str
    unit: str
    worse: Worse
    least: float
    relative: bool = False
    slo: str = ""


def shift(hours: Sequence[Hour], now_s: float, *, relative: bool = False, span: int = 24) -> Shift | None:
    """How far the last ``span`` hours are from what was usual; None without enough history.

    Parameters
    ----------
    hours
        In any order; those at or after ``now_s`` are not looked at. An hour without traffic is left out.
    """
    known = {round(h.at_s / HOUR_S): h.value for h in hours if h.at_s + HOUR_S <= now_s and math.isfinite(h.value)}
    if relative:
        known = {at: math.log(value) for at, value in known.items() if value > 0}
    last = int(now_s // HOUR_S)
    if not known or last - min(known) < LEAST_HISTORY_S / HOUR_S:
        return None
    today = _differences(known, last, span)
    if len(today) < _LEAST_SHARE * span:
        return None
    spans = [_differences(known, last - 24 * n - span + 24, span) for n in range(1, int(HISTORY_S / DAY_S))]
    others = [median(d for d, _ in one) for one in spans if len(one) >= _LEAST_SHARE * span]
    if len(others) < _LEAST_DAYS:
        return None
    middle = median(difference for difference, _ in today)
    spread = _spread(others)
    usual = median(expected for _, expected in today)
    value = usual + middle
    half = 2 * spread
    low, high = middle - half, middle + half
    if relative:
        return Shift(
            math.expm1(middle), math.expm1(low), math.expm1(high), spread, math.exp(value), math.exp(usual)
        )  # fmt: skip
    return Shift(middle, low, high, spread, value, usual)


def _differences(known: Mapping[int, float], last: int, span: int) -> list[tuple[float, float]]:
    """Value less what was usual, and what was usual, of the hours in ``[last - span, last)`` that have both.

    What was usual is from before the span.
    """
    found: list[tuple[float, float]] = []
    first = last - span
    for at in range(first, last):
        if at not in known:
            continue
        weeks = [known[at - n * 168] for n in range(1, 6) if at - n * 168 < first and at - n * 168 in known]
        like = weeks
        if len(weeks) < 2:
            like = [known[at - n * 24] for n in range(1, 15) if at - n * 24 < first and at - n * 24 in known]
        if len(like) >= 2:
            usual = median(like)
            found.append((known[at] - usual, usual))
    return found


def _spread(days: Sequence[float]) -> float:
    """The standard deviation of a shift, robust; with few days it is less sure, so it is wider."""
    middle = median(days)
    mad = median(abs(day - middle) for day in days)
    return _MAD_TO_SIGMA * mad * (1 + 2 / len(days))


def drifting(found: Shift | None, trend: Trend, *, already: bool) -> bool | None:
    """Whether a number drifts; ``already``: it did at the look before. None cannot be told."""
    if found is None:
        return None
    sign = 1.0 if trend.worse == "up" else -1.0
    size = sign * found.shift
    if already:
        return size > trend.least / 2
    raw = math.log1p(found.shift) if trend.relative else found.shift
    return size >= trend.least and sign * raw > _SIGMAS * found.sigma


def look(trend: Trend, hours: Sequence[Hour], now_s: float, *, already: bool) -> tuple[bool | None, Shift | None]:
    """Whether a number drifts over any of the spans, and the shift that says so; (None, None) cannot be told."""
    answer, said = None, None
    for span in SPANS_HOURS:
        found = shift(hours, now_s, relative=trend.relative, span=span)
        drifts = drifting(found, trend, already=already)
        if drifts:
            return True, found
        if drifts is not None and answer is None:
            answer, said = False, found
    return answer, said


# --- budgets ----------------------------------------------------------------------------------------------------------


def burning(status: SloStatus) -> tuple[TargetStatus, float, BurnPair] | None:
    """The count that burns over its limit, its burn and the windows that say so, pages first; None when none does."""
    for severity in get_args(Severity):
        firing = status.firing(severity)
        found = [(target.burn(pair.long_s, status.slo.objective) or 0.0, target, pair) for target, pair in firing]
        if found:
            burn, target, pair = max(found, key=lambda one: one[0])
            return target, burn, pair
    return None


def ends_early(status: SloStatus, *, already: bool) -> TargetStatus | None:
    """The count whose budget is forecast to end before its period does; None when none is.

    It begins when even the latest end of the interval is too early, and is over when the expected end is not. A rolling
    budget refills as fast as it was spent before, so that it ends only while its burn stays above 1.
    """
    left_s = status.ends_s - status.at_s if status.slo.period.calendar else status.slo.period.length_s
    for target in status.targets:
        ends, recent = target.forecast, target.windows.get(DAY_S)
        if ends is None or recent is None or recent.bad <= max(1, status.slo.min_failures) - 0.5:
            continue
        at = ends.expected_s if already else ends.latest_s
        ratio = recent.error_ratio if already else wilson(recent.bad, recent.total)[0]
        burns = status.slo.period.calendar != "" or (ratio or 0.0) > status.slo.budget_ratio
        if at is not None and at < left_s and burns:
            return target
    return None


# --- events -----------------------------------------------------------------------------------------------------------


def drift_key(service: str, kind: str, slo: str, signal: str) -> str:
    """What drifts: one at a time of these."""
    return "/".join((service, kind, slo, signal))


def key_of(drift: Drift) -> str:
    """The key of a drift."""
    return drift_key(drift.service, drift.kind, drift.slo, drift.signal)


def budget_drifts(status: SloStatus, known: Mapping[str, Drift]) -> tuple[Drift, ...]:
    """Burn and forecast drifts of an SLO now, without those of ``known`` (by key) that are over."""
    slo, now_s = status.slo, status.at_s
    found: list[Drift] = []
    burn = burning(status)
    if burn is not None:
        target, rate, pair = burn
        text = f"{slo.name} burns its error budget {rate:.1f} times as fast as it may last ({target.target})."
        found.append(
            replace(_begun("burn", pair.severity, slo, "burn_rate", now_s), text=text, value=rate, expected=pair.factor)
        )
    already = drift_key(slo.service, "forecast", slo.name, "budget_left_ratio") in known
    early = ends_early(status, already=already)
    if early is not None and early.budget is not None and early.forecast is not None:
        left = _rough(early.forecast.expected_s or 0.0)
        text = f"The error budget of {slo.name} ends {left} if it goes on like the last day ({early.target})."
        made = _begun("forecast", "ticket", slo, "budget_left_ratio", now_s)
        found.append(replace(made, text=text, value=early.budget.left_ratio))
    return tuple(found)


def _rough(seconds: float) -> str:
    """When something ends, as a person grasps it."""
    if seconds < HOUR_S:
        return "within the hour"
    return f"in {seconds / HOUR_S:.0f} hours" if seconds < 2 * DAY_S else f"in {seconds / DAY_S:.1f} days"


def _begun(kind: DriftKind, severity: Severity, of: Slo, signal: str, now_s: float) -> Drift:
    key = drift_key(of.service, kind, of.name, signal)
    return Drift(f"{key}/{now_s:.0f}", of.service, kind, severity, signal, "", now_s, now_s, slo=of.name)


def trend_drift(trend: Trend, found: Shift, now_s: float) -> Drift:
    """The drift of a trend."""
    key = drift_key(trend.service, trend.kind, trend.slo, trend.signal)
    change = f"{found.shift:+.0%}" if trend.relative else f"{found.shift * 100:+.2g} points"
    low, high = (found.expected + end for end in (found.low, found.high))
    if trend.relative:
        low, high = (found.expected * (1 + end) for end in (found.low, found.high))
    return Drift(
        f"{key}/{now_s:.0f}", trend.service, trend.kind, "ticket", trend.signal,
        f"{trend.signal} of {trend.service} is {change} against what was usual at this time.", now_s, now_s,
        slo=trend.slo, value=found.value, expected=found.expected, low=low, high=high,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Followed:
    """Drifts after a look: those that go on, by key, and those that began or ended with it."""

    known: Mapping[str, Drift]
    began: tuple[Drift, ...] = ()
    ended: tuple[Drift, ...] = ()


def follow(known: Mapping[str, Drift], found: Iterable[Drift], looked_at: Iterable[str], now_s: float) -> Followed:
    """Drifts with one more look: what is found again keeps its id and beginning, what was looked at and is gone ends.

    ``looked_at`` are the keys that could be told; a drift of any other key goes on as it was.
    """
    fresh = {key_of(drift): drift for drift in found}
    going: dict[str, Drift] = {}
    began: list[Drift] = []
    for key, drift in fresh.items():
        before = known.get(key)
        if before is None:
            began.append(drift)
            going[key] = drift
        else:
            going[key] = replace(drift, id=before.id, began_s=before.began_s)
    looked = set(looked_at)
    over = [drift for key, drift in known.items() if key not in fresh and key in looked]
    going |= {key: drift for key, drift in known.items() if key not in fresh and key not in looked}
    ended = tuple(replace(drift, seen_s=now_s, ended_s=now_s) for drift in over)
    return Followed(going, tuple(began), ended)
