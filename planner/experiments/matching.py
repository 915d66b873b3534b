"""Before and after on the same traffic: requests reweighted so that both sides have one mix of input and output length.

A change that went live together with longer prompts is not slower; comparing what is common to both mixes says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from goodwatch.core.errors import NoDataError
from goodwatch.core.request import band_text
from planner.experiments.values import Experiment, Measured, Metric, Run

#: requests of a cell on either side without which the cell is left out
_LEAST_IN_CELL: Final = 20
#: a load this much higher or lower is told: latency follows load
_LOAD_CHANGE: Final = 0.1
_CELL: Final = ("input_band", "output_band")


@dataclass(frozen=True, slots=True)
class Matched:
    """Runs of both sides, weighted to the common mix, in the order of time.

    ``overlap_ratio`` is the share of traffic that both mixes have in common (0..1); ``kept`` the shares of requests on
    either side that are in it; ``effective`` how many equally weighted requests tell as much.
    """

    baseline: tuple[Run, ...]
    candidate: tuple[Run, ...]
    overlap_ratio: float
    kept: tuple[float, float]
    effective: tuple[float, float]
    notes: tuple[str, ...]


def matched(
    before: pl.DataFrame,
    after: pl.DataFrame,
    metrics: Mapping[str, str],
    *,
    pieces: int = 8,
    least_overlap: float = 0.6,
) -> Matched:
    """Cut both sides into pieces of time and weight each request by the common mix.

    Parameters
    ----------
    before, after
        Facts (``request_frames.FACTS``): ended_at, input_tokens, output_tokens and the columns of ``metrics``.
    metrics
        Our name of each metric, and its column: numbers, or true and false. Nulls are left out.
    pieces
        How many runs either side becomes; neighbouring ones are alike, which the verdict takes into account.
    least_overlap
        Refused below this share of traffic in common.

    Raises
    ------
    NoDataError
        Nothing on one side, or the mixes have too little in common; says what differs.
    """  # fmt: skip
    sides = [_banded(before), _banded(after)]
    if not all(map(len, sides)):
        raise NoDataError("before and after: both need requests whose input and output length is known")
    cells = _cells(*sides)
    overlap = float(cells["common"].sum())
    if overlap < least_overlap:
        raise NoDataError(
            f"only {overlap:.0%} of the traffic is alike before and after ({least_overlap:.0%} are needed):"
            f" {_largest_gap(cells)}; compare windows with the same traffic, or run both arms at once"
        )
    runs: list[tuple[Run, ...]] = []
    kept, effective = [], []
    for side, share in zip(sides, ("share_a", "share_b"), strict=True):
        weights = cells.select(*_CELL, (pl.col("common") / pl.col(share) / overlap).alias("weight"))
        weighted = side.join(weights.filter(pl.col("weight") > 0), on=_CELL, how="inner")
        kept.append(len(weighted) / len(side))
        square = float((weighted["weight"] ** 2).sum())
        effective.append(float(weighted["weight"].sum()) ** 2 / square)
        runs.append(_pieces(weighted, metrics, pieces, len(runs) * pieces))
    notes = _notes((before, after), sides, overlap, (kept[0], kept[1]))
    return Matched(runs[0], runs[1], overlap, (kept[0], kept[1]), (effective[0], effective[1]), notes)


def before_after(
    entry: Experiment,
    before: pl.DataFrame,
    after: pl.DataFrame,
    columns: Sequence[tuple[Metric, str]],
    *,
    pieces: int = 8,
) -> Experiment:
    """An experiment whose arms are filled with the matched traffic before and after its change, ready to be judged.

    ``columns`` are metrics and the columns of the facts that hold them; the first decides. Flags, inputs, predictions
    and quality of ``entry`` stay. Raises ``NoDataError`` as ``matched``.
    """
    found = matched(before, after, {metric.name: column for metric, column in columns}, pieces=pieces)
    return replace(
        entry, design="before_after", metrics=tuple(metric for metric, _ in columns),
        baseline=replace(entry.baseline, runs=found.baseline), candidate=replace(entry.candidate, runs=found.candidate),
        state="done", notes=(*entry.notes, *found.notes),
    )  # fmt: skip


def _banded(facts: pl.DataFrame) -> pl.DataFrame:
    known = facts.filter(pl.col("input_tokens") >= 0, pl.col("output_tokens") >= 0)
    bands = [_band(f"{which}_tokens").alias(f"{which}_band") for which in ("input", "output")]
    return known.with_columns(*bands).sort("ended_at")


def _band(column: str) -> pl.Expr:
    """The base band (``goodwatch.core.request.band_of``) of a column of lengths from 0: its number of bits, less 1."""
    return (63 - pl.col(column).cast(pl.Int64).bitwise_leading_zeros().cast(pl.Int16)).cast(pl.Int16)


def _cells(a: pl.DataFrame, b: pl.DataFrame) -> pl.DataFrame:
    """Columns: input_band, output_band, share_a, share_b, common; one row a cell that either side has."""
    counted = [side.group_by(_CELL).agg(pl.len().alias(name)) for side, name in ((a, "n_a"), (b, "n_b"))]
    cells = counted[0].join(counted[1], on=_CELL, how="full", coalesce=True).fill_null(0)
    shares = cells.with_columns(share_a=pl.col("n_a") / len(a), share_b=pl.col("n_b") / len(b))
    enough = (pl.col("n_a") >= _LEAST_IN_CELL) & (pl.col("n_b") >= _LEAST_IN_CELL)
    common = pl.when(enough).then(pl.min_horizontal("share_a", "share_b")).otherwise(0.0)
    return shares.with_columns(common=common).sort(_CELL)


def _largest_gap(cells: pl.DataFrame) -> str:
    row = cells.with_columns(gap=(pl.col("share_b") - pl.col("share_a")).abs()).sort("gap").row(-1, named=True)
    where = f"input {band_text(row['input_band'])} × output {band_text(row['output_band'])} tokens"
    return f"{where} went from {row['share_a']:.0%} to {row['share_b']:.0%}"


def _pieces(side: pl.DataFrame, metrics: Mapping[str, str], pieces: int, first: int) -> tuple[Run, ...]:
    begin, end = float(side["ended_at"][0]), float(side["ended_at"][-1])
    length = (end - begin) / pieces or 1.0
    placed = side.with_columns(piece=((pl.col("ended_at") - begin) / length).floor().clip(0, pieces - 1).cast(pl.Int32))
    runs = []
    for (piece,), rows in placed.group_by("piece", maintain_order=True):
        place = int(str(piece))
        measures = {name: told for name, column in metrics.items() if (told := _measure(rows, column)) is not None}
        started = begin + place * length
        runs.append(Run(first + place, measures, started_s=started, duration_s=length))
    return tuple(runs)


def _measure(rows: pl.DataFrame, column: str) -> Measured | None:
    told = rows.select(pl.col(column).cast(pl.Float64).alias("value"), "weight").drop_nulls()
    if told.is_empty():
        return None
    return Measured(tuple(told["value"].to_list()), tuple(told["weight"].to_list()))


def _notes(
    given: tuple[pl.DataFrame, pl.DataFrame], sides: list[pl.DataFrame], overlap: float, kept: tuple[float, float]
) -> tuple[str, ...]:
    notes = [
        f"{overlap:.0%} of the traffic is alike; {kept[0]:.0%} of the requests before and {kept[1]:.0%} after are in it"
    ]
    for whole, side, name in zip(given, sides, ("before", "after"), strict=True):
        if len(side) < len(whole):
            notes.append(f"{name}: {len(whole) - len(side)} requests without a known length are left out")
    spans = [float(side["ended_at"][-1]) - float(side["ended_at"][0]) for side in sides]
    if min(spans) > 0:
        ratio = (len(sides[1]) / spans[1]) / (len(sides[0]) / spans[0])
        if not 1 / (1 + _LOAD_CHANGE) <= ratio <= 1 + _LOAD_CHANGE:
            notes.append(f"load is {ratio:.2f} times what it was: latency follows load, and only the mix was matched")
    return tuple(notes)
