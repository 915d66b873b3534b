"""Writes to the store from one place: batches scrapes, survives a store that is broken for a while, tells its lag.

Store calls block, so each runs in a thread, one after another. What cannot be written waits in memory up to a limit;
beyond it the oldest scrapes are dropped and counted, and health says so.

A commit costs as much as writing a dozen scrapes, so commits keep a distance while a fleet is scraped. A crash still
loses at most the last scrape of each target, and none that is older than that distance: counters run on, so what is
lost is one point of a line and no count.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import polars as pl

from goodwatch.app.telemetry import span
from goodwatch.core.clock import Clock
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Deployment, Scrape
from goodwatch.core.ports import SampleStore

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Half an hour of a hundred targets at 15 s; about a gigabyte at the worst.
MAX_PENDING: Final = 12_000
_BATCH: Final = 500
#: Commits are so far apart, unless a target already has a scrape that waits.
COMMIT_EVERY_S: Final = 1.0
#: A deployment that is recorded already is brought before the store again after so long: it may have expired there.
_RECORD_AGAIN_S: Final = 600.0
_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


class Keeper:
    """The only writer of a store. ``on_error`` is called once per failed write."""

    def __init__(
        self,
        store: SampleStore,
        clock: Clock,
        *,
        on_error: Callable[[], None] = lambda: None,
        every_s: float = COMMIT_EVERY_S,
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_error = on_error
        self._pending: deque[Scrape] = deque()
        self._deployments: dict[str, Deployment] = {}
        self._recorded: dict[str, Deployment] = {}  # by target, as the store has it
        self._in_flight: list[Scrape] = []
        self._every_s = every_s
        self._waiting: set[str] = set()  # targets with a scrape that waits
        self._crowded = asyncio.Event()  # what waits is not to wait any longer
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._lock = asyncio.Lock()
        self.message = ""  # why the last write failed, "" when it worked
        self.store_bytes = 0  # as last measured
        self.dropped_total = 0
        self.written_total = 0

    @property
    def lag_s(self) -> float:
        """Age of the oldest scrape that is not written yet."""
        oldest = self._in_flight or self._pending
        return max(0.0, self._clock.now_s() - oldest[0].ts) if oldest else 0.0

    @property
    def pending(self) -> int:
        """Scrapes that wait to be written."""
        return len(self._pending) + len(self._in_flight)

    def keep(self, scrape: Scrape, deployment: Deployment | None) -> None:
        """Queue a scrape, and what its target says it runs."""
        if len(self._pending) >= MAX_PENDING:
            self._pending.popleft()
            self.dropped_total += 1
        if scrape.target in self._waiting or len(self._pending) >= _BATCH:
            self._crowded.set()
        self._waiting.add(scrape.target)
        self._pending.append(scrape)
        if deployment is not None and self._is_recorded(deployment):
            self._deployments.pop(deployment.target, None)
        elif deployment is not None:
            self._deployments[deployment.target] = deployment
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled; a failing store is tried again with growing pauses."""
        failures, next_s = 0, -math.inf
        while True:
            await self._wake.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._crowded.wait(), max(0.0, next_s - self._clock.monotonic_s()))
            next_s = self._clock.monotonic_s() + self._every_s
            if await self._write():
                failures = 0
                continue
            pause = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
            failures += 1
            await asyncio.sleep(pause)

    async def flush(self) -> None:
        """Write what is pending, once; used on the way out."""
        while self.pending and await self._write():
            pass

    async def call(self, work: Callable[[], T]) -> T:
        """Run one blocking store call in a thread, after those before it. Raises ``StoreError`` as the store does."""
        async with self._lock:
            return await asyncio.to_thread(work)

    async def measure(self) -> None:
        """Look at the store's size and whether it can be read."""
        health = await self.call(self._store.health)
        self.store_bytes = health.bytes
        if not health.ok:
            self.message = health.message

    async def append_minutes(self, minutes: pl.DataFrame) -> bool:
        """Write folded minutes; False when the store could not."""
        return await self._guarded(lambda: self._store.append_minutes(minutes), "minutes")

    async def append_derived(self, derived: pl.DataFrame) -> bool:
        """Write published numbers; False when the store could not."""
        return await self._guarded(lambda: self._store.append_derived(derived), "derived numbers")

    async def _write(self) -> bool:
        """Write one batch; the scrapes of a batch in flight are out of the queue, so that nothing else takes them."""
        async with self._writing:
            self._wake.clear()
            batch = [self._pending.popleft() for _ in range(min(_BATCH, len(self._pending)))]
            self._in_flight = batch
            self._waiting = {scrape.target for scrape in self._pending}
            if not self._pending:
                self._crowded.clear()
            deployments, self._deployments = self._deployments, {}
            kept = not batch or await self._guarded(lambda: self._store.append(batch), "scrapes")
            self._in_flight = []
            if not kept:
                self._put_back(batch)
                self._deployments = {**deployments, **self._deployments}
                self._wake.set()
                return False
            self.written_total += len(batch)
            for deployment in deployments.values():
                if await self._guarded(partial(self._store.record_deployment, deployment), "a deployment"):
                    self._recorded[deployment.target] = deployment
            if deployments:  # targets that went away are let go
                newest_s = max(d.ts for d in deployments.values())
                self._recorded = {t: d for t, d in self._recorded.items() if newest_s - d.ts < _RECORD_AGAIN_S}
            if self._pending:
                self._wake.set()
            return True

    def _is_recorded(self, deployment: Deployment) -> bool:
        """Whether the store has it as the target's last one: asking it for each scrape would cost more than the scrape."""
        last = self._recorded.get(deployment.target)
        return (
            last is not None and deployment.ts - last.ts < _RECORD_AGAIN_S and replace(deployment, ts=last.ts) == last
        )

    def _put_back(self, batch: list[Scrape]) -> None:
        room = max(0, MAX_PENDING - len(self._pending))
        self.dropped_total += max(0, len(batch) - room)
        self._pending.extendleft(reversed(batch[len(batch) - min(room, len(batch)) :]))

    async def _guarded(self, work: Callable[[], object], what: str) -> bool:
        try:
            with span("store", what=what):
                await self.call(work)
        except StoreError as error:
            if not self.message:
                log.error("store failed", extra={"what": what, "problem": str(error)})
            self.message = str(error)
            self._on_error()
            return False
        if self.message:
            log.info("store works again")
        self.message = ""
        return True
