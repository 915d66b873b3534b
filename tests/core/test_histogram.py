import math

from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.histogram import INF, count_within, cumulative, mean, merged, neighbours, quantile
from goodwatch.core.model import Bounds, Histogram

BOUNDS = st.lists(st.floats(0.001, 1000), min_size=1, max_size=12, unique=True).map(sorted)
VALUES = st.lists(st.floats(0, 2000), max_size=60)


def of(values: list[float], bounds: list[float]) -> Histogram:
    le = (*bounds, INF)
    return Histogram(le, tuple(float(sum(v <= b for v in values)) for b in le), math.fsum(values))


@given(VALUES, BOUNDS, st.floats(0, 2500))
def test_the_true_count_is_always_inside_the_bounds(values: list[float], bounds: list[float], limit: float) -> None:
    found = count_within(of(values, bounds), limit)
    assert found.high is not None
    assert found.low <= sum(v <= limit for v in values) <= found.high


@given(VALUES, BOUNDS)
def test_a_limit_on_a_bound_is_exact(values: list[float], bounds: list[float]) -> None:
    for bound in bounds:
        found = count_within(of(values, bounds), bound)
        assert found.low == found.high == sum(v <= bound for v in values)


@given(VALUES, BOUNDS, st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]))
def test_the_true_quantile_is_inside_its_bucket(values: list[float], bounds: list[float], q: float) -> None:
    found = quantile(of(values, bounds), q)
    if not values:
        assert found is None
        return
    assert found is not None
    # design §3: the q-quantile of n values is the ⌈q·n⌉-th smallest
    true = sorted(values)[math.ceil(round(q * len(values), 9)) - 1]
    assert found.low <= true <= (INF if found.high is None else found.high)


@given(st.lists(st.tuples(VALUES, BOUNDS), min_size=1, max_size=5))
def test_merging_counts_every_observation_once_on_shared_bounds(parts: list[tuple[list[float], list[float]]]) -> None:
    whole = merged(of(v, b) for v, b in parts)
    assert whole is not None
    shared = set(parts[0][1]).intersection(*(b for _, b in parts))
    assert set(whole.le) == shared | {INF}
    everything = [v for values, _ in parts for v in values]
    for bound, count in zip(whole.le, whole.count, strict=True):
        assert count == sum(v <= bound for v in everything)


@given(st.dictionaries(st.floats(0, 100), st.floats(0, 1e6), max_size=20), st.one_of(st.none(), st.floats(0, 1e6)))
def test_torn_pages_still_give_monotone_histograms(buckets: dict[float, float], count: float | None) -> None:
    h = cumulative(buckets, count=count, total_sum=None)
    assert list(h.le) == sorted(h.le)
    assert h.le[-1] == INF
    assert list(h.count) == sorted(h.count)


def test_nothing_to_merge_is_none() -> None:
    assert merged([]) is None


def test_a_quantile_in_the_top_bucket_is_open_above() -> None:
    assert quantile(Histogram((0.1, INF), (1.0, 10.0)), 0.99) == Bounds(0.1, None)


def test_the_mean_needs_a_sum_and_observations() -> None:
    assert mean(Histogram((INF,), (0.0,), 0.0)) is None
    assert mean(Histogram((INF,), (4.0,))) is None
    assert mean(Histogram((INF,), (4.0,), 2.0)) == 0.5


def test_neighbours_of_a_target() -> None:
    # vLLM's TTFT bounds around 300 ms: 250 and 500 ms (engine-metrics reference, section 3)
    le = (0.1, 0.25, 0.5, INF)
    assert neighbours(le, 0.3) == (0.25, 0.5)
    assert neighbours(le, 0.25) == (0.25, 0.25)
    assert neighbours(le, 0.9) == (0.5, None)
