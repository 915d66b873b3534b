"""Texts and figures in one language: keys to sentences, numbers to how a reader writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo

import yaml

from planner.experiments.redact import band, percent_band
from planner.report.facts import DAYS, Figure

Language = Literal["en", "zh"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
_DOT: Final = {"en": " · ", "zh": "，"}


@cache
def texts(language: Language) -> Mapping[str, str]:
    """Every text of a language, by key."""
    found = yaml.safe_load(files("planner.report").joinpath(f"texts/{language}.yaml").read_text("utf-8"))
    return {str(key): str(value) for key, value in found.items()}


@dataclass(frozen=True, slots=True)
class Words:
    """One language; ``hidden`` prints money as bands and leaves dates out, for a copy that is given away."""

    language: Language = "en"
    zone: str = "UTC"
    hidden: bool = False

    def __call__(self, key: str, **values: object) -> str:
        """The sentence of a key; a copy that is given away has some sentences of its own."""
        known = texts(self.language)
        return known[f"{key}_hidden" if self.hidden and f"{key}_hidden" in known else key].format(**values)

    def named(self, prefix: str, name: str, other: str = "") -> str:
        """The text of ``prefix_name``; the name itself, or in the text ``other``, where there is none."""
        key = f"{prefix}_{name}"
        if key in texts(self.language):
            return self(key)
        if self.hidden:  # a name of somebody's own
            return self("unknown")
        return self(other, name=name) if other else name

    def joined(self, *parts: str) -> str:
        """Parts that say something, side by side."""
        return _DOT[self.language].join(part for part in parts if part)

    def usd(self, value: float) -> str:
        """Money: to the cent below a hundred, to the dollar above.

        Examples
        --------
        >>> Words().usd(1234.5), Words().usd(12.345), Words().usd(-0.0004)
        ('$1,234', '$12.35', '−$0.0004')
        """
        size = abs(value)
        if self.hidden:
            return ("−" if value < 0 else "") + f"$ {band(size)}"
        text = f"${size:.2g}" if 0 < size < 0.01 else f"${size:,.2f}" if size < 100 else f"${size:,.0f}"
        return ("−" if value < 0 else "") + text

    def drawn(self, value: float | None) -> float | None:
        """How long a bar is; in a copy that is given away as long as the low end of its band, for pixels can be measured."""
        if not self.hidden or value is None or value <= 0:
            return value
        return float(2.0 ** math.floor(math.log2(value)))

    def money(self, figure: Figure) -> str:
        """Money, or why there is none."""
        return self(figure.missing) if figure.value is None else self.usd(figure.value)

    def interval(self, figure: Figure) -> str:
        """Its interval in money, "" where it has none."""
        if figure.low is None or figure.high is None or figure.low == figure.high:
            return ""
        return self("to", low=self.usd(figure.low), high=self.usd(figure.high))

    def basis(self, figure: Figure) -> str:
        """Interval, basis and days, as far as they say something."""
        if figure.value is None:
            return ""
        days = "" if figure.days == DAYS else self("days_of", days=figure.days) if figure.days else self("part_of")
        return self.joined(self.interval(figure), self(figure.basis) if figure.basis else "", days)

    def percent(self, ratio: float, *, sign: bool = False) -> str:
        """A share.

        Examples
        --------
        >>> Words().percent(-0.123, sign=True), Words().percent(0.9995), Words().percent(0.25)
        ('−12.3 %', '99.95 %', '25 %')
        """
        if self.hidden and sign:
            return percent_band(ratio)
        digits = 1 if abs(ratio) < 0.99 or abs(ratio) >= 1.01 else 2
        text = f"{ratio * 100:+.{digits}f}" if sign else f"{ratio * 100:.{digits}f}"
        text = text.rstrip("0").rstrip(".").replace("-", "−")
        text = "0" if text in ("+0", "−0") else text
        return f"{text} %" if self.language == "en" else f"{text}%"

    def moment(self, at_s: float) -> str:
        """A minute on the clocks of the zone; "" in a copy that is given away."""
        if self.hidden:
            return "–"
        return datetime.fromtimestamp(at_s, ZoneInfo(self.zone)).strftime("%Y-%m-%d %H:%M")
