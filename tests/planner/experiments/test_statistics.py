import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.experiments.statistics import (
    block_length,
    blocked,
    bootstrapped,
    lag_correlation,
    quantile,
    quantile_named,
    shown,
    summary_of,
    t_quantile,
    trended,
)
from planner.experiments.values import Measured, Metric

# critical values of Student's t, NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2
NIST = [
    (1, 0.975, 12.706),
    (2, 0.975, 4.303),
    (4, 0.975, 2.776),
    (10, 0.95, 1.812),
    (30, 0.975, 2.042),
    (100, 0.99, 2.364),
]
FINITE = st.floats(-50, 50)


@pytest.mark.parametrize(("freedom", "p", "expected"), NIST)
def test_students_quantiles_are_those_of_the_tables(freedom: float, p: float, expected: float) -> None:
    assert t_quantile(p, freedom) == pytest.approx(expected, abs=6e-4)


def test_a_large_freedom_is_the_normal_distribution() -> None:
    assert t_quantile(0.975, 1e9) == pytest.approx(1.959964, abs=1e-4)


def test_no_p95_of_three() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.95) is None
    found = shown([3.0, 1.0, 2.0])
    assert found is not None
    assert (found.least, found.median, found.most) == (1.0, 2.0, 3.0)
    assert [q for q, _ in found.quantiles] == [0.5]


def test_a_quantile_is_shown_from_its_number_of_values_on() -> None:
    assert quantile(list(range(19)), 0.95) is None  # n ≥ 1/(1-q): 20
    assert quantile([float(n) for n in range(1, 21)], 0.95) == 19


@given(st.lists(FINITE, min_size=20, max_size=60))
def test_equal_weights_change_no_quantile(values: list[float]) -> None:
    assert quantile(values, 0.9, [0.5] * len(values)) == quantile(values, 0.9)


def test_a_weight_counts_as_that_many_values() -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5, [1, 1, 1, 5]) == 4
    metric = Metric("m", "s", "lower", "mean")
    assert summary_of(Measured((1.0, 4.0), (3.0, 1.0)), metric) == 1.75


def test_a_rate_is_a_ratio_of_sums() -> None:
    assert summary_of(Measured(numerator=30.0, denominator=4.0), Metric("r", "1/s", "higher", "rate")) == 7.5


def test_what_was_not_measured_has_no_summary() -> None:
    assert summary_of(Measured(), Metric("m", "s", "lower", "mean")) is None
    assert summary_of(Measured((1.0,)), Metric("m", "s", "lower", "rate")) is None


@pytest.mark.parametrize("name", ["p0", "p100", "95", "average", ""])
def test_an_odd_summary_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="write mean, median"):
        quantile_named(name)


def test_a_drift_that_goes_on_is_no_step() -> None:
    points = [(float(n), 0.1 * n) for n in range(10)]
    found = trended(points[:5], points[5:])
    assert found is not None
    assert found.change == pytest.approx(0, abs=1e-9)


@given(st.floats(-1, 1), st.floats(-0.2, 0.2), st.lists(st.floats(-0.01, 0.01), min_size=12, max_size=12))
def test_a_step_beside_a_drift_is_found(step: float, slope: float, noise: list[float]) -> None:
    points = [(float(n), slope * n + (step if n >= 6 else 0.0) + noise[n]) for n in range(12)]
    found = trended(points[:6], points[6:])
    assert found is not None
    assert abs(found.change - step) <= 0.05


def test_what_a_pair_shares_is_out_of_the_comparison() -> None:
    machine = [5.0, -3.0, 100.0, 0.0]
    wobble = [0.01, -0.01, 0.02, -0.02]
    found = blocked([([m], [m + 0.5 + w]) for m, w in zip(machine, wobble, strict=True)])
    assert found is not None
    # paired t by hand: mean 0.5, s = sqrt((1+1+4+4)e-4/3), s/√4 = 0.009129
    assert (found.change, found.error, found.freedom) == pytest.approx((0.5, 0.0091287, 3), rel=1e-4)


def test_what_differed_before_the_change_is_taken_off() -> None:
    blocks = [([0.0], [0.3 + 0.01 * (-1) ** n]) for n in range(4)]
    found = blocked(blocks, [0.3 + 0.01 * (-1) ** n for n in range(4)])
    assert found is not None
    assert found.change == pytest.approx(0, abs=1e-9)
    assert found.reach > 0


def test_two_blocks_are_no_comparison() -> None:
    assert blocked([([1.0], [2.0])] * 2) is None
    assert trended([(0.0, 1.0), (1.0, 1.0)], [(2.0, 1.0)] * 3) is None


def test_a_correlation_of_few_points_is_not_read() -> None:
    assert lag_correlation([1.0, 2.0, 3.0, 4.0]) == 0
    assert lag_correlation([float(n) for n in range(40)]) > 0.8


def test_correlated_values_are_drawn_in_stretches() -> None:
    rng = random.Random(3)
    walk, level = [], 0.0
    for _ in range(400):
        level = 0.9 * level + rng.gauss(0, 1)
        walk.append(level)
    assert block_length(walk) > 10
    assert block_length([rng.gauss(0, 1) for _ in range(400)]) == 1


def test_the_bootstrap_is_wider_where_values_go_up_and_down_together() -> None:
    rng = random.Random(5)
    walk, level = [], 0.0
    for _ in range(300):
        level = 0.9 * level + rng.gauss(0, 1)
        walk.append(level)
    shuffled = rng.sample(walk, k=len(walk))

    def mean(values: object) -> float:
        return math.fsum(values) / len(values)  # type: ignore[arg-type]

    wide, narrow = bootstrapped(walk, walk, mean, resamples=300), bootstrapped(shuffled, shuffled, mean, resamples=300)
    assert wide is not None
    assert narrow is not None
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_the_bootstrap_is_the_same_at_every_call() -> None:
    rng = random.Random(1)
    a, b = ([rng.random() for _ in range(40)] for _ in range(2))
    assert bootstrapped(a, b, max, resamples=100) == bootstrapped(a, b, max, resamples=100)
