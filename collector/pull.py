"""Targets read from a Prometheus, Thanos, Mimir or VictoriaMetrics instead of from the engines.

Each poll reads raw samples, never rates: the pages that were scraped are put together again, one for each target and
time, and go through the same engine tables as a page of our own. So engine differences stay in the tables, and restarts
are seen by the same counters.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from collector._pull_client import Asker, Client, open_http
from collector._pull_history import PrometheusHistory, Stretch
from collector._pull_options import Answer, PullError, PullOptions, PullRefusedError
from collector._pull_pages import Before, TargetPages, pages_of, parsed
from collector._pull_query import matchers, raw_query
from collector._pull_targets import Pulled, TargetFactory, failed, interval_of, notes_of
from collector.pipeline import TargetReader
from goodwatch.core.clock import Clock
from goodwatch.core.engine import Engine
from goodwatch.core.model import Target
from goodwatch.core.page import Problem

__all__ = [
    "Answer", "Asker", "Client", "Poll", "PrometheusHistory", "PrometheusSource", "PullError", "PullOptions",
    "PullRefusedError", "Pulled", "Stretch", "TargetFactory", "matchers", "open_http",
]  # fmt: skip

#: a target is stale after so many of its own scrape intervals without a sample
_STALE_INTERVALS: Final = 4
#: a poll asks twice; what still fails is told, and the next poll is the next try
_ATTEMPTS: Final = 2


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll brought, in order of time for each target; ``error`` is "" when the server answered."""

    readings: tuple[Pulled, ...]
    targets: tuple[Target, ...]  # all that are known now
    error: str = ""
    reason: str = ""
    warnings: tuple[str, ...] = ()  # the server's own words about a partial answer


@dataclass(slots=True)
class _Known:
    """One target between polls."""

    target: Target
    reader: TargetReader
    seen_s: float  # when Prometheus last had anything of it
    last_s: float = 0.0  # newest time that was handed on
    interval_s: float | None = None
    replica: str = ""
    ambiguous: str = ""


@dataclass(slots=True, eq=False)
class PrometheusSource:
    """The targets of one Prometheus, polled. ``poll`` never raises for what can go wrong outside."""

    factory: TargetFactory
    client: Client
    clock: Clock
    _known: dict[tuple[str, ...], _Known] = field(default_factory=dict)
    _targets: tuple[Target, ...] = ()  # of _known, which a thread changes during a poll
    _read_until_s: float | None = None

    @classmethod
    def of(cls, options: PullOptions, engines: Mapping[str, Engine], clock: Clock) -> "PrometheusSource":
        """A source that was not asked yet. Raises ``ConfigError``: selector, engine names, missing package."""
        return cls(TargetFactory(options, engines), Client(options, clock), clock)

    @property
    def options(self) -> PullOptions:
        """How it is read."""
        return self.factory.options

    @property
    def targets(self) -> tuple[Target, ...]:
        """Targets that are known; until there are any, one that stands for the source itself."""
        return self._targets or (self._stand_in(),)

    async def poll(self) -> Poll:
        """Read what was stored since the last poll."""
        now_s = self.clock.now_s()
        at_s = now_s - self.options.settle_s
        query = raw_query(self.factory.names, self.factory.inner, self._span_s(at_s))
        try:
            answer = await self.client.ask(query, at_s, attempts=_ATTEMPTS)
            readings = await asyncio.to_thread(self._digest, answer, at_s)
        except (PullError, PullRefusedError) as error:
            reason = f"prometheus_{error.reason}"
            silent = [
                Pulled(t, failed(t, now_s, reason, f"{error}; nothing is known of {t.name} meanwhile"))
                for t in self.targets
            ]
            return Poll(tuple(silent), self.targets, str(error), error.reason)
        self._read_until_s = at_s
        if not answer.partial:
            self._forget(at_s)
        self._targets = tuple(known.target for known in self._known.values())
        if not self._known:
            text = (
                f"{self.options.place} answers, and none of its targets under {{{self.factory.inner}}} has the names of "
                "a known engine; check the selector"
            )
            stand_in = self._stand_in()
            return Poll(
                (Pulled(stand_in, failed(stand_in, now_s, "no_series", text)),), (stand_in,), warnings=answer.warnings
            )
        return Poll((*readings, *self._stale(now_s)), self.targets, warnings=answer.warnings)

    async def close(self) -> None:
        """Wait for a query in flight and let go of the connections."""
        await self.client.close()

    def _span_s(self, at_s: float) -> float:
        """How far back to read: since the last poll and a step more, and so much that several scrapes are seen."""
        options = self.options
        if self._read_until_s is None or any(k.ambiguous for k in self._known.values()):
            return options.lookback_s
        interval_s = max((k.interval_s or options.step_s for k in self._known.values()), default=options.step_s)
        wanted_s = max(at_s - self._read_until_s + options.step_s, 3 * interval_s)
        return min(options.lookback_s, wanted_s)

    def _digest(self, answer: Answer, at_s: float) -> list[Pulled]:
        """Readings that are newer than those handed on before. CPU-bound; nothing else touches the state meanwhile."""
        before = {key: Before(known.last_s, known.replica) for key, known in self._known.items()}
        found = pages_of(parsed(answer.series), self.options.group_by, self.factory.keep, before)
        notes = notes_of(answer, self.options.place)
        return [reading for one in found for reading in self._read(one, at_s, notes)]

    def _read(self, one: TargetPages, at_s: float, notes: Sequence[Problem]) -> list[Pulled]:
        known = self._known.get(one.key)
        if known is None:
            # Whatever answers, and is no engine: a selector by namespace also takes in exporters of other kinds.
            if not one.pages and not one.ambiguous and any(one.up.values()):
                return []
            target = self.factory.target(one.key, one.labels)
            known = self._known[one.key] = _Known(target, self.factory.reader(target), at_s)
        times = one.times
        known.seen_s = max(times, default=known.seen_s)
        known.replica, known.ambiguous = one.replica, one.ambiguous
        if one.ambiguous:
            return [Pulled(known.target, failed(known.target, at_s, "ambiguous", one.ambiguous))]
        known.interval_s = interval_of(times) or known.interval_s
        readings = [self.factory.pulled(known.reader, one, at, notes) for at in times if at > known.last_s]
        known.last_s = max(known.last_s, *times) if times else known.last_s
        return readings

    def _stale(self, now_s: float) -> list[Pulled]:
        """Targets of which nothing new came for several of their own intervals."""
        found: list[Pulled] = []
        for known in self._known.values():
            interval_s = max(known.interval_s or 0.0, self.options.step_s)
            if known.ambiguous or now_s - self.options.settle_s - known.seen_s <= _STALE_INTERVALS * interval_s:
                continue
            since = datetime.fromtimestamp(known.seen_s, UTC).strftime("%H:%M:%S")
            text = (
                f"{self.options.place} has no sample of {known.target.name} since {since} UTC; does it still scrape it?"
            )
            found.append(Pulled(known.target, failed(known.target, now_s, "stale", text)))
        return found

    def _forget(self, at_s: float) -> None:
        """Prometheus no longer scrapes a target of which the whole lookback holds nothing."""
        for key, known in list(self._known.items()):
            if known.seen_s < at_s - self.options.lookback_s:
                del self._known[key]

    def _stand_in(self) -> Target:
        return self.factory.target((f"prometheus {self.options.place}",), {})
