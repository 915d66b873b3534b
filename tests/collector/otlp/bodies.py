"""Bodies that real engines sent, and ways to damage one."""

from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

DATA = Path(__file__).with_name("data")

#: body → (spans, trace id of the first), from the decoded recording that each was taken from
RECORDED = {
    "vllm-0.32.0": (3, "0c3c426610a4049c83dbda16355d15be"),
    "vllm-0.12.0": (31, "507c9c84d95e8d7e73cbc9d0121047fa"),
    "vllm-0.10.2": (95, "001c5e1f3e1bcb04f43454f8fe51c543"),
    "vllm-0.8.5": (3, "5ef353fc80e280ffdb14b7d3d8935ea7"),
    "sglang-0.5.23": (7, "fc147a78196a8d845ec8e9d78049e97a"),
}


def recorded(name: str) -> bytes:
    """A body as the engine sent it."""
    return (DATA / f"{name}.pb").read_bytes()


def spans_of(request: ExportTraceServiceRequest) -> list[Span]:
    """All spans of a request."""
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def varint(value: int) -> bytes:
    """As protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def member(number: int, data: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def framed(*spans: bytes) -> bytes:
    """Bytes of spans inside a request: ResourceSpans.scope_spans = 2, ScopeSpans.spans = 2 (trace.proto)."""
    return member(1, member(2, b"".join(member(2, span) for span in spans)))
