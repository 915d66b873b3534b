"""The exporters of the OpenTelemetry SDK, as engines and applications use them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from collector.otlp.receiver import OtlpReceiver
from tests.support.otlp_receiver import receiving
from tests.support.otlp_spans import REAL
from tests.support.otlp_store import MemoryParts

pytestmark = pytest.mark.integration

Exporter = Callable[[OtlpReceiver], Any]


def http_url(receiver: OtlpReceiver, kind: str) -> str:
    return f"http://127.0.0.1:{receiver.http_port}/v1/{kind}"


def grpc_address(receiver: OtlpReceiver) -> str:
    return f"127.0.0.1:{receiver.grpc_port}"


SPANS: dict[str, Exporter] = {
    "http": lambda receiver: HttpSpans(http_url(receiver, "traces")),
    "http gzip": lambda receiver: HttpSpans(http_url(receiver, "traces"), compression=Compression.Gzip),
    "http deflate": lambda receiver: HttpSpans(http_url(receiver, "traces"), compression=Compression.Deflate),
    "grpc": lambda receiver: GrpcSpans(grpc_address(receiver), insecure=True),
    "grpc gzip": lambda receiver: GrpcSpans(grpc_address(receiver), insecure=True, compression=2),
}


@pytest.mark.parametrize("name", SPANS)
async def test_spans_of_the_sdk_are_all_there(name: str) -> None:
    store = MemoryParts()

    def send() -> set[tuple[str, str]]:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(SPANS[name](receiver), max_export_batch_size=100))
        tracer = provider.get_tracer("vllm.tracing.otel")
        spans = [tracer.start_span("llm_request", attributes=dict(REAL)) for _ in range(350)]
        for span in spans:
            span.end()
        assert provider.force_flush()
        provider.shutdown()
        return {(f"{s.get_span_context().trace_id:032x}", f"{s.get_span_context().span_id:016x}") for s in spans}

    async with receiving(store) as receiver:
        made = await asyncio.to_thread(send)
        assert store.identities() == made
        assert receiver.counts.accepted_spans == 350


@pytest.mark.parametrize("over", ["http", "grpc"])
async def test_evaluation_events_are_handed_on(over: str) -> None:
    came: list[Any] = []

    def take(request: Any, _: float) -> dict[str, int]:
        came.append(request)
        return {}

    def send() -> None:
        exporter = (
            HttpLogs(http_url(receiver, "logs")) if over == "http" else GrpcLogs(grpc_address(receiver), insecure=True)
        )
        provider = LoggerProvider()
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        record = LogRecord(
            event_name="gen_ai.evaluation.result", severity_number=SeverityNumber.INFO,
            attributes={"gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": 0.5},
        )  # fmt: skip
        provider.get_logger("judge").emit(record)
        provider.shutdown()

    async with receiving(logs=take) as receiver:
        await asyncio.to_thread(send)
    (request,) = came
    assert request.resource_logs[0].scope_logs[0].log_records[0].event_name == "gen_ai.evaluation.result"


@pytest.mark.parametrize("over", ["http", "grpc"])
async def test_genai_metrics_are_handed_on_and_others_are_not(over: str) -> None:
    came: list[str] = []

    def take(request: Any, _: float) -> dict[str, int]:
        came.extend(m.name for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics)
        return {"no_number": 1}

    def send() -> None:
        exporter = (
            HttpMetrics(http_url(receiver, "metrics"))
            if over == "http"
            else GrpcMetrics(grpc_address(receiver), insecure=True)
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)
        provider = MeterProvider(metric_readers=[reader])
        meter = provider.get_meter("app")
        meter.create_histogram("gen_ai.server.time_to_first_token", "s").record(0.1)
        meter.create_counter("http.server.requests").add(1)
        provider.shutdown()

    async with receiving(metrics=take) as receiver:
        await asyncio.to_thread(send)
        assert receiver.counts.ignored == {"metrics": 1}
        assert receiver.counts.refused == {("metrics", "no_number"): 1}
    assert came == ["gen_ai.server.time_to_first_token"]


async def test_a_sender_waits_out_an_overload() -> None:
    # the SDK sends again after what Retry-After or RetryInfo says, within its own 10 s
    from goodwatch.core.errors import StoreError

    store = MemoryParts()
    store.fault = StoreError("the disk is full")

    def send() -> bool:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(HttpSpans(http_url(receiver, "traces"))))
        provider.get_tracer("app").start_span("llm_request").end()
        flushed = provider.force_flush()
        provider.shutdown()
        return flushed

    async with receiving(store) as receiver:
        sent = asyncio.create_task(asyncio.to_thread(send))
        await asyncio.to_thread(store.entered.wait, 10)
        store.fault = None
        assert await sent
    assert len(store.identities()) == 1
