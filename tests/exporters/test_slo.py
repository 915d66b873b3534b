"""Series of SLOs: what is known is there, what is not is absent, and no name is on a page twice."""

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest

from exporters.slo import MAX_GROUPS, SLO_SERIES, SloSeries, SlosNow, TargetSeries, slo_families

NAMES = {"service": "chat", "slo": "chat"}


def samples(now: SlosNow, *beside: Metric) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = [(s.name, tuple(sorted(s.labels.items())), s.value) for f in slo_families(now, beside) for s in f.samples]
    assert len({(name, labels) for name, labels, _ in found}) == len(found)
    return {(name, labels): value for name, labels, value in found}


def value(found: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


def chat(*targets: TargetSeries, **more: object) -> SloSeries:
    return SloSeries("chat", "chat", 0.99, "30d", targets, **more)  # type: ignore[arg-type]


def test_an_slo_has_its_budget_its_burn_and_its_end() -> None:
    target = TargetSeries("ttft", 0.25, {"5m": 2.0, "1h": None})
    found = samples(
        SlosNow([chat(target, exhaustion_s=(100.0, 50.0, None), firing={"critical": True, "warning": False})])
    )
    assert value(found, "goodwatch_slo_objective_ratio", **NAMES) == 0.99
    assert value(found, "goodwatch_slo_budget_remaining_ratio", **NAMES, period="30d", target="ttft") == 0.25
    assert value(found, "goodwatch_slo_burn_rate", **NAMES, window="5m", target="ttft") == 2.0
    assert value(found, "goodwatch_slo_burn_rate", **NAMES, window="1h", target="ttft") is None
    assert value(found, "goodwatch_slo_budget_exhaustion_seconds", **NAMES, bound="soonest") == 50.0
    assert value(found, "goodwatch_slo_budget_exhaustion_seconds", **NAMES, bound="latest") is None
    assert value(found, "goodwatch_slo_alert_firing", **NAMES, severity="critical") == 1.0
    assert value(found, "goodwatch_slo_alert_firing", **NAMES, severity="warning") == 0.0


def test_an_slo_that_is_not_known_has_its_objective_only() -> None:
    assert list(samples(SlosNow([chat(TargetSeries("ttft", None, {}))]))) == [
        ("goodwatch_slo_objective_ratio", (("service", "chat"), ("slo", "chat")))
    ]


def test_groups_are_bounded_and_the_worst_ones_stay() -> None:
    targets = [TargetSeries("counted", n / 100, {}, {"tenant": f"t{n}"}) for n in range(90, -1, -1)]
    found = samples(SlosNow([chat(*targets)]))
    shown = {dict(labels)["tenant"] for name, labels in found if name.endswith("remaining_ratio")}
    assert shown == {f"t{n}" for n in range(MAX_GROUPS)}


def test_a_label_that_is_taken_gets_another_name() -> None:
    found = samples(SlosNow([chat(TargetSeries("counted", 0.5, {}, {"target": "a"}))]))
    assert (
        value(found, "goodwatch_slo_budget_remaining_ratio", **NAMES, period="30d", target="counted", by_target="a")
        == 0.5
    )


def test_a_drift_is_there_while_it_goes_on() -> None:
    found = samples(SlosNow(drifts=[("chat", "latency", "")]))
    assert value(found, "goodwatch_drift_active", service="chat", kind="latency", slo="") == 1.0


def test_counted_events_join_those_of_requests_and_never_count_twice() -> None:
    requests = Metric("goodwatch_slo_valid_events", "of requests", "counter")
    requests.add_sample("goodwatch_slo_valid_events_total", NAMES, 5.0)
    found = samples(SlosNow(counted=[("chat", "chat", 7.0, 6.0), ("chat", "quality", 3.0, 2.0)]), requests)
    assert value(found, "goodwatch_slo_valid_events_total", **NAMES) == 5.0
    assert value(found, "goodwatch_slo_valid_events_total", service="chat", slo="quality") == 3.0
    assert value(found, "goodwatch_slo_good_events_total", service="chat", slo="quality") == 2.0


def test_the_page_can_be_read() -> None:
    class Source:
        def collect(self) -> list[Metric]:
            return list(slo_families(SlosNow([chat(TargetSeries("ttft", 0.5, {"5m": 1.0}))])))

    registry = CollectorRegistry()
    registry.register(Source())
    text = generate_latest(registry).decode()
    assert 'goodwatch_slo_burn_rate{service="chat",slo="chat",target="ttft",window="5m"} 1.0' in text
    assert {name for name, _, _, _ in SLO_SERIES} >= {
        line.split("{")[0] for line in text.splitlines() if line[0] != "#"
    }
