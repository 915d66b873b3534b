"""A dispatcher on a clock that a test moves, with a sink that keeps what it gets."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alerts.dispatch import Dispatcher
from alerts.grouping import Message, Pace
from alerts.lane import Route
from alerts.silences import Quiet
from alerts.values import FiringAlert, fingerprint
from collector.stores.sqlite_records import SqliteRecords
from goodwatch.core.errors import GoodwatchError

#: 2026-03-04 03:12:00 UTC
START_S = 1_772_593_920.0
PAGE, TICKET = "LlmErrorBudgetBurnFast", "LlmErrorBudgetBurnSlow"


@dataclass(slots=True)
class Clock:
    """A clock that stands until it is moved."""

    at_s: float = START_S

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


def alert(
    name: str = PAGE, service: str = "chat", *, at_s: float = START_S, severity: str = "", **labels: str
) -> FiringAlert:
    """An alert as evaluation hands it over: pages are critical, the others warnings."""
    found = severity or ("critical" if name in (PAGE, "LlmServiceDown") else "warning")
    named = {"severity": found, **({"service": service} if service else {}), **labels}
    annotations = {
        "summary": f"{service} burns its error budget 16x too fast: 23.4% left.",
        "runbook_url": f"http://gw/docs/runbooks/{name}",
        "dashboard_url": f"http://gw/services/{service}",
        "triage_url": f"http://gw/triage?service={service}",
    }
    return FiringAlert(name, named, annotations, at_s, None, fingerprint(name, named), found, "http://gw/slos")


@dataclass(slots=True)
class Book:
    """A sink that keeps messages, and fails as long as ``error`` says so, or hangs."""

    told: list[Message] = field(default_factory=list)
    error: GoodwatchError | ZeroDivisionError | None = None
    hangs: bool = False
    tries: int = 0
    closed: bool = False

    async def deliver(self, message: Message) -> None:
        self.tries += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.told.append(message)

    async def close(self) -> None:
        self.closed = True

    def said(self) -> list[tuple[str, list[str], list[str]]]:
        """Cause, and names of what fires and of what ended, of each message."""
        return [(one.cause, [a.name for a in one.firing], [a.name for a in one.ended]) for one in self.told]


def full(low: float, high: float) -> float:
    """No chance in tests: always the longest wait."""
    return high


@dataclass(slots=True)
class World:
    """Dispatcher, clock, sink and the records on a disk."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    book: Book = field(default_factory=Book)
    pace: Pace = field(default_factory=Pace)
    quiet: Quiet = field(default_factory=Quiet)
    more: Sequence[Route] = ()
    route: dict[str, Any] = field(default_factory=dict)
    records: SqliteRecords = field(init=False)
    dispatcher: Dispatcher = field(init=False)

    def __post_init__(self) -> None:
        self.records = SqliteRecords(self.folder / "records.sqlite")
        self.start()

    def start(self) -> None:
        """A new process on the same records, before it has read them."""
        own = Route("book", "book", self.book, self.pace, **self.route)
        self.dispatcher = Dispatcher(
            [own, *self.more], self.records, self.clock, external_url="http://gw", quiet=self.quiet, jitter=full
        )

    async def restart(self) -> None:
        """End the process as a crash would, and start it again."""
        self.start()
        await self.dispatcher.recover()

    async def at(self, seconds: float, *firing: FiringAlert) -> None:
        """An evaluation so long after the start, with all that fires then."""
        self.clock.at_s = START_S + seconds
        self.dispatcher.tell(firing, self.clock.at_s)
        await self.dispatcher.step()

    async def each(self, step_s: float, start_s: float, end_s: float, *firing: FiringAlert) -> None:
        """The same evaluation at each step of ``[start_s, end_s)``."""
        at_s = start_s
        while at_s < end_s:
            await self.at(at_s, *firing)
            at_s += step_s

    def close(self) -> None:
        self.records.close()
