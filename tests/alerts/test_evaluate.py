"""Alerts without Prometheus: the rules' own names and labels, texts with numbers, and each symptom's condition."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from alerts.evaluate import Met, Situation, evaluate, filled, left_out, rule_key
from alerts.evaluate_symptoms import SYMPTOMS, ServiceNow
from alerts.rules.build import build
from alerts.rules.text import labels
from alerts.rules.values import Alert
from goodwatch.core.slo import DAY_S, Availability, Custom, Events, Latency, Quality, Scope, Slo, burn_pairs
from goodwatch.signals.budget import SloStatus, slo_status
from goodwatch.signals.increments import rows_frame
from goodwatch.signals.slo_events import EVENTS, group_key
from tests.alerts.services import CHAT, OPTIONS, SERVED, first_token

AT_S = 1_800_000_000.0 // 60 * 60
BURNS = ("LlmErrorBudgetBurnFast", "LlmErrorBudgetBurnSlow")


def status(slo: Slo, bad_share: float, target: str = "ttft", *, groups: tuple[str, ...] = ("",)) -> SloStatus:
    """Seven hours of a thousand requests a minute, a share of them bad."""
    rows = [(AT_S - 60 * n, 60.0, group, target, 1000.0, 1000.0 * bad_share) for n in range(1, 421) for group in groups]
    return slo_status(slo, pl.DataFrame(rows, schema=EVENTS, orient="row"), AT_S, burn_pairs(slo.objective, 30 * DAY_S))


def burning(slo: Slo, bad_share: float, **more: Any) -> list[Met]:
    rules = [rule for rule in build([slo], OPTIONS).alerts if rule.name in BURNS]
    found = evaluate(rules, Situation(AT_S, {slo.name: status(slo, bad_share, **more)}), OPTIONS)
    assert not found.blind
    return list(found.met)


def test_names_and_labels_are_those_of_the_rules() -> None:
    slo = replace(first_token(30), labels={"team": "search"})
    options = replace(OPTIONS, labels={"cluster": "eu"})
    rules = [rule for rule in build([slo], options).alerts if rule.name in BURNS]
    found = evaluate(rules, Situation(AT_S, {slo.name: status(slo, 0.3)}), options)
    made = {(one.rule.name, tuple(sorted(one.labels.items()))) for one in found.met}
    assert made == {(rule.name, tuple(sorted(labels(rule, options).items()))) for rule in rules}
    (page,) = [one for one in found.met if one.rule.name == BURNS[0]]
    assert dict(page.labels) == {
        "severity": "critical", "service": "chat", "slo": "ttft-0.99", "objective": "0.99", "period": "30d",
        "team": "search", "cluster": "eu",
    }  # fmt: skip


def test_a_page_of_one_model_tells_the_budget_of_that_model() -> None:
    slo = replace(first_token(30), scope=Scope(by=("model",)))
    worse = status(slo, 0.6, groups=("b",))
    both = replace(status(slo, 0.3, groups=("a",)), targets=(*status(slo, 0.3, groups=("a",)).targets, *worse.targets))
    rules = [rule for rule in build([slo], OPTIONS).alerts if rule.name == BURNS[0]]
    found = evaluate(rules, Situation(AT_S, {slo.name: both}), OPTIONS)
    said = {one.labels["model_name"]: one.annotations["summary"] for one in found.met}
    assert "Budget left: -2900.0 %" in said["a"]  # 1 - 0.3 / 0.01
    assert "Budget left: -5900.0 %" in said["b"]  # 1 - 0.6 / 0.01
    part = replace(both, note="its history is still being read")
    assert all("Budget left" not in one.annotations["summary"]
               for one in evaluate(rules, Situation(AT_S, {slo.name: part}), OPTIONS).met)  # fmt: skip


def test_a_text_holds_the_numbers_and_the_links_of_the_rule() -> None:
    (page, _) = burning(first_token(30), 0.3)
    assert page.value == pytest.approx(0.3)
    # 30 % of 1 % is a burn of 30; a whole period at 30 % leaves 1 - 30 = -2900 %
    assert page.annotations["summary"] == (
        "30% of the requests of chat miss the SLO ttft-0.99 (objective 99 % over 30d). "
        "Burn 30.0x in 1h (ttft). Budget left: -2900.0 %."
    )
    assert page.annotations["runbook_url"].endswith("/docs/runbooks/error-budget-burn-fast")
    assert page.annotations["dashboard_url"].endswith("/services/chat")
    assert page.annotations["triage_url"].endswith("/triage?service=chat&alert=LlmErrorBudgetBurnFast")
    assert "{{" not in "".join(page.annotations.values())


def test_a_budget_that_is_left_says_when_it_ends() -> None:
    (slow,) = burning(first_token(30, 0.9), 0.4)
    assert "Budget left: -300.0 %" in slow.annotations["summary"]
    rows = [(AT_S - 60 * n, 60.0, "", "ttft", 1000.0, 200.0 if n <= 60 else 0.0) for n in range(1, 4_000)]
    slo = first_token(30)
    frame = pl.DataFrame(rows, schema=EVENTS, orient="row")
    now = slo_status(slo, frame, AT_S, burn_pairs(0.99, 30 * DAY_S))
    found = evaluate(build([slo], OPTIONS).alerts[:1], Situation(AT_S, {slo.name: now}), OPTIONS)
    # 12 000 of 3 999 000 are bad: 0.3 of the budget; the day's 12 000 of 1 440 000 burn 0.83: 70 % lasts 25 days
    assert "Budget left: 70.0 %. It ends in 25 d (25 d to 26 d) if this goes on." in found.met[0].annotations["summary"]


def test_one_incident_is_one_alert_and_each_value_of_a_split_has_its_own() -> None:
    assert [one.rule.name for one in burning(CHAT, 0.3)] == list(BURNS)
    by = replace(first_token(30), scope=Scope(by=("model",)))
    found = burning(by, 0.3, groups=(group_key(["m"]), group_key(["n"])))
    assert sorted(one.labels["model_name"] for one in found if one.rule.name == BURNS[0]) == ["m", "n"]


def test_an_slo_that_is_not_known_yet_leaves_its_alerts_as_they_are() -> None:
    slo = first_token(30)
    rules = [rule for rule in build([slo], OPTIONS).alerts if rule.name in BURNS]
    found = evaluate(rules, Situation(AT_S), OPTIONS)
    assert found.met == ()
    assert found.blind == {rule_key(name, {"service": "chat", "slo": slo.name}) for name in BURNS}


def test_what_only_prometheus_can_judge_is_named_with_its_reason() -> None:
    custom = Slo("own", "chat", 0.99, Custom("a_total", bad="b_total"))
    said = left_out(build([CHAT], OPTIONS).alerts, [CHAT, custom])
    assert any(text.startswith("LlmGpuFault: ") for text in said)
    assert any(text.startswith("LlmGoodwatchDown: ") for text in said)
    assert "own: counted by PromQL, which only Prometheus answers" in said


def test_every_rule_is_judged_or_named_as_left_out() -> None:
    rules = build([CHAT, SERVED, Slo("q", "chat", 0.9, Quality(0.7))], OPTIONS).alerts
    named = {text.partition(":")[0] for text in left_out(rules, [])}
    slo_kinds = {"error-budget-burn-fast", "error-budget-burn-slow", "slo-no-data", "quality-drop"}
    assert {rule.kind for rule in rules if rule.name not in named} <= slo_kinds | SYMPTOMS.keys()


# --- symptoms ---------------------------------------------------------------------------------------------------------


def row(signal: str, ago_min: int, target: str = "a", **cells: Any) -> dict[str, Any]:
    base = {"minute_s": AT_S - 60 * ago_min, "target": target, "service": "chat", "model": "m", "engine": "vllm"}
    return {**base, "signal": signal, "part": "", **cells}


def gauge(signal: str, value: float, minutes: range, target: str = "a") -> list[dict[str, Any]]:
    cells = dict.fromkeys(("mean", "min", "max", "last"), value)
    return [row(signal, ago, target, kind="gauge", **cells) for ago in minutes]


def counter(signal: str, increase: float, minutes: range, target: str = "a") -> list[dict[str, Any]]:
    return [row(signal, ago, target, kind="counter", increase=increase) for ago in minutes]


def service(*rows: list[dict[str, Any]], **more: Any) -> ServiceNow:
    frame = rows_frame([one for some in rows for one in some])
    return ServiceNow("chat", AT_S, more.pop("up", {"a": True}), frame, **more)


def answers(kind: str, now: ServiceNow) -> float | bool | None:
    return SYMPTOMS[kind](now)


@pytest.mark.parametrize(
    ("up", "lost", "service_down", "target_down"),
    [
        ({"a": True, "b": True}, False, False, False),
        ({"a": True, "b": False}, False, False, 1.0),
        ({"a": False, "b": False}, False, 0.0, False),
        ({"a": None}, False, None, None),  # not scraped yet: nobody knows
        ({"a": True, "b": None}, False, False, None),
        ({"a": False, "b": None}, False, None, None),
        ({"a": True, "b": False, "c": None}, False, False, 1.0),
        ({}, True, 1.0, False),
        ({}, False, None, False),  # never had any: known from requests only
    ],
)
def test_down(up: dict[str, bool | None], lost: bool, service_down: float | None, target_down: float | None) -> None:
    now = service(up=up, lost=lost)
    assert (answers("service-down", now), answers("target-down", now)) == (service_down, target_down)
    assert (answers("service-down", now) is False) == (service_down is False)


def test_an_engine_with_work_and_no_token_is_stalled() -> None:
    window = range(1, 6)
    stuck = [gauge("requests_running", 2, window), counter("output_tokens_total", 0, window)]
    assert answers("engine-stalled", service(*stuck)) == 1.0
    assert answers("engine-stalled", service(stuck[0], counter("output_tokens_total", 1, window))) is False
    assert answers("engine-stalled", service(gauge("requests_running", 0, window), stuck[1])) is False
    assert answers("engine-stalled", service(*stuck, late_tokens=True)) is False  # it may be a long answer
    assert (
        answers("engine-stalled", service(*stuck, counter("realtime_tokens_total", 5, window), late_tokens=True))
        is False
    )
    assert answers("engine-stalled", service()) is None


def test_preemptions_count_where_the_cache_is_full() -> None:
    window = range(1, 16)
    rows = [counter("preemptions_total", 1, window), counter("requests_finished_total", 4, window)]
    assert answers("kv-cache-thrash", service(*rows, gauge("kv_cache_used_ratio", 0.95, window))) == 0.25
    assert answers("kv-cache-thrash", service(*rows, gauge("kv_cache_used_ratio", 0.5, window))) is False
    assert answers("kv-cache-thrash", service(rows[1])) is False


def test_a_queue_grows_when_it_doubles_and_is_long() -> None:
    now, before, running = range(1, 11), range(16, 26), gauge("requests_running", 30, range(1, 11))
    grown = [gauge("requests_waiting", 40, now), gauge("requests_waiting", 10, before), running]
    assert answers("queue-growing", service(*grown)) == 40
    assert answers("queue-growing", service(gauge("requests_waiting", 40, range(1, 26)), running)) is False
    assert answers("queue-growing", service(gauge("requests_waiting", 8, now), grown[1], running)) is False


def test_long_windows_tell_the_cache_and_the_cost() -> None:
    low, high = Events(100_001 * 0.1, 100_001), Events(1e6, 2e6)
    assert answers("prefix-cache-collapse", service(long={"prefix": {1800.0: low, DAY_S: high}})) == pytest.approx(0.1)
    assert answers("prefix-cache-collapse", service(long={"prefix": {1800.0: high, DAY_S: high}})) is False
    assert answers("prefix-cache-collapse", service()) is False
    # bad is USD, total are tokens: 2 USD a million against 1
    spend = {"spend": {DAY_S: Events(1e6 - 2, 1e6), 7 * DAY_S: Events(7e6 - 7, 7e6)}}
    assert answers("cost-drift", service(long=spend)) == pytest.approx(2.0)


def test_a_slow_replica_is_one_of_at_least_three() -> None:
    def itl(target: str, mean: float) -> list[dict[str, Any]]:
        cells = {"kind": "histogram", "increase": 2000.0, "sum": 2000 * mean, "le": [1.0], "count": [2000.0]}
        return [row("itl_seconds", 1, target, **cells)]

    assert answers("replica-outlier", service(itl("a", 0.02), itl("b", 0.02), itl("c", 0.05))) == 1.0
    assert answers("replica-outlier", service(itl("a", 0.02), itl("c", 0.05))) is False


def test_an_slo_without_data_is_told_while_its_targets_work() -> None:
    slo = Slo("ttft", "chat", 0.99, Latency("ttft_seconds", 0.5), engines=("vllm",))
    (rule,) = [a for a in build([slo], OPTIONS).alerts if a.kind == "slo-no-data"]
    empty = slo_status(slo, pl.DataFrame(schema=EVENTS), AT_S, burn_pairs(0.99, 30 * DAY_S))
    busy = service(gauge("requests_running", 3, range(1, 11)))

    def met(now: ServiceNow, told: SloStatus) -> int:
        return len(evaluate([rule], Situation(AT_S, {"ttft": told}, {"chat": now}), OPTIONS).met)

    assert met(busy, empty) == 1
    assert met(busy, status(slo, 0.0)) == 0
    assert met(replace(busy, up={"a": False}), empty) == 0
    assert met(service(), empty) == 0  # idle, and this engine may have no series before its first request


def test_quality_that_drops_five_points_under_its_week_is_told() -> None:
    slo = Slo("q", "chat", 0.9, Quality(0.7))
    (rule,) = [a for a in build([slo], OPTIONS).alerts if a.kind == "quality-drop"]
    rows = [(AT_S - 3600.0 * n, 60.0, "", "counted", 200.0, 40.0 if n <= 6 else 10.0) for n in range(1, 160)]
    frame = pl.DataFrame(rows, schema=EVENTS, orient="row")
    told = slo_status(slo, frame, AT_S, burn_pairs(0.9, 30 * DAY_S), more=(6 * 3600.0, 7 * DAY_S))
    (met,) = evaluate([rule], Situation(AT_S, {"q": told}), OPTIONS).met
    assert met.value == pytest.approx(0.8)
    assert "Only 80% of the judged answers of chat pass" in met.annotations["summary"]


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [  # what Prometheus 2.42 writes
        ("{{ $value | humanizePercentage }}", 0.144, "14.4%"),
        ("{{ $value | humanize }}", 12345.0, "12.35k"),
        ("{{ $value | humanize }}", 0.25, "250m"),
        ("{{ $value | humanize }}", 2.0, "2"),
        ("{{ $value }}", 3.0, "3"),
    ],
)
def test_values_are_written_as_prometheus_writes_them(template: str, value: float, text: str) -> None:
    assert filled(template, value) == text


def test_availability_pages_too() -> None:
    slo = Slo("served", "chat", 0.99, Availability(), engines=("vllm",))
    assert [one.rule.name for one in burning(slo, 1.0, target="served")] == list(BURNS)


def test_symptoms_carry_the_rule_s_labels() -> None:
    rules: list[Alert] = [a for a in build([CHAT], OPTIONS).alerts if a.kind == "target-down"]
    (met,) = evaluate(rules, Situation(AT_S, {}, {"chat": service(up={"a": True, "b": False})}), OPTIONS).met
    assert dict(met.labels) == {"severity": "warning", "service": "chat"}
    assert met.annotations["summary"] == "1 of the targets of chat cannot be scraped; others still can."
