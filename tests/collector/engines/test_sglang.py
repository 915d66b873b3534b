import re

import pytest

from collector.detect import version_of
from collector.engines.sglang import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.normalise import read
from tests.collector.engines.pages import body, families, only, parts, reading, wire

_PAGE = "sglang_0_5_23"


def test_names_tell_the_version_as_closely_as_they_can() -> None:
    # The families that are new in 0.5.23 were cut from this page.
    assert str(version_of(families(_PAGE), ENGINE)) == "0.5.22..0.5.23"


def test_markers_are_on_the_page() -> None:
    assert all(families(_PAGE).declared(marker) for marker in ENGINE.markers)


def test_counts_of_a_real_page() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 5
    assert only(found, "requests_waiting") == 51
    assert only(found, "requests_paused") == 0
    assert only(found, "requests_finished_total") == 595
    assert only(found, "requests_aborted_total") == 206
    assert only(found, "input_tokens_total") == 187_625
    assert only(found, "output_tokens_total") == 29_472
    assert only(found, "cached_input_tokens_total") == 25_216
    assert only(found, "kv_cache_capacity_tokens") == 8_192
    assert only(found, "kv_block_size_tokens") == 1
    assert only(found, "max_model_len_tokens") == 2_048
    assert only(found, "kv_cache_used_ratio") == pytest.approx(0.6)


def test_latencies_are_split_by_streaming() -> None:
    found = reading(ENGINE, _PAGE)
    assert parts(found, "ttft_seconds") == {"is_streaming=false": 64, "is_streaming=true": 507}
    assert parts(found, "e2e_seconds") == {"is_streaming=false": 92, "is_streaming=true": 503}
    assert parts(found, "tpot_seconds") == {"is_streaming=false": 61, "is_streaming=true": 346}


def test_finished_requests_and_e2e_hold_the_aborted_ones() -> None:
    found = reading(ENGINE, _PAGE)
    assert ENGINE.finished_counts_aborts
    assert sum(parts(found, "e2e_seconds").values()) == only(found, "requests_finished_total")
    assert sum(parts(found, "tpot_seconds").values()) < only(found, "requests_finished_total")


def test_prefill_is_one_stage_and_no_other() -> None:
    found = reading(ENGINE, _PAGE)
    assert "chunked_prefill" in body(_PAGE)
    assert only(found, "prefill_seconds") == 602
    assert "prefill_seconds" not in reading(ENGINE, "case_sglang_stages").resolved


def test_a_histogram_may_begin_at_zero() -> None:
    (queue,) = reading(ENGINE, _PAGE).resolved["queue_seconds"].values
    assert queue.histogram is not None
    assert queue.histogram.le[0] == 0.0
    assert queue.histogram.total == 602


def test_waiting_requests_are_in_any_one_of_the_queues() -> None:
    text = body(_PAGE)
    for queue, there in (("num_grammar_queue_reqs", 3), ("num_decode_transfer_queue_reqs", 4)):
        text = re.sub(rf"^(sglang:{queue}\{{.*\}}) 0\.0$", rf"\1 {there}.0", text, flags=re.MULTILINE)
    assert only(read(Families(parse(text)), ENGINE), "requests_waiting") == 51 + 3 + 4


def test_ranks_that_repeat_a_gauge_count_once_and_data_parallel_ranks_apart() -> None:
    labels = 'model_name="m",engine_type="unified",pp_rank="0"'
    lines = ["# TYPE sglang:num_running_reqs gauge"] + [
        f'sglang:num_running_reqs{{{labels},dp_rank="{dp}",tp_rank="{tp}"}} {value}'
        for dp, tp, value in ((0, 0, 5), (0, 1, 5), (1, 0, 7), (1, 1, 7))
    ]
    values = read(Families(parse("\n".join(lines) + "\n")), ENGINE).resolved["requests_running"].values
    assert {v.rank: v.value for v in values} == {"dp_rank=0": 5, "dp_rank=1": 7}


def test_with_priorities_the_series_without_one_is_the_total() -> None:
    lines = ["# TYPE sglang:num_queue_reqs gauge"] + [
        f'sglang:num_queue_reqs{{model_name="m",priority="{priority}"}} {value}'
        for priority, value in (("", 9), ("0", 4), ("1", 5))
    ]
    assert only(read(Families(parse("\n".join(lines) + "\n")), ENGINE), "requests_waiting") == 9


def test_http_answers_of_inference_routes_come_by_status() -> None:
    found = reading(ENGINE, _PAGE)
    assert parts(found, "http_requests_total") == {"status=200": 1 + 295 + 266, "status=400": 26 + 24}
    assert only(found, "requests_in_flight") == 24 + 35


def test_no_error_so_far_is_not_a_count_of_zero() -> None:
    found = reading(ENGINE, _PAGE)
    assert "requests_failed_total" not in found.resolved
    assert "requests_rejected_total" not in found.resolved
    assert "at the first event" in ENGINE.absent["requests_failed_total"].why


@pytest.mark.parametrize(("status", "signal"), [("500", "requests_failed_total"), ("503", "requests_rejected_total")])
def test_a_refusal_is_no_failure_and_a_failure_no_refusal(status: str, signal: str) -> None:
    line = f'sglang:http_responses_total{{endpoint="/v1/completions",method="POST",status_code="{status}"}} 3.0'
    found = read(Families(parse(f"# TYPE sglang:http_responses_total counter\n{line}\n")), ENGINE)
    assert only(found, signal) == 3
    assert len({"requests_failed_total", "requests_rejected_total"} & set(found.resolved)) == 1


def test_prompt_tokens_are_the_lookups_and_cached_tokens_the_hits() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "prefix_cache_queries_total") == 187_625
    assert found.resolved["prefix_cache_queries_total"].source.derived
    assert only(found, "prefix_cache_hits_total") == 25_216


def test_sources_of_cached_tokens_add_up() -> None:
    lines = ["# TYPE sglang:cached_tokens_total counter"] + [
        f'sglang:cached_tokens_total{{model_name="m",cache_source="{source}"}} {value}'
        for source, value in (("device", 40), ("host", 2))
    ]
    assert only(read(Families(parse("\n".join(lines) + "\n")), ENGINE), "cached_input_tokens_total") == 42


def test_realtime_tokens_come_by_mode() -> None:
    assert parts(reading(ENGINE, _PAGE), "realtime_tokens_total") == {
        "mode=prefill_compute": 165_511,
        "mode=decode": 31_056,
        "mode=prefill_cache": 25_227,
    }


def test_the_old_label_of_the_model_is_a_path() -> None:
    found = reading(ENGINE, "case_sglang_path_as_name")
    assert found.models == ("/models/Llama-3.2-3B/rev1/",)
    assert only(found, "kv_cache_capacity_tokens") == 570_979
    assert only(found, "max_running_requests") == 2_231
    assert only(found, "max_model_len_tokens") == 131_072


def test_underscore_names_of_openmetrics_are_the_same_signals() -> None:
    colon = reading(ENGINE, _PAGE)
    underscore = read(Families(parse(body(_PAGE).replace("sglang:", "sglang_"))), ENGINE)
    assert set(underscore.resolved) == set(colon.resolved)
    assert only(underscore, "requests_finished_total") == 595


def test_capacity_of_the_two_versions_with_config_labels_is_a_product() -> None:
    line = 'sglang:cache_config_info{num_pages="8192",page_size="16"} 1.0'
    found = read(Families(parse(f"# TYPE sglang:cache_config_info gauge\n{line}\n")), ENGINE)
    assert only(found, "kv_cache_capacity_tokens") == 131_072
    assert only(found, "kv_block_size_tokens") == 16
    assert only(found, "kv_blocks") == 8_192
    assert found.facts == {"num_pages": "8192", "page_size": "16"}


def test_the_early_time_per_output_token_is_neither_tpot_nor_a_gap() -> None:
    # To 0.4.4 it mixed running means of streams with E2E over tokens of other requests.
    lines = (
        "# TYPE sglang:time_per_output_token_seconds histogram",
        'sglang:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 4',
        'sglang:time_per_output_token_seconds_count{model_name="m"} 4',
    )
    found = read(Families(parse("\n".join(lines) + "\n")), ENGINE)
    assert not {"tpot_seconds", "itl_seconds"} & set(found.resolved)


def test_the_gauge_that_held_a_total_is_read_as_preemptions() -> None:
    line = 'sglang:total_retracted_reqs{model_name="m"} 12.0'
    found = read(Families(parse(f"# TYPE sglang:total_retracted_reqs gauge\n{line}\n")), ENGINE)
    assert only(found, "preemptions_total") == 12
    assert wire(found, "preemptions_total") == "sglang:total_retracted_reqs"
