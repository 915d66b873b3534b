"""Drifts of the running service: budgets each minute, slow trends each hour; kept so that a restart begins none anew."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from goodwatch.app.request_watch import RequestLoop
from goodwatch.app.slo_books import Book
from goodwatch.core.drift import Drift
from goodwatch.core.ports import RecordStore
from goodwatch.core.slo import DAY_S
from goodwatch.signals.budget import SloStatus
from goodwatch.signals.drift import (
    HISTORY_S,
    HOUR_S,
    LEAST_HISTORY_S,
    Hour,
    Trend,
    budget_drifts,
    drift_key,
    follow,
    key_of,
    look,
    trend_drift,
)
from goodwatch.signals.drift_hours import P99_FIELDS, p99_hours, quotient_hours, service_trends, slo_trend
from goodwatch.signals.rollup import HOUR_S as HOUR_TIER_S

DRIFT: Final = "drift"
_BUDGET_SIGNALS: Final = (("burn", "burn_rate"), ("forecast", "budget_left_ratio"))
#: an hour's requests are rolled up so long after its end
_ROLLED_S: Final = 300.0


@dataclass(slots=True)
class Drifts:
    """Drifts that go on, by key. All methods are called in a thread, one after another."""

    records: RecordStore
    requests: RequestLoop | None = None
    known: Mapping[str, Drift] = field(default_factory=dict)
    _looked_s: float = 0.0  # the hour of the last look at trends
    _p99: dict[tuple[str, str], list[Hour]] = field(default_factory=dict)  # by service and field
    _p99_until: dict[str, float] = field(default_factory=dict)

    def recover(self) -> None:
        """Take up what drifted when goodwatch last stopped. Raises ``StoreError``."""
        found = [drift_of(one.body) for one in self.records.latest(DRIFT)]
        self.known = {key_of(one): one for one in found if one is not None and one.ended_s is None}

    def look(self, statuses: Sequence[SloStatus], books: Mapping[str, Book], now_s: float) -> tuple[Drift, ...]:
        """Look once more; returns drifts that began or ended. Raises ``StoreError`` when that cannot be kept."""
        found = [drift for status in statuses for drift in budget_drifts(status, self.known)]
        looked = [
            drift_key(status.slo.service, kind, status.slo.name, signal)
            for status in statuses
            for kind, signal in _BUDGET_SIGNALS
        ]
        hour = (now_s - _ROLLED_S) // HOUR_S * HOUR_S
        if hour != self._looked_s:
            trends, at = self._trends(statuses, books, hour)
            found += trends
            looked += at
            self._looked_s = hour
        followed = follow(self.known, found, looked, now_s)
        for one in (*followed.began, *followed.ended):
            self.records.put(DRIFT, one.id, now_s, _body(one))
        self.known = followed.known
        return (*followed.began, *followed.ended)

    def _trends(
        self, statuses: Iterable[SloStatus], books: Mapping[str, Book], now_s: float
    ) -> tuple[list[Drift], list[str]]:
        found: list[Drift] = []
        looked: list[str] = []
        for trend, hours in self._watched(statuses, books, now_s):
            key = drift_key(trend.service, trend.kind, trend.slo, trend.signal)
            drifts, said = look(trend, hours, now_s, already=key in self.known)
            if drifts is None or said is None:
                continue
            looked.append(key)
            if drifts:
                found.append(trend_drift(trend, said, now_s))
        return found, looked

    def _watched(
        self, statuses: Iterable[SloStatus], books: Mapping[str, Book], now_s: float
    ) -> Iterable[tuple[Trend, list[Hour]]]:
        """Trends with their hours, of services whose history is read far enough."""
        told = [book for book in books.values() if book.knows(LEAST_HISTORY_S)]
        names = {book.service for book in told}
        for status in statuses:
            trend, worst = slo_trend(status.slo), status.worst
            if trend is not None and worst is not None and status.slo.service in names:
                events = books[status.slo.service].events[status.slo.name]
                yield trend, quotient_hours(events, worst.target)
        for book in told:
            yield from service_trends(book.service, book.beside, self._p99_of(book.service, now_s))

    def _p99_of(self, service: str, now_s: float) -> dict[str, list[Hour]]:
        """Hours of the P99 of requests by latency; {} where no requests are kept."""
        loop = self.requests
        if loop is None or service not in loop.seen_services:
            return {}
        at = self._p99_until.get(service, now_s - HISTORY_S)
        while at < now_s:  # a day at a time: bins of a month are many
            last = min(now_s, at + DAY_S)
            for name in P99_FIELDS:
                bins = loop.store.bins(HOUR_TIER_S, at, last, name, service=service)
                self._p99.setdefault((service, name), []).extend(p99_hours(bins))
            at = self._p99_until[service] = last
        for name in P99_FIELDS:
            hours = self._p99[(service, name)]
            self._p99[(service, name)] = [hour for hour in hours if hour.at_s >= now_s - HISTORY_S]
        return {short: self._p99[(service, name)] for name, short in P99_FIELDS.items()}


def _body(drift: Drift) -> dict[str, object]:
    return {f.name: dict(v) if isinstance(v := getattr(drift, f.name), Mapping) else v for f in fields(Drift)}


def drift_of(body: Mapping[str, Any]) -> Drift | None:
    """A drift from its record; None for a record of another shape, as an older or newer goodwatch may have left."""
    names = {f.name for f in fields(Drift)}
    try:
        return Drift(**{key: value for key, value in body.items() if key in names})
    except TypeError:
        return None
