"""What the API takes and answers about recommendations. Pure."""

from pydantic import BaseModel, ConfigDict, Field

from goodwatch.app.advising import Answer
from planner.candidate import Candidate
from planner.recommendations import Band, Predicted, Recommendation


class BandShape(BaseModel):
    """A figure with its 80 % interval."""

    point: float
    low: float
    high: float


class PredictedShape(BaseModel):
    """One metric: as it is, as it will be, the change, and what was measured."""

    metric: str = Field(
        description="attainment_ratio, ttft_p99_seconds, tpot_p99_seconds, usd_per_million_good_tokens, vram_headroom_ratio."
    )
    now: BandShape
    then: BandShape
    change: BandShape = Field(description="Then over now, or then less now: see scale.")
    scale: str = Field(description="ratio or difference.")
    measured: float | None = Field(description="The change after it was applied; null until it was checked.")
    inside: bool | None = Field(description="Whether the measured change lay in the interval.")
    after: float | None = Field(description="The metric itself after the change, on matched traffic.")


class DiffShape(BaseModel):
    """One line of the change."""

    setting: str
    before: str = Field(description="Empty: the engine's default, or not told.")
    after: str
    flags_before: str = Field(description="As the engine is told it; empty where nothing is said.")
    flags_after: str


class StepShape(BaseModel):
    """One move of a recommendation."""

    at_s: float
    state: str
    by: str
    note: str


class RecommendationShape(BaseModel):
    """One recommendation with everything that is known of it."""

    id: str
    service: str
    strategy: str
    lever: str
    title: str
    mode: str = Field(description="restore (attainment) or save (money).")
    state: str = Field(description="proposed, accepted, declined, applied, verified, refuted, inconclusive.")
    changes: dict[str, object]
    diff: list[DiffShape]
    reason: str
    predicted: list[PredictedShape]
    saving_usd_per_week: BandShape | None
    confidence: str
    confidence_why: str
    evidence_from_s: float
    evidence_to_s: float
    requests: int = Field(description="In the evidence.")
    check_requests: int = Field(description="Requests after the change that a verdict needs.")
    assumes: list[str]
    risks: list[str]
    restart: bool
    gate: str = Field(description="Quality check that must pass first; empty: none.")
    rollback: str
    missing: list[str]
    findings: list[str]
    drift: str
    trigger: str
    steps: list[StepShape]
    experiment: str
    verdict: str


class RecommendationsShape(BaseModel):
    """Recommendations, newest first."""

    recommendations: list[RecommendationShape]


class AdviceAsked(BaseModel):
    """A question."""

    model_config = ConfigDict(extra="forbid")

    service: str = Field(min_length=1, max_length=200)
    window: str = Field("24h", description="Evidence: how far back.")
    mode: str | None = Field(None, description="restore (attainment) or save (money); without it attainment decides.")


class SaidAsked(BaseModel):
    """What a person says to a recommendation."""

    model_config = ConfigDict(extra="forbid")

    by: str = Field("", max_length=200, description="Who; the caller's token has a name as well.")
    note: str = Field("", max_length=2000, description="Why; needed to decline.")
    at: str | None = Field(None, description="When it was applied: Unix seconds, RFC 3339 or now.")


class NotChosen(BaseModel):
    """A change that is no advice, or a strategy that says nothing."""

    strategy: str
    title: str
    why_not: str


class AnswerShape(BaseModel):
    """What one run came to."""

    mode: str = Field(description="restore, save or none.")
    reason: str = Field(description="Why there is no advice; empty when there is some.")
    attainment_now: BandShape | None
    made: list[RecommendationShape]
    known: list[RecommendationShape] = Field(description="The same advice, given before.")
    not_chosen: list[NotChosen]
    missing: list[str]
    findings: list[str]


def recommendation_shape(one: Recommendation) -> RecommendationShape:
    """One recommendation."""
    return RecommendationShape(
        id=one.id, service=one.service, strategy=one.strategy, lever=one.lever, title=one.title, mode=one.mode,
        state=one.state, changes=dict(one.changes),
        diff=[
            DiffShape(setting=d.setting, before=d.before, after=d.after, flags_before=d.flags_before, flags_after=d.flags_after)
            for d in one.diff
        ],
        reason=one.reason, predicted=[_predicted(p) for p in one.predicted], saving_usd_per_week=_band(one.saving_usd_per_week),
        confidence=one.confidence, confidence_why=one.confidence_why, evidence_from_s=one.window[0],
        evidence_to_s=one.window[1], requests=one.requests, check_requests=one.check_requests, assumes=list(one.assumes),
        risks=list(one.risks), restart=one.restart, gate=one.gate, rollback=one.rollback, missing=list(one.missing),
        findings=list(one.findings), drift=one.drift, trigger=one.trigger,
        steps=[StepShape(at_s=s.at_s, state=s.state, by=s.by, note=s.note) for s in one.steps], experiment=one.experiment,
        verdict=one.verdict,
    )  # fmt: skip


def answer_shape(answer: Answer) -> AnswerShape:
    """What one run came to."""
    advice = answer.advice
    now = None if advice.stay is None else advice.stay.attainment
    return AnswerShape(
        mode=advice.mode, reason=advice.reason,
        attainment_now=None if now is None else BandShape(point=now.point, low=now.low, high=now.high),
        made=[recommendation_shape(one) for one in answer.made], known=[recommendation_shape(one) for one in answer.known],
        not_chosen=[*(_lost(one) for one in advice.lost),
                    *(NotChosen(strategy=a.strategy, title="", why_not=a.reason) for a in advice.abstained)],
        missing=list(advice.missing), findings=list(answer.findings),
    )  # fmt: skip


def _lost(one: Candidate) -> NotChosen:
    return NotChosen(strategy=one.proposal.strategy, title=one.proposal.title, why_not=one.why_not)


def _predicted(one: Predicted) -> PredictedShape:
    return PredictedShape(
        metric=one.metric, now=_some(one.now), then=_some(one.then), change=_some(one.change), scale=one.scale,
        measured=one.measured, inside=one.inside, after=one.after,
    )  # fmt: skip


def _some(band: Band) -> BandShape:
    return BandShape(point=band.point, low=band.low, high=band.high)


def _band(band: Band | None) -> BandShape | None:
    return None if band is None else _some(band)
