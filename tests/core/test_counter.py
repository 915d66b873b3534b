"""Counters to increases, example by example."""

import pytest

from goodwatch.core.counter import Tracker, counter_increase, histogram_increase
from goodwatch.core.histogram import INF
from goodwatch.core.model import Histogram, Sample, Scrape


def sample(signal: str, value: float | Histogram, *, part: str = "", rank: str = "") -> Sample:
    if isinstance(value, Histogram):
        return Sample(0.0, "t", "s", "m", "vllm", "", rank, signal, part, None, value)
    return Sample(0.0, "t", "s", "m", "vllm", "", rank, signal, part, value)


def page(ts: float, **values: float | Histogram) -> Scrape:
    """A good scrape; a name is a signal."""
    return Scrape(ts, "t", "s", True, 0.0, tuple(sample(n, v) for n, v in values.items()))


def down(ts: float) -> Scrape:
    return Scrape(ts, "t", "s", False, 0.0)


def gains(tracker: Tracker, scrape: Scrape) -> dict[str, float]:
    return {i.signal: i.value for i in tracker.advance(scrape).increases}


def test_the_first_scrape_only_sets_the_baseline() -> None:
    step = Tracker().advance(page(10.0, output_tokens_total=500.0))
    assert (step.start_s, step.increases, step.restarted) == (None, (), False)


def test_a_failed_scrape_adds_nothing_and_the_next_one_tells_it_all() -> None:
    tracker = Tracker()
    tracker.advance(page(10.0, output_tokens_total=500.0))
    failed = tracker.advance(down(20.0))
    assert (failed.up, failed.failed, failed.increases) == (False, 1, ())
    step = tracker.advance(page(30.0, output_tokens_total=530.0))
    assert (step.start_s, step.failed) == (10.0, 1)
    assert [i.value for i in step.increases] == [30.0]


def test_a_failed_scrape_before_the_first_good_one_leaves_a_baseline_to_be_set() -> None:
    tracker = Tracker()
    tracker.advance(down(0.0))
    assert tracker.advance(page(10.0, output_tokens_total=500.0)).increases == ()


def test_a_series_born_later_began_at_zero() -> None:
    tracker = Tracker()
    tracker.advance(page(10.0, output_tokens_total=500.0))
    assert gains(tracker, page(20.0, output_tokens_total=500.0, preemptions_total=3.0)) == {
        "output_tokens_total": 0.0,
        "preemptions_total": 3.0,
    }


def test_a_moved_process_start_restarts_counters_that_have_passed_their_old_value_too() -> None:
    tracker = Tracker()
    tracker.advance(page(10.0, process_start_seconds=1.0, output_tokens_total=5.0, preemptions_total=50.0))
    step = tracker.advance(page(20.0, process_start_seconds=15.0, output_tokens_total=9.0, preemptions_total=60.0))
    assert step.restarted
    assert {i.signal: i.value for i in step.increases} == {"output_tokens_total": 9.0, "preemptions_total": 60.0}


def test_a_process_start_that_moves_by_rounding_is_no_restart() -> None:
    tracker = Tracker()
    tracker.advance(page(10.0, process_start_seconds=100.11, output_tokens_total=5.0))
    assert gains(tracker, page(20.0, process_start_seconds=100.12, output_tokens_total=9.0))["output_tokens_total"] == 4


def test_when_most_counters_fell_all_of_them_began_again() -> None:
    tracker = Tracker()
    before = {"output_tokens_total": 100.0, "input_tokens_total": 100.0, "preemptions_total": 1.0}
    after = {"output_tokens_total": 7.0, "input_tokens_total": 9.0, "preemptions_total": 2.0}
    tracker.advance(page(10.0, **before))
    assert gains(tracker, page(20.0, **after)) == after


def test_one_counter_that_fell_alone_began_again_alone() -> None:
    tracker = Tracker()
    tracker.advance(page(10.0, output_tokens_total=100.0, input_tokens_total=100.0, preemptions_total=5.0))
    step = tracker.advance(page(20.0, output_tokens_total=110.0, input_tokens_total=120.0, preemptions_total=2.0))
    assert not step.restarted
    assert [i.value for i in step.increases] == [10.0, 20.0, 2.0]


def test_a_process_that_came_back_without_its_series_counts_from_zero() -> None:
    """SGLang's series are born at their first event: a fresh page has none of them."""
    tracker = Tracker()
    tracker.advance(page(10.0, output_tokens_total=100.0))
    tracker.advance(down(20.0))
    assert tracker.advance(page(30.0)).restarted
    assert gains(tracker, page(40.0, output_tokens_total=130.0)) == {"output_tokens_total": 130.0}


def test_ranks_are_told_apart_when_one_of_them_falls() -> None:
    tracker = Tracker()
    both = [("engine=0", 100.0), ("engine=1", 100.0)]
    tracker.advance(Scrape(1.0, "t", "s", True, 0.0, tuple(sample("preemptions_total", v, rank=r) for r, v in both)))
    now = [("engine=0", 103.0), ("engine=1", 2.0)]
    step = tracker.advance(
        Scrape(2.0, "t", "s", True, 0.0, tuple(sample("preemptions_total", v, rank=r) for r, v in now))
    )
    assert sum(i.value for i in step.increases) == 3.0 + 2.0  # a sum first would have told 105 - 200: a restart


@pytest.mark.parametrize(
    ("before", "now", "gain"), [(None, 0.0, 0.0), (0.0, 0.0, 0.0), (7.0, 7.0, 0.0), (7.0, 0.0, 0.0), (7.0, 6.5, 6.5)]
)
def test_a_gain_is_never_negative(before: float | None, now: float, gain: float) -> None:
    assert counter_increase(before, now) == gain


def test_new_bounds_are_compared_on_the_shared_ones() -> None:
    before = Histogram((0.1, 0.5, 1.0, INF), (1.0, 4.0, 6.0, 7.0), 3.0)
    now = Histogram((0.2, 0.5, 2.0, INF), (3.0, 9.0, 12.0, 13.0), 9.0)
    assert histogram_increase(before, now) == Histogram((0.5, INF), (5.0, 6.0), 6.0)


def test_a_histogram_that_fell_began_again_with_all_its_bounds() -> None:
    now = Histogram((0.2, INF), (1.0, 2.0), 1.5)
    assert histogram_increase(Histogram((0.1, INF), (5.0, 9.0), 4.0), now) == now


def test_a_sum_is_unknown_when_one_page_lacks_it() -> None:
    assert histogram_increase(Histogram((INF,), (1.0,)), Histogram((INF,), (3.0,), 5.0)).sum is None


def test_an_observation_that_reached_a_torn_page_in_part_is_counted_once() -> None:
    """The first page has it in +Inf and not yet in its bucket; the second has it in both: one observation, not two."""
    torn = Histogram((0.5, INF), (9.0, 10.0))
    whole = Histogram((0.5, INF), (10.0, 10.0))
    assert histogram_increase(torn, whole).total == 0.0
