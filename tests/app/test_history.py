"""Numbers over time: gaps stay gaps, and each step is told from its own counts."""

import math

import polars as pl
import pytest

from goodwatch.app.engines import known_engines
from goodwatch.app.history import derived_frame, derived_rows, series, step_for
from goodwatch.core.model import Absence, Limits
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import MEANINGS, derive
from goodwatch.signals.frames import DERIVED
from goodwatch.signals.increments import fold
from tests.signals.simulations import Run
from tests.support.simulated_engine import Request, Simulated

ENGINES = known_engines()
LIMITS = Limits(ttft_s=0.5)
#: One request a second for ten minutes, done 0.1 s after its arrival.
STEADY = Simulated("vllm", tuple(Request(1_000 * i, tokens=1) for i in range(600)))


def history(run: Run, *, start_s: float, end_s: float, step_s: float = 60.0) -> pl.DataFrame:
    return series(fold(run.rows()), ENGINES, LIMITS, {"t": Price(1, 3.6)}, start_s=start_s, end_s=end_s, step_s=step_s)


def values(frame: pl.DataFrame, name: str, column: str = "value") -> dict[float, float | None]:
    one = frame.filter(pl.col("name") == name)
    return dict(zip(one["ts"].to_list(), one[column].to_list(), strict=True))


def scraped(*gaps: tuple[int, int], every_ms: int = 15_000, until_ms: int = 600_000) -> Run:
    """A run scraped every 15 s; scrapes inside a gap fail."""
    instants = range(0, until_ms, every_ms)
    return Run(STEADY, tuple((at, any(a <= at < b for a, b in gaps)) for at in instants), 0, until_ms)


@pytest.mark.parametrize(
    ("seconds", "step"),
    [(60, 60), (3600, 60), (7200, 60), (7201, 120), (86400, 900), (30 * 86400, 28800), (1e9, 86400)],
)
def test_steps_are_whole_minutes_and_about_120(seconds: float, step: float) -> None:
    assert step_for(seconds) == step


def test_every_step_has_every_name() -> None:
    frame = history(scraped(), start_s=0.0, end_s=600.0)
    assert frame.schema == pl.Schema(DERIVED)
    assert frame.height == 10 * len(MEANINGS)
    assert sorted(values(frame, "request_rate_per_s")) == [60.0 * i for i in range(1, 11)]


def test_a_steady_stream_is_steady() -> None:
    rates = values(history(scraped(), start_s=60.0, end_s=600.0), "request_rate_per_s")
    assert all(rate == pytest.approx(1.0, rel=0.02) for rate in rates.values())


def test_minutes_without_a_scrape_are_nulls_and_not_zeros() -> None:
    frame = history(scraped((120_000, 300_000)), start_s=0.0, end_s=600.0)
    rates = values(frame, "request_rate_per_s")
    assert [ts for ts, rate in rates.items() if rate is None] == [180.0, 240.0, 300.0]
    for name in MEANINGS:
        gap = frame.filter((pl.col("name") == name) & (pl.col("ts") == 240.0))
        assert gap.select("value", "low", "high").row(0) == (None, None, None)
        assert gap["note"][0].startswith(Absence.NO_DATA.value)


def test_the_minute_after_a_gap_is_not_inflated() -> None:
    rates = values(history(scraped((120_000, 300_000)), start_s=0.0, end_s=600.0), "request_rate_per_s")
    # the first good scrape tells of three minutes of requests, and covers three minutes
    assert rates[360.0] == pytest.approx(1.0, rel=0.02)


def test_the_minute_after_a_gap_does_not_deny_that_its_requests_were_good() -> None:
    """All were in time; those that ended just after the gap had their first tokens counted before it."""
    slow = Simulated("vllm", tuple(Request(1_000 * i, prefill_ms=100, tokens=200, gap_ms=400) for i in range(60)))
    # 80 s of decoding: all first tokens come by 60 s, all ends between 80 s and 140 s
    run = Run(slow, tuple((at, 60_000 <= at < 120_000) for at in range(0, 240_000, 15_000)), 0, 240_000)
    frame = history(run, start_s=0.0, end_s=240.0)
    ended, high = values(frame, "request_rate_per_s")[180.0], values(frame, "goodput_per_s", "high")[180.0]
    assert ended is not None
    assert ended > 0
    assert high == pytest.approx(ended)  # every one of them met its TTFT of 0.1 s


def test_a_range_from_the_middle_of_a_step_begins_with_the_whole_step() -> None:
    frame = history(scraped(), start_s=150.0, end_s=290.0, step_s=120.0)
    assert sorted(values(frame, "request_rate_per_s")) == [240.0, 360.0]


def test_without_minutes_every_step_is_a_gap() -> None:
    frame = series(fold(scraped().rows()).clear(), ENGINES, LIMITS, {}, start_s=0.0, end_s=180.0, step_s=60.0)
    assert frame.height == 3 * len(MEANINGS)
    assert frame["value"].null_count() == frame.height


def test_rows_say_why_a_number_is_not_there() -> None:
    nothing = derive([], ENGINES, LIMITS, {}, start_s=0.0, end_s=60.0)
    frame = derived_frame(derived_rows(nothing, "s", "t", "m"))
    assert set(frame["note"]) == {"no data: no target"}
    assert frame.select("ts", "window_s", "service", "target", "model").row(0) == (60.0, 60.0, "s", "t", "m")


def test_an_interval_that_is_open_above_is_infinite_and_not_null() -> None:
    slow = Simulated("vllm", tuple(Request(i, prefill_ms=2_600_000, tokens=1) for i in range(4)))
    run = Run(slow, ((0, False), (2_700_000, False)), 0, 2_700_000)
    frame = history(run, start_s=2_700.0, end_s=2_760.0)
    assert values(frame, "ttft_p50_seconds", "high") == {2_760.0: math.inf}
    assert values(frame, "ttft_p50_seconds", "low") == {2_760.0: 2560.0}
