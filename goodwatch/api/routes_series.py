"""A service's numbers over time, as JSON columns or CSV."""

import asyncio
import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from goodwatch.api.problem import documented
from goodwatch.api.routes_query import Range, asked_names, asked_range, unknown_name
from goodwatch.api.shapes import finite, rfc3339
from goodwatch.app.view import Views
from goodwatch.core.model import Absence
from goodwatch.signals.derive import MEANINGS

#: compressing less than this costs more than it saves
_GZIP_BYTES: Final = 2000
_CSV_HEAD: Final = ("at", "at_s", "name", "unit", "value", "low", "high", "open", "basis", "absence", "note")


class ColumnShape(BaseModel):
    """One number over time; every list has one entry a step."""

    unit: str
    value: list[float | None]
    low: list[float | None]
    high: list[float | None]
    open: list[bool]
    basis: list[str | None]
    absence: list[str | None]
    note: list[str]


class SeriesShape(BaseModel):
    """Numbers of a service or target over time; ``at_s`` is each step's end (Unix time)."""

    service: str
    target: str | None = Field(description="null: the whole service.")
    start_s: float
    end_s: float
    step_s: float | None = Field(description="Length of a step; null when there is none.")
    at_s: list[float]
    series: dict[str, ColumnShape]


def series_routes(views: Views) -> APIRouter:
    """The route of a service's series."""
    router = APIRouter(prefix="/api/v1", tags=["services"])

    @router.get(
        "/services/{name:path}/series",
        summary="A service's numbers over time",
        response_model=SeriesShape,
        responses={200: {"content": {"text/csv": {}}}, **documented(400, 404, 503)},
    )
    async def series(
        request: Request,
        name: str,
        *,
        start: Annotated[str | None, Query(alias="from", description="Begin; default one hour before `to`.")] = None,
        end: Annotated[str | None, Query(alias="to", description="End; default now.")] = None,
        step: Annotated[str | None, Query(description="Step such as 60 or 1m; at most 2000 steps.")] = None,
        names: Annotated[list[str] | None, Query(description="Names of numbers, comma-separated; default all.")] = None,
        target: Annotated[str | None, Query(description="Only this target of the service.")] = None,
    ) -> Response:
        """JSON columns, or one line a step and name with `Accept: text/csv`. Times: Unix seconds, RFC 3339, `-1h`."""
        service = views.service(name)
        if service is None:
            raise unknown_name("service", name, [s.name for s in views.services()])
        known = [t.name for t in service.targets]
        if target is not None and target not in known:
            raise unknown_name("target", target, known)
        wanted, asked = asked_names(names or (), MEANINGS), asked_range(start, end, step, views.now_s())
        frame = await views.series(name, asked.start_s, asked.end_s, step_s=asked.step_s, target=target)
        accepts = request.headers
        form = _Form("text/csv" in accepts.get("accept", ""), "gzip" in accepts.get("accept-encoding", ""))
        return await asyncio.to_thread(lambda: _answer(series_shape(frame, wanted, name, target, asked), form))

    return router


def series_shape(
    frame: pl.DataFrame, names: Sequence[str], service: str, target: str | None, asked: Range
) -> SeriesShape:
    """Columns of a frame of ``frames.DERIVED``, all models together; a step that a name lacks is null."""
    rows = frame.filter((pl.col("model") == "") & pl.col("name").is_in(list(names)))
    steps = rows.select("ts").unique().sort("ts")
    groups = {str(key[0]): group for key, group in rows.partition_by("name", as_dict=True).items()}
    return SeriesShape(
        service=service, target=target, start_s=asked.start_s, end_s=asked.end_s,
        step_s=None if rows.is_empty() else float(rows["window_s"][0]),
        at_s=steps["ts"].to_list(),
        series={name: _column(name, steps, groups.get(name, rows.clear())) for name in names},
    )  # fmt: skip


def _column(name: str, steps: pl.DataFrame, group: pl.DataFrame) -> ColumnShape:
    aligned = steps.join(group.unique("ts", keep="last"), on="ts", how="left", maintain_order="left")
    value, low, high = ([finite(v) for v in aligned[end]] for end in ("value", "low", "high"))
    gone = [a is None and b is None and c is None for a, b, c in zip(value, low, high, strict=True)]
    told = [_absence(n or "") if missing else (None, n or "") for n, missing in zip(aligned["note"], gone, strict=True)]
    return ColumnShape(
        unit=MEANINGS[name].unit, value=value, low=low, high=high,
        open=[a is not None and b is None for a, b in zip(low, high, strict=True)],
        basis=[basis or None for basis in aligned["basis"]],
        absence=[absence for absence, _ in told],
        note=[note for _, note in told],
    )  # fmt: skip


def _absence(note: str) -> tuple[str, str]:
    """Absence and note of a cell without a number: its kept note begins with the absence."""
    for absence in Absence:
        head, rest = note[: len(absence.value)], note[len(absence.value) :]
        if head == absence.value and rest[:1] in ("", ":"):
            return absence.value, rest.lstrip(": ")
    return Absence.NO_DATA.value, note


@dataclass(frozen=True, slots=True)
class _Form:
    """What the caller takes."""

    csv: bool
    gzip: bool


def _answer(shape: SeriesShape, form: _Form) -> Response:
    body = (_csv(shape) if form.csv else shape.model_dump_json()).encode()
    headers = {"Vary": "Accept, Accept-Encoding"}
    if form.gzip and len(body) > _GZIP_BYTES:
        body, headers["Content-Encoding"] = gzip.compress(body, 5), "gzip"
    return Response(body, 200, headers, "text/csv" if form.csv else "application/json")


def _csv(shape: SeriesShape) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    writer.writerow(_CSV_HEAD)
    for i, at_s in enumerate(shape.at_s):
        for name, c in shape.series.items():
            writer.writerow(
                (rfc3339(at_s), at_s, name, c.unit, c.value[i], c.low[i], c.high[i], str(c.open[i]).lower(),
                 c.basis[i], c.absence[i], c.note[i])
            )  # fmt: skip
    return text.getvalue()
