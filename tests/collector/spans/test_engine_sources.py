"""Engines' spans made by hand after what their released code sends; the source stands beside each right value."""

import pytest

from tests.collector.spans.build import (
    INTERNAL,
    PARENT,
    RECEIVED_S,
    SERVER,
    TRACE,
    mapped,
    mapper,
    request,
    row,
    span,
    told,
)

LATENCY = {"gen_ai.latency.time_to_first_token": 0.25, "gen_ai.latency.e2e": 1.5, "gen_ai.latency.time_in_queue": 0.05}
USAGE = {"gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 20, "gen_ai.request.id": "chatcmpl-1"}
V1 = {
    **LATENCY,
    **USAGE,
    "gen_ai.latency.time_in_model_prefill": 0.2,
    "gen_ai.latency.time_in_model_decode": 1.25,
    "gen_ai.latency.time_in_model_inference": 1.45,
}


# vLLM: otel-traces 1.1


@pytest.mark.parametrize("scope", ["vllm.llm_engine", "vllm.tracing.otel"])  # up to 0.15.1, from 0.16
def test_vllm_names_its_request_the_same_in_both_scopes(scope: str) -> None:
    found = row(span("llm_request", V1, kind=SERVER), scope=scope)
    assert told(found, "source", "kind", "vantage") == {
        "source": "vllm",
        "kind": "engine_request",
        "vantage": "engine",
    }
    # V1: no model, no finish reason, no cached tokens; its span is a little longer than e2e, and e2e is told
    assert told(found, "model", "finish_reason", "cached_tokens", "e2e_s", "status") == {
        "model": None,
        "finish_reason": None,
        "cached_tokens": None,
        "e2e_s": 1.5,
        "status": "unset",
    }
    assert told(found, "queue_s", "prefill_s", "decode_s") == {"queue_s": 0.05, "prefill_s": 0.2, "decode_s": 1.25}


def test_vllm_is_known_where_a_relay_lost_the_scope() -> None:
    by_key = row(span("llm_request", V1, kind=SERVER), scope="")
    by_resource = row(span("llm_request", LATENCY | USAGE), scope="", resource={"vllm.process_id": "7"})
    assert (by_key["source"], by_resource["source"], by_resource["instance"]) == ("vllm", "vllm", "7")


def test_a_decode_of_one_token_lasted_zero_seconds_and_is_told() -> None:
    found = row(
        span("llm_request", V1 | {"gen_ai.latency.time_in_model_decode": 0.0}, kind=SERVER), scope="vllm.llm_engine"
    )
    assert found["decode_s"] == 0.0


def test_start_up_steps_are_no_requests() -> None:
    steps = [
        span("Load model", {"code.function": "f", "code.filepath": "/a/b.py", "code.lineno": "259"}, kind=INTERNAL),
        span("Worker init", {"code.lineno": "1109"}, kind=INTERNAL),
    ]
    done = mapped(*steps, scope="vllm.v1.worker.worker_base")
    assert (done.frame.height, dict(done.dropped)) == (0, {"startup": 2})


# SGLang: otel-traces 1.2


def test_the_prefill_time_of_sglang_holds_the_queue_and_is_no_prefill_time() -> None:
    found = row(span(" Req ab12cd34", {"rid": "ab12cd34", **V1}), scope="sglang server")
    assert told(found, "source", "prefill_s", "decode_s", "name") == {
        "source": "sglang",
        "prefill_s": None,
        "decode_s": 1.25,
        "name": " Req ab12cd34",
    }


def test_sglang_0_5_10_to_0_5_19_tell_no_e2e_so_it_is_the_span() -> None:
    has = {"rid": "a", "gen_ai.latency.time_to_first_token": 0.1, "gen_ai.usage.completion_tokens": 3}
    assert row(span(" Req a", has), scope="sglang server")["e2e_s"] == 2.0  # the span of tests.build


def test_sglang_before_0_5_9_tells_the_id_alone() -> None:
    found = row(span("Req ab12cd34", {"rid": "ab12cd34ff"}), scope="sglang server")
    assert told(found, "request_id", "input_tokens", "ttft_s") == {
        "request_id": "ab12cd34ff",
        "input_tokens": None,
        "ttft_s": None,
    }


@pytest.mark.parametrize(
    ("name", "role"), [("Prefill Req ab12", "prefill"), ("Decode Req ab12", "decode"), (" Req a", None)]
)
def test_the_leg_is_the_first_word_of_the_name(name: str, role: str | None) -> None:
    assert row(span(name, {"rid": "ab12"}), scope="sglang server")["role"] == role


@pytest.mark.parametrize(
    ("stage", "column"),
    [
        ("prefill_waiting", "queue_s"),
        ("decode_waiting", "queue_s"),
        ("prefill_forward", "prefill_s"),
        ("decode_forward", "decode_s"),
        ("prefill_transfer_kv_cache", "kv_transfer_s"),
        ("prefill_bootstrap", None),
    ],
)
def test_a_stage_brings_its_duration_in_its_column_alone(stage: str, column: str | None) -> None:
    found = row(span(stage), scope="sglang server")
    filled = {c for c in found if c.endswith("_s") and found[c] is not None} - {"received_s", "started_s", "ended_s"}
    assert filled == ({column} if column else set())
    assert found["kind"] == "engine_stage"


def test_a_thread_that_failed_says_how_and_on_which_rank() -> None:
    # otel-traces 1.2: an abort leaves the finish reason's fields as bare attributes of the scheduler's thread
    has = {
        "thread_label": "Decode Scheduler",
        "tp_rank": 1,
        "pp_rank": 0,
        "type": "abort",
        "message": "m",
        "status_code": 400,
    }
    found = row(span("Decode Scheduler [TP 1]", has, status={"code": 2}), scope="sglang server")
    assert told(found, "kind", "rank", "role", "finish_reason", "error_type", "http_status", "status") == {
        "kind": "engine_fault",
        "rank": 1,
        "role": "decode",
        "finish_reason": "abort",
        "error_type": "400",
        "http_status": 400,
        "status": "error",
    }


def test_a_thread_without_a_rank_is_dropped_unless_it_failed() -> None:
    # seen from 0.5.23: a client that hung up leaves its tokenizer's thread unclosed
    has = {"thread_label": "Tokenizer", "pid": 2618}
    fine = mapped(span("Tokenizer(host:0 | pid:2618)", has), scope="sglang server")
    unclosed = has | {"reason": "have unclosed span, auto closed"}
    failed = row(span("Tokenizer(host:0 | pid:2618)", unclosed, status={"code": 2}), scope="sglang server")
    assert dict(fine.dropped) == {"thread": 1}
    assert told(failed, "kind", "error_type") == {
        "kind": "engine_fault",
        "error_type": "have unclosed span, auto closed",
    }


def test_a_bootstrap_room_only_ties_its_requests_together() -> None:
    assert row(span("Bootstrap Room 0x1f"), scope="sglang server")["kind"] == "engine_link"


@pytest.mark.parametrize(
    "name", ["decode_loop", "decode loop", "run_batch_cpu", "spec_verify", "dc_dispatch", "mm_encode"]
)
def test_noise_is_dropped_by_its_name_whatever_it_carries(name: str) -> None:
    done = mapped(span(name, {"rid": "a", "thread_label": "b"}, trace_id=b""), scope="sglang server")
    assert dict(done.dropped) == {"noise": 1}


def test_the_names_of_sglang_mean_nothing_in_another_scope() -> None:
    assert dict(mapped(span("decode_loop"), span("prefill_forward"), scope="app").dropped) == {"unknown": 2}


# TensorRT-LLM: otel-traces 1.3


def test_tensorrt_llm_has_no_prefill_time_and_a_number_for_an_id() -> None:
    has = LATENCY | USAGE | {"gen_ai.request.id": 4711, "gen_ai.response.finish_reasons": ["cancelled"]}
    found = row(span("llm_request", has, kind=SERVER), scope="trtllm")
    assert told(found, "source", "request_id", "finish_reason", "queue_s", "model") == {
        "source": "trtllm",
        "request_id": "4711",
        "finish_reason": "abort",
        "queue_s": 0.05,
        "model": None,
    }


def test_minus_one_second_means_missing_in_tensorrt_llm() -> None:
    has = LATENCY | USAGE | {"gen_ai.latency.time_to_first_token": -1.0, "gen_ai.latency.time_in_queue": -1}
    done = mapped(span("llm_request", has), scope="trtllm")
    found = done.frame.row(0, named=True)
    assert told(found, "ttft_s", "queue_s", "e2e_s") == {"ttft_s": None, "queue_s": None, "e2e_s": 1.5}
    assert dict(done.oddities) == {"negative_latency": 2}


def test_a_span_of_another_name_with_the_keys_of_tensorrt_llm_is_one_of_its() -> None:
    has = (
        LATENCY
        | USAGE
        | {"gen_ai.latency.kv_cache_transfer_time": 0.01, "gen_ai.response.finish_reasons": ["not_finished"]}
    )
    found = row(span("generate", has), scope="")
    assert told(found, "source", "kv_transfer_s", "finish_reason") == {
        "source": "trtllm",
        "kv_transfer_s": 0.01,
        "finish_reason": "partial",
    }


# Around them: otel-traces 1.1 (FastAPI beside vLLM 0.10.2 and 0.12.0)


def test_http_spans_beside_the_engine_are_dropped_and_the_tree_holds_across_them() -> None:
    web = span("POST /v1/completions", {"http.response.status_code": 200}, kind=SERVER, parent_span_id=PARENT)
    engine = span("llm_request", V1, kind=SERVER, span_id=b"12345678", parent_span_id=web.span_id)
    body = request(web, scope="fastapi")
    body.resource_spans[0].scope_spans.add().spans.append(engine)
    body.resource_spans[0].scope_spans[1].scope.name = "vllm.llm_engine"
    done = mapper().parts(body, RECEIVED_S)
    assert dict(done.dropped) == {"web": 1}
    assert done.frame["parent_id"].to_list() == [PARENT.hex()]
    assert done.frame["trace_id"].to_list() == [TRACE.hex()]
