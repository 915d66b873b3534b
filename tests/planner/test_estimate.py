"""Figures with intervals."""

from hypothesis import given
from hypothesis import strategies as st

from planner.estimate import Estimate, exactly, less, total, within

sizes = st.floats(-1e6, 1e6)
doubts = st.floats(0, 1e5)


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    return within(draw(sizes), below=draw(doubts), above=draw(doubts))


@given(st.lists(estimates(), min_size=1, max_size=6))
def test_a_sum_is_no_wider_than_its_parts_together_and_no_narrower_than_the_widest(parts: list[Estimate]) -> None:
    found = total(parts)
    slack = 1e-6 * (1 + abs(found.point))
    assert found.low <= found.point <= found.high
    assert found.high - found.point <= sum(p.high - p.point for p in parts) + slack
    assert found.high - found.point >= max(p.high - p.point for p in parts) - slack


@given(estimates(), estimates())
def test_taking_away_turns_the_doubt_around(whole: Estimate, part: Estimate) -> None:
    found = less(whole, part)
    assert abs(found.point - (whole.point - part.point)) <= 1e-6 * (1 + abs(found.point))
    assert found.low <= found.point + 1e-9 * abs(found.point)


def test_what_is_certain_adds_nothing_to_the_doubt() -> None:
    assert total([exactly(3), within(1, below=2, above=4)]) == Estimate(4, 2, 8)


def test_nothing_is_below_a_floor() -> None:
    assert Estimate(-1, -3, 2).at_least(0) == Estimate(0, 0, 2)
