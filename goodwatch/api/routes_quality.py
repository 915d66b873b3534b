"""Quality over HTTP: scores in, one or many; shares, agreement and the judge out."""

import asyncio
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import Field

from collector.quality.posted import MOST_SCORES, Posted, PostedScore, Refusal, posted
from goodwatch.api.problem import ProblemError, documented
from goodwatch.api.quality_shapes import (
    JudgeShape,
    QualityShape,
    RefusedScore,
    TakenShape,
    agreement_shape,
    group_shape,
    judge_shape,
    numbers_shape,
)
from goodwatch.api.routes_query import asked_range
from goodwatch.api.routes_requests import Asking, Which
from goodwatch.api.shapes import number_shape
from goodwatch.app.quality_reads import GROUPED_BY, QualityReads
from goodwatch.app.view import Views
from goodwatch.core.ports import RequestStore

MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_TOLD: Final = 1000
#: FastAPI knows only bodies that it reads itself; this one is read with a limit
_ONE: Final = PostedScore.model_json_schema()
_BODY: Final = {"schema": {"oneOf": [_ONE, {"type": "array", "maxItems": MOST_SCORES, "items": _ONE}]}}
_ONE_OR_MANY: Final = {"requestBody": {"required": True, "content": {"application/json": _BODY}}}


class Rated(Which):
    """Quality of some requests, perhaps split."""

    by: str | None = Field(None, description=f"Split by {', '.join(GROUPED_BY)}.")
    step: str | None = Field(None, description="Split by time as well: 1h, 1d.")


def quality_routes(store: RequestStore, quality: QualityReads, views: Views) -> APIRouter:
    """Routes of quality. ``store`` keeps what is posted."""
    router = APIRouter(prefix="/api/v1/quality", tags=["quality"])
    _intake_route(router, store, views)
    asking = Asking(quality.reads, views)

    @router.get("", summary="Quality of a service", responses=documented(400, 404, 503))
    async def rated(which: Annotated[Rated, Query()]) -> QualityShape:
        """How many scored requests pass, how many are fast but wrong, how many are good and passed; with intervals."""
        of = asking.slice(which)
        if which.by is not None and which.by not in GROUPED_BY:
            what = f"{which.by[:40]!r} is not one of {', '.join(GROUPED_BY)}"
            raise ProblemError(400, f"by: {what}", errors=[("by", what)])
        step_s = asked_range(which.start, which.end, which.step, views.now_s()).step_s
        found = await quality.quality(of, which.by, step_s)
        return QualityShape(
            service=of.service, start_s=of.start_s, end_s=of.end_s, whole=numbers_shape(found.whole), by=which.by,
            groups=[group_shape(one) for one in found.groups],
            evaluators={name: number_shape(one) for name, one in found.evaluators.items()},
            agreement={name: agreement_shape(one) for name, one in found.agreement.items()},
            unjoined=found.unjoined,
        )  # fmt: skip

    @router.get("/judge", summary="The judge", responses=documented(404, 503))
    async def judge() -> JudgeShape:
        """What it did and spent today (UTC)."""
        state = await quality.judge()
        if state is None:
            raise ProblemError(404, "no judge is configured; write quality.judge, and quality.keep_text: true")
        return judge_shape(state)

    return router


def _intake_route(router: APIRouter, store: RequestStore, views: Views) -> None:
    @router.post(
        "", summary="Post scores", responses=documented(400, 413, 415, 422, 503), openapi_extra=_ONE_OR_MANY,
    )  # fmt: skip
    async def post(request: Request) -> TakenShape:
        """One score as an object, or up to 10,000 as an array. Each is taken or refused by itself; 422 when none is.

        What is accepted is on the disk when the answer comes. The same identity again replaces, so a retry is safe.
        """
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ProblemError(415, f"Content-Type {kind[:80]!r}: send application/json")
        body = await _limited(request)
        taken = await asyncio.to_thread(_taken, body, views.now_s())
        if not taken.frame.is_empty():
            await asyncio.to_thread(store.append_scores, taken.frame)
        elif taken.refused:
            errors = [
                (f"[{one.index}].{where}".rstrip("."), what) for one in taken.refused for where, what in one.faults
            ]
            shown = "; ".join(f"{where}: {what}" for where, what in errors[:3])
            raise ProblemError(422, f"no score is usable: {shown}", errors=errors[:_MOST_TOLD])
        return TakenShape(
            accepted=taken.frame.height, refused=len(taken.refused),
            problems=[RefusedScore(detail=_detail(one), index=one.index) for one in taken.refused[:_MOST_TOLD]],
        )  # fmt: skip


async def _limited(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise ProblemError(413, f"the body is over {MOST_BYTES // 1024**2} MiB; send fewer scores at once")
    return bytes(body)


def _taken(body: bytes, now_s: float) -> Posted:
    try:
        found: Any = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ProblemError(400, "the body is not JSON; send one score as an object, or several as an array") from error
    items = found if isinstance(found, list) else [found]
    if len(items) > MOST_SCORES:
        raise ProblemError(413, f"{len(items)} scores at once; send at most {MOST_SCORES:,}")
    return posted(items, now_s)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _detail(one: Refusal) -> str:
    return "; ".join(f"{where}: {what}" if where else what for where, what in one.faults)
