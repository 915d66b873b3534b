"""The live state of every target: its reader, its counters' last values, and the steps of the last minutes."""

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from collector.capability import Capability, capability
from collector.exposition import Limits, PageTooLarge, Parser
from collector.pipeline import TargetReader, Understood
from collector.scrape import Fetched
from collector.targets import TargetSpec
from goodwatch.core.counter import Tracker
from goodwatch.core.engine import Engine
from goodwatch.core.model import Deployment, Scrape
from goodwatch.core.model import Limits as LatencyLimits
from goodwatch.signals.increments import step_rows
from goodwatch.signals.minutes import Minute

#: Reason of a scrape that emptied somebody else's statistics: it is not repeated.
DESTRUCTIVE: Final = "json_stats"
_DESTRUCTIVE_TEXT: Final = (
    "{url} answers with TensorRT-LLM's JSON statistics, and reading empties them for every other reader; goodwatch "
    "stopped reading. Use /prometheus/metrics, or set json_stats: true on this target if nobody else reads them"
)

#: Steps are read back from the store, and wait for it when it fails, for so long.
KEPT_S = 20 * 60
#: A body up to this size is compared with the last one on the event loop: 3 ms when every number on it changed.
_SHORT_BYTES: Final = 256 * 1024
#: Steps of folded minutes are held this long: short windows, and scrapes that come late, need them.
STEPS_S = 150


@dataclass(frozen=True, slots=True)
class Read:
    """What one answer said."""

    scrape: Scrape
    understood: Understood | None = None
    deployment: Deployment | None = None


@dataclass(slots=True)
class TargetState:
    """One target. Touched from the event loop only; ``read`` may run in a thread, for one page at a time."""

    spec: TargetSpec
    engines: Mapping[str, Engine]
    reader: TargetReader
    tracker: Tracker = field(default_factory=Tracker)
    steps: deque[tuple[float, list[dict[str, Any]]]] = field(default_factory=deque)  # (ts, rows), oldest first
    understood: Understood | None = None
    deployment: Deployment | None = None
    held: deque[tuple[float, list[dict[str, Any]]]] = field(default_factory=deque)  # rows of its devices, as they came
    last: Scrape | None = None
    restarts: int = 0  # of the engine, as seen by this process
    version_settled: bool = False  # the engine was asked for its version, or need not be
    unfolded: set[float] = field(default_factory=set)  # minutes with steps that the store does not have as minutes
    minutes: dict[float, Minute] = field(default_factory=dict)  # what the steps and held rows of each add up to

    @classmethod
    def of(cls, spec: TargetSpec, engines: Mapping[str, Engine]) -> "TargetState":
        """A target that was not scraped yet."""
        return cls(spec, engines, TargetReader(spec.target, engines, parser=_parser(spec)))

    def follow(self, spec: TargetSpec) -> None:
        """Go on with changed options of the same target."""
        if spec.options != self.spec.options:
            self.reader.parser = _parser(spec)
        self.spec = spec

    def read(self, fetched: Fetched) -> "Read":
        """Everything that one answer says, parsed and normalised. CPU-bound, for a thread; changes only the reader."""
        if not fetched.up:
            return Read(self._failed(fetched, fetched.reason, fetched.error))
        try:
            understood = self.reader.understand(fetched.body, fetched.content_type)
        except PageTooLarge as error:
            return Read(self._failed(fetched, "sample_limit", str(error)))
        return self._read(fetched, understood)

    def read_again(self, fetched: Fetched) -> "Read | None":
        """The same where it is short enough for the event loop: a page on which nothing but values changed.

        Most are, and a thread would cost more than the page. None when it takes longer: then ``read``.
        """
        if not fetched.up:
            return self.read(fetched)
        if len(fetched.body) > _SHORT_BYTES:
            return None
        try:
            understood = self.reader.understand_again(fetched.body, fetched.content_type)
        except PageTooLarge:
            return None
        return None if understood is None else self._read(fetched, understood)

    def _read(self, fetched: Fetched, understood: Understood) -> "Read":
        target = self.spec.target
        if understood.page.format == "json" and not self.spec.options.json_stats:
            return Read(self._failed(fetched, DESTRUCTIVE, _DESTRUCTIVE_TEXT.format(url=target.url)), understood)
        if understood.engine is None and not understood.page.samples:
            text = f"{target.url} answered, but not with metrics: {_first_problem(understood)}"
            return Read(self._failed(fetched, "not_metrics", text), understood)
        scrape = self.reader.scrape(understood, fetched.ts, fetched.duration_s, len(fetched.body))
        runs = target.kind == "engine"  # an exporter of accelerators serves no model
        return Read(scrape, understood, self.reader.deployment(understood, fetched.ts) if runs else None)

    def accept(self, read: "Read") -> None:
        """Make what was read the target's state. On the event loop."""
        self.understood = read.understood or self.understood
        self.deployment = read.deployment or self.deployment
        self.take(read.scrape)

    def take(self, scrape: Scrape) -> None:
        """Advance by one scrape, fresh or from the store."""
        step = self.tracker.advance(scrape)
        self.restarts += step.restarted
        engine_name = step.engine or (self.understood.engine.name if self.understood and self.understood.engine else "")
        rows = step_rows(step, self.tracker, self.engines.get(engine_name))
        self.steps.append((scrape.ts, rows))
        self.unfolded.add(minute_of(scrape.ts))
        self._add(scrape.ts, rows)
        self.last = scrape
        self._forget(scrape.ts)

    def hold(self, ts: float, rows: list[dict[str, Any]], *, fold: bool) -> None:
        """Take rows of devices that this target holds; ``fold`` when their minute is not in the store yet."""
        if rows:
            self.held.append((ts, rows))
            self._add(ts, rows)
        if rows and fold:
            self.unfolded.add(minute_of(ts))

    def device_rows(self, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """Rows of its devices in ``(start_s, end_s]``; they have instants of their own."""
        return [row for ts, rows in self.held if start_s < ts <= end_s for row in rows]

    def _add(self, ts: float, rows: list[dict[str, Any]]) -> None:
        self.minutes.setdefault(minute_of(ts), Minute()).add(rows)

    def _forget(self, now_s: float) -> None:
        """Let go of steps that are folded and behind every short window; unfolded ones stay a while longer."""
        for steps in (self.steps, self.held):
            while steps:
                ts = steps[0][0]
                folded = minute_of(ts) not in self.unfolded and ts < now_s - STEPS_S
                if not folded and ts >= now_s - KEPT_S:
                    break
                steps.popleft()
        for minute in [*self.minutes]:
            kept_s = KEPT_S if minute in self.unfolded else STEPS_S
            if minute + 60 <= now_s - kept_s:
                del self.minutes[minute]

    def last_rows(self, count: int) -> list[dict[str, Any]]:
        """Rows of the last ``count`` steps."""
        skip = max(0, len(self.steps) - count)
        return [row for _, rows in islice(self.steps, skip, None) for row in rows]

    def _failed(self, fetched: Fetched, reason: str, error: str) -> Scrape:
        target = self.spec.target
        return Scrape(
            fetched.ts, target.name, target.service, up=False, duration_s=fetched.duration_s, error=error, reason=reason,
            body_bytes=len(fetched.body),
        )  # fmt: skip

    def rows(self, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """Rows of the steps in ``(start_s, end_s]``."""
        return [row for ts, rows in self.steps if start_s < ts <= end_s for row in rows]

    def minute_rows(self, minutes: Set[float]) -> list[dict[str, Any]]:
        """Rows of these minutes, added up: a minute is folded whole, also when a late scrape adds to it."""
        return [row for minute in sorted(minutes & self.minutes.keys()) for row in self.minutes[minute].rows()]

    def before(self, start_s: float) -> list[dict[str, Any]]:
        """Rows of the last good step at or before ``start_s``: the gauges at the window's start."""
        found: list[dict[str, Any]] = []
        for ts, rows in self.steps:
            if ts <= start_s and len(rows) > 1:
                found = rows
        return found

    def report(self, limits: LatencyLimits, now_s: float) -> Capability | None:
        """The capability report of the last page that was read; None before the first."""
        return None if self.understood is None else capability(self.understood, limits, now_s=now_s)


def minute_of(ts: float) -> float:
    """Start of the minute that holds an instant."""
    return ts // 60 * 60


def _parser(spec: TargetSpec) -> Parser:
    options = spec.options
    return Parser(Limits(body_bytes=options.body_limit_bytes, samples=options.sample_limit, labels=options.label_limit))


def _first_problem(understood: Understood) -> str:
    problems = understood.page.problems
    return problems[0].text if problems else "the page is empty"
