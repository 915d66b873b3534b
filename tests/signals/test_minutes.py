"""Rows added up one step at a time are what ``fold`` makes of them at once."""

import math
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.histogram import INF
from goodwatch.signals.increments import fold, rows_frame
from goodwatch.signals.minutes import Minute
from tests.signals.simulations import HEAVY, Run, runs

_ORDER = ("minute_s", "target", "model", "signal", "part")


def histogram(at_s: float, le: list[float], count: list[float], total_sum: float | None) -> dict[str, Any]:
    return {
        "minute_s": at_s, "target": "t", "service": "s", "model": "m", "engine": "vllm", "signal": "ttft_seconds",
        "part": "", "kind": "histogram", "increase": count[-1], "sum": total_sum, "le": le, "count": count,
    }  # fmt: skip


def gauge(at_s: float, value: float) -> dict[str, Any]:
    return {
        "minute_s": at_s, "target": "t", "service": "s", "model": "m", "engine": "vllm", "signal": "requests_running",
        "part": "", "kind": "gauge", "mean": value, "min": value, "max": value, "last": value,
    }  # fmt: skip


def added_up(steps: list[list[dict[str, Any]]]) -> pl.DataFrame:
    minutes: dict[float, Minute] = {}
    for rows in steps:
        minutes.setdefault(rows[0]["minute_s"] // 60 * 60, Minute()).add(rows)
    return fold(rows_frame([row for minute in minutes.values() for row in minute.rows()]))


def assert_same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """Equal but for the last digits of sums, which are added in another order."""
    for a, b in zip(one.sort(_ORDER).iter_rows(), other.sort(_ORDER).iter_rows(), strict=True):
        for x, y in zip(a, b, strict=True):
            if isinstance(x, float) and isinstance(y, float):
                assert math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-12)
            else:
                assert x == y


@HEAVY
@given(runs(restarting=True))
def test_steps_added_up_are_the_folded_minutes(run: Run) -> None:
    steps = [rows for _, rows in run.steps()]
    assert_same(added_up(steps), fold(rows_frame([row for rows in steps for row in rows])))


@given(
    st.lists(
        st.tuples(
            st.floats(0, 119), st.sampled_from([(0.1, 0.5, INF), (0.5, 1.0, INF), (INF,)]), st.integers(0, 9),
            st.none() | st.floats(0, 9),
        ),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_bounds_that_change_and_sums_that_lack_are_taken_as_fold_takes_them(
    steps: list[tuple[float, tuple[float, ...], int, float | None]],
) -> None:
    rows = [histogram(at, [*le], [float(n)] * len(le), total) for at, le, n, total in steps]
    assert_same(added_up([[row] for row in rows]), fold(rows_frame(rows)))


def test_the_last_value_of_a_gauge_is_the_newest_also_when_an_older_one_comes_late() -> None:
    minute = Minute()
    for at_s, value in ((10.0, 4.0), (30.0, 2.0), (20.0, 9.0)):
        minute.add([gauge(at_s, value)])
    (row,) = minute.rows()
    assert (row["last"], row["min"], row["max"], row["mean"]) == (2.0, 2.0, 9.0, 5.0)  # (4 + 2 + 9) / 3


def test_rows_that_were_handed_out_do_not_change_when_the_minute_goes_on() -> None:
    minute = Minute()
    step = histogram(1.0, [0.1, INF], [1.0, 2.0], 0.5)
    minute.add([step])
    (before,) = minute.rows()
    minute.add([histogram(2.0, [0.1, INF], [3.0, 3.0], 0.5)])
    assert (before["count"], before["increase"], step["count"]) == ([1.0, 2.0], 2.0, [1.0, 2.0])
    assert minute.rows()[0]["count"] == [4.0, 5.0]
