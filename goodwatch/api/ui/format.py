"""Numbers as a person reads them. Interval ends are rounded outwards, so that what is shown still holds the truth."""

import math
import time
from dataclasses import dataclass
from typing import Final, Literal

from goodwatch.core.model import Absence, Basis, Bounds, Number

#: what each basis says, in one sentence (design: words that must mean one thing)
BASIS_TEXTS: Final[dict[Basis, str]] = {
    Basis.COUNTED: "from single requests, whose number agrees with the engine's own counter",
    Basis.ESTIMATED: "from a sample of requests, with its confidence interval",
    Basis.BOUNDED: "engine histograms only tell an interval, and the true value lies in it",
    Basis.MEASURED: "read from the engine's own counters and gauges",
}
ABSENCE_TEXTS: Final[dict[Absence, str]] = {
    Absence.NO_TRAFFIC: "the engine was read and nothing happened; this is not zero and not 100 %",
    Absence.NO_DATA: "nothing was read, or too little to answer from",
    Absence.NOT_MEASURABLE: "this engine, version or setting does not tell",
}
Rounding = Literal["nearest", "down", "up"]
#: an engine writes latencies with about this many digits that mean something
_DIGITS: Final = 3
#: what a span may say and no unit can show; its digits would overflow
_NOTHING: Final = 1e-30
#: the finest step of a ratio: one in 100 000 requests
_FINEST_PERCENT_DECIMALS: Final = 3


@dataclass(frozen=True, slots=True)
class Shown:
    """A number as text: ``kind`` is "value" or the absence with dashes, ``title`` the sentence behind it."""

    text: str
    unit: str
    title: str
    kind: str
    basis: str = ""

    @property
    def line(self) -> str:
        """Text and unit as one."""
        return f"{self.text} {self.unit}".strip()


def shown(number: Number | None, *, unit: str | None = None) -> Shown:
    """A derived number for a page; ``unit`` replaces the shown unit of rates ("tok/s")."""
    if number is None:
        return Shown("no data", "", ABSENCE_TEXTS[Absence.NO_DATA], "no-data")
    if number.absence is not None:
        sentence = f"{number.absence.value}: {number.note or ABSENCE_TEXTS[number.absence]}"
        return Shown(number.absence.value, "", sentence, number.absence.value.replace(" ", "-"))
    text, label = _parts(number, unit)
    basis = number.basis.value if number.basis else ""
    sentence = f"{basis}: {BASIS_TEXTS[number.basis]}" if number.basis else ""
    return Shown(text, label, "; ".join(filter(None, (sentence, number.note))), "value", basis)


def _parts(number: Number, unit: str | None) -> tuple[str, str]:
    bounds = number.bounds
    if bounds is None:
        return scalar(number.unit, number.value or 0.0, unit=unit)
    if number.value is not None:
        text, label = scalar(number.unit, number.value, unit=unit)
        return f"≈ {text}", label
    return interval(number.unit, bounds, unit=unit)


def scalar(kind: str, value: float, *, unit: str | None = None) -> tuple[str, str]:
    """Text and unit of one value; ``kind`` is a unit of ``derive.MEANINGS``.

    Examples
    --------
    >>> scalar("ratio", 0.9996), scalar("s", 0.0412), scalar("1/s", 12.3456), scalar("USD", 0.9568)
    (('99.96', '%'), ('41.2', 'ms'), ('12.3', '/s'), ('$0.957', ''))
    """
    match kind:
        case "ratio":
            return percent(value), "%"
        case "s":
            factor, label = _time_unit(value)
            return digits(value / factor), label
        case "USD" | "USD/h":
            return f"${money(value)}", "/h" if kind == "USD/h" else ""
        case "1/s":
            return digits(value), unit or "/s"
    return digits(value), "" if kind == "requests" else kind


def interval(kind: str, bounds: Bounds, *, unit: str | None = None) -> tuple[str, str]:
    """Text and unit of an interval, its ends rounded outwards.

    Examples
    --------
    >>> interval("ratio", Bounds(0.97249, 0.98861)), interval("s", Bounds(0.25, 0.5))
    (('97.2–98.9', '%'), ('250–500', 'ms'))
    >>> interval("1/s", Bounds(0.01623, 0.567)), interval("1/s", Bounds(0.15, 1.5))
    (('0.016–0.567', '/s'), ('0.15–1.5', '/s'))
    >>> interval("s", Bounds(10, None)), interval("s", Bounds(0, 0.04)), interval("s", Bounds(0.75, 1.0))
    (('> 10', 's'), ('≤ 40', 'ms'), ('0.75–1', 's'))
    """
    low, high = bounds.low, bounds.high
    if high is None or math.isinf(high):
        text, label = scalar(kind, low, unit=unit)
        return f"> {text}", label
    if low == high:
        return scalar(kind, low, unit=unit)
    factor, label = _time_unit(high) if kind == "s" else (1.0, scalar(kind, high, unit=unit)[1])
    if kind == "ratio":
        return "–".join((percent(low, "down"), percent(high, "up"))), "%"
    sign = "$" if kind.startswith("USD") else ""
    down, up = _like(low / factor, high / factor), digits(high / factor, "up")
    return (f"≤ {sign}{up}" if kind == "s" and low <= 0 else f"{sign}{down}–{up}"), label


def _like(low: float, high: float) -> str:
    """The lower end to the decimals of the upper one: more of them would say nothing."""
    decimals = max(0, _decimals(high))
    return _trimmed(_at(low, decimals, "down"), decimals) if high < 1000 else digits(low, "down")


def percent(ratio: float, rounding: Rounding = "nearest") -> str:
    """A ratio in per cent, with one decimal, or more where one would say 0 or 100 and that is not so.

    Examples
    --------
    >>> percent(1.0), percent(0.9999), percent(0.5), percent(0.0), percent(0.00002), percent(0.999999999)
    ('100', '99.99', '50', '0', '0.002', '> 99.999')
    """
    value = ratio * 100
    for decimals in range(1, _FINEST_PERCENT_DECIMALS + 1):
        rounded = _at(value, decimals, rounding)
        if ratio in (0.0, 1.0) or 0 < rounded < 100:
            return _trimmed(rounded, decimals)
    if rounding == "nearest":
        return "> 99.999" if value > 50 else "< 0.001"
    return _trimmed(_at(value, _FINEST_PERCENT_DECIMALS, rounding), _FINEST_PERCENT_DECIMALS)


def digits(value: float, rounding: Rounding = "nearest") -> str:
    """Three digits that mean something, thousands grouped.

    Examples
    --------
    >>> digits(0.031), digits(12.345), digits(1234.5), digits(0), digits(2.0), digits(0.00001234)
    ('0.031', '12.3', '1,230', '0', '2', '0.0000123')
    >>> digits(12.345, "up"), digits(12.345, "down")
    ('12.4', '12.3')
    """
    if abs(value) < _NOTHING or not math.isfinite(value):
        return "0" if abs(value) < _NOTHING else "∞"
    decimals = _decimals(value)
    rounded = _at(value, decimals, rounding)
    return _trimmed(rounded, max(0, decimals))


def money(usd: float) -> str:
    """US dollars without the sign: cents from one dollar on, three digits below.

    Examples
    --------
    >>> money(12.5), money(1234.5), money(0.00312), money(0)
    ('12.50', '1,234', '0.00312', '0')
    """
    if usd >= 1000:
        return f"{usd:,.0f}"
    return f"{usd:.2f}" if usd >= 1 else digits(usd)


def seconds(value: float) -> str:
    """A duration as text.

    Examples
    --------
    >>> seconds(0.5), seconds(2.0), seconds(0.00031), seconds(0.05)
    ('500 ms', '2 s', '310 µs', '50 ms')
    """
    text, label = scalar("s", value)
    return f"{text} {label}"


def span(length_s: float) -> str:
    """A length of time in the two units that matter.

    Examples
    --------
    >>> span(36), span(300), span(5400), span(90000), span(604800)
    ('36 s', '5 min', '1 h 30 min', '1 d 1 h', '7 d')
    """
    whole = max(0, round(length_s))
    for size, name, smaller, smaller_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{whole} s"


def file_size(size_bytes: int) -> str:
    """Bytes in decimal units.

    Examples
    --------
    >>> file_size(12_400_000), file_size(900)
    ('12.4 MB', '900 B')
    """
    value, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{digits(value)} {unit}"


def utc(at_s: float, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """An instant in UTC.

    Examples
    --------
    >>> utc(1772593920), utc(1772593920, "%H:%M")
    ('2026-03-04 03:12:00', '03:12')
    """
    return time.strftime(pattern, time.gmtime(at_s))


def _time_unit(value_s: float) -> tuple[float, str]:
    if value_s <= 0 or value_s >= 1:
        return 1.0, "s"
    return (1e-3, "ms") if value_s >= 1e-3 else (1e-6, "µs")


def _decimals(value: float) -> int:
    return _DIGITS - 1 - math.floor(math.log10(abs(value)))


def _at(value: float, decimals: int, rounding: Rounding) -> float:
    """Rounded at a decimal place; 1e-9 of slack keeps 0.29 × 100 from being rounded up to the next step."""
    scaled = value * 10.0**decimals
    near = round(scaled)
    if rounding != "nearest" and not math.isclose(scaled, near, rel_tol=1e-9):
        near = math.floor(scaled) if rounding == "down" else math.ceil(scaled)
    return near / 10.0**decimals


def _trimmed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
