"""Quality in the running service: built-in checks of what spans say, texts where they are kept, the judge."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.judge import OpenAiJudge
from collector.quality.texts import TextStore
from goodwatch.app._quality_sections import Quality
from goodwatch.app.judging import Judging
from goodwatch.app.quality_reads import QualityReads
from goodwatch.app.quality_wiring import AnswerIntake, judge_endpoint, judge_terms, open_texts
from goodwatch.app.request_view import RequestViews
from goodwatch.core.clock import Clock
from goodwatch.core.model import Deployment
from goodwatch.core.ports import RequestStore

Deployments = Callable[[str, float, float], Awaitable[Sequence[Deployment]]]


class Rating:
    """All parts of quality. Nothing is open before ``running`` is entered."""

    def __init__(
        self, settings: Quality, data_dir: Path, scores: RequestStore, clock: Clock, deployments: Deployments
    ) -> None:
        self.settings = settings
        self._data_dir = data_dir
        self._scores = scores
        self._clock = clock
        self._deployments = deployments
        self._answers = AnswerIntake(settings, scores, None)
        self._texts: TextStore | None = None
        self.judging: Judging | None = None

    def reads(self, requests: RequestViews) -> QualityReads:
        """What pages and the API ask; call it once ``running`` is entered, so that the judge is told of."""
        return QualityReads(requests, self.settings.rules, self.judging, self._deployments)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep texts and hold the judge while entered. Raises ``ConfigError`` or ``StoreError`` when it cannot start."""
        async with AsyncExitStack() as stack:
            self._texts = await asyncio.to_thread(open_texts, self.settings, self._data_dir)
            if self._texts is not None:
                stack.callback(self._texts.close)
            self._answers = AnswerIntake(self.settings, self._scores, self._texts)
            if self.settings.judge is not None and self._texts is not None:
                thread = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="texts"))
                judge = await stack.enter_async_context(OpenAiJudge(judge_endpoint(self.settings.judge)))
                terms = judge_terms(self.settings.judge)
                self.judging = Judging(judge, self._texts, self._scores, self._clock, terms, thread=thread)
            yield

    def beside(self, request: ExportTraceServiceRequest, received_s: float) -> Callable[[], object] | None:
        """Check and keep what the spans of a request say; in the thread that decodes."""
        return self._answers.beside(request, received_s)

    async def judge(self) -> None:
        """Judge one batch."""
        if self.judging is not None:
            await self.judging.run_once()

    def compact(self, now_s: float) -> int:
        """Drop texts that are past their time; blocking. Raises ``StoreError``."""
        return 0 if self._texts is None else self._texts.compact(now_s)
