"""Single requests over HTTP: lists and files, one trace, attainment, the map and the bill of some of them."""

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from goodwatch.api.problem import ProblemError, documented
from goodwatch.api.request_files import FORMS, MAX_ROWS, Form, form_of, pieces
from goodwatch.api.request_query import COLUMNS, NOT_TOLD, Order, ask_of, order_of, slice_of
from goodwatch.api.request_shapes import (
    AttainmentShape,
    CostShape,
    HeatmapShape,
    RequestsShape,
    TraceShape,
    attained_numbers,
    cost_shape,
    group_shape,
    heatmap_shape,
    reconciled_shape,
    requests_frame,
    rows_shape,
    trace_shape,
)
from goodwatch.api.routes_query import asked_range, unknown_name
from goodwatch.api.shapes import rfc3339
from goodwatch.app.request_view import RequestViews, Slice
from goodwatch.app.view import Views

MAX_PAGE: Final = 1000
_ERRORS: Final = documented(400, 404, 503)


class When(BaseModel):
    """A service and a range."""

    service: str | None = Field(None, description="The service; may be left out where there is one only.")
    start: str | None = Field(None, alias="from", description="Begin; default one hour before `to`.")
    end: str | None = Field(None, alias="to", description="End; default now.")


class Which(When):
    """Which requests; all filters must fit. ``(not told)`` asks for those whose value is not known."""

    model: str | None = Field(None, description=f"Served model; `{NOT_TOLD}`: those that do not tell it.")
    tenant: str | None = Field(None, description="Who asked; likewise.")
    adapter: str | None = Field(None, description="LoRA adapter; likewise.")
    route: str | None = Field(None, description="Which way the request came; likewise.")
    form: str | None = Field(None, description="Form of interaction; likewise.")
    target: str | None = Field(None, description="Which target served it; likewise.")
    deployment: str | None = Field(None, description="What the target ran; likewise.")
    status: str | None = Field(None, description="ok, client_error, refused, error, timeout, aborted, unknown.")
    verdict: str | None = Field(None, description="good, bad, undetermined, not_valid.")


class Banded(Which):
    """Which requests, by their lengths and latency too."""

    input: str | None = Field(None, description=f"Input tokens: 64-255, 65536-, 0 or `{NOT_TOLD}`.")
    output: str | None = Field(None, description="Output tokens, likewise.")
    over: str | None = Field(None, description="Slower than this, by the latency of `order`, else E2E: 500ms.")


class Listed(Banded):
    """A list of requests."""

    order: str | None = Field(None, description="engine_ttft, …, client_e2e (slowest first), newest, output, input.")
    limit: int = Field(100, ge=1, le=MAX_PAGE, description=f"Requests a page, at most {MAX_PAGE}.")
    cursor: str = Field("", description="`next` of the page before, with `from` and `to` of its answer.")
    format: str = Field("", description=f"json, {', '.join(FORMS)}; or by Accept. Files have {MAX_ROWS} rows at most.")


class Mapped(Which):
    """A map."""

    measure: str | None = Field(
        None, description="engine_ttft, …, client_e2e, attainment, requests, cost, cost_good, quality."
    )
    q: str | None = Field(None, description="Of a latency: p50, p90, p95, p99.")


class Grouped(Banded):
    """Attainment, perhaps by a column."""

    by: str | None = Field(None, description=f"Split by {', '.join(COLUMNS)}.")


class Billed(When):
    """A bill, perhaps by a column."""

    by: str | None = Field(None, description=f"Split by {', '.join(COLUMNS)}.")


class Asking:
    """Finds out which requests a call is about. Wrong calls are problems."""

    def __init__(self, reads: RequestViews, views: Views) -> None:
        self._reads, self._views = reads, views

    def service(self, name: str | None) -> str:
        """The service; 404 when it is not known, 400 when it is missing and there are several."""
        known = self._reads.services()
        if name is None and len(known) == 1:
            return known[0]
        if name is None:
            what = f"missing; known: {', '.join(known[:10]) or 'none yet'}"
            raise ProblemError(400, f"service: {what}", errors=[("service", what)])
        if name not in known:
            raise unknown_name("service", name, known)
        return name

    def slice(self, which: When, order: Order | None = None) -> Slice:
        """Service, range and filters."""
        service, query = self.service(which.service), words_of(which)
        asked = asked_range(which.start, which.end, None, self._views.now_s())
        try:
            field = (order or order_of(query, self._reads.vantage(service))).field
            return slice_of(query, service, asked.start_s, asked.end_s, field=field)
        except ValueError as error:
            raise wrong(error) from error


def words_of(which: BaseModel) -> dict[str, str]:
    """What was asked, as the words of a URL."""
    return {name: str(value) for name, value in which.model_dump(exclude_none=True).items()}


def wrong(error: ValueError) -> ProblemError:
    """A problem of a part of the query; the message begins with its name."""
    where, _, what = str(error).partition(": ")
    return ProblemError(400, str(error), errors=[(where, what)])


def column_of(by: str | None) -> str | None:
    """The column to split by; None when none is asked for."""
    if by and by not in COLUMNS:
        raise wrong(ValueError(f"by: {by[:40]!r} is not one of {', '.join(COLUMNS)}"))
    return by or None


def request_routes(reads: RequestViews, views: Views) -> APIRouter:
    """Routes of single requests. The one of a trace comes last: the others would be traces to it."""
    router = APIRouter(prefix="/api/v1/requests", tags=["requests"])
    asking = Asking(reads, views)
    _list_route(router, reads, asking)
    _sum_routes(router, reads, asking)
    _cost_route(router, reads, asking)

    @router.get("/{trace_id}", summary="One trace", responses=documented(404, 503))
    async def trace(trace_id: str) -> TraceShape:
        """Its requests, the spans that they were made of, their scores. Latencies in seconds, by vantage point."""
        found = await reads.trace(trace_id.lower())
        if found is None:
            raise ProblemError(404, f"no trace {trace_id[:64]!r} is kept; spans settle a minute after the last one")
        return trace_shape(trace_id.lower(), found)

    return router


def _list_route(router: APIRouter, reads: RequestViews, asking: Asking) -> None:
    files: Mapping[str, Mapping[str, str]] = {one.media: {} for one in FORMS.values()}

    @router.get(
        "",
        summary="Requests of a service",
        response_model=RequestsShape,
        responses={200: {"content": dict(files)}, **_ERRORS},
    )
    async def listed(request: Request, which: Annotated[Listed, Query()]) -> Response | RequestsShape:
        """Slowest first unless asked otherwise; JSON by pages, or a file (CSV, Parquet, Arrow) of the same filters."""
        service, query = asking.service(which.service), words_of(which)
        try:
            order = order_of(query, reads.vantage(service))
            form = form_of(which.format, request.headers.get("accept", ""))
            offset = _offset(which.cursor)
        except ValueError as error:
            raise wrong(error) from error
        of = asking.slice(which, order)
        limit = MAX_ROWS if form else which.limit
        found = await reads.requests(
            of, order=order.column, descending=order.descending, limit=limit, offset=0 if form else offset
        )
        rows = requests_frame(found.rows)
        if form:
            headers = _file_headers(of, form, rows.height, found.total)
            return StreamingResponse(pieces(rows, form), 200, headers, form.media)
        after = offset + rows.height
        return RequestsShape(
            service=of.service, start_s=of.start_s, end_s=of.end_s, total=found.total,
            next=str(after) if after < found.total and rows.height else None, requests=rows_shape(rows),
        )  # fmt: skip


def _offset(cursor: str) -> int:
    if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 12):
        raise ValueError(f"cursor: {cursor[:40]!r} is not one of ours; use next of the page before")
    return int(cursor or 0)


def _file_headers(of: Slice, form: Form, rows: int, total: int) -> dict[str, str]:
    stamp = rfc3339(of.start_s)[:19].replace(":", "")
    return {
        "Content-Disposition": f'attachment; filename="requests-{stamp}.{form.suffix}"',
        "Goodwatch-Rows": str(rows),
        "Goodwatch-Rows-Total": str(total),
        "Vary": "Accept",
    }


def _sum_routes(router: APIRouter, reads: RequestViews, asking: Asking) -> None:
    @router.get("/heatmap", summary="Input length by output length", responses=_ERRORS)
    async def heatmap(which: Annotated[Mapped, Query()]) -> HeatmapShape:
        """A latency quantile, attainment, requests, cost or quality for each pair of length bands."""
        of = asking.slice(which)
        try:
            ask = ask_of(words_of(which), reads.vantage(of.service))
        except ValueError as error:
            raise wrong(error) from error
        return heatmap_shape(await reads.heatmap(of, ask), of.service, of.start_s, of.end_s)

    @router.get("/attainment", summary="Attainment and goodput of single requests", responses=_ERRORS)
    async def attainment(which: Annotated[Grouped, Query()]) -> AttainmentShape:
        """Good of valid requests with basis and interval, what is unaccounted, and the same by a column."""
        by, of = column_of(which.by), asking.slice(which)
        attained, against = await reads.attained(of)
        groups = await reads.groups(of, by) if by else []
        return AttainmentShape(
            **attained_numbers(attained), reconciled=reconciled_shape(against), service=of.service,
            vantage=reads.vantage(of.service).value, start_s=of.start_s, end_s=of.end_s, by=by,
            groups=[group_shape(one) for one in groups],
        )  # fmt: skip


def _cost_route(router: APIRouter, reads: RequestViews, asking: Asking) -> None:
    @router.get("/cost", summary="What the requests cost", responses=_ERRORS)
    async def cost(which: Annotated[Billed, Query()]) -> CostShape:
        """The bill of a service: idle, good, late, failed and aborted; per million good tokens, now and at the knee."""
        by, of = column_of(which.by), asking.slice(which)
        _, against = await reads.attained(of)
        return cost_shape(await reads.cost(of, by), against, of, by)
