"""Weekly windows by the clock on the wall, also on the two days a year on which that clock jumps."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.matchers import matcher_of
from alerts.schedule import DAYS, Maintenance, Weekly, minutes_of

ALL = frozenset(range(7))
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo")


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def window(starts: str, ends: str, day: date, zone: str = "Europe/Berlin") -> tuple[str, str]:
    found = Weekly(ALL, minutes_of(starts), minutes_of(ends), zone).on(day)
    first, last = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M}" for at in found)
    return first, last


# Berlin is UTC+1 in winter and UTC+2 in summer. On 2026-03-29 01:00 UTC the wall goes from 02:00 to 03:00, on
# 2026-10-25 01:00 UTC from 03:00 back to 02:00 (Directive 2000/84/EC: last Sundays of March and October, 01:00 UTC).
SPRING, AUTUMN, PLAIN = date(2026, 3, 29), date(2026, 10, 25), date(2026, 6, 10)


@pytest.mark.parametrize(
    ("starts", "ends", "day", "expected"),
    [
        ("02:00", "05:00", PLAIN, ("2026-06-10T00:00", "2026-06-10T03:00")),
        ("22:00", "06:00", PLAIN, ("2026-06-10T20:00", "2026-06-11T04:00")),  # over midnight
        ("00:00", "24:00", PLAIN, ("2026-06-09T22:00", "2026-06-10T22:00")),
        ("10:00", "10:00", PLAIN, ("2026-06-10T08:00", "2026-06-11T08:00")),  # a whole day
        ("01:00", "05:00", SPRING, ("2026-03-29T00:00", "2026-03-29T03:00")),  # three hours long
        ("02:00", "04:00", SPRING, ("2026-03-29T01:00", "2026-03-29T02:00")),  # from the change on
        ("02:30", "04:00", SPRING, ("2026-03-29T01:00", "2026-03-29T02:00")),
        ("02:00", "03:00", SPRING, ("2026-03-29T01:00", "2026-03-29T02:00")),  # skipped: as long as planned
        ("01:30", "02:30", SPRING, ("2026-03-29T00:30", "2026-03-29T01:30")),
        ("01:00", "05:00", AUTUMN, ("2026-10-24T23:00", "2026-10-25T04:00")),  # five hours long
        ("02:00", "03:00", AUTUMN, ("2026-10-25T00:00", "2026-10-25T02:00")),  # the hour comes twice
        ("01:30", "02:30", AUTUMN, ("2026-10-24T23:30", "2026-10-25T01:30")),  # not cut in two
    ],
)
def test_a_window_on_plain_days_and_on_days_when_clocks_change(
    starts: str, ends: str, day: date, expected: tuple[str, str]
) -> None:
    assert window(starts, ends, day) == expected


def test_only_its_days_count_and_the_day_is_that_of_the_start() -> None:
    weekend = Weekly(frozenset({DAYS.index("sat")}), minutes_of("22:00"), minutes_of("02:00"), "UTC")
    # 2026-03-07 is a Saturday.
    asked = ("2026-03-06T23:00", "2026-03-07T21:59", "2026-03-07T22:00", "2026-03-08T01:59", "2026-03-08T02:00")
    assert [weekend.at(utc(at)) is not None for at in asked] == [False, False, True, True, False]
    assert weekend.at(utc("2026-03-08T01:00")) == (utc("2026-03-07T22:00"), utc("2026-03-08T02:00"))


weeklies = st.builds(
    Weekly,
    st.frozensets(st.integers(0, 6), min_size=1),
    st.integers(0, 1439),
    st.integers(0, 1440),
    st.sampled_from(ZONES),
)
instants = st.integers(int(utc("2005-01-01")), int(utc("2037-01-01"))).map(float)


def near_changes() -> st.SearchStrategy[float]:
    """Instants within a day and a half of a clock change in Berlin, New York or Lord Howe."""
    found = []
    for name in ZONES:
        zone = ZoneInfo(name)
        for day in range(365 * 3):
            at = datetime(2015, 1, 1, tzinfo=UTC) + timedelta(days=day)
            if at.astimezone(zone).utcoffset() != (at + timedelta(days=1)).astimezone(zone).utcoffset():
                found.append(at.timestamp())
    return st.tuples(st.sampled_from(found), st.integers(-36 * 3600, 36 * 3600)).map(lambda two: two[0] + two[1])


def on_the_wall(weekly: Weekly, at_s: float) -> bool:
    """Whether the wall shows a time in the window: a second way to the answer, as Alertmanager goes it."""
    local = datetime.fromtimestamp(at_s, ZoneInfo(weekly.zone))
    minute = local.hour * 60 + local.minute
    if weekly.starts < weekly.ends:
        return local.weekday() in weekly.days and weekly.starts <= minute < weekly.ends
    today = local.weekday() in weekly.days and minute >= weekly.starts
    return today or ((local.weekday() - 1) % 7 in weekly.days and minute < weekly.ends)


@given(weeklies, instants | near_changes())
def test_whenever_the_wall_shows_a_time_of_the_window_it_is_open(weekly: Weekly, at_s: float) -> None:
    if on_the_wall(weekly, at_s):
        found = weekly.at(at_s)
        assert found is not None
        assert found[0] <= at_s < found[1]


@given(weeklies, instants)
def test_on_days_without_a_change_it_is_open_only_then(weekly: Weekly, at_s: float) -> None:
    zone = ZoneInfo(weekly.zone)
    around = {datetime.fromtimestamp(at_s + day * 86_400, zone).utcoffset() for day in (-3, -2, -1, 0, 1)}
    if len(around) == 1:
        assert (weekly.at(at_s) is not None) == on_the_wall(weekly, at_s)


@given(weeklies, st.dates(date(2005, 1, 1), date(2036, 12, 31)))
def test_a_window_is_as_long_as_planned_but_for_the_change_of_the_clock(weekly: Weekly, day: date) -> None:
    start_s, end_s = weekly.on(day)
    planned_s = ((weekly.ends - weekly.starts) % 1440 or 1440) * 60
    assert end_s > start_s
    assert abs(end_s - start_s - planned_s) <= 3600


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_time_is_too_odd_to_ask_about(at_s: float) -> None:
    Weekly(ALL, 0, 1440, "Asia/Kolkata").at(at_s)


def test_maintenance_is_about_what_its_matchers_fit() -> None:
    planned = Maintenance("m", Weekly(ALL, 0, 1440), (matcher_of('service="batch"'),))
    now_s = utc("2026-03-04T03:12")
    assert planned.quiets({"service": "batch"}, now_s)
    assert not planned.quiets({"service": "chat"}, now_s)


@pytest.mark.parametrize("text", ["", "2", "2:3", "24:01", "12:60", "-1:00", "0200", "02:30:00", "٠٢:٣٠"])
def test_what_is_no_time_of_day_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="write 02:30"):
        minutes_of(text)
