"""Latency intervals against engines whose every request is known (design §3)."""

import math

from hypothesis import given
from hypothesis import strategies as st

from goodwatch.app.engines import known_engines
from goodwatch.core.model import Number
from goodwatch.signals.latency import observed, observed_mean, of_ended
from goodwatch.signals.windows import TargetWindow
from tests.signals.simulations import HEAVY, Run, nth_smallest, runs
from tests.support.simulated_engine import Told

QUANTILE = st.sampled_from((0.5, 0.9))
SIGNAL = st.sampled_from(("ttft_seconds", "tpot_seconds", "e2e_seconds"))
FEW = {0.5: 2, 0.9: 10}  # design §3: shown when n ≥ 1/(1-q)


def value_of(told: Told, signal: str) -> float | None:
    """The true latency of one request."""
    return {"ttft_seconds": told.ttft_s, "tpot_seconds": told.tpot_s, "e2e_seconds": told.e2e_s}[signal]


def population(run: Run, signal: str) -> list[float]:
    """The truth: requests that ended well in the window; TTFT and TPOT of streamed ones where the engine tells."""
    told = [t for t in run.ended() if t.fate == "finished"]
    if run.engine.kind == "sglang" and signal != "e2e_seconds" and tells_streamed(run, signal):
        told = [t for t in told if t.request.streamed]
    return [v for t in told if (v := value_of(t, signal)) is not None]


def tells_streamed(run: Run, signal: str) -> bool:
    """Whether the engine has the series of streamed requests yet: they are born at their first event."""
    return any("is_streaming=true" in w.parts(signal) for w in run.windows())


def assert_inside(low: float, high: float | None, true: float) -> None:
    """The interval holds the value; a bucket's lower bound is not in it, but 0 is."""
    assert low <= true <= (math.inf if high is None else high)


@HEAVY
@given(runs(), SIGNAL, QUANTILE)
def test_the_quantile_of_ended_requests_is_inside_its_interval(run: Run, signal: str, q: float) -> None:
    found = of_ended(run.windows(), known_engines(), signal, q)
    values = population(run, signal)
    if found is None:
        return
    assert len(values) >= FEW[q]
    assert_inside(found.low, found.high, nth_smallest(values, q))


@HEAVY
@given(runs(kinds=["vllm"], engine_errors=True), SIGNAL, QUANTILE)
def test_the_quantile_holds_when_the_engine_fails_requests(run: Run, signal: str, q: float) -> None:
    found = of_ended(run.windows(), known_engines(), signal, q)
    values = population(run, signal)
    if found is not None and values:
        assert_inside(found.low, found.high, nth_smallest(values, q))


@HEAVY
@given(runs(kinds=["sglang"], retracting=True), SIGNAL, QUANTILE)
def test_the_quantile_holds_when_sglang_retracts_requests(run: Run, signal: str, q: float) -> None:
    found = of_ended(run.windows(), known_engines(), signal, q)
    values = population(run, signal)
    if found is not None and values:
        assert_inside(found.low, found.high, nth_smallest(values, q))


@HEAVY
@given(st.tuples(runs(kinds=["vllm"], target="a"), runs(kinds=["trtllm"], target="b")), SIGNAL, QUANTILE)
def test_the_quantile_of_two_targets_holds_that_of_their_requests(pair: tuple[Run, Run], signal: str, q: float) -> None:
    windows = [w for run in pair for w in run.windows()]
    found = of_ended(windows, known_engines(), signal, q)
    values = [v for run in pair for v in population(run, signal)]
    if found is not None:
        assert_inside(found.low, found.high, nth_smallest(values, q))


@HEAVY
@given(runs(kinds=["vllm"]), SIGNAL, QUANTILE)
def test_the_observed_quantile_is_that_of_the_observations(run: Run, signal: str, q: float) -> None:
    values = observations(run, signal)
    found = observed(run.windows(), signal, q)
    if len(values) < FEW[q]:
        assert found.bounds is None
        return
    assert found.bounds is not None
    assert_inside(found.bounds.low, found.bounds.high, nth_smallest(values, q))


@HEAVY
@given(st.tuples(runs(kinds=["vllm"], target="a"), runs(kinds=["vllm"], target="b")), SIGNAL)
def test_the_mean_over_targets_is_the_mean_of_all_observations(pair: tuple[Run, Run], signal: str) -> None:
    values = [v for run in pair for v in observations(run, signal)]
    windows: list[TargetWindow] = [w for run in pair for w in run.windows()]
    found: Number = observed_mean(windows, signal)
    if not values:
        assert found.value is None
        return
    assert found.value is not None
    assert math.isclose(found.value, math.fsum(values) / len(values), rel_tol=1e-6, abs_tol=1e-9)


def observations(run: Run, signal: str) -> list[float]:
    """What vLLM observes in the window: first tokens of anybody, and at finish; a single token's TPOT is 0."""
    if signal == "ttft_seconds":
        first = run.engine.first_tokens_in(run.after_ms, run.until_ms)
        return [t.ttft_s for t in first if t.ttft_s is not None]
    told = [t for t in run.ended() if t.fate == "finished"]
    return [value_of(t, signal) or 0.0 for t in told]
