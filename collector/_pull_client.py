"""The waiting side of reading a Prometheus: one thread, one query at a time, paced, tried again."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from collector._pull_options import Answer, PullError, PullOptions
from goodwatch.core.clock import Clock
from goodwatch.core.errors import ConfigError

T = TypeVar("T")

_RETRY_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
#: what a server may ask for at most before its next query; a longer one is an outage
_MOST_WAIT_S: Final = 120.0
#: not mended by asking the same again
_NOT_AGAIN: Final = ("too_large",)

Sleep = Callable[[float], Awaitable[None]]


class Asker(Protocol):
    """What blocks: one query."""

    def query(self, query: str, at_s: float) -> Answer:
        """Raw samples. Raises ``PullError`` or ``PullRefusedError``."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...


def open_http(options: PullOptions) -> Asker:
    """A session of prometheus-api-client. Raises ``ConfigError`` when that is not installed."""
    try:
        from collector._pull_http import Http  # noqa: PLC0415  (an extra: only those who read from a Prometheus need it)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"prometheus: reading from {options.place} needs the package {error.name}, which is not installed; "
            "install it with: pip install 'goodwatch[prometheus]'"
        ) from error
    return Http(options)


class Client:
    """Asks one server from the event loop.

    A thread cannot be cancelled: when a caller was, the query that it left behind is waited for before the session
    is used again. It ends by itself, since every query has a time limit.
    """

    def __init__(self, options: PullOptions, clock: Clock, *, asker: Asker | None = None, sleep: Sleep = asyncio.sleep):
        self.options = options
        self._clock = clock
        self._sleep = sleep
        self._asker = asker or open_http(options)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prometheus")
        self._turn = asyncio.Lock()
        self._left: asyncio.Future[Answer] | None = None
        self._next_s = 0.0  # monotonic: when the rate limit allows the next query
        self.queries_total = 0

    async def ask(self, query: str, at_s: float, *, attempts: int = 1, give_up: Collection[str] = _NOT_AGAIN) -> Answer:
        """Raw samples at an instant (Unix seconds).

        Raises ``PullError`` after the last attempt, or at once for a reason in ``give_up``; ``PullRefusedError`` at
        once. A time that the server asks for is waited, up to two minutes.
        """
        for attempt in range(attempts):
            try:
                return await self._once(query, at_s)
            except PullError as error:
                last = attempt + 1 == attempts
                if last or error.reason in give_up or (error.retry_after_s or 0.0) > _MOST_WAIT_S:
                    raise
                pause_s = _RETRY_S[min(attempt, len(_RETRY_S) - 1)] * random.uniform(0.75, 1.25)  # noqa: S311
                await self._sleep(max(pause_s, error.retry_after_s or 0.0))
        raise AssertionError("attempts must be at least 1")

    async def close(self) -> None:
        """Wait for the query in flight, then let go of everything."""
        async with self._turn:
            await self._settled()
            self._asker.close()
            self._thread.shutdown(wait=False)

    async def _once(self, query: str, at_s: float) -> Answer:
        async with self._turn:
            await self._settled()
            await self._pace()
            self.queries_total += 1
            loop = asyncio.get_running_loop()
            self._left = loop.run_in_executor(self._thread, self._asker.query, query, at_s)
            # Whoever was cancelled does not look at it any more; its outcome is no news then.
            self._left.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await asyncio.shield(self._left)

    async def _settled(self) -> None:
        if self._left is not None and not self._left.done():
            await asyncio.wait([self._left])

    async def _pace(self) -> None:
        if self.options.rate_limit_per_s is None:
            return
        now_s = self._clock.monotonic_s()
        wait_s = self._next_s - now_s
        self._next_s = max(now_s, self._next_s) + 1.0 / self.options.rate_limit_per_s
        if wait_s > 0:
            await self._sleep(wait_s)
