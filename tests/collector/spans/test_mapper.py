"""Identity, time, status, weights, resources and the bounds of the mapper."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.spans.limits import SpanLimits
from goodwatch.core.errors import ConfigError
from goodwatch.core.request import AttributeNames, Origin
from goodwatch.signals.request_frames import PARTS
from tests.collector.spans.build import (
    PARENT,
    RECEIVED_S,
    SPAN,
    START_NS,
    TRACE,
    mapped,
    mapper,
    request,
    row,
    span,
    told,
)

CHAT = {"gen_ai.operation.name": "chat"}
SECOND = 10**9


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ({"trace_id": b""}, "bad_trace_id"),
        ({"trace_id": bytes(16)}, "bad_trace_id"),
        ({"trace_id": TRACE[:8]}, "bad_trace_id"),
        ({"trace_id": TRACE * 2}, "bad_trace_id"),  # hex that was taken for base64
        ({"span_id": b""}, "bad_span_id"),
        ({"span_id": bytes(8)}, "bad_span_id"),
        ({"span_id": SPAN[:4]}, "bad_span_id"),
    ],
)
def test_a_span_without_a_usable_id_is_refused_and_the_rest_is_kept(ids: dict[str, bytes], reason: str) -> None:
    done = mapped(span("chat m", CHAT, **ids), span("chat m", CHAT))
    assert (done.spans, done.frame.height, dict(done.refused)) == (2, 1, {reason: 1})


def test_a_trace_id_with_64_random_bits_is_valid() -> None:
    assert row(span("x", CHAT, trace_id=bytes(8) + TRACE[:8]))["trace_id"] == "0" * 16 + "ab" * 8


@pytest.mark.parametrize(("parent", "found"), [(b"", None), (bytes(8), None), (PARENT, PARENT.hex())])
def test_a_parent_of_zeros_is_none(parent: bytes, found: str | None) -> None:
    assert row(span("x", CHAT, parent_span_id=parent))["parent_id"] == found


def test_a_parent_id_that_is_none_is_not_used_and_counted() -> None:
    done = mapped(span("x", CHAT, parent_span_id=b"123"))
    assert (done.frame["parent_id"].to_list(), dict(done.oddities)) == ([None], {"bad_parent_id": 1})


@pytest.mark.parametrize(
    ("start", "end", "told_s", "oddities"),
    [
        (0, 2 * SECOND, (0.0, 2.0, 2.0), set()),
        (0, 0, (0.0, 0.0, 0.0), set()),
        (2 * SECOND, 0, (2.0, None, None), {"end_before_start"}),
        (0, -START_NS, (0.0, None, None), {"no_time"}),  # end 0: never ended
        (-START_NS, 0, (None, 0.0, None), {"no_time"}),
        # A clock three days behind: where the span lies is not known, how long it lasted is.
        (-3 * 86400 * SECOND, -3 * 86400 * SECOND + SECOND, (None, None, 1.0), {"far_time"}),
        (3600 * SECOND, 3601 * SECOND, (None, None, 1.0), {"far_time"}),
        # Start in microseconds, end in nanoseconds: nothing but the end can be true.
        (START_NS // 1000 - START_NS, SECOND, (None, 1.0, None), {"far_time"}),
    ],
)
def test_times_that_cannot_be_true_are_not_used(
    start: int, end: int, told_s: tuple[float | None, float | None, float | None], oddities: set[str]
) -> None:
    done = mapped(span("x", CHAT, start_time_unix_nano=START_NS + start, end_time_unix_nano=START_NS + end))
    started_s, ended_s, e2e_s = done.frame.select("started_s", "ended_s", "e2e_s").row(0)
    began_s = START_NS / 1e9
    assert (
        None if started_s is None else started_s - began_s,
        None if ended_s is None else ended_s - began_s,
        e2e_s,
    ) == told_s
    assert set(done.oddities) == oddities


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_any_two_instants_are_taken(start: int, end: int) -> None:
    done = mapped(span("x", CHAT, start_time_unix_nano=start, end_time_unix_nano=end))
    found = done.frame.row(0, named=True)
    for at_s in (found["started_s"], found["ended_s"]):
        assert at_s is None or RECEIVED_S - 2 * 86400 <= at_s <= RECEIVED_S + 600
    assert found["e2e_s"] is None or 0 <= found["e2e_s"] <= 7 * 86400


@pytest.mark.parametrize(("code", "status"), [(0, "unset"), (1, "ok"), (2, "error")])
def test_the_status_is_a_word(code: int, status: str) -> None:
    assert row(span("x", CHAT, status={"code": code}))["status"] == status


def test_a_status_of_tomorrow_is_unknown() -> None:
    done = mapped(span("x", CHAT, status={"code": 7}))
    assert (done.frame["status"].to_list(), dict(done.oddities)) == ([None], {"unknown_status": 1})


# Keys


def test_of_a_key_that_is_there_twice_the_last_counts_and_it_is_counted() -> None:
    done = mapped(span("x", [*CHAT.items(), ("gen_ai.request.model", "a"), ("gen_ai.request.model", "b")]))
    assert (done.frame["model"].to_list(), dict(done.oddities)) == (["b"], {"duplicate_key": 1})


def test_a_key_by_index_into_a_dictionary_is_not_used_and_counted() -> None:
    one = span("x", CHAT)
    one.attributes.add(key_strindex=3).value.string_value = "a"
    assert dict(mapped(one).oddities) == {"empty_key": 1}


def test_more_attributes_than_allowed_are_not_read_and_counted() -> None:
    done = mapped(span("x", CHAT | {"a": 1, "gen_ai.request.model": "m"}), limits=SpanLimits(attributes=2))
    assert (done.frame["model"].to_list(), dict(done.oddities)) == ([None], {"too_many_attributes": 1})


def test_thousands_of_sequences_of_keys_do_not_pile_up() -> None:
    one = mapper()
    spans = [span("x", CHAT | {f"key.{n}": n}, span_id=n.to_bytes(8, "big")) for n in range(1, 3000)]
    assert one.parts(request(*spans), RECEIVED_S).frame.height == 2999
    assert len(one._layouts) <= 1024


@given(st.lists(st.tuples(st.sampled_from(["a", "gen_ai.request.model", "rid", ""]), st.text(max_size=3)), max_size=9))
def test_what_a_mapper_has_seen_before_changes_nothing(attributes: list[tuple[str, str]]) -> None:
    pairs = [*attributes, *CHAT.items()]
    used = mapper()
    for size in range(len(pairs)):
        used.parts(request(span("x", pairs[size:])), RECEIVED_S)
    again, fresh = (one.parts(request(span("x", pairs)), RECEIVED_S) for one in (used, mapper()))
    assert again.frame.equals(fresh.frame)
    assert again.oddities == fresh.oddities


# Sums that contradict themselves


def test_more_cached_than_input_tokens_is_another_convention_and_not_used() -> None:
    has = CHAT | {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.cache_read.input_tokens": 6}
    done = mapped(span("x", has | {"gen_ai.usage.output_tokens": 5, "gen_ai.usage.reasoning.output_tokens": 6}))
    assert done.frame.select("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens").row(0) == (
        5,
        None,
        5,
        None,
    )
    assert dict(done.oddities) == {"cached_above_input": 1, "reasoning_above_output": 1}


# Sampling: otel-traces 6


@pytest.mark.parametrize(
    ("tracestate", "weight"),
    [
        ("ot=th:0", 1.0),
        ("ot=th:8", 2.0),
        ("ot=th:c", 4.0),
        ("vendor=a,ot=rv:1234567890abcd;th:c", 4.0),
        ("ot=th:fd70a4", pytest.approx(100.0001, rel=1e-6)),
        ("ot=rv:1234567890abcd", None),
        ("rot=th:8", None),
        ("", None),
    ],
)
def test_a_tracestate_tells_how_many_requests_a_span_stands_for(tracestate: str, weight: Any) -> None:
    found = row(span("x", CHAT, trace_state=tracestate))
    assert (found["weight"], found["weight_told"]) == (weight, weight is not None)


@pytest.mark.parametrize(
    "tracestate", ["ot=th:ffffffffffffff", "ot=th:", "ot=th:xyz", "ot=th:123456789012345", "ot=th:-1", "ot=th:FD"]
)
def test_a_threshold_that_cannot_be_read_is_no_weight(tracestate: str) -> None:
    done = mapped(span("x", CHAT, trace_state=tracestate))
    assert (done.frame["weight"].to_list(), dict(done.oddities)) == ([None], {"bad_tracestate": 1})


def test_the_span_knows_its_weight_better_than_its_attribute_and_both_than_the_configuration() -> None:
    origins = (Origin(sampling_ratio=0.5),)
    has = CHAT | {"sampling.probability": 0.25}
    assert told(row(span("x", CHAT), origins=origins), "weight", "weight_told") == {"weight": 2.0, "weight_told": False}
    assert told(row(span("x", has), origins=origins), "weight", "weight_told") == {"weight": 4.0, "weight_told": True}
    assert row(span("x", has, trace_state="ot=th:0"), origins=origins)["weight"] == 1.0
    by_resource = row(span("x", CHAT), resource={"sampling.probability": 0.1}, origins=origins)
    assert told(by_resource, "weight", "weight_told") == {"weight": 10.0, "weight_told": True}


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1.5])
def test_a_sampling_ratio_that_is_none_is_no_weight(ratio: float) -> None:
    done = mapped(span("x", CHAT | {"sampling.probability": ratio}))
    assert (done.frame["weight"].to_list(), dict(done.oddities)) == ([None], {"bad_ratio": 1})


# Resources and the operator's names


def test_a_service_that_nobody_named_has_no_name() -> None:
    found = row(span("x", CHAT), resource={"service.name": "unknown_service:python"})
    assert told(found, "origin", "service") == {"origin": "unknown_service:python", "service": None}


def test_the_first_origin_that_matches_says_service_model_and_target() -> None:
    origins = (
        Origin(match=(("service.name", "vllm-a"), ("k8s.pod.name", "p")), service="never"),
        Origin(match=(("service.name", "vllm-a"),), service="chat", model="m", target="a:8000"),
        Origin(service="rest"),
    )
    found = row(
        span("llm_request", {}, kind=2), scope="vllm.tracing.otel", resource={"service.name": "vllm-a"}, origins=origins
    )
    assert told(found, "origin", "service", "model", "target") == {
        "origin": "vllm-a",
        "service": "chat",
        "model": "m",
        "target": "a:8000",
    }
    assert row(span("x", CHAT), resource={"service.name": "vllm-b"}, origins=origins)["service"] == "rest"


def test_a_model_that_the_span_tells_is_not_replaced() -> None:
    assert row(span("x", CHAT | {"gen_ai.request.model": "a"}), origins=(Origin(model="b"),))["model"] == "a"


def test_the_operators_names_are_looked_for_on_the_span_then_on_its_resource() -> None:
    names = AttributeNames(tenant=("x.tenant", "y.tenant"), route=("http.route",), form=("kind",), adapter=("lora",))
    has = CHAT | {"y.tenant": "second", "http.route": "/v1"}
    found = row(span("x", has), resource={"x.tenant": "of resource", "kind": "chat", "lora": 5}, names=names)
    assert told(found, "tenant", "route", "form", "adapter") == {
        "tenant": "second",
        "route": "/v1",
        "form": "chat",
        "adapter": "5",
    }


def test_a_person_is_kept_as_a_digest_alone() -> None:
    names = AttributeNames(tenant=("user.id",))
    digest = "sha256:2bd806c97f0e00af"  # printf alice | sha256sum
    assert row(span("x", CHAT | {"user.id": "alice"}), names=names)["tenant"] == digest
    assert row(span("x", CHAT), resource={"user.id": "alice"}, names=names)["tenant"] == digest


def test_an_attribute_with_prompts_cannot_be_a_tenant() -> None:
    with pytest.raises(ConfigError, match=re.escape("tenant: 'input.value' holds prompts")):
        mapper(names=AttributeNames(tenant=("input.value",)))


# The tree


def test_a_parent_that_was_dropped_is_passed_over() -> None:
    ids = [bytes([n]) * 8 for n in range(1, 5)]
    agent = span("agent", {"gen_ai.operation.name": "invoke_agent"}, span_id=ids[0], parent_span_id=PARENT)
    client = span("POST", {}, span_id=ids[1], parent_span_id=ids[0])
    call = span("chat", CHAT, span_id=ids[2], parent_span_id=ids[1])
    inner = span("chat", CHAT, span_id=ids[3], parent_span_id=ids[2])
    done = mapped(inner, call, client, agent)
    assert done.frame.select("span_id", "parent_id").rows() == [
        (ids[3].hex(), ids[2].hex()),
        (ids[2].hex(), PARENT.hex()),
    ]


def test_dropped_spans_in_a_circle_end_the_search() -> None:
    a, b = b"a" * 8, b"b" * 8
    loop = [span("x", span_id=a, parent_span_id=b), span("x", span_id=b, parent_span_id=a)]
    assert mapped(*loop, span("chat", CHAT, parent_span_id=a)).frame.height == 1


def test_the_same_span_id_in_another_trace_is_another_span() -> None:
    dropped = span("x", span_id=b"a" * 8, trace_id=b"t" * 16, parent_span_id=PARENT)
    done = mapped(dropped, span("chat", CHAT, parent_span_id=b"a" * 8))
    assert done.frame["parent_id"].to_list() == [(b"a" * 8).hex()]


# The whole


def test_nothing_in_gives_an_empty_frame() -> None:
    done = mapped()
    assert (done.spans, done.frame.schema, done.frame.height) == (0, PARTS, 0)


@pytest.mark.parametrize("count", [1, 48, 49, 600])
def test_few_and_many_spans_give_the_same_rows(count: int) -> None:
    spans = [
        span("chat m", CHAT | {"gen_ai.usage.input_tokens": n}, span_id=n.to_bytes(8, "big"))
        for n in range(1, count + 1)
    ]
    frame = mapped(*spans).frame
    assert frame.schema == PARTS
    assert frame["input_tokens"].to_list() == list(range(1, count + 1))
    assert frame["output_tokens"].null_count() == count


@given(
    st.lists(
        st.builds(
            span,
            st.sampled_from(["llm_request", "decode_loop", "prefill_waiting", " Req a", "http-request", "", "x"]),
            st.dictionaries(
                st.sampled_from(["rid", "thread_label", "gen_ai.operation.name"]), st.just("chat"), max_size=3
            ),
            trace_id=st.sampled_from([TRACE, b"", bytes(16)]),
            span_id=st.binary(max_size=9),
        ),
        max_size=8,
    ),
    st.sampled_from(["sglang server", "vllm.tracing.otel", "fastapi", "litellm", ""]),
)
def test_every_span_is_kept_dropped_or_refused(spans: list[Any], scope: str) -> None:
    done = mapped(*spans, scope=scope)
    assert done.spans == len(spans) == done.frame.height + sum(done.refused.values()) + sum(done.dropped.values())


def test_prompts_and_answers_are_in_no_row() -> None:
    secret = "my secret"
    has = {
        "gen_ai.prompt": secret,
        "gen_ai.prompt.0.content": secret,
        "gen_ai.completion.0.content": secret,
        "gen_ai.input.messages": secret,
        "gen_ai.system_instructions": secret,
        "input.value": secret,
        "output.value": secret,
        "llm.input_messages.0.message.content": secret,
        "traceloop.entity.input": secret,
        "langfuse.observation.output": secret,
        "llm.invocation_parameters": secret,
        "db.query.text": secret,
    }
    frame = mapped(span("chat m", CHAT | has)).frame
    assert secret not in str(frame.rows())
