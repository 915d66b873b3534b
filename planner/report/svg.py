"""Bars as an inline SVG that takes its colours from the page around it, so that it is right in light, dark and print."""

from __future__ import annotations

from html import escape
from typing import Final
from unicodedata import east_asian_width

from planner.report.document import Bar, Bars

_WIDTH: Final = 720
_LEFT: Final = 200
_RIGHT: Final = 110
_BAR: Final = 14
_GAP: Final = 12
#: columns of text that fit on the left
_CUT: Final = 28


def bars_svg(figure: Bars) -> str:
    """The figure; a bar without a value is its text alone. Classes: now, before, span, label, muted."""
    two = bool(figure.names[1])
    high = _BAR * (2 if two else 1) + _GAP
    ends = [x for bar in figure.bars for x in (bar.value, bar.before, bar.high) if x is not None]
    most = max(ends, default=0.0)
    scale = (_WIDTH - _LEFT - _RIGHT) / most if most > 0 else 0.0
    parts = [_bar(bar, place * high + 4, scale, two=two) for place, bar in enumerate(figure.bars)]
    tall = len(figure.bars) * high + 4
    return (
        f'<svg class="bars" viewBox="0 0 {_WIDTH} {tall}" role="img" aria-label="{escape(figure.title)}">'
        + "".join(parts)
        + "</svg>"
    )


def _bar(bar: Bar, top: int, scale: float, *, two: bool) -> str:
    middle = top + _BAR * (2 if two else 1) / 2 + 4
    label = _cut(bar.label)
    parts = [
        f'<text class="label" x="{_LEFT - 10}" y="{middle:g}" text-anchor="end">{escape(label)}'
        f"<title>{escape(bar.label)}</title></text>",
        _one((bar.value, bar.text, bar.high), "now", top, scale),
    ]
    if bar.low is not None and bar.high is not None and bar.high > bar.low:
        y = top + _BAR / 2
        x0, x1 = _LEFT + max(0.0, bar.low) * scale, _LEFT + bar.high * scale
        parts.append(f'<path class="span" d="M{x0:.1f} {y:g}H{x1:.1f}M{x0:.1f} {y - 4:g}v8M{x1:.1f} {y - 4:g}v8"/>')
    if two:
        parts.append(_one((bar.before, bar.before_text, None), "before", top + _BAR, scale))
    return "".join(parts)


def _one(told: tuple[float | None, str, float | None], name: str, top: int, scale: float) -> str:
    """One bar and its text (value, text, upper end of the interval)."""
    value, text, high = told
    width = 0.0 if value is None else max(0.0, value) * scale
    end = max(width, (high or 0.0) * scale)
    drawn = (
        "" if value is None else f'<rect class="{name}" x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR - 2}"/>'
    )
    kind = "label" if name == "now" and value is not None else "muted"
    return f'{drawn}<text class="{kind}" x="{_LEFT + end + 6:.1f}" y="{top + _BAR - 3}">{escape(text)}</text>'


def _cut(label: str) -> str:
    """A label that fits; a Chinese character is as wide as two others."""
    held, room = "", _CUT
    for character in label:
        room -= 2 if east_asian_width(character) in "WF" else 1
        if room < 0:
            return held[:-1] + "…"
        held += character
    return held
