import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.phases import phases, split_cost
from planner.estimate import Estimate, exactly
from planner.speed.steps import Lengths, saturated
from tests.planner.cost.deployments import small_on_h100


@given(st.floats(1, 1e5), st.floats(1, 1e4), st.floats(0, 0.99), st.floats(0.01, 0.99))
def test_the_parts_are_the_bill_at_the_traffics_mix(tokens: float, output: float, cached: float, share: float) -> None:
    lengths = Lengths(tokens, output, cached)
    found = split_cost(exactly(2.0), Estimate(share, share, share), lengths)
    assert found.uncached_input is not None
    fresh = tokens * (1 - cached)
    bill = found.uncached_input.point * fresh + found.cached_input.point * tokens * cached + found.output.point * output
    assert bill == pytest.approx(2.0 * output)


def test_long_prompts_take_more_of_the_bill_and_cached_ones_less() -> None:
    one, by = small_on_h100()
    short, long, cached = (
        phases(one, by, lengths, 32, 1.0).prefill_ratio.point
        for lengths in (Lengths(200, 500), Lengths(8000, 500), Lengths(8000, 500, 0.9))
    )
    assert short < cached < long


def test_a_saturated_engines_time_is_explained_by_both_phases() -> None:
    one, by = small_on_h100()
    lengths = Lengths(1000, 500)
    full = saturated(one, by, lengths)
    found = phases(one, by, lengths, full.running, full.output_tokens_per_s / lengths.output_tokens)
    # what is left is the fitted share of bursts alone
    assert found.residue_ratio == pytest.approx(1 - by.burst, abs=1e-9)
    assert found.prefill_ratio.low < found.prefill_ratio.point < found.prefill_ratio.high < 1
