"""Prompts, answers and retrieved documents that spans carry. To be used only where the operator keeps texts.

Every convention has its own key, and some flatten a list into one attribute per message. Messages as JSON text or as
structured values are reduced to their texts; a text that is no JSON is taken as it is.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

#: keys that hold a whole text or a list of messages, most wanted first
_INPUTS: Final = (
    "gen_ai.input.messages", "input.value", "gen_ai.prompt", "llm.prompts", "traceloop.entity.input",
    "langfuse.observation.input",
)  # fmt: skip
_OUTPUTS: Final = (
    "gen_ai.output.messages", "output.value", "gen_ai.completion", "llm.completions", "traceloop.entity.output",
    "langfuse.observation.output",
)  # fmt: skip
_CONTEXTS: Final = ("gen_ai.retrieval.documents",)

#: keys of one text of a list; the first group that is a number orders them
_INPUT_ITEM: Final = re.compile(
    r"(?:gen_ai\.prompt|llm\.input_messages|llm\.prompts)\.(\d{1,6})\.(?:content|message\.content|prompt\.text)"
)
_OUTPUT_ITEM: Final = re.compile(
    r"(?:gen_ai\.completion|llm\.output_messages|llm\.completions)\.(\d{1,6})\."
    r"(?:content|message\.content|completion\.text)"
)
_CONTEXT_ITEM: Final = re.compile(r"(?:retrieval|input)\.documents\.(\d{1,6})\.document\.content")
_INSIDE: Final = ("messages", "choices", "message", "parts", "content", "text")
_DEEPEST: Final = 8


@dataclass(frozen=True, slots=True)
class SpanText:
    """What one span carries; ids in hex, None or nothing where it carries none."""

    trace_id: str
    span_id: str
    input: str | None
    output: str | None
    context: tuple[str, ...]


def texts(request: ExportTraceServiceRequest, *, limit_chars: int = 65536) -> Iterator[SpanText]:
    """Texts of the spans that carry any; each text is cut at ``limit_chars`` characters."""
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                found = _of(span, limit_chars)
                if found is not None:
                    yield found


def _of(span: Span, limit_chars: int) -> SpanText | None:
    values = {item.key: item.value for item in span.attributes}
    for event in span.events:  # older SDKs: gen_ai.content.prompt and gen_ai.content.completion
        if event.name.startswith("gen_ai.content."):
            values |= {item.key: item.value for item in event.attributes}
    asked = _whole(values, _INPUTS) or _listed(values, _INPUT_ITEM)
    answered = _whole(values, _OUTPUTS) or _listed(values, _OUTPUT_ITEM)
    context = _whole(values, _CONTEXTS) or _listed(values, _CONTEXT_ITEM)
    if not (asked or answered or context):
        return None
    return SpanText(
        span.trace_id.hex(),
        span.span_id.hex(),
        "\n".join(asked)[:limit_chars] or None,
        "\n".join(answered)[:limit_chars] or None,
        tuple(text[:limit_chars] for text in context),
    )


def _whole(values: Mapping[str, AnyValue], keys: tuple[str, ...]) -> list[str]:
    for key in keys:
        if key in values:
            found = list(_strings(_plain(values[key])))
            if found:
                return found
    return []


def _listed(values: Mapping[str, AnyValue], pattern: re.Pattern[str]) -> list[str]:
    found = [(int(match[1]), key) for key in values if (match := pattern.fullmatch(key)) is not None]
    return [text for _, key in sorted(found) if (text := values[key].string_value)]


def _plain(value: AnyValue, depth: int = 0) -> Any:
    """A value as JSON would say it; a text that holds messages as JSON as what it holds."""
    kind = value.WhichOneof("value")
    if kind == "array_value" and depth < _DEEPEST:
        return [_plain(one, depth + 1) for one in value.array_value.values]
    if kind == "kvlist_value" and depth < _DEEPEST:
        return {item.key: _plain(item.value, depth + 1) for item in value.kvlist_value.values}
    if kind != "string_value":
        return None
    text: str = value.string_value
    if depth > 0 or text[:1] not in ("[", "{"):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if _are_messages(found) else text


def _are_messages(found: object) -> bool:
    """Whether JSON is messages or documents, not an answer that is JSON itself."""
    if isinstance(found, dict):
        said = "role" in found and ("content" in found or "parts" in found)
        return said or "messages" in found or "choices" in found
    return isinstance(found, list) and all(
        isinstance(one, dict) and any(key in one for key in ("role", "parts", "content")) for one in found
    )


def _strings(found: Any, depth: int = 0) -> Iterator[str]:
    """Texts of messages: what stands alone in a list, and what an object has under one of the usual keys."""
    if isinstance(found, str):
        if found:
            yield found
    elif depth < _DEEPEST and isinstance(found, list | dict):
        inner = found if isinstance(found, list) else [found[key] for key in _INSIDE if key in found]
        for one in inner:
            yield from _strings(one, depth + 1)
