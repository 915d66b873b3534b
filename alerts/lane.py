"""One sink on its way through time: what it was told, what is due, and how it fares. Used by ``alerts.dispatch``."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from alerts.grouping import (
    Cause,
    Group,
    Level,
    Message,
    Pace,
    Told,
    after,
    due,
    group_labels,
    grouped,
    in_order,
    key_of,
    level_of,
    shown,
    told_of,
)
from alerts.sinks._port import BusyError, Sink
from alerts.values import FiringAlert
from goodwatch.core.errors import ConfigError, StoreError, TransientError
from goodwatch.core.ports import RecordStore

log = logging.getLogger(__name__)

NOTIFICATION: Final = "notification"
#: of a sink that is away: 5 s, doubling to 5 minutes; of one that says no: nothing changes soon
_FIRST_WAIT_S, _LONGEST_WAIT_S, _REFUSED_WAIT_S = 5.0, 300.0, 900.0
_MINUTE_S: Final = 60.0

Jitter = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Route:
    """Where some alerts go: those of these levels and services (empty: all), at most so many messages a minute.

    ``deadline_s`` ends a delivery that the sink itself did not end.
    """

    name: str
    kind: str
    sink: Sink
    pace: Pace = field(default_factory=Pace)
    levels: frozenset[Level] = frozenset({"page", "ticket"})
    services: frozenset[str] = frozenset()
    per_minute: int = 20
    deadline_s: float = 30.0

    def takes(self, alert: FiringAlert) -> bool:
        """Whether an alert goes here."""
        fits = not self.services or alert.labels.get("service", "") in self.services
        return fits and level_of(alert.severity) in self.levels


@dataclass(frozen=True, slots=True)
class SinkState:
    """One sink now. ``sent`` messages by cause, ``failed`` tries and ``dropped`` alerts by reason since the start."""

    name: str
    kind: str
    sent: Mapping[str, int]
    failed: Mapping[str, int]
    dropped: Mapping[str, int]
    waiting: int
    problem: str
    failing_since_s: float | None
    last_sent_s: float | None


@dataclass(slots=True)
class Situation:
    """What was told to the dispatcher: what fires, and what ended that a sink may still have to hear of."""

    firing: dict[str, FiringAlert] = field(default_factory=dict)
    ended: dict[str, FiringAlert] = field(default_factory=dict)
    inhibited: Mapping[str, str] = field(default_factory=dict)  # by which alert
    known: bool = False  # nothing is judged before the first evaluation

    @property
    def alerts(self) -> list[FiringAlert]:
        """All of them."""
        return [*self.firing.values(), *self.ended.values()]


class Lane:
    """One sink: what it was told, and how it fares."""

    def __init__(self, route: Route, records: RecordStore, external_url: str, jitter: Jitter) -> None:
        self._route = route
        self._records = records
        self._external_url = external_url
        self._jitter = jitter
        self._told: dict[str, Told] = {}
        self._sent: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._recent: deque[float] = deque()
        self._retry_at_s = self._looked_s = 0.0
        self._refused_until_s: dict[str, float] = {}
        self._wait_s = _FIRST_WAIT_S
        self._problem = ""
        self._failing_since_s: float | None = None
        self._last_sent_s: float | None = None
        self._unkept: set[str] = set()
        self._unkept_problem = ""

    @property
    def name(self) -> str:
        """Of the sink."""
        return self._route.name

    @property
    def steady(self) -> bool:
        """Whether the sink is told everything again and again."""
        return self._route.pace.steady

    @property
    def believes(self) -> bool:
        """Whether the sink believes that something fires."""
        return any(told.firing for told in self._told.values())

    def believed(self) -> Set[str]:
        """Fingerprints that the sink believes to fire."""
        return {name for told in self._told.values() for name in told.firing}

    async def recover(self, now_s: float) -> None:
        """Read what the sink was told before the last stop.

        Groups are made anew, as the configuration may group otherwise now. What was not repeated for long was told by
        a sink that is long gone: nobody waits for its end.
        """
        pace = self._route.pace
        try:
            records = await asyncio.to_thread(self._records.latest, NOTIFICATION)
        except StoreError as error:
            log.error("what was told before is not known; it is told again", extra={"problem": str(error)})
            return
        for record in records:
            if record.body.get("sink") != self.name:
                continue
            try:
                key, told = str(record.body["group"]), told_of(record.body)
            except (KeyError, TypeError, ValueError, AttributeError):
                log.error("a record of what was told cannot be read", extra={"id": record.id})
                continue
            # What a steady receiver is told again is not kept each time: its records are as old as its alerts.
            if self.steady or told.at_s >= now_s - 2 * max(pace.repeat_page_s, pace.repeat_ticket_s):
                self._take_over(key, told)

    def _take_over(self, key: str, told: Told) -> None:
        for alert in told.firing.values():
            if not self._route.takes(alert):
                continue
            now_in = key_of(group_labels(alert, self._route.pace))
            held = self._told.get(now_in, Told(told.at_s))
            self._told[now_in] = Told(max(held.at_s, told.at_s), {**held.firing, alert.fingerprint: alert})
            if now_in != key:
                self._unkept.add(now_in)
        if told.firing and key not in self._told:
            self._told[key] = Told(told.at_s)
            self._unkept.add(key)

    def gone(self, alert: FiringAlert) -> None:
        """An alert ended. Where nobody could be told in time it is counted."""
        late = self._failing_since_s is not None and self._route.takes(alert)
        if late and alert.fingerprint not in self.believed():
            self._dropped["over_before_told"] += 1

    async def step(self, situation: Situation, silent: set[str], now_s: float) -> None:
        """Deliver what is due, the most urgent first, until something fails."""
        self._set_back(now_s)
        if now_s < self._retry_at_s:
            return
        self._refused_until_s = {key: at_s for key, at_s in self._refused_until_s.items() if at_s > now_s}
        for message, told in self._due(situation, silent, now_s):
            if not self._room(now_s):
                return
            if not await self._deliver(message, now_s):
                if now_s < self._retry_at_s:
                    return
                continue
            before, self._told[message.key] = self._told.get(message.key), told
            if not self.steady or before is None or set(before.firing) != set(told.firing):
                self._unkept.add(message.key)
            await self._keep(now_s)
        await self._keep(now_s)

    def _set_back(self, now_s: float) -> None:
        """A clock that was set back would hold up everything until it is where it was."""
        if now_s < self._looked_s - _MINUTE_S:
            self._retry_at_s, self._refused_until_s = 0.0, {}
            self._recent.clear()
        self._looked_s = now_s

    def _due(self, situation: Situation, silent: set[str], now_s: float) -> list[tuple[Message, Told]]:
        route, found = self._route, {}
        for key, group in self._groups(situation, silent).items():
            told = self._told.get(key)
            one = due(group, told, route.pace, now_s)
            if one is not None and key not in self._refused_until_s:
                found[key] = (self._message(key, group, one, now_s), after(group, told, now_s))
        return [found[one.key] for one in in_order(message for message, _ in found.values())]

    def _groups(self, situation: Situation, silent: set[str]) -> dict[str, Group]:
        pace = self._route.pace
        groups = grouped((one for one in situation.alerts if self._route.takes(one)), silent, pace)
        for key, told in self._told.items():
            if told.firing and key not in groups:  # all of it is gone without a word
                groups[key] = Group(group_labels(next(iter(told.firing.values())), pace))
        return groups

    def _message(self, key: str, group: Group, one: tuple[Cause, tuple[FiringAlert, ...]], now_s: float) -> Message:
        firing = shown(group, self._told.get(key), self._route.pace)
        return Message(self.name, key, group.labels, firing, one[1], now_s, one[0], self._external_url)

    def _room(self, now_s: float) -> bool:
        """Whether another message fits into this minute."""
        while self._recent and self._recent[0] <= now_s - _MINUTE_S:
            self._recent.popleft()
        return len(self._recent) < self._route.per_minute

    async def _deliver(self, message: Message, now_s: float) -> bool:
        self._recent.append(now_s)
        try:
            async with asyncio.timeout(self._route.deadline_s):
                await self._route.sink.deliver(message)
        except BusyError as error:
            self.failed("busy", str(error), now_s, after_s=error.after_s)
        except TransientError as error:
            self.failed("away", str(error), now_s)
        except TimeoutError:
            self.failed("timeout", f"no answer within {self._route.deadline_s:g} s", now_s)
        except ConfigError as error:
            self._refused_until_s[message.key] = now_s + self._jitter(0.8, 1.0) * _REFUSED_WAIT_S
            self._note("refused", str(error), now_s)
        else:
            self._worked(message, now_s)
            return True
        return False

    def _worked(self, message: Message, now_s: float) -> None:
        if self._problem:
            log.info("a sink works again", extra={"sink": self.name})
        self._sent[message.cause] += 1
        self._last_sent_s, self._failing_since_s, self._problem = now_s, None, ""
        self._wait_s = _FIRST_WAIT_S

    def failed(self, reason: str, problem: str, now_s: float, *, after_s: float | None = None) -> None:
        """Wait before the next try: as long as the receiver asks, else longer each time, a little by chance."""
        pause_s = self._wait_s * self._jitter(0.5, 1.0) if after_s is None else after_s
        self._retry_at_s = now_s + pause_s
        self._wait_s = min(_LONGEST_WAIT_S, self._wait_s * 2)
        self._note(reason, problem, now_s)

    def _note(self, reason: str, problem: str, now_s: float) -> None:
        self._failed[reason] += 1
        if problem != self._problem:
            log.error("a sink does not take alerts", extra={"sink": self.name, "problem": problem})
        self._problem = problem
        self._failing_since_s = now_s if self._failing_since_s is None else self._failing_since_s

    async def _keep(self, now_s: float) -> None:
        """Commit what the sink was told; what cannot be kept now is tried again with the next message."""
        for key in sorted(self._unkept):
            body = {"sink": self.name, "group": key, **self._told[key].body()}
            try:
                await asyncio.to_thread(self._records.put, NOTIFICATION, f"{self.name} {key}", now_s, body)
            except StoreError as error:
                if not self._unkept_problem:
                    log.error("what was told cannot be kept; a restart would repeat it", extra={"problem": str(error)})
                self._unkept_problem = str(error)
                return
            self._unkept_problem = ""
            self._unkept.discard(key)
            if not self._told[key].firing:
                del self._told[key]

    async def close(self) -> None:
        """Let go of the sink."""
        await self._route.sink.close()

    def state(self, situation: Situation, silent: set[str], now_s: float) -> SinkState:
        """How it fares."""
        waiting = len(self._due(situation, silent, now_s)) if situation.known else 0
        return SinkState(
            self.name, self._route.kind, dict(self._sent), dict(self._failed), dict(self._dropped), waiting,
            self._problem, self._failing_since_s, self._last_sent_s,
        )  # fmt: skip
