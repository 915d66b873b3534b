"""Steps to rows and rows to minutes: nothing is lost, nothing counted twice."""

import math

import polars as pl
from hypothesis import given

from goodwatch.app.engines import known_engines
from goodwatch.core.counter import Tracker
from goodwatch.core.histogram import INF
from goodwatch.core.model import Histogram, Sample, Scrape
from goodwatch.signals.frames import MINUTES
from goodwatch.signals.increments import fold, rows_frame, step_rows
from goodwatch.signals.windows import TargetWindow, target_windows
from tests.signals.simulations import HEAVY, Run, runs
from tests.support.simulated_engine import Request, Simulated

VLLM = known_engines()["vllm"]


def test_of_nothing_there_are_no_minutes() -> None:
    assert fold(rows_frame([])).is_empty()
    assert rows_frame([]).schema == pl.Schema(MINUTES)


@HEAVY
@given(runs())
def test_increases_of_all_steps_are_the_true_events(run: Run) -> None:
    (one,) = run.windows()
    ended = run.ended()
    finished = [t for t in ended if t.fate == "finished"]
    told = one.counter("requests_finished_total") or 0.0
    e2e = one.histogram("e2e_seconds")
    assert told == len(ended if run.engine.kind == "sglang" else finished)
    assert (e2e.total if e2e else 0.0) == told
    if run.engine.kind == "vllm":
        first = one.histogram("ttft_seconds")
        assert first is not None
        assert first.total == len(run.engine.first_tokens_in(run.after_ms, run.until_ms))
        assert (one.counter("http_requests_total", "status=2") or 0.0) == len(ended)
    if run.engine.kind == "sglang":
        aborted = sum(t.fate == "aborted" for t in ended)
        assert (one.counter("requests_aborted_total") or 0.0) >= aborted
    assert all(v >= 0 for v in one.counters.values())
    assert one.seconds == (run.until_ms - run.after_ms) / 1000 or math.isclose(
        one.seconds, (run.until_ms - run.after_ms) / 1000
    )


@HEAVY
@given(runs(restarting=True))
def test_minutes_tell_the_same_counts_as_the_steps_they_are_made_of(run: Run) -> None:
    rows = run.rows()
    for every_s in (10.0, 60.0):
        minutes = fold(rows, every_s=every_s)
        direct, folded = target_windows(rows, rows.clear(), 0.0, 60.0), target_windows(minutes, rows.clear(), 0.0, 60.0)
        assert len(direct) == len(folded)
        for a, b in zip(direct, folded, strict=True):
            assert_same_counts(a, b)
        again = fold(minutes, every_s=60.0)
        for a, b in zip(direct, target_windows(again, rows.clear(), 0.0, 60.0), strict=True):
            assert_same_counts(a, b)


def assert_same_counts(a: TargetWindow, b: TargetWindow) -> None:
    assert (a.target, a.model, a.engine) == (b.target, b.model, b.engine)
    assert a.counters.keys() == b.counters.keys()
    assert all(math.isclose(a.counters[k], b.counters[k], abs_tol=1e-9) for k in a.counters)
    assert a.histograms.keys() == b.histograms.keys()
    for key, one in a.histograms.items():
        assert (one.le, one.count) == (b.histograms[key].le, b.histograms[key].count)
        assert math.isclose(one.sum or 0.0, b.histograms[key].sum or 0.0, abs_tol=1e-6)
    for key, gauge in a.gauges.items():
        other = b.gauges[key]
        assert (gauge.min, gauge.max, gauge.last) == (other.min, other.max, other.last)


def test_bounds_that_change_within_a_minute_are_summed_on_the_shared_ones() -> None:
    def row(at: float, le: list[float], count: list[float]) -> dict[str, object]:
        return {
            "minute_s": at, "target": "t", "service": "s", "model": "m", "engine": "vllm", "signal": "ttft_seconds",
            "part": "", "kind": "histogram", "increase": count[-1], "sum": 1.0, "le": le, "count": count,
        }  # fmt: skip

    rows = rows_frame(
        [row(1, [0.1, 0.5, INF], [1, 2, 3]), row(2, [0.1, 0.5, INF], [1, 1, 1]), row(3, [0.5, 1.0, INF], [4, 5, 6])]
    )
    (one,) = fold(rows).iter_rows(named=True)
    assert (one["le"], one["count"], one["increase"], one["sum"]) == ([0.5, INF], [7, 10], 10, 3.0)


def test_a_sum_that_one_step_lacks_makes_the_minutes_sum_unknown() -> None:
    run = Run(Simulated("vllm", (Request(0),)), ((0, False), (1_000, False), (2_000, False)), 0, 2_000)
    rows = run.rows()
    lacking = rows.with_columns(pl.when(pl.col("minute_s") == 1.0).then(None).otherwise(pl.col("sum")).alias("sum"))
    sums = fold(lacking).filter(pl.col("signal") == "ttft_seconds")["sum"].to_list()
    assert sums == [None]


def test_a_failed_scrape_is_a_row_of_its_own_and_covers_nothing() -> None:
    tracker = Tracker()
    step_rows(tracker.advance(Scrape(0.0, "t", "s", True, 0.0, (_counter(5.0),))), tracker, VLLM)
    failed = step_rows(tracker.advance(Scrape(10.0, "t", "s", False, 0.0)), tracker, VLLM)
    assert [(r["signal"], r["last"]) for r in failed] == [("up", 0.0)]
    rows = step_rows(tracker.advance(Scrape(20.0, "t", "s", True, 0.0, (_counter(9.0),))), tracker, VLLM)
    by_signal = {r["signal"]: r for r in rows}
    assert by_signal["covered_seconds_total"]["increase"] == 20.0
    assert by_signal["output_tokens_total"]["increase"] == 4.0


def test_ranks_of_a_gauge_add_up_and_the_fullest_pool_is_kept() -> None:
    def gauge(signal: str, rank: str, value: float) -> Sample:
        return Sample(0.0, "t", "s", "m", "vllm", "", rank, signal, "", value)

    samples = (
        gauge("requests_running", "engine=0", 3), gauge("requests_running", "engine=1", 4),
        gauge("kv_cache_used_ratio", "engine=0", 0.2), gauge("kv_cache_used_ratio", "engine=1", 0.8),
        gauge("kv_cache_capacity_tokens", "engine=0", 3000), gauge("kv_cache_capacity_tokens", "engine=1", 1000),
    )  # fmt: skip
    tracker = Tracker()
    rows = {
        r["signal"]: r for r in step_rows(tracker.advance(Scrape(0.0, "t", "s", True, 0.0, samples)), tracker, VLLM)
    }
    assert rows["requests_running"]["mean"] == 7
    # (0.2 · 3000 + 0.8 · 1000) / 4000 = 0.35: weighted by the size of the pool
    assert math.isclose(rows["kv_cache_used_ratio"]["mean"], 0.35)
    assert rows["kv_cache_used_ratio"]["max"] == 0.8


def test_ranks_with_unlike_bounds_are_added_on_the_shared_ones() -> None:
    def page(ts: float, a: tuple[float, ...], b: tuple[float, ...]) -> Scrape:
        both = (("engine=0", (0.1, 0.5, INF), a), ("engine=1", (0.5, 2.0, INF), b))
        return Scrape(
            ts, "t", "s", True, 0.0,
            tuple(Sample(ts, "t", "s", "m", "vllm", "", r, "ttft_seconds", "", None, Histogram(le, c)) for r, le, c in both),
        )  # fmt: skip

    tracker = Tracker()
    tracker.advance(page(0.0, (0, 0, 0), (0, 0, 0)))
    rows = step_rows(tracker.advance(page(1.0, (1, 2, 3), (1, 4, 4))), tracker, VLLM)
    (one,) = [r for r in rows if r["signal"] == "ttft_seconds"]
    assert (one["le"], one["count"], one["increase"]) == ([0.5, INF], [3.0, 7.0], 7.0)


def _counter(value: float) -> Sample:
    return Sample(0.0, "t", "s", "m", "vllm", "", "", "output_tokens_total", "", value)


def test_requests_that_failed_before_their_first_token_do_not_hide_those_that_decode() -> None:
    """They are in the finished counter and in E2E, and were never in TTFT: first tokens minus ended falls short."""
    failing = tuple(Request(0, prefill_ms=500, fails_ms=100) for _ in range(3))
    decoding = (Request(1_000, prefill_ms=100, tokens=12, gap_ms=1_000), Request(1_500, tokens=12, gap_ms=1_000))
    run = Run(Simulated("vllm", (*failing, *decoding)), ((0, False), (5_000, False)), 0, 5_000)
    most = run.rows().filter((pl.col("signal") == "requests_decoding_max") & (pl.col("minute_s") == 5.0))["last"]
    assert most.to_list() == [2.0]  # two have their first token and are not done
