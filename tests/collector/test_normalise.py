"""Ranks, processes, parts, models: what adds up, what repeats, what is no value at all."""

from collections.abc import Mapping

import pytest

from collector.engines.sglang import ENGINE as SGLANG
from collector.engines.trtllm import ENGINE as TRTLLM
from collector.engines.vllm import ENGINE as VLLM
from collector.exposition import parse
from collector.families import Families
from collector.normalise import Reading, read
from goodwatch.core.engine import Engine
from goodwatch.core.model import Target


def page(engine: Engine, *lines: str, pinned: bool = False) -> Reading:
    return read(Families(parse("\n".join(lines) + "\n")), engine, pinned=pinned)


def series(name: str, kind: str, values: Mapping[str, float | str]) -> list[str]:
    return [f"# TYPE {name} {kind}", *(f"{name}{{{labels}}} {value}" for labels, value in values.items())]


def values(reading: Reading, signal: str) -> dict[tuple[str, str, str], float | None]:
    found = reading.resolved[signal].values
    return {(v.model, v.rank, v.part): v.value if v.histogram is None else v.histogram.total for v in found}


def one(reading: Reading, signal: str) -> float | None:
    (value,) = values(reading, signal).values()
    return value


@pytest.mark.parametrize("wire", ["vllm:{}", "vllm_{}", "ray_vllm_{}", "ray_vllm:{}", "kserve_vllm:{}"])
def test_every_prefix_of_vllm_gives_the_same_signals(wire: str) -> None:
    found = page(
        VLLM,
        *series(wire.format("num_requests_running"), "gauge", {'model_name="m",engine="0"': 3}),
        *series(wire.format("num_preemptions_total"), "counter", {'model_name="m",engine="0"': 2}),
        *series(wire.format("generation_tokens"), "counter", {'model_name="m",engine="0"': 9}),
    )
    assert one(found, "requests_running") == 3
    assert one(found, "preemptions_total") == 2
    assert one(found, "output_tokens_total") == 9
    assert found.resolved["requests_running"].wire == wire.format("num_requests_running")


def test_data_parallel_engines_of_vllm_are_kept_apart() -> None:
    found = page(VLLM, *series("vllm:num_preemptions_total", "counter", {'engine="0"': 1, 'engine="1"': 2}))
    assert values(found, "preemptions_total") == {("", "engine=0", ""): 1, ("", "engine=1", ""): 2}
    assert found.resolved["preemptions_total"].repeated == 1


def test_replicas_of_ray_serve_are_kept_apart() -> None:
    labels = 'engine="0",ReplicaId="{}"'
    found = page(VLLM, *series("ray_vllm_num_requests_running", "gauge", {labels.format(r): 4 for r in "ab"}))
    assert values(found, "requests_running") == {
        ("", "engine=0,ReplicaId=a", ""): 4,
        ("", "engine=0,ReplicaId=b", ""): 4,
    }


def test_copies_of_processes_count_once_and_the_largest_is_believed() -> None:
    # prometheus_client adds pid where a gauge has no multiprocess mode (vLLM 0.7.3 to 0.11.0).
    labels = 'model_name="m",engine="0",pid="{}"'
    found = page(VLLM, *series("vllm:kv_cache_usage_perc", "gauge", {labels.format(1): 0.25, labels.format(2): 0.5}))
    assert one(found, "kv_cache_used_ratio") == 0.5
    assert found.resolved["kv_cache_used_ratio"].repeated == 2


@pytest.mark.parametrize("label", ["tp_rank", "pp_rank", "moe_ep_rank"])
def test_ranks_of_sglang_that_repeat_a_value_count_once(label: str) -> None:
    found = page(SGLANG, *series("sglang:num_running_reqs", "gauge", {f'{label}="{r}"': 5 for r in range(8)}))
    assert one(found, "requests_running") == 5
    assert found.resolved["requests_running"].repeated == 8


def test_data_parallel_ranks_of_sglang_are_kept_apart_with_their_queues() -> None:
    labels = 'dp_rank="{}",tp_rank="{}"'
    ranks = [(dp, tp) for dp in (0, 1) for tp in (0, 1)]
    found = page(
        SGLANG,
        *series("sglang:num_queue_reqs", "gauge", {labels.format(*r): 10 + r[0] for r in ranks}),
        *series("sglang:num_grammar_queue_reqs", "gauge", {labels.format(*r): 1 for r in ranks}),
    )
    assert values(found, "requests_waiting") == {("", "dp_rank=0", ""): 11, ("", "dp_rank=1", ""): 12}


def test_a_queue_that_other_ranks_repeat_is_added_once() -> None:
    found = page(
        SGLANG,
        *series("sglang:num_queue_reqs", "gauge", {'model_name="m"': 10}),
        *series("sglang:num_grammar_queue_reqs", "gauge", {f'model_name="m",tp_rank="{tp}"': 3 for tp in range(4)}),
    )
    assert one(found, "requests_waiting") == 13


@pytest.mark.parametrize("total", ['model_name="m",priority=""', 'model_name="m"'])
def test_the_series_without_a_priority_is_the_total(total: str) -> None:
    # A relay drops a label without a value: to Prometheus both are one thing.
    by_priority = {f'model_name="m",priority="{p}"': v for p, v in ((0, 4), (1, 5))}
    found = page(SGLANG, *series("sglang:num_queue_reqs", "gauge", {total: 9, **by_priority}))
    assert one(found, "requests_waiting") == 9


def test_priorities_of_a_second_queue_are_not_added_to_its_total() -> None:
    by_priority = {f'model_name="m",priority="{p}"': v for p, v in (("", 9), ("0", 4), ("1", 5))}
    found = page(
        SGLANG,
        *series("sglang:num_queue_reqs", "gauge", {'model_name="m"': 1}),
        *series("sglang:num_decode_prealloc_queue_reqs", "gauge", by_priority),
    )
    assert one(found, "requests_waiting") == 10


def test_priorities_without_a_total_add_up() -> None:
    found = page(SGLANG, *series("sglang:num_queue_reqs", "gauge", {'priority="0"': 4, 'priority="1"': 5}))
    assert one(found, "requests_waiting") == 9


def test_labels_of_an_operator_add_up() -> None:
    tokens = {f'model_name="m",team="{team}"': 7 for team in "abc"}
    found = page(SGLANG, *series("sglang:generation_tokens_total", "counter", tokens))
    assert one(found, "output_tokens_total") == 21
    usage = page(SGLANG, *series("sglang:token_usage", "gauge", {'team="a"': 0.5, 'team="b"': 0.25}))
    assert one(usage, "kv_cache_used_ratio") == 0.5


def test_several_models_on_a_page_stay_apart_and_lend_their_name_to_nobody() -> None:
    found = page(
        VLLM,
        *series("vllm:num_requests_running", "gauge", {'model_name="a",engine="0"': 1, 'model_name="b",engine="0"': 2}),
        *series("process_start_time_seconds", "gauge", {"": 1.7e9}),
    )
    assert found.models == ("a", "b")
    assert values(found, "requests_running") == {("a", "engine=0", ""): 1, ("b", "engine=0", ""): 2}
    assert values(found, "process_start_seconds") == {("", "", ""): 1.7e9}


_OLD_AND_NEW = {
    "kv_cache_used_ratio": ("gauge", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "prefix_cache_queries_total": ("counter", "vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_cache_hits_total": ("counter", "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
}


@pytest.mark.parametrize("signal", _OLD_AND_NEW)
def test_old_and_new_names_on_one_page_are_taken_once(signal: str) -> None:
    kind, new, old = _OLD_AND_NEW[signal]
    lines = [line for name in (old, new) for line in series(name, kind, {'model_name="m"': 0.5})]
    both = page(VLLM, *lines)
    assert one(both, signal) == 0.5
    assert both.resolved[signal].wire == new
    assert page(VLLM, *series(old, kind, {'model_name="m"': 0.5})).resolved[signal].wire == old


def test_a_name_that_says_nothing_gives_way_to_the_old_one() -> None:
    found = page(
        VLLM,
        *series("vllm:kv_cache_usage_perc", "gauge", {'model_name="m"': "NaN"}),
        *series("vllm:gpu_cache_usage_perc", "gauge", {'model_name="m"': 0.5}),
    )
    assert one(found, "kv_cache_used_ratio") == 0.5


def test_two_spellings_of_one_series_on_a_page_count_once() -> None:
    labels = {'model_name="m",engine="0"': 6}
    found = page(
        VLLM,
        *series("vllm:num_preemptions_total", "counter", labels),
        *series("vllm_num_preemptions", "counter", labels),
    )
    assert one(found, "preemptions_total") == 6


def test_zeros_that_an_engine_writes_are_true_zeros() -> None:
    found = page(VLLM, *series("vllm:num_preemptions_total", "counter", {'engine="0"': 0}))
    assert one(found, "preemptions_total") == 0


@pytest.mark.parametrize(
    ("engine", "name", "value", "signal"),
    [
        (SGLANG, "sglang:spec_accept_length", 0, "spec_accept_length"),  # the feature is off
        (SGLANG, "sglang:max_total_num_tokens", 0, "kv_cache_capacity_tokens"),  # not loaded
        (VLLM, "vllm:gpu_prefix_cache_hit_rate", -1, "prefix_cache_hit_ratio"),  # V0's word for not available
        (VLLM, "vllm:kv_cache_usage_perc", "NaN", "kv_cache_used_ratio"),
        (VLLM, "vllm:kv_cache_usage_perc", "+Inf", "kv_cache_used_ratio"),
        (VLLM, "process_start_time_seconds", 0, "process_start_seconds"),
    ],
)
def test_a_word_for_not_there_is_no_value(engine: Engine, name: str, value: float | str, signal: str) -> None:
    assert signal not in page(engine, *series(name, "gauge", {'model_name="m"': value})).resolved


def test_speculation_that_is_on_has_its_length() -> None:
    found = page(SGLANG, *series("sglang:spec_accept_length", "gauge", {'model_name="m"': 2.5}))
    assert one(found, "spec_accept_length") == 2.5


@pytest.mark.parametrize("blocks", ["None", "0", "nan", "inf", ""])
def test_a_config_label_that_tells_no_size_is_no_value(blocks: str) -> None:
    info = {f'block_size="16",num_gpu_blocks="{blocks}"': 1}
    found = page(VLLM, *series("vllm:cache_config_info", "gauge", info))
    assert not {"kv_blocks", "kv_cache_capacity_tokens"} & set(found.resolved)
    assert one(found, "kv_block_size_tokens") == 16


def test_an_older_config_series_beside_the_new_one_does_not_double_the_pool() -> None:
    info = {f'engine="0",block_size="16",num_gpu_blocks="{n}"': 1 for n in ("None", "100", "120")}
    assert one(page(VLLM, *series("vllm:cache_config_info", "gauge", info)), "kv_cache_capacity_tokens") == 1920


def test_pools_of_data_parallel_engines_are_two() -> None:
    info = {f'engine="{e}",block_size="16",num_gpu_blocks="100"': 1 for e in (0, 1)}
    found = values(page(VLLM, *series("vllm:cache_config_info", "gauge", info)), "kv_cache_capacity_tokens")
    assert list(found.values()) == [1600, 1600]


def test_the_size_that_the_engine_tells_wins_over_blocks_times_block_size() -> None:
    info = {'block_size="528",num_gpu_blocks="100",kv_cache_size_tokens="9000",effective_attention_block_size="16"': 1}
    found = page(VLLM, *series("vllm:cache_config_info", "gauge", info))
    assert one(found, "kv_cache_capacity_tokens") == 9000
    assert one(found, "kv_block_size_tokens") == 16


def test_python_text_in_config_labels_is_no_fact() -> None:
    info = {'block_size="16",sliding_window="None",cache_dtype="auto"': 1}
    assert page(VLLM, *series("vllm:cache_config_info", "gauge", info)).facts == {
        "block_size": "16",
        "cache_dtype": "auto",
    }


def histogram(name: str, labels: str, bounds: Mapping[str, float]) -> list[str]:
    return [f'{name}_bucket{{{labels},le="{le}"}} {count}' for le, count in bounds.items()]


def test_histograms_with_unlike_bounds_are_merged_on_what_they_share_and_said_so() -> None:
    name = "sglang:queue_time_seconds"
    found = page(
        SGLANG,
        f"# TYPE {name} histogram",
        *histogram(name, 'team="a"', {"0.1": 1, "0.2": 2, "+Inf": 3}),
        *histogram(name, 'team="b"', {"0.1": 10, "0.5": 20, "+Inf": 30}),
    )
    resolved = found.resolved["queue_seconds"]
    (value,) = resolved.values
    assert value.histogram is not None
    assert (value.histogram.le[:-1], value.histogram.count) == ((0.1,), (11, 33))
    assert resolved.unlike_bounds


def test_unlike_bounds_of_two_ranks_are_said_so_too() -> None:
    name = "vllm:time_to_first_token_seconds"
    found = page(
        VLLM,
        f"# TYPE {name} histogram",
        *histogram(name, 'engine="0"', {"0.1": 1, "+Inf": 3}),
        *histogram(name, 'engine="1"', {"0.2": 1, "+Inf": 3}),
    )
    assert found.resolved["ttft_seconds"].unlike_bounds


def test_bounds_that_differ_because_the_page_was_cut_are_not_unlike() -> None:
    name = "vllm:request_prompt_tokens"
    found = page(
        VLLM, f"# TYPE {name} histogram", f'{name}_sum{{engine="0"}} 78', f'{name}_sum{{engine="1"}} 26',
        f'{name}_bucket{{engine="0",le="1.0"}} 0',
    )  # fmt: skip
    assert not found.resolved["input_length_tokens"].unlike_bounds


def test_sources_of_cached_tokens_add_up_and_a_total_alone_is_enough() -> None:
    split = {f'cache_source="{s}"': v for s, v in (("device", 40), ("host", 2), ("storage", 1))}
    assert one(page(SGLANG, *series("sglang:cached_tokens_total", "counter", split)), "cached_input_tokens_total") == 43
    whole = {'cache_source="total"': 43}
    assert one(page(SGLANG, *series("sglang:cached_tokens_total", "counter", whole)), "cached_input_tokens_total") == 43


def test_names_without_a_prefix_are_claimed_only_for_a_pinned_engine() -> None:
    lines = series("request_success_total", "counter", {'model_name="m",finished_reason="stop"': 3})
    assert not page(TRTLLM, *lines).resolved
    assert one(page(TRTLLM, *lines, pinned=True), "requests_finished_total") == 3
    assert not page(VLLM, *lines, pinned=True).resolved


def test_the_newest_iteration_of_the_json_statistics_counts() -> None:
    body = '[{"numActiveRequests": 1}, {"numActiveRequests": 3, "kvCacheStats": {"maxNumBlocks": 10, "tokensPerBlock": 32}}]'
    found = read(Families(parse(body, content_type="application/json")), TRTLLM)
    assert one(found, "requests_running") == 3
    assert one(found, "kv_cache_capacity_tokens") == 320


def test_requests_that_failed_are_part_of_those_that_ended() -> None:
    reasons = {f'engine="0",finished_reason="{r}"': v for r, v in (("stop", 5), ("error", 2), ("abort", 0))}
    found = page(VLLM, *series("vllm:request_success_total", "counter", reasons))
    assert one(found, "requests_failed_total") == 2
    assert sum(v or 0 for v in values(found, "requests_finished_total").values()) == 7


def test_samples_carry_rank_part_and_version() -> None:
    reasons = {'model_name="m",engine="1",finished_reason="stop"': 5}
    found = page(VLLM, *series("vllm:request_success_total", "counter", reasons))
    (sample,) = found.samples(Target("t", "http://t", "chat"), 12.0, "0.32.0")
    assert (sample.ts, sample.target, sample.service, sample.model) == (12.0, "t", "chat", "m")
    assert (sample.rank, sample.part, sample.value) == ("engine=1", "finished_reason=stop", 5)
    assert (sample.engine, sample.engine_version) == ("vllm", "0.32.0")
