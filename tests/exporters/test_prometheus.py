import logging
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from exporters.prometheus import (
    STATES,
    Exporter,
    Scope,
    SelfMetrics,
    ServiceNow,
    Snapshot,
    TargetNow,
    series_name,
    series_table,
)
from goodwatch.app.telemetry import snapshot
from goodwatch.core.model import Absence, Basis, Bounds, Number
from goodwatch.signals.derive import MEANINGS
from tests.support.views import HOSTILE, RecordedViews, hostile_views, no_data_views

ROOT = Path(__file__).resolve().parents[2]
PROMTOOL = shutil.which("promtool")

Labels = dict[str, str]


def exporter_of(read: Snapshot | Callable[[], Snapshot], max_series: int = 20_000) -> Exporter:
    own = SelfMetrics("1.2.3")
    return Exporter(read if callable(read) else lambda: read, own, max_series=max_series)


def samples_of(exporter: Exporter) -> dict[str, list[tuple[Labels, float]]]:
    """Samples of the rendered page by name, read back by prometheus-client's parser."""
    body, _ = exporter.render(exporter.read())
    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def one(number: Number, name: str = "goodput_per_s") -> Snapshot:
    return Snapshot(scopes=(Scope("chat", {name: number}),))


def everything() -> SelfMetrics:
    own = SelfMetrics("1.2.3")
    own.scraped("", 0.01)
    own.scraped("timeout", 10.0)
    own.store_error()
    own.refused("sample_limit", 3)
    own.auth_failed("token")
    own.reloaded(True, 1_700_000_000.0)
    own.loop_lag(0.002)
    return own


def test_a_point_is_one_sample() -> None:
    found = samples_of(exporter_of(one(Number("1/s", Basis.MEASURED, 2.5))))
    assert found["goodwatch_goodput_per_second"] == [({"service": "chat", "model": ""}, 2.5)]
    assert "goodwatch_goodput_per_second_low" not in found
    assert "goodwatch_number_absent" not in found


def test_an_interval_is_its_two_ends() -> None:
    found = samples_of(exporter_of(one(Number("1/s", Basis.BOUNDED, bounds=Bounds(1.0, 3.0)))))
    assert found["goodwatch_goodput_per_second_low"][0][1] == 1.0
    assert found["goodwatch_goodput_per_second_high"][0][1] == 3.0
    assert "goodwatch_goodput_per_second" not in found


@pytest.mark.parametrize("high", [None, math.inf])
def test_an_interval_that_is_open_above_has_no_high_sample(high: float | None) -> None:
    found = samples_of(exporter_of(one(Number("1/s", Basis.BOUNDED, bounds=Bounds(1.0, high)))))
    assert "goodwatch_goodput_per_second_low" in found
    assert "goodwatch_goodput_per_second_high" not in found


@pytest.mark.parametrize("absence", list(Absence))
def test_an_absent_number_is_no_sample_and_says_why(absence: Absence) -> None:
    found = samples_of(exporter_of(one(Number.none("1/s", absence, "a reason"))))
    assert not [name for name in found if name.startswith("goodwatch_goodput")]
    labels = {"service": "chat", "model": "", "target": "", "name": "goodput_per_s", "absence": absence.value}
    assert found["goodwatch_number_absent"] == [(labels, 1.0)]


finite = st.floats(allow_nan=True, allow_infinity=True)
numbers = st.builds(
    Number, st.just("s"), st.none(), st.none() | finite, st.none() | st.builds(Bounds, finite, st.none() | finite)
)


@given(number=numbers)
def test_a_number_is_exported_exactly_or_said_to_be_absent(number: Number) -> None:
    found = samples_of(exporter_of(one(number)))
    low, high = (number.bounds.low, number.bounds.high) if number.bounds else (None, None)
    wanted = {"": number.value, "_low": low, "_high": high}
    finite_ones = {end: v for end, v in wanted.items() if v is not None and math.isfinite(v)}
    shown = {end: found.get(f"goodwatch_goodput_per_second{end}") for end in wanted}
    assert {end: rows[0][1] for end, rows in shown.items() if rows} == finite_ones
    assert ("goodwatch_number_absent" in found) == (not finite_ones)


def test_every_meaning_is_exported_or_absent_for_a_real_engine() -> None:
    found = samples_of(exporter_of(lambda: snapshot(RecordedViews())))
    absent = {labels["name"] for labels, _ in found["goodwatch_number_absent"] if not labels["target"]}
    for name in MEANINGS:
        series = [f"{series_name(name)}{end}" for end in ("", "_low", "_high")]
        there = any(labels.get("target", "") == "" for s in series for labels, _ in found.get(s, []))
        assert there != (name in absent), name


def test_service_model_and_target_are_told_apart() -> None:
    found = samples_of(exporter_of(lambda: snapshot(RecordedViews())))
    labels = [labels for labels, _ in found["goodwatch_request_rate_per_second"]]
    assert labels == [
        {"service": "chat", "model": ""},
        {"service": "chat", "model": "tiny"},
        {"service": "chat", "model": "", "target": "chat-0"},
    ]


def test_state_objective_and_targets_are_exported() -> None:
    services = (ServiceNow("chat", "no traffic", 0.99), ServiceNow("batch", "good", None))
    targets = (TargetNow("a", "chat", True), TargetNow("b", "chat", False), TargetNow("c", "chat", None))
    found = samples_of(exporter_of(Snapshot(services=services, targets=targets, store_lag_s=1.5, store_bytes=10)))
    states = {at["state"]: v for at, v in found["goodwatch_service_state"] if at["service"] == "chat"}
    assert states == {state: float(state == "no traffic") for state in STATES}
    assert found["goodwatch_objective_ratio"] == [({"service": "chat"}, 0.99)]
    assert {at["target"]: v for at, v in found["goodwatch_target_up"]} == {"a": 1.0, "b": 0.0}
    assert found["goodwatch_store_lag_seconds"] == [({}, 1.5)]


def test_what_is_gone_leaves_no_stale_series() -> None:
    views = RecordedViews()
    shown = [snapshot(views), Snapshot()]
    exporter = exporter_of(lambda: shown.pop(0))
    assert "goodwatch_target_up" in samples_of(exporter)
    assert "goodwatch_target_up" not in samples_of(exporter)


def test_a_full_page_drops_models_and_targets_first_and_counts_it(caplog: pytest.LogCaptureFixture) -> None:
    number = {name: Number(m.unit, Basis.MEASURED, 1.0) for name, m in MEANINGS.items()}
    scopes = [Scope("chat", number, target=f"t{i}") for i in range(10)] + [Scope("chat", number)]
    exporter = exporter_of(Snapshot(scopes=tuple(scopes)), max_series=2 * len(MEANINGS))
    with caplog.at_level(logging.WARNING):
        found = samples_of(exporter)
        samples_of(exporter)
    assert [labels.get("target") for labels, _ in found["goodwatch_goodput_per_second"]] == [None, "t0"]
    assert found["goodwatch_dropped_samples_total"] == [({}, 9.0 * len(MEANINGS))]
    assert len(caplog.records) == 1


def test_half_an_interval_is_never_exported() -> None:
    found = samples_of(exporter_of(one(Number("1/s", bounds=Bounds(1.0, 2.0))), max_series=1))
    assert not [name for name in found if name.startswith("goodwatch_goodput")]


def test_long_labels_are_cut_and_stay_apart() -> None:
    number = {"goodput_per_s": Number("1/s", Basis.MEASURED, 1.0)}
    models = ["m" * 300, "m" * 301, "\ud800 lone surrogate"]
    scopes = tuple(Scope("chat", number, model=model) for model in (*models, models[0]))
    found = samples_of(exporter_of(Snapshot(scopes=scopes)))
    shown = [labels["model"] for labels, _ in found["goodwatch_goodput_per_second"]]
    assert len(shown) == len(set(shown)) == 3
    assert max(len(model) for model in shown) == 256


def test_hostile_texts_are_escaped() -> None:
    found = samples_of(exporter_of(lambda: snapshot(hostile_views())))
    assert HOSTILE in {labels["model"] for labels, _ in found["goodwatch_request_rate_per_second"]}


def test_health_is_unknown_and_not_zero_before_it_is_reported() -> None:
    found = samples_of(exporter_of(Snapshot()))
    assert found["goodwatch_build_info"] == [({"version": "1.2.3"}, 1.0)]
    for name in ("config_reload_success", "config_last_reload_timestamp_seconds"):
        assert f"goodwatch_{name}" not in found
    assert "goodwatch_store_bytes" not in found


def test_health_is_exported_as_it_was_reported() -> None:
    own = everything()
    own.reloaded(False, 1_800_000_000.0)
    found = samples_of(Exporter(Snapshot, own))
    assert found["goodwatch_scrapes_total"] == [({"reason": "ok"}, 1.0), ({"reason": "timeout"}, 1.0)]
    assert found["goodwatch_scrape_duration_seconds_sum"] == [({}, 10.01)]
    assert found["goodwatch_store_errors_total"] == [({}, 1.0)]
    assert found["goodwatch_refused_input_total"] == [({"reason": "sample_limit"}, 3.0)]
    assert found["goodwatch_config_reload_success"] == [({}, 0.0)]
    assert found["goodwatch_config_last_reload_timestamp_seconds"] == [({}, 1_700_000_000.0)]
    lag = {labels["le"]: value for labels, value in found["goodwatch_event_loop_lag_seconds_bucket"]}
    assert (lag["0.001"], lag["0.005"], lag["0.05"]) == (0, 1, 1)  # one look, 2 ms late
    assert "process_resident_memory_bytes" in found
    assert not [name for name in found if name.endswith("_created")]


def test_openmetrics_is_written_when_asked_for() -> None:
    exporter = Exporter(lambda: snapshot(RecordedViews()), everything())
    body, content_type = exporter.render(exporter.read(), "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in openmetrics_families(body.decode())}  # type: ignore[no-untyped-call]
    assert {"goodwatch_attainment_ratio_low", "goodwatch_scrapes"} <= names
    assert exporter.render(exporter.read(), "text/plain;version=0.0.4")[1].startswith("text/plain; version=0.0.4")


def test_the_registry_gives_the_same_families() -> None:
    exporter = Exporter(lambda: snapshot(RecordedViews()), everything())
    names = {family.name for family in exporter.registry.collect()}
    assert {"goodwatch_attainment_ratio_low", "goodwatch_scrapes"} <= names


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; Debian has it in the package prometheus")
@pytest.mark.parametrize("views", [RecordedViews, no_data_views, hostile_views])
def test_promtool_finds_nothing_wrong_with_the_page(views: Callable[[], RecordedViews]) -> None:
    shown = views()
    body, _ = (e := Exporter(lambda: snapshot(shown), everything())).render(e.read())
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=body, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_promtool_also_accepts_every_name_that_can_appear() -> None:
    if PROMTOOL is None:
        pytest.skip("promtool is not installed; Debian has it in the package prometheus")
    point = {name: Number(m.unit, Basis.BOUNDED, 1.0, Bounds(0.5, 2.0)) for name, m in MEANINGS.items()}
    body, _ = (e := exporter_of(Snapshot(scopes=(Scope("chat", point),)))).render(e.read())
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=body, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_documentation_has_every_series() -> None:
    path = ROOT / "docs" / "metrics.md"
    before, rest = path.read_text().split("<!-- series: begin -->\n")
    shown, after = rest.split("<!-- series: end -->")
    if os.environ.get("GOLDEN") == "update":
        path.write_text(f"{before}<!-- series: begin -->\n{series_table()}<!-- series: end -->{after}")
        return
    assert shown == series_table(), "run this test with GOLDEN=update and read the difference"


def test_every_family_of_a_page_is_documented() -> None:
    table = series_table()
    exporter = Exporter(lambda: snapshot(RecordedViews()), everything())
    for name in samples_of(exporter):
        if name.startswith("goodwatch_"):
            family = name.removesuffix("_low").removesuffix("_high")
            family = family.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            assert f"`{family}`" in table, name
