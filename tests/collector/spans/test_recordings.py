"""What real engines sent, against what another decoder read in the same bodies."""

import re
from collections import Counter
from typing import Any, Final

import pytest

from collector.spans.mapper import Mapped
from goodwatch.signals.request_frames import PARTS
from tests.collector.spans.build import mapper
from tests.collector.spans.recorded import Recorded, attributes, names, requests

#: classes of the recorded spans, from scope and name: otel-attributes, span_classes
_KEPT_STAGES: Final = {"prefill_waiting": "queue_s", "prefill_forward": "prefill_s", "decode_forward": "decode_s"} | {
    "decode_waiting": "queue_s"
}
_NOISE: Final = {"decode_loop", "tokenize", "api_server_dispatch", "request_process", "chunked_prefill"}

#: column of an engine's request ← key, for every recorded version of vLLM and SGLang
_COLUMNS: Final = {
    "request_id": "gen_ai.request.id",
    "model": "gen_ai.response.model",
    "input_tokens": "gen_ai.usage.prompt_tokens",
    "cached_tokens": "gen_ai.usage.cached_tokens",
    "output_tokens": "gen_ai.usage.completion_tokens",
    "max_tokens": "gen_ai.request.max_tokens",
    "choices": "gen_ai.request.n",
    "ttft_s": "gen_ai.latency.time_to_first_token",
    "e2e_s": "gen_ai.latency.e2e",
    "decode_s": "gen_ai.latency.time_in_model_decode",
}
_VLLM_COLUMNS: Final = {
    "queue_s": "gen_ai.latency.time_in_queue",
    "prefill_s": "gen_ai.latency.time_in_model_prefill",
}


def expected_class(one: dict[str, Any]) -> str:
    scope, name, has = one["scope"], one["span"]["name"], attributes(one["span"])
    if scope in ("vllm.llm_engine", "vllm.tracing.otel") and name == "llm_request":
        return "engine_request"
    if scope == "fastapi":
        return "web"
    if scope.startswith("vllm."):
        return "startup"
    assert scope == "sglang server"
    if name in _NOISE:
        return "noise"
    if name in _KEPT_STAGES:
        return "engine_stage"
    if re.fullmatch(r"\S* ?Req [0-9A-Za-z-]{1,8}", name):
        return "engine_request"
    return "engine_link" if "tp_rank" in has else "thread"


def everything(name: str) -> list[tuple[Recorded, Mapped]]:
    of_all = mapper()
    return [(one, of_all.parts(one.request, one.received_s)) for one in requests(name)]


@pytest.mark.parametrize("name", names())
def test_every_span_is_kept_or_dropped_as_its_class_says(name: str) -> None:
    for one, done in everything(name):
        expected = Counter(map(expected_class, one.spans))
        found = Counter(done.dropped) + Counter(done.frame["kind"].to_list())
        assert found == expected
        assert done.spans == len(one.spans) == done.frame.height + sum(done.dropped.values())
        assert (dict(done.refused), dict(done.oddities)) == ({}, {})
        assert done.frame.schema == PARTS


@pytest.mark.parametrize("name", names())
def test_a_request_has_the_values_that_its_span_has(name: str) -> None:
    for one, done in everything(name):
        wanted = {s["span"]["spanId"]: s for s in one.spans if expected_class(s) == "engine_request"}
        rows = [row for row in done.frame.iter_rows(named=True) if row["kind"] == "engine_request"]
        assert {row["span_id"] for row in rows} == set(wanted)
        for row in rows:
            span, has = wanted[row["span_id"]]["span"], attributes(wanted[row["span_id"]]["span"])
            columns = _COLUMNS | (_VLLM_COLUMNS if name.startswith("vllm") else {})
            assert {c: row[c] for c in columns} == {c: has.get(key) for c, key in columns.items()}
            assert row["trace_id"] == span["traceId"]
            assert row["parent_id"] == span.get("parentSpanId")
            assert row["started_s"] == int(span["startTimeUnixNano"]) / 1e9
            assert row["ended_s"] == int(span["endTimeUnixNano"]) / 1e9
            resource = attributes(wanted[row["span_id"]]["resource"])
            assert row["origin"] == row["service"] == resource["service.name"]
            assert row["instance"] == resource.get("service.instance.id")
            assert (row["source"], row["vantage"]) == (name.partition("-")[0], "engine")
            assert (row["weight"], row["weight_told"]) == (None, False)


def test_a_stage_of_sglang_is_its_duration_and_its_thread_has_the_rank() -> None:
    stages = threads = 0
    for one, done in everything("sglang-0.5.23"):
        spans = {s["span"]["spanId"]: s["span"] for s in one.spans}
        for row in done.frame.iter_rows(named=True):
            span = spans[row["span_id"]]
            if row["kind"] == "engine_stage":
                lasted_ns = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
                assert row[_KEPT_STAGES[row["name"]]] == lasted_ns / 1e9
                assert (row["rank"], row["e2e_s"]) == (None, None)
                stages += 1
            if row["kind"] == "engine_link":
                assert row["rank"] == attributes(span)["tp_rank"] == 0
                threads += 1
    assert stages > 20
    assert threads > 5


def test_a_finish_reason_of_sglang_is_the_first_of_a_list_written_as_text() -> None:
    found = Counter(
        (attributes(s["span"]).get("gen_ai.response.finish_reasons"), row["finish_reason"])
        for one, done in everything("sglang-0.5.23")
        for row in done.frame.iter_rows(named=True)
        for s in one.spans
        if s["span"]["spanId"] == row["span_id"] and row["kind"] == "engine_request"
    )
    assert set(found) <= {('["length"]', "length"), ('["stop"]', "stop"), (None, None)}
    assert found['["length"]', "length"] > 0


def test_the_role_of_a_request_without_disaggregation_is_not_told() -> None:
    roles = {row for _, done in everything("sglang-0.5.23") for row in done.frame["role"].to_list()}
    assert roles == {None}
