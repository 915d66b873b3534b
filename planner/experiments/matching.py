"""Before and after on the same traffic: requests reweighted so that both sides have one mix of lengths, and one of loads.

A change that went live together with longer prompts is not slower, and one that went live in the evening is not faster;
comparing what is common to both mixes says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from goodwatch.core.errors import NoDataError
from goodwatch.core.request import band_text
from planner.experiments.values import Experiment, Measured, Metric, Run

#: requests of a cell on either side without which the cell is left out
_LEAST_IN_CELL: Final = 20
#: requests that arrive in so long are one load, or in a twentieth of a shorter comparison, for its cut edges count as
#: quiet; loads within a factor of 2 are alike
_LOAD_S: Final = (10.0, 60.0)
_LEAST_LOADS: Final = 20
#: edges of bands of loads are tried at so many places: two loads a little apart must not fall on two sides of one
_OFFSETS: Final = 8
#: a load this much higher or lower is told: latency follows load
_LOAD_CHANGE: Final = 0.1
#: latencies that are kept of a piece: its P99 stands on twenty of them
_MOST_VALUES: Final = 2_000
#: digits that are kept of a latency and of a weight
_DIGITS: Final = (5, 4)
_CELL: Final = ("input_band", "output_band")


@dataclass(frozen=True, slots=True)
class Matched:
    """Runs of both sides, weighted to the common mix, in the order of time.

    ``overlap_ratio`` is the share of traffic that both mixes have in common (0..1), the smaller of lengths and loads; ``kept`` the shares of requests on
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
    loads: bool = False,
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
    loads
        Match how many requests arrived in the same minute as well; needs ``arrived_s``. Arrivals and not ends: a change
        that serves more must not look like more load.

    Raises
    ------
    NoDataError
        Nothing on one side, or the mixes have too little in common; says what differs.
    """  # fmt: skip
    sides = [_banded(before), _banded(after)]
    if not all(map(len, sides)):
        raise NoDataError("before and after: both need requests whose input and output length is known")
    weighed = [_weighed(sides, _CELL, least_overlap, _largest_gap)]
    if loads:
        weighed.append(_weighed(*_loaded(sides), least_overlap, _largest_load_gap))
    overlap = min(one.overlap for one in weighed)
    runs: list[tuple[Run, ...]] = []
    kept, effective = [], []
    for place, side in enumerate(sides):
        factors = [one.weights[place].alias(f"weight_{nth}") for nth, one in enumerate(weighed)]
        product = pl.reduce(lambda a, b: a * b, [pl.col(one.name) for one in factors])
        weighted = side.with_columns(factors).with_columns(weight=product).filter(pl.col("weight") > 0)
        if weighted.is_empty():
            raise NoDataError(
                "no request of one side has both the lengths and the load of the other; wait for more traffic"
            )
        kept.append(len(weighted) / len(side))
        square = float((weighted["weight"] ** 2).sum())
        effective.append(float(weighted["weight"].sum()) ** 2 / square)
        runs.append(_pieces(weighted, metrics, pieces, len(runs) * pieces))
    notes = _notes((before, after), sides, overlap, (kept[0], kept[1]), loads=loads)
    return Matched(runs[0], runs[1], overlap, (kept[0], kept[1]), (effective[0], effective[1]), notes)


def before_after(
    entry: Experiment,
    before: pl.DataFrame,
    after: pl.DataFrame,
    columns: Sequence[tuple[Metric, str]],
    *,
    pieces: int = 8,
    loads: bool = False,
) -> Experiment:
    """An experiment whose arms are filled with the matched traffic before and after its change, ready to be judged.

    ``columns`` are metrics and the columns of the facts that hold them; the first decides. Flags, inputs, predictions
    and quality of ``entry`` stay. ``loads`` and errors as of ``matched``.
    """
    found = matched(before, after, {metric.name: column for metric, column in columns}, pieces=pieces, loads=loads)
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


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What is common to both sides (0..1), and the weight of each of their rows: 0 outside of it."""

    overlap: float
    weights: tuple[pl.Series, pl.Series]


def _weighed(
    sides: Sequence[pl.DataFrame], cell: Sequence[str], least: float, gap: Callable[[pl.DataFrame], str]
) -> _Weighed:
    cells = _cells(sides[0], sides[1], cell)
    overlap = float(cells["common"].sum())
    if overlap < least:
        raise NoDataError(
            f"only {overlap:.0%} of the traffic is alike before and after ({least:.0%} are needed):"
            f" {gap(cells)}; compare windows with the same traffic, or run both arms at once"
        )
    found = []
    for side, share in zip(sides, ("share_a", "share_b"), strict=True):
        weights = cells.select(*cell, (pl.col("common") / pl.col(share) / overlap).alias("weight"))
        found.append(side.join(weights, on=cell, how="left", maintain_order="left")["weight"].fill_null(0.0))
    return _Weighed(overlap, (found[0], found[1]))


def _loaded(sides: Sequence[pl.DataFrame]) -> tuple[list[pl.DataFrame], tuple[str, ...]]:
    """Both sides with the band of their load, its edges where most is common."""
    came = pl.col("arrived_s").fill_null(pl.col("ended_at"))
    shorter = min(float(side.select(came.max() - came.min()).item()) for side in sides)
    length = max(_LOAD_S[0], min(_LOAD_S[1], shorter / _LEAST_LOADS))
    arrived = [
        side.with_columns(place=came // length).with_columns(load=pl.len().over("place").cast(pl.Float64))
        for side in sides
    ]
    tried = []
    for offset in range(_OFFSETS):
        band = (pl.col("load").log(2.0) + offset / _OFFSETS).floor().cast(pl.Int16).alias("load_band")
        banded = [side.with_columns(band) for side in arrived]
        common = float(_cells(banded[0], banded[1], ("load_band",))["common"].sum())
        tried.append((common, -offset, banded))
    return max(tried, key=lambda one: one[:2])[2], ("load_band",)


def _largest_load_gap(cells: pl.DataFrame) -> str:
    before, after = (float((cells[share] * cells["load_band"]).sum() or 0.0) for share in ("share_a", "share_b"))
    return f"load is about {2.0 ** (after - before):.2g} times what it was, and latency follows load"


def _cells(a: pl.DataFrame, b: pl.DataFrame, cell: Sequence[str]) -> pl.DataFrame:
    """Columns: those of ``cell``, share_a, share_b, common; one row a cell that either side has."""
    counted = [side.group_by(cell).agg(pl.len().alias(name)) for side, name in ((a, "n_a"), (b, "n_b"))]
    cells = counted[0].join(counted[1], on=cell, how="full", coalesce=True).fill_null(0)
    shares = cells.with_columns(share_a=pl.col("n_a") / len(a), share_b=pl.col("n_b") / len(b))
    enough = (pl.col("n_a") >= _LEAST_IN_CELL) & (pl.col("n_b") >= _LEAST_IN_CELL)
    common = pl.when(enough).then(pl.min_horizontal("share_a", "share_b")).otherwise(0.0)
    return shares.with_columns(common=common).sort(cell)


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
    """Values and weights of a piece.

    True and false are added up, which loses nothing; of many latencies every nth is kept, so that an entry of the ledger
    stays as small whatever the traffic.
    """
    told = rows.select(pl.col(column).cast(pl.Float64).alias("value"), "weight").drop_nulls()
    if told.is_empty():
        return None
    if rows.schema[column] == pl.Boolean:
        told = told.group_by("value").agg(pl.col("weight").sum()).sort("value")
    elif told.height > _MOST_VALUES:
        told = told.gather_every(-(-told.height // _MOST_VALUES))
    told = told.select(pl.col("value").round_sig_figs(_DIGITS[0]), pl.col("weight").round_sig_figs(_DIGITS[1]))
    return Measured(tuple(told["value"].to_list()), tuple(told["weight"].to_list()))


def _notes(
    given: tuple[pl.DataFrame, pl.DataFrame], sides: list[pl.DataFrame], overlap: float, kept: tuple[float, float],
    *, loads: bool,
) -> tuple[str, ...]:  # fmt: skip
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
            what = (
                "minutes of like load were compared" if loads else "latency follows load, and only the mix was matched"
            )
            notes.append(f"load is {ratio:.2f} times what it was: {what}")
    return tuple(notes)
