"""Experiments over HTTP: the ledger out, result files and entries in, and how the planner's predictions fared."""

import asyncio
import json
import re
from typing import Annotated, Any, Final, get_args

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, ValidationError

from goodwatch.api.experiment_shapes import (
    ExperimentAsked,
    ExperimentShape,
    ExperimentsShape,
    PlannerCalibrationShape,
    calibration_shape,
    experiment_shape,
    experiments_shape,
)
from goodwatch.api.problem import ProblemError, documented
from goodwatch.api.routes_query import instant_s
from goodwatch.app.experiment_ledger import ExperimentLedger, Files, IdTakenError, Wanted
from goodwatch.app.experimenting import new_id
from goodwatch.core.clock import Clock
from goodwatch.core.errors import ConfigError
from planner.experiments.values import Experiment, Outcome, State, from_body

MOST_BYTES: Final = 16 * 1024 * 1024
MAX_EXPERIMENTS: Final = 1_000
MOST_RUNS: Final = 1_000
#: an id is a step of a URL and a name in lists
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: FastAPI knows only bodies that it reads itself; this one is read with a limit
_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": ExperimentAsked.model_json_schema(
        ref_template="#/components/schemas/{model}")}}}
}  # fmt: skip
_BODY["requestBody"]["content"]["application/json"]["schema"].pop("$defs", None)


class ExperimentsAsked(BaseModel):
    """Which experiments."""

    service: str | None = Field(None, description="Of this service; empty: those of none.")
    state: str | None = Field(None, description=f"One of {', '.join(get_args(State))}.")
    verdict: str | None = Field(None, description=f"One of {', '.join(get_args(Outcome))}, none (not judged).")
    since: str | None = Field(None, description="Kept, or changed, at or after this time; all without it.")
    limit: int = Field(100, ge=1, le=MAX_EXPERIMENTS, description=f"At most so many, up to {MAX_EXPERIMENTS}.")

    def wanted(self, now_s: float) -> Wanted:
        """The same as a value. Raises ``ProblemError`` (400)."""
        known = (get_args(State), (*get_args(Outcome), "none"))
        for where, value, names in zip(("state", "verdict"), (self.state, self.verdict), known, strict=True):
            if value is not None and value not in names:
                raise _wrong(where, f"{value[:40]!r} is not one of {', '.join(names)}")
        since_s = None if self.since is None else instant_s(self.since, now_s, "since")
        return Wanted(self.service, self.state, self.verdict, since_s, self.limit)


def experiment_routes(ledger: ExperimentLedger, clock: Clock) -> APIRouter:
    """Routes of experiments and of the planner's calibration."""
    router = APIRouter(prefix="/api/v1", tags=["experiments"])
    _intake_route(router, ledger, clock)

    @router.get("/experiments", summary="Experiments", responses=documented(400, 503))
    async def experiments(asked: Annotated[ExperimentsAsked, Query()]) -> ExperimentsShape:
        """Newest first: what was asked, what was changed, what it did, and whether that had been predicted."""
        return await asyncio.to_thread(experiments_shape, await ledger.listed(asked.wanted(clock.now_s())))

    @router.get("/experiments/{id}", summary="One experiment", responses=documented(404, 409, 503))
    async def experiment(
        id: str, redacted: Annotated[bool, Query(description="The copy that may be given away.")] = False
    ) -> ExperimentShape:
        """All that is kept, raw values included; or a copy without names, texts, times and prices."""
        try:
            found = await ledger.one(id)
        except ConfigError as error:
            raise ProblemError(409, str(error)) from error
        if found is None:
            raise ProblemError(404, f"no experiment {id[:100]!r}; GET /api/v1/experiments lists them")
        return await asyncio.to_thread(lambda: experiment_shape(found, redact=redacted))

    @router.get("/planner/calibration", summary="Were predictions right", responses=documented(503))
    async def calibration(
        service: Annotated[str | None, Query(description="Of this service; all without it.")] = None,
    ) -> PlannerCalibrationShape:
        """How many results were inside what the planner had predicted, against how many should be; by metric, by time."""
        return calibration_shape(await ledger.calibrated(service))

    return router


def _intake_route(router: APIRouter, ledger: ExperimentLedger, clock: Clock) -> None:
    @router.post(
        "/experiments", summary="Keep an experiment", status_code=201, responses=documented(400, 409, 413, 503),
        openapi_extra=_BODY,
    )  # fmt: skip
    async def keep(
        request: Request, update: Annotated[bool, Query(description="A new version of an id that is there.")] = False
    ) -> ExperimentShape:
        """An experiment's body, or the text of result files. It is judged here and on the disk when the answer comes."""
        asked = await asyncio.to_thread(_asked, await _limited(request))
        try:
            if asked.experiment is not None:
                made = await asyncio.to_thread(_experiment, asked.experiment, clock.now_s())
                kept = await ledger.keep(made, update=update)
            else:
                kept = await ledger.keep_files(_files(asked))
        except IdTakenError as error:
            raise ProblemError(409, str(error)) from error
        except ConfigError as error:
            raise ProblemError(400, str(error)) from error
        return await asyncio.to_thread(lambda: experiment_shape(kept, redact=False))


async def _limited(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise ProblemError(
                413, f"the body is over {MOST_BYTES // 1024**2} MiB; send fewer files, or without raw values"
            )
    return bytes(body)


def _asked(body: bytes) -> ExperimentAsked:
    try:
        told: Any = json.loads(body, parse_constant=_no_constant)
        json.dumps(told, ensure_ascii=False).encode()  # half a character cannot be kept
    except (ValueError, RecursionError) as error:
        raise ProblemError(
            400, "the body is not JSON; send {experiment: …}, or {baseline: [{name, text}], …}"
        ) from error
    try:
        asked = ExperimentAsked.model_validate(told)
    except ValidationError as error:
        faults = [
            (".".join(map(str, one["loc"])) or "body", str(one["msg"]))
            for one in error.errors(include_url=False, include_input=False)[:20]
        ]
        raise ProblemError(400, "; ".join(f"{where}: {what}" for where, what in faults[:3]), errors=faults) from error
    if (asked.experiment is None) == (not asked.baseline):
        raise _wrong("experiment", "send experiment, or baseline with result files, one of them")
    return asked


def _experiment(body: dict[str, Any], now_s: float) -> Experiment:
    """The experiment of a body, its verdict left out. Raises ``ProblemError`` and ``ConfigError``."""
    made = from_body({"id": new_id("posted", now_s), "state": "done", **body, "verdict": None})
    if not _ID.fullmatch(made.id) or made.id == "calibration":  # which is a page beside them
        raise _wrong("experiment.id", "write letters, digits, - _ or ., at most 100, a letter or digit first")
    if len(made.baseline.runs) + len(made.candidate.runs) > MOST_RUNS:
        raise _wrong("experiment", f"more than {MOST_RUNS} runs; send fewer")
    return made


def _files(asked: ExperimentAsked) -> Files:
    names = [one.name for one in (*asked.baseline, *asked.candidate)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _wrong("baseline", f"two files are named {twice[0][:80]!r}; each needs a name of its own")
    baseline, candidate = (tuple((one.name, one.text) for one in side) for side in (asked.baseline, asked.candidate))
    return Files(baseline, candidate, asked.question, asked.metric, asked.service)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _wrong(where: str, what: str) -> ProblemError:
    return ProblemError(400, f"{where}: {what}", errors=[(where, what)])
