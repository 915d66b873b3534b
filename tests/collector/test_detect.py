"""Which engine wrote a page and which versions fit it, and what no page can tell."""

import json
from collections.abc import Mapping

import pytest

from collector.detect import Version, engine_of, fits, version_key, version_of
from collector.engines.dynamo_worker import ENGINE as DYNAMO_WORKER
from collector.engines.llamacpp import ENGINE as LLAMACPP
from collector.engines.sglang import ENGINE as SGLANG
from collector.engines.sglang_router import ENGINE as SGLANG_ROUTER
from collector.engines.triton_trtllm import ENGINE as TRITON
from collector.engines.trtllm import ENGINE as TRTLLM
from collector.engines.vllm import ENGINE as VLLM
from collector.engines.vllm_router import ENGINE as VLLM_ROUTER
from collector.exposition import parse
from collector.families import Families
from goodwatch.core.engine import Engine
from tests.collector.engines.pages import body, families

ENGINES: Mapping[str, Engine] = {
    e.name: e for e in (VLLM, SGLANG, TRTLLM, TRITON, LLAMACPP, VLLM_ROUTER, SGLANG_ROUTER, DYNAMO_WORKER)
}


def named(*names: str) -> Families:
    """A page with these series, ``name`` or ``name{labels}``."""
    return Families(parse("".join(f"{name} 1\n" for name in names)))


def engine_name(page: Families) -> str:
    engine = engine_of(page, ENGINES)
    return "" if engine is None else engine.name


@pytest.mark.parametrize(
    ("page", "engine"),
    [
        ("vllm_0_8_5", "vllm"),
        ("vllm_0_32_0", "vllm"),
        ("sglang_0_5_23", "sglang"),
        ("trtllm_composed", "trtllm"),
        ("triton_trtllm_composed", "triton_trtllm"),
        ("trtllm_unprefixed_composed", ""),
    ],
)
def test_an_engine_is_known_by_its_names(page: str, engine: str) -> None:
    assert engine_name(families(page)) == engine


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("vllm:num_requests_running", "vllm"),
        ("vllm_num_requests_running", "vllm"),
        ("ray_vllm_num_requests_running", "vllm"),
        ("kserve_vllm:num_requests_running", "vllm"),
        ("sglang:num_running_reqs", "sglang"),
        ("sglang_num_running_reqs", "sglang"),
        ("trtllm_request_success_total", "trtllm"),
        ("trtllm:request_success_total", "trtllm"),  # as Dynamo spells it
        ("nv_trt_llm_request_metrics", "triton_trtllm"),
        ("vllm:a_family_of_tomorrow", "vllm"),
        ("vllm_router_requests_total", "vllm_router"),  # the longest prefix owns a name
        ("sgl_router_requests_total", "sglang_router"),
        ("smg_router_requests_total", "sglang_router"),
        ("llamacpp:requests_processing", "llamacpp"),
        ("DCGM_FI_DEV_GPU_UTIL", ""),
        ("nv_inference_request_success", ""),
        ("process_start_time_seconds", ""),
        ("my_vllm:num_requests_running", ""),
    ],
)
def test_one_name_is_enough_and_a_neighbour_is_no_engine(name: str, engine: str) -> None:
    assert engine_name(named(name)) == engine


def test_the_engine_with_most_families_wins_on_a_relayed_page() -> None:
    page = named("vllm:num_requests_running", "sglang:num_running_reqs", "sglang:num_queue_reqs")
    assert engine_name(page) == "sglang"


def test_an_engine_comes_before_the_worker_that_passes_its_metrics_through() -> None:
    page = named("dynamo_component_requests_total", "dynamo_component_inflight_requests", "vllm:num_requests_running")
    assert engine_name(page) == "vllm"


def test_a_page_that_only_names_its_families_is_known() -> None:
    page = Families(parse("# TYPE trtllm_request_success_total counter\n"))
    assert engine_name(page) == "trtllm"


_ROUTER = ('vllm:current_qps{server="http://a"}', 'vllm:healthy_pods_total{server="http://a"}')


def test_a_router_is_no_engine_though_it_uses_the_engine_s_names() -> None:
    assert engine_name(named(*_ROUTER, 'vllm:num_requests_running{server="http://a"}')) == ""
    assert engine_name(named(*_ROUTER)) == ""


def test_an_engine_is_found_beside_a_router_on_a_relayed_page() -> None:
    assert engine_name(named(*_ROUTER, 'vllm:num_requests_running{model_name="m"}')) == "vllm"


def test_a_label_server_alone_does_not_make_a_router() -> None:
    assert engine_name(named('vllm:num_requests_running{server="rack-3",model_name="m"}')) == "vllm"


@pytest.mark.parametrize(
    ("document", "engine"),
    [
        ([{"numActiveRequests": 0}], "trtllm"),
        ([{"kvCacheStats": {"usedNumBlocks": 2}}], "trtllm"),
        ({"status": "ok", "uptime": 12}, ""),
        ({"object": "error", "code": 404}, ""),
        ([], ""),
    ],
)
def test_only_iteration_statistics_make_json_a_page_of_tensorrt_llm(document: object, engine: str) -> None:
    assert engine_name(Families(parse(json.dumps(document), content_type="application/json"))) == engine


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("0.9.1", "0.9.2"),
        ("0.9.2", "0.10.0"),
        ("0.8.5", "0.10.2rc1"),
        ("0.10.2", "0.11"),
        ("v0.10.2", "v0.33.0+cu128"),
        ("0.10.2.post2", "0.11.0.dev7+gabc123"),
    ],
)
def test_versions_are_ordered_by_release(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)


@pytest.mark.parametrize(
    "same", ["0.11", "0.11.0", "v0.11.0", "0.11.0rc2", "0.11.0+cu12", "0.11.0.post1", "0.11.0-cpu22.04"]
)
def test_a_release_is_the_same_however_it_is_written(same: str) -> None:
    assert version_key(same) == version_key("0.11.0")


@pytest.mark.parametrize(
    ("version", "since", "until", "answer"),
    [
        ("0.11.0", "0.11.0", None, True),
        ("0.11", "0.11.0", None, True),
        ("0.10.2", "0.11.0", None, False),
        ("0.12.0", None, "0.11.2", False),
        ("0.9.2..0.12.0", "0.11.0", None, None),
        ("0.12.0..0.33.0", "0.11.0", None, True),
        ("0.12.0", None, None, True),
        ("", "0.11.0", None, None),
        ("?..0.9.1", "0.11.0", None, None),
        ("dev", "0.11.0", None, None),
    ],
)
def test_a_version_fits_a_life_or_not_or_nobody_knows(
    version: str, since: str | None, until: str | None, *, answer: bool | None
) -> None:
    assert fits(version, since, until) is answer


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (Version("0.12.0", "0.12.0", ""), "0.12.0"),
        (Version("0.11.1", "0.12.0", ""), "0.11.1..0.12.0"),
        (Version("0.32.0", "0.33.0", "", open_above=True), "0.32.0 or newer"),
        (Version("0.6.0", "0.8.5", "", open_below=True), "0.8.5 or older"),
        (Version("0.6.0", "0.33.0", "", open_below=True, open_above=True), ""),
        (Version("", "", ""), ""),
    ],
)
def test_a_version_reads_as_far_as_it_is_known(version: Version, text: str) -> None:
    assert version.text == text


def test_a_page_of_a_newer_vllm_than_was_read_is_bounded_from_below_only() -> None:
    tomorrow = (
        body("vllm_0_32_0") + '# TYPE vllm:kv_offload_config_info gauge\nvllm:kv_offload_config_info{engine="0"} 1\n'
    )
    tomorrow += '# TYPE vllm:born_in_0_40 counter\nvllm:born_in_0_40_total{engine="0"} 1\n'
    assert version_of(Families(parse(tomorrow)), VLLM).text == "0.33.0 or newer"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("vllm_0_8_5", "0.6.6..0.8.5"),
        ("vllm_0_10_2", "0.10.2"),
        ("vllm_0_12_0", "0.11.1..0.12.0"),
        ("vllm_0_32_0", "0.32.0 or newer"),
        ("sglang_0_5_23", "0.5.22 or newer"),
        ("trtllm_composed", "1.3.0 or newer"),
        ("trtllm_unprefixed_composed", "1.2.0 or older"),
        ("triton_trtllm_composed", ""),
    ],
)
def test_names_bracket_the_version_of_a_page(page: str, text: str) -> None:
    engine = next(e for e in (VLLM, SGLANG, TRITON, TRTLLM) if page.startswith(e.name))
    assert version_of(families(page), engine).text == text


def test_series_without_the_label_engine_are_of_an_old_vllm() -> None:
    found = version_of(named('vllm:num_requests_running{model_name="m"}'), VLLM)
    assert found.text == "0.8.5 or older"
    assert "without the label engine until 0.8.5" in found.basis


def test_series_with_the_label_engine_are_not() -> None:
    assert version_of(named('vllm:num_requests_running{model_name="m",engine="0"}'), VLLM).text == "0.8.5 or newer"


def test_what_a_cut_page_lacks_tells_nothing() -> None:
    # A page of 0.32.0 that someone cut down to a family that is new in 0.10.2.
    page = named('vllm:inter_token_latency_seconds_count{engine="0"}', 'vllm:prefix_cache_queries_total{engine="0"}')
    assert version_of(page, VLLM).text == "0.9.2 or newer"


def test_what_a_wrapper_s_page_lacks_tells_nothing() -> None:
    # Ray Serve creates a series at its first value that is not zero.
    whole = named(*(f'ray_vllm_{n}{{engine="0"}}' for n in ("prompt_tokens_total", "e2e_request_latency_seconds")))
    assert version_of(whole, VLLM).text == "0.8.5 or newer"


@pytest.mark.parametrize(
    ("series", "text"),
    [
        ('sglang:num_running_reqs{model_name="m"}', "0.4.3 or older"),
        ('sglang:num_running_reqs{model_name="m",engine_type="unified"}', "0.4.4..0.4.9"),
        ('sglang:num_running_reqs{engine_type="unified",tp_rank="0"}', "0.4.10..0.5.7"),
        ('sglang:queue_time_seconds{engine_type="unified",tp_rank="0",moe_ep_rank="0"}', "0.5.8 or newer"),
        ('sglang:time_to_first_token_seconds{engine_type="unified",is_streaming="true"}', "0.5.17 or newer"),
        ('sglang:max_total_num_tokens{name="/models/a"}', "0.4.2 or older"),
    ],
)
def test_labels_of_sglang_came_one_by_one(series: str, text: str) -> None:
    assert version_of(named(series), SGLANG).text == text


def test_names_of_two_eras_leave_only_the_newest_birth_certain() -> None:
    # --show-hidden-metrics-for-version brings old names back.
    page = body("vllm_0_12_0") + '# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc{engine="0"} 0.5\n'
    found = version_of(Families(parse(page)), VLLM)
    assert found.text == "0.11.1..0.11.2"
    page += '# TYPE vllm:request_prefill_kv_computed_tokens histogram\nvllm:request_prefill_kv_computed_tokens_count{engine="0"} 1\n'
    found = version_of(Families(parse(page)), VLLM)
    assert found.text == "0.13.0 or newer"
    assert "two eras" in found.basis


def test_a_page_without_a_known_name_has_no_version() -> None:
    found = version_of(named("vllm:a_family_of_tomorrow"), VLLM)
    assert (found.text, str(found)) == ("", "")
