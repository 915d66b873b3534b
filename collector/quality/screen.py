"""Built-in checks over the answers that spans carry: one score a checked answer. Reads texts, keeps none of them.

Only spans of one model call are checked: what a tool, a retriever or a chain gives out is no answer of a model.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.quality.checks import Asked, findings
from collector.spans.limits import SpanLimits
from collector.spans.table import Parse, Read
from collector.spans.texts import SpanText, texts
from collector.spans.values import reader_of
from goodwatch.core.quality import SCREEN_PREFIX, Finding
from goodwatch.signals.request_frames import SCORES

#: which edition of the checks gave a score; a new one is another score
EDITION: Final = "1"
#: what the score of an answer says in which nothing was found
CLEAR: Final = "nothing found"

#: a body without any of these carries no texts: looking for them costs a tenth of looking at the attributes
_MARKS: Final = (
    b"gen_ai.output", b"gen_ai.completion", b"gen_ai.input", b"gen_ai.prompt", b"gen_ai.content", b"gen_ai.retrieval",
    b"output.value", b"input.value", b"llm.output_messages", b"llm.input_messages", b"llm.completions", b"llm.prompts",
    b"retrieval.documents", b"input.documents", b"traceloop.entity", b"langfuse.observation.",
)  # fmt: skip

#: attribute → values by which a span is one call of a model
_MODEL_CALLS: Final[Mapping[str, frozenset[str]]] = {
    "openinference.span.kind": frozenset({"llm"}),
    "gen_ai.operation.name": frozenset({"chat", "text_completion", "generate_content"}),
    "llm.request.type": frozenset({"chat", "completion"}),
    "langfuse.observation.type": frozenset({"generation"}),
}
_MODELS: Final = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "llm.request.model_name")
_FINISHES: Final = (
    "gen_ai.response.finish_reasons", "llm.finish_reason", "gen_ai.response.finish_reason",
    "gen_ai.completion.0.finish_reason", "llm.response.finish_reason",
)  # fmt: skip
_CHOICES: Final = ("gen_ai.request.choice.count", "gen_ai.request.n")
_JSON_ASKED: Final = re.compile(r'"response_format"\s*:\s*\{\s*"type"\s*:\s*"json_(?:object|schema)"')
_OUTPUTS: Final = re.compile(
    r"output\.value|gen_ai\.completion|gen_ai\.output\.messages|"
    r"(?:gen_ai\.completion|llm\.output_messages)\.0\.(?:content|message\.content)"
)
_BLANK_CONTENT: Final = re.compile(r'"content"\s*:\s*"\s*"')

_READERS: Final = {
    key: reader_of("finish_reason", Read(key, Parse.FINISH_LIST if key.endswith("s") else Parse.FINISH), SpanLimits())
    for key in _FINISHES
}


@dataclass(frozen=True, slots=True)
class Screened:
    """Scores of the answers of one request (``SCORES``), and the texts themselves, to be kept or let go."""

    frame: pl.DataFrame
    texts: tuple[SpanText, ...]


def screened(request: ExportTraceServiceRequest, received_s: float, *, limit_chars: int = 65536) -> Screened:
    """What the built-in checks say of the answers of a request that came at ``received_s`` (Unix seconds)."""
    body = request.SerializeToString()
    if not any(mark in body for mark in _MARKS):
        return Screened(pl.DataFrame(schema=SCORES), ())
    found = {(one.trace_id, one.span_id): one for one in texts(request, limit_chars=limit_chars)}
    rows = []
    for span in _spans(request):
        text = found.get((span.trace_id.hex(), span.span_id.hex()))
        row = _row(span, text, received_s, limit_chars)
        if row is not None:
            rows.append(row)
    return Screened(pl.DataFrame(rows, schema=SCORES), tuple(found.values()))


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from scope_spans.spans


def _row(span: Span, text: SpanText | None, received_s: float, limit_chars: int) -> dict[str, Any] | None:
    """The score of one span's answer; None when it has none that can be checked."""
    if len(span.trace_id) != 16 or not any(span.trace_id) or len(span.span_id) != 8 or not any(span.span_id):
        return None
    values = {item.key: item.value for item in span.attributes}
    if not _is_model_call(values):
        return None
    asked = _asked(values, text, limit_chars)
    answer = text.output if text is not None and text.output is not None else _blank(values, asked)
    if answer is None:
        return None
    return score_row(findings(answer, asked), span.trace_id.hex(), span.span_id.hex(), received_s) | {
        "ts": _ended_s(span, received_s),
        "model": next((values[key].string_value for key in _MODELS if key in values), None) or None,
    }


def score_row(found: tuple[Finding, ...], trace_id: str, span_id: str, received_s: float) -> dict[str, Any]:
    """Findings as one row of ``SCORES``: 1 when there are none; says which and where, and quotes nothing."""
    return {
        "ts": received_s, "received_s": received_s, "trace_id": trace_id, "span_id": span_id, "response_id": None,
        "evaluator": SCREEN_PREFIX, "annotator": "code", "identifier": EDITION, "score": 0.0 if found else 1.0,
        "label": ", ".join(one.check for one in found) or CLEAR,
        "explanation_ref": " ".join(one.reference for one in found) or None, "service": None, "model": None,
    }  # fmt: skip


def _ended_s(span: Span, received_s: float) -> float:
    ended_s = span.end_time_unix_nano / 1e9
    return ended_s if 0 < ended_s <= received_s else received_s


def _is_model_call(values: Mapping[str, AnyValue]) -> bool:
    told = [key for key in _MODEL_CALLS if key in values]
    if told or "traceloop.span.kind" in values:
        return any(values[key].string_value.lower() in _MODEL_CALLS[key] for key in told)
    return any(key in values for key in _MODELS)


def _asked(values: Mapping[str, AnyValue], text: SpanText | None, limit_chars: int) -> Asked:
    odd: Counter[str] = Counter()
    finish = next((_READERS[key](values[key], odd, 0) for key in _FINISHES if key in values), None)
    one = not any(values[key].int_value > 1 for key in _CHOICES if key in values)
    parameters = values["llm.invocation_parameters"].string_value if "llm.invocation_parameters" in values else ""
    wanted = values["gen_ai.output.type"].string_value == "json" if "gen_ai.output.type" in values else False
    json_asked = wanted or _JSON_ASKED.search(parameters) is not None
    length = 0 if text is None else len(text.output or "")
    return Asked(
        prompt=None if text is None else text.input,
        json=json_asked and one,
        finish_reason=finish if isinstance(finish, str) else None,
        clipped=length >= limit_chars or _is_round(length),
    )


def _is_round(length: int) -> bool:
    """Whether a text is as long as a limit of attribute values, as SDKs have it: they cut without a sign."""
    return length >= 128 and (length & (length - 1) == 0 or length % 1000 == 0)


def _blank(values: Mapping[str, AnyValue], asked: Asked) -> str | None:
    """An empty text when the span says that the model answered with nothing; None when it says nothing of an answer."""
    if asked.finish_reason not in ("stop", "length"):
        return None
    for key, value in values.items():
        if _OUTPUTS.fullmatch(key) and value.WhichOneof("value") == "string_value":
            said = value.string_value
            if not said.strip() or (_BLANK_CONTENT.search(said) and "tool_call" not in said):
                return ""
    return None
