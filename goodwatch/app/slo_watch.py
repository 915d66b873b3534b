"""SLOs of the running service: events become statuses, statuses become alerts and drifts, both outlive a restart.

``SloLoop.evaluate`` runs as often as numbers are derived; new windows are computed once a minute, when the minute and
half of another are over and its events are in the store. Whoever pages is a setting: where Prometheus does, alerts are
judged and shown here all the same and nobody is told.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import polars as pl

from alerts.evaluate import QUALITY_WINDOWS_S, Evaluation, Situation, evaluate, left_out
from alerts.evaluate_symptoms import LONG_WINDOWS_S, ServiceNow
from alerts.rules.build import build
from alerts.rules.sli import engines_of
from alerts.rules.values import Alert, Options
from alerts.state import Advanced, AlertState, Held, advance, record, restored, told, worst_first
from alerts.values import FiringAlert
from goodwatch.app.keeper import Keeper
from goodwatch.app.slo_books import Book
from goodwatch.app.slo_drifts import Drifts
from goodwatch.app.slo_events import SloSources
from goodwatch.app.slo_reads import SloReads
from goodwatch.app.slo_view import Counted, SloNow, SloView
from goodwatch.app.telemetry import span
from goodwatch.app.watch import Watch
from goodwatch.core.clock import Clock
from goodwatch.core.drift import Drift
from goodwatch.core.errors import ConfigError, StoreError
from goodwatch.core.ports import DriftListener, RecordStore
from goodwatch.core.slo import BurnPair, Quality, Slo, burn_pairs
from goodwatch.signals.budget import SloStatus, slo_status, window_events
from goodwatch.signals.budget_period import period_bounds
from goodwatch.signals.frames import MINUTES
from goodwatch.signals.slo_events_counted import band_condition

log = logging.getLogger(__name__)

ALERT_STATE: Final = "alert-state"
#: a minute's scrapes are in, folded and written so long after its end
SETTLE_S: Final = 30.0
#: history is read for so long in each round: the first pages matter more than old budgets
_CATCH_UP_S: Final = 2.0
_MINUTE_S: Final = 60.0

Pages = Literal["goodwatch", "prometheus"]


class Notifier(Protocol):
    """Whoever brings alerts to people."""

    def tell(self, alerts: Sequence[FiringAlert], now_s: float) -> None:
        """Everything that fires now, and what just ended. On the event loop; does not block and does not raise."""
        ...


class Silent:
    """Tells nobody."""

    def tell(self, alerts: Sequence[FiringAlert], now_s: float) -> None:
        """Nothing."""


def up_of(watch: Watch) -> dict[str, dict[str, bool | None]]:
    """Whether the last scrape of each engine worked, by service and target; None: none yet."""
    found: dict[str, dict[str, bool | None]] = {}
    for name, state in watch.states.items():
        target = state.spec.target
        if target.kind == "engine":
            found.setdefault(target.service, {})[name] = None if state.last is None else state.last.up
    return found


@dataclass(slots=True)
class SloLoop:
    """Fulfils ``goodwatch.app.slo_view.SloViews`` through ``reads``. Lives on the event loop.

    Parameters
    ----------
    sources
        Where events come from; its options are those of the rules.
    keeper
        Whose turn it is at the sample store.
    records
        What alerts and drifts are kept in over a restart.
    up
        Whether the last scrape of each target worked, by service and target; asked on the event loop.
    pages
        Who pages. With "prometheus" the notifier is told of nothing.
    """

    sources: SloSources
    keeper: Keeper
    records: RecordStore
    clock: Clock
    up: Callable[[], Mapping[str, Mapping[str, bool | None]]]
    notifier: Notifier = field(default_factory=Silent)
    listeners: Sequence[DriftListener] = ()
    pages: Pages = "goodwatch"
    pager: Pages | None = None  # who pages, where a notifier decides that itself: it is told of everything
    problem: str = ""  # of a store, "" when all work
    slos: tuple[Slo, ...] = ()
    rules: tuple[Alert, ...] = ()
    why_none: dict[str, str] = field(default_factory=dict)  # by SLO: why it has no number here
    books: dict[str, Book] = field(default_factory=dict)  # by service
    statuses: dict[str, SloStatus] = field(default_factory=dict)
    state: AlertState = field(default_factory=AlertState)
    drifts: Drifts = field(init=False)
    _had: set[str] = field(default_factory=set)  # services that had targets
    _ready: bool = False
    _unkept: dict[str, Held] = field(default_factory=dict)  # changes of alerts that are not committed yet

    def __post_init__(self) -> None:
        self.drifts = Drifts(self.records, self.sources.requests)

    @property
    def options(self) -> Options:
        """What the rules are told."""
        return self.sources.options

    @property
    def reads(self) -> SloReads:
        """What pages ask."""
        return SloReads(self)

    # -- configuration ----------------------------------------------------------------------------------------------

    def use(self, slos: Sequence[Slo], sources: SloSources | None = None, *, pages: Pages | None = None) -> None:
        """Take the SLOs of a configuration; what is known of services whose SLOs stay is kept."""
        self.sources = sources or self.sources
        if pages == "prometheus" and self.pages != pages and self._ready:
            self.notifier.tell((), self.clock.now_s())  # Prometheus tells from now on
        self.pages = pages or self.pages
        self.slos = tuple(slos)
        self.why_none = {slo.name: why for slo in slos if (why := self.sources.why_none(slo))}
        pairs: dict[str, tuple[BurnPair, ...]] = {}
        for slo in slos:
            if slo.name in self.why_none:
                continue
            try:
                pairs[slo.name] = burn_pairs(
                    slo.objective, slo.period.length_s, scrape_interval_s=self.options.scrape_interval_s
                )
                build((slo,), self.options)
                period_bounds(slo.period, self.clock.now_s())
                if slo.scope.input_band:
                    band_condition(slo.scope.input_band)
            except (ConfigError, ValueError) as error:
                self.why_none[slo.name] = str(error)
        usable = [slo for slo in slos if slo.name not in self.why_none]
        self.rules = build(usable, self.options).alerts
        by_service: dict[str, list[Slo]] = {}
        for slo in usable:
            by_service.setdefault(slo.service, []).append(slo)
        books = {}
        for service, found in by_service.items():
            before = self.books.get(service)
            same = before is not None and tuple(before.slos) == tuple(found)
            books[service] = before if same and before else Book(service, tuple(found), pairs)
        self.books = books
        now = {slo.name: slo for slo in usable}  # a number of what the SLO was before would stand under what it is now
        self.statuses = {name: status for name, status in self.statuses.items() if now.get(name) == status.slo}

    async def recover(self) -> None:
        """What fired and drifted when goodwatch last stopped. To be awaited before the first ``evaluate``."""
        try:
            bodies = await asyncio.to_thread(lambda: [one.body for one in self.records.latest(ALERT_STATE)])
            await asyncio.to_thread(self.drifts.recover)
        except StoreError as error:
            self._failed("read what fired", error)
            return
        self.state = restored(bodies)
        self._ready = True

    # -- running ----------------------------------------------------------------------------------------------------

    async def evaluate(self) -> None:
        """One round: read, judge, keep what changed, tell. Does nothing new within the same minute but telling again."""
        if not self._ready:  # without it, everything that fires would be told as new
            await self.recover()
        if not self._ready:
            return
        now = self.clock.now_s()
        end_s = (now - SETTLE_S) // _MINUTE_S * _MINUTE_S
        up = self.up()
        self._had.update(service for service, targets in up.items() if targets)
        due = [book for book in self.books.values() if book.is_due(end_s)]
        if due:
            with span("slos", services=len(due)):
                read = [await self._renew(book, end_s) for book in due]
                if all(read):
                    self.problem = ""
                await self._catch_up()
                if any(read):
                    await self._judge(up, end_s)
        else:
            await self._catch_up()
            self._tell(told(Advanced(self.state), self.options.external_url), now)

    async def _renew(self, book: Book, end_s: float) -> bool:
        try:
            await self.keeper.call(lambda: book.renew(self.sources, end_s))
        except StoreError as error:
            self._failed("read events", error)
            return False
        return True

    async def _catch_up(self) -> None:
        """Read history for a while: what alerts wait for first, one service after another."""
        until = self.clock.monotonic_s() + _CATCH_UP_S
        while True:
            behind = [book for book in self.books.values() if book.behind]
            if not behind or self.clock.monotonic_s() > until:
                return
            book = min(behind, key=lambda one: (one.end_s or 0.0) - one.start_s)
            try:
                await self.keeper.call(lambda one=book: one.read_back(self.sources))  # type: ignore[misc]
            except StoreError as error:
                self._failed("read history", error)
                return

    async def _judge(self, up: Mapping[str, Mapping[str, bool | None]], end_s: float) -> None:
        had, now = frozenset(self._had), self.clock.now_s()
        statuses, found = await asyncio.to_thread(lambda: self._evaluated(up, had, end_s))
        advanced = advance(self.state, found, now)
        self._unkept |= {one.fingerprint: one for one in advanced.changed}
        try:
            await asyncio.to_thread(lambda: self._keep(now))
        except StoreError as error:  # told all the same: a page that comes twice is better than one that never comes
            self._failed("keep alerts", error)
        self.statuses, self.state = statuses, advanced.state
        self._tell(told(advanced, self.options.external_url), now)
        try:
            changes = await asyncio.to_thread(lambda: self.drifts.look(list(statuses.values()), self.books, now))
        except StoreError as error:
            self._failed("look for drifts", error)
            return
        for drift in changes:
            for listener in self.listeners:
                listener.drifted(drift)

    def _tell(self, alerts: Sequence[FiringAlert], now: float) -> None:
        if self.pages == "goodwatch":
            self.notifier.tell(alerts, now)

    def _keep(self, now: float) -> None:
        """Commit changes of alerts; those that cannot be kept are tried again at the next round."""
        for name, one in list(self._unkept.items()):
            self.records.put(ALERT_STATE, name, now, record(one))
            del self._unkept[name]

    def _failed(self, what: str, error: StoreError) -> None:
        if not self.problem:
            log.error("SLOs cannot be evaluated", extra={"what": what, "problem": str(error)})
        self.problem = str(error)

    # -- judging, in a thread ---------------------------------------------------------------------------------------

    def _evaluated(
        self, up: Mapping[str, Mapping[str, bool | None]], had: frozenset[str], end_s: float
    ) -> tuple[dict[str, SloStatus], Evaluation]:
        """Statuses and alerts at ``end_s``; a service that could not be read up to there is not judged."""
        statuses: dict[str, SloStatus] = {}
        services: dict[str, ServiceNow] = {}
        for book in self.books.values():
            if book.end_s != end_s:
                continue
            services[book.service] = self._service_now(book, up.get(book.service, {}), had)
            for slo in book.slos:
                if book.knows(book.longest_s(slo)):
                    statuses[slo.name] = self._status(book, slo)
        return statuses, evaluate(self.rules, Situation(end_s, statuses, services), self.options)

    @staticmethod
    def _status(book: Book, slo: Slo) -> SloStatus:
        at_s = book.end_s or 0.0
        more = QUALITY_WINDOWS_S if isinstance(slo.indicator, Quality) else ()
        status = slo_status(slo, book.events[slo.name], at_s, book.pairs[slo.name], more=more)
        if book.knows(at_s - status.starts_s):
            return status
        note = "its history is still being read: the budget holds a part of the period only"
        return slo_status(slo, book.events[slo.name], at_s, book.pairs[slo.name], more=more, note=note)

    def _service_now(self, book: Book, up: Mapping[str, bool | None], had: frozenset[str]) -> ServiceNow:
        engines = [self.options.engines[name] for slo in book.slos[:1] for name in engines_of(slo, self.options)]
        at_s = book.end_s or 0.0
        long = {}
        for name, lengths in LONG_WINDOWS_S.items():
            counted = window_events(book.beside, at_s, lengths).get(("", name), {})
            long[name] = {length: counted.get(length) for length in lengths if book.knows(length)}
        minutes = book.recent if book.recent is not None else pl.DataFrame(schema=MINUTES)
        return ServiceNow(
            book.service, at_s, up, minutes, lost=not up and book.service in had,
            late_tokens=any(e.tokens_step_at_finish for e in engines),
            zeros_from_start=all(e.zeros_from_start for e in engines), long=long,
        )  # fmt: skip

    # -- out --------------------------------------------------------------------------------------------------------

    def alerts(self) -> list[FiringAlert]:
        """Alerts that fire now, critical ones first."""
        return list(worst_first([one.alert(self.options.external_url) for one in self.state.firing]))

    def view(self, slo: Slo) -> SloView:
        """One SLO now."""
        status = self.statuses.get(slo.name)
        firing = tuple(one for one in self.alerts() if one.labels.get("slo") == slo.name)
        drifts: tuple[Drift, ...] = tuple(d for d in self.drifts.known.values() if d.slo == slo.name)
        note = self.why_none.get(slo.name) or (status.note if status is not None else "")
        if status is None and not note:
            note = self.problem or "its history is being read"
        severities = ((self.options.page,) if slo.pages else ()) + ((self.options.ticket,) if slo.tickets else ())
        return SloView(slo, status, severities, firing, drifts, note)

    def now(self) -> SloNow:
        """What the metrics page shows."""
        counted = [
            Counted(book.service, name, valid, good)
            for book in self.books.values()
            for name, (valid, good) in book.counted.items()
        ]
        return SloNow([self.view(slo) for slo in self.slos], list(self.drifts.known.values()), counted)

    @property
    def left_out(self) -> tuple[str, ...]:
        """What is not judged without Prometheus, and why."""
        return left_out(self.rules, self.slos)
