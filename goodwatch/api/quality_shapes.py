"""What the API answers about quality. Pure."""

from typing import Any

from pydantic import BaseModel, Field

from goodwatch.api.shapes import NumberShape, number_shape
from goodwatch.app.judging import JudgeState
from goodwatch.core.quality import Agreement
from goodwatch.signals.quality_shares import QualityGroup, QualityNumbers


class RefusedScore(BaseModel):
    """A score that was not taken: a problem (RFC 9457) with its place in the batch."""

    type: str = "about:blank"
    title: str = "Unprocessable Entity"
    status: int = 422
    detail: str = Field(description="What is wrong and what would be right, for a person.")
    index: int = Field(description="Place in the batch, from 0.")


class TakenShape(BaseModel):
    """What became of a batch: every score is accepted or among the problems."""

    accepted: int = Field(description="Scores that are on the disk now.")
    refused: int = Field(description="Scores that are not kept; sending them again changes nothing.")
    problems: list[RefusedScore] = Field(description="Each of those, the first 1000.")


class QualityNumbersShape(BaseModel):
    """Shares of requests with 95 % intervals (Wilson; weights and traces respected)."""

    requests: int
    scored: int
    faulty: int = Field(description="Requests with a failed verdict, a built-in check's included.")
    scored_ratio: NumberShape
    quality_ratio: NumberShape = Field(description="Passed of scored.")
    fast_but_wrong: NumberShape = Field(description="Failed of the scored that met every latency target.")
    quality_when_slow: NumberShape = Field(description="Passed of the scored that missed a target.")
    good_and_passed: NumberShape = Field(description="Of valid requests; those without a score are inside the bounds.")
    good_and_passed_likely: NumberShape = Field(description="The same if scored requests are like the others.")


class QualityGroupShape(QualityNumbersShape):
    """The numbers of one value of a column in one step."""

    key: str | None = Field(description="null: not told.")
    start_s: float | None


class AgreementShape(BaseModel):
    """How well the judge and people agree on pass and fail."""

    pairs: int
    agreed_ratio: float | None
    kappa: float | None = Field(description="Cohen's kappa; null: chance alone explains all, or nothing to compare.")
    low: float | None
    high: float | None


class QualityShape(BaseModel):
    """Quality of the requests of a service."""

    service: str
    start_s: float
    end_s: float
    whole: QualityNumbersShape
    by: str | None
    groups: list[QualityGroupShape]
    evaluators: dict[str, NumberShape] = Field(description="Passed of judged, by evaluator; checks included.")
    agreement: dict[str, AgreementShape] = Field(description="Judge against people, by evaluator.")
    unjoined: int = Field(description="Scores of these traces of which nobody can tell which request they are about.")


class JudgeShape(BaseModel):
    """The judge today."""

    model: str
    day: str
    calls: int
    calls_per_day: int
    usd: NumberShape
    usd_per_day: float | None
    outcomes: dict[str, int] = Field(description="Answers since the start, by what came of them.")
    problem: str = Field(description="Why it does not go on; empty when it does.")


def numbers_shape(numbers: QualityNumbers) -> QualityNumbersShape:
    """Numbers of some requests."""
    return QualityNumbersShape(**_numbers(numbers))


def group_shape(group: QualityGroup) -> QualityGroupShape:
    """One group."""
    return QualityGroupShape(key=group.key, start_s=group.start_s, **_numbers(group.numbers))


def _numbers(of: QualityNumbers) -> dict[str, Any]:
    names = (
        "scored_ratio", "quality_ratio", "fast_but_wrong", "quality_when_slow", "good_and_passed",
        "good_and_passed_likely",
    )  # fmt: skip
    shares = {name: number_shape(getattr(of, name)) for name in names}
    return {"requests": of.requests, "scored": of.scored, "faulty": of.faulty, **shares}


def agreement_shape(of: Agreement) -> AgreementShape:
    """Agreement with people."""
    return AgreementShape(pairs=of.pairs, agreed_ratio=of.agreed_ratio, kappa=of.kappa, low=of.low, high=of.high)


def judge_shape(state: JudgeState) -> JudgeShape:
    """The judge."""
    return JudgeShape(
        model=state.model, day=state.day, calls=state.calls, calls_per_day=state.calls_per_day,
        usd=number_shape(state.usd), usd_per_day=state.usd_per_day, outcomes=dict(state.outcomes),
        problem=state.problem,
    )  # fmt: skip
