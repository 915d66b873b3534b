"""Durations as people write them: ``15s``, ``500ms``, ``1h30m``, ``30d``."""

import math
import re
from decimal import Decimal
from typing import Final

#: unit → seconds, largest first: the order in which a text may name them
_UNITS: Final = {
    "w": Decimal(604_800),
    "d": Decimal(86_400),
    "h": Decimal(3_600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
    "us": Decimal("0.000001"),
}
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_TEXT: Final = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in _UNITS))
_BARE: Final = re.compile(_NUMBER)

#: longer than any retention or SLO period, and far from where dates and timers overflow
LONGEST_S: Final = 36_500 * 86_400.0


def duration_s(value: object) -> float:
    """Seconds of a duration.

    Parameters
    ----------
    value
        Text with units ``w d h m s ms us``, largest first and each at most once; or a plain number of seconds.

    Returns
    -------
    float
        Seconds, 0 or more, at most 36500 days.

    Raises
    ------
    ValueError
        Anything else. The message is a predicate that reads well after the value ("is not a duration; …").

    Examples
    --------
    >>> duration_s("1h30m"), duration_s("500ms"), duration_s(15)
    (5400.0, 0.5, 15.0)
    """
    seconds = _seconds(value)
    if seconds is None or math.isnan(seconds) or seconds < 0:
        raise ValueError("is not a duration; write for example 500ms, 15s, 1h30m or 30d")
    if seconds > LONGEST_S:
        raise ValueError("is longer than 36500d; write a shorter duration")
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(min(value, 2 * LONGEST_S))  # an int can be too large for a float
    if not isinstance(value, str) or len(value) > 64:
        return None
    text = value.strip()
    if _BARE.fullmatch(text):
        return float(Decimal(text))
    match = _TEXT.fullmatch(text)
    if match is None or not text:
        return None
    parts = zip(_UNITS.values(), match.groups(), strict=True)
    return float(sum((unit * Decimal(number) for unit, number in parts if number), Decimal(0)))


def duration_text(seconds: float) -> str:
    """Seconds (finite, 0 or more) as the shortest exact text that ``duration_s`` reads back.

    Examples
    --------
    >>> duration_text(5400.0), duration_text(0.5), duration_text(92 * 86400.0)
    ('1h30m', '500ms', '92d')
    """
    rest = Decimal(repr(float(seconds)))  # repr is the shortest text with the same float, so nothing is lost
    if 0 < rest < 1:
        for unit in ("ms", "us"):
            count = rest / _UNITS[unit]
            if count == int(count):
                return f"{int(count)}{unit}"
        return f"{rest:f}s"
    text = ""
    for unit in ("d", "h", "m"):
        count = rest // _UNITS[unit]
        rest -= count * _UNITS[unit]
        text += f"{count:f}{unit}" if count else ""
    return f"{text}{_plain(rest)}s" if rest or not text else text


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
