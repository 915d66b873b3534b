"""When the period of an SLO begins and ends. Pure; calendars follow the time zone, clock changes included."""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from goodwatch.core.slo import Period

_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_DAYS: Final = {"day": 1, "week": 7}
#: Monday, and the first of a month, of a quarter and of a year
_USUAL_START: Final = datetime(2024, 1, 1)
_DAYS_TOO_MANY: Final = 27


def period_bounds(period: Period, at_s: float) -> tuple[float, float]:
    """Beginning and end (Unix seconds) of the period that holds the events up to ``at_s``.

    A rolling one is ``(at_s - length, at_s]``; a calendar unit that begins at ``at_s`` is still empty then, and the
    one before it is over. ``starts`` is a moment at which one began, on the clock of ``zone``.

    Raises
    ------
    ValueError
        For a ``starts`` that is no date or a ``zone`` that nobody knows (``ZoneInfoNotFoundError`` is one).

    Examples
    --------
    >>> period_bounds(Period(7 * 86400.0), 1e6)
    (395200.0, 1000000.0)
    >>> [datetime.fromtimestamp(s, UTC).isoformat()[:10] for s in period_bounds(Period(calendar="month"), 1.77e9)]
    ['2026-02-01', '2026-03-01']
    """
    if not period.calendar:
        return at_s - period.length_s, at_s
    zone = _zone(period.zone)
    anchor = _anchor(period, zone)
    now = datetime.fromtimestamp(at_s, UTC).astimezone(zone).replace(tzinfo=None)
    first = _first(period.calendar, anchor, now)
    while _unix(_moved(period.calendar, first, anchor, 1), zone) <= at_s:
        first = _moved(period.calendar, first, anchor, 1)
    while _unix(first, zone) > at_s:
        first = _moved(period.calendar, first, anchor, -1)
    return _unix(first, zone), _unix(_moved(period.calendar, first, anchor, 1), zone)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"'{name}' is no time zone; write for example Europe/Berlin") from error


def _anchor(period: Period, zone: ZoneInfo) -> datetime:
    """A moment on the wall clock at which a unit began."""
    if not period.starts:
        return _USUAL_START
    try:
        told = datetime.fromisoformat(period.starts)
    except ValueError as error:
        raise ValueError(f"'{period.starts}' is no date; write for example 2026-01-01 00:00:00") from error
    return told.astimezone(zone).replace(tzinfo=None) if told.tzinfo else told


def _first(unit: str, anchor: datetime, now: datetime) -> datetime:
    """About the beginning of the unit that holds ``now``."""
    if unit in _DAYS:
        return anchor + timedelta(days=(now - anchor) // timedelta(days=_DAYS[unit]) * _DAYS[unit])
    months = (now.year - anchor.year) * 12 + now.month - anchor.month
    return _months_after(anchor, months // _MONTHS[unit] * _MONTHS[unit])


def _moved(unit: str, first: datetime, anchor: datetime, units: int) -> datetime:
    if unit in _DAYS:
        return first + timedelta(days=units * _DAYS[unit])
    months = (first.year - anchor.year) * 12 + first.month - anchor.month
    return _months_after(anchor, months + units * _MONTHS[unit])


def _months_after(anchor: datetime, months: int) -> datetime:
    """The same day some months later; the last day of a month that is too short."""
    years, month = divmod(anchor.month - 1 + months, 12)
    day = anchor.day
    while True:
        try:
            return anchor.replace(year=anchor.year + years, month=month + 1, day=day)
        except ValueError:
            if day <= _DAYS_TOO_MANY:
                raise
            day -= 1


def _unix(wall: datetime, zone: ZoneInfo) -> float:
    return wall.replace(tzinfo=zone).timestamp()
