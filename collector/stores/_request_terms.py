"""What every request store takes and tells: retention, what identifies a row, the order in which rows are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from goodwatch.core.errors import StoreError
from goodwatch.signals.request_frames import FACTS, ROLLUP_KEYS

PART_KEY: Final = ("trace_id", "span_id")
FACT_KEY: Final = ("trace_id", "fact_id")
ROLLUP_KEY: Final = (*ROLLUP_KEYS, "slo")
BIN_KEY: Final = (*ROLLUP_KEYS, "field")
SCORE_KEY: Final = ("trace_id", "span_id", "response_id", "evaluator", "annotator", "identifier")

#: time first, then enough to make the order the same in every store
FACTS_ORDER: Final = ("ended_at", *FACT_KEY)
ROLLUPS_ORDER: Final = (*ROLLUP_KEYS, "slo")
BINS_ORDER: Final = (*ROLLUP_KEYS, "field")
SCORES_ORDER: Final = ("ts", *SCORE_KEY)

#: of facts that were replaced: which, and when they had ended
REPLACED: Final[dict[str, Any]] = {"trace_id": pl.String, "ended_at": pl.Float64}

#: the periods that are kept, in seconds
TIERS_S: Final = (60, 3600, 86400)


#: what sums of rollups may be kept apart by
SUMMED_BY: Final = ("service", "model", "tenant")


@dataclass(frozen=True, slots=True)
class RequestRetention:
    """How long each kind of row is kept, in seconds; a row of exactly that age is kept. Days are kept for ever.

    Parts count from when their trace settled, and those of a trace that waits to be settled stay; facts from when the
    request ended; rollups from when their period began; scores from when they were given.
    """

    parts_s: float = 48 * 3600
    facts_s: float = 14 * 86400
    minutes_s: float = 48 * 3600
    hours_s: float = 90 * 86400
    scores_s: float = 90 * 86400


def shaped(frame: pl.DataFrame, schema: Mapping[str, Any], time: str, what: str) -> pl.DataFrame:
    """Return ``frame`` in the columns and types of ``schema``.

    Raises StoreError when a column is missing or of another kind, or when ``time`` is not finite somewhere: such a row
    would be in no interval and never grow old.
    """
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        raise StoreError(f"{what}: no column {', '.join(missing)}; the frame must have {', '.join(schema)}")
    if frame.columns != list(schema) or frame.dtypes != list(schema.values()):
        try:
            frame = frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())
        except pl.exceptions.PolarsError as error:
            raise StoreError(f"{what}: the columns are not of the kinds that the frame must have: {error}") from error
    if not frame[time].is_finite().fill_null(value=False).all():
        raise StoreError(f"{what}: {time} has a value that is not finite; it must be Unix seconds")
    return frame


def check_tier(tier_s: int) -> None:
    """Raise StoreError for a period that no store keeps."""
    if tier_s not in TIERS_S:
        raise StoreError(f"rollups of {tier_s} s: kept are those of {', '.join(map(str, TIERS_S))} s")


def check_tiers(tier_s: int, starts_s: Sequence[float], *frames: pl.DataFrame) -> None:
    """Raise StoreError when rows are of another period than those that they are to replace."""
    check_tier(tier_s)
    for frame in frames:
        odd = frame.filter((pl.col("tier_s") != tier_s) | ~pl.col("start_s").is_in(list(starts_s)))
        if not odd.is_empty():
            row = odd.select("tier_s", "start_s").row(0)
            raise StoreError(f"rollups of {tier_s} s: a row of {row[0]} s from {row[1]} is not of those to be replaced")


def check_sums(spans: Sequence[tuple[int, float, float]], by: Sequence[str]) -> None:
    """Raise StoreError for spans of a period that no store keeps, and for sums by another column."""
    for tier_s, _, _ in spans:
        check_tier(tier_s)
    unknown = [name for name in by if name not in SUMMED_BY]
    if unknown:
        raise StoreError(f"sums of rollups by {unknown[0]}: known are {', '.join(SUMMED_BY)}")


def check_wanted(wanted: Mapping[str, object]) -> None:
    """Raise StoreError for a filter on a column that facts do not have."""
    unknown = [name for name in wanted if name not in FACTS]
    if unknown:
        raise StoreError(f"facts: no column {unknown[0]}; known are {', '.join(FACTS)}")
