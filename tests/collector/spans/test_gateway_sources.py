"""Gateways' spans made by hand after what their released code sends; the source stands beside each right value."""

from tests.collector.spans.build import CLIENT, SERVER, mapped, row, span, told

# LiteLLM: otel-traces 1.4


def test_litellm_1_74_makes_three_spans_of_one_request() -> None:
    usage = {"gen_ai.usage.prompt_tokens": 12, "gen_ai.usage.completion_tokens": 7, "llm.usage.total_tokens": 19}
    call = {"gen_ai.request.model": "gpt-x", "llm.is_streaming": "True", "gen_ai.response.finish_reasons": '["stop"]'}
    done = mapped(
        span("Received Proxy Server Request", {"http.response.status_code": 200}, kind=SERVER, span_id=b"1" * 8),
        span("litellm_request", call | usage, span_id=b"2" * 8),
        span("raw_gen_ai_request", {"llm.openai.messages": "secret"} | usage, span_id=b"3" * 8),
        scope="litellm",
    )
    assert dict(done.dropped) == {"raw": 1}
    whole, called = done.frame.iter_rows(named=True)
    assert told(whole, "kind", "vantage", "input_tokens", "http_status", "e2e_s") == {
        "kind": "gateway_request",
        "vantage": "gateway",
        "input_tokens": None,
        "http_status": 200,
        "e2e_s": 2.0,
    }
    assert told(called, "kind", "model", "input_tokens", "output_tokens", "stream", "finish_reason") == {
        "kind": "gateway_call",
        "model": "gpt-x",
        "input_tokens": 12,
        "output_tokens": 7,
        "stream": True,
        "finish_reason": "stop",
    }


def test_litellm_1_81_puts_the_call_on_the_request_itself() -> None:
    # docs.litellm.ai, OpenTelemetry, "Change in v1.81.0": no litellm_request span unless it is switched on
    has = {"gen_ai.usage.input_tokens": "12", "gen_ai.usage.output_tokens": "7", "gen_ai.request.model": "m"}
    found = row(span("Received Proxy Server Request", has, kind=SERVER), scope="litellm")
    assert told(found, "kind", "input_tokens", "output_tokens") == {
        "kind": "gateway_request",
        "input_tokens": 12,
        "output_tokens": 7,
    }


def test_a_call_that_its_caller_named_is_known_by_the_tracer() -> None:
    assert row(span("my generation", {"gen_ai.request.model": "m"}), scope="litellm")["kind"] == "gateway_call"


def test_the_v2_logger_of_litellm_is_a_gateway_and_not_an_application() -> None:
    has = {
        "litellm.call_id": "c-1",
        "gen_ai.operation.name": "chat",
        "gen_ai.response.time_to_first_chunk": 0.4,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 64,
        "litellm.request.streaming": True,
        "litellm.team.id": "search",
        "litellm.provider.error.code": 429,
    }
    found = row(span("chat gpt-x", has, kind=CLIENT))
    columns = ("kind", "source", "vantage", "request_id", "ttft_s", "cached_tokens", "stream", "tenant", "error_type")
    assert told(found, *columns) == {
        "kind": "gateway_call",
        "source": "litellm",
        "vantage": "gateway",
        "request_id": "c-1",
        "ttft_s": 0.4,
        "cached_tokens": 64,
        "stream": True,
        "tenant": "search",
        "error_type": "429",
    }


# llm-d: otel-traces 1.4


def test_the_times_of_llm_d_are_milliseconds() -> None:
    has = {
        "llm_d.pd_proxy.true_ttft_ms": 512.0,
        "llm_d.pd_proxy.prefill_duration_ms": 480,
        "llm_d.pd_proxy.decode_duration_ms": 2048.0,
    }
    found = row(span("llm_d.pd_proxy.POST /v1/completions", has))
    assert told(found, "kind", "vantage", "ttft_s", "prefill_s", "decode_s", "e2e_s") == {
        "kind": "gateway_stage",
        "vantage": "gateway",
        "ttft_s": 0.512,
        "prefill_s": 0.48,
        "decode_s": 2.048,
        "e2e_s": None,
    }


def test_the_gateway_of_llm_d_is_the_whole_request() -> None:
    done = mapped(
        span("gateway.request", {"gen_ai.request.model": "m"}, kind=SERVER),
        span("gateway.request_orchestration", span_id=b"2" * 8),
        span("forward_request", span_id=b"3" * 8),
    )
    assert dict(done.dropped) == {"framework": 1, "unknown": 1}
    assert done.frame.select("kind", "model", "e2e_s").rows() == [("gateway_request", "m", 2.0)]


# Dynamo: otel-traces 1.4 (dynamo#9543)


def test_the_worker_of_dynamo_has_bare_keys_and_milliseconds() -> None:
    has = {
        "model": "m",
        "input_tokens": 100,
        "output_tokens": 20,
        "ttft_ms": 128.0,
        "finish_reason": "stop",
        "disagg_role": "prefill",
    }
    done = mapped(
        span("http-request", {"x_request_id": "r-1"}, kind=SERVER, span_id=b"1" * 8),
        span("engine.generate", has, span_id=b"2" * 8),
        span("router.route_request", span_id=b"3" * 8),
    )
    front, worker = done.frame.iter_rows(named=True)
    assert told(front, "kind", "vantage", "request_id") == {
        "kind": "gateway_request",
        "vantage": "gateway",
        "request_id": "r-1",
    }
    assert told(worker, "kind", "model", "input_tokens", "output_tokens", "ttft_s", "finish_reason", "role") == {
        "kind": "worker_request",
        "model": "m",
        "input_tokens": 100,
        "output_tokens": 20,
        "ttft_s": 0.128,
        "finish_reason": "stop",
        "role": "prefill",
    }
    assert dict(done.dropped) == {"framework": 1}


def test_bare_keys_of_another_source_are_not_read() -> None:
    found = row(span("chat m", {"gen_ai.operation.name": "chat", "input_tokens": 5, "model": "x", "ttft_ms": 9.0}))
    assert told(found, "input_tokens", "model", "ttft_s") == {"input_tokens": None, "model": None, "ttft_s": None}
