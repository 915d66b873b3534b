"""Traces that hold more than one span of a request, and more than one request. Source: otel-traces §0, §1, §8."""

from typing import Any

import pytest

from tests.signals.request_parts import engine, outer
from tests.signals.test_assemble import assembled, one


def test_choices_of_vllm_are_one_request() -> None:
    """n = 2: two spans with one request id, each with the whole prompt (otel-traces §0, 6)."""
    fact = one(
        engine("a", request_id="chatcmpl-1", choices=1, output_tokens=10, ttft_s=0.25),
        engine("b", request_id="chatcmpl-1", choices=1, output_tokens=11, ttft_s=0.5, e2e_s=1.5, ended_s=101.5),
    )
    assert (fact["input_tokens"], fact["output_tokens"], fact["choices"]) == (5, 21, 2)
    assert (fact["engine_ttft_s"], fact["engine_e2e_s"]) == (0.25, 1.5)
    assert fact["engine_tpot_s"] is None  # never from an output count that is summed over choices


def test_choices_of_older_vllm_have_ids_with_an_index() -> None:
    fact = one(engine("a", request_id="0_chatcmpl-1"), engine("b", request_id="1_chatcmpl-1"))
    assert (fact["request_id"], fact["output_tokens"], fact["choices"]) == ("chatcmpl-1", 8, 2)


def test_choices_of_sglang_come_with_a_warm_up() -> None:
    """n + 1 spans with ids of their own below one parent, the first without usage (otel-traces §1.2)."""
    common: dict[str, Any] = {"source": "sglang", "choices": 2}
    warm = engine("w", request_id="w", output_tokens=None, input_tokens=None, ended_s=100.1, e2e_s=0.1, **common)
    two = [engine(i, request_id=i, started_s=100.2, ended_s=101.2, **common) for i in ("a", "b")]
    fact = one(warm, *two)
    assert (fact["input_tokens"], fact["output_tokens"], fact["choices"], fact["parts"]) == (5, 8, 2, 3)
    third = [engine(i, request_id=i, started_s=105.0, ended_s=106.0, **common) for i in ("y", "z")]
    again = engine("x", request_id="x", output_tokens=None, started_s=104.0, ended_s=104.1, e2e_s=0.1, **common)
    assert [f["output_tokens"] for f in assembled(warm, *two, again, *third)] == [8, 8]


def test_requests_of_sglang_below_one_parent_are_not_choices() -> None:
    assert len(assembled(*(engine(i, request_id=i, source="sglang", choices=1) for i in ("a", "b")))) == 2


def test_prompts_of_one_completions_call_are_requests_to_the_engine_and_one_to_the_gateway() -> None:
    prompts = [engine(str(i), request_id=f"cmpl-x-{i}", input_tokens=5 + i) for i in range(2)]
    assert len(assembled(*prompts)) == 2
    fact = one(outer("gateway", "g", 99.0, 102.0), *prompts)
    assert (fact["input_tokens"], fact["output_tokens"], fact["engine_tpot_s"]) == (11, 8, None)


def legs(**decode: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """vLLM's prefill leg (one output token, 0.25 s) and its decode leg 0.1 s later on another instance."""
    prefill = engine("p", instance="1", max_tokens=1, output_tokens=1, ended_s=100.25, e2e_s=0.25, ttft_s=0.25,
                     queue_s=0.05, prefill_s=0.2, parent_id="x", request_id="chatcmpl-1")  # fmt: skip
    plain = {
        "instance": "2",
        "max_tokens": 50,
        "output_tokens": 9,
        "started_s": 100.35,
        "ended_s": 101.35,
        "e2e_s": 1.0,
    }
    return prefill, engine("d", **{**plain, "ttft_s": 0.2, "queue_s": 0.1, "parent_id": "y", "kv_transfer_s": 0.01,
                           "request_id": "chatcmpl-1", **decode})  # fmt: skip


@pytest.mark.parametrize("above", [[], [outer("gateway", "g", 99.0, 103.0)]], ids=["alone", "below a gateway"])
def test_two_legs_are_one_request_and_its_tokens_are_those_of_the_decode_leg(above: list[dict[str, Any]]) -> None:
    fact = one(*above, *legs())
    assert (fact["output_tokens"], fact["input_tokens"], fact["span_id"]) == (9, 5, "d")
    assert fact["engine_ttft_s"] == pytest.approx(0.25 + 0.2)  # the prefill leg came first
    assert fact["engine_e2e_s"] == pytest.approx(0.25 + 1.0)
    assert fact["engine_tpot_s"] == pytest.approx((1.0 - 0.2) / 8)
    assert fact["engine_queue_s"] == pytest.approx(0.05 + 0.1)
    assert (fact["engine_prefill_s"], fact["engine_kv_transfer_s"]) == (0.2, 0.01)


def test_legs_that_run_together_are_not_added_up() -> None:
    """SGLang hands both legs the request at once; the decode leg waits for the cache inside its own TTFT."""
    prefill, decode = legs(started_s=100.0, ended_s=101.0, role="decode")
    assert one(prefill | {"role": "prefill"}, decode)["engine_ttft_s"] == 0.2


@pytest.mark.parametrize(
    "other",
    [{"request_id": "chatcmpl-2", "instance": "1"}, {"request_id": "chatcmpl-2", "input_tokens": 77}],
    ids=["same engine", "another prompt"],
)
def test_an_agent_s_one_token_question_is_no_prefill_leg(other: dict[str, Any]) -> None:
    assert len(assembled(*legs(**other))) == 2


def test_a_request_for_one_token_alone_is_a_request() -> None:
    assert one(engine(max_tokens=1, output_tokens=1))["output_tokens"] == 1


def test_an_agent_s_calls_are_requests_of_their_own() -> None:
    """Three calls in one trace, each with an engine span whose parent was not kept: told apart by time."""
    rows = []
    for i in range(3):
        rows.append(outer("client", f"k{i}", 100.0 + 2 * i, 101.9 + 2 * i))
        rows.append(engine(f"e{i}", started_s=100.2 + 2 * i, ended_s=101.2 + 2 * i, output_tokens=10 + i))
    found = assembled(*rows)
    assert [(f["fact_id"], f["span_id"], f["output_tokens"]) for f in found] == [
        ("k0", "e0", 10), ("k1", "e1", 11), ("k2", "e2", 12),
    ]  # fmt: skip


def test_a_call_that_holds_calls_is_their_container() -> None:
    """A tool loop's span may repeat the summed usage of its calls (otel-attributes, app_container)."""
    loop = outer("client", "loop", 99.0, 110.0, output_tokens=30)
    calls = [
        outer("client", f"k{i}", 100.0 + 2 * i, 101.0 + 2 * i, parent_id="loop", output_tokens=10) for i in range(3)
    ]
    assert [f["output_tokens"] for f in assembled(loop, *calls)] == [10, 10, 10]


def test_a_call_that_holds_one_call_is_that_call() -> None:
    """Two instrumentations of one SDK."""
    assert one(outer("client", "k", 99.0, 102.0), outer("client", "i", 99.1, 101.9, parent_id="k"))["fact_id"] == "k"


def test_engine_spans_of_calls_at_once_are_nobody_s() -> None:
    """Two calls at the same time and no link: whose engine span is whose cannot be told, so its numbers are not used."""
    calls = [outer("client", f"k{i}", 100.0 + i / 10, 102.0 + i / 10, output_tokens=3) for i in range(2)]
    found = assembled(*calls, engine("e", started_s=100.5, ended_s=101.5))
    assert [f["fact_id"] for f in found] == ["k0", "k1"]
    assert [f["engine_e2e_s"] for f in found] == [None, None]
    assert sum(f["parts"] for f in found) == 3


def test_ids_tell_calls_at_once_apart() -> None:
    calls = [outer("call", f"c{i}", 100.0, 102.0, response_id=f"chatcmpl-{i}") for i in range(2)]
    spans = [engine(f"e{i}", request_id=f"chatcmpl-{i}", output_tokens=20 + i) for i in range(2)]
    assert [(f["fact_id"], f["output_tokens"]) for f in assembled(*calls, *spans)] == [("c0", 20), ("c1", 21)]


def test_clocks_that_disagree_do_not_make_two_requests_of_one() -> None:
    """The engine's host is 30 s ahead; the trace has one request that can hold the span."""
    fact = one(outer("gateway", "g", 100.0, 102.0), engine(started_s=130.0, ended_s=131.0))
    assert (fact["arrived_at"], fact["ended_at"], fact["engine_e2e_s"]) == (100.0, 102.0, 1.0)


def test_tries_below_a_gateway_are_one_request_with_the_last_one_s_numbers() -> None:
    gateway = outer("gateway", "g", 99.0, 106.0, http_status=200)
    first = outer("call", "c1", 99.1, 102.0, parent_id="g", status="error", error_type="500")
    second = outer("call", "c2", 102.1, 105.9, parent_id="g", status="ok")
    fact = one(
        gateway, first, engine("e1", output_tokens=2), second, engine("e2", started_s=103.0, ended_s=105.0, e2e_s=2.0)
    )
    assert (fact["status"], fact["span_id"], fact["output_tokens"], fact["engine_e2e_s"]) == ("ok", "e2", 4, 2.0)


def test_tries_that_only_the_engine_saw_are_requests() -> None:
    spans = [engine(f"e{i}", request_id="chatcmpl-1", started_s=100.0 + 5 * i, ended_s=101.0 + 5 * i) for i in range(2)]
    assert len(assembled(*spans)) == 2


def test_a_gateway_behind_a_gateway_is_the_same_request() -> None:
    fact = one(
        outer("gateway", "outer", 99.0, 103.0, source="litellm"),
        outer("gateway", "inner", 99.5, 102.5, source="llmd"),
        engine(),
    )
    assert (fact["fact_id"], fact["gateway_e2e_s"], fact["engine_e2e_s"]) == ("outer", 4.0, 1.0)


def test_llm_d_tells_ttft_on_its_proxy_s_span() -> None:
    stage = outer("stage", "s", 99.5, 102.0, parent_id="g", ttft_s=0.75, e2e_s=None)
    assert one(outer("gateway", "g", 99.0, 102.5), stage, *legs())["gateway_ttft_s"] == 0.75


def test_a_span_that_is_its_own_ancestor_stands_alone() -> None:
    ring = [outer("client", f"k{i}", 100.0 + i, 101.0 + i, parent_id=f"k{(i + 1) % 3}") for i in range(3)]
    assert sum(f["parts"] for f in assembled(*ring)) == 3


def test_a_trace_id_that_a_broken_client_uses_for_everything_loses_nothing() -> None:
    spans = [engine(f"e{i}", request_id=f"chatcmpl-{i}", started_s=100.0 + i, ended_s=101.0 + i) for i in range(10_000)]
    found = assembled(*spans)
    assert len(found) == 10_000
    assert sum(f["output_tokens"] for f in found) == 40_000


def test_a_request_whose_gateway_s_span_is_lost_is_no_try_of_another_one() -> None:
    rows = (
        outer("gateway", "g", 100.0, 102.0),
        engine("mine", parent_id="g", started_s=100.5, ended_s=101.5, output_tokens=10),
        engine("other", parent_id="lost", started_s=160.0, ended_s=161.0, output_tokens=99),
    )
    assert [(f["fact_id"], f["output_tokens"]) for f in assembled(*rows)] == [("g", 10), ("other", 99)]


def test_requests_far_apart_are_not_all_tries_of_the_only_one_whose_gateway_s_span_came() -> None:
    engines = (engine(f"e{n}", parent_id="lost", started_s=200.0 + 60 * n, ended_s=201.0 + 60 * n) for n in range(3))
    assert len(assembled(outer("gateway", "g", 100.0, 102.0), *engines)) == 4
