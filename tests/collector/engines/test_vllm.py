import re

import pytest

from collector.detect import engine_of, fits, version_key, version_of
from collector.engines.vllm import ENGINE
from tests.collector.engines.pages import families, only, parts, reading, wire

_PAGES = {
    "vllm_0_8_5": "0.8.5",
    "vllm_0_10_2": "0.10.2",
    "vllm_0_12_0": "0.12.0",
    "vllm_0_32_0": "0.32.0",
}


@pytest.mark.parametrize(("page", "version"), _PAGES.items())
def test_markers_are_on_every_page_from_their_version_on_and_on_none_before(page: str, version: str) -> None:
    on_page = families(page)
    for marker in ENGINE.markers:
        born = version_key(ENGINE.names[marker][0]) <= version_key(version)
        assert on_page.declared(marker) == born, marker


@pytest.mark.parametrize(("page", "version"), _PAGES.items())
def test_names_bracket_the_version_of_a_real_page(page: str, version: str) -> None:
    found = version_of(families(page), ENGINE)
    assert fits(version, found.first, found.last), found


def test_a_page_is_recognised_by_its_names() -> None:
    found = engine_of(families("vllm_0_8_5"), {ENGINE.name: ENGINE})
    assert found is ENGINE


_COUNTED = ("requests_running", "requests_waiting", "input_tokens_total", "output_tokens_total", "preemptions_total")


@pytest.mark.parametrize(
    ("page", "counts", "finished"),
    [
        ("vllm_0_8_5", (8, 11, 90_650, 35_257, 28), 256),
        ("vllm_0_10_2", (15, 48, 51_613, 10_124, 0), 140),
        ("vllm_0_12_0", (7, 16, 173_812, 57_462, 33), 464),
        ("vllm_0_32_0", (9, 9, 196_053, 63_953, 40), 531),
    ],
)
def test_counts_of_real_pages(page: str, counts: tuple[int, ...], finished: int) -> None:
    found = reading(ENGINE, page)
    assert tuple(only(found, signal) for signal in _COUNTED) == counts
    assert sum(parts(found, "requests_finished_total").values()) == finished


@pytest.mark.parametrize("page", _PAGES)
def test_finish_time_histograms_count_the_finished_requests(page: str) -> None:
    found = reading(ENGINE, page)
    finished = sum(parts(found, "requests_finished_total").values())
    for signal in ("e2e_seconds", "queue_seconds", "prefill_seconds", "decode_seconds", "inference_seconds"):
        assert only(found, signal) == finished, signal
    assert only(found, "input_length_tokens") == only(found, "output_length_tokens") == finished


def test_old_and_new_names_of_one_thing_are_never_added() -> None:
    both = reading(ENGINE, "vllm_0_10_2")  # a page with two generations of names
    assert wire(both, "kv_cache_used_ratio") == "vllm:kv_cache_usage_perc"
    assert only(both, "kv_cache_used_ratio") == pytest.approx(0.792156862745098)
    assert wire(both, "itl_seconds") == "vllm:inter_token_latency_seconds"
    assert only(both, "itl_seconds") == 9_969
    assert only(both, "prefix_cache_queries_total") == 51_613


def test_the_token_gap_under_its_old_name_is_never_a_tpot() -> None:
    v0 = reading(ENGINE, "vllm_0_8_5")
    assert wire(v0, "itl_seconds") == "vllm:time_per_output_token_seconds"
    assert "tpot_seconds" not in v0.resolved
    assert "before 0.11.0" in ENGINE.absent["tpot_seconds"].why
    assert ENGINE.absent["tpot_seconds"].instead == "mean only, from decode time and tokens"


def test_tpot_counts_one_observation_a_finished_request() -> None:
    assert only(reading(ENGINE, "vllm_0_32_0"), "tpot_seconds") == 531


@pytest.mark.parametrize(
    ("page", "label", "derived"),
    [("vllm_0_8_5", "num_gpu_blocks", True), ("vllm_0_32_0", "kv_cache_size_tokens", False)],
)
def test_kv_capacity_is_read_from_labels(page: str, label: str, *, derived: bool) -> None:
    found = reading(ENGINE, page)
    assert only(found, "kv_cache_capacity_tokens") == 8_192
    source = found.resolved["kv_cache_capacity_tokens"].source
    assert source.labels[0] == label
    assert source.derived is derived
    assert only(found, "kv_blocks") == 256
    assert only(found, "kv_block_size_tokens") == 32


def test_a_series_without_a_model_label_gets_the_only_model_of_the_page() -> None:
    found = reading(ENGINE, "vllm_0_32_0")
    for signal in ("kv_cache_capacity_tokens", "http_requests_total", "process_start_seconds"):
        assert {v.model for v in found.resolved[signal].values} == {"tiny"}


def test_finished_and_failed_requests_come_by_reason() -> None:
    found = reading(ENGINE, "vllm_0_32_0")
    assert parts(found, "requests_finished_total") == {
        "finished_reason=stop": 1,
        "finished_reason=length": 530,
        "finished_reason=abort": 0,
        "finished_reason=error": 0,
        "finished_reason=repetition": 0,
    }
    assert only(found, "requests_failed_total") == 0
    assert only(found, "requests_rejected_total") == 0
    assert parts(found, "requests_waiting_by_reason") == {"reason=capacity": 9, "reason=deferred": 0}


def test_errors_are_not_zero_where_the_version_does_not_count_them() -> None:
    assert "requests_failed_total" not in reading(ENGINE, "vllm_0_12_0").resolved


def test_http_requests_of_both_routes_add_up_by_status() -> None:
    assert parts(reading(ENGINE, "vllm_0_32_0"), "http_requests_total") == {"status=2xx": 531}


@pytest.mark.parametrize(
    ("handler", "counts"),
    [
        ("/v1/completions", True),
        ("/v1/chat/completions", True),
        ("/prefix/v1/chat/completions", True),
        ("/v1/responses", True),
        ("/v1/messages", True),
        ("/inference/v1/generate", True),
        ("/v1/messages/count_tokens", False),
        ("/v1/chat/completions/render", False),
        ("/v1/models", False),
        ("/tokenize", False),
        ("none", False),
    ],
)
def test_only_inference_routes_count_as_requests(handler: str, *, counts: bool) -> None:
    assert bool(re.fullmatch(ENGINE.generate_handlers, handler)) is counts


def test_cached_tokens_come_from_their_own_counter_where_there_is_one() -> None:
    assert wire(reading(ENGINE, "vllm_0_32_0"), "cached_input_tokens_total") == "vllm:prompt_tokens_cached"
    assert wire(reading(ENGINE, "vllm_0_12_0"), "cached_input_tokens_total") == "vllm:prefix_cache_hits"
    assert "cached_input_tokens_total" not in reading(ENGINE, "vllm_0_8_5").resolved


def test_v0_names_without_an_engine_label_are_read() -> None:
    found = reading(ENGINE, "case_vllm_v0_names")
    assert wire(found, "kv_cache_used_ratio") == "vllm:gpu_cache_usage_perc"
    assert found.models == ("Qwen/Qwen2.5-Coder-32B-Instruct",)
    assert only(found, "process_start_seconds") == pytest.approx(1_742_624_005.57)


def test_data_parallel_engines_keep_their_rank() -> None:
    lengths = reading(ENGINE, "case_vllm_two_engines").resolved["input_length_tokens"].values
    sums = {v.rank: v.histogram.sum for v in lengths if v.histogram}
    assert sums == {"engine=0": 78, "engine=1": 26}


def test_the_histogram_called_total_keeps_its_name() -> None:
    assert ENGINE.names["vllm:iteration_tokens_total"] == ("0.6.6", None)
    assert "vllm:iteration_tokens" not in ENGINE.names


def test_ttft_is_observed_again_after_a_preemption_in_v0_only() -> None:
    v0 = reading(ENGINE, "vllm_0_8_5")
    seen, finished = only(v0, "ttft_seconds"), sum(parts(v0, "requests_finished_total").values())
    assert seen > finished + only(v0, "requests_running")  # 292 first tokens for 264 requests
    assert ENGINE.ttft_repeats_until == "0.8.5"
    v1 = reading(ENGINE, "vllm_0_32_0")
    assert only(v1, "preemptions_total") > 0
    finished = sum(parts(v1, "requests_finished_total").values())
    assert only(v1, "ttft_seconds") <= finished + only(v1, "requests_running") + only(v1, "requests_waiting")
