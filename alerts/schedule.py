"""Maintenance that comes again every week, by the clock on the wall of a time zone. Pure.

What a clock change does to a window: an hour that comes twice belongs to it both times, so it is never cut in two. A
start that the clock skips is the moment of the change; a window that the clock skips as a whole lasts as long as
planned from there on, as a job that runs then would.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from alerts.matchers import Matcher

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MINUTES: Final = 24 * 60
#: beyond these years there are no time zones worth the name, and dates overflow
_FIRST_S, _LAST_S = 0.0, 250_000_000_000.0


@dataclass(frozen=True, slots=True)
class Weekly:
    """From ``starts`` on each of ``days`` (0 is Monday) until ``ends``, in minutes after midnight of ``zone``.

    An end that is not after the start is on the next day; equal ones are a whole day.
    """

    days: frozenset[int]
    starts: int
    ends: int
    zone: str = "UTC"

    def at(self, now_s: float) -> tuple[float, float] | None:
        """The window ``[start, end)`` in Unix seconds that holds ``now_s``; None outside. Of several the one that ends last."""
        if not _FIRST_S <= now_s < _LAST_S:
            return None
        today = datetime.fromtimestamp(now_s, ZoneInfo(self.zone)).date()
        days = (today - timedelta(days=back) for back in (2, 1, 0) if today.toordinal() > back)
        windows = [self.on(day) for day in days if day.weekday() in self.days]
        return max((one for one in windows if one[0] <= now_s < one[1]), key=lambda one: one[1], default=None)

    def on(self, day: date) -> tuple[float, float]:
        """The window ``[start, end)`` in Unix seconds that begins on a day."""
        zone = ZoneInfo(self.zone)
        minutes = (self.ends - self.starts) % _DAY_MINUTES or _DAY_MINUTES
        midnight = datetime.combine(day, time())
        start_s = _first_s(midnight + timedelta(minutes=self.starts), zone)
        end_s = max(_readings_s(midnight + timedelta(minutes=self.starts + minutes), zone))
        return start_s, end_s if end_s > start_s else start_s + 60.0 * minutes


def _readings_s(wall: datetime, zone: ZoneInfo) -> tuple[float, float]:
    """Both instants that a time on the wall can mean; the same one twice on all but two days a year."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    return first, second


def _first_s(wall: datetime, zone: ZoneInfo) -> float:
    """The first instant at which the wall shows this time; the moment of the change when it never does."""
    first, second = _readings_s(wall, zone)
    if first <= second:
        return first
    low, high = int(second), int(first)  # skipped: the change lies between the two readings
    before = _offset(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    return float(high)


def _offset(at_s: float, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(at_s, UTC).astimezone(zone).utcoffset()


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Planned work: alerts that all matchers fit are told to nobody meanwhile. Without matchers: all alerts."""

    name: str
    weekly: Weekly
    matchers: tuple[Matcher, ...] = ()

    def quiets(self, labels: Mapping[str, str], now_s: float) -> bool:
        """Whether an alert with these labels is quiet now."""
        return all(one.fits(labels) for one in self.matchers) and self.weekly.at(now_s) is not None


def minutes_of(text: str) -> int:
    """Minutes after midnight of ``HH:MM``; raises ``ValueError`` with a predicate. ``24:00`` is midnight at the end.

    Examples
    --------
    >>> minutes_of("02:30"), minutes_of("24:00")
    (150, 1440)
    """
    found = re.fullmatch(r"([0-9]{1,2}):([0-9]{2})", text.strip())
    minutes = -1 if found is None or int(found[2]) > 59 else int(found[1]) * 60 + int(found[2])
    if not 0 <= minutes <= _DAY_MINUTES:
        raise ValueError("is not a time of day; write 02:30, up to 24:00")
    return minutes
