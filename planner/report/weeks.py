"""ISO weeks in a time zone: their bounds, their names, and which reports are due. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

_YEARS: Final = (1971, 9998)
_NAME: Final = re.compile(r"(\d{4})-W(\d{2})")


@dataclass(frozen=True, slots=True)
class Week:
    """An ISO week, Monday 00:00 to Monday 00:00 on the clocks of ``zone`` (IANA): 167 or 169 hours where they change."""

    year: int
    number: int
    zone: str = "UTC"

    @property
    def id(self) -> str:
        """Its name as ISO 8601 writes it: 2026-W48. The year is the ISO year, which is not always the calendar's."""
        return f"{self.year:04}-W{self.number:02}"

    @property
    def days(self) -> tuple[tuple[float, float], ...]:
        """``[start_s, end_s)`` of its seven days, Unix seconds."""
        edges = [self._edge(day) for day in range(8)]
        return tuple(itertools.pairwise(edges))

    @property
    def start_s(self) -> float:
        """When it begins, Unix seconds."""
        return self._edge(0)

    @property
    def end_s(self) -> float:
        """When the next one begins, Unix seconds."""
        return self._edge(7)

    @property
    def first(self) -> date:
        """Its Monday."""
        return date.fromisocalendar(self.year, self.number, 1)

    @property
    def before(self) -> Week:
        """The week before."""
        return _of_date(self.first - timedelta(days=7), self.zone)

    @property
    def after(self) -> Week:
        """The week after."""
        return _of_date(self.first + timedelta(days=7), self.zone)

    def due_s(self, weekday: int, minutes: int) -> float:
        """When its report is due, Unix seconds: ``weekday`` (0 Monday) of the week after, ``minutes`` after midnight.

        A time that the clocks skip is taken as if they had not; of one that comes twice the first counts.
        """
        day = self.first + timedelta(days=7 + weekday + minutes // 1440)
        local = datetime.combine(day, time(minutes % 1440 // 60, minutes % 60), ZoneInfo(self.zone))
        return local.timestamp()

    def _edge(self, day: int) -> float:
        return datetime.combine(self.first + timedelta(days=day), time(0), ZoneInfo(self.zone)).timestamp()


def _of_date(day: date, zone: str) -> Week:
    year, number, _ = day.isocalendar()
    return Week(year, number, zone)


def week_at(at_s: float, zone: str = "UTC") -> Week:
    """The week that a moment is in."""
    return _of_date(datetime.fromtimestamp(at_s, UTC).astimezone(ZoneInfo(zone)).date(), zone)


def week_named(name: str, zone: str = "UTC") -> Week:
    """The week of a name as 2026-W48.

    Raises
    ------
    ValueError
        It is no such name, or that year has no such week; says what would be right.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"week {name[:20]!r}: write an ISO week as 2026-W48")
    year, number = int(found[1]), int(found[2])
    try:
        date.fromisocalendar(year, number, 1)
    except ValueError:
        raise ValueError(f"week {name}: there is no such week; a year has 52 or 53") from None
    if not _YEARS[0] <= year <= _YEARS[1]:  # the weeks beside it are asked for as well, in any zone
        raise ValueError(f"week {name}: write one of the years {_YEARS[0]} to {_YEARS[1]}")
    return Week(year, number, zone)


def due(
    now_s: float, kept: Collection[str], since_s: float, *, zone: str, weekday: int, minutes: int, most: int = 8
) -> tuple[Week, ...]:
    """Weeks whose report is due and not kept, oldest first.

    Parameters
    ----------
    now_s
        Unix seconds.
    kept
        Names of the weeks whose reports are there.
    since_s
        When anything was first seen; weeks that were over by then have nothing to report.
    most
        At most so many weeks are looked back at: after a year away nobody reads fifty reports.
    """
    week = week_at(now_s, zone).before
    found = []
    for _ in range(most):
        if week.end_s <= since_s:
            break
        if week.due_s(weekday, minutes) <= now_s and week.id not in kept:
            found.append(week)
        week = week.before
    return tuple(reversed(found))
