"""The page here is composed from names and labels in Triton's documentation; no server was recorded."""

import pytest

from collector.detect import engine_of
from collector.engines.triton_trtllm import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.normalise import read
from tests.collector.engines.pages import families, only, reading

_PAGE = "triton_trtllm_composed"


def test_counts_of_a_page() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 8
    assert only(found, "requests_waiting") == 3
    assert only(found, "requests_paused") == 1
    assert only(found, "max_running_requests") == 512
    assert only(found, "kv_cache_used_ratio") == pytest.approx(0.25)
    assert only(found, "kv_blocks") == 2_000
    assert only(found, "kv_block_size_tokens") == 64
    assert only(found, "kv_cache_capacity_tokens") == 2_000 * 64


def test_the_sum_of_a_length_histogram_counts_tokens() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "input_tokens_total") == 20_480
    assert only(found, "output_tokens_total") == 1_200
    assert only(found, "input_length_tokens") == 40


def test_milliseconds_become_seconds() -> None:
    (first_response,) = reading(ENGINE, _PAGE).resolved["ttft_seconds"].values
    histogram = first_response.histogram
    assert histogram is not None
    assert histogram.le == pytest.approx((0.1, 0.5, 2.0, 5.0, float("inf")))
    assert histogram.sum == pytest.approx(9.0)
    assert histogram.total == 40


def test_failures_cancels_and_refusals_are_three_things() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_failed_total") == 2 + 1
    assert only(found, "requests_aborted_total") == 4
    assert only(found, "requests_rejected_total") == 5


def test_failures_without_a_reason_are_failures_and_nothing_else() -> None:
    text = '# TYPE nv_inference_request_failure counter\nnv_inference_request_failure{model="m",version="1"} 6\n'
    found = read(Families(parse(text)), ENGINE)
    assert only(found, "requests_failed_total") == 6
    assert set(found.resolved) == {"requests_failed_total"}


def test_an_ensemble_and_its_member_stay_two_models() -> None:
    values = reading(ENGINE, _PAGE).resolved["requests_finished_total"].values
    assert {v.model: v.value for v in values} == {"ensemble": 40, "tensorrt_llm": 40}


def test_used_over_maximum_blocks_stands_in_for_the_fraction() -> None:
    name = "nv_trt_llm_kv_cache_block_metrics"
    lines = [f"# TYPE {name} gauge"] + [
        f'{name}{{kv_cache_block_type="{kind}",model="m",version="1"}} {blocks}'
        for kind, blocks in (("used", 30), ("max", 120))
    ]
    found = read(Families(parse("\n".join(lines) + "\n")), ENGINE)
    assert only(found, "kv_cache_used_ratio") == pytest.approx(0.25)
    assert found.resolved["kv_cache_used_ratio"].source.derived


def test_a_triton_without_this_backend_is_not_claimed() -> None:
    engines = {ENGINE.name: ENGINE}
    assert engine_of(families(_PAGE), engines) is ENGINE
    plain = '# TYPE nv_inference_request_success counter\nnv_inference_request_success{model="bert",version="1"} 4\n'
    assert engine_of(Families(parse(plain)), engines) is None
