"""The three kinds of OTLP requests: where they arrive, what they are made of, what may be left out of them.

This is the one module that names the protobuf classes. Source: opentelemetry-proto 1.x, collector services.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

__all__ = ["BY_PATH", "KINDS", "LOGS", "METRICS", "TRACES", "DecodeError", "Kind", "Message", "without_strangers"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request. ``items`` is the path of field names from the request to what it is counted in."""

    name: str
    path: str  # OTLP/HTTP
    service: str  # gRPC; the method is Export
    request: type[Message]
    response: type[Message]
    items: tuple[str, str, str]
    rejected: str  # field of partial_success

    def count(self, request: Message) -> int:
        """Spans, log records or metrics in a request."""
        outer, middle, inner = self.items
        return sum(
            len(getattr(scope, inner)) for resource in getattr(request, outer) for scope in getattr(resource, middle)
        )


_PACKAGE: Final = "opentelemetry.proto.collector"

TRACES: Final = Kind(
    "traces",
    "/v1/traces",
    f"{_PACKAGE}.trace.v1.TraceService",
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
    ("resource_spans", "scope_spans", "spans"),
    "rejected_spans",
)
LOGS: Final = Kind(
    "logs",
    "/v1/logs",
    f"{_PACKAGE}.logs.v1.LogsService",
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
    ("resource_logs", "scope_logs", "log_records"),
    "rejected_log_records",
)
METRICS: Final = Kind(
    "metrics",
    "/v1/metrics",
    f"{_PACKAGE}.metrics.v1.MetricsService",
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
    ("resource_metrics", "scope_metrics", "metrics"),
    "rejected_data_points",
)
KINDS: Final = (TRACES, LOGS, METRICS)
BY_PATH: Final[Mapping[str, Kind]] = {kind.path: kind for kind in KINDS}

#: messages that one can do without: where something inside is wrong, these are left out and the rest is kept
ITEMS: Final = frozenset(
    f"opentelemetry.proto.{name}" for name in ("trace.v1.Span", "logs.v1.LogRecord", "metrics.v1.Metric")
)
ATTRIBUTE: Final = "opentelemetry.proto.common.v1.KeyValue"
LEFT_OUT: Final = frozenset({*ITEMS, ATTRIBUTE, "opentelemetry.proto.trace.v1.Span.Event"}) | {
    "opentelemetry.proto.trace.v1.Span.Link"
}
#: a value is whole or not there: inside of one nothing is left out
VALUES: Final = frozenset(
    f"opentelemetry.proto.common.v1.{name}" for name in ("KeyValueList", "ArrayValue", "AnyValue")
)


def is_left_out(parent: Any, child: Any) -> bool:
    """Whether a damaged ``child`` (descriptor) is left out of its ``parent``, and not the parent as well."""
    return child.full_name in LEFT_OUT and parent.full_name not in VALUES


def without_strangers(request: Message, prefix: str) -> int:
    """Take the metrics whose name does not start with ``prefix`` out of a request; returns how many."""
    strangers = 0
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            kept = [metric for metric in scope.metrics if metric.name.startswith(prefix)]
            strangers += len(scope.metrics) - len(kept)
            del scope.metrics[:]
            scope.metrics.extend(kept)
    return strangers
