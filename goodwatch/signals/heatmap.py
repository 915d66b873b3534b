"""The map of input length × output length: what the requests of each pair of bands got. Pure.

``heatmap`` reads rollups, ``heatmap_of_facts`` single requests; both answer with the same cells. From rollups a
quantile is within 1.1 % of the exact one and only their keys filter; from facts it is exact and any column filters.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import polars as pl

from goodwatch.core.model import Absence, Number
from goodwatch.core.quality import QualityRules
from goodwatch.signals._bands import DEFAULT_EDGES, PageBand, page_bands, place_in, places_of_tokens
from goodwatch.signals._cells import (
    EngineTime,
    Latency,
    Totals,
    attainment_number,
    cost_number,
    latency_number,
    quality_number,
    requests_number,
)
from goodwatch.signals.quantiles import binned, quantiles_of_bins, quantiles_of_values
from goodwatch.signals.request_frames import LATENCY_FIELDS
from goodwatch.signals.rollup import roll_up

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)

#: whose sums make the seconds that a request held a place on the engine
TIME_FIELDS: Final = ("engine_e2e_s", "engine_queue_s")

_TOTALS: Final = tuple(one.name for one in fields(Totals))


class Measure(StrEnum):
    """What a cell shows."""

    LATENCY = "latency"  # a quantile of one latency field, seconds
    ATTAINMENT = "attainment"  # good of valid requests
    REQUESTS = "requests"
    COST = "usd_per_million_output_tokens"
    COST_GOOD = "usd_per_million_good_output_tokens"
    QUALITY = "quality"  # passed of scored requests


@dataclass(frozen=True, slots=True)
class Ask:
    """What the map is to show.

    ``quantile`` and ``field`` (which names the vantage point) are of a latency. Edges are 0 or powers of two, in
    tokens. ``filters`` keep rows whose columns are equal, None being "not told". ``window_usd`` is what everything that
    served the given requests cost in the window, before filters.
    """

    measure: Measure
    quantile: float = 0.99
    field: str = "engine_ttft_s"
    input_edges: Sequence[int] = DEFAULT_EDGES
    output_edges: Sequence[int] = DEFAULT_EDGES
    filters: Mapping[str, object] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    window_usd: float | None = None

    def __post_init__(self) -> None:
        """Refuse what has no answer."""
        if self.field not in LATENCY_FIELDS:
            raise ValueError(f"field {self.field!r}: known are {', '.join(LATENCY_FIELDS)}")
        if not 0 < self.quantile < 1:
            raise ValueError(f"quantile {self.quantile}: must lie between 0 and 1, such as 0.99")

    @property
    def fields(self) -> tuple[str, ...]:
        """The latency fields whose bins the measure needs."""
        if self.measure is Measure.LATENCY:
            return (self.field,)
        return TIME_FIELDS if self.measure in {Measure.COST, Measure.COST_GOOD} else ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair of bands: positions in ``inputs`` and ``outputs``, how many requests were seen, and what is shown."""

    input: int
    output: int
    requests: float
    number: Number


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Cells row by row; every pair of bands has one, with the reason when it has no number."""

    ask: Ask
    inputs: tuple[PageBand, ...]
    outputs: tuple[PageBand, ...]
    cells: tuple[Cell, ...]

    def cell(self, input_band: int, output_band: int) -> Cell:
        """The cell at these positions."""
        return self.cells[input_band * len(self.outputs) + output_band]


def heatmap(rollups: pl.DataFrame, bins: pl.DataFrame, ask: Ask) -> Heatmap:
    """The map of a window from its rollups.

    Parameters
    ----------
    rollups, bins
        ``ROLLUPS`` and ``BINS`` of the whole window, of one tier or of tiers that do not overlap; ``bins`` must hold
        the fields ``ask.fields`` and may hold more.
    ask
        Filters may name ``service``, ``model``, ``tenant`` and, of attainment and requests, ``slo``.
    """
    page = _Page(ask)
    of_fields = bins.filter(pl.col("field").is_in(list(ask.fields)))
    sliced = page.kept(of_fields) if ask.fields else of_fields
    kept = sliced.select(page.cell_of_bands(), "field", "zero", "facts", "sum", "bin", "count")
    totals = page.totals(page.kept(rollups))
    if ask.measure is Measure.LATENCY:
        observed = kept.group_by("cell").agg(pl.col("facts").sum())
        return page.with_latencies(totals, quantiles_of_bins(binned(kept, ["cell"]), observed, ["cell"], ask.quantile))
    return page.with_sums(totals, _engine_time(kept), _all_seconds(of_fields))


def heatmap_of_facts(
    facts: pl.DataFrame, ask: Ask, *, scores: pl.DataFrame | None = None, rules: QualityRules | None = None
) -> Heatmap:
    """The map of single requests; exact.

    ``facts`` are ``FACTS`` with verdict and slo. Of a latency only ``input_tokens``, ``output_tokens``, the field, the
    columns of the filters, and ``weight`` unless it is 1 throughout, are needed. ``scores`` count for quality; ``rules`` say what passes.
    """
    page = _Page(ask)
    kept = page.kept(facts)
    if ask.measure is Measure.LATENCY:
        return page.with_latencies(*_latencies_of_facts(page, kept))
    rollups, bins = roll_up(kept, scores, rules=rules)
    time = _engine_time(bins.filter(pl.col("field").is_in(list(ask.fields))).with_columns(page.cell_of_bands()))
    everything = _all_seconds(roll_up(facts)[1]) if ask.fields else 0.0
    return page.with_sums(page.totals(rollups), time, everything)


class _Page:
    """The bands of one ask, and how rows come into its cells."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.inputs, self.outputs = page_bands(ask.input_edges), page_bands(ask.output_edges)

    def kept(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that the filters keep."""
        unknown = [name for name in self.ask.filters if name not in frame.columns]
        if unknown:
            raise ValueError(
                f"filter {unknown[0]!r}: not kept in rollups; a map of single requests can be filtered by it"
            )
        wanted = [pl.col(name).eq_missing(pl.lit(value)) for name, value in self.ask.filters.items()]
        return frame.filter(wanted) if wanted else frame

    def cell_of_bands(self) -> pl.Expr:
        """The cell of a row with base bands, as Int16."""
        return self._cell(place_in(self.inputs, "input_band"), place_in(self.outputs, "output_band"))

    def cells_of(self, facts: pl.DataFrame) -> pl.Series:
        """The cell of each fact, as Int16."""
        row = places_of_tokens(self.inputs, facts["input_tokens"])
        return (row * len(self.outputs) + places_of_tokens(self.outputs, facts["output_tokens"])).alias("cell")

    def totals(self, rollups: pl.DataFrame) -> dict[int, Totals]:
        """Sums of rollups by cell."""
        summed = rollups.group_by(self.cell_of_bands()).agg(pl.col(_TOTALS).sum())
        return {row.pop("cell"): Totals(**row) for row in summed.rows(named=True)}

    def with_latencies(self, totals: Mapping[int, Totals], quantiles: pl.DataFrame) -> Heatmap:
        """The map from what ``signals.quantiles`` found by cell."""
        found = {cell: Latency(*told) for cell, *told in quantiles.rows()}
        ask = self.ask
        return self._map(totals, lambda cell, all_: latency_number(all_, found.get(cell), ask.quantile, ask.field))

    def with_sums(
        self, totals: Mapping[int, Totals], time: Mapping[int, tuple[float, float]], all_seconds: float
    ) -> Heatmap:
        """The map of a measure that needs no quantile; ``time`` is seconds on the engine and facts that told theirs."""
        ask = self.ask
        plain = {
            Measure.ATTAINMENT: attainment_number,
            Measure.REQUESTS: requests_number,
            Measure.QUALITY: quality_number,
        }.get(ask.measure)
        if plain is not None:
            return self._map(totals, lambda _, all_: plain(all_))
        good_only = ask.measure is Measure.COST_GOOD

        def cost(cell: int, all_: Totals) -> Number:
            seconds, told = time.get(cell, (0.0, 0.0))
            return cost_number(all_, EngineTime(seconds, all_seconds, told), ask.window_usd, good_only=good_only)

        return self._map(totals, cost)

    def _map(self, totals: Mapping[int, Totals], number: Callable[[int, Totals], Number]) -> Heatmap:
        width = len(self.outputs)
        cells = []
        for cell in range(len(self.inputs) * width):
            found = totals.get(cell, Totals())
            shown = number(cell, found) if found.requests else _empty(self.ask)
            cells.append(Cell(cell // width, cell % width, found.requests, shown))
        return Heatmap(self.ask, self.inputs, self.outputs, tuple(cells))

    def _cell(self, row: pl.Expr, column: pl.Expr) -> pl.Expr:
        return (row * len(self.outputs) + column).cast(pl.Int16).alias("cell")


def _empty(ask: Ask) -> Number:
    units = {Measure.LATENCY: "s", Measure.REQUESTS: "requests", Measure.COST: "USD", Measure.COST_GOOD: "USD"}
    return Number.none(units.get(ask.measure, "ratio"), Absence.NO_TRAFFIC, "no request of these lengths")


def _latencies_of_facts(page: _Page, facts: pl.DataFrame) -> tuple[dict[int, Totals], pl.DataFrame]:
    placed = facts.select(page.cells_of(facts), value=page.ask.field)
    if "weight" not in facts.columns or (facts["weight"] == 1).fill_null(value=False).all():
        counts = placed["cell"].value_counts().rows()
        totals = {cell: Totals(requests=float(count), weighted=float(count)) for cell, count in counts}
    else:
        placed = placed.with_columns(weight=facts["weight"].fill_null(1.0), silent=facts["weight"].is_null())
        requests, silent = pl.len().cast(pl.Float64), pl.col("silent").sum().cast(pl.Float64)
        sums = placed.group_by("cell").agg(requests=requests, weighted=pl.col("weight").sum(), unweighted=silent)
        totals = {row.pop("cell"): Totals(**row) for row in sums.rows(named=True)}
    values = placed.drop_nulls("value").drop("silent", strict=False)
    return totals, quantiles_of_values(values, "cell", page.ask.quantile)


def _engine_time(bins: pl.DataFrame) -> dict[int, tuple[float, float]]:
    """By cell: seconds on the engine, and how many requests told their E2E latency."""
    told = pl.col("facts").filter(pl.col("field") == TIME_FIELDS[0]).sum()
    summed = bins.with_columns(seconds=_seconds(bins)).group_by("cell").agg(pl.col("seconds").sum(), told=told)
    return {cell: (seconds, facts) for cell, seconds, facts in summed.select("cell", "seconds", "told").rows()}


def _all_seconds(bins: pl.DataFrame) -> float:
    return math.fsum(_seconds(bins))


def _seconds(bins: pl.DataFrame) -> pl.Series:
    """E2E counts, queue is taken off, other fields do not count."""
    e2e, queue = (pl.col("field") == name for name in TIME_FIELDS)
    signed = pl.when(e2e).then(pl.col("sum")).when(queue).then(-pl.col("sum")).otherwise(0.0)
    return bins.select(signed.alias("seconds"))["seconds"]
