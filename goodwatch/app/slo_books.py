"""What is known of each service's events, in memory: read anew each minute, and history read backwards in pieces.

The newest is read first, so that pages are judged soonest. An SLO is not known before the longest window of its alerts
is read: a window that holds a part of its history only would fire after every restart.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from alerts.evaluate import QUALITY_WINDOWS_S
from alerts.evaluate_symptoms import LONG_WINDOWS_S, REACH_S, SYMPTOM_SIGNALS
from goodwatch.app.slo_events import Ledger, SloSources
from goodwatch.core.slo import DAY_S, BurnPair, Quality, Slo
from goodwatch.signals.budget import COARSE_CALENDAR_S, COARSE_ROLLING_S, replaced, thinned
from goodwatch.signals.budget_period import period_bounds
from goodwatch.signals.drift import HISTORY_S, HOUR_S
from goodwatch.signals.slo_events import EVENTS

#: what late scrapes, late requests and a store that was broken for a while may still change
_AGAIN_S: Final = 600.0
#: once an hour so much is read again: what came a day late
_LATE_S: Final = DAY_S
#: one piece of history; what only budgets and trends look at comes in longer ones
_PIECE_S: Final = 6 * HOUR_S
_OLD_PIECE_S: Final = DAY_S


@dataclass(slots=True)
class Book:
    """Events of one service: minutes up to ``end_s``, history back to ``start_s``."""

    service: str
    slos: Sequence[Slo]
    pairs: Mapping[str, tuple[BurnPair, ...]]
    end_s: float | None = None
    start_s: float = 0.0
    events: dict[str, pl.DataFrame] = field(default_factory=dict)
    beside: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=EVENTS))
    recent: pl.DataFrame | None = None  # minutes that symptoms look at
    counted: dict[str, tuple[float, float]] = field(default_factory=dict)  # valid and good by SLO, each event once
    _hour: float = 0.0
    _counted_s: float | None = None

    def longest_s(self, slo: Slo) -> float:
        """The longest window of its alerts."""
        more: tuple[float, ...] = QUALITY_WINDOWS_S if isinstance(slo.indicator, Quality) else ()
        return max([0.0, *more, *(pair.long_s for pair in self.pairs[slo.name])])

    def _windows_s(self) -> float:
        beside = max(length for lengths in LONG_WINDOWS_S.values() for length in lengths)
        return max([beside, *(self.longest_s(slo) for slo in self.slos)])

    def _reach_s(self) -> float:
        """How far back history is read: the longest period and window, and what trends are compared with."""
        at = self.end_s or 0.0
        periods = [at - period_bounds(slo.period, at)[0] for slo in self.slos]
        return max([HISTORY_S, self._windows_s(), *periods]) + DAY_S

    @property
    def _stagger_s(self) -> float:
        """Services are not all read again in the same minute of the hour."""
        return float(zlib.crc32(self.service.encode()) % 60 * 60)

    @property
    def behind(self) -> bool:
        """Whether there is history that was not read yet."""
        return self.end_s is not None and self.end_s - self.start_s < self._reach_s()

    def knows(self, length_s: float) -> bool:
        """Whether a window of this length is read whole, as far as there are data."""
        return self.end_s is not None and self.end_s - self.start_s >= length_s

    def is_due(self, end_s: float) -> bool:
        """Whether there is a minute to read. A clock that was set back by more than some minutes begins anew."""
        return self.end_s is None or self.end_s < end_s or self._set_back(end_s)

    def _set_back(self, end_s: float) -> bool:
        return self.end_s is not None and self.end_s - end_s > _AGAIN_S

    # -- in a thread --------------------------------------------------------------------------------------------------

    def renew(self, sources: SloSources, end_s: float) -> None:
        """Read up to a minute, and again what may have changed. Raises ``StoreError``, and then is as it was."""
        hour = (end_s + self._stagger_s) // HOUR_S
        back = self._set_back(end_s)
        if self.end_s is None or back or end_s - self.end_s > _LATE_S:  # the first look, or a day away: all anew
            first = end_s - _PIECE_S
        elif hour != self._hour:
            first = end_s - _LATE_S
        else:
            first = self.end_s - _AGAIN_S
        first = first // HOUR_S * HOUR_S if end_s - first > HOUR_S else first
        pieces = [sources.read(self.service, self.slos, a, b) for a, b in _pieces(first, end_s)]
        self.recent = sources.samples.minutes(
            end_s - REACH_S, end_s, service=self.service, signals=list(SYMPTOM_SIGNALS)
        )
        fresh_start = self.end_s is None or back or first > self.end_s
        if fresh_start:
            self.events, self.beside, self.start_s = {}, pl.DataFrame(schema=EVENTS), first
        self._put(pieces, first, end_s)
        self.start_s = min(self.start_s, first)
        self.end_s = end_s
        self._count(sources, end_s)
        if hour != self._hour:
            self._thin(end_s)
            self._hour = hour

    def read_back(self, sources: SloSources) -> None:
        """Read one more piece of history. Raises ``StoreError``."""
        last = self.start_s
        recent = self.end_s is not None and self.end_s - last < 4 * DAY_S
        first = last - (_PIECE_S if recent else _OLD_PIECE_S)
        self._put([sources.read(self.service, self.slos, first, last)], first, last)
        self.start_s = first
        if self.end_s is not None:
            self._thin(self.end_s)

    def _put(self, pieces: Iterable[Ledger], start_s: float, end_s: float) -> None:
        found = list(pieces)
        for slo in self.slos:
            kept = self.events.get(slo.name, pl.DataFrame(schema=EVENTS))
            fresh = [piece.slos[slo.name] for piece in found if slo.name in piece.slos]
            self.events[slo.name] = replaced(kept, pl.concat([kept.clear(), *fresh]), start_s, end_s)
        fresh = [piece.beside for piece in found]
        self.beside = replaced(self.beside, pl.concat([self.beside.clear(), *fresh]), start_s, end_s)

    def _thin(self, at_s: float) -> None:
        reach_s = self._reach_s()
        for slo in self.slos:
            self.events[slo.name] = thinned(
                self.events[slo.name], at_s, longest_s=max(7 * DAY_S, self.longest_s(slo)), reach_s=reach_s,
                coarse_s=COARSE_CALENDAR_S if slo.period.calendar else COARSE_ROLLING_S,
            )  # fmt: skip
        self.beside = thinned(self.beside, at_s, longest_s=self._windows_s(), reach_s=reach_s)

    def _count(self, sources: SloSources, end_s: float) -> None:
        """Add the events of minutes that can hardly change any more to what is exported, each minute once.

        Only of SLOs that nothing else on the metrics page counts; from zero on, because a rate needs one to start from.
        """
        since = self._counted_s
        until = self._counted_s = max(end_s - _AGAIN_S / 2, since or 0.0)
        if since is None:
            self.counted = {slo.name: (0.0, 0.0) for slo in self.slos if sources.counts_alone(slo)}
            return
        at = pl.col("minute_s")
        for name, (valid, good) in self.counted.items():
            rows = self.events[name].filter(pl.col("target") == "counted", at >= since, at < until)
            total, bad = float(rows["total"].sum()), float(rows["bad"].sum())
            self.counted[name] = (valid + total, good + total - bad)


def _pieces(start_s: float, end_s: float) -> list[tuple[float, float]]:
    """A range cut at whole pieces, so that no read grows with the time that goodwatch was away."""
    found: list[tuple[float, float]] = []
    at = start_s
    while at < end_s:
        last = min(end_s, at // _PIECE_S * _PIECE_S + _PIECE_S)
        found.append((at, last))
        at = last
    return found
