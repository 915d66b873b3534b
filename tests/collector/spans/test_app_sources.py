"""Spans of application SDKs made by hand after their conventions; the source stands beside each right value."""

from typing import Any

import pytest

from tests.collector.spans.build import START_NS, mapped, row, span, told

CHAT = {"gen_ai.operation.name": "chat"}
OPENINFERENCE = {"openinference.span.kind": "LLM"}
LANGFUSE = {"langfuse.observation.type": "generation"}


@pytest.mark.parametrize(
    ("source", "has"),
    [
        ("otel_genai", CHAT),
        ("otel_genai", {"gen_ai.operation.name": "embeddings"}),
        ("openinference", OPENINFERENCE),
        ("openinference", {"openinference.span.kind": "EMBEDDING"}),
        ("openllmetry", {"llm.request.type": "completion"}),
        ("openllmetry", {"llm.request.type": "rerank"}),
        ("langfuse", LANGFUSE),
    ],
)
def test_a_call_of_a_model_is_known_by_its_kind(source: str, has: dict[str, str]) -> None:
    found = row(span("anything", has))
    assert told(found, "kind", "vantage", "source", "e2e_s", "operation") == {
        "kind": "client_call",
        "vantage": "client",
        "source": source,
        "e2e_s": 2.0,
        "operation": next(iter(has.values())),
    }


def test_openlit_is_told_by_its_scope() -> None:
    has = CHAT | {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.prompt_tokens_details.cached_tokens": 9}
    found = row(span("chat m", has), scope="openlit.otel.tracing")
    assert told(found, "source", "cached_tokens") == {"source": "openlit", "cached_tokens": 9}


@pytest.mark.parametrize(
    "has",
    [
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 900},
        {"openinference.span.kind": "CHAIN", "llm.token_count.prompt": 900},
        {"traceloop.span.kind": "workflow"},
    ],
)
def test_a_container_repeats_what_its_calls_have_and_is_dropped(has: dict[str, Any]) -> None:
    assert dict(mapped(span("agent", has)).dropped) == {"container": 1}


def test_a_call_that_is_also_called_a_task_is_a_call() -> None:
    assert row(span("x", {"traceloop.span.kind": "task", "llm.request.type": "chat"}))["kind"] == "client_call"


# otel-attributes, fields: sources in the order in which they are wanted
ORDER: dict[str, list[str]] = {
    "input_tokens": ["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"],
    "output_tokens": ["gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"],
    "cached_tokens": [
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
        "gen_ai.usage.prompt_tokens_details.cached_tokens",
    ],
    "reasoning_tokens": [
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "llm.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
        "ai.usage.reasoningTokens",
    ],
    "max_tokens": ["gen_ai.request.max_tokens", "gen_ai.request.max_completion_tokens"],
    "choices": ["gen_ai.request.choice.count", "gen_ai.request.n"],
    "model": [
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.response.model_name",
        "llm.request.model_name",
        "llm.model_name",
    ],
    "session_id": ["gen_ai.conversation.id", "session.id", "langsmith.trace.session_id"],
    "response_id": ["gen_ai.response.id", "llm.response.id"],
    "stream": ["gen_ai.request.stream", "gen_ai.is_streaming", "llm.is_streaming"],
    "finish_reason": [
        "gen_ai.response.finish_reasons",
        "llm.finish_reason",
        "gen_ai.response.finish_reason",
        "gen_ai.completion.0.finish_reason",
        "llm.response.finish_reason",
        "llm.response.stop_reason",
    ],
}


@pytest.mark.parametrize("column", ORDER)
@pytest.mark.parametrize("kind", [CHAT, OPENINFERENCE, LANGFUSE], ids=lambda one: next(iter(one)))
def test_of_several_keys_the_most_wanted_that_is_usable_counts(column: str, kind: dict[str, str]) -> None:
    keys = ORDER[column]
    if column == "finish_reason":
        values: list[Any] = [["stop"], "length", "tool_calls", "content_filter", "abort", "error"]
        right = ["stop", "length", "tool", "filter", "abort", "error"]
    elif column == "stream":
        values = right = [True, False, True]
    else:
        values = right = [
            f"v{i}" if column in ("model", "session_id", "response_id") else i + 1 for i in range(len(keys))
        ]
    pairs = dict(zip(keys, values, strict=True))
    for position, key in enumerate(keys):
        assert row(span("x", kind | dict(reversed(pairs.items()))))[column] == right[position]
        done = mapped(span("x", kind | pairs | {key: b"not usable"}))
        expected = right[position + 1] if position + 1 < len(keys) else None
        assert done.frame[column].to_list() == [expected]
        assert dict(done.oddities) == {"wrong_type": 1}
        del pairs[key]


def test_a_zero_of_an_sdk_means_that_nobody_told_it() -> None:
    # otel-attributes, zero_means_missing_for: app_sdk_tokens (streams without usage)
    has = CHAT | {"gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": "0", "gen_ai.usage.prompt_tokens": 5}
    assert told(row(span("x", has)), "input_tokens", "output_tokens") == {"input_tokens": 5, "output_tokens": None}


def test_no_cached_token_is_a_zero_that_was_told() -> None:
    has = CHAT | {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.cache_read.input_tokens": 0}
    assert row(span("x", has))["cached_tokens"] == 0


def test_the_first_chunk_is_the_clients_clock() -> None:
    found = row(span("chat m", CHAT | {"gen_ai.response.time_to_first_chunk": 0.75}))
    assert told(found, "ttft_s", "vantage") == {"ttft_s": 0.75, "vantage": "client"}


# Langfuse: usage and instants are JSON texts


def test_langfuse_writes_usage_as_json() -> None:
    has = LANGFUSE | {
        "langfuse.observation.usage_details": '{"prompt_tokens": 100, "completion_tokens": 20, "total": 120}',
        "langfuse.observation.model.name": "m",
    }
    assert told(row(span("x", has)), "input_tokens", "output_tokens", "model") == {
        "input_tokens": 100,
        "output_tokens": 20,
        "model": "m",
    }


@pytest.mark.parametrize(
    ("text", "ttft_s"),
    [
        # START_NS is 2026-09-21T14:13:20Z (date -u -d @1790000000)
        ('"2026-09-21T14:13:20.250Z"', 0.25),
        ('"2026-09-21T16:13:20.25+02:00"', 0.25),
    ],
)
def test_langfuse_tells_when_the_first_token_came(text: str, ttft_s: float) -> None:
    assert row(span("x", LANGFUSE | {"langfuse.observation.completion_start_time": text}))["ttft_s"] == ttft_s


@pytest.mark.parametrize(
    ("text", "oddity"),
    [
        ('"2026-09-21T14:13:20.250"', "bad_time"),  # no zone
        ('"soon"', "bad_time"),
        ("17", "bad_time"),
        ("2026-09-21T14:13:20Z", "bad_json"),
        ('"2026-09-21T14:13:19Z"', "negative_latency"),
        ('"2027-09-21T14:13:19Z"', "too_large"),
    ],
)
def test_an_instant_that_cannot_be_read_gives_no_latency(text: str, oddity: str) -> None:
    done = mapped(span("x", LANGFUSE | {"langfuse.observation.completion_start_time": text}))
    assert done.frame["ttft_s"].to_list() == [None]
    assert dict(done.oddities) == {oddity: 1}


def test_the_beginning_must_be_known_to_tell_what_came_after() -> None:
    has = LANGFUSE | {"langfuse.observation.completion_start_time": '"2026-09-21T14:13:20.250Z"'}
    assert START_NS // 10**9 == 1_790_000_000
    assert mapped(span("x", has, start_time_unix_nano=0)).frame["ttft_s"].to_list() == [None]
