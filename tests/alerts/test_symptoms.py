"""How counts cope with names, spellings, replicas and targets, in promtool.

Series are a sample a minute; ``a+bxn`` are n + 1 of them.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from goodwatch.core.model import Limits
from goodwatch.core.slo import Availability, JointGoodput, Latency, Scope, Slo
from tests.alerts.services import CHAT, OPTIONS, TTFT, assert_gives, firing, needs_promtool, ttft

pytestmark = needs_promtool


def count(name: str, target: str = "ttft") -> str:
    return f'round(sum(goodwatch:slo_{name}:increase5m{{target="{target}"}}), 0.1)'


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
    series: dict[str, str] = {}
    for model, good in (("good", 60), ("bad", 0)):
        labels = f'job="chat",instance="a",model_name="{model}"'
        series |= {f"{TTFT}_count{{{labels}}}": "0+60x40", f'{TTFT}_bucket{{{labels},le="0.5"}}': f"0+{good}x40"}
    found = 'count by (model_name) (ALERTS{alertname="LlmErrorBudgetBurnFast",alertstate="firing",model_name="bad"}) * 0 + 1'
    other = 'count(ALERTS{alertname="LlmErrorBudgetBurnFast",model_name="good"})'
    assert_gives(tmp_path, slo, series, {f"sum({found})": (30, 1), other: (30, None)})


def test_a_joint_slo_without_a_histogram_of_one_target_pages_by_the_others(tmp_path: Path) -> None:
    """vLLM 0.8.5 has no time per output token; its first tokens still page."""
    old = replace(OPTIONS, versions={"vllm": "0.8.5"})
    slo = replace(CHAT, indicator=JointGoodput(Limits(0.5, 0.05)))
    series = ttft("a", "0+600x40", "0+0x40")
    assert_gives(tmp_path, slo, series, {firing("LlmErrorBudgetBurnFast"): (30, 1.0)}, old)
