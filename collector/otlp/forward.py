"""One more place that gets everything: bodies go on as they came, from a queue of their own that never holds up intake.

What cannot be delivered is counted: the queue was full, the other side said no, or it was away for too long. The queue
is in memory and ends with the process. Source of what is retried: OTLP specification 1.11, "OTLP/HTTP Throttling".
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp

from collector.otlp.decoding import Body

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
#: the Collector's exporter: 5 s, growing by half to 30 s, given up after 5 minutes
_FIRST_WAIT_S, _LONGEST_WAIT_S, _GROWTH, _GIVE_UP_S = 5.0, 30.0, 1.5, 300.0
#: what is read of an answer; it is not looked at
_ANSWER_BYTES: Final = 64 * 1024

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ForwardTo:
    """Where to: an OTLP/HTTP endpoint without the path of the kind. ``headers`` are added and may hold secrets."""

    endpoint: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_s: float = 10.0
    queue_bytes: int = 64 * 1024**2
    senders: int = 4


@dataclass(frozen=True, slots=True)
class ForwardCounts:
    """``sent`` bodies, ``retries``, ``lost`` bodies by reason (queue_full, refused_NNN, away, stopped), and what waits."""

    sent: int
    retries: int
    lost: Mapping[str, int]
    queued_bodies: int
    queued_bytes: int


class Forward:
    """The queue and its senders. An async context manager; at the end what waits is counted as lost."""

    def __init__(self, to: ForwardTo, *, sleep: Sleep = asyncio.sleep) -> None:
        self._to = to
        self._sleep = sleep
        self._queue: deque[Body] = deque()
        self._bytes = 0
        self._more = asyncio.Semaphore(0)
        self._sent = self._retries = 0
        self._lost: Counter[str] = Counter()
        self._session: aiohttp.ClientSession | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._to.timeout_s)
        self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        self._tasks = [asyncio.create_task(self._send_all(self._session)) for _ in range(self._to.senders)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._lost["stopped"] += len(self._queue)
        self._queue.clear()
        self._bytes = 0
        if self._session is not None:
            await self._session.close()

    @property
    def counts(self) -> ForwardCounts:
        """What happened until now."""
        return ForwardCounts(self._sent, self._retries, dict(self._lost), len(self._queue), self._bytes)

    def offer(self, body: Body) -> None:
        """Queue a body; count it as lost when there is no room. Never waits."""
        if self._bytes + len(body.data) > self._to.queue_bytes:
            self._lost["queue_full"] += 1
            return
        self._queue.append(body)
        self._bytes += len(body.data)
        self._more.release()

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        while True:
            await self._more.acquire()
            body = self._queue.popleft()
            try:
                await self._deliver(session, body)
            except asyncio.CancelledError:
                self._lost["stopped"] += 1
                raise
            finally:
                self._bytes -= len(body.data)

    async def _deliver(self, session: aiohttp.ClientSession, body: Body) -> None:
        """Send until it is taken, refused for good, or too old."""
        waited_s, wait_s = 0.0, _FIRST_WAIT_S
        while True:
            status, asked_s = await self._post(session, body)
            if 200 <= status < 300:
                self._sent += 1
                return
            if status and status not in _RETRYABLE:
                self._lost[f"refused_{status}"] += 1
                return
            pause_s = asked_s if asked_s is not None else wait_s * random.uniform(0.5, 1.0)  # noqa: S311
            if waited_s + pause_s > _GIVE_UP_S:
                self._lost["away"] += 1
                return
            self._retries += 1
            await self._sleep(pause_s)
            waited_s += pause_s
            wait_s = min(_LONGEST_WAIT_S, wait_s * _GROWTH)

    async def _post(self, session: aiohttp.ClientSession, body: Body) -> tuple[int, float | None]:
        """HTTP status, 0 when nobody answered; and how long the other side asks to wait."""
        headers = {"Content-Type": body.media, **dict(self._to.headers)}
        if body.encoding:
            headers["Content-Encoding"] = body.encoding
        url = self._to.endpoint.rstrip("/") + body.kind.path
        try:
            async with session.post(url, data=body.data, headers=headers, allow_redirects=False) as response:
                await response.content.read(_ANSWER_BYTES)
                return response.status, _seconds(response.headers.get("Retry-After", ""))
        except (aiohttp.ClientError, TimeoutError):
            return 0, None


def _seconds(text: str) -> float | None:
    """Seconds of a Retry-After header; None when it is a date or nothing."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
