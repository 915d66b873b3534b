"""Bins against their definition in whole numbers, quantiles against sorted values, ranks against the binomial itself."""

import math
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.exponential import (
    RELATIVE_ERROR,
    Exponential,
    bin_of,
    count_within,
    enough,
    exponential,
    interval_ranks,
    merged,
    quantile,
    told_value,
    upper_bound,
)

POSITIVE = st.floats(min_value=5e-324, max_value=sys.float_info.max, allow_nan=False, allow_infinity=False)
LATENCY_S = st.one_of(st.just(0.0), st.floats(1e-9, 1e9))
QS = st.sampled_from((0.5, 0.9, 0.95, 0.99))


def is_in_bin(value: float, index: int) -> bool:
    """2^(index/32) < value ≤ 2^((index+1)/32), in whole numbers: both sides to the power of 32."""
    power = Fraction(value) ** 32
    return Fraction(2) ** index < power <= Fraction(2) ** (index + 1)


def nearest_rank(values: list[float], q: Fraction) -> float:
    return sorted(values)[math.ceil(q * len(values)) - 1]


@given(POSITIVE)
def test_a_value_lies_in_its_bin(value: float) -> None:
    assert is_in_bin(value, bin_of(value))


@given(st.integers(-1074 * 32, 1023 * 32 + 30), st.integers(-2, 2))
def test_values_at_the_very_bounds_lie_in_their_bins(index: int, steps: int) -> None:
    value = upper_bound(index)
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.inf if steps > 0 else 0.0)
    if value > 0:
        assert is_in_bin(value, bin_of(value))


# OpenTelemetry data model, exponential histogram: with scale > 0 the value 2^k is the upper end of bin k * 2^scale - 1
@pytest.mark.parametrize("k", [-1074, -1023, -1022, -1, 0, 1, 10, 1023])
def test_a_power_of_two_is_the_upper_end_of_its_bin(k: int) -> None:
    assert bin_of(2.0**k) == k * 32 - 1
    assert upper_bound(k * 32 - 1) == 2.0**k
    assert k < -1021 or bin_of(math.nextafter(2.0**k, math.inf)) == k * 32


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_what_is_in_no_bin_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="is in no bin"):
        bin_of(value)


@given(POSITIVE)
def test_the_upper_bound_is_the_largest_value_of_the_bin(value: float) -> None:
    index = bin_of(value)
    upper = upper_bound(index)
    assert value <= upper
    assert upper == math.inf or bin_of(upper) == index


@given(st.floats(1e-9, 1e9))
def test_the_told_value_is_in_the_bin_and_near_all_of_it(value: float) -> None:
    told = told_value(bin_of(value))
    assert bin_of(told) == bin_of(value)
    assert abs(told / value - 1) <= 0.011  # design §3


def test_the_error_is_the_smallest_that_bins_of_this_width_allow() -> None:
    # (b - 1) / (b + 1) with b = 2^(1/32): OpenTelemetry data model gives no value; by hand 0.0218971 / 2.0218971
    assert pytest.approx(0.010830, abs=1e-6) == RELATIVE_ERROR


@given(st.lists(LATENCY_S, min_size=1, max_size=300), QS)
def test_a_quantile_is_within_1_1_percent_of_the_nearest_rank(values: list[float], q: float) -> None:
    found, true = quantile(exponential(values), q), nearest_rank(values, Fraction(str(q)))
    assert found is not None
    assert abs(found - true) <= 0.011 * true


@given(st.lists(st.lists(LATENCY_S, max_size=20), max_size=5))
def test_merging_is_counting_together(parts: list[list[float]]) -> None:
    whole = exponential([value for part in parts for value in part])
    found = merged(exponential(part) for part in parts)
    assert (found.zero, dict(found.count)) == (whole.zero, dict(whole.count))
    assert found.total == sum(map(len, parts))


@given(st.lists(LATENCY_S, max_size=50), st.floats(0, 1e9))
def test_the_true_count_within_a_limit_is_inside_the_bounds(values: list[float], limit: float) -> None:
    bounds = count_within(exponential(values), limit)
    assert bounds.high is not None
    assert bounds.low <= sum(value <= limit for value in values) <= bounds.high


def test_a_count_at_the_end_of_a_bin_is_exact() -> None:
    assert count_within(exponential([1.0, 2.0, 2.1]), 2.0).width == 0
    assert count_within(exponential([1.0, 2.0, 2.1]), math.inf).low == 3


def test_a_weight_counts_as_that_many_observations() -> None:
    weighted = Exponential(0.0, {bin_of(1.0): 98.5, bin_of(3.0): 1.5})
    assert quantile(weighted, 0.98) == told_value(bin_of(1.0))
    assert quantile(weighted, 0.99) == told_value(bin_of(3.0))


def test_without_observations_there_is_no_quantile() -> None:
    assert quantile(Exponential(), 0.5) is None
    assert quantile(Exponential(0.0, {3: 0.0}), 0.5) is None


@pytest.mark.parametrize(("q", "fewest"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100)])
def test_a_quantile_needs_one_observation_above_it(q: float, fewest: int) -> None:
    assert enough(fewest, q)
    assert not enough(fewest - 1, q)


def at_most(count: int, p: Fraction, k: int) -> Fraction:
    """P(K ≤ k) of K binomial of ``count`` and ``p``, in whole numbers."""
    return sum((math.comb(count, i) * p**i * (1 - p) ** (count - i) for i in range(k + 1)), Fraction())


@given(st.integers(1, 120), QS)
def test_the_ranks_enclose_the_quantile_as_often_as_said_and_no_nearer_ranks_do(count: int, q: float) -> None:
    ranks, p, tail = interval_ranks(count, q), 1 - Fraction(str(q)), Fraction(1, 20)
    most_above = count - (ranks.high or count + 1)  # the high one is passed when that few lie above the quantile
    assert at_most(count, p, most_above) <= tail
    assert ranks.high == 1 or at_most(count, p, most_above + 1) > tail
    fewest_above = count + 1 - (ranks.low or 0)
    assert 1 - at_most(count, p, fewest_above - 1) <= tail
    assert 1 - at_most(count, p, fewest_above - 2) > tail


# design §3: open above while q^n > 0.05; 0.99^298 = 0.0500, 0.99^299 = 0.0495
@pytest.mark.parametrize(("q", "last_open"), [(0.5, 4), (0.9, 28), (0.95, 58), (0.99, 298)])
def test_the_interval_is_open_above_while_the_largest_may_be_too_small(q: float, last_open: int) -> None:
    assert interval_ranks(last_open, q).high is None
    assert interval_ranks(last_open + 1, q).high == last_open + 1


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("mean", [295, 299, 301, 305])
def test_the_approximation_takes_over_within_two_ranks(q: float, mean: int) -> None:
    count = round(mean / min(q, 1 - q))
    ranks, p = interval_ranks(count, q), 1 - q
    assert ranks.low is not None
    assert ranks.high is not None
    assert 0.03 < float(binomial_at_most(count, p, count - ranks.high)) <= 0.0501
    assert 0.03 < 1 - float(binomial_at_most(count, p, count - ranks.low)) <= 0.0501


def binomial_at_most(count: int, p: float, k: int) -> float:
    """P(K ≤ k) by logarithms of the gamma function: good to ten digits here."""
    logs = (
        math.lgamma(count + 1) - math.lgamma(i + 1) - math.lgamma(count - i + 1) + i * math.log(p) + (count - i) * math.log1p(-p)
        for i in range(k + 1)
    )  # fmt: skip
    return math.fsum(math.exp(log) for log in logs)
