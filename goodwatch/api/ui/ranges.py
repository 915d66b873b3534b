"""The time range of a page, from its URL, so that a link shows everyone the same. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from goodwatch.api.ui.format import span, utc

#: what the picker offers: key → length
PRESETS: Final[dict[str, float]] = {"15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
DEFAULT: Final = "1h"
#: longer than any retention; keeps a typing error from asking the store for decades
_LONGEST_S: Final = 400 * 86_400.0


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range in Unix seconds; ``key`` is a preset or "custom"; ``live`` ends now and moves on."""

    key: str
    start_s: float
    end_s: float
    live: bool

    @property
    def text(self) -> str:
        """The range for a person, in UTC."""
        same_day = utc(self.start_s, "%Y%m%d") == utc(self.end_s, "%Y%m%d")
        end = utc(self.end_s, "%H:%M" if same_day else "%Y-%m-%d %H:%M")
        return f"{utc(self.start_s, '%Y-%m-%d %H:%M')}–{end} UTC, {span(self.end_s - self.start_s)}"

    @property
    def from_field(self) -> str:
        """The start as a person writes it, in UTC."""
        return utc(self.start_s, "%Y-%m-%d %H:%M")

    @property
    def to_field(self) -> str:
        """The end, likewise."""
        return utc(self.end_s, "%Y-%m-%d %H:%M")

    @property
    def permanent(self) -> str:
        """The query of a link that shows this very range later too."""
        return urlencode({"from": utc(self.start_s, "%Y-%m-%dT%H:%M:%SZ"), "to": utc(self.end_s, "%Y-%m-%dT%H:%M:%SZ")})


def time_range(query: Mapping[str, str], now_s: float) -> TimeRange:
    """The range that a URL's query asks for: ``range``, or ``from`` and perhaps ``to``.

    Raises
    ------
    ValueError
        The query is not a range; the message says which part and what would be right.

    Examples
    --------
    >>> time_range({"from": "2026-03-04T03:00", "to": "2026-03-04T03:12Z"}, 0.0).text
    '2026-03-04 03:00–03:12 UTC, 12 min'
    >>> time_range({"range": "15m"}, 1000.0).start_s
    100.0
    """
    if query.get("from") or query.get("to"):
        return _custom(query.get("from", ""), query.get("to", ""), now_s)
    key = query.get("range") or DEFAULT
    if key not in PRESETS:
        raise ValueError(f"range: {key[:40]!r} is not one of {', '.join(PRESETS)}; or give from and to")
    return TimeRange(key, now_s - PRESETS[key], now_s, live=True)


def _custom(start: str, end: str, now_s: float) -> TimeRange:
    if not start:
        raise ValueError("from: missing; give from with to, for example from=2026-01-31 03:00")
    start_s = _instant("from", start)
    end_s = _instant("to", end) if end else now_s
    if end_s <= start_s:
        raise ValueError(f"to: {utc(end_s)} is not after from, {utc(start_s)} UTC")
    if end_s - start_s > _LONGEST_S:
        raise ValueError(f"from: the range is {span(end_s - start_s)} long; at most 400 d can be shown")
    return TimeRange("custom", start_s, end_s, live=not end)


def _instant(name: str, text: str) -> float:
    """Unix seconds of a text; without an offset it is UTC."""
    try:
        if text.replace(".", "", 1).isdecimal():
            return min(float(text), 4e9)
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{name}: {text[:40]!r} is not a time; write 2026-01-31 03:00 (UTC) or Unix seconds") from None
