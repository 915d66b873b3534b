"""``goodwatch backfill``: minutes of the past from a Prometheus into the store, by the pipeline of the service.

Every stored scrape is read, and what comes out is per minute, as if goodwatch had scraped then. A minute that is there
already is replaced by the same, so a back-fill can be run again, and again after it broke off.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from collector.pull import Client, PrometheusHistory, Stretch, TargetFactory
from goodwatch.app import config, wiring
from goodwatch.app.config import Settings
from goodwatch.app.engines import known_engines
from goodwatch.app.fleet import minute_of
from goodwatch.app.pulling import source_options
from goodwatch.core.clock import Clock, SystemClock
from goodwatch.core.counter import Tracker
from goodwatch.core.duration import duration_s
from goodwatch.core.engine import Engine
from goodwatch.core.errors import ConfigError
from goodwatch.core.ports import SampleStore
from goodwatch.signals.increments import fold, rows_frame, step_rows

#: read ahead of the range, so that its first minute has a counter to count from
_LEAD_S: Final = 300.0
_AGO: Final = re.compile(r"-(\S*[a-z])")  # with a unit: -7 could be anything

Say = Callable[[str], None]


@dataclass(slots=True)
class Filled:
    """What became of one target: scrapes read, minutes written, and what was said about parts that are missing."""

    target: str
    service: str
    scrapes: int = 0
    failed: int = 0
    minutes: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Span:
    """Whole minutes ``[start_s, end_s)``, Unix seconds."""

    start_s: float
    end_s: float

    @classmethod
    def of(cls, begin: str, end: str, now_s: float) -> "Span":
        """The range that two texts name. Raises ``ConfigError``."""
        start_s, end_s = (
            minute_of(instant(text, now_s, option)) for text, option in ((begin, "--from"), (end, "--to"))
        )
        if start_s >= end_s:
            raise ConfigError(
                f"--from {begin} --to {end}: that is no range; --from must be a minute or more before --to"
            )
        return cls(start_s, min(end_s, minute_of(now_s)))


def instant(text: str, now_s: float, option: str) -> float:
    """Unix seconds of ``now``, ``-7d``, ``2026-01-31``, ``2026-01-31T08:00:00Z`` or a number. Raises ``ConfigError``.

    Examples
    --------
    >>> instant("-1h", 7200.0, "--from"), instant("1970-01-01T00:01:00Z", 0.0, "--to")
    (3600.0, 60.0)
    """
    try:
        if text == "now":
            return now_s
        if ago := _AGO.fullmatch(text):
            return now_s - duration_s(ago[1])
        if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
            return float(text)
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"{option} {text}: not a time; write for example -7d, now, 2026-01-31 or 2026-01-31T08:00:00Z"
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def run(
    file: Path, begin: str, end: str, *, every: str | None = None, environ: Mapping[str, str], say: Say
) -> list[Filled]:
    """Back-fill as the configuration file says. Raises ``ConfigError``, ``StoreError`` and ``TransientError``."""
    try:
        every_s = None if every is None else duration_s(every)
    except ValueError as error:
        raise ConfigError(f"--every {every} {error}") from error
    engines, clock = known_engines(), SystemClock()
    span = Span.of(begin, end, clock.now_s())
    settings = config.load(file, engines=engines, environ=environ)
    store = wiring.open_store(settings, clock)
    try:
        return asyncio.run(Backfill(engines, store, clock, say, every_s).fill(settings, span))
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class Backfill:
    """Reads the past of every configured source into a store; ``say`` is told of progress."""

    engines: Mapping[str, Engine]
    store: SampleStore
    clock: Clock
    say: Say
    every_s: float | None = None  # None: every stored scrape

    async def fill(self, settings: Settings, span: Span) -> list[Filled]:
        """One entry for each target.

        Raises ``ConfigError`` when there is no source or one refuses, ``TransientError`` when one does not answer for
        long, ``StoreError``; what was written until then stays.
        """
        sources = await asyncio.to_thread(source_options, settings)
        if not sources:
            raise ConfigError("prometheus: no entry; write one with url and selector, from which history is read")
        kept_from_s = minute_of(self.clock.now_s() - settings.retention.minutes_s) + 60.0
        if span.start_s < kept_from_s:
            self.say(f"minutes are kept since {_shown(kept_from_s)} (retention.minutes); nothing older is read")
            span = Span(min(kept_from_s, span.end_s), span.end_s)
        filled: list[Filled] = []
        for options in sources:
            client = Client(options, self.clock)
            try:
                filled += await self._source(PrometheusHistory(TargetFactory(options, self.engines), client), span)
            finally:
                await client.close()
        return filled

    async def _source(self, history: PrometheusHistory, span: Span) -> list[Filled]:
        begin_s, filled = span.start_s - _LEAD_S, []
        keys = await history.keys(begin_s, span.end_s)
        place = history.factory.options.place
        self.say(f"{place}: {len(keys)} targets from {_shown(span.start_s)} to {_shown(span.end_s)} UTC")
        for number, key in enumerate(keys, 1):
            filling = _Filling(self.engines, span)
            async for stretch in history.read(key, begin_s, span.end_s, every_s=self.every_s):
                await asyncio.to_thread(filling.take, stretch, self.store)
                done, share = filling.filled, (stretch.end_s - span.start_s) / (span.end_s - span.start_s)
                told = f"{max(0.0, share):.0%}, {done.scrapes} scrapes, {done.minutes} minutes"
                self.say(f"  {number}/{len(keys)} {done.target}: {told}")
            filled.append(filling.filled)
        return filled


class _Filling:
    """One target: its counters' last values, and rows of the minute that is not whole yet."""

    def __init__(self, engines: Mapping[str, Engine], span: Span) -> None:
        self._engines = engines
        self._span = span
        self._tracker = Tracker()
        self._engine = ""
        self._rows: list[dict[str, Any]] = []
        self.filled = Filled("", "")

    def take(self, stretch: Stretch, store: SampleStore) -> None:
        """Advance by a stretch and write the minutes that are whole now. Blocking."""
        filled, span = self.filled, self._span
        filled.target, filled.service = stretch.target.name, stretch.target.service
        for scrape in stretch.scrapes:
            step = self._tracker.advance(scrape)
            self._engine = step.engine or self._engine
            rows = step_rows(step, self._tracker, self._engines.get(self._engine))
            if span.start_s <= scrape.ts < span.end_s:
                self._rows += rows
                filled.scrapes += 1
                filled.failed += not scrape.up
        told = [*stretch.warnings, *([stretch.problem] if stretch.problem else [])]
        where = f"{_shown(stretch.start_s)} to {_shown(stretch.end_s)}"
        filled.notes += [f"{where}: {text}" for text in told]
        self._write(minute_of(stretch.end_s), store)

    def _write(self, until_s: float, store: SampleStore) -> None:
        whole = [row for row in self._rows if row["minute_s"] < until_s]
        if not whole:
            return
        minutes = fold(rows_frame(whole))
        store.append_minutes(minutes)
        self.filled.minutes += minutes["minute_s"].n_unique()
        self._rows = [row for row in self._rows if row["minute_s"] >= until_s]


def _shown(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")
