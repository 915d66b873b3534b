"""Alerts beside the budget, and how counts cope with names, spellings, replicas and targets, in promtool.

Series are a sample a minute; ``a+bxn`` are n + 1 of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.rules.build import build
from alerts.rules.files import dumped, prometheus_files
from alerts.rules.values import Options
from goodwatch.core.model import Limits
from goodwatch.core.slo import Availability, JointGoodput, Latency, Scope, Slo
from tests.alerts.services import CHAT, OPTIONS, needs_promtool, promtool, written

pytestmark = needs_promtool

Expected = Mapping[str, tuple[int, float | None]]  # expression → minute, value (None: no result)
TTFT = "vllm:time_to_first_token_seconds"


def assert_gives(
    folder: Path, slo: Slo, series: Mapping[str, str], expected: Expected, options: Options = OPTIONS
) -> None:
    """Load the SLO's rules, play the series, and compare what expressions give."""
    files = prometheus_files(build([slo], options), options)
    checks = [
        {
            "expr": expr,
            "eval_time": f"{minute}m",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for expr, (minute, value) in expected.items()
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": checks}
    written(
        folder,
        {**files, "test.yaml": dumped({"rule_files": list(files), "evaluation_interval": "1m", "tests": [test]})},
    )
    done = promtool(folder, "test", "rules", "test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def firing(alert: str) -> str:
    return f'sum(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'


def count(name: str, target: str = "ttft") -> str:
    return f'round(sum(goodwatch:slo_{name}:increase5m{{target="{target}"}}), 0.1)'


def ttft(instance: str, count_values: str, good_values: str, le: str = "0.5") -> dict[str, str]:
    labels = f'job="chat",instance="{instance}"'
    return {
        f"{TTFT}_count{{{labels}}}": count_values,
        f'{TTFT}_bucket{{{labels},le="{le}"}}': good_values,
        f'{TTFT}_bucket{{{labels},le="+Inf"}}': count_values,
    }


ONE_TARGET = Slo("ttft", "chat", 0.99, Latency("ttft_seconds", 1.0), engines=("vllm",))


@pytest.mark.parametrize("le", ["1", "1.0", "1e+00"])
def test_a_bound_is_met_in_every_spelling(le: str, tmp_path: Path) -> None:
    # 60 a minute, 30 of them within a second: 300 in five minutes, 150 bad.
    series = ttft("a", "0+60x20", "0+30x20", le)
    assert_gives(tmp_path, ONE_TARGET, series, {count("total"): (15, 300), count("bad"): (15, 150)})


def test_a_replica_without_the_bucket_is_left_out_and_not_all_bad(tmp_path: Path) -> None:
    series = {**ttft("a", "0+60x20", "0+60x20", "1.0"), **ttft("b", "0+60x20", "0+60x20", "0.75")}
    assert_gives(tmp_path, ONE_TARGET, series, {count("total"): (15, 300), count("bad"): (15, 0)})


def test_an_old_and_a_new_name_on_one_target_count_once(tmp_path: Path) -> None:
    """Where HTTP responses are counted the finished counter is not added; on a frontend without them it steps in."""
    slo = Slo("served", "chat", 0.99, Availability(), engines=("vllm",))
    both = 'job="chat",instance="both"'
    series = {
        f'http_requests_total{{{both},handler="/v1/completions",status="2xx"}}': "0+60x20",
        f'vllm:request_success_total{{{both},finished_reason="stop"}}': "0+60x20",
        'vllm:request_success_total{job="chat",instance="old",finished_reason="stop"}': "0+60x20",
        'vllm:request_success_total{job="chat",instance="old",finished_reason="error"}': "0+6x20",
    }
    # 300 of the one, 300 + 30 of the other; 30 bad.
    assert_gives(tmp_path, slo, series, {count("total", "served"): (15, 630), count("bad", "served"): (15, 30)})


def test_the_caller_s_own_faults_do_not_count(tmp_path: Path) -> None:
    """4xx is the caller's; SGLang's codes tell 429 apart, which is the service's failure (60, 6 and 6 a minute)."""
    slo = Slo("served", "chat", 0.99, Availability(), engines=("sglang",))
    labels = 'job="chat",instance="a",endpoint="/v1/chat/completions"'
    series = {f'sglang:http_responses_total{{{labels},status_code="{code}"}}': f"0+{rate}x20" for code, rate in
              (("200", 60), ("400", 30), ("404", 30), ("429", 6), ("500", 6))}  # fmt: skip
    assert_gives(tmp_path, slo, series, {count("total", "served"): (15, 360), count("bad", "served"): (15, 60)})


def test_failures_whose_series_is_born_late_start_at_zero_and_not_at_nothing(tmp_path: Path) -> None:
    slo = Slo("served", "chat", 0.99, Availability(), engines=("sglang",))
    labels = 'job="chat",instance="a",endpoint="/generate"'
    series = {f'sglang:http_responses_total{{{labels},status_code="200"}}': "0+60x20"}
    assert_gives(tmp_path, slo, series, {count("bad", "served"): (15, 0), count("total", "served"): (15, 300)})


def test_each_target_of_a_joint_slo_pages_against_the_joint_objective_and_only_once(tmp_path: Path) -> None:
    tpot = "vllm:request_time_per_output_token_seconds"
    series = {
        **ttft("a", "0+600x420", "0+600x420"),
        f'{tpot}_count{{job="chat",instance="a"}}': "0+600x420",
        f'{tpot}_bucket{{job="chat",instance="a",le="0.05"}}': "0+600x360 216000+0x60",
    }
    expected = {
        firing("LlmErrorBudgetBurnFast"): (385, 1.0),
        'count(goodwatch:slo_error:ratio5m{slo="chat"} > 0)': (385, 1),
    }
    assert_gives(tmp_path, CHAT, {**series, 'up{job="chat",instance="a"}': "1x420"}, expected)


def test_the_counted_series_adds_to_a_joint_slo_while_it_is_fresh(tmp_path: Path) -> None:
    counted = {
        'goodwatch_slo_valid_events_total{slo="chat",service="chat"}': "0+600x30 _x30",
        'goodwatch_slo_good_events_total{slo="chat",service="chat"}': "0+0x30 _x30",
    }
    series = {**ttft("a", "0+600x60", "0+600x60"), **counted}
    alone = 'count(goodwatch:slo_error:ratio5m{target="counted"})'
    page = firing("LlmErrorBudgetBurnFast")
    assert_gives(tmp_path, CHAT, series, {page: (25, 1.0), alone: (45, None)})


def test_a_budget_by_model_alerts_for_the_model_that_burns(tmp_path: Path) -> None:
    slo = Slo("by", "chat", 0.99, Latency("ttft_seconds", 0.5), scope=Scope(by=("model",)), engines=("vllm",))
    series = {}
    for model, good in (("good", 60), ("bad", 0)):
        labels = f'job="chat",instance="a",model_name="{model}"'
        series |= {f"{TTFT}_count{{{labels}}}": "0+60x40", f'{TTFT}_bucket{{{labels},le="0.5"}}': f"0+{good}x40"}
    found = 'count by (model_name) (ALERTS{alertname="LlmErrorBudgetBurnFast",alertstate="firing",model_name="bad"}) * 0 + 1'
    other = 'count(ALERTS{alertname="LlmErrorBudgetBurnFast",model_name="good"})'
    assert_gives(tmp_path, slo, series, {f"sum({found})": (30, 1), other: (30, None)})


UP = 'up{job="chat",instance="a"}'
RUNNING = 'vllm:num_requests_running{job="chat",instance="a"}'
TOKENS = 'vllm:generation_tokens_total{job="chat",instance="a"}'


@pytest.mark.parametrize(
    ("alert", "series", "silent", "fires"),
    [
        # for 3 min after the first failed scrape
        ("LlmServiceDown", {UP: "1x20 0x20"}, 22, 26),
        # never any target: absent from the start
        ("LlmServiceDown", {"x": "1x40"}, 2, 5),
        ("LlmTargetDown", {UP: "1x20 0x30", 'up{job="chat",instance="b"}': "1x60"}, 29, 33),
        # running and no token for five minutes: samples of 21..26 are equal
        ("LlmEngineStalled", {UP: "1x60", RUNNING: "4x60", TOKENS: "0+900x20 18000x30"}, 23, 27),
        # 10 wait, then 100 more a minute
        ("LlmQueueGrowing", {RUNNING: "8x60", 'vllm:num_requests_waiting{job="chat",instance="a"}': "2x20 2+20x40"}, 24, 45),
        (
            "LlmKvCacheThrash",
            {
                'vllm:num_preemptions_total{job="chat",instance="a"}': "0x20 0+10x60",
                'vllm:request_success_total{job="chat",instance="a",finished_reason="stop"}': "0+20x80",
                'vllm:gpu_cache_usage_perc{job="chat",instance="a"}': "0.99x80",
            },
            30,
            50,
        ),
        ("LlmGpuFault", {'DCGM_FI_DEV_XID_ERRORS{gpu="0"}': "0x20 79x40"}, 20, 23),
        ("LlmGpuThrottled", {
            'DCGM_FI_DEV_SM_CLOCK{gpu="0"}': "1980x20 1200x60", 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0"}': "0.9x80",
        }, 25, 55),
        ("LlmWatchdog", {UP: "1x10"}, -1, 0),
        ("LlmGoodwatchDown", {UP: "1x30", 'up{job="goodwatch",instance="g"}': "1x10 0x20"}, 19, 23),
        ("LlmCostDrift", {
            'goodwatch_usd_per_hour{service="chat",model="",target=""}': "10x300",
            'goodwatch_output_tokens_per_second{service="chat",model="",target=""}': "1000x300",
        }, 200, -1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_an_alert_is_silent_and_then_fires(
    alert: str, series: dict[str, str], silent: int, fires: int, tmp_path: Path
) -> None:
    """``silent`` and ``fires`` are minutes; -1 leaves the check out."""
    for name, minute, value in (("silent", silent, 0.0), ("fires", fires, 1.0)):
        if minute >= 0:
            (tmp_path / name).mkdir()
            assert_gives(tmp_path / name, CHAT, series, {firing(alert): (minute, value)})


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        # The last error code stays: old news. A software fault (31) is none of the hardware's.
        ("LlmGpuFault", {'DCGM_FI_DEV_XID_ERRORS{gpu="0"}': "79x60"}),
        ("LlmGpuFault", {'DCGM_FI_DEV_XID_ERRORS{gpu="0"}': "0x20 31x40"}),
        # An idle device clocks down.
        ("LlmGpuThrottled", {'DCGM_FI_DEV_SM_CLOCK{gpu="0"}': "1980x20 1200x60", 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0"}': "0x80"}),
        # Nothing runs: no tokens is what to expect.
        ("LlmEngineStalled", {RUNNING: "0x60", TOKENS: "0x60"}),
        # A full cache without preemptions is normal.
        ("LlmKvCacheThrash", {'vllm:kv_cache_usage_perc{job="chat",instance="a"}': "0.99x60", RUNNING: "8x60"}),
        # The hit ratio of a few prompts at night says nothing.
        (
            "LlmPrefixCacheCollapse",
            {
                'vllm:prefix_cache_hits_total{job="chat",instance="a"}': "0+90x30 2700x30",
                'vllm:prefix_cache_queries_total{job="chat",instance="a"}': "0+100x60",
            },
        ),
        # A service that is down is not one without data.
        ("LlmSloNoData", {UP: "0x60"}),
    ],
)  # fmt: skip
def test_an_alert_stays_silent_where_nothing_is_wrong(alert: str, series: dict[str, str], tmp_path: Path) -> None:
    assert_gives(tmp_path, CHAT, series, {firing(alert): (58, 0.0)})


def test_series_that_vanish_while_their_target_answers_are_told(tmp_path: Path) -> None:
    """The last sample is at minute 20; the look-back of 5 minutes and the alert's own 15 follow."""
    series = {UP: "1x80", **ttft("a", "0+60x20", "0+60x20", "1.0")}
    for name, minute, value in (("silent", 35, 0.0), ("fires", 48, 1.0)):
        (tmp_path / name).mkdir()
        assert_gives(tmp_path / name, ONE_TARGET, series, {firing("LlmSloNoData"): (minute, value)})


def test_a_slow_replica_among_three_is_found_and_among_two_is_not(tmp_path: Path) -> None:
    """Time per token 20, 20 and 60 ms; two replicas have no middle to compare with."""

    def itl(instance: str, seconds: float) -> dict[str, str]:
        labels = f'job="chat",instance="{instance}"'
        name = "vllm:inter_token_latency_seconds"
        return {f"{name}_count{{{labels}}}": "0+600x60", f"{name}_sum{{{labels}}}": f"0+{600 * seconds:g}x60"}

    three = itl("a", 0.02) | itl("b", 0.02) | itl("c", 0.06)
    for name, series, value in (("three", three, 1.0), ("two", itl("a", 0.02) | itl("c", 0.06), 0.0)):
        (tmp_path / name).mkdir()
        assert_gives(tmp_path / name, CHAT, series, {firing("LlmReplicaOutlier"): (40, value)})


def test_a_joint_slo_without_a_histogram_of_one_target_pages_by_the_others(tmp_path: Path) -> None:
    """vLLM 0.8.5 has no time per output token; its first tokens still page."""
    old = replace(OPTIONS, versions={"vllm": "0.8.5"})
    slo = replace(CHAT, indicator=JointGoodput(Limits(0.5, 0.05)))
    series = ttft("a", "0+600x40", "0+0x40")
    assert_gives(tmp_path, slo, series, {firing("LlmErrorBudgetBurnFast"): (30, 1.0)}, old)
