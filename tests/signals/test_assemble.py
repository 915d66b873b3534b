"""One fact a request: vantage points kept apart, tokens counted once, the outermost decides. Source: otel-traces §0–2."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodwatch.signals.assemble import assemble
from goodwatch.signals.request_frames import FACTS
from tests.signals.request_parts import engine, outer, part, parts


def assembled(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return assemble(parts(*rows), 2000.0).sort("arrived_at", "fact_id").to_dicts()


def one(*rows: dict[str, Any]) -> dict[str, Any]:
    (fact,) = assembled(*rows)
    return fact


def test_no_parts_are_no_facts() -> None:
    assert assemble(parts(), 0.0).schema == pl.Schema(FACTS)
    assert assemble(parts(), 0.0).is_empty()


def test_an_engine_span_alone_is_a_request() -> None:
    fact = one(engine(request_id="chatcmpl-1", queue_s=0.1, prefill_s=0.1, decode_s=0.75, service="chat"))
    assert (fact["engine_ttft_s"], fact["engine_e2e_s"], fact["engine_queue_s"]) == (0.25, 1.0, 0.1)
    assert fact["engine_tpot_s"] == pytest.approx((1.0 - 0.25) / 3)  # design §3: (e2e - ttft) / (output tokens - 1)
    assert (fact["status"], fact["engine"], fact["service"]) == ("ok", "vllm", "chat")
    assert (fact["gateway_e2e_s"], fact["client_e2e_s"], fact["cached_tokens"], fact["stream"]) == (None,) * 4
    assert (fact["arrived_at"], fact["ended_at"], fact["settled_at"], fact["parts"]) == (100.0, 101.0, 2000.0, 1)


@pytest.mark.parametrize("tokens", [None, 0, 1])
def test_below_two_output_tokens_there_is_no_tpot(tokens: int | None) -> None:
    assert one(engine(output_tokens=tokens))["engine_tpot_s"] is None


def test_a_span_without_a_latency_has_its_own_length() -> None:
    """SGLang 0.5.10 to 0.5.19 leave e2e out: the span's ends tell."""
    fact = one(engine(e2e_s=None, started_s=100.0, ended_s=102.5))
    assert fact["engine_e2e_s"] == 2.5


def whole_chain() -> list[dict[str, Any]]:
    """An SDK's call, LiteLLM's request and call, the engine; every link but one lost to spans that are not kept."""
    return [
        outer("client", "k", 99.0, 102.0, output_tokens=0, input_tokens=0),
        outer("gateway", "g", 99.5, 101.75, http_status=200, origin="proxy", tenant="blue"),
        outer("call", "c", 99.75, 101.5, parent_id="g", ttft_s=0.625, output_tokens=4, origin="proxy", model="m"),
        engine(),
    ]


def test_each_vantage_point_fills_its_own_fields() -> None:
    fact = one(*whole_chain())
    assert (fact["engine_e2e_s"], fact["gateway_e2e_s"], fact["client_e2e_s"]) == (1.0, 2.25, 3.0)
    assert fact["engine_ttft_s"] == 0.25
    assert fact["gateway_ttft_s"] == 0.25 + 0.625  # the call began 0.25 s after the request, in the same service
    assert fact["client_ttft_s"] is None
    assert (fact["arrived_at"], fact["ended_at"], fact["fact_id"], fact["span_id"]) == (99.0, 102.0, "k", "e")
    assert (fact["model"], fact["tenant"], fact["parts"]) == ("m", "blue", 4)


def test_tokens_are_counted_once_and_the_engine_knows_best() -> None:
    chain = whole_chain()
    assert one(*chain)["output_tokens"] == 4
    chain[2]["output_tokens"] = 7
    assert one(*chain)["output_tokens"] == 4
    assert one(*chain[:3])["output_tokens"] == 7
    assert one(chain[0])["output_tokens"] is None  # a zero of an application's SDK is "not told"


def test_the_order_of_parts_does_not_matter() -> None:
    chain = whole_chain()
    assert one(*reversed(chain)) == one(*chain)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"http_status": 200}, "ok"),
        ({"http_status": 400}, "client_error"),
        ({"http_status": 404}, "client_error"),
        ({"http_status": 408}, "refused"),
        ({"http_status": 429}, "refused"),
        ({"http_status": 499}, "aborted"),  # nginx: the client closed the connection
        ({"http_status": 500}, "error"),
        ({"http_status": 503}, "refused"),
        ({"http_status": 504}, "timeout"),
        ({"http_status": 200, "status": "error"}, "error"),  # an error event inside a 200 stream
        ({"status": "error"}, "error"),
        ({"status": "error", "error_type": "APITimeoutError"}, "timeout"),
        ({"status": "error", "error_type": "429"}, "refused"),
        ({"status": "error", "error_type": "openai.RateLimitError"}, "refused"),
        ({"status": "error", "error_type": "BadRequestError"}, "client_error"),
        ({"status": "error", "error_type": "ContextWindowExceededError"}, "client_error"),
        ({"status": "error", "error_type": "asyncio.CancelledError"}, "aborted"),
        ({"status": "error", "error_type": "InternalServerError"}, "error"),
        ({"finish_reason": "abort"}, "aborted"),
        ({"finish_reason": "timeout"}, "timeout"),
        ({"finish_reason": "tool"}, "ok"),
        ({"status": "ok"}, "ok"),
        ({}, "ok"),
    ],
)
def test_a_gateway_tells_the_outcome(fields: dict[str, Any], status: str) -> None:
    assert one(outer("gateway", "g", 99.0, 102.0, **fields), engine())["status"] == status


def test_a_hang_up_that_only_the_engine_saw_is_one() -> None:
    """An application that leaves a stream ends its span without an error."""
    assert one(outer("client", "k", 99.0, 102.0), engine(finish_reason="abort"))["status"] == "aborted"


def test_the_client_decides_before_the_gateway() -> None:
    late = outer("client", "k", 99.0, 102.0, status="error", error_type="TimeoutError")
    assert one(late, outer("gateway", "g", 99.5, 101.5, http_status=200), engine())["status"] == "timeout"


def test_an_engine_span_that_tells_nothing_leaves_the_outcome_unknown() -> None:
    assert one(engine(output_tokens=None, ttft_s=None, e2e_s=None))["status"] == "unknown"


def fault(**fields: Any) -> dict[str, Any]:
    return part(span_id="f", kind="engine_fault", source="sglang", parent_id="e", status="error", **fields)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"error_type": "have unclosed span, auto closed"}, "aborted"),  # recorded: 53 of 53 were given up by clients
        ({"http_status": 400, "error_type": "400"}, "client_error"),
        ({"http_status": 503}, "refused"),
        ({"http_status": 500, "error_type": "500"}, "error"),
    ],
)
def test_a_scheduler_says_how_a_dropped_request_ended(fields: dict[str, Any], status: str) -> None:
    dropped = engine(source="sglang", output_tokens=None, ttft_s=None)
    assert one(dropped, fault(**fields))["status"] == status


def test_a_fault_or_stage_without_a_request_is_none() -> None:
    assert assembled(fault(http_status=500), part(kind="engine_stage", span_id="x", queue_s=1.0)) == []


def test_an_engine_s_question_to_itself_is_no_request() -> None:
    """Lab notes 10: SGLang's /health shows as HEALTH_CHECK_… in traces, and not in its metrics."""
    assert assembled(engine(request_id="HEALTH_CHECK_1", source="sglang")) == []


def test_stages_of_the_lowest_rank_tell_queue_and_prefill() -> None:
    """Every tensor-parallel rank repeats the stages; the rank is on the thread above them (otel-traces §1.2)."""
    threads = [part(span_id=f"l{r}", kind="engine_link", source="sglang", parent_id="e", rank=r) for r in (1, 0)]
    waits = [
        part(span_id=f"w{r}", kind="engine_stage", source="sglang", parent_id=f"l{r}", queue_s=0.5 + r) for r in (0, 1)
    ]
    again = part(span_id="w2", kind="engine_stage", source="sglang", parent_id="l0", queue_s=9.0, started_s=100.5)
    fills = [
        part(span_id=f"p{r}", kind="engine_stage", source="sglang", parent_id=f"l{r}", prefill_s=0.125 * (1 + r))
        for r in (0, 1)
    ]
    fact = one(engine(source="sglang", parent_id=None), *threads, *waits, again, *fills)
    assert (fact["engine_queue_s"], fact["engine_prefill_s"], fact["parts"]) == (0.5, 0.125, 8)


def test_the_worker_stands_for_an_engine_that_left_no_span() -> None:
    worker = part(kind="worker_request", span_id="w", source="dynamo", ttft_s=0.5, e2e_s=0.9, output_tokens=3)
    fact = one(worker)
    assert (fact["engine"], fact["engine_ttft_s"], fact["engine_tpot_s"]) == ("dynamo", 0.5, pytest.approx(0.2))
    both = one(worker, engine(parent_id="w", ttft_s=None))
    assert (both["engine"], both["engine_ttft_s"], both["engine_tpot_s"]) == ("vllm", None, None)  # never some of each


def test_a_span_that_ended_before_it_began_ends_by_its_duration_or_its_arrival() -> None:
    assert one(engine(ended_s=None))["ended_at"] == 101.0
    assert one(engine(ended_s=None, e2e_s=None))["ended_at"] == 1000.0


def test_a_part_after_a_minute_of_silence_is_late() -> None:
    gateway = outer("gateway", "g", 99.0, 102.0)
    assert one(gateway | {"received_s": 1060.0}, engine())["late"] is False
    assert one(gateway | {"received_s": 1060.1}, engine())["late"] is True


@pytest.mark.parametrize(
    ("engine_weight", "gateway_weight", "weight"),
    [((None, None), (None, None), None), ((10.0, False), (4.0, True), 4.0), ((2.0, True), (4.0, True), 2.0)],
)
def test_a_weight_that_spans_tell_comes_before_a_configured_one(
    engine_weight: tuple[Any, Any], gateway_weight: tuple[Any, Any], weight: float | None
) -> None:
    fact = one(
        engine(weight=engine_weight[0], weight_told=engine_weight[1]),
        outer("gateway", "g", 99.0, 102.0, weight=gateway_weight[0], weight_told=gateway_weight[1]),
    )
    assert fact["weight"] == weight
    assert fact["weight_told"] is (None if weight is None else True)


def test_a_part_that_came_twice_counts_once() -> None:
    assert one(engine(), engine())["parts"] == 1


MADE = {"k": "client_call", "g": "gateway_request", "c": "gateway_call", "e": "engine_request", "x": "engine_stage"}


@st.composite
def traces(draw: st.DrawFn, trace_id: str = "t") -> list[dict[str, Any]]:
    """A trace of up to 12 spans, however absurd: circles, several roots, lost parents, any overlap."""
    kinds = draw(st.lists(st.sampled_from("kgceex"), min_size=1, max_size=12))
    parents = st.sampled_from([None, "unkept", *(f"s{i}" for i in range(len(kinds)))])
    rows = []
    for i, kind in enumerate(kinds):
        start = draw(st.floats(0, 5))
        rows.append(
            part(
                trace_id=trace_id,
                span_id=f"s{i}",
                kind=MADE[kind],
                parent_id=draw(parents),
                started_s=start,
                ended_s=start + draw(st.floats(0, 3)),
                output_tokens=draw(st.sampled_from([None, 1, 9])),
                max_tokens=draw(st.sampled_from([None, 1, 5])),
                input_tokens=3,
                source=draw(st.sampled_from(["vllm", "sglang"])),
                choices=draw(st.sampled_from([None, 1, 2])),
                request_id=draw(st.sampled_from([None, "chatcmpl-1", "0_chatcmpl-1", "cmpl-2-0", "cmpl-2-1"])),
                instance=draw(st.sampled_from([None, "1", "2"])),
            )
        )
    return rows


def same(a: pl.DataFrame, b: pl.DataFrame) -> bool:
    return a.sort("trace_id", "fact_id").equals(b.sort("trace_id", "fact_id"))


@settings(max_examples=60)
@given(traces(), st.integers(0, 1000))
def test_every_request_span_is_in_one_fact_and_none_is_lost(rows: list[dict[str, Any]], seed: int) -> None:
    """However a trace is made up: its spans, less containers, are in one fact each, in whatever order they came."""
    found = assemble(parts(*rows), 1.0)
    calls = [r for r in rows if r["kind"] == "client_call"]
    held = [[r for r in calls if r["parent_id"] == c["span_id"] != r["span_id"]] for c in calls]
    requests = sum(r["kind"] != "engine_stage" for r in rows) - sum(len(inner) > 1 for inner in held)
    assert requests <= found["parts"].sum() <= len(rows)
    assert found["fact_id"].is_unique().all()
    assert set(found["fact_id"]) <= {r["span_id"] for r in rows}
    assert same(found, assemble(parts(*rows).sample(fraction=1.0, shuffle=True, seed=seed), 1.0))


@settings(max_examples=40)
@given(traces("t"), traces("u"))
def test_traces_do_not_change_each_other_s_facts(one_trace: Any, other: Any) -> None:
    together = assemble(parts(*one_trace, *other), 1.0)
    assert same(together, pl.concat([assemble(parts(*rows), 1.0) for rows in (one_trace, other)]))
