"""Error budgets: from events of an SLO to windows, burn rates, what is left, when it ends, and what ate it. Pure.

Events are added over windows and only then divided. A window without a row has no data (None); one whose rows are all
zero has no traffic, and a period without traffic has its whole budget.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from goodwatch.core.slo import (
    DAY_S,
    Budget,
    BurnPair,
    Events,
    Forecast,
    Severity,
    Slo,
    budget_left,
    burn_rate,
    exhaustion,
)
from goodwatch.signals.budget_period import period_bounds
from goodwatch.signals.slo_events import group_key, group_values, summed

#: minutes are kept as such for so long, for windows under a day; longer ones are made of tiles, as in the rules
FINE_S: Final = DAY_S + 3_600.0
TILE_S: Final = 300.0
#: beyond every burn window only the period looks: its edge may be off by one of these; time zones are off by quarters
COARSE_ROLLING_S, COARSE_CALENDAR_S = 3_600.0, 900.0


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One count of events of an SLO: by window length (seconds), and over the period so far.

    ``budget`` is None without data; ``forecast``, which goes on as the last day did, also where that held nothing.
    """

    target: str
    group: tuple[str, ...]
    windows: Mapping[float, Events | None]
    period: Events | None
    budget: Budget | None
    forecast: Forecast | None

    def burn(self, length_s: float, objective: float) -> float | None:
        """Burn rate of one window; None without traffic or data."""
        events = self.windows.get(length_s)
        return None if events is None else burn_rate(events, objective)

    def fires(self, pair: BurnPair, min_failures: int) -> bool:
        """Whether a pair of windows fires: both strictly above its threshold, and enough failures in the long one.

        Half an event less is enough, as in the rules: weighted counts and increases need not be whole.
        """
        long, short = self.windows.get(pair.long_s), self.windows.get(pair.short_s)
        if long is None or short is None or long.bad <= max(1, min_failures) - 0.5:
            return False
        ratios = long.error_ratio, short.error_ratio
        return all(ratio is not None and ratio > pair.threshold_ratio for ratio in ratios)


@dataclass(frozen=True, slots=True)
class SloStatus:
    """An SLO at one moment. ``at_s`` is the end of all windows, ``since_s`` when its data begin; None: no data.

    ``starts_s`` and ``ends_s`` are the bounds of the period; of a rolling one ``ends_s`` is ``at_s``. ``note`` says why
    there is nothing, or what the numbers leave out.
    """

    slo: Slo
    at_s: float
    starts_s: float
    ends_s: float
    since_s: float | None
    pairs: tuple[BurnPair, ...]
    targets: tuple[TargetStatus, ...] = ()
    note: str = ""

    def firing(self, severity: Severity) -> tuple[tuple[TargetStatus, BurnPair], ...]:
        """Each count and pair of a severity that fires, pairs in their order."""
        least = self.slo.min_failures
        return tuple((t, p) for t in self.targets for p in self.pairs if p.severity == severity and t.fires(p, least))

    @property
    def worst(self) -> TargetStatus | None:
        """The count with the least budget left; None without any."""
        known = [t for t in self.targets if t.budget is not None]
        return min(known, key=lambda t: t.budget.left_ratio if t.budget else 1.0) if known else None


# --- events over time -------------------------------------------------------------------------------------------------


def replaced(kept: pl.DataFrame, fresh: pl.DataFrame, start_s: float, end_s: float) -> pl.DataFrame:
    """Kept events with those that begin in ``[start_s, end_s)`` taken from ``fresh`` instead (``EVENTS``)."""
    at = pl.col("minute_s")
    return pl.concat([kept.filter((at < start_s) | (at >= end_s)), fresh.filter(at >= start_s, at < end_s)])


def thinned(
    events: pl.DataFrame, now_s: float, *, longest_s: float, reach_s: float, coarse_s: float = 3_600.0
) -> pl.DataFrame:
    """Events with what is old added up into tiles, and what is older than ``reach_s`` left out.

    Minutes stay for a day and an hour, tiles of five minutes for ``longest_s`` (the longest window that is looked at)
    and a day; what is older is in tiles of ``coarse_s``, a multiple of five minutes.
    """
    fine, middle = now_s - FINE_S, now_s - longest_s - DAY_S
    at, length = pl.col("minute_s"), pl.col("length_s")
    tile = (
        pl.when(at >= fine // coarse_s * coarse_s)
        .then(length)
        .when(at >= middle // coarse_s * coarse_s)
        .then(pl.max_horizontal(length, pl.lit(TILE_S)))
        .otherwise(pl.lit(coarse_s))
    )
    sized = events.filter(at >= now_s - reach_s).with_columns(length_s=tile)
    return summed([sized.with_columns(minute_s=(at / length).floor() * length)])


def window_events(
    events: pl.DataFrame, end_s: float, lengths: Iterable[float]
) -> dict[tuple[str, str], dict[float, Events | None]]:
    """Events in ``(end_s - length, end_s]`` for each length, by (group, target).

    A tile that reaches into a window is in it whole: minutes fit windows of whole minutes, longer tiles are at most
    five minutes at the beginning of a window of a day or more (as in the rules).
    """
    wanted = sorted(set(lengths))
    ends = pl.col("minute_s") + pl.col("length_s")
    inside = [ends > end_s - length for length in wanted]
    sums = [
        column
        for n, here in enumerate(inside)
        for column in (
            pl.col("total").filter(here).sum().alias(f"total{n}"), pl.col("bad").filter(here).sum().alias(f"bad{n}"),
            here.sum().alias(f"rows{n}"),
        )
    ]  # fmt: skip
    found: dict[tuple[str, str], dict[float, Events | None]] = {}
    for row in events.filter(pl.col("minute_s") < end_s).group_by("group", "target").agg(*sums).iter_rows(named=True):
        found[(row["group"], row["target"])] = {
            length: Events(row[f"total{n}"] - row[f"bad{n}"], row[f"total{n}"]) if row[f"rows{n}"] else None
            for n, length in enumerate(wanted)
        }
    return dict(sorted(found.items()))


# --- status -----------------------------------------------------------------------------------------------------------


def slo_status(
    slo: Slo,
    events: pl.DataFrame,
    at_s: float,
    pairs: Sequence[BurnPair],
    *,
    more: Iterable[float] = (),
    note: str = "",
) -> SloStatus:
    """Windows, burn, budget and forecast of an SLO at a moment.

    Parameters
    ----------
    events
        ``EVENTS`` up to ``at_s``, at least a period long as far as there is any.
    at_s
        End of all windows, a whole minute.
    pairs
        From ``burn_pairs``; their windows are counted, and a tile.
    more
        Further window lengths in seconds.
    """
    starts_s, ends_s = period_bounds(slo.period, at_s)
    lengths = {TILE_S, DAY_S, *more, *(length for pair in pairs for length in (pair.long_s, pair.short_s))}
    counted = window_events(events, at_s, lengths)
    whole = window_events(events, at_s, [at_s - starts_s])
    first = events.filter(pl.col("minute_s") < at_s)["minute_s"].min()
    targets = tuple(_target(slo, key, windows, whole[key][at_s - starts_s]) for key, windows in counted.items())
    since = float(first) if isinstance(first, int | float) else None
    return SloStatus(slo, at_s, starts_s, ends_s, since, tuple(pairs), targets, note)


def _target(
    slo: Slo, key: tuple[str, str], windows: Mapping[float, Events | None], period: Events | None
) -> TargetStatus:
    budget, recent = budget_left(period, slo.objective), windows[DAY_S]
    forecast = None
    if budget is not None and not budget.broken and recent is not None:
        forecast = exhaustion(budget.left_ratio, recent, slo.objective, slo.period.length_s)
    return TargetStatus(key[1], group_values(key[0]), windows, period, budget, forecast)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The budget at one moment: left (None: no data yet), and burn since the point before (None: no traffic)."""

    at_s: float
    left_ratio: float | None
    burn: float | None


def budget_curve(
    events: pl.DataFrame, slo: Slo, target: str, times: Sequence[float], *, group: tuple[str, ...] = ()
) -> tuple[CurvePoint, ...]:
    """The budget of one count at each of these times, ascending; each with the period that ends there."""
    key = group_key(group)
    mine = events.filter(pl.col("target") == target, pl.col("group") == key).sort("minute_s")
    ends = (mine["minute_s"] + mine["length_s"]).to_list()
    sums = _sums(ends, mine["total"].to_list(), mine["bad"].to_list())
    found: list[CurvePoint] = []
    before: float | None = None
    for at_s in times:
        starts_s = period_bounds(slo.period, at_s)[0]
        period = sums.between(starts_s, at_s)
        budget = budget_left(period, slo.objective)
        step = None if before is None else sums.between(before, at_s)
        left = None if budget is None or budget.broken else budget.left_ratio
        found.append(CurvePoint(at_s, left, None if step is None else burn_rate(step, slo.objective)))
        before = at_s
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Running sums, so that any range is a difference."""

    ends: pl.Series
    total: list[float]
    bad: list[float]

    def between(self, start_s: float, end_s: float) -> Events | None:
        first = self.ends.search_sorted(start_s, side="right")
        last = self.ends.search_sorted(end_s, side="right")
        if last <= first:
            return None
        total, bad = self.total[last] - self.total[first], self.bad[last] - self.bad[first]
        return Events(total - bad, total)


def _sums(ends: list[float], total: list[float], bad: list[float]) -> _Sums:
    def running(values: list[float]) -> list[float]:
        return [0.0, *pl.Series(values, dtype=pl.Float64).cum_sum().to_list()]

    return _Sums(pl.Series(ends, dtype=pl.Float64), running(total), running(bad))


# --- what ate the budget ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Eater:
    """Part of the bad events: those with one value of a column (None: not told).

    ``share_ratio`` is its part of all bad events, ``budget_ratio`` the part of the period's budget that it took, and
    ``error_ratio`` the share of its own events that were bad.
    """

    key: str | None
    bad: float
    total: float
    share_ratio: float
    budget_ratio: float
    error_ratio: float | None


def eaters(frame: pl.DataFrame, by: str, slo: Slo, *, total: str = "total", bad: str = "bad") -> tuple[Eater, ...]:
    """What ate the budget by a column of a frame, most bad events first; () where nothing was bad.

    Parameters
    ----------
    frame
        Any rows with a key column ``by`` (cause, band, tenant, target, model, …) and the columns ``total`` and ``bad``
        of events; the rows of all keys together are the period.
    """
    grouped = frame.group_by(pl.col(by).cast(pl.String)).agg(pl.col(total).sum(), pl.col(bad).sum())
    all_bad, all_total = float(grouped[bad].sum()), float(grouped[total].sum())
    if all_bad <= 0:
        return ()
    room = all_total * slo.budget_ratio
    found = [
        Eater(key, b, t, b / all_bad, b / room if room else 0.0, b / t if t > 0 else None)
        for key, t, b in grouped.select(by, total, bad).iter_rows()
        if b > 0
    ]
    return tuple(sorted(found, key=lambda e: (-e.bad, e.key or "")))
