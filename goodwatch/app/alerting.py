"""Alerts in the running service: told to sinks, kept as history, silenced; and those that others post.

``tell`` takes every evaluation. While Prometheus pages nothing is sent from here: evaluations are history only.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from alerts.dispatch import AlertState, Dispatcher
from alerts.history import ALERT, About, Incident, Incidents, echo_id, incident_of
from alerts.incoming import Seen, read_webhook, service_of
from alerts.lane import Route, SinkState
from alerts.matchers import Matcher
from alerts.schedule import Maintenance
from alerts.silences import Quiet, Silence, silence_of
from alerts.sinks._port import SinkOptions
from alerts.values import FiringAlert
from goodwatch.app._alert_sections import Alerting as AlertingSection
from goodwatch.app._alert_sections import SinkEntry, sink_kinds
from goodwatch.app._files import read_secret
from goodwatch.core.clock import Clock
from goodwatch.core.errors import ConfigError, StoreError, TransientError
from goodwatch.core.ports import RecordStore
from goodwatch.core.record import Record

log = logging.getLogger(__name__)
T = TypeVar("T")

SILENCE: Final = "silence"
#: open incidents of others; more are no alerts, and each is held in memory
MOST_OPEN: Final = 20_000
MOST_SILENCES: Final = 1_000
#: the newest incidents that one question looks at
MOST_READ: Final = 20_000
#: how far back a start looks for incidents that are open
_OPEN_FOR_S: Final = 90 * 86_400.0
_KEEP_EVERY_S: Final = 1.0
_PROMETHEUS_PAGES: Final = ("Prometheus pages",)

Pager = Literal["goodwatch", "prometheus"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a webhook: alerts that were taken, and place and fault of those that were not."""

    taken: int
    refused: tuple[tuple[int, str], ...]
    truncated: int


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Which incidents are wanted; None is any. ``service`` "" asks for those that are about none that is known."""

    service: str | None = None
    state: str | None = None
    source: str | None = None
    since_s: float = 0.0
    limit: int = 100

    def takes(self, one: Incident) -> bool:
        """Whether an incident is wanted; one that fires is as new as now."""
        fits = self.service is None or (one.service or "") == self.service
        fits = fits and self.state in (None, one.state) and self.source in (None, one.source)
        return fits and (one.ends_at_s is None or one.ends_at_s >= self.since_s)


def routes_of(section: AlertingSection) -> list[Route]:
    """The sinks of the configuration, secrets opened; may block. Raises ``ConfigError``."""
    return [_route(entry, section, place) for place, entry in enumerate(section.sinks)]


def _route(entry: SinkEntry, section: AlertingSection, place: int) -> Route:
    kind = sink_kinds()[entry.type]
    at = f"alerting.sinks[{place}]"
    options = SinkOptions(
        entry.name, _opened(entry, "url", at), {k: v.get_secret_value() for k, v in entry.headers.items()},
        _opened(entry, "secret", at), entry.timeout_s,
    )  # fmt: skip
    try:
        sink = kind.make(options)
    except ConfigError as error:
        raise ConfigError(f"{at}: {error}") from error
    return Route(
        entry.name, entry.type, sink, kind.pace or section.pace, frozenset(entry.severities),
        frozenset(entry.services), entry.per_minute, deadline_s=entry.timeout_s * 2 + 1,
    )  # fmt: skip


def _opened(entry: SinkEntry, name: str, at: str) -> str:
    path, value = getattr(entry, f"{name}_file"), getattr(entry, name)
    if path is None:
        return "" if value is None else str(value.get_secret_value())
    try:
        return read_secret(path)
    except ValueError as error:
        raise ConfigError(f"{at}.{name}_file: {path} {error}") from error


class Alerting:
    """All parts of alerting; enter ``running``, then hand it evaluations with ``tell``."""

    def __init__(
        self,
        section: AlertingSection,
        records: RecordStore,
        clock: Clock,
        *,
        routes: Sequence[Route] = (),
        pager: Pager = "goodwatch",
        services: Callable[[], Collection[str]] = tuple,
        external_url: str = "",
    ) -> None:
        self.pager = pager
        self.webhooks: Counter[str] = Counter()  # alerts from outside by what became of them
        self.problem = ""  # of the store, "" when it works
        self._section = section
        self._records = records
        self._clock = clock
        self._services = services
        self._maintenance = tuple(one.maintenance for one in section.maintenance)
        self._silences: dict[str, Silence] = {}
        self._incidents = Incidents()
        self._unkept: dict[str, Incident] = {}  # of goodwatch's own, not committed yet
        self._writing = asyncio.Lock()
        self._recovered = False
        self._dispatcher = Dispatcher(
            routes, records, clock, external_url=external_url, quiet=Quiet((), self._maintenance)
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver and keep while entered."""
        await self.recover()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._dispatcher.running())
            keeper = asyncio.create_task(self._keep_on(), name="alert history")
            try:
                yield
            finally:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
                await self.keep()

    async def recover(self) -> None:
        """Read silences and open incidents. What cannot be read is logged; alerts go on."""
        since_s = self._clock.now_s() - _OPEN_FOR_S
        try:
            silences = await asyncio.to_thread(self._records.latest, SILENCE)
            incidents = await asyncio.to_thread(lambda: self._records.latest(ALERT, start_s=since_s))
        except StoreError as error:
            self._failed(error)
            return
        now_s = self._clock.now_s()
        found = [_read(silence_of, one) for one in silences]
        kept = [one for one in found if one is not None and one.state(now_s) != "expired"]
        self._use_silences([*kept, *self._silences.values()])
        held = [_read(incident_of, one) for one in reversed(incidents)]  # of one alert the newest counts
        lately = list(self._incidents.open.values())  # what came before this could be read
        self._incidents = Incidents.of(one for one in held if one is not None)
        self._incidents.kept(lately)
        self._recovered = True

    # -- goodwatch's own alerts -------------------------------------------------------------------------------------

    def tell(self, alerts: Sequence[FiringAlert], now_s: float) -> None:
        """One evaluation: all that fires now and what just ended. Never blocks."""
        if self.pager == "goodwatch":
            self._dispatcher.tell(alerts, now_s)
        quiet = {one.alert.fingerprint: one.quiet for one in self._dispatcher.alerts}
        otherwise = () if self.pager == "goodwatch" else _PROMETHEUS_PAGES
        versions: list[Incident] = []
        for alert in alerts:
            about = About(alert.labels.get("service") or None, "", quiet.get(alert.fingerprint, otherwise))
            versions += self._incidents.observed(Seen("goodwatch", alert, True, alert.resolved), about)
        versions += self._incidents.missing("goodwatch", (one.fingerprint for one in alerts), now_s)
        self._incidents.kept(versions)
        self._unkept.update((one.id, one) for one in versions)

    async def keep(self) -> None:
        """Commit what ``tell`` found; what cannot be kept stays and is tried again."""
        waiting = list(self._unkept.values())
        if not waiting:
            return
        try:
            await asyncio.to_thread(self._put, waiting)
        except StoreError as error:
            self._failed(error)
            return
        self.problem = ""
        for one in waiting:
            if self._unkept.get(one.id) is one:
                del self._unkept[one.id]

    async def _keep_on(self) -> None:
        while True:
            if not self._recovered:  # a silence that is not known pages people who asked not to be
                await self.recover()
            await self.keep()
            await asyncio.sleep(_KEEP_EVERY_S)

    # -- alerts of others -------------------------------------------------------------------------------------------

    async def receive(self, body: object) -> Taken:
        """Take the JSON of a webhook; on the disk when this returns.

        Raises ``ValueError`` with a sentence for what is no webhook, ``StoreError`` or ``TransientError`` when it
        cannot be kept now.
        """
        try:
            found = await asyncio.to_thread(read_webhook, body, self._clock.now_s())
        except ValueError:
            self.webhooks["unreadable"] += 1
            raise
        async with self._writing:
            if len(self._incidents.open) + len(found.seen) > MOST_OPEN:
                self.webhooks["too_many"] += len(found.seen)
                raise TransientError(f"{MOST_OPEN} alerts fire already; see why so many do, and send again later")
            await self._take_all(found.seen)
        self.webhooks["taken"] += len(found.seen)
        self.webhooks["refused"] += len(found.refused)
        return Taken(len(found.seen), found.refused, found.truncated)

    async def _take_all(self, seen: Sequence[Seen]) -> None:
        incoming, known = self._section.incoming, self._services()
        abouts = [
            About(*service_of(one.alert.labels, incoming.service_label, incoming.services, known)) for one in seen
        ]
        own = {one.id for one in self._incidents.open.values()} | self._unkept.keys()
        here, kept = Incidents(dict(self._incidents.open)), list[Incident]()
        try:
            await asyncio.to_thread(self._take, list(zip(seen, abouts, strict=True)), own, here, kept)
        finally:  # what is committed counts, whatever came after it
            self._incidents.kept(kept)

    def _take(
        self, seen: Sequence[tuple[Seen, About]], own: Collection[str], here: Incidents, kept: list[Incident]
    ) -> None:
        """Blocking: commit what told alerts change, one after the other: the next may be about the same."""
        for one, about in seen:
            echo = echo_id(one)
            if echo in own or self._records.get(ALERT, echo) is not None:
                continue  # goodwatch pushed it there itself
            for version in here.observed(one, about):
                self._put([version])
                here.kept([version])
                kept.append(version)

    def _put(self, versions: Sequence[Incident]) -> None:
        now_s = self._clock.now_s()
        for one in versions:
            held = self._records.get(ALERT, one.id)
            if held is None or dict(held.body) != one.body():
                self._records.put(ALERT, one.id, now_s, one.body())

    # -- questions --------------------------------------------------------------------------------------------------

    async def incidents(self, wanted: AlertFilter) -> list[Incident]:
        """Incidents, those that fire first, then the newest first. Raises ``StoreError``."""
        await self.keep()
        records = await asyncio.to_thread(lambda: self._records.latest(ALERT, start_s=wanted.since_s, limit=MOST_READ))
        held = {one.id: one for one in self._incidents.open.values()}
        for record in records:
            one = _read(incident_of, record)
            if one is not None and one.id not in held:
                held[one.id] = one
        found = [one for one in held.values() if wanted.takes(one)]
        found.sort(key=lambda one: (one.ends_at_s is not None, -one.changed_at_s, one.id))
        return found[: wanted.limit]

    def firing(self) -> tuple[AlertState, ...]:
        """Alerts of goodwatch's own that fire now, with why nobody is told and who was."""
        return self._dispatcher.alerts

    def sinks(self) -> tuple[SinkState, ...]:
        """How each sink fares."""
        return self._dispatcher.sinks

    def maintenance(self) -> tuple[tuple[Maintenance, tuple[float, float] | None], ...]:
        """Planned work, and the window (Unix seconds) in which it is now."""
        now_s = self._clock.now_s()
        return tuple((one, one.weekly.at(now_s)) for one in self._maintenance)

    # -- silences ---------------------------------------------------------------------------------------------------

    async def silences(self, *, expired: bool = False) -> list[Silence]:
        """Silences, the one that ends last first; with those that are over when asked. Raises ``StoreError``."""
        now_s = self._clock.now_s()
        found = [one for one in self._silences.values() if one.state(now_s) != "expired"]
        if expired:
            records = await asyncio.to_thread(lambda: self._records.latest(SILENCE, limit=MOST_SILENCES))
            read = (_read(silence_of, one) for one in records)
            found += [one for one in read if one is not None and one.state(now_s) == "expired"]
        return sorted(found, key=lambda one: (-one.ends_at_s, one.id))

    async def silence(
        self, matchers: tuple[Matcher, ...], starts_at_s: float, ends_at_s: float, *, author: str, comment: str
    ) -> Silence:
        """Begin a silence; it is on the disk and holds when this returns. Raises ``StoreError``, ``ConfigError``."""
        now_s = self._clock.now_s()
        live = [one for one in self._silences.values() if one.state(now_s) != "expired"]
        if len(live) >= MOST_SILENCES:
            raise ConfigError(f"there are {MOST_SILENCES} silences already; end some first")
        made = Silence(secrets.token_hex(8), matchers, starts_at_s, ends_at_s, author, comment, now_s)
        await asyncio.to_thread(self._records.put, SILENCE, made.id, now_s, made.body())
        self._use_silences([*self._silences.values(), made])
        return made

    async def end_silence(self, id: str) -> Silence | None:
        """End a silence now; None when there is none of that id. It stays in the history. Raises ``StoreError``."""
        now_s = self._clock.now_s()
        held = self._silences.get(id)
        if held is None or held.state(now_s) == "expired":
            return None
        over = held.ended(now_s)
        await asyncio.to_thread(self._records.put, SILENCE, id, now_s, over.body())
        self._use_silences([over if one.id == id else one for one in self._silences.values()])
        return over

    def _use_silences(self, silences: Sequence[Silence]) -> None:
        now_s = self._clock.now_s()
        self._silences = {one.id: one for one in silences if one.state(now_s) != "expired"}
        self._dispatcher.quiet = Quiet(tuple(self._silences.values()), self._maintenance)

    def _failed(self, error: StoreError) -> None:
        if not self.problem:
            log.error("alerts are not kept", extra={"problem": str(error)})
        self.problem = str(error)


def _read(read: Callable[[str, Mapping[str, Any]], T], record: Record) -> T | None:
    """What a record holds; None, and a line in the log, where that cannot be read."""
    try:
        return read(record.id, record.body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.error("a record cannot be read", extra={"id": record.id, "problem": f"{type(error).__name__}: {error}"})
        return None
