import random

import polars as pl
import pytest

from goodwatch.core.errors import NoDataError
from planner.experiments.designs import judge
from planner.experiments.matching import before_after, matched
from planner.experiments.values import Arm, Experiment, Metric

TTFT = Metric("ttft_s", "s", "lower", "mean")


def facts(start_s: float, long_share: float, factor: float, seed: int, n: int = 4000) -> pl.DataFrame:
    """Short and long prompts; a long one takes ten times as long."""
    rng = random.Random(seed)
    rows = []
    for place in range(n):
        long = rng.random() < long_share
        took = factor * (1.0 if long else 0.1) * rng.lognormvariate(0, 0.2)
        rows.append((start_s + place * 10.0, 5000 if long else 300, 100, took))
    return pl.DataFrame(rows, schema=["ended_at", "input_tokens", "output_tokens", "engine_ttft_s"], orient="row")


def verdict(before: pl.DataFrame, after: pl.DataFrame) -> str:
    entry = Experiment("m", "?", "before_after", Arm("before"), Arm("after"), (TTFT,))
    return judge(before_after(entry, before, after, [(TTFT, "engine_ttft_s")])).outcome


def test_longer_prompts_are_not_a_slower_engine() -> None:
    before, after = facts(0, 0.2, 1.0, 1), facts(40_000, 0.45, 1.0, 2)
    assert after["engine_ttft_s"].mean() > 1.5 * before["engine_ttft_s"].mean()  # type: ignore[operator]
    assert verdict(before, after) in ("no_difference", "inconclusive")


def test_a_slower_engine_is_seen_through_shorter_prompts() -> None:
    before, after = facts(0, 0.45, 1.0, 1), facts(40_000, 0.2, 1.5, 2)
    assert after["engine_ttft_s"].mean() < before["engine_ttft_s"].mean()  # type: ignore[operator]
    assert verdict(before, after) == "worse"


def test_how_much_was_matched_is_told() -> None:
    found = matched(facts(0, 0.2, 1.0, 1), facts(40_000, 0.45, 1.0, 2), {"ttft_s": "engine_ttft_s"})
    assert found.overlap_ratio == pytest.approx(0.75, abs=0.03)  # min(.8, .55) + min(.2, .45)
    assert "of the traffic is alike" in found.notes[0]
    assert found.effective[0] < 4000


def test_traffic_with_little_in_common_is_refused_with_what_differs() -> None:
    with pytest.raises(NoDataError, match=r"only 2\d% .*input 4096–8191 .* went from"):
        matched(facts(0, 0.1, 1.0, 1), facts(40_000, 0.9, 1.0, 2), {"ttft_s": "engine_ttft_s"})


def test_a_mix_that_was_only_reweighted_keeps_its_means() -> None:
    one = facts(0, 0.3, 1.0, 1)
    found = matched(one, one, {"ttft_s": "engine_ttft_s"})
    assert found.overlap_ratio == pytest.approx(1)
    weights = [w for run in found.baseline for w in run.measures["ttft_s"].weights or ()]
    assert weights == pytest.approx([1.0] * 4000)


def test_requests_of_unknown_length_are_left_out_and_counted() -> None:
    one = facts(0, 0.3, 1.0, 1)
    other = one.with_columns(
        input_tokens=pl.when(pl.col("ended_at") < 1000).then(None).otherwise(pl.col("input_tokens"))
    )
    notes = matched(other, one, {"ttft_s": "engine_ttft_s"}).notes
    assert "before: 100 requests without a known length are left out" in notes


def test_more_load_is_told_since_only_the_mix_was_matched() -> None:
    before = facts(0, 0.3, 1.0, 1)
    after = facts(80_000, 0.3, 1.0, 2).with_columns(ended_at=80_000 + (pl.col("ended_at") - 80_000) / 2)
    assert any("load is 2.00 times" in said for said in matched(before, after, {"t": "engine_ttft_s"}).notes)


def test_an_empty_side_is_no_comparison() -> None:
    one = facts(0, 0.3, 1.0, 1)
    with pytest.raises(NoDataError, match="both need requests"):
        matched(one, one.head(0), {"t": "engine_ttft_s"})


def day(start_s: float, every: int, factor: float, seed: int) -> pl.DataFrame:
    """Twelve hours of five-minute blocks: each ``every``-th (0: none) is busy, 20 requests a minute that take three times
    as long; the others are quiet, 2 a minute."""
    rng = random.Random(seed)
    rows = []
    for block in range(144):
        busy = every and block % every == 0
        for n in range(100 if busy else 10):
            at_s = start_s + block * 300 + n * (3.0 if busy else 30.0)
            took = factor * (3.0 if busy else 1.0) * rng.lognormvariate(0, 0.2)
            rows.append((at_s + took, at_s, 300, 100, took))
    names = ["ended_at", "arrived_s", "input_tokens", "output_tokens", "engine_ttft_s"]
    return pl.DataFrame(rows, schema=names, orient="row")


def by_load(before: pl.DataFrame, after: pl.DataFrame) -> Experiment:
    entry = Experiment("m", "?", "before_after", Arm("before"), Arm("after"), (TTFT,))
    return before_after(entry, before, after, [(TTFT, "engine_ttft_s")], loads=True)


def test_a_quiet_night_after_a_busy_day_is_no_verdict() -> None:
    with pytest.raises(NoDataError, match=r"load is about 0\.1\d? times what it was"):
        by_load(day(0, 1, 1.0, 1), day(50_000, 0, 1.0, 2))


def test_fewer_busy_minutes_are_not_a_faster_engine() -> None:
    before, after = day(0, 3, 1.0, 1), day(50_000, 9, 1.0, 2)
    assert verdict(before, after) == "better"  # by lengths alone
    assert judge(by_load(before, after)).outcome in ("no_difference", "inconclusive")


def test_a_slower_engine_is_seen_through_fewer_busy_minutes() -> None:
    assert judge(by_load(day(0, 3, 1.0, 1), day(50_000, 9, 1.4, 2))).outcome == "worse"


def test_loads_a_little_apart_are_alike() -> None:
    """130 and 120 a minute stand on two sides of 128; what is common must not hang on where a band ends."""
    before, after = (
        pl.DataFrame({"ended_at": at, "arrived_s": at, "input_tokens": 300, "output_tokens": 100, "engine_ttft_s": 1.0})
        for at in ([n * 60 / 130 for n in range(130 * 30)], [5000 + n * 60 / 120 for n in range(120 * 30)])
    )
    assert matched(before, after, {"t": "engine_ttft_s"}, loads=True).overlap_ratio > 0.9


def test_short_comparisons_are_not_undone_by_their_edges() -> None:
    """Bursts of 96, 20 and 80 every four seconds, for 70 and for 100 s, begun at different places of a minute."""

    def bursts(start_s: float, count: int) -> pl.DataFrame:
        at = [start_s + 4.0 * n for n in range(count) for _ in range((96, 20, 80)[n % 3])]
        return pl.DataFrame(
            {"ended_at": at, "arrived_s": at, "input_tokens": 300, "output_tokens": 100, "engine_ttft_s": 1.0}
        )

    assert matched(bursts(37.0, 18), bursts(1005.0, 25), {"t": "engine_ttft_s"}, loads=True).overlap_ratio > 0.8
