"""Group commit: rows of many requests go to the store in one transaction, and all of them learn how it went.

A request is acknowledged only when ``append_parts`` came back. Commits happen one at a time in one thread; what comes
while one is under way is the next group, so a slow disk makes larger groups and not a longer queue of small ones.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

import polars as pl

from collector.otlp.counts import Counts
from collector.otlp.seams import Limits
from goodwatch.core.clock import Clock
from goodwatch.core.ports import RequestStore

_Waiter = tuple[pl.DataFrame, "asyncio.Future[None]"]


class Commits:
    """The queue before the store. ``busy`` says whether more rows are about to come."""

    def __init__(
        self,
        store: RequestStore,
        thread: Executor,
        *,
        limits: Limits,
        counts: Counts,
        clock: Clock,
        busy: Callable[[], bool],
    ) -> None:
        self._store = store
        self._thread = thread
        self._limits = limits
        self._counts = counts
        self._clock = clock
        self._busy = busy
        self._group: list[_Waiter] = []
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def keep(self, frame: pl.DataFrame) -> None:
        """Return when the rows are on the disk. Raises what the store raised."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group.append((frame, done))
        self._more.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        await done

    def nudge(self) -> None:
        """Look again whether the group is worth a commit: a request was decoded and has no rows."""
        self._more.set()

    async def close(self) -> None:
        """Wait until everything that was given is kept."""
        if self._task is not None:
            await self._task

    async def _drain(self) -> None:
        while self._group:
            await self._gather()
            group, self._group = self._group, []
            await self._commit(group)

    async def _gather(self) -> None:
        """Wait a little while more rows are on their way."""
        until_s = self._clock.monotonic_s() + self._limits.linger_s
        while len(self._group) < self._limits.group_bodies and self._busy():
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._more.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._more.wait()
            except TimeoutError:
                return

    async def _commit(self, group: list[_Waiter]) -> None:
        frames = [frame for frame, _ in group]
        begin_s = self._clock.monotonic_s()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._store.append_parts, frames)
        await asyncio.wait([work])
        took_s = self._clock.monotonic_s() - begin_s
        error = work.exception()
        if error is None:
            rows = sum(frame.height for frame in frames)
            self._counts.commits += 1
            self._counts.commit_s += took_s
            self._counts.last_commit_s = took_s
            self._counts.rows += rows
            self._counts.repeated_rows += rows - work.result()
        for _, done in group:
            if done.done():  # its request was cancelled meanwhile
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
