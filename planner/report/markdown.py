"""A document as Markdown (CommonMark with pipe tables). Pure."""

from __future__ import annotations

import re
from typing import Final

from planner.report.document import Bars, Block, Cell, Document, Sentence, Table, Tiles

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#])")


def markdown(document: Document) -> str:
    """The whole; figures are left out, for their numbers stand in the tables."""
    parts = [f"# {plain(document.title)}", plain(document.subtitle)]
    for section in document.sections:
        parts.append(f"## {plain(section.title)}")
        parts += [text for block in section.blocks if (text := _block(block))]
    if document.footer:
        parts += ["---", plain(document.footer)]
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Text that Markdown takes as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _block(block: Block) -> str:
    if isinstance(block, Sentence):
        return plain(block.text)
    if isinstance(block, Tiles):
        return "\n".join(
            f"- **{plain(one.title)}**: {plain(one.value)}" + (f" ({plain(one.small)})" if one.small else "")
            for one in block.tiles
        )
    if isinstance(block, Bars):
        return ""
    return _table(block)


def _table(table: Table) -> str:
    right = [bool(table.rows) and table.rows[0][place].number for place in range(len(table.headings))]
    lines = [" | ".join(plain(one) for one in table.headings), " | ".join("---:" if one else "---" for one in right)]
    lines += [" | ".join(_cell(one) for one in row) for row in table.rows]
    return "\n".join(f"| {line} |" for line in lines)


def _cell(cell: Cell) -> str:
    return plain(cell.text) + (f" ({plain(cell.small)})" if cell.small else "")
