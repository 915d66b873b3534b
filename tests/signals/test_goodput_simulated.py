"""Good and valid requests against engines whose every request is known (design §4)."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from goodwatch.app.engines import known_engines
from goodwatch.core.model import Limits
from goodwatch.signals.goodput import Goodput, goodput, service_goodput
from tests.signals.simulations import HEAVY, LIMITS, Run, Truth, runs

SLACK = 1e-9  # sums of floats


def bounded(run: Run, limits: Limits) -> Goodput | None:
    """The product's answer for a run's only target."""
    windows = run.windows()
    assert len(windows) <= 1
    return goodput(windows[0], known_engines()[run.engine.kind], limits) if windows else None


def assert_holds(found: Goodput, truth: Truth) -> None:
    """Every count, and every attainment that may be meant, is inside."""
    assert found.good.high is not None
    assert found.valid.high is not None
    assert found.good.low <= truth.good + truth.undetermined
    assert found.good.high >= truth.good
    assert found.valid.low <= truth.valid_least + truth.undetermined
    assert found.valid.high >= truth.valid_most
    assert 0 <= found.good.low <= found.good.high
    assert 0 <= found.valid.low <= found.valid.high
    if found.attainment is None:
        return
    high = found.attainment.high
    assert high is not None
    assert 0 <= found.attainment.low <= high <= 1
    for valid in {truth.valid_least, truth.valid_most} - {0}:
        assert found.attainment.low - SLACK <= truth.good / valid <= high + SLACK


@HEAVY
@given(runs(), LIMITS)
def test_good_valid_and_attainment_hold_the_truth(run: Run, limits: Limits) -> None:
    found = bounded(run, limits)
    if found is None:  # series are born at their first event: nothing ended before the window's end
        assert run.engine.kind != "vllm"
        assert all(t.fate != "finished" for t in run.ended())
        return
    assert_holds(found, run.judged(limits))


@HEAVY
@given(runs(kinds=["vllm", "trtllm"], engine_errors=True), LIMITS)
def test_the_bounds_hold_when_the_engine_fails_requests(run: Run, limits: Limits) -> None:
    found = bounded(run, limits)
    if found is not None:
        assert_holds(found, run.judged(limits))


@HEAVY
@given(runs(kinds=["sglang"], retracting=True), LIMITS)
def test_the_bounds_hold_when_sglang_retracts_requests(run: Run, limits: Limits) -> None:
    found = bounded(run, limits)
    if found is not None:
        assert_holds(found, run.judged(limits))


@HEAVY
@given(runs(restarting=True), LIMITS)
def test_over_a_restart_no_attainment_is_claimed_and_nothing_good_is_invented(run: Run, limits: Limits) -> None:
    found = bounded(run, limits)
    if found is None:
        return
    kills = [end for _, end in run.engine.lives if end is not None]
    if any(run.after_ms < end <= run.until_ms for end in kills) and run.engine.kind == "vllm":
        assert found.attainment is None  # what ended after the last scrape of the old process is not known
    truth = run.judged(limits)
    assert found.good.low <= truth.good + truth.undetermined


@HEAVY
@given(st.integers(2, 3).flatmap(lambda n: st.tuples(*(runs(target=f"t{i}") for i in range(n)))), LIMITS)
def test_a_service_of_several_targets_holds_the_sum(several: tuple[Run, ...], limits: Limits) -> None:
    windows = [w for run in several for w in run.windows()]
    found = service_goodput(windows, known_engines(), limits)
    if found is None:
        return
    truths = [run.judged(limits) for run in several]
    assert_holds(
        found,
        Truth(
            sum(t.good for t in truths),
            sum(t.valid_least for t in truths),
            sum(t.valid_most for t in truths),
            sum(t.undetermined for t in truths),
        ),
    )


@HEAVY
@given(runs(), st.lists(LIMITS, min_size=2, max_size=2))
def test_a_looser_target_is_never_met_by_fewer(run: Run, pair: list[Limits]) -> None:
    one, other = pair
    looser = Limits(*(None if a is None or b is None else max(a, b) for a, b in zip(_of(one), _of(other), strict=True)))
    strict, loose = bounded(run, one), bounded(run, looser)
    if strict is None or loose is None or (one.e2e_s is not None and looser.e2e_s is None):
        return  # without an E2E target requests that were not streamed are undetermined, which lowers the lower end
    assert strict.good.low <= loose.good.low
    assert (strict.good.high or 0) <= (loose.good.high or 0)


def _of(limits: Limits) -> tuple[float | None, ...]:
    return limits.ttft_s, limits.tpot_s, limits.e2e_s


@HEAVY
@given(runs(kinds=["vllm"], failing=False))
def test_vllm_windows_add_up(run: Run) -> None:
    instants = [at for at, _ in run.scrapes if run.after_ms <= at <= run.until_ms]
    parts = [Run(run.engine, run.scrapes, a, b) for a, b in itertools.pairwise(instants)]
    whole = bounded(run, Limits())
    pieces = [g for p in parts if (g := bounded(p, Limits())) is not None]
    assert whole is not None
    assert whole.ended == sum(p.ended for p in pieces) == sum(t.fate == "finished" for t in run.ended())
