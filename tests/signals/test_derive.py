"""Every derived name, always there; and three ways of not being a number that are never mixed up."""

import math

import pytest

from goodwatch.app.engines import known_engines
from goodwatch.core.model import Absence, Limits
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import MEANINGS, Derived, derive, prefix_hit_ratio
from goodwatch.signals.windows import Gauge, TargetWindow
from tests.signals.simulations import Run
from tests.support.simulated_engine import Request, Simulated

ENGINES = known_engines()
LIMITS = Limits(ttft_s=0.5, tpot_s=0.1)
EVERY_5_S = tuple((at, False) for at in range(0, 65_000, 5_000))


def of(run: Run, limits: Limits = LIMITS, prices: dict[str, Price] | None = None) -> Derived:
    return derive(run.windows(), ENGINES, limits, prices or {}, start_s=run.after_ms / 1000, end_s=run.until_ms / 1000)


def test_without_rows_everything_is_no_data() -> None:
    found = derive([], ENGINES, LIMITS, {}, start_s=0.0, end_s=60.0)
    assert list(found.numbers) == list(MEANINGS)
    assert {n.absence for n in found.numbers.values()} == {Absence.NO_DATA}
    assert found.goodput is None


def test_a_target_that_never_answered_is_no_data() -> None:
    run = Run(Simulated("vllm", ()), ((0, False), *((at, True) for at in range(5_000, 65_000, 5_000))), 0, 60_000)
    assert {n.absence for n in of(run).numbers.values()} == {Absence.NO_DATA}


def test_an_engine_without_requests_is_no_traffic() -> None:
    numbers = of(Run(Simulated("vllm", ()), EVERY_5_S, 0, 60_000)).numbers
    assert numbers["request_rate_per_s"].value == 0
    assert numbers["attainment_ratio"].absence is Absence.NO_TRAFFIC
    assert numbers["ttft_p50_seconds"].absence is Absence.NO_TRAFFIC
    assert numbers["output_tokens_per_s"].value == 0
    assert numbers["idle_ratio"].value == 1.0


def test_a_signal_that_the_engine_does_not_have_is_not_measurable() -> None:
    numbers = of(Run(Simulated("vllm", (Request(0), Request(1_000))), EVERY_5_S, 0, 60_000)).numbers
    assert numbers["queue_p50_seconds"].absence is Absence.NOT_MEASURABLE
    assert numbers["prefix_hit_ratio"].absence is Absence.NOT_MEASURABLE
    assert numbers["usd_per_hour"].absence is Absence.NOT_MEASURABLE
    assert numbers["ttft_p50_seconds"].bounds is not None


def test_a_service_without_targets_for_latency_has_no_attainment_and_keeps_its_rate() -> None:
    numbers = of(Run(Simulated("vllm", (Request(0), Request(1_000))), EVERY_5_S, 0, 60_000), Limits()).numbers
    assert numbers["attainment_ratio"].absence is Absence.NOT_MEASURABLE
    assert "services[].slo" in numbers["attainment_ratio"].note
    assert numbers["request_rate_per_s"].value == pytest.approx(2 / 60)


def test_the_first_scrape_alone_is_no_data_yet_and_does_not_accuse_the_engine() -> None:
    """Two pages are needed for an increase; nothing says that this engine lacks the counters that it has."""
    run = Run(Simulated("vllm", (Request(0),)), ((0, False),), -1, 60_000)
    absence = of(run).numbers["request_rate_per_s"].absence
    assert absence is not Absence.NOT_MEASURABLE


def test_rates_after_a_gap_of_failed_scrapes_are_over_the_whole_gap() -> None:
    requests = tuple(Request(1_000 * i, tokens=1) for i in range(120))
    scrapes = ((0, False), *((at, True) for at in range(5_000, 115_000, 5_000)), (115_000, False), (120_000, False))
    numbers = of(Run(Simulated("vllm", requests), scrapes, 60_000, 120_000)).numbers
    # one request a second, though two minutes of them arrive in the window's counts
    assert numbers["request_rate_per_s"].value == pytest.approx(1.0, rel=0.01)
    assert numbers["output_tokens_per_s"].value == pytest.approx(1.0, rel=0.01)


def test_cost_is_over_the_same_time_as_the_tokens() -> None:
    requests = tuple(Request(1_000 * i, tokens=1) for i in range(60))
    numbers = of(Run(Simulated("vllm", requests), EVERY_5_S, 0, 60_000), prices={"t": Price(2, 1.8)}).numbers
    # 3.6 USD/h · 60 s = 0.06 USD for 60 output tokens: 1000 USD a million
    assert numbers["usd_per_hour"].value == pytest.approx(3.6)
    assert numbers["usd_per_million_output_tokens"].value == pytest.approx(1000.0)
    idle = numbers["idle_ratio"].value
    assert idle is not None
    assert numbers["idle_usd_per_hour"].value == pytest.approx(3.6 * idle)


def test_a_replica_that_is_down_does_not_hide_the_cost_of_the_others() -> None:
    """Its GPUs are held and paid for; nobody may say that the engine does not count tokens."""
    requests = tuple(Request(1_000 * i, tokens=1) for i in range(60))
    up = Run(Simulated("vllm", requests), EVERY_5_S, 0, 60_000)
    down = Run(Simulated("vllm", (), target="u"), ((0, False), *((at, True) for at, _ in EVERY_5_S[1:])), 0, 60_000)
    prices = {"t": Price(1, 3.6), "u": Price(1, 3.6)}
    found = derive([*up.windows(), *down.windows()], ENGINES, LIMITS, prices, start_s=0.0, end_s=60.0)
    number = found.numbers["usd_per_million_output_tokens"]
    assert number.value == pytest.approx(2 * 3.6 / 60 / 60 * 1e6) or "does not count tokens" not in number.note


def test_two_models_on_one_target_share_its_idle_time_and_its_price() -> None:
    counters = {
        ("output_tokens_total", ""): 5e5,
        ("input_tokens_total", ""): 0.0,
        ("covered_seconds_total", ""): 3600.0,
    }
    gauges = {("idle_ratio", ""): Gauge(0.5, 0, 1, 0), ("up", ""): Gauge(1, 1, 1, 1)}
    windows = [TargetWindow("t", "s", m, "vllm", 0.0, 3600.0, counters, {}, gauges) for m in ("a", "b")]
    numbers = derive(windows, ENGINES, Limits(), {"t": Price(1, 2.0)}, start_s=0.0, end_s=3600.0).numbers
    assert numbers["usd_per_hour"].value == 2.0
    assert numbers["usd_per_million_output_tokens"].value == 2.0
    assert numbers["idle_usd_per_hour"].value == 1.0


def test_gauges_of_replicas_add_up_and_cache_use_is_weighted_by_pool_size() -> None:
    def window(target: str, used: float, size: float) -> TargetWindow:
        values = {"up": 1.0, "requests_running": 3.0, "kv_cache_used_ratio": used, "kv_cache_capacity_tokens": size}
        return TargetWindow(
            target, "s", "m", "vllm", 0.0, 60.0, gauges={(n, ""): Gauge(v, v, v, v) for n, v in values.items()}
        )

    found = derive([window("a", 0.2, 3000), window("b", 0.8, 1000)], ENGINES, LIMITS, {}, start_s=0.0, end_s=60.0)
    assert found.numbers["requests_running"].value == 6
    assert found.numbers["kv_cache_used_ratio"].value == pytest.approx(0.35)  # (0.2·3000 + 0.8·1000) / 4000
    assert found.numbers["kv_cache_used_max_ratio"].value == 0.8


def test_the_hit_ratio_comes_from_counters_and_nothing_looked_up_is_no_traffic() -> None:
    def window(hits: float, queries: float) -> TargetWindow:
        counters = {("prefix_cache_hits_total", ""): hits, ("prefix_cache_queries_total", ""): queries}
        return TargetWindow("t", "s", "m", "vllm", 0.0, 60.0, counters)

    assert prefix_hit_ratio([window(30, 100), window(10, 100)]).value == 0.2
    assert prefix_hit_ratio([window(0, 0)]).absence is Absence.NO_TRAFFIC
    assert prefix_hit_ratio([]).absence is Absence.NOT_MEASURABLE


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm"])
def test_no_number_is_ever_nan_infinite_or_negative(kind: str) -> None:
    requests = tuple(Request(700 * i, tokens=1 + i % 5, hangs_up_ms=300 if i % 7 == 0 else None) for i in range(60))
    run = Run(Simulated(kind, requests), EVERY_5_S, 5_000, 60_000)  # type: ignore[arg-type]
    for name, number in of(run, Limits(0.5, 0.1, 2.0), {"t": Price(1, 2.0)}).numbers.items():
        ends = [number.bounds.low, number.bounds.high] if number.bounds else []
        for value in (number.value, *ends):
            assert value is None or (math.isfinite(value) and value >= 0), name
        assert (number.value is None and number.bounds is None) == (number.absence is not None), name


def test_failures_that_no_counter_tells_of_are_not_none() -> None:
    """vLLM 0.8.5 has no HTTP counters and no finished reason for errors: zero failures cannot be read off its page."""
    counters = {("requests_finished_total", "finished_reason=stop"): 3.0, ("covered_seconds_total", ""): 60.0}
    up = {("up", ""): Gauge(1.0, 1.0, 1.0, 1.0)}
    window = TargetWindow("t", "s", "m", "vllm", 0.0, 60.0, counters, {}, up)
    found = derive([window], ENGINES, LIMITS, {}, start_s=0.0, end_s=60.0).numbers["failed_per_s"]
    assert (found.value, found.absence) == (None, Absence.NOT_MEASURABLE)
