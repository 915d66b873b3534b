"""The bands of a page: unions of the base bands that rollups keep. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import polars as pl

from goodwatch.core.request import EMPTY_BAND, UNKNOWN_BAND

#: four times as long from one band to the next
DEFAULT_EDGES: Final = (0, 64, 256, 1024, 4096, 16384, 65536)

_HIGHEST_BASE: Final = 62  # 2^62 is the largest power of two in a 64-bit count


@dataclass(frozen=True, slots=True)
class PageBand:
    """Lengths in ``[low, high)`` tokens; ``high`` None is open above, ``low`` None a length that nobody told."""

    low: int | None
    high: int | None

    @property
    def text(self) -> str:
        """The band for a person: "64–255", "65536 and more", "unknown"."""
        if self.low is None:
            return "unknown"
        if self.high is None:
            return f"{self.low} and more"
        return str(self.low) if self.high == self.low + 1 else f"{self.low}–{self.high - 1}"


def page_bands(edges: Sequence[int]) -> tuple[PageBand, ...]:
    """Bands from each edge to the next, the last one open, and ``unknown``.

    An edge is 0 or a power of two, because the base bands are; they ascend. Without 0 as the first edge a band from 0
    is put before it. Raises ValueError for other edges.

    Examples
    --------
    >>> [band.text for band in page_bands((1, 64, 128))]
    ['0', '1–63', '64–127', '128 and more', 'unknown']
    """
    odd = [edge for edge in edges if edge < 0 or edge & (edge - 1)]
    if odd:
        raise ValueError(f"edge {odd[0]}: an edge of a band is 0 or a power of two, such as 64 or 1024")
    if any(left >= right for left, right in pairwise(edges)):
        raise ValueError(f"edges {', '.join(map(str, edges))}: edges of bands ascend, each once")
    lows = tuple(edges) if edges and edges[0] == 0 else (0, *edges)
    return (*(PageBand(low, high) for low, high in zip(lows, (*lows[1:], None), strict=True)), PageBand(None, None))


def place_in(bands: Sequence[PageBand], base_band: str) -> pl.Expr:
    """The position in ``bands`` of a column of base bands, as Int16."""
    places = {base: _place(bands, base) for base in range(UNKNOWN_BAND, _HIGHEST_BASE + 1)}
    return pl.col(base_band).replace_strict(places, return_dtype=pl.Int16)


def _place(bands: Sequence[PageBand], base: int) -> int:
    if base == UNKNOWN_BAND:
        return len(bands) - 1
    shortest = 0 if base == EMPTY_BAND else 2**base
    return max(place for place, band in enumerate(bands) if band.low is not None and band.low <= shortest)


def places_of_tokens(bands: Sequence[PageBand], tokens: pl.Series) -> pl.Series:
    """The position in ``bands`` of each token count, as Int16."""
    unknown = len(bands) - 1
    # the number of bits tells the base band: none for 0, b + 1 for [2^b, 2^(b+1)), all 64 for a negative number
    by_bits = [_place(bands, EMPTY_BAND), *(_place(bands, base) for base in range(_HIGHEST_BASE + 1)), unknown]
    bits = tokens.to_frame("n").select((64 - pl.col("n").bitwise_leading_zeros()).cast(pl.UInt32)).to_series()
    return pl.Series(by_bits, dtype=pl.Int16).gather(bits).fill_null(unknown)
