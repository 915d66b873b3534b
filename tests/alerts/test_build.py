"""Generated rules: every name is in a table, every expression parses, promtool takes the files, golden files hold."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from alerts.lint.names import names
from alerts.lint.tree import names_in, parsed
from alerts.rules import own
from alerts.rules.build import build
from alerts.rules.files import grafana_file, operator_files, prometheus_files
from alerts.rules.sources import lives, numbers
from alerts.rules.values import Alert, Options, Recording, RuleSet
from goodwatch.core.engine import Source
from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Limits
from goodwatch.core.slo import (
    DAY_S,
    Availability,
    Cost,
    Custom,
    Indicator,
    JointGoodput,
    Latency,
    Period,
    Quality,
    Scope,
    Slo,
)
from tests.alerts.services import BATCH, CHAT, OPTIONS, SERVED, first_token, needs_promtool, promtool, written

KNOWN: Final = names([*OPTIONS.engines.values(), *OPTIONS.accelerators.values()]).known
GOLDEN: Final = Path(__file__).parent / "data" / "golden"
EVERY_KIND: Final = (
    CHAT,
    BATCH,
    SERVED,
    Slo("quality", "chat", 0.95, Quality(0.7)),
    Slo("cost", "chat", 0.95, Cost(3.0)),
    Slo(
        "custom", "web", 0.999, Custom("http_requests_total", bad='http_requests_total{code=~"5.."}'), Period(7 * DAY_S)
    ),
    Slo("tenant", "chat", 0.99, JointGoodput(Limits(0.5)), scope=Scope(tenant="acme")),
    Slo("models", "chat", 0.99, Latency("e2e_seconds", 30.0), scope=Scope(by=("model",)), engines=("vllm",)),
    Slo("month", "chat", 0.99, Latency("e2e_seconds", 30.0), Period(30 * DAY_S, "month"), engines=("sglang",)),
)


def expressions(rules: RuleSet) -> list[str]:
    return [rule.expr for group in rules.groups for rule in group.rules]


def eras() -> list[tuple[str, str | None]]:
    """Every engine with its oldest and newest version, and with none pinned."""
    return [
        (name, version)
        for name, engine in OPTIONS.engines.items()
        for version in (None, *dict.fromkeys((engine.versions[:1] + engine.versions[-1:]) if engine.versions else ()))
    ]


def measurable(engine: str, options: Options) -> list[Slo]:
    """One SLO of each kind that this engine's series carry in this version."""
    kinds: tuple[Indicator, ...] = (
        Availability(), Latency("ttft_seconds", 1.0), Latency("tpot_seconds", 0.1), Latency("e2e_seconds", 10.0),
        JointGoodput(Limits(1.0, 0.1, 10.0)),
    )  # fmt: skip
    found = []
    for index, kind in enumerate(kinds):
        slo = Slo(f"s{index}", "s", 0.99, kind, engines=(engine,))
        try:
            build([slo], options)
        except ConfigError:
            continue
        found.append(slo)
    return found


@pytest.mark.parametrize(("engine", "version"), eras())
def test_every_expression_of_an_engine_and_version_parses_and_uses_only_names_of_its_table(
    engine: str, version: str | None
) -> None:
    options = replace(OPTIONS, versions={engine: version} if version else {})
    slos = measurable(engine, options)
    if not slos:
        assert engine in {"llamacpp"}  # it has neither latency histograms nor a count of failures
        return
    rules = build(slos, options)
    recorded = {rule.name for group in rules.groups for rule in group.rules if isinstance(rule, Recording)}
    used = {name for expr in expressions(rules) for name in names_in(parsed(expr))} - recorded - own.SERIES - {"up"}
    for name in used:
        owners = [one for one in KNOWN.get(name, ()) if one.engine in {engine, *OPTIONS.accelerators}]
        assert owners, f"{name} is in no table of {engine}"
        for one in owners if version else ():
            assert one.engine != engine or lives(Source(one.family, since=one.since, until=one.until), version), one


def test_every_engine_is_met_in_its_oldest_and_its_newest_version() -> None:
    for name, engine in OPTIONS.engines.items():
        ends = {engine.versions[0], engine.versions[-1]} if engine.versions else set()
        assert {version for one, version in eras() if one == name} == {None, *ends}
        assert list(engine.versions) == sorted(engine.versions, key=numbers)


def test_what_a_summary_asks_parses_and_reads_only_what_is_recorded() -> None:
    rules = build(EVERY_KIND, OPTIONS)
    recorded = {rule.name for group in rules.groups for rule in group.rules if isinstance(rule, Recording)}
    texts = [alert.numbers for alert in rules.alerts if alert.numbers]
    asked = [query for text in texts for query in re.findall(r'(?:query|printf) "([^%"]*\(.*?)"', text)]
    assert len(asked) >= 2 * len(texts)
    assert {name for query in asked for name in names_in(parsed(query.replace("%f", "1")))} <= recorded


def test_writing_an_expression_in_lines_changes_nothing_in_it() -> None:
    for expr in expressions(build(EVERY_KIND, OPTIONS)):
        assert repr(parsed(parsed(expr).prettify())) == repr(parsed(expr))


def test_a_bucket_is_met_in_every_spelling_and_its_absence_is_no_failure() -> None:
    rules = build([replace(first_token(30), indicator=Latency("ttft_seconds", 1.0))], OPTIONS)
    total = next(expr for expr in expressions(rules) if "_count" in expr)
    assert 'le=~"1|1[.]0+|1e[+]0+"' in total
    assert "and on (job, instance)" in total  # a replica without this bucket is not all bad: it is left out


def test_an_old_and_a_new_name_are_never_added() -> None:
    (thrash,) = (a for a in build([CHAT], OPTIONS).alerts if a.name == "LlmKvCacheThrash")
    new, old = thrash.expr.index("vllm:kv_cache_usage_perc"), thrash.expr.index("vllm:gpu_cache_usage_perc")
    assert "or on (job, instance)" in thrash.expr[new:old]


def test_one_incident_is_one_page() -> None:
    """All windows and all targets are one alert, without a label that changes while it lasts."""
    pages = [a for a in build([CHAT], OPTIONS).alerts if a.severity == "critical" and "slo" in a.labels]
    (page,) = pages
    assert page.expr.startswith("max without (target) (")
    assert not {"pod", "instance", "target", "window"} & set(page.labels)


def test_no_ratio_is_recorded_without_traffic_and_none_is_averaged() -> None:
    for group in build(EVERY_KIND, OPTIONS).groups:
        for rule in group.rules:
            if ":ratio" in getattr(rule, "name", "") and isinstance(rule, Recording) and " / " in rule.expr:
                assert "> 0)" in rule.expr
            assert "avg_over_time(goodwatch:" not in rule.expr


def test_every_alert_has_what_a_person_needs() -> None:
    for text in prometheus_files(build(EVERY_KIND, OPTIONS), OPTIONS).values():
        for group in yaml.safe_load(text)["groups"]:
            for rule in group["rules"]:
                if "alert" in rule:
                    assert {"summary", "runbook_url", "dashboard_url"} <= set(rule["annotations"]), rule["alert"]
                    assert rule["annotations"]["summary"].split("{{ with")[0].strip().endswith("."), rule["alert"]
                    assert rule["labels"]["severity"] in {"critical", "warning", "none"}


def test_two_slos_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'chat': the name is there twice"):
        build([CHAT, CHAT], OPTIONS)


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        (replace(CHAT, engines=("vlm",)), "unknown engine 'vlm'"),
        (
            Slo("a", "a", 0.99, Latency("prefill_seconds", 1.0), engines=("tgi",)),
            "tgi has no series of prefill_seconds",
        ),
        (replace(CHAT, period=Period(600.0)), "fewer than two scrapes"),
        (replace(CHAT, service="../x"), "service '../x' is not a name"),
        (replace(CHAT, name='a"}'), "is not a name"),
        (
            replace(CHAT, engines=("vllm", "dynamo_frontend"), scope=Scope(model="m")),
            "do not name the model in one label",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(slo: Slo, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build([slo], OPTIONS)


def test_fitted_factors_and_missing_targets_are_told() -> None:
    old = replace(OPTIONS, versions={"vllm": "0.8.5"})
    notes = build([CHAT, replace(BATCH, objective=0.9)], old).notes
    assert any("no series of tpot_seconds" in note for note in notes)
    assert any("fitted to 5.5" in note for note in notes)


@needs_promtool
def test_promtool_takes_the_rules_of_every_kind_of_slo(tmp_path: Path) -> None:
    written(tmp_path, files := prometheus_files(build(EVERY_KIND, OPTIONS), OPTIONS))
    done = promtool(tmp_path, "check", "rules", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "duplicate" not in (done.stdout + done.stderr).lower()


def test_a_prometheusrule_holds_the_same_groups() -> None:
    rules = build([CHAT], OPTIONS)
    plain, wrapped = prometheus_files(rules, OPTIONS), operator_files(rules, OPTIONS)
    for name, text in plain.items():
        made = yaml.safe_load(wrapped[name.replace(".rules.yaml", ".prometheusrule.yaml")])
        assert made["kind"] == "PrometheusRule"
        assert made["spec"] == yaml.safe_load(text)


def test_grafana_gets_short_unique_uids_and_doubled_dollars() -> None:
    rules = build(EVERY_KIND, OPTIONS)
    made = yaml.safe_load(grafana_file(rules, OPTIONS))
    found = [rule for group in made["groups"] for rule in group["rules"]]
    assert len(found) == len(rules.alerts)
    assert len({rule["uid"] for rule in found}) == len(found)
    assert all(len(rule["uid"]) <= 40 for rule in found)
    assert all("$$values" in r["annotations"]["summary"] for r in found if "{{" in r["annotations"]["summary"])
    assert all("query" not in r["annotations"]["summary"] for r in found)
    assert {rule["noDataState"] for rule in found} == {"OK"}


@pytest.mark.parametrize("kind", ["prometheus", "operator", "grafana"])
def test_the_files_are_the_golden_ones(kind: str) -> None:
    """Rewritten by GOLDEN=update; read them in review."""
    slos = [replace(first_token(30), name="ttft", description="First tokens of the chat.")]
    rules = build(slos, replace(OPTIONS, accelerators={"dcgm": OPTIONS.accelerators["dcgm"]}))
    files = {
        "prometheus": prometheus_files(rules, OPTIONS),
        "operator": {"object.yaml": operator_files(rules, OPTIONS)["goodwatch-common.prometheusrule.yaml"]},
        "grafana": {"grafana.yaml": grafana_file(rules, OPTIONS)},
    }[kind]
    for name, text in files.items():
        path = GOLDEN / name
        if os.environ.get("GOLDEN") == "update":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.read_text() == text


def test_a_cause_never_pages_while_users_are_served() -> None:
    pages = {alert.name for alert in build([CHAT, BATCH], OPTIONS).alerts if alert.severity == "critical"}
    assert pages == {"LlmErrorBudgetBurnFast", "LlmServiceDown", "LlmEngineStalled"}


def test_tickets_and_pages_can_be_left_out() -> None:
    quiet = build([replace(CHAT, pages=False)], OPTIONS)
    assert "LlmErrorBudgetBurnFast" not in {a.name for a in quiet.alerts if isinstance(a, Alert)}
