"""Requests as files: CSV, Parquet and Arrow, sent in pieces so that a large one does not fill the memory twice."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

#: the most requests of one file; the answer's headers say how many there would have been
MAX_ROWS: Final = 100_000
_ROWS_A_PIECE: Final = 5_000
_BYTES_A_PIECE: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Form:
    """A file format: what it is called in a URL and in a header."""

    name: str
    media: str
    suffix: str


FORMS: Final = {
    one.name: one
    for one in (
        Form("csv", "text/csv", "csv"),
        Form("parquet", "application/vnd.apache.parquet", "parquet"),
        Form("arrow", "application/vnd.apache.arrow.stream", "arrows"),
    )
}


def form_of(name: str, accept: str) -> Form | None:
    """The format that a caller asks for by name or by its Accept header; None is JSON. Raises ValueError."""
    if name and name != "json":
        if name not in FORMS:
            raise ValueError(f"format: {name[:40]!r} is not one of json, {', '.join(FORMS)}")
        return FORMS[name]
    if name:
        return None
    return next((one for one in FORMS.values() if one.media in accept), None)


async def pieces(frame: pl.DataFrame, form: Form) -> AsyncIterator[bytes]:
    """The file piece by piece; each is made in a thread."""
    source = _csv(frame) if form.name == "csv" else _whole(frame, form)
    while (piece := await asyncio.to_thread(next, source, None)) is not None:
        yield piece


def _csv(frame: pl.DataFrame) -> Iterator[bytes]:
    """RFC 4180; lists are joined by a space, unknown is empty."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    flat = frame.with_columns(pl.col(name).list.join(" ") for name in lists)
    for first in range(0, max(1, flat.height), _ROWS_A_PIECE):
        text = flat.slice(first, _ROWS_A_PIECE).write_csv(include_header=first == 0, line_terminator="\r\n")
        yield text.encode()


def _whole(frame: pl.DataFrame, form: Form) -> Iterator[bytes]:
    made = io.BytesIO()
    if form.name == "parquet":
        frame.write_parquet(made)
    else:
        frame.write_ipc_stream(made)
    view = made.getbuffer()
    for first in range(0, len(view), _BYTES_A_PIECE):
        yield bytes(view[first : first + _BYTES_A_PIECE])
