import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.cost.interval import inverse, product, quotient
from planner.cost.unit import Traffic, good_tokens, per_million, per_month, wasted_per_day
from planner.estimate import Estimate, exactly

USD = st.floats(0.01, 1e4)
RATE = st.floats(1.0, 1e6)
USE = st.floats(0.01, 1.0)


@st.composite
def doubtful(draw: st.DrawFn) -> Estimate:
    point = draw(st.floats(1e-3, 1e6))
    return Estimate(point, point / draw(st.floats(1, 5)), point * draw(st.floats(1, 5)))


def test_a_used_h100_pair_in_fp8_costs_what_is_said_of_it() -> None:
    # TensorRT-LLM 0.14: 4,116.4 output tokens/s on 2 x H100 at 2.30 USD; 66 % used
    cost = per_million(exactly(4.60), exactly(4116.4), utilisation=exactly(0.66))
    assert cost.point == pytest.approx(0.4703, rel=0.001)
    assert "output tokens, 66% of 4,116 tokens/s" in cost.basis


def test_doubts_of_price_and_rate_add_as_squares_of_logarithms() -> None:
    cost = per_million(Estimate(2.0, 1.0, 4.0), Estimate(100.0, 50.0, 200.0))
    assert cost.high / cost.point == pytest.approx(2**2**0.5)
    assert cost.point / cost.low == pytest.approx(2**2**0.5)


def test_a_month_is_paid_whole() -> None:
    assert per_month(exactly(2.0)).point == 1461.0  # 8766 / 12 hours


def test_good_tokens_are_dearer_and_unknown_without_facts() -> None:
    good = good_tokens(exactly(0.47), 0.9)
    assert good is not None
    assert good.point == pytest.approx(0.5222, rel=0.001)
    assert good_tokens(exactly(0.47), None) is None


def test_wasted_tokens_are_paid_too() -> None:
    assert wasted_per_day(4.6, 0.05) == pytest.approx(5.52)


@pytest.mark.parametrize(
    ("usd", "rate", "use", "message"),
    [
        (1.0, 1.0, 1.01, "utilisation 1.01: is not above 0 and at most 1. Add GPUs"),
        (1.0, 1.0, 0.0, "utilisation 0"),
        (1.0, 1.0, float("nan"), "utilisation nan"),
        (0.0, 1.0, 1.0, "USD per hour: 0"),
        (1.0, -1.0, 1.0, "tokens per second: -1"),
        (float("nan"), 1.0, 1.0, "USD per hour: nan"),
    ],
)
def test_absurd_figures_are_refused(usd: float, rate: float, use: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        per_million(exactly(usd), exactly(rate), utilisation=exactly(use))


@pytest.mark.parametrize(
    ("traffic", "message"),
    [
        (Traffic(-1, 10), "--input-tokens -1"),
        (Traffic(10, 0), "--output-tokens 0"),
        (Traffic(1e9, 10), "at most 10,000,000"),
        (Traffic(10, 10, 1.0), "--cached-ratio 1"),
        (Traffic(10, 10, 0.0, 0.0), "--good-ratio 0"),
        (Traffic(float("nan"), 10), "--input-tokens nan"),
    ],
)
def test_absurd_traffic_is_refused(traffic: Traffic, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        traffic.checked()


@given(USD, RATE, USE, st.floats(1.0, 10.0))
def test_dearer_slower_or_emptier_never_costs_less(usd: float, rate: float, use: float, more: float) -> None:
    cost = per_million(exactly(usd), exactly(rate), utilisation=exactly(use)).point
    assert per_million(exactly(usd * more), exactly(rate), utilisation=exactly(use)).point >= cost * (1 - 1e-12)
    assert per_million(exactly(usd), exactly(rate * more), utilisation=exactly(use)).point <= cost * (1 + 1e-12)
    assert per_million(exactly(usd), exactly(rate), utilisation=exactly(use / more)).point >= cost * (1 - 1e-12)


@given(USD, RATE, USE)
def test_the_tokens_times_their_cost_are_the_bill(usd: float, rate: float, use: float) -> None:
    cost = per_million(exactly(usd), exactly(rate), utilisation=exactly(use)).point
    assert cost / 1e6 * rate * use * 3600 == pytest.approx(usd)


@given(doubtful(), doubtful())
def test_the_point_stays_inside_its_interval(one: Estimate, other: Estimate) -> None:
    for found in (product(one, other), quotient(one, other), inverse(one)):
        assert 0 < found.low <= found.point <= found.high
    back = quotient(product(one, other), other)
    assert back.point == pytest.approx(one.point)
    assert back.low <= one.low * (1 + 1e-9)
