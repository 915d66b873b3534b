"""SLOs as YAML in three forms: goodwatch's own, OpenSLO v1 and Sloth's; back and forth, and refused with the reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alerts import openslo, sloth, spec
from alerts.queries import counted
from alerts.rules.build import build
from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Limits
from goodwatch.core.slo import DAY_S, Availability, Cost, Custom, JointGoodput, Latency, Period, Quality, Scope, Slo
from tests.alerts.services import OPTIONS

DATA: Final = Path(__file__).parent / "data"
ONE: Final = {"name": "a", "service": "s", "objective": 0.99}


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DATA / name).read_text()))


indicators = st.one_of(
    st.just(Availability()),
    st.builds(
        Latency,
        st.sampled_from(["ttft_seconds", "tpot_seconds", "e2e_seconds"]),
        st.sampled_from([0.05, 0.5, 2.5, 120.0]),
    ),
    st.builds(
        JointGoodput, st.builds(Limits, st.just(0.5), st.sampled_from([None, 0.05]), st.sampled_from([None, 30.0]))
    ),
    st.builds(Quality, st.sampled_from([0.0, 0.7, 1.0]), st.sampled_from(["", "judge"])),
    st.builds(Cost, st.sampled_from([0.5, 3.0]), st.sampled_from(["good", "output", "total"])),
    st.just(Custom("sum(increase(x_total[$window]))", bad="sum(increase(y_total[$window]))")),
    st.just(
        Custom(
            "sum(increase(x_total[$window]))", good="sum(increase(g_total[$window]))", slice_s=60.0, slice_target=0.95
        )
    ),
)
periods = st.sampled_from(
    [
        Period(7 * DAY_S),
        Period(),
        Period(3600.0 * 12),
        Period(30 * DAY_S, "month"),
        Period(7 * DAY_S, "week", "2022-01-01 12:00:00", "Europe/Berlin"),
    ]
)
slos = st.builds(
    Slo, st.just("a"), st.just("s"), st.sampled_from([0.9, 0.95, 0.995, 0.9999]), indicators, periods,
    description=st.sampled_from(["", "what"]), engines=st.sampled_from([(), ("vllm",), ("vllm", "sglang")]),
    labels=st.sampled_from([{}, {"team": "a"}, {"team": "a,b"}]),
)  # fmt: skip


@given(
    slos,
    st.builds(Scope, st.sampled_from(["", "m"]), st.sampled_from(["", "t"]), by=st.sampled_from([(), ("model",)])),
    st.booleans(),
)
def test_an_slo_survives_its_own_yaml(slo: Slo, scope: Scope, page: bool) -> None:
    slo = replace(
        slo, scope=scope, pages=page, min_failures=9, requests_per_day=1000.0, select={"job": "~x.*"}, owner="me"
    )
    text = yaml.safe_dump({"slos": [spec.written(slo)]})
    assert spec.read(yaml.safe_load(text), "a.yaml") == (slo,)


@given(slos)
def test_an_slo_survives_openslo(slo: Slo) -> None:
    text = yaml.safe_dump(openslo.written(slo))
    found = openslo.read([yaml.safe_load(text)], "a.yaml")
    starts = slo.period.calendar and not slo.period.starts
    (one,) = found
    if starts:  # OpenSLO wants a moment and a zone: midnight UTC is written out
        assert (one.period.calendar, one.period.zone) == (slo.period.calendar, "UTC")
    else:
        assert one.period == slo.period
    assert (one.name, one.objective, one.indicator, one.labels, one.engines) == (
        slo.name,
        slo.objective,
        slo.indicator,
        slo.labels,
        slo.engines,
    )


def test_openslos_own_example_comes_in_and_goes_out_the_same() -> None:
    original = documents("openslo/web_availability.yaml")[0][0]
    (slo,) = openslo.read(documents("openslo/web_availability.yaml"), "web.yaml")
    assert (slo.service, slo.objective) == ("web", 0.995)
    assert slo.period == Period(7 * DAY_S, "week", "2022-01-01 12:00:00", "America/New_York")
    assert isinstance(slo.indicator, Custom)
    assert (slo.indicator.slice_s, slo.indicator.slice_target) == (60.0, 0.95)
    made = openslo.written(slo)
    for key in ("service", "description", "budgetingMethod"):
        assert made["spec"][key] == original["spec"][key]
    assert made["spec"]["timeWindow"][0]["isRolling"] is False
    assert openslo.read([made], "again.yaml") == (slo,)
    build([slo], OPTIONS)


def test_a_source_that_prometheus_cannot_ask_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"test-slo.*'Datadog' is not Prometheus"):
        openslo.read(documents("openslo/datadog.yaml"), "d.yaml")


def test_sloths_example_becomes_counts_of_events() -> None:
    (slo,) = sloth.read(documents("sloth/getting_started.yml")[0], "s.yml")
    assert (slo.name, slo.objective, slo.period) == ("myservice-requests-availability", 0.999, Period())
    assert slo.labels == {"owner": "myteam", "repo": "myorg/myservice", "tier": "2"}
    assert slo.indicator == Custom(
        'sum(increase(http_request_duration_seconds_count{job="myservice"}[$window]))',
        bad='sum(increase(http_request_duration_seconds_count{job="myservice",code=~"(5..|429)"}[$window]))',
    )
    build([slo], OPTIONS)


def test_a_raw_ratio_is_refused_for_it_has_no_counts() -> None:
    with pytest.raises(ConfigError, match=r"wifi-client-satisfaction.*ratio without counts.*sli.events"):
        sloth.read(documents("sloth/raw_home_wifi.yml")[0], "r.yml")


def test_sloths_kubernetes_object_and_switched_off_alerts_are_read() -> None:
    events = {"errorQuery": "sum(rate(a[{{.window}}]))", "totalQuery": "sum(rate(b[{{ .window }}]))"}
    entry = {"name": "x", "objective": 99, "sli": {"events": events}, "alerting": {"pageAlert": {"disable": True}}}
    (slo,) = sloth.read({"apiVersion": "sloth.slok.dev/v1", "spec": {"service": "s", "slos": [entry]}}, "k.yml")
    assert (slo.pages, slo.tickets, slo.objective) == (False, True, 0.99)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sum(rate(x[{{.window}}]))", "sum(increase(x[$window]))"),
        ("x_total", "increase(x_total[$window])"),
        ('sum(a{b="c"}) + sum(ab)', 'sum(increase(a{b="c"}[$window])) + sum(increase(ab[$window]))'),
    ],
)
def test_a_query_becomes_a_count_over_the_window(query: str, expected: str) -> None:
    assert counted(query, "q") == expected


def test_a_fixed_range_cannot_be_asked_over_other_windows() -> None:
    with pytest.raises(ConfigError, match="has a fixed range"):
        counted("sum(rate(x[5m]))", "q")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "has no indicator; write exactly one of availability, latency"),
        ({"availability": {}, "latency": {"ttft": "1s"}}, "has availability, latency; write exactly one"),
        ({"latency": {"ttft": "1s", "e2e": "2s"}}, "several limits under latency"),
        ({"latency": {}}, "has no limit; write at least one of ttft, tpot, e2e"),
        ({"latency": {"ttft": "soon"}}, "is not a duration"),
        ({"availability": {}, "objective": 99}, "is not between 0 and 1; write 0.99 for 99 %"),
        ({"availability": {}, "period": {"calendar": "fortnight"}}, "slos[0].period.calendar"),
        ({"custom": {"total": "x"}}, "has both good and bad, or neither"),
        ({"custom": {"total": "x", "bad": "y", "slice": "1m"}}, "write both or none"),
        ({"availability": {}, "nmae": "x"}, "slos[0].nmae: unknown key"),
        ({"availability": {}, "name": "a b"}, "is not a name"),
        ({"quality": {"score": 70}}, "less than or equal to 1"),
    ],
)
def test_what_is_wrong_in_an_entry_is_said_with_its_key(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        spec.read({"slos": [{**ONE, **entry}]}, "slo.yaml")
    assert said in str(raised.value)
    assert str(raised.value).startswith("slo.yaml: slos[0]")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"apiVersion": "openslo/v1alpha"}, "is not openslo/v1"),
        ({"spec": {"service": "s"}}, "has no objectives"),
        ({"spec": {"objectives": [{"target": 99}], "indicator": {}}}, "has no indicator|thresholdMetric|not between"),
        ({"spec": {"objectives": [{"target": 0.9}], "indicatorRef": "gone"}}, "no SLI is called 'gone'"),
        ({"kind": "Service"}, "no object of kind SLO"),
    ],
)
def test_an_openslo_object_that_cannot_be_read_is_refused(change: dict[str, Any], said: str) -> None:
    good = openslo.written(Slo("a", "s", 0.9, Availability()))
    with pytest.raises(ConfigError, match=said):
        openslo.read([{**good, **change}], "o.yaml")
