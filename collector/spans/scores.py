"""Quality scores that spans and log records carry.

Three shapes: the event ``gen_ai.evaluation.result`` of the OpenTelemetry GenAI conventions (1.38 and later; a log record,
in older SDKs an event of the span), OpenInference's ``evaluations`` and ``annotations`` as flattened attributes (the
layout of the index is inferred from how that package flattens lists), and LiteLLM's guardrails. A score that is not
within 0..1 is on a scale that nobody told and is refused. An explanation may quote the answer and is not kept.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.spans.limits import SpanLimits
from collector.spans.values import number, text_of
from goodwatch.signals.request_frames import SCORES

_EVENT: Final = "gen_ai.evaluation.result"
_FLATTENED: Final = re.compile(
    r"(trace\.|session\.)?(evaluations|annotations)\.(\d{1,6})\.(?:evaluation|annotation)\.(\w+)"
)
_GUARDRAIL: Final = "litellm.guardrail."
_MODELS: Final = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
_ANNOTATORS: Final = ("human", "llm", "code")
#: a request without any of these bytes carries no score: looking for them costs a tenth of looking at the attributes
_MARKS: Final = (b"evaluation", b"annotations.", b"litellm.guardrail.")
_LIMITS: Final = SpanLimits()

Attributes = Mapping[str, AnyValue]


@dataclass(frozen=True, slots=True)
class ScoresTaken:
    """Scores of one request as ``SCORES``; ``refused`` counts scores that could not be kept, by reason.

    ``ignored`` counts log records that are no evaluation.
    """

    frame: pl.DataFrame
    refused: Mapping[str, int]
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class _Told:
    """One score as it was told, before it is checked."""

    evaluator: str | None
    score: AnyValue | None
    label: str | None
    annotator: str | None = None
    identifier: str | None = None
    failed: bool = False  # the evaluation itself failed
    of_span: bool = True  # False: of the whole trace


def scores_of_spans(request: ExportTraceServiceRequest, received_s: float) -> pl.DataFrame:
    """Scores that the spans of a request carry, as ``SCORES``."""
    return span_scores(request, received_s).frame


def span_scores(request: ExportTraceServiceRequest, received_s: float) -> ScoresTaken:
    """Scores that the spans of a request carry, in attributes and in events; ``received_s`` is Unix seconds."""
    taking = _Taking(received_s)
    body = request.SerializeToString()
    if any(mark in body for mark in _MARKS):
        for resource_spans in request.resource_spans:
            service = _service(resource_spans.resource)
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    taking.span(span, service)
    return taking.taken()


def scores_of_logs(request: ExportLogsServiceRequest, received_s: float) -> ScoresTaken:
    """Scores among the log records of a request; ``received_s`` is Unix seconds."""
    taking = _Taking(received_s)
    for resource_logs in request.resource_logs:
        service = _service(resource_logs.resource)
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                taking.record(record, service)
    return taking.taken()


class _Taking:
    """Scores found so far."""

    def __init__(self, received_s: float) -> None:
        self._received_s = received_s
        self._rows: list[dict[str, Any]] = []
        self._refused: Counter[str] = Counter()
        self._ignored = 0

    def taken(self) -> ScoresTaken:
        return ScoresTaken(pl.DataFrame(self._rows, schema=SCORES), dict(self._refused), self._ignored)

    def span(self, span: Span, service: str | None) -> None:
        own = _attributes(span.attributes)
        told = [(one, span.end_time_unix_nano, own) for one in (*_flattened(own, self._refused), *_guardrails(own))]
        for event in span.events:
            if event.name == _EVENT:
                attributes = _attributes(event.attributes)
                told.append((_evaluation(attributes), event.time_unix_nano, {**own, **attributes}))
        for one, at_ns, attributes in told:
            self._take(one, (span.trace_id, span.span_id), at_ns, around=attributes, service=service)

    def record(self, record: LogRecord, service: str | None) -> None:
        attributes = _attributes(record.attributes)
        if record.event_name != _EVENT and _text(attributes, "event.name") != _EVENT:
            self._ignored += 1
            return
        attributes = {**_attributes(record.body.kvlist_value.values), **attributes}
        at_ns = record.time_unix_nano or record.observed_time_unix_nano
        told = _evaluation(attributes)
        self._take(told, (record.trace_id, record.span_id), at_ns, around=attributes, service=service)

    def _take(
        self, told: _Told, ids: tuple[bytes, bytes], at_ns: int, *, around: Attributes, service: str | None
    ) -> None:
        trace_id, span_id = ids
        trace = trace_id.hex() if len(trace_id) == 16 and any(trace_id) else None
        response = _text(around, "gen_ai.response.id")
        score, reason = _checked(told)
        if trace is None and response is None:
            reason = "no_target"
        if reason is not None:
            self._refused[reason] += 1
            return
        of_span = told.of_span and trace is not None and len(span_id) == 8 and any(span_id)
        at_s = at_ns / 1e9
        self._rows.append(
            {
                "ts": at_s if 0 < at_s <= self._received_s + _LIMITS.future_s else self._received_s,
                "received_s": self._received_s,
                "trace_id": trace,
                "span_id": span_id.hex() if of_span else None,
                "response_id": response if told.of_span else None,
                "evaluator": told.evaluator,
                "annotator": told.annotator,
                "identifier": told.identifier,
                "score": score,
                "label": told.label,
                "explanation_ref": None,
                "service": service,
                "model": next((m for m in (_text(around, key) for key in _MODELS) if m), None),
            }
        )


def _checked(told: _Told) -> tuple[float | None, str | None]:
    """The score, and why it cannot be kept."""
    if told.evaluator is None:
        return None, "no_evaluator"
    if told.score is None:
        return None, None if told.label else "failed_evaluation" if told.failed else "no_score"
    odd: Counter[str] = Counter()
    score = number(told.score, odd)
    if score is None:
        return None, None if told.label and not odd else next(iter(odd), "no_score")
    return score, None if 0 <= score <= 1 else "score_out_of_range"


def _evaluation(attributes: Attributes) -> _Told:
    prefix = "gen_ai.evaluation."
    return _Told(
        _text(attributes, prefix + "name"),
        attributes.get(prefix + "score.value"),
        _text(attributes, prefix + "score.label"),
        failed="error.type" in attributes,
    )


def _flattened(attributes: Attributes, refused: Counter[str]) -> Iterator[_Told]:
    groups: dict[tuple[str, str, str], dict[str, AnyValue]] = {}
    for key, value in attributes.items():
        found = _FLATTENED.fullmatch(key)
        if found is not None:
            groups.setdefault((found[1] or "", found[2], found[3]), {})[found[4]] = value
    for (level, _, _), one in groups.items():
        if level == "session.":  # of a conversation: no request to join it to
            refused["session_score"] += 1
            continue
        annotator = (_text(one, "annotator_kind") or "").lower()
        yield _Told(
            _text(one, "name"),
            one.get("score"),
            _text(one, "label"),
            annotator if annotator in _ANNOTATORS else None,
            _text(one, "identifier"),
            of_span=not level,
        )


def _guardrails(attributes: Attributes) -> Iterator[_Told]:
    score, status = attributes.get(_GUARDRAIL + "confidence_score"), _text(attributes, _GUARDRAIL + "status")
    if score is not None or status is not None:
        yield _Told(_text(attributes, _GUARDRAIL + "name"), score, status, "code")


def _attributes(items: Iterable[KeyValue]) -> dict[str, AnyValue]:
    """Values by key; of a key that is there twice the last one counts."""
    return {item.key: item.value for item in items}


def _text(attributes: Attributes, key: str) -> str | None:
    value = attributes.get(key)
    return None if value is None else text_of(value, Counter(), _LIMITS.text_bytes)


def _service(resource: Resource) -> str | None:
    name = _text(_attributes(resource.attributes), "service.name")
    return None if name and name.startswith("unknown_service") else name
