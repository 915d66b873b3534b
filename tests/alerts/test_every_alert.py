"""Every alert there is: it fires when it must, and is silent when it must not fire; in promtool, times by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from alerts.rules.build import build
from alerts.rules.values import RuleSet
from goodwatch.core.slo import Latency, Quality, Slo
from tests.alerts.services import CHAT, OPTIONS, assert_rules_give, firing, first_token, needs_promtool, ttft
from tests.alerts.test_deploy import EVERY_ALERT

A, B = 'job="chat",instance="a"', 'job="chat",instance="b"'
UP: Final = f"up{{{A}}}"
RUNNING: Final = f"vllm:num_requests_running{{{A}}}"
WAITING: Final = f"vllm:num_requests_waiting{{{A}}}"
TOKENS: Final = f"vllm:generation_tokens_total{{{A}}}"
HITS: Final = f"vllm:prefix_cache_hits_total{{{A}}}"
QUERIES: Final = f"vllm:prefix_cache_queries_total{{{A}}}"
USD: Final = 'goodwatch_usd_per_hour{service="chat",model="",target=""}'
PER_S: Final = 'goodwatch_output_tokens_per_second{service="chat",model="",target=""}'
JUDGED: Final = 'goodwatch_slo_valid_events_total{slo="answers",service="chat"}'
PASSED: Final = 'goodwatch_slo_good_events_total{slo="answers",service="chat"}'
CLOCK, BUSY = 'DCGM_FI_DEV_SM_CLOCK{gpu="0"}', 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0"}'
XID: Final = 'DCGM_FI_DEV_XID_ERRORS{gpu="0"}'

ANSWERS: Final = Slo("answers", "chat", 0.95, Quality(0.7))
ONE_TARGET: Final = Slo("ttft", "chat", 0.99, Latency("ttft_seconds", 1.0), engines=("vllm",))
#: five-minute steps of a week
WEEK: Final = 2016


@dataclass(frozen=True, slots=True)
class Case:
    """Series from minute 0 on, and the minutes at which one alert is silent or fires."""

    alert: str
    says: str
    series: Mapping[str, str]
    silent: tuple[int, ...] = ()
    fires: tuple[int, ...] = ()
    slo: Slo = CHAT
    step_min: int = 1


def itl(**seconds: float) -> dict[str, str]:
    """600 tokens a minute of each replica, with its time per token."""
    name = "vllm:inter_token_latency_seconds"
    return {
        f'{name}_{part}{{job="chat",instance="{instance}"}}': f"0+{600 * per:g}x60"
        for instance, mean_s in seconds.items()
        for part, per in (("count", 1), ("sum", mean_s))
    }


CASES: Final = (
    # All bad from minute 60 on. Six hours hold the one hour that there is: m / (60 + m) > 0.06 from m = 3.8 on.
    Case("LlmErrorBudgetBurnFast", "outage", ttft("a", "0+600x90", "0+600x60 36000x30"), (62,), (66, 85), first_token(30)),
    # Burn 4: under the page's factor 6, over the ticket's 3.
    Case("LlmErrorBudgetBurnFast", "burn of 4", ttft("a", "0+1000x90", "0+960x90"), (20, 60, 85), (), first_token(30)),
    Case("LlmErrorBudgetBurnSlow", "burn of 4", ttft("a", "0+1000x90", "0+960x90"), (), (20, 60, 85), first_token(30)),
    Case("LlmErrorBudgetBurnSlow", "burn of 0.9", ttft("a", "0+1000x90", "0+991x90"), (20, 60, 85), (), first_token(30)),
    # For 3 minutes after the first failed scrape (21); without any target from the start.
    Case("LlmServiceDown", "all targets fail", {UP: "1x20 0x20"}, (22,), (26,)),
    Case("LlmServiceDown", "never a target", {"x": "1x40"}, (2,), (5,)),
    Case("LlmServiceDown", "one of two is left", {UP: "1x20 0x40", f"up{{{B}}}": "1x60"}, (22, 30, 58)),
    Case("LlmTargetDown", "one of two", {UP: "1x20 0x30", f"up{{{B}}}": "1x60"}, (29,), (33,)),
    Case("LlmTargetDown", "all of them are a service that is down", {UP: "1x20 0x40", f"up{{{B}}}": "0x60"}, (33, 58)),
    # The last sample is at minute 20; the look-back of 5 minutes and the alert's own 15 follow.
    Case("LlmSloNoData", "series vanish", {UP: "1x80", **ttft("a", "0+60x20", "0+60x20", "1.0")}, (35,), (48,), ONE_TARGET),
    Case("LlmSloNoData", "down is not without data", {UP: "0x60"}, (20, 58)),
    Case("LlmSloNoData", "no traffic is data", {UP: "1x60", **ttft("a", "0x60", "0x60", "1.0")}, (20, 58), (), ONE_TARGET),
    # Running and no token for five minutes: samples of 21..26 are equal.
    Case("LlmEngineStalled", "tokens stop", {UP: "1x60", RUNNING: "4x60", TOKENS: "0+900x20 18000x30"}, (23,), (27,)),
    Case("LlmEngineStalled", "nothing runs", {UP: "1x60", RUNNING: "0x60", TOKENS: "0x60"}, (20, 58)),
    # 10 thrown out and 20 ended a minute: 10 % of 15 minutes by minute 24, and 15 minutes more.
    Case(
        "LlmKvCacheThrash",
        "one thrown out for two that end",
        {
            f"vllm:num_preemptions_total{{{A}}}": "0x20 0+10x60",
            f'vllm:request_success_total{{{A},finished_reason="stop"}}': "0+20x80",
            f"vllm:gpu_cache_usage_perc{{{A}}}": "0.99x80",
        },
        (30,),
        (50,),
    ),
    Case(
        "LlmKvCacheThrash",
        "a full cache that throws nobody out",
        {
            f"vllm:num_preemptions_total{{{A}}}": "0x80",
            f'vllm:request_success_total{{{A},finished_reason="stop"}}': "0+20x80",
            f"vllm:kv_cache_usage_perc{{{A}}}": "0.99x80",
        },
        (30, 58),
    ),
    # 20 more wait each minute from minute 21 on: 10 on average from minute 25 on, and 10 minutes more.
    Case("LlmQueueGrowing", "a queue that grows", {RUNNING: "8x60", WAITING: "2x20 2+20x40"}, (24, 33), (45,)),
    Case("LlmQueueGrowing", "a long queue that does not", {RUNNING: "8x60", WAITING: "200x60"}, (30, 58)),
    # After a day at 60 %, 10 %: 0.6 - 0.5 m / 30 < 0.5 (0.6 - 0.5 m / 1440) from m = 18.2 on, and 30 minutes more.
    Case(
        "LlmPrefixCacheCollapse",
        "from 60 to 10 %",
        {QUERIES: "0+10000x1560", HITS: "0+6000x1440 8641000+1000x119"},
        (1000, 1440, 1485),
        (1492, 1510),
    ),
    Case("LlmPrefixCacheCollapse", "never was much of it", {QUERIES: "0+10000x160", HITS: "0+1500x60 90000x100"}, (100, 155)),
    # 100 tokens a minute are 3 000 in half an hour.
    Case("LlmPrefixCacheCollapse", "a few prompts at night", {QUERIES: "0+100x90", HITS: "0+90x30 2700x60"}, (58, 85)),
    # For 15 minutes once over 1000 tokens are in the window.
    Case("LlmReplicaOutlier", "20, 20 and 60 ms", itl(a=0.02, b=0.02, c=0.06), (10,), (40,)),
    Case("LlmReplicaOutlier", "two have no middle", itl(a=0.02, c=0.06), (40, 58)),
    Case("LlmReplicaOutlier", "20, 25 and 35 ms", itl(a=0.02, b=0.025, c=0.035), (40, 58)),
    Case("LlmGpuFault", "off the bus", {XID: "0x20 79x40"}, (20,), (23,)),
    # A Prometheus that begins with an old code takes it for news in its first 15 minutes, and holds that for 30.
    Case("LlmGpuFault", "the last code stays: old news", {XID: "79x60"}, (20, 58)),
    Case("LlmGpuFault", "a program's own fault", {XID: "0x20 31x40"}, (23, 58)),
    # 780 of 1980 MHz less: the mean of 10 minutes is under three quarters from minute 27 on, and 15 minutes more.
    Case("LlmGpuThrottled", "busy at 1200 of 1980 MHz", {CLOCK: "1980x20 1200x60", BUSY: "0.9x80"}, (25, 40), (55,)),
    Case("LlmGpuThrottled", "idle devices clock down", {CLOCK: "1980x20 1200x60", BUSY: "0x80"}, (25, 58)),
    # After a week at 1000 tokens a second, half: 1 - h / 336 > 1.3 (1 - h / 48) from h = 12.44 on, and an hour: 806.7 min.
    Case(
        "LlmCostDrift", "half of the tokens", {USD: f"10x{WEEK + 200}", PER_S: f"1000x{WEEK} 500x199"},
        (10_000, 10_080 + 790), (10_080 + 825,), step_min=5,
    ),
    # Twelve hours busy, twelve idle: every day has both.
    Case(
        "LlmCostDrift", "idle nights", {USD: "10x1200", PER_S: "2000x143 0x143 " * 4}, (2_000, 3_000, 4_000), step_min=5,
    ),
    # After a week at 90 %, 80 %: 0.1 h / 6 - 0.1 h / 168 > 0.05 from h = 3.11 on, and an hour: 246.7 min.
    Case(
        "LlmQualityDrop", "from 90 to 80 %", {JUDGED: f"0+20x{WEEK + 100}", PASSED: f"0+18x{WEEK} {18 * WEEK + 16}+16x98"},
        (10_000, 10_080 + 235), (10_080 + 260,), ANSWERS, step_min=5,
    ),
    # From 90 to 87 % is under five points.
    Case(
        "LlmQualityDrop", "from 90 to 87 %", {JUDGED: "0+100x400", PASSED: "0+90x200 18087+87x199"},
        (1_000, 1_500, 1_900), (), ANSWERS, step_min=5,
    ),
    # Twelve an hour are 72 in six hours: too few to speak of.
    Case(
        "LlmQualityDrop", "few were judged", {JUDGED: "0+1x400", PASSED: "0+1x200 200x200"}, (1_100, 1_500, 1_900), (), ANSWERS,
        step_min=5,
    ),
    Case("LlmGoodwatchDown", "its scrapes fail", {'up{job="goodwatch",instance="g"}': "1x10 0x20"}, (19,), (23,)),
    Case("LlmGoodwatchDown", "it was never there", {UP: "1x30"}, (8,), (12,)),
    Case("LlmWatchdog", "always", {UP: "1x10"}, (), (0, 5, 10)),
)  # fmt: skip
#: it fires always: that is what it is for
NEVER_SILENT: Final = frozenset({"LlmWatchdog"})


def rules_of(case: Case) -> RuleSet:
    """The alert alone, or in its SLO's groups where it reads what they record."""
    groups = build([case.slo], OPTIONS).groups
    (holds,) = (group for group in groups if case.alert in {alert.name for alert in group.alerts})
    mine = tuple(alert for alert in holds.alerts if alert.name == case.alert)
    if not any("goodwatch:" in alert.expr for alert in mine):
        return RuleSet({"rules": (replace(holds, rules=mine),)})
    return RuleSet({"rules": tuple(g for g in groups if g is holds or g.name == f"goodwatch-slo-{case.slo.name}")})


@needs_promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.says}")
def test_an_alert_fires_when_it_must_and_is_silent_when_it_must_not(case: Case, tmp_path: Path) -> None:
    wanted = [*((minute, 0.0) for minute in case.silent), *((minute, 1.0) for minute in case.fires)]
    expected = [(firing(case.alert), at) for at in wanted]
    assert_rules_give(tmp_path, rules_of(case), case.series, expected, step=f"{case.step_min}m")


@pytest.mark.parametrize("alert", sorted({alert.name for alert in EVERY_ALERT}))
def test_every_alert_is_shown_firing_and_shown_silent(alert: str) -> None:
    mine = [case for case in CASES if case.alert == alert]
    assert any(case.fires for case in mine), f"no case shows {alert} firing"
    assert alert in NEVER_SILENT or any(case.silent for case in mine), f"no case shows {alert} silent"


def test_no_case_is_of_an_alert_that_is_not_there() -> None:
    assert {case.alert for case in CASES} <= {alert.name for alert in EVERY_ALERT}
