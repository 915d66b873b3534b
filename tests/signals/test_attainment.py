"""Attainment and goodput with their basis: counted, estimated ± ci, bounded; with and without the unaccounted."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodwatch.core.model import Absence, Basis, Limits
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment import Attained, Sums, attainment, sums, sums_of_rollups
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.attainment_verdicts import judge
from goodwatch.signals.reconcile import EngineCounts, Reconciled, reconcile
from goodwatch.signals.rollup import roll_up
from tests.signals.request_parts import fact, facts

LIMITS = LimitsTable.of(Limits(ttft_s=0.5))


def judged(good: int, bad: int = 0, undetermined: int = 0, **fields: Any) -> Any:
    rows = [
        *(fact(trace_id=f"g{i}", **fields) for i in range(good)),
        *(fact(trace_id=f"b{i}", engine_ttft_s=0.9, **fields) for i in range(bad)),
        *(fact(trace_id=f"u{i}", engine_ttft_s=None, **fields) for i in range(undetermined)),
    ]
    return judge(facts(*rows), LIMITS, vantage=Vantage.ENGINE)


def attained(frame: Any, finished: float | None = None, **known: Any) -> Attained:
    reconciled = None if finished is None else reconcile(frame, EngineCounts(finished))
    return attainment(sums(frame), 100.0, reconciled=reconciled, **known)


def bounds(number: Any) -> tuple[float, float | None]:
    return number.bounds.low, number.bounds.high


def test_facts_that_the_counter_knows_are_counted() -> None:
    found = attained(judged(150, 50), finished=200.0, unaccounted=0.0)
    assert (found.attainment.value, found.attainment.basis, found.attainment.note) == (0.75, Basis.COUNTED, "")
    assert bounds(found.attainment) == (0.75, 0.75)
    assert (found.goodput_per_s.value, found.good_tokens_per_s.value) == (1.5, 15.0)
    assert found.valid.value == 200


@pytest.mark.parametrize(
    ("finished", "basis"), [(200.0, "counted"), (201.0, "counted"), (199.0, "estimated"), (202.0, "estimated")]
)
def test_half_a_percent_is_the_line(finished: float, basis: str) -> None:
    """Design §4: counted when facts reconcile within 0.5 %. 200 of 201 is 0.4975 % off, 200 of 199 is 0.5025 %."""
    assert attained(judged(200), finished=finished).attainment.basis == basis


def test_undetermined_requests_are_outside_the_count_and_inside_the_bounds() -> None:
    found = attained(judged(60, 20, 20), finished=100.0)
    assert found.attainment.value == 0.75
    assert bounds(found.attainment) == pytest.approx((0.6, 0.8))
    assert "20 requests cannot be judged" in found.attainment.note
    assert bounds(found.goodput_per_s) == pytest.approx((0.6, 0.8))


def test_the_unaccounted_are_a_line_and_lower_the_attainment() -> None:
    """19 client aborts beside 75 good of 100: 75 / 119."""
    found = attained(judged(75, 25), finished=100.0, unaccounted=19.0)
    assert found.attainment.value == 0.75
    assert found.with_unaccounted.value == pytest.approx(75 / 119)
    assert found.unaccounted.value == 19.0


def test_what_arrivals_do_not_tell_is_not_measurable() -> None:
    found = attained(judged(75, 25), finished=100.0)
    assert (found.with_unaccounted.absence, found.unaccounted.absence) == (Absence.NOT_MEASURABLE,) * 2


def test_no_facts_are_no_number() -> None:
    found = attained(judged(0))
    assert found.attainment.absence is Absence.NO_DATA
    assert found.goodput_per_s.value is None
    only_invalid = judge(facts(fact(status="client_error")), LIMITS, vantage=Vantage.ENGINE)
    assert attained(only_invalid, finished=1.0).attainment.absence is Absence.NO_TRAFFIC


def test_facts_that_are_a_part_of_what_finished_are_an_estimate_and_totals_come_from_the_counter() -> None:
    """90 facts of 100 finished: a sample with 1 / weight 0.9. Token counter: 5,000 in 100 s, 2 of 3 good by facts."""
    found = attained(judged(60, 30), finished=100.0, finished_tokens=5000.0)
    assert found.attainment.basis is Basis.ESTIMATED
    assert "facts are 90.0% of the requests" in found.attainment.note
    assert found.goodput_per_s.value == pytest.approx(100 * (2 / 3) / 100)
    assert found.good_tokens_per_s.value == pytest.approx(5000 * (2 / 3) / 100)
    assert found.valid.value == pytest.approx(100.0)
    low, high = bounds(found.attainment)
    assert low < 2 / 3 < (high or 0)
    # all but 10 were seen: of a sample of 90 without that knowledge the Wilson interval is ± 9.6 %
    assert (high or 0) - low < 0.1


def test_all_good_in_a_sample_is_not_all_good() -> None:
    low, high = bounds(attained(judged(20, weight=10.0, weight_told=True)).attainment)
    assert low < 0.9
    assert high == 1.0


def test_without_a_counter_and_weights_a_rate_is_only_bounded_from_below() -> None:
    found = attained(judged(60, 30))
    assert found.attainment.basis is Basis.ESTIMATED
    assert (found.goodput_per_s.basis, found.goodput_per_s.value) == (Basis.BOUNDED, None)
    assert bounds(found.goodput_per_s) == (0.6, None)
    assert bounds(found.valid) == (90.0, None)


def test_more_facts_than_the_counter_has_are_said_so() -> None:
    found = attained(judged(60, 60), finished=100.0)
    assert "more facts than the engine counted" in found.attainment.note
    assert found.goodput_per_s.basis is Basis.BOUNDED


def test_a_tail_sampler_that_keeps_the_bad_does_not_fool_the_weights() -> None:
    """otel-traces §6: without weights the kept set showed 90 % bad where 8.6 % were."""
    kept = [fact(trace_id=f"g{i}", weight=100.0, weight_told=True) for i in range(10)]
    kept += [fact(trace_id=f"b{i}", weight=1.0, weight_told=True, engine_ttft_s=0.9) for i in range(90)]
    found = attained(judge(facts(*kept), LIMITS, vantage=Vantage.ENGINE))
    assert found.attainment.value == pytest.approx(1000 / 1090)
    assert found.goodput_per_s.value == pytest.approx(10.0)
    low, high = bounds(found.goodput_per_s)
    assert low < 10.0 < (high or 0)


def test_requests_of_one_trace_are_kept_together_and_widen_the_interval() -> None:
    """An agent's ten calls are good or bad together: ten traces tell less than a hundred."""
    rows = [fact(trace_id=f"t{i // 10}", weight=10.0, engine_ttft_s=0.9 if i // 10 % 2 else 0.1) for i in range(100)]
    alone = [r | {"trace_id": f"t{i}"} for i, r in enumerate(rows)]
    together, apart = (
        attained(judge(facts(*r), LIMITS, vantage=Vantage.ENGINE)).attainment.bounds for r in (rows, alone)
    )
    assert together is not None
    assert apart is not None
    assert (together.width or 0) > 2 * (apart.width or 0)


def simulated(seed: int, probability: float, *, told: bool) -> tuple[float, float, Attained]:
    """A day of 4,000 requests of which a share is kept at random; the truth, and what the kept ones say."""
    rng = random.Random(seed)
    rows = [
        fact(trace_id=str(i), engine_ttft_s=0.9 if rng.random() < 0.2 else 0.1, output_tokens=rng.randint(1, 400),
             weight=1 / probability if told else None, weight_told=told or None)
        for i in range(4000)
    ]  # fmt: skip
    good = sum(r["engine_ttft_s"] < 0.5 for r in rows)
    tokens = sum(r["output_tokens"] for r in rows if r["engine_ttft_s"] < 0.5)
    kept = judge(facts(*(r for r in rows if rng.random() < probability)), LIMITS, vantage=Vantage.ENGINE)
    all_tokens = float(sum(r["output_tokens"] for r in rows))
    reconciled = None if told else reconcile(kept, EngineCounts(4000.0))
    found = attainment(sums(kept), 1.0, reconciled=reconciled, finished_tokens=None if told else all_tokens)
    return good, tokens, found


@pytest.mark.parametrize("told", [True, False], ids=["by weights", "by the counter"])
def test_nineteen_of_twenty_intervals_hold_the_truth(told: bool) -> None:
    """100 simulated days; with true coverage of 95 % fewer than 89 hits have a chance of 0.4 % (binomial)."""
    runs = [simulated(seed, 0.1, told=told) for seed in range(100)]
    hits = {"share": 0, "goodput": 0, "tokens": 0}
    for good, tokens, found in runs:
        pairs = {
            "share": (found.attainment, good / 4000),
            "goodput": (found.goodput_per_s, good),
            "tokens": (found.good_tokens_per_s, tokens),
        }
        for name, (number, truth) in pairs.items():
            low, high = bounds(number)
            hits[name] += low <= truth <= (high or 0)
    assert min(hits.values()) >= 89, hits


@settings(max_examples=50)
@given(
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 5)),
    st.sampled_from([None, 1.0, 3.5]), st.sampled_from([None, 0.0, 10.0, 31.0, 100.0]), st.sampled_from([None, 0.0, 7.0]),
)  # fmt: skip
def test_a_value_lies_in_its_bounds_and_bounds_in_what_is_possible(
    seen: tuple[int, int, int], weight: float | None, finished: float | None, unaccounted: float | None
) -> None:
    found = attained(judged(*seen, weight=weight), finished=finished, unaccounted=unaccounted)
    for number in (found.attainment, found.with_unaccounted, found.goodput_per_s, found.good_tokens_per_s, found.valid):
        assert (number.absence is None) == (number.value is not None or number.bounds is not None)
        if number.bounds is not None:
            low, high = bounds(number)
            assert low >= 0
            assert high is None or low <= high
            if number.value is not None:
                assert low - 1e-12 <= number.value
                assert high is None or number.value <= high + 1e-12
    if found.attainment.bounds is not None:
        assert (found.attainment.bounds.high or 0) <= 1 + 1e-12


def test_rollups_say_the_same_as_the_facts_that_they_were_made_of() -> None:
    frame = judged(60, 30, 5, weight=2.0, ended_at=100.0)
    from_facts, from_rollups = sums(frame), sums_of_rollups(roll_up(frame)[0])
    for name in (
        "facts",
        "weighted",
        "unweighted",
        "valid",
        "good",
        "undetermined",
        "valid_sq",
        "good_sq",
        "good_tokens",
    ):
        assert getattr(from_rollups, name) == pytest.approx(getattr(from_facts, name)), name
    assert attainment(from_rollups, 1.0).attainment == attainment(from_facts, 1.0).attainment
    assert sums_of_rollups(roll_up(frame.clear())[0]) == Sums()


def test_a_broken_counter_is_not_used() -> None:
    broken = Reconciled(Basis.ESTIMATED, 90.0, 80.0, note="the engine restarted")
    found = attainment(sums(judged(60, 30)), 100.0, reconciled=broken, finished_tokens=10.0)
    assert found.goodput_per_s.basis is Basis.BOUNDED
    assert found.good_tokens_per_s.basis is Basis.BOUNDED


def test_a_request_that_its_client_gave_up_is_not_bad_twice() -> None:
    """The engine counts 100 arrivals and 90 ends; the clients' spans tell what became of 6 of the other 10."""
    gone = [fact(trace_id=f"c{i}", engine=None, status="timeout", engine_ttft_s=None) for i in range(6)]
    served = [fact(trace_id=f"g{i}") for i in range(90)]
    refused = [fact(trace_id="r", engine=None, status="refused", engine_ttft_s=None)]  # never came to an engine
    frame = judge(facts(*served, *gone, *refused), LIMITS, vantage=Vantage.ENGINE)
    found = attained(frame, finished=90.0, unaccounted=10.0)
    assert found.attainment.value == pytest.approx(90 / 97)
    assert found.unaccounted.value == 4.0
    assert found.with_unaccounted.value == pytest.approx(90 / 101)  # 100 that arrived, and the one that was refused


def test_intervals_of_totals_hold_the_truth_when_agents_traces_are_sampled_whole() -> None:
    """Forty good requests in each trace, one trace of ten is kept: 19 of 20 intervals hold the true goodput."""
    inside = 0
    for seed in range(200):
        rng = random.Random(seed)
        rows = [
            fact(trace_id=f"t{t}", fact_id=f"f{n}", weight=10.0, weight_told=True)
            for t in range(1000)
            if rng.random() < 0.1
            for n in range(40)
        ]
        found = attainment(sums(judge(facts(*rows), LIMITS, vantage=Vantage.ENGINE)), 100.0).goodput_per_s
        low, high = bounds(found)
        assert high is not None
        inside += low <= 400.0 <= high  # 40,000 requests in 100 s
    assert 180 <= inside <= 199
