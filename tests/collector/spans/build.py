"""Export requests made by hand, and the rows that the mapper makes of them."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.spans.known import known_tables
from collector.spans.mapper import Mapped, Mapper

RECEIVED_S: Final = 1_790_000_010.0
START_NS: Final = 1_790_000_000 * 10**9
TRACE, SPAN, PARENT = bytes.fromhex("ab" * 16), bytes.fromhex("cd" * 8), bytes.fromhex("ef" * 8)
INTERNAL, SERVER, CLIENT = 1, 2, 3


def any_value(plain: Any) -> AnyValue:
    """A value of the type that an SDK sends for this Python value."""
    match plain:
        case AnyValue():
            return plain
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=plain)
        case int():
            return AnyValue(int_value=plain)
        case float():
            return AnyValue(double_value=plain)
        case str():
            return AnyValue(string_value=plain)
        case bytes():
            return AnyValue(bytes_value=plain)
        case list():
            found = AnyValue()
            found.array_value.values.extend(any_value(one) for one in plain)
            found.array_value.SetInParent()
            return found
        case dict():
            found = AnyValue()
            found.kvlist_value.values.extend(key_values(plain))
            found.kvlist_value.SetInParent()
            return found
    raise TypeError(plain)


def key_values(attributes: Mapping[str, Any] | list[tuple[str, Any]]) -> list[KeyValue]:
    pairs = attributes.items() if isinstance(attributes, Mapping) else attributes
    return [KeyValue(key=key, value=any_value(value)) for key, value in pairs]


def span(name: str, attributes: Mapping[str, Any] | list[tuple[str, Any]] = (), **fields: Any) -> Span:
    """A span of two seconds with usual ids; ``fields`` are those of the protobuf message."""
    usual: dict[str, Any] = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "start_time_unix_nano": START_NS,
        "end_time_unix_nano": START_NS + 2 * 10**9,
        "kind": INTERNAL,
    }
    return Span(name=name, attributes=key_values(attributes or {}), **{**usual, **fields})


def request(
    *spans: Span, scope: str = "app", resource: Mapping[str, Any] | list[tuple[str, Any]] = ()
) -> ExportTraceServiceRequest:
    made = ExportTraceServiceRequest()
    of_resource = made.resource_spans.add()
    of_resource.resource.attributes.extend(key_values(resource or {}))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = scope
    of_scope.spans.extend(spans)
    return made


def mapper(**options: Any) -> Mapper:
    return Mapper(known_tables().values(), **options)


@cache
def _usual() -> Mapper:
    """One for many tests: what a mapper has seen before changes nothing, as a test of its own says."""
    return mapper()


def mapped(*spans: Span, scope: str = "app", resource: Any = (), **options: Any) -> Mapped:
    used = mapper(**options) if options else _usual()
    return used.parts(request(*spans, scope=scope, resource=resource), RECEIVED_S)


def row(*spans: Span, **options: Any) -> dict[str, Any]:
    """The one part that is kept of these spans, without any oddity."""
    done = mapped(*spans, **options)
    assert (done.frame.height, dict(done.oddities)) == (1, {}), f"dropped {done.dropped}, refused {done.refused}"
    return done.frame.row(0, named=True)


def told(found: Mapping[str, Any], *columns: str) -> dict[str, Any]:
    """These columns of a row."""
    return {column: found[column] for column in columns}
