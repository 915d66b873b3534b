"""Increases against what a process that counts events knows (design §3)."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.counter import Tracker, histogram_increase
from goodwatch.core.histogram import INF
from goodwatch.core.model import Histogram, Sample, Scrape

SIGNALS = ("output_tokens_total", "input_tokens_total", "preemptions_total")
#: Per interval: events of each counter, and whether the scrape at its end fails.
INTERVALS = st.lists(
    st.tuples(st.tuples(*(st.one_of(st.just(0), st.integers(0, 50)) for _ in SIGNALS)), st.booleans()), max_size=12
)
LATENCIES = st.lists(st.floats(0, 20), max_size=12)
BOUNDS = st.sets(st.sampled_from((0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)), max_size=6).map(lambda b: (*sorted(b), INF))


def sample(signal: str, value: float) -> Sample:
    return Sample(0.0, "t", "s", "m", "vllm", "", "", signal, "", float(value))


def page(ts: float, totals: list[int], *, born: bool, start_s: float | None = None) -> Scrape:
    """A page; with ``born`` a counter is not there before its first event."""
    samples = [sample(n, v) for n, v in zip(SIGNALS, totals, strict=True) if v or not born]
    if start_s is not None:
        samples.append(sample("process_start_seconds", start_s))
    return Scrape(ts, "t", "s", True, 0.0, tuple(samples))


def gained(tracker: Tracker, scrape: Scrape) -> float:
    return sum(i.value for i in tracker.advance(scrape).increases)


@given(INTERVALS, st.booleans())
def test_increases_are_the_events_between_good_scrapes(
    intervals: list[tuple[tuple[int, ...], bool]], born: bool
) -> None:
    tracker, totals = Tracker(), [0] * len(SIGNALS)
    tracker.advance(page(0.0, totals, born=born))
    seen = pending = 0.0
    for at, (events, fails) in enumerate(intervals, 1):
        totals = [a + b for a, b in zip(totals, events, strict=True)]
        pending += sum(events)
        if fails:
            assert gained(tracker, Scrape(float(at), "t", "s", False, 0.0)) == 0
            continue
        assert gained(tracker, page(float(at), totals, born=born)) == pending
        seen, pending = seen + pending, 0.0
    assert seen + pending == sum(totals)


@given(st.lists(st.tuples(INTERVALS, st.integers(2, 1000)), min_size=2, max_size=4), st.booleans())
def test_over_restarts_with_a_known_start_nothing_seen_is_lost_or_doubled(
    lives: list[tuple[list[tuple[tuple[int, ...], bool]], int]], born: bool
) -> None:
    """What a process did after its last good scrape nobody can know; all before that is told exactly once."""
    tracker, at, start_s = Tracker(), 1_000_000.0, 1_000_000.0
    told = known = 0.0
    tracker.advance(page(at, [0] * len(SIGNALS), born=born, start_s=start_s))
    for intervals, gap_s in lives:
        totals = [0] * len(SIGNALS)
        last_seen = 0.0
        for events, fails in intervals:
            at += 1.0
            totals = [a + b for a, b in zip(totals, events, strict=True)]
            one = Scrape(at, "t", "s", False, 0.0) if fails else page(at, totals, born=born, start_s=start_s)
            told += gained(tracker, one)
            last_seen = last_seen if fails else sum(totals)
        known += last_seen
        start_s = at = at + gap_s
    assert told == known


@given(
    st.lists(st.integers(1, 10_000), min_size=3, max_size=3),
    st.lists(st.integers(0, 10_000), min_size=3, max_size=3),
    st.booleans(),
)
def test_without_a_known_start_a_restart_is_never_more_than_what_happened(
    before: list[int], after: list[int], failed: bool
) -> None:
    """The new process did ``after``; what it can be told to have done is at most that, and that when most fell."""
    tracker = Tracker()
    tracker.advance(page(0.0, before, born=False))
    if failed:
        tracker.advance(Scrape(1.0, "t", "s", False, 0.0))
    told = gained(tracker, page(2.0, after, born=False))
    assert 0 <= told <= sum(after)
    if sum(a < b for a, b in zip(after, before, strict=True)) >= 2:
        assert told == sum(after)


def of(values: list[float], bounds: tuple[float, ...]) -> Histogram:
    return Histogram(bounds, tuple(float(sum(v <= b for v in values)) for b in bounds), math.fsum(values))


@given(st.lists(st.tuples(LATENCIES, BOUNDS), min_size=2, max_size=6))
def test_histogram_increases_are_the_observations_on_shared_bounds(
    pages: list[tuple[list[float], tuple[float, ...]]],
) -> None:
    """Bounds may change at every page; the observations never stop."""
    so_far: list[float] = []
    history: list[Histogram] = []
    for values, bounds in pages:
        so_far += values
        history.append(of(so_far, bounds))
    for (before, now), (values, _) in zip(pairwise(history), pages[1:], strict=True):
        gain = histogram_increase(before, now)
        assert set(gain.le) == set(before.le) & set(now.le)
        assert gain.count == of(values, gain.le).count
        assert math.isclose(gain.sum or 0.0, math.fsum(values), abs_tol=1e-6)


@given(st.lists(st.tuples(LATENCIES, st.integers(0, 3)), min_size=2, max_size=8), BOUNDS)
def test_torn_pages_count_every_observation_once(
    pages: list[tuple[list[float], int]], bounds: tuple[float, ...]
) -> None:
    """A page can lack the newest observations in the buckets that it has in the total; they are there on the next."""
    so_far: list[float] = []
    told = 0.0
    before = of([], bounds)
    for values, late in pages:
        so_far += values
        whole, settled = of(so_far, bounds), of(so_far[: max(0, len(so_far) - late)], bounds)
        now = Histogram(bounds, (*settled.count[:-1], whole.total), whole.sum)
        gain = histogram_increase(before, now)
        assert list(gain.count) == sorted(gain.count)
        assert all(c >= 0 for c in gain.count)
        told += gain.total
        before = now
    assert told == len(so_far)
