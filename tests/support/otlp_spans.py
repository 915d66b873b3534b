"""Trace requests as vLLM sends them, and the simplest mapper that is honest about them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from goodwatch.signals.request_frames import PARTS

START_NS = 1_796_037_432_115_088_640  # of a real span of vLLM 0.32.0

#: the attributes of a span of vLLM 0.32.0, and as many more as an application might add: 25 in all
REAL: Mapping[str, Any] = {
    "gen_ai.latency.time_to_first_token": 0.4817492961883545,
    "gen_ai.latency.e2e": 3.794782876968384,
    "gen_ai.latency.time_in_queue": 8.317100036947522e-05,
    "gen_ai.usage.prompt_tokens": 426,
    "gen_ai.usage.completion_tokens": 406,
    "gen_ai.latency.time_in_model_prefill": 0.40816772799962564,
    "gen_ai.latency.time_in_model_decode": 3.322045673000048,
    "gen_ai.latency.time_in_model_inference": 3.7302134009996735,
    "gen_ai.request.id": "cmpl-kv_pressure-b1d1759da0fcb8db-0",
    "gen_ai.request.top_p": 1.0,
    "gen_ai.request.max_tokens": 406,
    "gen_ai.request.temperature": 0.7,
    "gen_ai.request.n": 1,
}
PADDING: Mapping[str, Any] = {
    "tenant.id": "tenant-0042",
    "http.route": "/v1/completions",
    "server.address": "llm-7b-decode-12.internal",
    "server.port": 8000,
    "deployment.environment": "production",
    "k8s.pod.name": "vllm-7b-5d4f9c7b6-x2x9q",
    "k8s.node.name": "gpu-node-17",
    "cloud.region": "eu-central-1",
    "feature.flag.prefix_caching": True,
    "app.session": "b1d1759d-a0fc-48db-9a0e-1fc2d7a7f001",
    "app.attempt": 1,
    "app.client": "assistant-web/2026.11",
}


def value(given: Any) -> AnyValue:
    """A plain value as OTLP writes it."""
    if isinstance(given, bool):
        return AnyValue(bool_value=given)
    if isinstance(given, int):
        return AnyValue(int_value=given)
    return AnyValue(double_value=given) if isinstance(given, float) else AnyValue(string_value=given)


def span(number: int, attributes: Mapping[str, Any] = REAL, **more: Any) -> Span:
    """A span of a request; ``number`` makes its ids."""
    fields: dict[str, Any] = {
        "trace_id": (number + 1).to_bytes(16, "big"),
        "span_id": (number + 1).to_bytes(8, "big"),
        "name": "llm_request",
        "kind": Span.SPAN_KIND_SERVER,
        "start_time_unix_nano": START_NS + number * 1_000_000,
        "end_time_unix_nano": START_NS + number * 1_000_000 + 3_795_000_000,
        "attributes": [KeyValue(key=key, value=value(given)) for key, given in attributes.items()],
        "flags": 768,
    }
    return Span(**{**fields, **more})


def request(spans: Iterable[Span]) -> ExportTraceServiceRequest:
    """An export request as a vLLM process makes it."""
    known = {"service.name": "vllm-lab", "service.instance.id": "6ae6c837-ec67-41c4-94a4-a5d0181ca933"}
    resource = Resource(attributes=[KeyValue(key=key, value=value(text)) for key, text in known.items()])
    scope = ScopeSpans(spans=list(spans))
    scope.scope.name = "vllm.tracing.otel"
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])


def numbered(first: int, count: int, attributes: Mapping[str, Any] = REAL) -> ExportTraceServiceRequest:
    """A request of ``count`` spans with ids of their own."""
    return request(span(number, attributes) for number in range(first, first + count))


@dataclass(frozen=True)
class PlainMapped:
    """What a mapper gives."""

    frame: pl.DataFrame
    spans: int
    refused: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    oddities: Mapping[str, int] = field(default_factory=dict)


class PlainMapper:
    """Keeps every span with ids, as rows with identity, name and model only."""

    def parts(self, sent: ExportTraceServiceRequest, received_s: float) -> PlainMapped:
        refused: Counter[str] = Counter()
        kept: list[Span] = []
        seen = 0
        for one in (s for r in sent.resource_spans for scope in r.scope_spans for s in scope.spans):
            seen += 1
            reason = _wrong(one)
            refused.update([reason] if reason else [])
            if not reason:
                kept.append(one)
        return PlainMapped(_frame(kept, received_s), seen, dict(refused))


def _wrong(one: Span) -> str:
    if len(one.trace_id) != 16 or not any(one.trace_id):
        return "bad_trace_id"
    return "bad_span_id" if len(one.span_id) != 8 or not any(one.span_id) else ""


def _frame(spans: Sequence[Span], received_s: float) -> pl.DataFrame:
    rows = [
        {
            "received_s": received_s,
            "trace_id": one.trace_id.hex(),
            "span_id": one.span_id.hex(),
            "name": one.name,
            "started_s": one.start_time_unix_nano / 1e9,
            "request_id": next((a.value.string_value for a in one.attributes if a.key == "gen_ai.request.id"), None),
        }
        for one in spans
    ]
    return pl.DataFrame([{name: row.get(name) for name in PARTS} for row in rows], schema=PARTS)
