"""Tells sinks of alerts: each at its own pace and in its own task, so that one that is away holds up nobody.

What each sink was told is kept as a record of kind ``notification`` as soon as the sink has it. After a restart it is
told only what changed. Between the sink's answer and the commit lie milliseconds: a crash just there tells once more,
with the same keys, rather than not at all.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from alerts.lane import Jitter, Lane, Route, SinkState, Situation
from alerts.silences import Quiet, inhibited
from alerts.values import FiringAlert
from goodwatch.core.clock import Clock
from goodwatch.core.ports import RecordStore

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
#: what a stop waits for a message that is on its way
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class AlertState:
    """One alert that fires now, and why nobody is told of it where that is so."""

    alert: FiringAlert
    quiet: tuple[str, ...]
    told: tuple[str, ...]


class Dispatcher:
    """Hand it every evaluation with ``tell``; ``running`` delivers. Nothing here blocks the event loop."""

    def __init__(
        self,
        routes: Sequence[Route],
        records: RecordStore,
        clock: Clock,
        *,
        external_url: str = "",
        quiet: Quiet | None = None,
        jitter: Jitter = random.uniform,
    ) -> None:
        self._clock = clock
        self._situation = Situation()
        self._lanes = [Lane(route, records, external_url, jitter) for route in routes]
        self.quiet = quiet or Quiet()

    def tell(self, alerts: Sequence[FiringAlert], now_s: float) -> None:
        """Take over what fires now, and what just ended. An alert that is missing is over since now."""
        before, now = self._situation, Situation(known=True)
        now.firing = {one.fingerprint: one for one in alerts if not one.resolved}
        now.inhibited = inhibited(now.firing.values())
        ended = {one.fingerprint: one for one in alerts if one.resolved}
        gone = {name: replace(one, ends_at_s=now_s) for name, one in before.firing.items() if name not in now.firing}
        for name, one in gone.items():
            if name not in before.inhibited and not self.quiet.reasons(one, now_s):
                for lane in self._lanes:
                    lane.gone(one)
        waited_for = {name for lane in self._lanes for name in lane.believed()} - now.firing.keys()
        over = {**before.ended, **gone, **ended}
        now.ended = {name: one for name, one in over.items() if name in waited_for}
        self._situation = now

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver while entered; at the end messages on their way get a moment."""
        await self.recover()
        stop = asyncio.Event()
        tasks = [asyncio.create_task(self._kept_up(lane, stop), name=f"sink {lane.name}") for lane in self._lanes]
        try:
            yield
        finally:
            stop.set()
            if tasks:
                _, late = await asyncio.wait(tasks, timeout=_PATIENCE_S)
                for task in late:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for lane in self._lanes:
                await lane.close()

    async def recover(self) -> None:
        """Read what was told before the last stop. A store that cannot be read is logged: told twice beats not told."""
        for lane in self._lanes:
            await lane.recover(self._clock.now_s())

    async def step(self) -> None:
        """One look at all sinks, each by itself; ``running`` does this each second."""
        await asyncio.gather(*(self._look(lane) for lane in self._lanes))

    @property
    def sinks(self) -> tuple[SinkState, ...]:
        """All sinks now, in the order of the configuration."""
        now_s = self._clock.now_s()
        return tuple(lane.state(self._situation, self._silent(lane, now_s), now_s) for lane in self._lanes)

    @property
    def alerts(self) -> tuple[AlertState, ...]:
        """What fires now, with why nobody is told and who was."""
        now_s = self._clock.now_s()
        firing, by = self._situation.firing, self._situation.inhibited
        believed = [(lane.name, lane.believed()) for lane in self._lanes]
        return tuple(
            AlertState(
                one,
                (*self.quiet.reasons(one, now_s), *([f"inhibited by {by[name]}"] if name in by else [])),
                tuple(sink for sink, names in believed if name in names),
            )
            for name, one in firing.items()
        )

    def _silent(self, lane: Lane, now_s: float) -> set[str]:
        firing = self._situation.firing
        silent = {name for name, one in firing.items() if self.quiet.reasons(one, now_s)}
        return silent if lane.steady else silent | self._situation.inhibited.keys()

    async def _look(self, lane: Lane) -> None:
        if self._situation.known and (self._situation.firing or lane.believes):
            now_s = self._clock.now_s()
            await lane.step(self._situation, self._silent(lane, now_s), now_s)

    async def _kept_up(self, lane: Lane, stop: asyncio.Event) -> None:
        """A lane for as long as goodwatch runs; a bug in a sink ends one try, not the sink."""
        while not stop.is_set():
            work = asyncio.create_task(self._looks(lane, stop))
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
                raise
            error = work.exception()
            if error is not None:
                log.error("a sink has a bug", extra={"sink": lane.name}, exc_info=error)
                lane.failed("bug", f"a bug: {type(error).__name__}; the log has the trace", self._clock.now_s())
                await _pause(stop)

    async def _looks(self, lane: Lane, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._look(lane)
            await _pause(stop)


async def _pause(stop: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), _TICK_S)
