"""Windows, budgets, periods and what ate them, against counts made by hand."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.slo import DAY_S, Budget, Events, Latency, Period, Slo, burn_pairs
from goodwatch.signals.budget import SloStatus, budget_curve, eaters, replaced, slo_status, thinned, window_events
from goodwatch.signals.budget_period import period_bounds
from goodwatch.signals.slo_events import EVENTS, group_key

SLO = Slo("chat", "chat", 0.99, Latency("ttft_seconds", 0.5))
DAY = 1_800_000_000 // 86_400 * 86_400.0


def events(*rows: tuple[float, float, float], target: str = "ttft", group: str = "") -> pl.DataFrame:
    """Rows of (minute since DAY, total, bad)."""
    return pl.DataFrame(
        [(DAY + 60 * minute, 60.0, group, target, total, bad) for minute, total, bad in rows],
        schema=EVENTS,
        orient="row",
    )


def status_of(frame: pl.DataFrame, minute: float, slo: Slo = SLO) -> SloStatus:
    return slo_status(slo, frame, DAY + 60 * minute, burn_pairs(slo.objective, slo.period.length_s))


def test_a_window_holds_its_minutes_and_no_other() -> None:
    found = window_events(events((0, 10, 1), (4, 10, 2), (5, 10, 3), (6, 10, 4)), DAY + 360, [300.0, 60.0])
    # [60, 360): minutes 4 and 5; [300, 360): minute 5; minute 6 has not ended
    assert found == {("", "ttft"): {60.0: Events(7, 10), 300.0: Events(15, 20)}}


def test_no_rows_is_no_data_and_zeros_are_no_traffic() -> None:
    found = window_events(events((0, 0, 0)), DAY + 3_600, [300.0, 7_200.0])
    assert found[("", "ttft")] == {300.0: None, 7_200.0: Events(0, 0)}


def test_a_pair_fires_strictly_above_its_threshold_and_with_enough_failures() -> None:
    def fast(bad: float) -> list[str]:
        # six hours before that keep the other pair (6 % of 6 h) quiet: 60 x 145 / 420 000 is 2 %
        frame = events(*((m - 360, 1000, 0) for m in range(360)), *((m, 1000, bad) for m in range(60)))
        return [pair.tier for _, pair in status_of(frame, 60).firing("page")]

    assert fast(144) == []  # 14.4 % exactly is not above 14.4 % (30 d, 99 %)
    assert fast(145) == ["fast"]
    few = [(m, 1, 1) for m in range(56, 60)]
    assert status_of(events(*few), 60).firing("page") == ()  # four failures; five are the least
    assert status_of(events((55, 1, 1), *few), 60).firing("page") != ()


def test_an_idle_period_has_its_whole_budget_and_a_broken_one_says_so() -> None:
    (idle,) = status_of(events((0, 0, 0)), 10).targets
    assert idle.budget == Budget(1.0)
    assert idle.forecast is None
    (broken,) = status_of(events((0, 10, -1)), 10).targets
    assert broken.budget is not None
    assert broken.budget.broken


def test_a_budget_is_counted_by_events_not_by_minutes() -> None:
    # A busy good hour and a bad quiet minute: 100 bad of 60 100 at 1 % leaves 1 - 100 / 601.
    (target,) = status_of(events(*((m, 1000, 0) for m in range(60)), (60, 100, 100)), 61).targets
    assert target.budget is not None
    assert target.budget.left_ratio == pytest.approx(1 - 100 / 601)
    # the last day goes on: 0.8339 of 30 days' budget at a burn of 100 / 601 lasts 150.3 days
    assert target.forecast is not None
    assert target.forecast.expected_s is not None
    assert target.forecast.expected_s / DAY_S == pytest.approx((1 - 100 / 601) * 30 / (100 / 601), rel=1e-6)


def test_a_calendar_period_counts_from_its_first_day_on() -> None:
    slo = Slo("chat", "chat", 0.99, SLO.indicator, Period(30 * DAY_S, "day"))
    status = slo_status(slo, events((-10, 100, 100), (5, 100, 1)), DAY + 600, burn_pairs(0.99, slo.period.length_s))
    (target,) = status.targets
    assert (status.starts_s, status.ends_s) == (DAY, DAY + 86_400)
    assert target.period == Events(99, 100)


@given(
    st.lists(st.tuples(st.integers(-60_000, -1), st.integers(0, 50), st.integers(0, 5)), max_size=60),
    st.integers(0, 300),
)
def test_thinning_keeps_what_windows_count(rows: list[tuple[int, int, int]], late: int) -> None:
    once = {minute: (minute, total, bad) for minute, total, bad in rows}
    frame, now = events(*once.values()), DAY + 60.0 * late
    slim = thinned(
        thinned(frame, now, longest_s=3 * DAY_S, reach_s=50 * DAY_S), now, longest_s=3 * DAY_S, reach_s=50 * DAY_S
    )
    assert slim["total"].sum() == frame["total"].sum()
    assert slim["bad"].sum() == frame["bad"].sum()
    lengths = [300.0, 3_600.0, 21_600.0, 86_400.0]
    for key, windows in window_events(frame, now, lengths).items():
        assert window_events(slim, now, lengths)[key] == windows  # minutes stay for a day and an hour


def test_what_is_read_again_takes_the_place_of_what_was_there() -> None:
    kept = events((0, 1, 0), (1, 2, 0), (2, 3, 0))
    fresh = events((0, 9, 9), (1, 5, 5))
    both = replaced(kept, fresh, DAY + 60, DAY + 120)
    assert both.sort("minute_s")["total"].to_list() == [1, 5, 3]


def test_a_curve_tells_the_budget_of_the_period_that_ends_at_each_time() -> None:
    frame = events(*((m, 100, 0) for m in range(60)), *((60 + m, 100, 10) for m in range(60)))
    slo = Slo("chat", "chat", 0.9, SLO.indicator, Period(DAY_S))
    points = budget_curve(frame, slo, "ttft", [DAY, DAY + 3_600, DAY + 7_200])
    assert [p.left_ratio for p in points] == [None, 1.0, 0.5]  # 600 bad of 12 000 is half of a tenth
    assert [p.burn for p in points] == [None, 0.0, 1.0]
    assert budget_curve(frame, slo, "served", [DAY + 7_200])[0].left_ratio is None


def test_what_ate_the_budget_is_sorted_by_bad_events() -> None:
    rows = pl.DataFrame(
        {"tenant": ["a", "b", None, "a", "c"], "total": [50.0, 100, 40, 50, 60], "bad": [5.0, 1, 3, 0, 0]}
    )
    found = eaters(rows, "tenant", SLO)  # 300 events, 1 %: 3 may be bad; 9 are
    assert [(e.key, e.bad, e.share_ratio) for e in found] == [("a", 5, 5 / 9), (None, 3, 3 / 9), ("b", 1, 1 / 9)]
    assert [e.budget_ratio for e in found] == [pytest.approx(5 / 3), pytest.approx(1), pytest.approx(1 / 3)]
    assert found[0].error_ratio == 0.05
    assert eaters(rows.with_columns(bad=pl.lit(0.0)), "tenant", SLO) == ()


def test_groups_have_budgets_of_their_own() -> None:
    frame = pl.concat([events((0, 100, 2), group=group_key(["a"])), events((0, 100, 0), group=group_key(["b"]))])
    status = status_of(frame, 5)
    assert [(t.group, t.budget and t.budget.left_ratio) for t in status.targets] == [(("a",), -1.0), (("b",), 1.0)]
    assert status.worst is not None
    assert status.worst.group == ("a",)


# --- periods ----------------------------------------------------------------------------------------------------------


def berlin(year: int, month: int, day: int, hour: int = 0) -> float:
    return datetime(year, month, day, hour, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.mark.parametrize(
    ("period", "at", "starts", "ends"),
    [
        (Period(calendar="month"), (2026, 3, 15, 12), (2026, 3, 1), (2026, 4, 1)),  # 23-hour day inside
        (Period(calendar="day"), (2026, 3, 29, 12), (2026, 3, 29), (2026, 3, 30)),  # the 23-hour day itself
        (Period(calendar="day"), (2026, 10, 25, 12), (2026, 10, 25), (2026, 10, 26)),  # 25 hours
        (Period(calendar="week"), (2026, 12, 6, 23), (2026, 11, 30), (2026, 12, 7)),  # Monday to Sunday
        (Period(calendar="quarter"), (2026, 5, 1), (2026, 4, 1), (2026, 7, 1)),
        (Period(calendar="year"), (2026, 12, 31, 23), (2026, 1, 1), (2027, 1, 1)),
        (Period(calendar="month", starts="2024-01-31 06:00:00"), (2026, 3, 1, 0), (2026, 2, 28, 6), (2026, 3, 31, 6)),
        (Period(calendar="week", starts="2026-01-07 00:00:00"), (2026, 1, 6, 0), (2025, 12, 31), (2026, 1, 7)),
    ],
)
def test_calendar_periods_begin_on_the_wall_clock(
    period: Period, at: tuple[int, ...], starts: tuple[int, ...], ends: tuple[int, ...]
) -> None:
    zoned = Period(period.length_s, period.calendar, period.starts, "Europe/Berlin")
    assert period_bounds(zoned, berlin(*at)) == (berlin(*starts), berlin(*ends))


def test_a_day_in_spring_has_23_hours() -> None:
    starts, ends = period_bounds(Period(calendar="day", zone="Europe/Berlin"), berlin(2026, 3, 29, 12))
    assert ends - starts == 23 * 3_600


@given(
    st.sampled_from(["day", "week", "month", "quarter", "year"]),
    st.floats(1e9, 3e9),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]),
    st.dates(datetime(2020, 1, 1, tzinfo=UTC).date(), datetime(2030, 1, 1, tzinfo=UTC).date()),
)
def test_every_moment_is_in_just_one_period(unit: str, at: float, zone: str, day: object) -> None:
    period = Period(calendar=unit, starts=f"{day} 00:00:00", zone=zone)  # type: ignore[arg-type]
    starts, ends = period_bounds(period, at)
    assert starts <= at < ends
    assert period_bounds(period, starts) == (starts, ends)
    assert period_bounds(period, ends)[0] == ends


@pytest.mark.parametrize(
    ("period", "says"),
    [(Period(calendar="day", zone="Mars/Base"), "time zone"), (Period(calendar="day", starts="soon"), "no date")],
)
def test_a_period_that_nobody_can_read_says_what_is_wrong(period: Period, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        period_bounds(period, 1e9)
