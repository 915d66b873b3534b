"""What every store takes and tells: retention, health, what identifies a row and in which order rows are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from goodwatch.core.errors import StoreError
from goodwatch.core.model import Deployment, Scrape

#: a second row with the same values in these columns replaces the first
MINUTES_KEY: Final = ("minute_s", "target", "service", "model", "engine", "signal", "part")
DERIVED_KEY: Final = ("ts", "window_s", "service", "target", "model", "name")

#: time first, then enough to make the order the same in every store
SAMPLES_ORDER: Final = ("ts", "target", "signal", "part", "rank")
SCRAPES_ORDER: Final = ("ts", "target")
MINUTES_ORDER: Final = MINUTES_KEY
DERIVED_ORDER: Final = DERIVED_KEY


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each kind of row is kept, in seconds; a row of exactly that age is kept.

    Up/down rows go with the samples. A deployment is kept as long as it says what ran at a time of which anything
    may still be kept; the latest one of a target stays while anything of that target is kept.
    """

    samples_s: float = 48 * 3600
    minutes_s: float = 92 * 86400
    derived_s: float = 92 * 86400

    @property
    def longest_s(self) -> float:
        """The longest of the three, in seconds."""
        return max(self.samples_s, self.minutes_s, self.derived_s)


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Whether the store works, and how much it holds.

    ``ok`` is false when the last write failed or the store cannot be read now; ``message`` then says what to do.
    ``bytes`` is the size of its files; ``oldest_s`` and ``newest_s`` are the first and last scrape that are kept and
    ``last_commit_s`` is when this process last committed, all in Unix seconds; None when there is none.
    """

    ok: bool
    message: str
    bytes: int
    oldest_s: float | None
    newest_s: float | None
    last_commit_s: float | None


def same_facts(one: Deployment, other: Deployment) -> bool:
    """Whether two deployments say the same of what runs; the time apart."""
    return (one.service, one.engine, one.engine_version, one.model, one.facts) == (
        other.service, other.engine, other.engine_version, other.model, other.facts,
    )  # fmt: skip


def check_times(scrapes: Sequence[Scrape]) -> None:
    """Raise StoreError for a time that is no number: such a row would be in no interval and never grow old."""
    for scrape in scrapes:
        if not (math.isfinite(scrape.ts) and all(math.isfinite(s.ts) for s in scrape.samples)):
            raise StoreError(f"scrape of {scrape.target!r}: a time is not finite; it must be Unix seconds")


def conform(frame: pl.DataFrame, schema: Mapping[str, Any], key: Sequence[str], what: str) -> pl.DataFrame:
    """Return ``frame`` in the columns and types of ``schema``, one row a key (the last one wins).

    Raises StoreError when a column is missing or of another kind, or when the time (first in ``key``) is not finite.
    """
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        raise StoreError(f"{what}: no column {', '.join(missing)}; the frame must have {', '.join(schema)}")
    try:
        shaped = frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())
    except pl.exceptions.PolarsError as error:
        raise StoreError(f"{what}: the columns are not of the kinds that the frame must have: {error}") from error
    if not shaped[key[0]].is_finite().fill_null(value=False).all():
        raise StoreError(f"{what}: {key[0]} has a value that is not finite; it must be Unix seconds")
    return shaped.unique(subset=list(key), keep="last", maintain_order=True)
