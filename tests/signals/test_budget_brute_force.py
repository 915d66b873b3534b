"""Windows, burn, budget, end and firing pairs of random streams, against counts of single events without a frame."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodwatch.core.slo import DAY_S, Latency, Period, Slo, burn_pairs
from goodwatch.signals.budget import slo_status
from goodwatch.signals.slo_events import EVENTS

#: 2026-03-29 12:00 UTC: in Berlin clocks went forward that night
AT_S = datetime(2026, 3, 29, 12, tzinfo=UTC).timestamp()
#: minutes before AT_S (0 is the one that just ended, -1 is still open), requests, and failures among them
Stream = Sequence[tuple[int, int, int]]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    edges = st.sampled_from(
        [-1, 0, 4, 5, 14, 15, 29, 30, 59, 60, 359, 360, 1439, 1440, 4319, 4320, 10_079, 10_080, 43_199, 43_200]
    )
    ages = draw(st.lists(st.one_of(edges, st.integers(-1, 44_000)), max_size=25, unique=True))
    return [(age, total, draw(st.integers(0, total))) for age in ages for total in [draw(st.integers(0, 400))]]


def frame_of(stream: Stream) -> pl.DataFrame:
    rows = [(AT_S - 60 * (age + 1), 60.0, "", "ttft", float(total), float(bad)) for age, total, bad in stream]
    return pl.DataFrame(rows, schema=EVENTS, orient="row")


def counted(stream: Stream, minutes: float) -> tuple[int, int, bool]:
    inside = [(total, bad) for age, total, bad in stream if 0 <= age < minutes]
    return sum(total for total, _ in inside), sum(bad for _, bad in inside), bool(inside)


@settings(max_examples=80, deadline=None)
@given(streams(), st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999]), st.sampled_from([7, 28, 30]), st.sampled_from([1, 5]))
def test_a_rolling_slo_is_what_single_events_say(stream: Stream, objective: float, days: int, least: int) -> None:
    slo = Slo("s", "chat", objective, Latency("ttft_seconds", 0.5), Period(days * DAY_S), min_failures=least)
    pairs = burn_pairs(objective, slo.period.length_s)
    status = slo_status(slo, frame_of(stream), AT_S, pairs)
    if all(age < 0 for age, _, _ in stream):
        assert status.targets == ()
        return
    (target,) = status.targets
    budget = round(1 - objective, 12)
    for length_s, found in target.windows.items():
        total, bad, told = counted(stream, length_s / 60)
        assert (found is not None) == told
        if found is not None:
            assert (found.total, found.bad) == (total, bad)
            burn = target.burn(length_s, objective)
            assert burn == (pytest.approx(bad / total / budget) if total else None)
    total, bad, told = counted(stream, days * 1440)
    left = None if not told else 1 - bad / (total * budget) if total else 1.0
    assert (None if target.budget is None else target.budget.left_ratio) == (
        None if left is None else pytest.approx(left)
    )
    day_total, day_bad, _ = counted(stream, 1440)
    if day_total and day_bad and left is not None:
        assert target.forecast is not None
        ends_s = max(0.0, left) * days * 86_400 * budget / (day_bad / day_total)
        assert target.forecast.expected_s == pytest.approx(ends_s, abs=1e-3)
    fires = {
        (pair.severity, pair.long_s)
        for pair in pairs
        for (long_total, long_bad, _), (short_total, short_bad, _) in [
            (counted(stream, pair.long_s / 60), counted(stream, pair.short_s / 60))
        ]
        if long_total and short_total and long_bad >= least
        and long_bad / long_total > pair.threshold_ratio and short_bad / short_total > pair.threshold_ratio
    }  # fmt: skip
    found_pairs = {(p.severity, p.long_s) for severity in ("page", "ticket") for _, p in status.firing(severity)}
    assert found_pairs == fires


@settings(max_examples=60, deadline=None)
@given(streams(), st.sampled_from(["day", "week", "month"]), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]))
def test_a_calendar_slo_counts_from_its_midnight_on(stream: Stream, unit: str, zone: str) -> None:
    slo = Slo("s", "chat", 0.99, Latency("ttft_seconds", 0.5), Period(30 * DAY_S, unit, zone=zone))  # type: ignore[arg-type]
    now = datetime.fromtimestamp(AT_S, ZoneInfo(zone))
    first = {"day": now.day, "week": now.day - now.weekday(), "month": 1}[unit]  # 29 March 2026 is a Sunday
    starts_s = datetime(2026, 3, first, tzinfo=ZoneInfo(zone)).timestamp()
    status = slo_status(slo, frame_of(stream), AT_S, burn_pairs(0.99, 30 * DAY_S))
    assert status.starts_s == starts_s
    total, bad, told = counted(stream, (AT_S - starts_s) / 60)
    left = None if not told else 1 - bad / (total * 0.01) if total else 1.0
    found = status.targets[0].budget.left_ratio if status.targets and status.targets[0].budget else None
    assert (math.nan if found is None else found) == pytest.approx(math.nan if left is None else left, nan_ok=True)
