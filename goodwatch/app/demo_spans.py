"""The demo's traces: spans of the same recordings as its pages, at the same place in the loop.

Nothing in a span is changed but its times, its ids (the same request comes once in each loop) and the name of the
service that sent it. Spans that no request needs (decode steps, the loading of a model) were left out of the package.
"""

import hashlib
import json
import lzma
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import polars as pl
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from collector.spans.mapper import Mapper
from goodwatch.app.demo import Play
from goodwatch.core.ports import RequestStore
from goodwatch.signals.assemble import assemble

_NS: Final = 1_000_000_000
_BATCH: Final = 512  # as the SDKs send


@dataclass(frozen=True, slots=True)
class _Sent:
    """One recorded span: when in the loop it ended, and what was sent."""

    at_s: float
    resource: Resource
    scope: InstrumentationScope
    span: Span


@dataclass(frozen=True, slots=True)
class SpanPlay:
    """The spans of one play, by when they ended in its loop."""

    play: Play
    spans: tuple[_Sent, ...]

    @classmethod
    def of(cls, play: Play) -> "SpanPlay":
        """The spans that were recorded beside the pages of a play."""
        known = _clock(play)
        request = ExportTraceServiceRequest.FromString(lzma.decompress(_packed(f"{play.name}.spans.pb.xz")))
        found = []
        for resource_spans in request.resource_spans:
            resource = _renamed(resource_spans.resource, play.service)
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    at_s = known.at(span.end_time_unix_nano / _NS)
                    if at_s is not None:
                        found.append(_Sent(at_s, resource, scope_spans.scope, span))
        return cls(play, tuple(sorted(found, key=lambda one: one.at_s)))

    def requests(self, start_s: float, end_s: float) -> Iterator[ExportTraceServiceRequest]:
        """What the engine's exporter sends for spans that end in ``[start_s, end_s)``, Unix seconds."""
        length = self.play.length_s
        loop = int((start_s - self.play.began_s) // length)
        while (base := self.play.began_s + loop * length) < end_s:
            due = [one for one in self.spans if start_s <= base + one.at_s < end_s]
            for first in range(0, len(due), _BATCH):
                yield _request(due[first : first + _BATCH], base, loop)
            loop += 1

    def fill(self, store: RequestStore, mapper: Mapper, start_s: float, end_s: float) -> None:
        """Give the store the requests of a stretch of the past, settled. Blocking."""
        frames = [mapper.parts(request, end_s).frame for request in self.requests(start_s, end_s)]
        if not frames:
            return
        parts = pl.concat(frames).with_columns(received_s=pl.coalesce("ended_s", "received_s"))
        store.append_parts([parts])
        ids = parts["trace_id"].unique().to_list()
        store.settle(ids, assemble(store.parts(ids), end_s))


@dataclass(frozen=True, slots=True)
class _Clock:
    """Recorded times and their places in the loop; long waits for a start are cut out of it."""

    ts: Sequence[float]
    at_s: Sequence[float]

    def at(self, ts: float) -> float | None:
        """The place of a recorded time; None before the first page and after the last."""
        right = bisect_left(self.ts, ts)
        if right in (0, len(self.ts)):
            return None
        behind = self.ts[right] - ts
        return max(self.at_s[right - 1], self.at_s[right] - behind)


def _clock(play: Play) -> _Clock:
    rows = [json.loads(line) for line in lzma.decompress(_packed(f"{play.name}.jsonl.xz")).decode().splitlines()]
    return _Clock([r["ts"] for r in rows], [r["at_s"] for r in rows])


def _packed(name: str) -> bytes:
    return files("goodwatch.app").joinpath(f"demo_data/{name}").read_bytes()


def _renamed(resource: Resource, service: str) -> Resource:
    kept = [a for a in resource.attributes if a.key != "service.name"]
    out = Resource(attributes=kept)
    out.attributes.add(key="service.name").value.string_value = service
    return out


def _request(sent: Sequence[_Sent], base_s: float, loop: int) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    last: ResourceSpans | None = None
    scope: ScopeSpans | None = None
    for one in sent:
        if last is None or scope is None or one.resource != last.resource or one.scope != scope.scope:
            last = request.resource_spans.add(resource=one.resource)
            scope = last.scope_spans.add(scope=one.scope)
        span = scope.spans.add()
        span.CopyFrom(one.span)
        end_ns = int((base_s + one.at_s) * _NS)
        span.start_time_unix_nano = end_ns - (one.span.end_time_unix_nano - one.span.start_time_unix_nano)
        span.end_time_unix_nano = end_ns
        span.trace_id, span.span_id = _again(span.trace_id, loop), _again(span.span_id, loop)
        if span.parent_span_id:
            span.parent_span_id = _again(span.parent_span_id, loop)
        for event in span.events:
            event.time_unix_nano = end_ns
    return request


def _again(recorded: bytes, loop: int) -> bytes:
    """The id of the same span in another loop."""
    return hashlib.blake2b(recorded, digest_size=len(recorded), salt=loop.to_bytes(8, "big", signed=True)).digest()
