"""The capability report: statuses, sources, short values, reasons, remarks; never a claim that a page does not carry."""

import re
from pathlib import Path

import pytest

import collector._capability_notes as notes
from collector._capability_notes import Remark
from collector.capability import Capability, SignalReport, capability, display_model
from collector.engines.sglang import ENGINE as SGLANG
from collector.engines.triton_trtllm import ENGINE as TRITON
from collector.engines.trtllm import ENGINE as TRTLLM
from collector.engines.vllm import ENGINE as VLLM
from collector.pipeline import TargetReader
from goodwatch.core.catalogue import ACCELERATOR_SIGNALS, CATALOGUE, OWN
from goodwatch.core.model import Limits, SignalStatus, Target
from tests.collector.engines.pages import body

ENGINES = {e.name: e for e in (VLLM, SGLANG, TRTLLM, TRITON)}
DOCUMENT = Path(__file__).parents[2] / "docs" / "inspect.md"


def report(
    page: str,
    *,
    engine: str | None = None,
    version: str | None = None,
    limits: Limits | None = None,
    now_s: float | None = None,
) -> Capability:
    target = Target("t", "http://t/metrics", "s", engine=engine, engine_version=version)
    return capability(TargetReader(target, ENGINES).understand(page, None), limits, now_s=now_s)


def signal(of: Capability, name: str) -> SignalReport:
    return next(s for s in of.signals if s.name == name)


def remark(of: Capability, code: str) -> Remark:
    return next(r for r in of.remarks if r.code == code)


def codes(of: Capability) -> set[str]:
    return {r.code for r in of.remarks}


def test_every_signal_of_the_catalogue_has_a_status_and_a_reason_when_it_is_absent() -> None:
    found = report(body("vllm_0_32_0"))
    assert {s.name for s in found.signals} == set(CATALOGUE) - OWN - ACCELERATOR_SIGNALS
    assert sum(found.counts.values()) == len(found.signals)
    assert all(s.why and s.number is None for s in found.signals if s.status is SignalStatus.ABSENT)
    assert all(s.source and s.value for s in found.signals if s.status is not SignalStatus.ABSENT)


def test_a_signal_names_the_families_that_it_was_made_of_and_no_others() -> None:
    found = report(body("sglang_0_5_23"))
    for name in re.findall(r"sglang:\w+", " ".join(s.source for s in found.signals)):
        assert name in body("sglang_0_5_23"), name
    alone = report('# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs{model_name="m"} 3\n')
    assert signal(alone, "requests_waiting").source == "sglang:num_queue_reqs"
    assert signal(alone, "requests_waiting").status is SignalStatus.MEASURED


def test_what_is_computed_is_derived() -> None:
    found = report(body("trtllm_composed"))
    assert signal(found, "kv_cache_capacity_tokens").status is SignalStatus.DERIVED
    assert "×" in signal(found, "kv_cache_capacity_tokens").source
    assert signal(found, "kv_blocks").status is SignalStatus.MEASURED


def counter(name: str, *labelled: tuple[str, float]) -> str:
    return f"# TYPE {name} counter\n" + "".join(f"{name}{{{labels}}} {value}\n" for labels, value in labelled)


def test_parts_of_a_rank_are_added_before_ranks_are_told_apart() -> None:
    reasons = [
        (f'engine="{e}",finished_reason="{r}"', v)
        for e, r, v in ((0, "stop", 5), (0, "error", 0), (1, "stop", 7), (1, "error", 1))
    ]
    found = report(counter("vllm:request_success_total", *reasons))
    assert signal(found, "requests_finished_total").value == "13 requests (engine=0: 5, engine=1: 8)"
    assert signal(found, "requests_finished_total").ranks == ("engine=0", "engine=1")
    assert "Too few requests to say whether the load is even." in remark(found, "ranks").text


def test_models_of_a_page_are_told_apart() -> None:
    found = report(
        counter("vllm:prompt_tokens_total", ('model_name="a",engine="0"', 5), ('model_name="b",engine="0"', 7))
    )
    assert signal(found, "input_tokens_total").value == "12 tokens (a engine=0: 5, b engine=0: 7)"


def test_a_ratio_of_ranks_is_never_their_sum() -> None:
    page = "# TYPE vllm:kv_cache_usage_perc gauge\n" + "".join(
        f'vllm:kv_cache_usage_perc{{engine="{e}"}} {v}\n' for e, v in ((0, 0.75), (1, 0.5))
    )
    assert signal(report(page), "kv_cache_used_ratio").value == "highest 75.0% (engine=0: 75.0%, engine=1: 50.0%)"


def test_many_ranks_are_counted_rather_than_listed() -> None:
    found = report(counter("vllm:num_preemptions_total", *((f'engine="{e}"', 1) for e in range(16))))
    assert signal(found, "preemptions_total").value.endswith("and 8 more)")
    assert len(signal(found, "preemptions_total").ranks) == 16


def histogram(name: str, labels: str, total: float, total_sum: float | str) -> str:
    return (
        f'# TYPE {name} histogram\n{name}_bucket{{{labels},le="0.5"}} {total}\n{name}_bucket{{{labels},le="+Inf"}} {total}\n'
        f"{name}_sum{{{labels}}} {total_sum}\n{name}_count{{{labels}}} {total}\n"
    )


@pytest.mark.parametrize(
    ("total", "total_sum", "value"),
    [
        (0, 0, "no observation yet"),
        (2, 0.5, "2 seen, mean 250 ms"),
        (20, 5, "20 seen, mean 250 ms, p50 in 0–500 ms"),
        (2, "+Inf", "2 seen"),
        (2, "NaN", "2 seen"),
    ],
)
def test_a_histogram_says_what_its_observations_allow(total: float, total_sum: float | str, value: str) -> None:
    found = report(histogram("vllm:e2e_request_latency_seconds", 'engine="0"', total, total_sum))
    assert signal(found, "e2e_seconds").value == value


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "NaN", "1e308"])
def test_odd_numbers_never_stop_a_report(value: str) -> None:
    page = body("vllm_0_32_0")
    report(re.sub(r" [0-9.e+-]+$", f" {value}", page, flags=re.MULTILINE), now_s=1.8e9)


@pytest.mark.parametrize("page", ["vllm_0_8_5", "vllm_0_10_2", "vllm_0_12_0", "vllm_0_32_0", "sglang_0_5_23"])
def test_the_reason_of_an_absent_signal_is_no_other_version_s(page: str) -> None:
    version = {"sglang_0_5_23": "0.5.23"}.get(page, page.removeprefix("vllm_").replace("_", "."))
    for one in report(body(page), version=version).signals:
        if one.status is SignalStatus.ABSENT and (told := re.search(r"before (\d+\.\d+\.\d+)", one.why)):
            older = tuple(map(int, version.split("."))) < tuple(map(int, told[1].split(".")))
            assert older or " yet" in one.why or " off" in one.why, one


def test_a_signal_that_the_version_has_is_not_called_older_than_it() -> None:
    cut = '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 1\n'
    assert "vLLM 0.32.0 has it" in signal(report(cut, version="0.32.0"), "tpot_seconds").why
    assert "before 0.11.0" in signal(report(cut, version="0.10.2"), "tpot_seconds").why


def test_an_engine_that_serves_is_not_said_to_load() -> None:
    found = report('# TYPE sglang:prompt_tokens_total counter\nsglang:prompt_tokens_total{model_name="m"} 230794\n')
    assert "loading" not in " ".join(s.why for s in found.signals)


def test_reasons_are_short() -> None:
    for engine, page in (
        ("vllm", "vllm_0_8_5"),
        ("sglang", "case_sglang_stages"),
        ("trtllm", "trtllm_unprefixed_composed"),
    ):
        for one in report(body(page), engine=engine).signals:
            assert len(one.why.partition(". ")[0]) <= 150, one


def test_a_family_that_is_named_without_values_says_so() -> None:
    found = report("# TYPE trtllm_request_success_total counter\n")
    assert found.engine == "trtllm"
    assert "named on the page but has no values" in signal(found, "requests_finished_total").why
    assert "named here" in remark(found, "no_values").text


def test_statistics_that_are_off_are_not_no_traffic() -> None:
    page = counter("http_requests_total", ('handler="/v1/completions",status="2xx"', 9))
    assert codes(report(page)) == {"metrics_off"}
    off = report(page, engine="vllm")
    assert "--disable-log-stats" in remark(off, "no_values").text
    assert signal(off, "requests_finished_total").number is None


def test_another_engine_than_the_configured_one_is_named() -> None:
    found = report(body("sglang_0_5_23"), engine="vllm")
    assert "Set the engine to sglang" in remark(found, "other_engine").text
    assert "no_values" not in codes(found)


def test_pinned_names_without_a_prefix_are_not_called_switched_off() -> None:
    found = report(body("trtllm_unprefixed_composed"), engine="trtllm")
    assert signal(found, "ttft_seconds").status is SignalStatus.MEASURED
    assert not {"no_values", "other_engine"} & codes(found)


_ROUTER = (
    '# TYPE vllm:current_qps gauge\nvllm:current_qps{server="http://a"} 1\n# TYPE vllm:num_requests_running gauge\n'
)


def test_a_router_is_not_an_engine() -> None:
    found = report(_ROUTER + 'vllm:num_requests_running{server="http://a"} 4\n')
    assert (found.engine, found.signals) == ("", ())
    assert codes(found) == {"router"}
    assert "scrape the engines" in remark(found, "router").text


def test_a_router_that_is_pinned_or_relayed_with_an_engine_is_read_with_a_warning() -> None:
    pinned = report(_ROUTER + 'vllm:num_requests_running{server="http://a"} 4\n', engine="vllm")
    assert "router" in codes(pinned)
    relayed = report(_ROUTER + 'vllm:num_requests_running{model_name="m",engine="0"} 4\n')
    assert relayed.engine == "vllm"
    assert remark(relayed, "router").level == "warning"


@pytest.mark.parametrize(
    ("page", "code"),
    [
        ("", "empty"),
        ("up 1\n", "unknown_engine"),
        ("DCGM_FI_DEV_GPU_UTIL 1\n", "neighbour"),
        ("npu_chip_info_utilization 1\n", "neighbour"),
        ("process_start_time_seconds 1.7e9\n", "metrics_off"),
    ],
)
def test_a_page_of_nobody_we_know_says_what_it_may_be(page: str, code: str) -> None:
    assert code in codes(report(page))


def test_ranks_that_repeat_are_warned_about() -> None:
    lines = "".join(f'sglang:num_running_reqs{{tp_rank="{r}"}} 5\n' for r in range(8))
    found = report(f"# TYPE sglang:num_running_reqs gauge\n{lines}")
    assert "8 series" in remark(found, "repeated_ranks").text
    assert signal(found, "requests_running").number == 5


def test_a_prefill_worker_is_not_taken_for_the_whole() -> None:
    found = report('# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{engine_type="prefill"} 5\n')
    assert "prefill worker" in remark(found, "disaggregated").text


@pytest.mark.parametrize(
    ("ttft_s", "code"),
    [(0.25, None), (0.3, "target_not_a_bound"), (0.0005, "target_not_a_bound"), (5000, "target_above_top_bucket")],
)
def test_a_target_is_held_against_the_bounds(ttft_s: float, code: str | None) -> None:
    found = report(body("vllm_0_32_0"), limits=Limits(ttft_s=ttft_s))
    targets = {c for c in codes(found) if c.startswith("target_")}
    assert targets == ({code} if code else set())


def test_the_nearest_bounds_are_named() -> None:
    found = report(body("vllm_0_32_0"), limits=Limits(ttft_s=0.3))
    assert "0.25 s and 0.5 s" in remark(found, "target_not_a_bound").text


def test_a_pool_is_held_against_one_engine_s_slots_whatever_the_number_of_engines() -> None:
    gauges = {"max_total_num_tokens": 8192, "context_len": 2048, "max_running_requests": 64}
    page = "".join(
        f"# TYPE sglang:{name} gauge\n"
        + "".join(f'sglang:{name}{{model_name="m",dp_rank="{dp}"}} {v}\n' for dp in (0, 1))
        for name, v in gauges.items()
    )
    found = report(page)
    assert "holds 4.00 requests" in remark(found, "kv_capacity").text
    assert "128.0 tokens of KV each" in remark(found, "kv_per_slot").text


def test_uptime_is_told_only_when_the_time_of_the_page_is_known() -> None:
    page = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1000\nvllm:num_requests_running 1\n"
    assert remark(report(page, now_s=1000 + 3660), "process_start").text.endswith("up 1 h 1 min.")
    for unknown in (None, 999.0):
        assert "up " not in remark(report(page, now_s=unknown), "process_start").text


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("/srv/models/Llama-3.2-3B/rev1/", "Llama-3.2-3B (rev1)"),
        ("/data/hub/models--Qwen--Qwen3-8B/snapshots/0a1b2c3d4e5f", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("tiny", "tiny"),
        ("./tiny/", "tiny"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_path_is_shown_as_a_model(label: str, shown: str) -> None:
    assert display_model(label) == shown


def codes_in_source() -> set[str]:
    """Every code that the source can emit: the first argument of ``Remark(``."""
    return set(re.findall(r'Remark\(\s*"(\w+)"', Path(notes.__file__).read_text()))


def test_every_remark_is_documented_and_nothing_else_is() -> None:
    assert len(codes_in_source()) > 20
    documented = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), flags=re.MULTILINE))
    assert documented == codes_in_source()


def test_warnings_come_first() -> None:
    levels = [r.level for r in report(body("vllm_0_32_0"), limits=Limits(ttft_s=0.3)).remarks]
    assert levels == sorted(levels, key=lambda level: level != "warning")
    assert set(levels) == {"warning", "note"}
