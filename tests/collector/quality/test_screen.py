"""Checks over spans as SDKs send them."""

import json
from typing import Any

import pytest

from collector.quality.screen import CLEAR, screened
from tests.collector.spans.build import RECEIVED_S, SPAN, TRACE, request, span

LOOP = "and so it goes on without an end in sight, " * 20


def rows(**attributes: Any) -> list[dict[str, Any]]:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return screened(request(span("chat", named)), RECEIVED_S).frame.rows(named=True)


CHAT = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "llama"}


def messages(text: str) -> str:
    return json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])


def test_an_answer_in_which_nothing_is_found_gets_a_score_that_says_so() -> None:
    (row,) = rows(**CHAT, gen_ai__output__messages=messages("All is well."))
    assert (row["score"], row["label"], row["explanation_ref"]) == (1.0, CLEAR, None)
    assert (row["trace_id"], row["span_id"]) == (TRACE.hex(), SPAN.hex())
    assert (row["evaluator"], row["annotator"], row["model"]) == ("goodwatch.checks", "code", "llama")


def test_a_fault_is_named_with_its_place_and_no_word_of_the_answer() -> None:
    (row,) = rows(**CHAT, gen_ai__output__messages=messages("Once upon a time. " + LOOP))
    assert (row["score"], row["label"]) == (0.0, "repetition")
    assert row["explanation_ref"].startswith("repetition[")
    assert "goes on" not in str(row)


@pytest.mark.parametrize(
    "attributes",
    [
        {"openinference__span__kind": "TOOL", "output__value": LOOP},
        {"openinference__span__kind": "CHAIN", "output__value": LOOP, "llm__model_name": "llama"},
        {"traceloop__span__kind": "workflow", "traceloop__entity__output": LOOP},
        {"gen_ai__operation__name": "execute_tool", "output__value": LOOP},
        {"http__route": "/", "output__value": LOOP},
        CHAT,
    ],
)
def test_what_is_no_answer_of_a_model_is_not_checked(attributes: dict[str, Any]) -> None:
    assert rows(**attributes) == []


@pytest.mark.parametrize(
    "attributes",
    [
        {"openinference__span__kind": "LLM", "output__value": LOOP},
        {"openinference__span__kind": "LLM", "llm__output_messages__0__message__content": LOOP},
        {"llm__request__type": "chat", "gen_ai__completion__0__content": LOOP},
        {"langfuse__observation__type": "generation", "langfuse__observation__output": LOOP},
    ],
)
def test_every_convention_is_read(attributes: dict[str, Any]) -> None:
    assert [row["label"] for row in rows(**attributes)] == ["repetition"]


def test_an_empty_answer_is_found_where_the_span_says_that_it_ended() -> None:
    empty = {**CHAT, "gen_ai__response__finish_reasons": ["stop"]}
    assert [row["label"] for row in rows(**empty, gen_ai__output__messages=messages(""))] == ["empty"]
    assert [row["label"] for row in rows(**empty, gen_ai__completion__0__content="")] == ["empty"]
    assert rows(**CHAT, gen_ai__completion__0__content="") == []  # how it ended is not told
    call = json.dumps([{"role": "assistant", "content": "", "tool_calls": [{"name": "search"}]}])
    assert rows(**{**CHAT, "gen_ai__response__finish_reasons": ["tool_calls"]}, gen_ai__output__messages=call) == []
    assert rows(**empty, gen_ai__output__messages=call) == []


def test_json_is_expected_only_where_it_was_asked_for() -> None:
    asked = json.dumps({"temperature": 0, "response_format": {"type": "json_object"}})
    llm = {"openinference__span__kind": "LLM", "output__value": "Sure, here it is."}
    assert [row["label"] for row in rows(**llm)] == [CLEAR]
    assert [row["label"] for row in rows(**llm, llm__invocation_parameters=asked)] == ["invalid_json"]
    assert [row["label"] for row in rows(**CHAT, gen_ai__output__type="json", output__value="Sure.")] == [
        "invalid_json"
    ]
    # several choices are told as one text
    several = rows(**llm, llm__invocation_parameters=asked, gen_ai__request__choice__count=2)
    assert [row["label"] for row in several] == [CLEAR]


def test_a_text_as_long_as_a_limit_of_attributes_says_nothing_by_its_end() -> None:
    block = "```python\n" + "".join(f"x{n} = {n}  # a comment\n" for n in range(200))
    llm = {"openinference__span__kind": "LLM"}
    assert [row["label"] for row in rows(**llm, output__value="Code:\n" + block[:1017])] == ["truncated"]
    assert [row["label"] for row in rows(**llm, output__value=("Code:\n" + block)[:1024])] == [CLEAR]


def test_spans_without_texts_cost_nothing_and_give_nothing() -> None:
    found = screened(request(span("llm_request", {"gen_ai.usage.prompt_tokens": 5})), RECEIVED_S)
    assert found.frame.is_empty()
    assert found.texts == ()


def test_the_texts_are_handed_on() -> None:
    found = screened(request(span("chat", {"input.value": "q", "output.value": "a"})), RECEIVED_S)
    assert [(one.input, one.output) for one in found.texts] == [("q", "a")]
