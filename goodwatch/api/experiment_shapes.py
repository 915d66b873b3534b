"""What the API takes and answers about experiments and the planner's calibration. Pure."""

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from goodwatch.app.experiment_ledger import Calibrated, Listed
from planner.experiments.calibration import Calibration, Checked
from planner.experiments.redact import redacted
from planner.experiments.values import Experiment, Metric, Prediction, to_body

#: JSON has no ∞
_LARGEST: Final = 1e300


class FileAsked(BaseModel):
    """A result file of a load-test tool."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="Its name, for findings; it is not opened.")
    text: str = Field(min_length=1, description="What is in it: JSON, JSON lines or CSV.")


class ExperimentAsked(BaseModel):
    """An experiment to keep: either its body, or result files of one side or two."""

    model_config = ConfigDict(extra="forbid")

    experiment: dict[str, Any] | None = Field(None, description="A body as GET gives it; its verdict is made anew.")
    baseline: list[FileAsked] = Field([], max_length=100, description="Files of the first side, one a repeat.")
    candidate: list[FileAsked] = Field([], max_length=100, description="Of the second; without it nothing is judged.")
    question: str = Field("", max_length=500)
    metric: str | None = Field(None, max_length=200, description="Which metric decides.")
    service: str = Field("", max_length=200)


class MetricShape(BaseModel):
    """What is compared."""

    name: str
    unit: str
    better: str = Field(description="lower or higher.")
    scale: str = Field(description="ratio: candidate / baseline; difference: candidate - baseline.")


class FactorShape(BaseModel):
    """The one thing that was changed."""

    name: str
    baseline: str
    candidate: str


class ChangeShape(BaseModel):
    """A change on the metric's scale with its 97 % interval."""

    value: float
    low: float | None
    high: float | None


class PredictionShape(BaseModel):
    """What was expected, on the metric's scale."""

    low: float
    high: float
    level: float = Field(description="Share of such predictions that should hold.")
    inside: bool | None = Field(description="null: nothing could be concluded yet.")


class ExperimentRow(BaseModel):
    """An experiment in the list; the first metric decides."""

    id: str
    question: str
    service: str = Field(description="Empty: of no service.")
    design: str
    state: str
    created_s: float | None
    factor: FactorShape | None
    metric: MetricShape
    verdict: str | None = Field(description="better, worse, no_difference, inconclusive; null: not judged.")
    reason: str
    change: ChangeShape | None
    quality: str = Field(description="Gate: passed, vetoed, not_shown, not_asked.")
    prediction: PredictionShape | None
    gpu_hours_ratio: float | None = Field(description="GPU-hours for the same work, candidate / baseline.")


class UnreadableShape(BaseModel):
    """An entry that this version cannot read."""

    id: str
    detail: str


class ExperimentsShape(BaseModel):
    """Experiments, newest first."""

    experiments: list[ExperimentRow]
    fitting: int = Field(description="How many fit the filters; more than are listed when limit cut them.")
    unreadable: list[UnreadableShape]


class ExperimentShape(BaseModel):
    """An experiment with everything that is kept, or the copy that may be given away."""

    redacted: bool
    experiment: dict[str, Any]


class CalibrationShape(BaseModel):
    """How often predictions held. Ends are of a 95 % interval (Wilson)."""

    predictions: int
    inside: int
    level: float | None = Field(description="Share that should be inside.")
    coverage_ratio: float | None = Field(description="Share that was; null without predictions.")
    low: float | None
    high: float | None
    sharpness: float | None = Field(description="Median width, upper / lower end; ratios only.")
    bias: float | None = Field(description="Median of measured / predicted; ratios only.")
    text: str
    fault: str = Field(description="narrow or wide when it is surely so, else empty.")


class CalibrationStep(CalibrationShape):
    """The same of one step of time."""

    start_s: float


class CheckedShape(BaseModel):
    """One prediction and its result, on the metric's scale."""

    experiment: str
    metric: str
    at_s: float | None
    low: float
    high: float
    level: float
    basis: str
    measured: float
    inside: bool
    miss: float | None = Field(
        description="How far outside, in half widths; 0 inside; null: the interval has no width."
    )
    certain: bool = Field(description="false: the measurement's own interval reaches over an end.")


class PlannerCalibrationShape(BaseModel):
    """The planner's predictions against results."""

    whole: CalibrationShape
    by_metric: dict[str, CalibrationShape]
    step_s: float
    steps: list[CalibrationStep]
    checked: list[CheckedShape]


def experiments_shape(found: Listed) -> ExperimentsShape:
    """The list."""
    odd = [UnreadableShape(id=id, detail=what) for id, what in found.unreadable]
    return ExperimentsShape(
        experiments=[experiment_row(one) for one in found.experiments], fitting=found.fitting, unreadable=odd
    )


def experiment_row(one: Experiment) -> ExperimentRow:
    """One experiment of the list."""
    verdict, factor = one.verdict, one.factor
    return ExperimentRow(
        id=one.id, question=one.question, service=one.service, design=one.design, state=one.state,
        created_s=one.created_s, metric=_metric(one.primary), reason=verdict.reason if verdict else "",
        factor=FactorShape(name=factor.name, baseline=factor.baseline, candidate=factor.candidate) if factor else None,
        verdict=verdict.outcome if verdict else None, change=_change(one), prediction=_prediction(one),
        quality=verdict.gate if verdict else "not_asked", gpu_hours_ratio=verdict.gpu_hours_ratio if verdict else None,
    )  # fmt: skip


def _metric(metric: Metric) -> MetricShape:
    return MetricShape(name=metric.name, unit=metric.unit, better=metric.better, scale=metric.scale)


def _change(one: Experiment) -> ChangeShape | None:
    effect = next((e for e in one.verdict.effects if e.metric == one.primary.name), None) if one.verdict else None
    if effect is None or effect.value is None:
        return None
    return ChangeShape(value=effect.value, low=effect.low, high=effect.high)


def primary_prediction(one: Experiment) -> Prediction | None:
    """What was expected of the metric that decides."""
    return next((p for p in one.predictions if p.metric == one.primary.name), None)


def _prediction(one: Experiment) -> PredictionShape | None:
    told = primary_prediction(one)
    if told is None:
        return None
    inside = one.verdict.predicted_inside if one.verdict else None
    return PredictionShape(low=told.low, high=told.high, level=told.level, inside=inside)


def experiment_shape(one: Experiment, *, redact: bool) -> ExperimentShape:
    """Everything, or the redacted copy."""
    return ExperimentShape(redacted=redact, experiment=redacted(one) if redact else to_body(one))


def calibration_shape(found: Calibrated) -> PlannerCalibrationShape:
    """The planner's predictions."""
    return PlannerCalibrationShape(
        whole=CalibrationShape(**_numbers(found.whole)),
        by_metric={name: CalibrationShape(**_numbers(one)) for name, one in found.by_metric.items()},
        step_s=found.step_s,
        steps=[CalibrationStep(start_s=start_s, **_numbers(one)) for start_s, one in found.steps],
        checked=[_checked(one) for one in found.checked],
    )


def _numbers(of: Calibration) -> dict[str, Any]:
    return {name: getattr(of, name) for name in CalibrationShape.model_fields}


def _checked(one: Checked) -> CheckedShape:
    told = one.prediction
    return CheckedShape(
        experiment=one.experiment, metric=one.metric, at_s=one.at_s, low=told.low, high=told.high, level=told.level,
        basis=told.basis, measured=one.measured, inside=one.inside, miss=one.miss if one.miss < _LARGEST else None,
        certain=one.certain,
    )  # fmt: skip
