"""A document without a form: sections of sentences, tables, tiles and bars. Renderers turn it into Markdown or HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "good", "warning", "bad", "muted"]


@dataclass(frozen=True, slots=True)
class Cell:
    """Text in a table; ``small`` is set below it (interval, basis); a number stands to the right."""

    text: str
    small: str = ""
    tone: Tone = ""
    number: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of as many cells as there are headings; a heading of numbers is marked as its cells are."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One paragraph."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure to see first."""

    title: str
    value: str
    small: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Figures side by side."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a figure: this week over last week; None is not drawn and ``text`` says why."""

    label: str
    value: float | None
    text: str
    before: float | None = None
    before_text: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """A figure as data; ``names`` are those of the two series, the second "" where there is one only."""

    title: str
    bars: tuple[Bar, ...]
    names: tuple[str, str] = ("", "")


Block = Sentence | Table | Tiles | Bars


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it; ``key`` names it in links."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The whole; ``language`` as HTML writes it."""

    language: str
    title: str
    subtitle: str
    sections: tuple[Section, ...]
    footer: str = ""
