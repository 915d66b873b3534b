"""Vectorised bins against the scalar ones, quantiles against sorted values."""

import math
import random
import sys
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.exponential import bin_of, exponential, interval_ranks, quantile, upper_bound
from goodwatch.signals.quantiles import ZERO_BIN, bin_indexes, binned, quantiles_of_bins, quantiles_of_values

LATENCY_S = st.one_of(st.just(0.0), st.floats(1e-9, 1e9))
QS = st.sampled_from((0.5, 0.9, 0.95, 0.99))


def scalar(value: float | None) -> int | None:
    if value is None or not 0 <= value < math.inf:
        return None
    return bin_of(value) if value else ZERO_BIN


@given(st.lists(st.one_of(st.none(), st.floats(), st.floats(min_value=5e-324, max_value=sys.float_info.max))))
def test_the_bins_of_a_column_are_those_of_its_values(values: list[float | None]) -> None:
    assert bin_indexes(pl.Series(values, dtype=pl.Float64)).to_list() == [scalar(value) for value in values]


def test_every_bound_and_its_neighbours_are_in_the_same_bin_either_way() -> None:
    bounds = [upper_bound(index) for index in range(-1075 * 32, 1024 * 32 - 1, 7)]
    values = [v for b in bounds if b for v in (math.nextafter(b, 0), b, math.nextafter(b, math.inf))]
    assert bin_indexes(pl.Series(values)).to_list() == [scalar(value) for value in values]


def test_powers_of_two_are_in_the_bin_that_they_end() -> None:
    powers = range(-1074, 1024)
    assert bin_indexes(pl.Series([2.0**k for k in powers])).to_list() == [k * 32 - 1 for k in powers]


def frame_of(groups: dict[str, list[float]]) -> pl.DataFrame:
    rows = [("abc".index(name), value) for name, values in groups.items() for value in values]
    return pl.DataFrame(rows, schema={"group": pl.Int16, "value": pl.Float64}, orient="row")


def bins_of(groups: dict[str, list[float]]) -> pl.DataFrame:
    histograms = {name: exponential(values) for name, values in groups.items()}
    return pl.DataFrame(
        [(name, h.zero, list(h.count), list(h.count.values())) for name, h in histograms.items()],
        schema={"group": pl.String, "zero": pl.Float64, "bin": pl.List(pl.Int32), "count": pl.List(pl.Float64)},
        orient="row",
    )


def observations(groups: dict[str, list[float]]) -> pl.DataFrame:
    return pl.DataFrame({"group": list(groups), "facts": [float(len(values)) for values in groups.values()]})


GROUPS = st.dictionaries(st.sampled_from("abc"), st.lists(LATENCY_S, min_size=1, max_size=400), min_size=1)


@given(GROUPS, QS)
def test_a_quantile_of_bins_is_within_1_1_percent_of_the_nearest_rank(groups: dict[str, list[float]], q: float) -> None:
    long = binned(bins_of(groups), ["group"])
    found = quantiles_of_bins(long, observations(groups), ["group"], q)
    assert sorted(found["group"]) == sorted(groups)
    for name, facts, value, low, high in found.iter_rows():
        ordered = sorted(groups[name])
        true = ordered[math.ceil(Fraction(str(q)) * len(ordered)) - 1]
        assert facts == len(ordered)
        assert abs(value - true) <= 0.011 * true
        assert value == pytest.approx(quantile(exponential(ordered), q))
        ranks = interval_ranks(len(ordered), q)
        assert (low is None, high is None) == (ranks.low is None, ranks.high is None)
        if ranks.low is not None:
            assert low <= ordered[ranks.low - 1] * (1 + 1e-9) <= max(low, 1e-12) * 1.022
        if ranks.high is not None:
            assert high * (1 + 1e-9) >= ordered[ranks.high - 1] >= high / 1.022


@given(GROUPS, QS)
def test_a_quantile_of_values_is_the_nearest_rank(groups: dict[str, list[float]], q: float) -> None:
    found = quantiles_of_values(frame_of(groups), "group", q)
    for name, facts, *told in found.iter_rows():
        ordered = sorted(groups["abc"[name]])
        ranks = interval_ranks(len(ordered), q)
        wanted = [math.ceil(Fraction(str(q)) * len(ordered)), ranks.low, ranks.high]
        assert facts == len(ordered)
        assert told == [None if rank is None else ordered[rank - 1] for rank in wanted]


@given(st.lists(st.tuples(LATENCY_S, st.integers(1, 5)), min_size=1, max_size=60), QS)
def test_a_weight_counts_as_that_many_values(values: list[tuple[float, int]], q: float) -> None:
    weighted = pl.DataFrame(
        [(7, value, float(weight)) for value, weight in values], schema=["group", "value", "weight"], orient="row"
    )
    repeated = sorted(value for value, weight in values for _ in range(weight))
    found = quantiles_of_values(weighted, "group", q)["value"].item()
    assert found == repeated[math.ceil(Fraction(str(q)) * len(repeated)) - 1]


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9, 0.99])
def test_a_quantile_of_many_values_is_the_nearest_rank(q: float) -> None:
    chance = random.Random(4)
    sizes = {"a": 5000, "b": 1003, "c": 40}
    groups = {name: [round(chance.lognormvariate(0, 1), 1) for _ in range(size)] for name, size in sizes.items()}
    for name, facts, *told in quantiles_of_values(frame_of(groups).sample(fraction=1, shuffle=True), "group", q).rows():
        ordered = sorted(groups["abc"[name]])
        ranks = interval_ranks(len(ordered), q)
        wanted = [math.ceil(Fraction(str(q)) * len(ordered)), ranks.low, ranks.high]
        assert facts == len(ordered)
        assert told == [None if rank is None else ordered[rank - 1] for rank in wanted]


def test_groups_of_several_columns_and_null_ones_are_kept_apart() -> None:
    bins = bins_of({"a": [1.0], "b": [2.0]}).with_columns(group=pl.Series([None, "b"]), other=pl.lit(1))
    seen = pl.DataFrame({"group": [None, "b"], "other": [1, 1], "facts": [1.0, 1.0]})
    found = quantiles_of_bins(binned(bins, ["group", "other"]), seen, ["group", "other"], 0.5)
    assert sorted(found["value"].round(1)) == [1.0, 2.0]


def test_nothing_gives_nothing() -> None:
    empty = {"a": list[float]()}
    assert quantiles_of_bins(binned(bins_of(empty), ["group"]), observations(empty), ["group"], 0.5).is_empty()
    assert quantiles_of_values(frame_of({}), "group", 0.5).is_empty()
