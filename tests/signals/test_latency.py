"""Quantiles as intervals, and the three ways in which there is none."""

import pytest

from goodwatch.app.engines import known_engines
from goodwatch.core.histogram import INF
from goodwatch.core.model import Absence, Bounds, Histogram
from goodwatch.signals.latency import enough, observed, observed_mean, of_ended, open_above
from goodwatch.signals.windows import Gauge, TargetWindow
from tests.signals.simulations import Run
from tests.support.simulated_engine import Request, Simulated, histogram

LE = (0.1, 0.5, 1.0, INF)
ENGINES = known_engines()


def window(
    values: list[float], *, signal: str = "ttft_seconds", part: str = "", le: tuple[float, ...] = LE
) -> TargetWindow:
    return TargetWindow("t", "s", "m", "vllm", 0.0, 60.0, histograms={(signal, part): histogram(values, le)})


@pytest.mark.parametrize(
    ("count", "q", "supported"),
    [(1, 0.5, False), (2, 0.5, True), (9, 0.9, False), (10, 0.9, True), (99, 0.99, False), (100, 0.99, True)],
)
def test_a_quantile_needs_enough_values(count: float, q: float, supported: bool) -> None:
    # design §3: n ≥ 1/(1-q)
    assert enough(count, q) is supported


def test_no_histogram_no_observation_and_too_few_are_three_answers() -> None:
    assert observed([], "ttft_seconds", 0.5).absence is Absence.NOT_MEASURABLE
    assert observed([window([])], "ttft_seconds", 0.5).absence is Absence.NO_TRAFFIC
    few = observed([window([0.2])], "ttft_seconds", 0.5)
    assert few.absence is Absence.NO_DATA
    assert "1 " in few.note


def test_replicas_are_merged_before_the_quantile_and_never_averaged() -> None:
    # nine fast on one replica, one slow on the other: the p50 is the 5th of ten, a fast one
    found = observed([window([0.05] * 9), window([0.9])], "ttft_seconds", 0.5)
    assert found.bounds == Bounds(0.0, 0.1)
    mean = observed_mean([window([0.05] * 9), window([0.95])], "ttft_seconds").value
    assert mean == pytest.approx((9 * 0.05 + 0.95) / 10)


def test_unlike_buckets_are_read_on_the_shared_ones_and_say_so() -> None:
    found = observed([window([0.2, 0.3]), window([0.2, 0.3], le=(0.25, 0.5, INF))], "ttft_seconds", 0.5)
    assert found.bounds == Bounds(0.0, 0.5)
    assert "unlike buckets" in found.note


def test_only_streamed_requests_have_a_ttft_where_the_engine_tells() -> None:
    one = TargetWindow(
        "t", "s", "m", "sglang", 0.0, 60.0,
        histograms={
            ("ttft_seconds", "is_streaming=true"): histogram([0.05, 0.05], LE),
            ("ttft_seconds", "is_streaming=false"): histogram([5.0] * 8, LE),
        },
    )  # fmt: skip
    assert observed([one], "ttft_seconds", 0.5).bounds == Bounds(0.0, 0.1)


def test_a_quantile_above_every_bound_is_open() -> None:
    found = observed([window([3.0, 4.0])], "ttft_seconds", 0.5).bounds
    assert found is not None
    assert open_above(found)
    assert found.low == 1.0


def test_a_mean_without_a_sum_is_not_measurable() -> None:
    one = TargetWindow("t", "s", "m", "vllm", 0.0, 60.0, histograms={("ttft_seconds", ""): Histogram(LE, (1, 1, 1, 1))})
    assert observed_mean([one], "ttft_seconds").absence is Absence.NOT_MEASURABLE


def test_ended_requests_have_no_quantile_when_one_target_cannot_tell() -> None:
    counters = {("requests_finished_total", "finished_reason=stop"): 4.0}
    gauges = {("requests_decoding_max", ""): Gauge(0, 0, 0, 0, 0)}
    histograms = {("ttft_seconds", ""): histogram([0.2] * 4, LE)}
    tells = TargetWindow("t", "s", "m", "vllm", 0.0, 60.0, counters, histograms, gauges)
    silent = TargetWindow("u", "s", "m", "vllm", 0.0, 60.0, counters, {}, gauges)
    assert of_ended([tells], ENGINES, "ttft_seconds", 0.5) == Bounds(0.1, 0.5)
    assert of_ended([tells, silent], ENGINES, "ttft_seconds", 0.5) is None


def test_single_tokens_are_not_in_the_tpot_of_vllm() -> None:
    # two of one token observe 0; the p50 of the other two is the first of (0.3, 0.7)
    histograms = {
        ("tpot_seconds", ""): histogram([0.0, 0.0, 0.3, 0.7], LE),
        ("output_length_tokens", ""): histogram([1, 1, 9, 9], (1.0, 2.0, INF)),
        ("e2e_seconds", ""): histogram([1] * 4, LE),
    }
    one = TargetWindow("t", "s", "m", "vllm", 0.0, 60.0, {}, histograms)
    assert of_ended([one], ENGINES, "tpot_seconds", 0.5) == Bounds(0.1, 0.5)


def test_requests_that_the_engine_failed_are_not_among_those_that_ended_well() -> None:
    """Two failed fast, two ended well and slow: the p50 of the latter is slow."""
    counters = {
        ("requests_finished_total", "finished_reason=stop"): 2.0,
        ("requests_finished_total", "finished_reason=error"): 2.0,
    }
    one = TargetWindow(
        "t", "s", "m", "vllm", 0.0, 60.0, counters, {("e2e_seconds", ""): histogram([0.05, 0.05, 0.7, 0.8], LE)}
    )
    found = of_ended([one], ENGINES, "e2e_seconds", 0.5)
    assert found is None or (found.high or INF) >= 0.7


def test_before_a_streamed_request_has_ended_those_that_were_not_streamed_do_not_stand_in() -> None:
    """SGLang's series are born at their first event: two first tokens of streams came, and two whole answers ended."""
    requests = (
        *(Request(0, prefill_ms=50, tokens=12, gap_ms=1_500) for _ in range(2)),
        *(Request(0, prefill_ms=5_000, tokens=1, streamed=False) for _ in range(2)),
    )
    run = Run(Simulated("sglang", requests), ((0, False), (6_000, False)), 0, 6_000)
    assert of_ended(run.windows(), ENGINES, "ttft_seconds", 0.5) is None  # no stream has ended
