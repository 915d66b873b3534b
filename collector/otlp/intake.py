"""From a whole body to its answer: decode in one thread, keep in another, acknowledge what is kept.

Everything here is the same for HTTP and gRPC. Decoding and mapping are Python, so one thread of it is all that helps;
the store's thread may be shared with everything else that uses the store.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from collector.otlp.answers import Answer, Code, RefusedError, taken
from collector.otlp.commits import Commits
from collector.otlp.counts import Counts, OtlpCounts
from collector.otlp.decoding import Body, Decoded, decoded
from collector.otlp.kinds import LOGS, METRICS, TRACES, without_strangers
from collector.otlp.room import Place, Room
from collector.otlp.seams import Limits, Mapped, Seams
from goodwatch.core.clock import Clock
from goodwatch.core.errors import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: metrics that are wanted; everything else that comes is acknowledged and counted as ignored
WANTED_METRICS = "gen_ai."


@dataclass(frozen=True, slots=True)
class _Spans:
    """What the decoding thread found in a trace request."""

    received: Decoded
    mapped: Mapped
    beside: Callable[[], object] | None
    took_s: float


class Intake:
    """Takes bodies. ``thread`` is the store's own thread, None: one is started; ``onward`` gets what was acknowledged."""

    def __init__(
        self,
        seams: Seams,
        limits: Limits,
        clock: Clock,
        *,
        thread: Executor | None = None,
        onward: Callable[[Body], None] | None = None,
    ) -> None:
        self.limits = limits
        self.room = Room(limits, clock)
        self.counts = Counts()
        self._seams = seams
        self._onward = onward
        self._clock = clock
        self._decoding = 0
        self._decoder = ThreadPoolExecutor(1, "otlp-decode")
        self._own_threads = [self._decoder]
        if thread is None:
            thread = ThreadPoolExecutor(1, "otlp-keep")
            self._own_threads.append(thread)
        self._keeper = thread
        self._commits = Commits(
            seams.store, self._keeper, limits=limits, counts=self.counts, clock=clock, busy=self._is_decoding
        )  # fmt: skip

    def admit(self, authorization: str, size_bytes: int = 0) -> None:
        """Whether a request may be read at all. Raises ``RefusedError``: no right to send, or no room."""
        if self._seams.authorised is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer" or not self._seams.authorised(token.strip()):
                text = "send the header `Authorization: Bearer TOKEN` with a token of the role ingest"
                raise RefusedError(Code.UNAUTHENTICATED, text)
        self.room.check(size_bytes)

    async def take(self, body: Body, place: Place) -> Answer:
        """Keep what a body holds, then answer; never raises for what a sender or the store did."""
        work = asyncio.ensure_future(self._kept(body))
        with self.room.waiting(place):
            try:
                await asyncio.wait([work])
            finally:
                work.cancel()
        error = work.exception()
        answer = work.result() if error is None else self._answer(body, error)
        if answer.ok and self._onward is not None:
            self._onward(body)
        return answer

    def seen(self, body: Body, answer: Answer) -> None:
        """Count a request that was answered."""
        self.counts.requests[(body.kind.name, body.transport, body.media, answer.code.label)] += 1
        self.counts.bytes[body.transport] += len(body.data)

    def snapshot(self) -> OtlpCounts:
        """What was counted until now."""
        room = self.room
        return self.counts.at(held_bytes=room.held_bytes, held_bodies=room.held_bodies, oldest_s=room.oldest_s)

    async def close(self) -> None:
        """Take no more; wait for what is being kept."""
        self.room.open = False
        await self._commits.close()
        for own in self._own_threads:
            await asyncio.to_thread(own.shutdown)

    def _is_decoding(self) -> bool:
        return self._decoding > 0

    def _answer(self, body: Body, error: BaseException | None) -> Answer:
        if isinstance(error, RefusedError):
            return error.answer
        if isinstance(error, StoreError):
            text = f"{error}; nothing of this request was kept, send it again"
            return Answer(Code.UNAVAILABLE, text, retry_after_s=self.limits.store_retry_after_s)
        log.error("request not taken", extra={"kind": body.kind.name, "bytes": len(body.data)}, exc_info=error)
        return Answer(Code.FAULT, "goodwatch could not read this request because of a fault of its own; see its log")

    async def _kept(self, body: Body) -> Answer:
        received_s = self._clock.now_s()
        if body.kind is TRACES:
            return await self._spans_kept(body, received_s)
        return await self._others_kept(body, received_s)

    async def _spans_kept(self, body: Body, received_s: float) -> Answer:
        found = await self._decode(self._spans, body, received_s)
        refused = Counter(found.received.refused) + Counter(found.mapped.refused)
        self.counts.decode_s += found.took_s
        self._check_ids(found, refused)
        if found.beside is not None:
            await self._keep(found.beside)
        if found.mapped.frame.height:
            await self._commits.keep(found.mapped.frame)
        self.counts.accepted_spans += found.mapped.spans + sum(found.received.refused.values())
        self.counts.left_out(TRACES, refused, found.received.omitted)
        self.counts.dropped.update(found.mapped.dropped)
        self.counts.oddities.update(found.mapped.oddities)
        return taken(refused, found.received.omitted)

    def _spans(self, body: Body, received_s: float) -> _Spans:
        """In the decoding thread."""
        begin_s = self._clock.monotonic_s()
        received = decoded(body, self.limits.body_bytes)
        mapped = self._seams.mapper.parts(received.request, received_s)
        look = self._seams.beside
        beside = look(received.request, received_s) if look is not None else None
        return _Spans(received, mapped, beside, self._clock.monotonic_s() - begin_s)

    def _check_ids(self, found: _Spans, refused: Mapping[str, int]) -> None:
        """Raises ``RefusedError`` when no span of many could be used: most likely it is not traces at all."""
        if not refused or sum(found.mapped.refused.values()) < found.mapped.spans:
            return
        self.counts.left_out(TRACES, refused, {})
        text = f"no span in it can be used ({taken(refused, {}).message}); are these logs or metrics, sent to the path of traces?"
        raise RefusedError(Code.BAD, text)

    async def _others_kept(self, body: Body, received_s: float) -> Answer:
        found = await self._decode(decoded, body, self.limits.body_bytes)
        take = self._seams.logs if body.kind is LOGS else self._seams.metrics
        if body.kind is METRICS:
            self.counts.ignored[METRICS.name] += without_strangers(found.request, WANTED_METRICS)
        count = body.kind.count(found.request)
        refused = Counter(found.refused)
        if take is None:
            self.counts.ignored[body.kind.name] += count
        elif count:
            refused += Counter(await self._keep(take, found.request, received_s))
        self.counts.left_out(body.kind, refused, found.omitted)
        return taken(refused, found.omitted)

    async def _decode(self, work: Callable[..., T], *arguments: Any) -> T:
        self._decoding += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoder, work, *arguments)
        finally:
            self._decoding -= 1
            self._commits.nudge()

    async def _keep(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._keeper, work, *arguments)
