"""Recommendations over HTTP: the list, one, a question, and what people say to one."""

from typing import Annotated

from fastapi import APIRouter, Query

from goodwatch.api.problem import ProblemError, documented
from goodwatch.api.recommendation_shapes import (
    AdviceAsked,
    AnswerShape,
    RecommendationShape,
    RecommendationsShape,
    SaidAsked,
    answer_shape,
    recommendation_shape,
)
from goodwatch.api.routes_query import instant_s
from goodwatch.app.advising import Advising, Asked
from goodwatch.core.duration import duration_s
from goodwatch.core.errors import ConfigError
from planner.recommend import Mode
from planner.recommendations import MOVES, State

_MODES: dict[str | None, Mode | None] = {None: None, "restore": "restore", "save": "save"}


def recommendation_routes(advising: Advising) -> APIRouter:
    """Routes of recommendations."""
    router = APIRouter(prefix="/api/v1", tags=["recommendations"])

    @router.get("/recommendations", summary="What was recommended", responses=documented(400, 503))
    async def recommendations(
        service: Annotated[str | None, Query(description="Of this service.")] = None,
        state: Annotated[str | None, Query(description="In this state.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
    ) -> RecommendationsShape:
        """The newest first; of one run the best first."""
        if state is not None and state not in MOVES:
            raise ProblemError(400, f"state: {state[:40]!r} is not one of {', '.join(MOVES)}")
        found = [one for one in advising.all(service) if state in (None, one.state)]
        return RecommendationsShape(recommendations=[recommendation_shape(one) for one in found[:limit]])

    @router.post("/recommendations", summary="Ask for advice", responses=documented(400, 404, 503))
    async def ask(asked: AdviceAsked) -> AnswerShape:
        """Reads the service's traffic and flags, simulates every change beside staying, keeps what surely helps.

        Takes seconds of a processor. Nothing is applied. Advice that was given before is not repeated, but told.
        """
        question = question_of(asked.service, asked.window, asked.mode)
        try:
            return answer_shape(await advising.ask(question))
        except ConfigError as error:
            raise ProblemError(400, str(error)) from error

    @router.get("/recommendations/{id}", summary="One recommendation", responses=documented(404))
    async def one(id: str) -> RecommendationShape:
        """With its diff, what it predicts, and what became of it."""
        found = advising.one(id)
        if found is None:
            raise ProblemError(404, f"no recommendation {id[:100]!r}; GET /api/v1/recommendations lists them")
        return recommendation_shape(found)

    _said_routes(router, advising)
    return router


def question_of(service: str, window: str, mode: str | None) -> Asked:
    """A person's question. Raises ``ProblemError`` (400)."""
    if mode not in _MODES:
        raise ProblemError(400, f"mode: {str(mode)[:40]!r} is not one of restore, save")
    try:
        window_s = duration_s(window)
    except ValueError as error:
        raise ProblemError(400, f"window: {window[:40]!r} {error}") from error
    return Asked(service, "person", window_s, _MODES[mode])


def _said_routes(router: APIRouter, advising: Advising) -> None:
    async def said(id: str, to: State, asked: SaidAsked) -> RecommendationShape:
        now_s = advising.clock.now_s()
        at_s = now_s if asked.at is None else instant_s(asked.at, now_s, "at")
        if at_s > now_s:
            raise ProblemError(400, "at: is in the future; say when it was")
        if advising.one(id) is None:
            raise ProblemError(404, f"no recommendation {id[:100]!r}; GET /api/v1/recommendations lists them")
        try:
            return recommendation_shape(await advising.move(id, to, asked.by or "a person", asked.note, at_s))
        except ConfigError as error:
            raise ProblemError(409, str(error)) from error

    @router.post("/recommendations/{id}/accept", summary="Accept", responses=documented(404, 409, 503))
    async def accept(id: str, asked: SaidAsked) -> RecommendationShape:
        """Somebody means to apply it; goodwatch changes nothing."""
        return await said(id, "accepted", asked)

    @router.post("/recommendations/{id}/decline", summary="Decline", responses=documented(404, 409, 503))
    async def decline(id: str, asked: SaidAsked) -> RecommendationShape:
        """With the reason; it is not made again for 30 days unless more is to be gained than was promised now."""
        return await said(id, "declined", asked)

    @router.post(
        "/recommendations/{id}/applied", summary="Tell that it was applied", responses=documented(400, 404, 409, 503)
    )
    async def applied(id: str, asked: SaidAsked) -> RecommendationShape:
        """For engines that do not tell their flags. It is checked as soon as enough requests came."""
        return await said(id, "applied", asked)
