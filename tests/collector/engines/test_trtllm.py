"""TensorRT-LLM's pages here are composed from names and labels in its source; no server was recorded."""

import json

import pytest

from collector.detect import engine_of, version_of
from collector.engines.trtllm import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.normalise import Reading, read
from tests.collector.engines.pages import families, only, parts, reading, wire

_PAGE = "trtllm_composed"
_OLD = "trtllm_unprefixed_composed"
_STATISTICS = {
    "numActiveRequests": 3,
    "numQueuedRequests": 7,
    "maxNumActiveRequests": 64,
    "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 250, "freeNumBlocks": 750, "tokensPerBlock": 32},
    "inflightBatchingStats": {"numPausedRequests": 2},
}


def json_reading(statistics: object) -> Reading:
    return read(Families(parse(json.dumps([statistics]), content_type="application/json")), ENGINE)


def test_the_prefix_dates_a_page() -> None:
    found = version_of(families(_PAGE), ENGINE)
    assert (found.first, found.last) == ("1.3.0", "1.3.0")


def test_counts_of_a_page() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 6
    assert only(found, "requests_waiting") == 4
    assert only(found, "requests_paused") == 1
    assert only(found, "max_running_requests") == 64
    assert parts(found, "requests_finished_total") == {"finished_reason=stop": 30, "finished_reason=length": 10}
    assert only(found, "input_tokens_total") == 20_480
    assert only(found, "output_tokens_total") == 1_200
    assert only(found, "tpot_seconds") == 38  # two requests had one output token: no observation
    assert found.models == ("m",)
    assert found.facts["dtype"] == "fp8"


def test_refusals_and_engine_errors_are_apart_and_bad_requests_are_neither() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_failed_total") == 2
    assert only(found, "requests_rejected_total") == 5 + 3


def test_blocks_become_tokens() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "kv_cache_capacity_tokens") == 1_000 * 32
    assert only(found, "prefix_cache_hits_total") == 120 * 32
    assert only(found, "prefix_cache_queries_total") == (120 + 480) * 32
    assert found.resolved["prefix_cache_queries_total"].source.derived


def test_accepted_tokens_by_position_are_not_the_total() -> None:
    assert only(reading(ENGINE, _PAGE), "spec_accepted_tokens_total") == 17


def test_names_without_a_prefix_are_claimed_only_for_a_declared_target() -> None:
    assert not reading(ENGINE, _OLD).resolved
    declared = reading(ENGINE, _OLD, pinned=True)
    assert set(declared.resolved) == {
        "requests_finished_total",
        "ttft_seconds",
        "tpot_seconds",
        "e2e_seconds",
        "queue_seconds",
    }
    assert only(declared, "ttft_seconds") == 3
    assert engine_of(families(_OLD), {ENGINE.name: ENGINE}) is None


def test_json_statistics_are_the_last_resort() -> None:
    found = json_reading(_STATISTICS)
    assert only(found, "requests_running") == 3
    assert only(found, "requests_waiting") == 7
    assert only(found, "requests_paused") == 2
    assert only(found, "max_running_requests") == 64
    assert only(found, "kv_cache_used_ratio") == pytest.approx(0.25)
    assert only(found, "kv_cache_capacity_tokens") == 32_000
    assert "consumes" in found.resolved["requests_running"].source.note
    for sources in ENGINE.signals.values():
        spelled = [s.metric.startswith("trtllm_json:") for s in sources]
        assert spelled == sorted(spelled), "the JSON spelling comes after every Prometheus name"


def test_a_pool_without_blocks_has_no_used_share() -> None:
    empty = {"kvCacheStats": {"maxNumBlocks": 0, "usedNumBlocks": 0, "tokensPerBlock": 32}}
    assert "kv_cache_used_ratio" not in json_reading(empty).resolved


def test_the_consuming_path_is_not_scraped_unasked() -> None:
    assert ENGINE.metrics_paths == ("/prometheus/metrics",)


def test_prometheus_names_win_over_json() -> None:
    assert wire(reading(ENGINE, _PAGE), "requests_running") == "trtllm_num_requests_running"


def test_every_missing_number_names_the_switch_that_brings_it() -> None:
    for signal in ("requests_running", "kv_cache_used_ratio"):
        assert "enable_iter_perf_stats" in ENGINE.absent[signal].flag
    for signal in ("ttft_seconds", "input_tokens_total", "requests_finished_total"):
        assert "return_perf_metrics" in ENGINE.absent[signal].flag
