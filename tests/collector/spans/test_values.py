"""Attribute values of the right and of every wrong type."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.spans.known import known_tables
from collector.spans.table import DEFAULT_PARSE, FINISH_REASONS, Parse
from goodwatch.core.request import AttributeNames
from goodwatch.signals.request_frames import PARTS
from tests.collector.spans.build import any_value, key_values, mapped, mapper, request, span

CHAT = ("gen_ai.operation.name", "chat")
#: a span of every source that is kept, by its name, scope and the attributes that recognise it
KEPT = [
    ("llm_request", "vllm.tracing.otel", [("gen_ai.latency.time_in_model_prefill", 1.0)]),
    (" Req a", "sglang server", [("rid", "a")]),
    ("Decode Scheduler", "sglang server", [("thread_label", "x"), ("tp_rank", 0)]),
    ("llm_request", "trtllm", []),
    ("http-request", "dynamo", []),
    ("engine.generate", "dynamo", []),
    ("gateway.request", "llm-d", []),
    ("litellm_request", "litellm", []),
    ("chat", "app", [CHAT]),
    ("x", "app", [("openinference.span.kind", "LLM")]),
    ("x", "app", [("llm.request.type", "chat")]),
    ("x", "app", [("langfuse.observation.type", "generation")]),
]
#: key and column → every way in which some table reads it
READS: dict[tuple[str, str], set[Parse]] = {}
for table in known_tables().values():
    for fields in (table.fields, *(one.fields for one in table.classes)):
        for column, reads in fields.items():
            for read in reads:
                READS.setdefault((read.key, column), set()).add(read.parse or DEFAULT_PARSE.get(column, Parse.TEXT))
for key in AttributeNames().tenant:
    READS.setdefault((key, "tenant"), set()).add(Parse.TEXT_OR_INT)
KEYS = sorted(
    {key for key, _ in READS} | {"tenant.id", "lora.name", "http.route", "sampling.probability", "goodwatch.form"}
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=30),
    st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(
        ["true", "True", "1", "stop", '["stop"]', '["length", null]', "[]", '{"input": 3}', '"2026-09-21T14:13:21Z"']
    ),
    st.binary(max_size=10),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(KEPT), st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=12))
def test_no_value_of_any_type_is_an_error(kept: tuple[str, str, list[Any]], attributes: list[tuple[str, Any]]) -> None:
    name, scope, marks = kept
    one = span(name, [*attributes, *marks], kind=2)
    done = mapper().parts(request(one, scope=scope), 1_790_000_010.0)
    assert done.frame.schema == PARTS
    assert done.frame.height + sum(done.dropped.values()) == done.spans == 1


@given(st.sampled_from(sorted(READS)), values)
def test_a_value_is_what_was_sent_or_nothing(read: tuple[str, str], sent: Any) -> None:
    key, column = read
    for name, scope, marks in KEPT:
        done = mapped(span(name, [(key, sent), *marks], kind=2), scope=scope)
        if key in dict(marks) or done.frame.is_empty():  # with that key it is of another class
            continue
        found = done.frame.row(0, named=True)[column]
        plain = mapped(span(name, marks, kind=2), scope=scope).frame.row(0, named=True)[column]
        if found != plain:
            allowed = [may_become(parse, key, sent) for parse in READS[read]]
            assert any(type(found) is type(one) and same(found, one) for one in allowed), (name, found, allowed)


def same(found: Any, right: Any) -> bool:
    return bool(found == (pytest.approx(right, rel=1e-12) if isinstance(right, float) else right))


def may_become(parse: Parse, key: str, sent: Any) -> Any:
    """What a value may become, by the words of otel-attributes; written without the product's readers."""
    text = sent if isinstance(sent, str) else None
    number = sent if isinstance(sent, int | float) and not isinstance(sent, bool) else None
    match parse:
        case Parse.TEXT:
            return text
        case Parse.TEXT_OR_INT:
            return str(sent) if isinstance(sent, int) and not isinstance(sent, bool) else text
        case Parse.COUNT:
            return None if text is None and number is None else int(float(sent))
        case Parse.SECONDS:
            return None if number is None else number * (1e-3 if key.endswith("_ms") else 1.0)
        case Parse.FLAG:
            return sent if isinstance(sent, bool) else text in ("true", "True", "1")
        case Parse.JSON_COUNT:
            return {'{"input": 3}': 3}.get(text or "")
        case Parse.JSON_SINCE_START:
            return {'"2026-09-21T14:13:21Z"': 1.0}.get(text or "")
        case Parse.FINISH:
            return FINISH_REASONS.get((text or "").lower())
        case Parse.FINISH_LIST:
            words = {'["stop"]': "stop", '["length", null]': "length"}
            return FINISH_REASONS.get(str(sent[0]).lower()) if isinstance(sent, list) else words.get(text or "")
        case Parse.ROLE:
            return (text or "").strip().partition(" ")[0].lower()
        case Parse.RATIO:
            return None


@pytest.mark.parametrize(
    ("key", "column", "sent", "found", "oddity"),
    [
        ("gen_ai.usage.input_tokens", "input_tokens", "26", 26, None),  # parse: number takes numeric text
        ("gen_ai.usage.input_tokens", "input_tokens", 26.0, 26, None),
        ("gen_ai.usage.input_tokens", "input_tokens", "26.0", 26, None),
        ("gen_ai.usage.input_tokens", "input_tokens", 26.5, None, "wrong_type"),
        ("gen_ai.usage.input_tokens", "input_tokens", "26 tokens", None, "wrong_type"),
        ("gen_ai.usage.input_tokens", "input_tokens", "١٢", None, "wrong_type"),  # digits of another script
        ("gen_ai.usage.input_tokens", "input_tokens", True, None, "wrong_type"),
        ("gen_ai.usage.input_tokens", "input_tokens", -1, None, "negative_count"),
        ("gen_ai.usage.input_tokens", "input_tokens", 2**62, None, "too_large"),
        ("gen_ai.usage.input_tokens", "input_tokens", math.nan, None, "not_finite"),
        ("gen_ai.usage.input_tokens", "input_tokens", None, None, None),  # an empty AnyValue is missing
        ("gen_ai.usage.input_tokens", "input_tokens", "", None, None),
        ("gen_ai.response.time_to_first_chunk", "ttft_s", 1, 1.0, None),  # JSON senders write 1.0 as 1
        ("gen_ai.response.time_to_first_chunk", "ttft_s", 0.0, 0.0, None),
        ("gen_ai.response.time_to_first_chunk", "ttft_s", "0.5", None, "wrong_type"),  # no text for a latency
        ("gen_ai.response.time_to_first_chunk", "ttft_s", -0.001, None, "negative_latency"),
        ("gen_ai.response.time_to_first_chunk", "ttft_s", math.inf, None, "not_finite"),
        ("gen_ai.response.time_to_first_chunk", "ttft_s", 1e9, None, "too_large"),
        ("gen_ai.request.stream", "stream", False, False, None),
        ("gen_ai.request.stream", "stream", "False", False, None),  # boolean texts
        ("gen_ai.request.stream", "stream", "yes", None, "wrong_type"),
        ("gen_ai.request.stream", "stream", 1, None, "wrong_type"),
        ("gen_ai.conversation.id", "session_id", 7, None, "wrong_type"),
        ("gen_ai.conversation.id", "session_id", "x" * 4097, None, "too_long"),
        ("gen_ai.conversation.id", "session_id", "é" * 2049, None, "too_long"),  # 4 KiB are bytes
        ("gen_ai.conversation.id", "session_id", "é" * 2048, "é" * 2048, None),
        ("gen_ai.response.finish_reasons", "finish_reason", ["stop", "length"], "stop", None),
        ("gen_ai.response.finish_reasons", "finish_reason", '["length"]', "length", None),  # a list as JSON text
        ("gen_ai.response.finish_reasons", "finish_reason", [], None, None),
        ("gen_ai.response.finish_reasons", "finish_reason", "[" * 4000, None, "bad_json"),
        ("gen_ai.response.finish_reasons", "finish_reason", "stop", None, "bad_json"),
        ("gen_ai.response.finish_reasons", "finish_reason", '{"a": 1}', None, "wrong_type"),
        ("gen_ai.response.finish_reasons", "finish_reason", [3], None, "wrong_type"),
        ("gen_ai.response.finish_reasons", "finish_reason", ["STOP"], "stop", None),  # Gemini's spelling
        ("gen_ai.response.finish_reasons", "finish_reason", ["tired"], None, "unknown_finish_reason"),
        ("llm.finish_reason", "finish_reason", "max_tokens", "length", None),
        ("tenant.id", "tenant", 7, "7", None),  # a name of the operator's own: its digits
        ("tenant.id", "tenant", 7.5, None, "wrong_type"),
    ],
)
def test_a_value_is_read_as_its_column_needs_it(
    key: str, column: str, sent: Any, found: Any, oddity: str | None
) -> None:
    done = mapped(span("chat m", [CHAT, (key, sent)]))
    assert done.frame[column].to_list() == [found]
    assert dict(done.oddities) == ({oddity: 1} if oddity else {})


def test_every_word_of_the_reference_for_a_finish_reason_is_known() -> None:
    words = {
        "stop": ["stop", "eos", "end_turn", "END_ID", "STOP_WORDS"],
        "length": ["length", "max_tokens", "LENGTH"],
        "tool": ["tool_calls", "tool_use", "function_call"],
        "filter": ["content_filter"],
        "abort": ["abort", "cancelled"],
        "timeout": ["timeout"],
        "error": ["error"],
        "partial": ["not_finished"],
    }  # otel-attributes, fields: finish_reason
    for reason, spellings in words.items():
        for word in spellings:
            has = [CHAT, ("gen_ai.response.finish_reasons", [word])]
            assert mapped(span("chat m", has)).frame["finish_reason"].to_list() == [reason]


def test_values_of_the_builder_are_what_sdks_send() -> None:
    assert [any_value(v).WhichOneof("value") for v in (1, True, 1.0, "a", b"b", [], {}, None)] == [
        "int_value", "bool_value", "double_value", "string_value", "bytes_value", "array_value", "kvlist_value", None,
    ]  # fmt: skip
    assert [kv.key for kv in key_values([("a", 1), ("a", 2)])] == ["a", "a"]
