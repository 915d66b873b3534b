"""An experiment as it is kept: one question, one changed factor, the raw values of every run, and the verdict.

Nothing here knows LLM serving: a metric is a name, a unit and the direction that is better, so image, video or
training work is kept the same way. Times are Unix seconds UTC, durations seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from goodwatch.core.errors import ConfigError
from goodwatch.core.record import Record

#: kind of the records that hold experiments
KIND: Final = "experiment"

#: how runs were ordered: all of A then all of B; pairs AB or BA; quads ABBA; both at once on different targets; files
#: (a sweep has one arm at several levels of load, and no verdict but its knee)
DesignName = Literal["before_after", "interleaved", "abba", "canary", "imported", "sweep"]
State = Literal["planned", "running", "done", "abandoned"]
Outcome = Literal["better", "worse", "no_difference", "inconclusive"]
Gate = Literal["passed", "vetoed", "not_shown", "not_asked"]
_STRICT: Final = ConfigDict(extra="forbid", allow_inf_nan=False)
_SUMMARIES: Final = re.compile(r"mean|median|rate|p(?!0+(\.0+)?$)\d{1,2}(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Metric:
    """What is compared. ``summary`` turns the values of one run into one number: mean, median, p95 …, or rate.

    ``scale`` says how arms are compared: ``ratio`` as candidate / baseline (the summary must be above 0), ``difference``
    as candidate - baseline, for shares 0..1. ``indifference`` is the change that nobody would act on, on that scale:
    0.03 is 3 %, or 3 points.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: str
    unit: str
    better: Literal["lower", "higher"]
    summary: str = "mean"
    scale: Literal["ratio", "difference"] = "ratio"
    indifference: float = 0.03

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: is empty")
        if not _SUMMARIES.fullmatch(self.summary):
            raise ValueError(f"summary {self.summary[:40]!r}: write mean, median, rate, or a quantile as p95")
        if not 0 <= self.indifference < 1:
            raise ValueError("indifference: write a share from 0 to below 1, as 0.03 for 3 %")


@dataclass(frozen=True, slots=True)
class Measured:
    """One metric in one run: raw values in order of time, or for a rate the two sums whose quotient it is.

    ``weights`` (one a value) come from traffic matching; None weighs all alike. A value nobody measured is left out.
    Raises ``ValueError`` when the lengths differ, a number is not finite, or a denominator is not above 0.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    values: tuple[float, ...] = ()
    weights: tuple[float, ...] | None = None
    numerator: float | None = None
    denominator: float | None = None

    def __post_init__(self) -> None:
        if self.weights is not None and len(self.weights) != len(self.values):
            raise ValueError("weights: one is needed for each value")
        if self.weights is not None and min(self.weights, default=0.0) < 0:
            raise ValueError("weights: none may be below 0")
        told = [*self.values, *(self.weights or ()), *(x for x in (self.numerator, self.denominator) if x is not None)]
        if not all(map(math.isfinite, told)):
            raise ValueError("values: every one must be finite; leave out what was not measured")
        if self.denominator is not None and self.denominator <= 0:
            raise ValueError("denominator: must be above 0")


@dataclass(frozen=True, slots=True)
class Run:
    """One repeat of one arm.

    ``position`` is its place in the order in which the runs of all arms were made. ``block`` names the pair, the quad
    or the piece of time that it shares with runs of the other arm. A cold run (first after a start) is kept and never
    counted; so is one with ``excluded``, which says why. A ``reference`` run was made before anything was changed, on
    the arm's own target: it shows how far the arms differ by themselves.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    position: int
    measures: Mapping[str, Measured]
    block: int | None = None
    warm: bool = True
    reference: bool = False
    excluded: str = ""
    started_s: float | None = None
    duration_s: float | None = None
    gpus: float | None = None
    level: float | None = None  # requests at once, or a second, that were asked for

    def __post_init__(self) -> None:
        for name, value in (("duration_s", self.duration_s), ("gpus", self.gpus)):
            if value is not None and value < 0:
                raise ValueError(f"{name}: is below 0")

    @property
    def counts(self) -> bool:
        """Whether it is part of a verdict."""
        return self.warm and not self.excluded

    @property
    def gpu_hours(self) -> float | None:
        """GPUs held times how long; None when either is not known."""
        return None if self.gpus is None or self.duration_s is None else self.gpus * self.duration_s / 3600


@dataclass(frozen=True, slots=True)
class Arm:
    """One side. ``intended`` are the flags that were set, ``effective`` those that the engine itself reports."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: str
    runs: tuple[Run, ...] = ()
    intended: Mapping[str, str] = field(default_factory=dict)
    effective: Mapping[str, str] | None = None  # None: the engine did not tell
    targets: tuple[str, ...] = ()
    quality_passed: float | None = None  # answers that passed
    quality_judged: float | None = None  # answers that were judged

    def __post_init__(self) -> None:
        if self.quality_passed is not None and not 0 <= self.quality_passed <= (self.quality_judged or 0.0):
            raise ValueError("quality_passed: must be from 0 to quality_judged")


@dataclass(frozen=True, slots=True)
class FixedInput:
    """Something that both arms get alike, and the hash by which that can be checked; "" when there is none."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: str
    sha256: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What it ran on; None where nobody told."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    gpu: str | None = None
    gpus: float | None = None
    hosts: tuple[str, ...] = ()
    gpu_hour_usd: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Factor:
    """The one thing that differs, and what it is in either arm; ``also``: settings that are part of the same change."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: str
    baseline: str
    candidate: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StopRule:
    """When it ends, said before it begins; looking earlier and stopping at a good moment makes false verdicts.

    ``repeats`` counted runs of each arm.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    repeats: int = 3
    longest_s: float | None = None


@dataclass(frozen=True, slots=True)
class QualityConstraint:
    """The candidate's share of passing answers may be lower than the baseline's by at most ``margin_ratio``."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    evaluator: str
    margin_ratio: float = 0.02


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was expected of a metric before the change: candidate / baseline (or their difference) in [low, high].

    ``level`` is the share of such predictions that should hold, ``basis`` what it was made from.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    metric: str
    low: float
    high: float
    value: float | None = None
    level: float = 0.8
    basis: str = ""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low: is above high")
        if not 0 < self.level < 1:
            raise ValueError("level: write a share between 0 and 1, as 0.8")

    def holds(self, measured: float) -> bool:
        """Whether the measured change is inside, the ends included."""
        return self.low <= measured <= self.high


@dataclass(frozen=True, slots=True)
class Effect:
    """What one metric did: candidate / baseline, or their difference, with its 97 % interval.

    ``noise`` is how far two equal arms would differ, on the same scale as a distance from no change (0.02: 2 %, or 2
    points); ``detectable`` is the smallest change that had four chances in five to be seen. All None where
    it cannot be told; ``reason`` then says why.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    metric: str
    outcome: Outcome
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    noise: float | None = None
    detectable: float | None = None
    repeats: tuple[int, int] = (0, 0)  # counted runs of baseline and candidate
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the experiment says: the primary metric's outcome unless quality vetoes it; the others beside it."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    outcome: Outcome
    reason: str
    effects: tuple[Effect, ...] = ()
    gate: Gate = "not_asked"
    gate_reason: str = ""
    gpu_hours_ratio: float | None = None  # candidate / baseline, for one unit of work
    predicted_inside: bool | None = None
    findings: tuple[str, ...] = ()
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """One entry of the ledger. The first metric decides; ``boundary`` says what the stopwatch began and ended with."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    id: str
    question: str
    design: DesignName
    baseline: Arm
    candidate: Arm
    metrics: tuple[Metric, ...]
    factor: Factor | None = None
    state: State = "planned"
    created_s: float | None = None
    service: str = ""
    model: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    hardware: Hardware = field(default_factory=Hardware)
    inputs: tuple[FixedInput, ...] = ()
    boundary: str = ""
    stop: StopRule = field(default_factory=StopRule)
    quality: QualityConstraint | None = None
    predictions: tuple[Prediction, ...] = ()
    verdict: Verdict | None = None
    notes: tuple[str, ...] = ()
    recommendation: str = ""  # id of the recommendation that it checks

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        if not names:
            raise ValueError("metrics: one at least is needed; the first decides")
        if len(set(names)) < len(names):
            raise ValueError("metrics: each needs a name of its own")

    @property
    def primary(self) -> Metric:
        """The metric that decides."""
        return self.metrics[0]


def not_in_effect(arm: Arm) -> tuple[str, ...]:
    """Flags that were set and that the engine reports otherwise, as sentences; empty when the engine did not tell.

    Examples
    --------
    >>> arm = Arm("b", intended={"max_num_seqs": "64"}, effective={"max_num_seqs": "256"})
    >>> not_in_effect(arm)
    ('arm b: max_num_seqs was set to 64, the engine reports 256: set but not in effect',)
    """
    if arm.effective is None:
        return ()
    told = arm.effective
    return tuple(
        f"arm {arm.name}: {name} was set to {wanted}, the engine reports {told[name]}: set but not in effect"
        for name, wanted in sorted(arm.intended.items())
        if name in told and plain(told[name]) != plain(wanted)
    )


def other_differences(experiment: Experiment) -> tuple[str, ...]:
    """Flags in which the arms differ besides the factor, as the engine reports them; then the factor proves nothing."""
    a, b = experiment.baseline.effective, experiment.candidate.effective
    if a is None or b is None:
        return ()
    factor = experiment.factor
    changed = () if factor is None else (factor.name, *factor.also)
    return tuple(
        f"{name} differs as well: {a.get(name, 'not told')} and {b.get(name, 'not told')}; one thing at a time"
        for name in sorted({*a, *b})
        if name not in changed and plain(a.get(name, "")) != plain(b.get(name, ""))
    )


def unchanged(experiment: Experiment) -> str | None:
    """That the engine reports the factor alike in both arms, as a sentence; None when it differs or was not told."""
    factor, a, b = experiment.factor, experiment.baseline.effective, experiment.candidate.effective
    if factor is None or a is None or b is None or factor.name not in a or factor.name not in b:
        return None
    if plain(factor.baseline) == plain(factor.candidate) or plain(a[factor.name]) != plain(b[factor.name]):
        return None
    return f"the engine reports {factor.name} = {b[factor.name]} in both arms: set but not in effect"


#: two words for one thing: what engines take on their command line, and what they report of it
_SPELLINGS: Final = {"fp8_e4m3": "fp8", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


def plain(text: str) -> str:
    """A flag's value as it is compared: engines write True, true and 1.0 for the same.

    Examples
    --------
    >>> plain("True") == plain("true"), plain("64") == plain("64.0"), plain("fp8_e4m3")
    (True, True, 'fp8')
    """
    lowered = text.strip().lower()
    lowered = _SPELLINGS.get(lowered, lowered)
    try:
        return repr(float(lowered))
    except ValueError:
        return lowered


_ADAPTER: Final = TypeAdapter(Experiment)


def to_body(experiment: Experiment) -> dict[str, object]:
    """JSON values of an experiment, for ``RecordStore.put``; raw values are kept."""
    body: dict[str, object] = _ADAPTER.dump_python(experiment, mode="json")
    return body


def from_body(body: Mapping[str, object]) -> Experiment:
    """The experiment of a record's body.

    Raises
    ------
    ConfigError
        Something is missing, unknown, or no number; says where.
    """
    try:
        return _ADAPTER.validate_python(dict(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"experiment: {where}: {first['msg']}; was it written by a newer version?") from None


def from_record(record: Record) -> Experiment:
    """The experiment that a record holds. Raises ``ConfigError`` as ``from_body``."""
    return from_body(record.body)
