"""Power, use and energy of devices, and joules per million output tokens: exact where told, absent where not."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.model import Absence, Number
from goodwatch.signals.energy import NO_EXPORTER, DevicePart, device_rows, energy_numbers, without_devices
from goodwatch.signals.windows import Gauge, TargetWindow

ENERGY = "energy_joules_per_million_output_tokens"


def steady(value: float) -> Gauge:
    return Gauge(value, value, value, value)


def window(
    target: str = "one",
    *,
    tokens: float | None = 1_000.0,
    seconds: float = 300.0,
    devices: Mapping[str, Mapping[str, float]] | None = None,
    model: str = "m",
    idle: float = 0.0,
) -> TargetWindow:
    """``devices`` by part: joules, read_s, watts, busy, used, total."""
    counters = {("covered_seconds_total", ""): seconds}
    if tokens is not None:
        counters[("output_tokens_total", "")] = tokens
    gauges = {("up", ""): steady(1.0), ("idle_ratio", ""): steady(idle)}
    names = {"joules": "gpu_energy_joules_total", "read_s": "gpu_covered_seconds_total"}
    levels = {
        "watts": "gpu_power_watts", "busy": "gpu_utilisation_ratio", "used": "gpu_memory_used_bytes",
        "total": "gpu_memory_total_bytes",
    }  # fmt: skip
    for part, told in (devices or {}).items():
        counters |= {(names[k], part): v for k, v in told.items() if k in names}
        gauges |= {(levels[k], part): steady(v) for k, v in told.items() if k in levels}
    return TargetWindow(target, "s", model, "vllm", 0.0, seconds, counters, {}, gauges)


def numbers(*windows: TargetWindow) -> dict[str, Number]:
    return energy_numbers(windows)


def alone(key: str) -> str:
    return str(DevicePart(key, key))


def test_joules_of_the_counter_over_the_tokens() -> None:
    two = {alone("GPU-a"): {"joules": 90_000.0, "read_s": 300.0}, alone("GPU-b"): {"joules": 60_000.0, "read_s": 300.0}}
    found = numbers(window(tokens=50_000.0, devices=two))
    assert found[ENERGY].value == pytest.approx(150_000 / 50_000 * 1e6)
    assert found["gpu_power_watts"].value == pytest.approx(500.0)
    assert found[ENERGY].note == ""


def test_without_a_counter_mean_power_over_time_is_taken_and_said_to_be_derived() -> None:
    found = numbers(window(tokens=1_000.0, devices={alone("a"): {"watts": 400.0, "read_s": 300.0}}))
    assert found[ENERGY].value == pytest.approx(400 * 300 / 1_000 * 1e6)
    assert "derived: mean power times time" in found[ENERGY].note


def test_without_devices_every_number_says_what_to_do() -> None:
    found = numbers(window())
    assert {(n.absence, n.note) for n in found.values()} == {(Absence.NOT_MEASURABLE, NO_EXPORTER)}


def test_tokens_that_are_not_there_are_no_traffic_and_not_infinite_energy() -> None:
    found = numbers(window(tokens=0.0, devices={alone("a"): {"joules": 30_000.0, "read_s": 300.0}}))[ENERGY]
    assert (found.value, found.absence) == (None, Absence.NO_TRAFFIC)
    assert found.note == "no tokens in the window, though 30000 J were spent"


def test_an_engine_that_counts_no_tokens_has_no_energy_per_token() -> None:
    found = numbers(window(tokens=None, devices={alone("a"): {"joules": 1.0, "read_s": 300.0}}))[ENERGY]
    assert found.note == "this engine does not count tokens"


def test_energy_of_idle_time_is_in_it_and_said() -> None:
    found = numbers(window(idle=0.4, devices={alone("a"): {"joules": 1.0, "read_s": 300.0}}))[ENERGY]
    assert found.note == "nothing ran in 40% of the time, whose energy is in it"


def test_a_scrape_more_or_less_does_not_bend_the_ratio() -> None:
    short = window(tokens=30_000.0, seconds=300.0, devices={alone("a"): {"joules": 84_000.0, "read_s": 240.0}})
    found = numbers(short)[ENERGY]
    assert found.value == pytest.approx(350 * 300 / 30_000 * 1e6)
    assert "read for 240 s of 300 s" in found.note


def test_devices_that_were_hardly_read_give_no_number() -> None:
    found = numbers(window(seconds=300.0, devices={alone("a"): {"joules": 5_000.0, "read_s": 15.0}}))[ENERGY]
    assert (found.absence, found.note) == (
        Absence.NO_DATA, "the devices were read for 15 s, the tokens for 300 s",
    )  # fmt: skip


def test_shared_devices_are_counted_once_for_all_and_not_at_all_for_one() -> None:
    part = str(DevicePart("a", "a", ("one", "two")))
    told = {part: {"joules": 60_000.0, "read_s": 300.0, "watts": 200.0}}
    one, two = window("one", tokens=10_000.0, devices=told), window("two", tokens=20_000.0, devices=told)
    both = numbers(one, two)
    assert both[ENERGY].value == pytest.approx(60_000 / 30_000 * 1e6)
    assert both["gpu_power_watts"].value == pytest.approx(200.0)
    single = numbers(one)
    assert single[ENERGY].absence is Absence.NOT_MEASURABLE
    assert single[ENERGY].note == "the devices are shared with target two: their energy is not split by guess"
    assert "shared with target two" in single["gpu_power_watts"].note


def test_a_device_that_a_stranger_shares_has_no_energy_per_token() -> None:
    part = str(DevicePart("a", "a", (), "pod dev/notebook"))
    found = numbers(window(devices={part: {"joules": 60_000.0, "read_s": 300.0}}))[ENERGY]
    assert "shared with pod dev/notebook" in found.note


def test_instances_of_one_card_repeat_its_power() -> None:
    parts = [str(DevicePart(f"a/{i}", "a")) for i in (1, 2)]
    found = numbers(window(tokens=1_000.0, devices={p: {"joules": 30_000.0, "read_s": 300.0} for p in parts}))
    assert found["gpu_power_watts"].value == pytest.approx(100.0)
    assert found[ENERGY].value == pytest.approx(30_000 / 1_000 * 1e6)


def test_a_device_that_became_shared_within_the_window_is_not_split() -> None:
    told = {"joules": 30_000.0, "read_s": 150.0}
    parts = {alone("a"): told, str(DevicePart("a", "a", ("one", "two"))): told}
    found = numbers(window("one", devices=parts))
    assert found["gpu_power_watts"].value == pytest.approx(200.0)
    assert found[ENERGY].absence is Absence.NOT_MEASURABLE


def test_two_models_of_one_target_hold_its_devices_together() -> None:
    told = {alone("a"): {"joules": 60_000.0, "read_s": 300.0}}
    found = numbers(*(window(tokens=10_000.0, devices=told, model=m) for m in ("m", "n")))
    assert found[ENERGY].value == pytest.approx(60_000 / 20_000 * 1e6)


def test_targets_without_devices_are_left_out_with_their_tokens_and_said() -> None:
    held = window("one", tokens=10_000.0, devices={alone("a"): {"joules": 60_000.0, "read_s": 300.0}})
    found = numbers(held, window("two", tokens=90_000.0))[ENERGY]
    assert found.value == pytest.approx(60_000 / 10_000 * 1e6)
    assert found.note == "1 of 2 targets have no devices joined"


def test_use_is_a_mean_over_devices_and_memory_a_share_of_all_of_it() -> None:
    told = {
        alone("a"): {"watts": 1.0, "busy": 0.2, "used": 10.0, "total": 80.0},
        alone("b"): {"watts": 1.0, "busy": 0.6, "used": 70.0, "total": 80.0},
    }
    found = numbers(window(devices=told))
    assert found["gpu_utilisation_ratio"].value == pytest.approx(0.4)
    assert found["gpu_memory_used_ratio"].value == pytest.approx(0.5)


def test_what_the_exporter_does_not_tell_is_named() -> None:
    found = numbers(window(devices={alone("a"): {"busy": 0.5}}))
    assert found["gpu_power_watts"].note == "the exporter tells neither power nor energy"
    assert found[ENERGY].note == "the exporter tells neither power nor energy"
    assert "memory" in found["gpu_memory_used_ratio"].note


def test_a_window_can_be_stripped_of_its_devices() -> None:
    bare = without_devices(window(devices={alone("a"): {"joules": 1.0, "read_s": 300.0, "watts": 1.0}}))
    assert bare.counters == window().counters
    assert bare.gauges == window().gauges


@given(st.text(), st.text(), st.lists(st.text(min_size=1), max_size=3), st.text())
def test_a_part_keeps_any_name(key: str, card: str, holders: list[str], strangers: str) -> None:
    part = DevicePart(key or "k", card or "c", tuple(holders), strangers)
    assert DevicePart.of(str(part)) == part


def test_rows_of_an_exporter_become_rows_of_the_holder() -> None:
    base = {"minute_s": 30.0, "target": "dcgm", "service": "", "model": "", "engine": "dcgm"}
    rows = [
        {**base, "signal": "up", "part": "", "kind": "gauge", "mean": 1.0},
        {**base, "signal": "covered_seconds_total", "part": "", "kind": "counter", "increase": 15.0},
        {**base, "signal": "gpu_energy_joules_total", "part": "gpu=a", "kind": "counter", "increase": 4_500.0},
        {**base, "signal": "gpu_power_watts", "part": "gpu=a", "kind": "gauge", "mean": 300.0},
        {**base, "signal": "gpu_power_watts", "part": "gpu=b", "kind": "gauge", "mean": 300.0},
        {**base, "signal": "gpu_temperature_celsius", "part": "gpu=a", "kind": "gauge", "mean": 60.0},
    ]
    found = device_rows(rows, {"gpu=a": DevicePart("a", "a")}, {"gpu=a"}, target="one", service="chat")
    assert {(r["signal"], r["part"], r["target"], r["service"], r["engine"]) for r in found} == {
        (name, "gpu=a", "one", "chat", "")
        for name in ("gpu_energy_joules_total", "gpu_power_watts", "gpu_covered_seconds_total")
    }
    first = device_rows(rows[:2] + rows[3:], {"gpu=a": DevicePart("a", "a")}, {"gpu=a"}, target="one", service="chat")
    assert [r["signal"] for r in first] == ["gpu_power_watts"], "the first counter value is no time that was read"
