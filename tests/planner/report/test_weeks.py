"""ISO weeks, their bounds where clocks change, year ends, and which reports are due."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.weeks import Week, due, week_at, week_named


def utc(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]


def test_the_year_end_of_2026_has_a_week_53() -> None:
    # ISO 8601 calendar: 2026 begins on a Thursday, so it has 53 weeks; 2026-W53 is 28 December to 3 January
    assert week_at(utc(2027, 1, 3, 12)).id == "2026-W53"
    assert week_at(utc(2027, 1, 4)).id == "2027-W01"
    assert week_named("2027-W01").before == Week(2026, 53)
    assert Week(2026, 53).after.id == "2027-W01"


@pytest.mark.parametrize("name", ["2027-W53", "2026-W00", "2026-48", "2026-W54", "0000-W01", "9999-W53", "", "../etc"])
def test_a_week_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="week"):
        week_named(name)


def test_weeks_in_which_clocks_change_are_an_hour_longer_or_shorter() -> None:
    # EU: 29 March 2026 02:00 → 03:00, 25 October 2026 03:00 → 02:00
    spring, autumn = Week(2026, 13, "Europe/Berlin"), Week(2026, 43, "Europe/Berlin")
    assert (spring.end_s - spring.start_s) / 3600 == 167
    assert (autumn.end_s - autumn.start_s) / 3600 == 169
    assert spring.start_s == utc(2026, 3, 22, 23)
    assert [round((b - a) / 3600) for a, b in autumn.days] == [24, 24, 24, 24, 24, 24, 25]


@given(
    st.floats(utc(1990, 1, 1), utc(2090, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Shanghai", "America/St_Johns"]),
)
def test_every_moment_is_in_exactly_its_week(at_s: float, zone: str) -> None:
    week = week_at(at_s, zone)
    assert week.start_s <= at_s < week.end_s
    assert week.before.end_s == week.start_s
    assert week.after.before == week
    assert week_named(week.id, zone) == week


def test_missed_weeks_are_made_up_oldest_first() -> None:
    now_s = utc(2026, 11, 30, 9)  # Monday of W49
    found = due(now_s, {"2026-W46"}, utc(2026, 11, 4), zone="UTC", weekday=0, minutes=480)
    assert [one.id for one in found] == ["2026-W45", "2026-W47", "2026-W48"]


def test_a_report_is_not_due_before_its_time() -> None:
    for hour, expected in ((7, []), (8, ["2026-W48"])):
        found = due(utc(2026, 11, 30, hour), {"2026-W47"}, utc(2026, 11, 20), zone="UTC", weekday=0, minutes=480)
        assert [one.id for one in found] == expected


def test_nothing_is_made_of_weeks_before_anything_was_seen() -> None:
    assert due(utc(2026, 11, 30, 9), set(), utc(2026, 11, 30), zone="UTC", weekday=0, minutes=0) == ()


@pytest.mark.parametrize("name", ["0001-W01", "9999-W52", "0000-W01"])
def test_a_week_whose_neighbours_no_clock_knows_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="week"):
        week_named(name)
