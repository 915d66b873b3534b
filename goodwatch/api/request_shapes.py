"""What the API answers about requests. Pure. A number that is not there is null and says why, never 0."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import polars as pl
from pydantic import BaseModel, Field

from goodwatch.api.request_query import measure_key, measure_text, quantile_key
from goodwatch.api.shapes import NumberShape, finite, number_shape
from goodwatch.app.request_view import GroupView, MapView, Slice, TraceView
from goodwatch.core.model import Basis, Number
from goodwatch.signals.attainment import Attained
from goodwatch.signals.heatmap import Measure
from goodwatch.signals.reconcile import Reconciled
from goodwatch.signals.request_cost import CostLine, RequestCost
from goodwatch.signals.request_frames import FACTS

#: columns of a request in a list and in a file, in their order
ROW_COLUMNS: Final = (*FACTS, "slo", "verdict", "missed")


class ReconciledShape(BaseModel):
    """Requests that are known one by one, held against the engine's counter of finished ones."""

    basis: str
    facts: float = Field(description="Requests known one by one, weighted by their sampling.")
    finished: float | None = Field(description="By the engine's counter; null: there is none.")
    gap_ratio: float | None
    by_class: dict[str, float]
    note: str


class AttainedShape(BaseModel):
    """Attainment and goodput of some requests."""

    attainment: NumberShape
    with_unaccounted: NumberShape = Field(description="The same with unaccounted requests as valid and bad.")
    goodput_per_s: NumberShape
    good_tokens_per_s: NumberShape
    valid: NumberShape
    unaccounted: NumberShape = Field(description="Requests that arrived and left no trace of an end.")
    reconciled: ReconciledShape


class GroupShape(BaseModel):
    """The requests with one value of a column; key null: not told."""

    key: str | None
    requests: int
    attainment: NumberShape
    goodput_per_s: NumberShape


class AttainmentShape(AttainedShape):
    """Attainment of a slice, and of its parts."""

    service: str
    vantage: str = Field(description="Whose stopwatch the targets are held against.")
    start_s: float
    end_s: float
    by: str | None
    groups: list[GroupShape]


class BandShape(BaseModel):
    """Lengths in [low, high) tokens; high null is open above, both null is a length that nobody told."""

    low: int | None
    high: int | None
    text: str


class CellShape(BaseModel):
    """One pair of bands: positions in inputs and outputs."""

    input: int
    output: int
    requests: float
    number: NumberShape


class HeatmapShape(BaseModel):
    """Input length by output length."""

    service: str
    start_s: float
    end_s: float
    measure: str
    quantile: str | None = Field(description="Of a latency; null for other measures.")
    text: str
    made_of: str = Field(description="rollups (quantiles within 1.1 %) or requests (exact).")
    inputs: list[BandShape]
    outputs: list[BandShape]
    cells: list[CellShape] = Field(description="Row by row; every pair of bands has one.")
    attained: AttainedShape


class RequestsShape(BaseModel):
    """Some requests; a field that nobody told is null."""

    service: str
    start_s: float
    end_s: float
    total: int
    next: str | None = Field(description="`cursor` of the next page; null at the end.")
    requests: list[dict[str, Any]]


class TraceShape(BaseModel):
    """One trace: its requests, the spans that they were made of, the scores that they got."""

    trace_id: str
    link: str | None = Field(description="The trace in your own tool; null when none is configured.")
    requests: list[dict[str, Any]]
    spans: list[dict[str, Any]]
    scores: list[dict[str, Any]]


class CostLineShape(BaseModel):
    """What the requests with one value cost; usd is without idle time, the costs per million hold their part of it."""

    key: str | None
    requests: float
    output_tokens: float
    good_tokens: float
    usd: NumberShape
    usd_by_class: dict[str, float] | None = Field(description="null: not measurable; usd says why.")
    usd_per_million_good_tokens: NumberShape
    usd_per_million_output_tokens: NumberShape


class CostShape(BaseModel):
    """The bill of a service, split."""

    service: str
    start_s: float
    end_s: float
    usd: NumberShape
    idle_usd: NumberShape
    knee: NumberShape = Field(description="Per million good tokens, in the busiest five minutes that met the SLO.")
    reconciled: ReconciledShape = Field(description="The bill is of all requests; tokens are of those in facts.")
    silent: float = Field(description="Requests that do not tell how long they held a place on the engine.")
    whole: CostLineShape
    by: str | None
    lines: list[CostLineShape]


def reconciled_shape(of: Reconciled) -> ReconciledShape:
    """Facts against the counter."""
    return ReconciledShape(
        basis=of.basis.value, facts=of.facts, finished=finite(of.finished), gap_ratio=finite(of.gap_ratio),
        by_class=dict(of.by_class), note=of.note,
    )  # fmt: skip


def attained_numbers(attained: Attained) -> dict[str, NumberShape]:
    """The numbers of an attainment by their names in the API."""
    names = ("attainment", "with_unaccounted", "goodput_per_s", "good_tokens_per_s", "valid", "unaccounted")
    return {name: number_shape(getattr(attained, name)) for name in names}


def attained_shape(attained: Attained, against: Reconciled) -> AttainedShape:
    """Attainment of a slice."""
    return AttainedShape(**attained_numbers(attained), reconciled=reconciled_shape(against))


def group_shape(group: GroupView) -> GroupShape:
    """One group."""
    numbers = attained_numbers(group.attained)
    return GroupShape(
        key=group.key, requests=group.requests, attainment=numbers["attainment"],
        goodput_per_s=numbers["goodput_per_s"],
    )  # fmt: skip


def cell_number(number: Number, against: Reconciled) -> Number:
    """A cell's number with the basis that all its requests have: only what agrees with a counter is counted."""
    if number.basis is not Basis.COUNTED or against.basis is Basis.COUNTED:
        return number
    why = against.note or "the engine's counter has another number of requests"
    return replace(number, basis=Basis.ESTIMATED, note="; ".join(filter(None, (number.note, why))))


def heatmap_shape(view: MapView, service: str, start_s: float, end_s: float) -> HeatmapShape:
    """A map."""
    ask = view.map.ask
    inputs, outputs = (
        [BandShape(low=b.low, high=b.high, text=b.text) for b in bands] for bands in (view.map.inputs, view.map.outputs)
    )
    return HeatmapShape(
        service=service, start_s=start_s, end_s=end_s, measure=measure_key(ask),
        quantile=quantile_key(ask.quantile) if ask.measure is Measure.LATENCY else None, text=measure_text(ask),
        made_of=view.made_of, inputs=inputs, outputs=outputs,
        cells=[
            CellShape(input=c.input, output=c.output, requests=c.requests, number=number_shape(cell_number(c.number, view.reconciled)))
            for c in view.map.cells
        ],
        attained=attained_shape(view.attained, view.reconciled),
    )  # fmt: skip


def rows_shape(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as JSON values; NaN and infinities are null."""
    return [
        {name: finite(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in frame.rows(named=True)
    ]


def requests_frame(rows: pl.DataFrame) -> pl.DataFrame:
    """Requests in the columns that leave goodwatch."""
    return rows.select(ROW_COLUMNS)


def trace_shape(trace_id: str, view: TraceView) -> TraceShape:
    """One trace."""
    return TraceShape(
        trace_id=trace_id, link=view.link or None, requests=rows_shape(requests_frame(view.facts)),
        spans=rows_shape(view.parts), scores=rows_shape(view.scores),
    )  # fmt: skip


def cost_shape(cost: RequestCost, against: Reconciled, of: Slice, by: str | None) -> CostShape:
    """The bill."""
    return CostShape(
        service=of.service, start_s=of.start_s, end_s=of.end_s, reconciled=reconciled_shape(against), usd=number_shape(cost.usd),
        idle_usd=number_shape(cost.idle_usd), knee=number_shape(cost.knee), silent=cost.silent,
        whole=_line(cost.whole), by=by, lines=[_line(one) for one in cost.lines],
    )  # fmt: skip


def _line(line: CostLine) -> CostLineShape:
    split: Mapping[str, float] | None = line.usd_by_class if line.usd.absence is None else None
    return CostLineShape(
        key=line.key, requests=line.requests, output_tokens=line.output_tokens, good_tokens=line.good_tokens,
        usd=number_shape(line.usd), usd_by_class=None if split is None else dict(split),
        usd_per_million_good_tokens=number_shape(line.usd_per_million_good_tokens),
        usd_per_million_output_tokens=number_shape(line.usd_per_million_output_tokens),
    )  # fmt: skip
