"""Cost by hand (design §4): price of the GPUs held over the window / tokens in the window × 10^6."""

import pytest

from goodwatch.core.model import Absence
from goodwatch.signals.cost import Price, cost, idle_ratio
from goodwatch.signals.windows import Gauge, TargetWindow

HOUR = 3600.0


def window(
    target: str = "t",
    *,
    model: str = "m",
    output: float | None = 1e6,
    entered: float | None = 3e6,
    idle: float | None = 0.25,
) -> TargetWindow:
    counters = {}
    if output is not None:
        counters[("output_tokens_total", "")] = output
    if entered is not None:
        counters[("input_tokens_total", "")] = entered
    gauges = {} if idle is None else {("idle_ratio", ""): Gauge(idle, 0, 1, 0)}
    return TargetWindow(target, "s", model, "vllm", 0.0, HOUR, counters, {}, gauges)


def test_an_hour_of_two_gpus() -> None:
    found = cost([window()], {"t": Price(2, 3.0, "list of 2026-01-01")}, HOUR)
    # 2 GPUs · 3 USD/h · 1 h = 6 USD for 1 M output and 4 M tokens in all; a quarter of the hour was idle
    assert found.usd.value == 6.0
    assert found.usd_per_hour.value == 6.0
    assert found.usd_per_million_output_tokens.value == 6.0
    assert found.usd_per_million_tokens.value == 1.5
    assert found.idle_usd.value == 1.5
    assert "list of 2026-01-01" in found.usd_per_million_tokens.note


def test_half_the_time_is_half_the_bill() -> None:
    found = cost([window()], {"t": Price(2, 3.0)}, HOUR / 2)
    assert (found.usd.value, found.usd_per_hour.value, found.idle_usd.value) == (3.0, 6.0, 0.75)


def test_a_target_with_two_models_is_paid_once() -> None:
    found = cost([window(model="a"), window(model="b")], {"t": Price(1, 4.0)}, HOUR)
    assert (found.usd.value, found.idle_usd.value) == (4.0, 1.0)
    assert found.usd_per_million_output_tokens.value == 2.0  # 4 USD for 2 M


def test_idle_time_is_told_per_target_at_its_own_price() -> None:
    found = cost([window("a", idle=1.0), window("b", idle=0.5)], {"a": Price(1, 2.0), "b": Price(4, 3.0)}, HOUR)
    assert found.usd.value == 14.0
    assert found.idle_usd.value == 2.0 + 6.0


def test_a_missing_price_is_named_and_is_not_zero() -> None:
    found = cost([window("a"), window("b")], {"a": Price(1, 2.0), "b": Price(None, 2.0)}, HOUR)
    assert found.usd.absence is Absence.NOT_MEASURABLE
    assert "b" in found.usd.note
    assert "gpu_hour_usd" in found.usd.note
    assert cost([window("a")], {}, HOUR).usd_per_million_tokens.absence is Absence.NOT_MEASURABLE


def test_tokens_that_nobody_made_have_no_price_though_the_hour_has() -> None:
    found = cost([window(output=0.0, entered=0.0, idle=1.0)], {"t": Price(1, 2.0)}, HOUR)
    assert (found.usd.value, found.idle_usd.value) == (2.0, 2.0)
    assert found.usd_per_million_output_tokens.absence is Absence.NO_TRAFFIC


def test_tokens_that_are_not_counted_are_not_measurable() -> None:
    found = cost([window(output=None)], {"t": Price(1, 2.0)}, HOUR)
    assert found.usd_per_million_output_tokens.absence is Absence.NOT_MEASURABLE
    assert found.usd_per_million_tokens.absence is Absence.NOT_MEASURABLE


def test_no_target_is_no_data() -> None:
    assert cost([], {}, HOUR).usd.absence is Absence.NO_DATA


def test_good_tokens_have_no_price_before_there_are_request_facts() -> None:
    found = cost([window()], {"t": Price(1, 2.0)}, HOUR).usd_per_million_good_tokens
    assert found.absence is Absence.NOT_MEASURABLE


def test_idle_time_is_unknown_when_the_engine_does_not_say_what_runs() -> None:
    assert idle_ratio(window(idle=None)) is None
    assert cost([window(idle=None)], {"t": Price(1, 2.0)}, HOUR).idle_usd.absence is Absence.NOT_MEASURABLE


@pytest.mark.parametrize("price", [Price(None, 2.0), Price(2, None), Price(None, None)])
def test_half_a_price_is_none(price: Price) -> None:
    assert price.usd_per_hour is None
