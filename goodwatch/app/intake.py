"""Everything that traces need in the running service: the receiver, the store, the loops, and what pages ask."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import Metric

from collector.otlp.counts import OtlpCounts
from collector.otlp.receiver import OtlpReceiver
from collector.otlp.seams import Seams
from collector.spans.scores import scores_of_logs, span_scores
from exporters.prometheus import IntakeNow, intake_families
from exporters.quality import LOOK_BACK_S, QualitySeries, told_of
from exporters.requests import RequestSeries
from exporters.tenants import TenantSeries
from goodwatch.app import request_wiring as wiring
from goodwatch.app._otlp_sections import Otlp
from goodwatch.app.config import Settings
from goodwatch.app.rating import Rating
from goodwatch.app.request_reads import RequestReads
from goodwatch.app.request_view import IntakeView, Slice
from goodwatch.app.request_watch import RequestLoop, RequestTerms
from goodwatch.app.watch import Watch
from goodwatch.core.clock import Clock
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Number
from goodwatch.core.ports import RequestStore
from goodwatch.signals.heatmap import Ask, Heatmap, Measure

log = logging.getLogger(__name__)

#: periods that are about to be dropped are not read any more
_KEPT_LESS_S: Final = 3600.0
#: default range of the heatmap page, and so of its exported cells
MAP_S: Final = 3600.0
#: a score may say that it was given so long before it came; one about a request that ended earlier than that is kept
#: and not in the counters: a day of a fleet's requests is too much to look through every half minute
_SCORED_EARLIER_S: Final = 7_200.0
_JUDGED_LATER_S: Final = 7_200.0
_EXPORTED: Final[Mapping[str, Ask]] = {
    "ttft p99": Ask(Measure.LATENCY, 0.99, "engine_ttft_s"),
    "tpot p99": Ask(Measure.LATENCY, 0.99, "engine_tpot_s"),
    "e2e p99": Ask(Measure.LATENCY, 0.99, "engine_e2e_s"),
    "attainment": Ask(Measure.ATTAINMENT),
    "requests": Ask(Measure.REQUESTS),
}


class Intake:
    """Requests of the running service. Without an ``otlp`` section nothing listens, and what is kept can be read."""

    def __init__(self, settings: Settings, store: RequestStore, watch: Watch, clock: Clock, rating: Rating) -> None:
        self.store = store
        self.series = RequestSeries()
        self.tenants = TenantSeries()
        self.quality = QualitySeries()
        self._rules = settings.quality.rules
        self.loop = RequestLoop(store, clock, settled=self._settled, running=self._running)
        self.reads = RequestReads(self.loop, watch, settings.otlp is not None, self._told)
        self.rating = rating
        self._otlp = settings.otlp
        self._watch = watch
        self._clock = clock
        self._receiver: OtlpReceiver | None = None
        self._addresses: tuple[str, ...] = ()
        self.refused_scores: Counter[str] = Counter()
        self._good_costs: dict[str, Number] = {}
        watch.from_requests = self._numbers
        self._counting: set[asyncio.Task[None]] = set()
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Take the targets of a configuration; addresses and origins need a restart."""
        self.loop.terms = RequestTerms(
            settle_s=settings.otlp.settle_s if settings.otlp else 60.0,
            limits={s.name: wiring.limits_table_of(s) for s in settings.services},
            vantages={s.name: wiring.vantage_of(s) for s in settings.services},
            trace_url=(settings.otlp.trace_url or "") if settings.otlp else "",
            minutes_kept_s=settings.retention.rollup_minutes_s - _KEPT_LESS_S,
            hours_kept_s=settings.retention.rollup_hours_s - _KEPT_LESS_S,
            facts_kept_s=settings.retention.facts_s - _KEPT_LESS_S,
            rules=settings.quality.rules,
        )

    @asynccontextmanager
    async def listening(self, authorised: Callable[[str], bool] | None) -> AsyncIterator[None]:
        """Receive while entered; ``authorised`` says whether a token may send, None: none is asked for.

        Raises ``ConfigError`` when an address cannot be listened on.
        """
        await self.loop.recover()
        if self._otlp is None:
            yield
            return
        async with AsyncExitStack() as stack:
            self._receiver = await stack.enter_async_context(self._made(self._otlp, authorised, stack))
            self._addresses = tuple(_addresses(self._otlp, self._receiver))
            log.info("receiving traces", extra={"addresses": ", ".join(self._addresses)})
            yield
        self._receiver = None

    def _made(self, otlp: Otlp, authorised: Callable[[str], bool] | None, stack: AsyncExitStack) -> OtlpReceiver:
        thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="otlp-store"))
        seams = Seams(
            wiring.mapper_of(otlp), self.store, logs=self._logs, beside=self._beside,
            authorised=authorised,
        )  # fmt: skip
        return OtlpReceiver(
            seams, wiring.listening_of(otlp), limits=wiring.intake_limits_of(otlp), clock=self._clock,
            forward=wiring.forward_of(otlp), thread=thread,
        )  # fmt: skip

    # -- what comes beside spans -------------------------------------------------------------

    def _logs(self, request: ExportLogsServiceRequest, received_s: float) -> Mapping[str, int]:
        taken = scores_of_logs(request, received_s)
        if not taken.frame.is_empty():
            self.store.append_scores(taken.frame)
        return taken.refused

    def _beside(self, request: ExportTraceServiceRequest, received_s: float) -> Callable[[], object] | None:
        """Scores that spans carry, and what built-in checks say of their texts; in the thread that decodes."""
        taken = span_scores(request, received_s)
        self.refused_scores.update(taken.refused)
        given = None if taken.frame.is_empty() else partial(self.store.append_scores, taken.frame)
        works = [work for work in (given, self.rating.beside(request, received_s)) if work is not None]
        return partial(_all_done, works) if works else None

    # -- loops ------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Settle what waits; several rounds when there is much."""
        for _ in range(20):
            if not await self.loop.settle():
                return

    async def roll(self) -> None:
        """Roll up what changed, and renew the exported cells."""
        await self.loop.roll()
        now = self._clock.now_s()
        maps: list[tuple[str, str, Heatmap]] = []
        try:
            for service in sorted(self.loop.seen_services):
                views = await self.reads.heatmaps(Slice(service, now - MAP_S, now), list(_EXPORTED.values()))
                maps += [(service, name, view.map) for name, view in zip(_EXPORTED, views, strict=True)]
                self._good_costs[service] = await self._good_cost(service, now)
        except StoreError as error:
            log.error("cells of the heatmap are not renewed", extra={"problem": str(error)})
            return
        self.series.show(maps)
        try:
            await asyncio.to_thread(self._count_scores, now)
        except StoreError as error:
            log.error("scores are not counted yet", extra={"problem": str(error)})

    def _count_scores(self, now: float) -> None:
        """Scores that came lately, beside the requests that they are about."""
        scores = self.store.scores(now - LOOK_BACK_S - _SCORED_EARLIER_S, now + 60)
        scores = scores.filter(pl.col("received_s") >= now - LOOK_BACK_S)
        if scores.is_empty():
            return
        columns = ("trace_id", "fact_id", "span_id", "response_id", "service")
        facts = self.store.facts(now - _JUDGED_LATER_S, now + 60, columns=columns)
        self.quality.add(told_of(facts, scores, self._rules), now)

    async def _good_cost(self, service: str, now: float) -> Number:
        """Cost per million good tokens over a window whose requests have all settled."""
        end = (now - self.loop.terms.settle_s) // 60 * 60
        start = end - max(60.0, self._watch.terms.window_s)
        cost = await self.reads.cost(Slice(service, start, end))
        found = cost.whole.usd_per_million_good_tokens
        return replace(
            found, note="; ".join(filter(None, (found.note, f"requests that ended {now - end:.0f} s ago or before")))
        )

    def _numbers(self, service: str) -> dict[str, Number]:
        found = self._good_costs.get(service)
        return {} if found is None else {"usd_per_million_good_tokens": found}

    def _settled(self, facts: pl.DataFrame) -> None:
        task = asyncio.create_task(asyncio.to_thread(lambda: self._count(facts)))
        self._counting.add(task)
        task.add_done_callback(self._counting.discard)

    def _count(self, facts: pl.DataFrame) -> None:
        judged = self.loop.judged(facts)
        self.series.add(judged)
        self.tenants.add(judged)

    def _running(self) -> dict[str, str]:
        """What each target runs: engine, version and model."""
        told = {t.name: " ".join(filter(None, (t.engine, t.engine_version, *t.models))) for t in self._watch.targets()}
        return {name: text for name, text in told.items() if text}

    def families(self) -> Iterator[Metric]:
        """What is exported of requests and of the receiver."""
        yield from self.series.families()
        yield from self.tenants.families()
        yield from self.quality.families()
        if self._receiver is None:
            return
        counts, forward = self._receiver.counts, self._receiver.forwarded
        yield from intake_families(
            IntakeNow(
                counts.requests, counts.bytes, counts.accepted_spans, counts.rows, counts.repeated_rows, counts.refused, counts.omitted,
                counts.dropped, counts.oddities, counts.ignored, counts.commits, counts.commit_s, counts.held_bytes,
                counts.oldest_s, forward.sent if forward else 0, forward.lost if forward else {},
                self.loop.facts_total, self.loop.late_total,
            )
        )  # fmt: skip

    # -- out --------------------------------------------------------------------------------------------------------

    def _refused(self, counts: OtlpCounts | None) -> dict[str, int]:
        """What was refused, by kind and reason, in words."""
        if counts is None:
            return {}
        found = {f"{kind}: {reason}": n for (kind, reason), n in counts.refused.items()}
        return found | {f"scores: {reason}": n for reason, n in self.refused_scores.items()}

    def _told(self) -> IntakeView:
        counts = self._receiver.counts if self._receiver is not None else None
        return IntakeView(
            self._addresses,
            spans=counts.accepted_spans if counts else 0,
            kept=counts.rows if counts else 0,
            refused=self._refused(counts),
            dropped=dict(counts.dropped) if counts else {},
            waiting=self.store.waiting(),
            last_s=counts.last_commit_s if counts else None,
            problem=self.loop.problem,
        )


def _all_done(works: Sequence[Callable[[], object]]) -> None:
    for work in works:
        work()


def _addresses(otlp: Otlp, receiver: OtlpReceiver) -> list[str]:
    """What senders are told, with the ports that were taken."""
    found = []
    for scheme, address, port in (("http", otlp.http, receiver.http_port), ("grpc", otlp.grpc, receiver.grpc_port)):
        if address is not None and port is not None:
            found.append(f"{scheme}://{address.rpartition(':')[0]}:{port}")
    return found
