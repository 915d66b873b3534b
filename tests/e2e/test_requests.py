"""Traces through the whole service: a real OpenTelemetry SDK sends, the pages' read side and /metrics answer."""

import json
import re
import time
import urllib.request
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind

from tests.support.process import Running, running, wait_for

pytestmark = pytest.mark.integration
REQUESTS = 200


def configure(folder: Path, more: str = "") -> Path:
    file = folder / "goodwatch.yaml"
    file.write_text(
        f"""listen: 127.0.0.1:0
data_dir: {folder}/data
services:
  - name: chat
    slo: {{ttft: 500ms, tpot: 50ms, objective: 0.9}}
otlp:
  http: 127.0.0.1:0
  grpc: 127.0.0.1:0
  settle: 1s
  origins:
    - {{match: {{service.name: vllm-chat}}, service: chat, model: llama}}
{more}"""
    )
    return file


def address(process: Running, scheme: str) -> str:
    """Where the receiver listens, as the log says."""

    def found() -> str | None:
        hit = next(
            (re.search(rf"{scheme}://([\d.:]+)", line) for line in process.lines if "receiving traces" in line), None
        )
        return hit[1] if hit else None

    return wait_for(found, 40, lambda: process.output)


def send(exporter: SpanExporter, first: int) -> None:
    """Requests as vLLM 0.32 describes them: every fourth has a TTFT of 0.9 s, the others 0.1 s."""
    provider = TracerProvider(resource=Resource.create({"service.name": "vllm-chat"}))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=100))
    tracer = provider.get_tracer("vllm.tracing.otel")
    now_ns = time.time_ns()
    for number in range(first, first + REQUESTS):
        ttft_s = 0.9 if number % 4 == 0 else 0.1
        span = tracer.start_span("llm_request", kind=SpanKind.SERVER, start_time=now_ns - 2_000_000_000)
        span.set_attributes(
            {
                "gen_ai.latency.time_to_first_token": ttft_s, "gen_ai.latency.e2e": ttft_s + 0.9,
                "gen_ai.latency.time_in_queue": 0.01, "gen_ai.latency.time_in_model_prefill": ttft_s - 0.01,
                "gen_ai.latency.time_in_model_decode": 0.9, "gen_ai.latency.time_in_model_inference": ttft_s + 0.89,
                "gen_ai.usage.prompt_tokens": 300, "gen_ai.usage.completion_tokens": 100,
                "gen_ai.request.id": f"cmpl-{number}-0",
            }
        )  # fmt: skip
        span.end(end_time=now_ns - 2_000_000_000 + int((ttft_s + 0.9) * 1e9))
    assert provider.force_flush(20_000)
    provider.shutdown()


def metric(process: Running, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    lines = [line for line in process.get("/metrics").splitlines() if re.match(rf"{name}[{{ ]", line)]
    wanted = [line for line in lines if all(f'{key}="{value}"' in line for key, value in labels.items())]
    return sum(float(line.rpartition(" ")[2]) for line in wanted)


def test_requests_from_both_transports_are_judged_and_exported_once(tmp_path: Path) -> None:
    with running("serve", "-c", str(configure(tmp_path))) as process:
        process.url()
        send(HttpExporter(endpoint=f"http://{address(process, 'http')}/v1/traces"), 0)
        send(GrpcExporter(endpoint=address(process, "grpc"), insecure=True), REQUESTS)
        wait_for(
            lambda: metric(process, "goodwatch_requests_total", service="chat") == 2 * REQUESTS,
            30, lambda: process.output + process.get("/metrics"),
        )  # fmt: skip
        assert (
            metric(process, "goodwatch_requests_total", verdict="good") == 2 * REQUESTS * 3 / 4
        )  # by the TTFT set above
        assert metric(process, "goodwatch_request_output_tokens_total", model="llama") == 2 * REQUESTS * 100
        assert metric(process, "goodwatch_request_ttft_seconds_bucket", le="0.1") == 2 * REQUESTS * 3 / 4
        assert metric(process, "goodwatch_otlp_parts_total") == 2 * REQUESTS
        assert process.end() == 0
    with running("serve", "-c", str(configure(tmp_path))) as again:  # kept over a restart, and not counted again
        again.url()
        assert metric(again, "goodwatch_requests_settled_total") == 0


def test_a_token_is_asked_for_where_tokens_are_set(tmp_path: Path) -> None:
    tokens = 'auth: {tokens: [{name: sender, role: ingest, token: "0123456789abcdef0123"}]}\n'
    with running("serve", "-c", str(configure(tmp_path, tokens))) as process:
        process.url()
        url = f"http://{address(process, 'http')}/v1/traces"

        def status(authorization: str) -> int:
            headers = {"Content-Type": "application/json", "Authorization": authorization}
            request = urllib.request.Request(url, json.dumps({"resourceSpans": []}).encode(), headers)
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        assert status("Bearer wrong") == 401
        assert status("Bearer 0123456789abcdef0123") == 200
