"""Prompts, answers and documents out of every convention that carries them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.spans.texts import SpanText, texts
from tests.collector.spans.build import SPAN, TRACE, key_values, request, span

ASKED = [{"role": "system", "parts": [{"type": "text", "content": "Be short."}]}, {"role": "user", "content": "Hi?"}]
ANSWERED = [{"role": "assistant", "parts": [{"type": "text", "content": "Hello."}], "finish_reason": "stop"}]


def only(attributes: dict[str, Any], **options: Any) -> SpanText:
    (found,) = texts(request(span("x", attributes)), **options)
    return found


@pytest.mark.parametrize(
    "has",
    [
        {"gen_ai.input.messages": json.dumps(ASKED), "gen_ai.output.messages": json.dumps(ANSWERED)},
        {"gen_ai.input.messages": ASKED, "gen_ai.output.messages": ANSWERED},  # structured values
        {"input.value": json.dumps({"messages": ASKED}), "output.value": "Hello."},
        {
            "llm.input_messages.0.message.content": "Be short.",
            "llm.input_messages.1.message.content": "Hi?",
            "llm.output_messages.0.message.content": "Hello.",
        },
        {
            "gen_ai.prompt.0.content": "Be short.",
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.1.content": "Hi?",
            "gen_ai.completion.0.content": "Hello.",
            "gen_ai.completion.0.finish_reason": "stop",
        },
        {"gen_ai.prompt": "Be short.\nHi?", "gen_ai.completion": "Hello."},
        {"traceloop.entity.input": "Be short.\nHi?", "traceloop.entity.output": "Hello."},
        {"langfuse.observation.input": json.dumps(ASKED), "langfuse.observation.output": json.dumps(ANSWERED[0])},
    ],
)
def test_a_conversation_is_the_same_in_every_convention(has: dict[str, Any]) -> None:
    assert only(has) == SpanText(TRACE.hex(), SPAN.hex(), "Be short.\nHi?", "Hello.", ())


def test_events_of_older_sdks_carry_the_texts() -> None:
    events = [
        Span.Event(name="gen_ai.content.prompt", attributes=key_values({"gen_ai.prompt": "Hi?"})),
        Span.Event(name="gen_ai.content.completion", attributes=key_values({"gen_ai.completion": "Hello."})),
    ]
    (found,) = texts(request(span("x", events=events)))
    assert (found.input, found.output) == ("Hi?", "Hello.")


def test_an_answer_that_is_json_itself_is_left_as_it_is() -> None:
    answer = '{"text":  "a", "items": [1]}'
    assert only({"output.value": answer}).output == answer
    assert only({"output.value": '[{"a": 1}]'}).output == '[{"a": 1}]'
    assert only({"output.value": '{"broken'}).output == '{"broken'


def test_retrieved_documents_are_the_context() -> None:
    flat = {f"retrieval.documents.{n}.document.content": f"d{n}" for n in (10, 2, 0)}
    assert only(flat | {"retrieval.documents.2.document.score": 0.5}).context == ("d0", "d2", "d10")
    as_json = json.dumps([{"id": 1, "content": "a"}, {"id": 2, "content": "b"}])
    assert only({"gen_ai.retrieval.documents": as_json}).context == ("a", "b")


def test_a_text_is_cut_at_its_limit() -> None:
    assert only({"input.value": "x" * 100}, limit_chars=10).input == "x" * 10


def test_a_span_without_texts_gives_nothing() -> None:
    assert list(texts(request(span("x", {"gen_ai.usage.input_tokens": 3, "input.value": ""})))) == []


inner = st.recursive(
    st.none() | st.text(max_size=5) | st.integers(0, 9) | st.booleans(),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "parts", "a"]), one),
    max_leaves=8,
)


@given(inner | inner.map(json.dumps) | st.sampled_from(["[" * 5000, "{", "[NaN]"]))
def test_no_content_of_any_shape_is_an_error(value: Any) -> None:
    for found in texts(request(span("x", {"gen_ai.input.messages": value, "output.value": value}))):
        assert found.input is None or isinstance(found.input, str)
