"""A recommendation as it is kept: what to change, what that should do, and what became of it.

Nothing is applied by itself: a person accepts or declines, the engine's own deployment (or a person) says that it was
applied, and an experiment says whether it did what was predicted. Times are Unix seconds UTC.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, hypot, sqrt
from typing import ClassVar, Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from goodwatch.core.errors import ConfigError
from goodwatch.core.record import Record
from planner.candidate import Advice, Candidate, Effect
from planner.configure.changing import diff, with_changes
from planner.configure.values import Configuration
from planner.estimate import Estimate
from planner.evidence import Evidence
from planner.experiments.values import Prediction

#: kind of the records that hold recommendations
KIND: Final = "recommendation"
COST_METRIC: Final = "usd_per_million_good_tokens"

State = Literal["proposed", "accepted", "declined", "applied", "verified", "refuted", "inconclusive"]
Confidence = Literal["high", "medium", "low"]
#: from a state to those that may follow it; a verdict may be made again when more traffic came
MOVES: Final[Mapping[State, tuple[State, ...]]] = {
    "proposed": ("accepted", "declined", "applied"),
    "accepted": ("applied", "declined"),
    "declined": ("accepted", "applied"),
    "applied": ("verified", "refuted", "inconclusive"),
    "inconclusive": ("verified", "refuted", "inconclusive", "applied"),
    "verified": (),
    "refuted": (),
}
#: a declined recommendation is not made again for so long unless the evidence changed
QUIET_S: Final = 30 * 86_400.0
#: settings of which a value a quarter apart is the same advice: evidence moves a little every hour
_FINE: Final = frozenset(
    {"max_num_seqs", "max_num_batched_tokens", "max_model_len", "admitted_ratio", "routed_ratio", "input_spare_ratio",
     "refused_ratio"}
)  # fmt: skip
_ALIKE: Final = 0.25
#: requests after a change that a verdict is made of, where the effect is not larger
LEAST_CHECK: Final = 300
_MOST_CHECK: Final = 20_000
#: 80 % of a normal distribution lie within so many sigmas
_Z80: Final = 1.2816
_STRICT: Final = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Band:
    """A figure with its 80 % interval."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    point: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """One metric as it is, as it will be, and the change: a ratio (then / now) or a difference (then - now).

    ``measured`` is that change after it was applied, ``inside`` whether it lay in the band, ``after`` the metric itself
    then, on matched traffic; None until then.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    metric: str
    now: Band
    then: Band
    change: Band
    scale: Literal["ratio", "difference"]
    measured: float | None = None
    inside: bool | None = None
    after: float | None = None


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One line of the diff: setting, and how the engine says it before and after; "" is the engine's default."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    setting: str
    before: str
    after: str
    flags_before: str = ""
    flags_after: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One move: when, to which state, by whom, and why."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    at_s: float
    state: State
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One change that was recommended for one service.

    ``changes``: neutral setting → new value; ``window``: the evidence's [start, end); ``check_requests``: requests after
    the change that a verdict needs; ``missing``: what was not known; ``findings``: what is wrong beside it;
    ``before``: what the engine reported before the change; ``experiment``: id of the check in the ledger.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    id: str
    service: str
    strategy: str
    lever: str
    title: str
    mode: Literal["restore", "save"]
    state: State
    changes: Mapping[str, object]
    diff: tuple[ChangeLine, ...]
    reason: str
    predicted: tuple[Predicted, ...]
    saving_usd_per_week: Band | None
    confidence: Confidence
    confidence_why: str
    window: tuple[float, float]
    requests: int
    check_requests: int
    rank: int = 1
    assumes: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    restart: bool = True
    gate: str = ""
    rollback: str = ""
    missing: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    drift: str = ""
    trigger: str = ""
    before: Mapping[str, str] | None = None
    steps: tuple[Step, ...] = ()
    experiment: str = ""
    verdict: str = ""

    @property
    def key(self) -> str:
        """What is advised, whatever the numbers: the same advice has the same key."""
        told = json.dumps([self.service, self.strategy, dict(self.changes)], sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def is_open(self) -> bool:
        """Whether it still waits for somebody or something."""
        return self.state in ("proposed", "accepted", "applied", "inconclusive")

    @property
    def applied_s(self) -> float | None:
        """When it was applied; None until then."""
        return next((one.at_s for one in reversed(self.steps) if one.state == "applied"), None)

    def metric(self, name: str) -> Predicted | None:
        """The prediction of a metric."""
        return next((one for one in self.predicted if one.metric == name), None)


def moved(one: Recommendation, to: State, at_s: float, by: str, note: str = "") -> Recommendation:
    """The recommendation in another state.

    Raises
    ------
    ConfigError
        That state cannot follow; says which can. Declining asks for a reason.
    """
    if to not in MOVES[one.state]:
        can = ", ".join(MOVES[one.state]) or "none: it is over"
        raise ConfigError(f"recommendation {one.id}: is {one.state} and cannot become {to}; possible: {can}")
    if to == "applied" and one.steps and at_s < one.steps[0].at_s:
        raise ConfigError(
            f"recommendation {one.id}: cannot have been applied before it was recommended; say when it was"
        )
    if to == "declined" and not note.strip():
        raise ConfigError(f"recommendation {one.id}: say why it is declined, so that it is not made again for nothing")
    return replace(one, state=to, steps=(*one.steps, Step(at_s, to, by, note.strip()[:2000])))


def made(
    candidate: Candidate, advice: Advice, evidence: Evidence, running: Configuration, *, at_s: float, rank: int,
    noise: Mapping[str, float] | None = None,
) -> Recommendation:  # fmt: skip
    """The record of a candidate: its diff in the engine's own words, and what it predicts.

    ``running`` is the effective configuration; a change that its engine cannot say is told by its neutral name. ``noise``:
    how far equal traffic comes apart in a check (``gathering.check_noise``); bands hold what will be measured.
    """
    proposal = candidate.proposal
    assert advice.stay is not None
    assert advice.mode != "none"
    check = check_requests(candidate, advice.stay)
    told, why = _confidence(candidate, evidence)
    saving = candidate.saving_usd_per_week
    one = Recommendation(
        "", evidence.service, proposal.strategy, proposal.lever, proposal.title, advice.mode, "proposed",
        dict(proposal.changes), lines(running, proposal.changes), proposal.reason, _predicted(candidate, advice.stay, check, noise or {}),
        None if saving is None else _band(saving), told, why, (evidence.start_s, evidence.end_s), evidence.seen.requests,
        check, rank, proposal.assumes, proposal.risks, proposal.restart, proposal.gate, proposal.rollback, evidence.missing,
        drift=evidence.drift.id if evidence.drift else "", steps=(Step(at_s, "proposed", "goodwatch"),),
    )  # fmt: skip
    return replace(one, id=f"{one.key[:8]}-{at_s:.0f}")


def lines(running: Configuration, changes: Mapping[str, object]) -> tuple[ChangeLine, ...]:
    """The diff: settings in the engine's own flags, the rest by name."""
    try:
        after, left = with_changes(running, changes)
        found = [
            ChangeLine(one.setting, _text(one.before), _text(one.after), one.flags_before, one.flags_after)
            for one in diff(running, after)
        ]
    except ConfigError:
        found, left = [], tuple(changes)
    return (*found, *(ChangeLine(name, "", _text(changes[name])) for name in left))


def check_requests(candidate: Candidate, stay: Effect) -> int:
    """Requests after the change that tell the predicted effect from nothing: four sigmas of a share, or of a tail."""
    gain = abs(candidate.gain.low)
    share = min(0.99, max(0.01, (candidate.effect.attainment.point + stay.attainment.point) / 2))
    wanted = _MOST_CHECK if gain < 1e-3 else 2 * share * (1 - share) * (4 / gain) ** 2
    return int(min(_MOST_CHECK, max(LEAST_CHECK, ceil(wanted))))


def _predicted(candidate: Candidate, stay: Effect, check: int, noise: Mapping[str, float]) -> tuple[Predicted, ...]:
    """Changes as a check of so many requests will measure them: the model's band, and the noise of the check."""
    then, found, gain = candidate.effect, [], candidate.gain
    share = then.attainment.point
    wide = _Z80 * hypot(sqrt(share * (1 - share) / check), noise.get("attainment_ratio", 0.0))
    low, high = gain.point - hypot(gain.point - gain.low, wide), gain.point + hypot(gain.high - gain.point, wide)
    change = Band(gain.point, max(-1.0, low), min(1.0, high))
    found.append(Predicted("attainment_ratio", _band(stay.attainment), _band(then.attainment), change, "difference"))
    for name in ("ttft_p99_s", "tpot_p99_s"):
        a, b = getattr(stay, name), getattr(then, name)
        if a is not None and b is not None and min(a.low, b.low) > 0:
            metric = f"{name[:-2]}_seconds"
            times = exp(_Z80 * sqrt(2) * noise.get(metric, 0.0))
            ratio = Band(b.point / a.point, b.low / a.high / times, b.high / a.low * times)
            found.append(Predicted(metric, _band(a), _band(b), ratio, "ratio"))
    a, b, cost = stay.usd_per_million_good_tokens, then.usd_per_million_good_tokens, candidate.cost_ratio
    if a is not None and b is not None and cost is not None:
        found.append(Predicted("usd_per_million_good_tokens", _band(a), _band(b), _band(cost), "ratio"))
    room = candidate.proposal.vram_headroom_ratio
    if room is not None:
        found.append(Predicted("vram_headroom_ratio", _band(room), _band(room), Band(0.0, 0.0, 0.0), "difference"))
    return tuple(found)


def predictions(one: Recommendation) -> tuple[Prediction, ...]:
    """What the experiment that checks it holds the measurement against."""
    return tuple(
        Prediction(p.metric, p.change.low, p.change.high, p.change.point, basis=f"{one.strategy}, simulated")
        for p in one.predicted
        if p.metric != "vram_headroom_ratio"
    )


def fresh(
    found: Sequence[Recommendation], known: Sequence[Recommendation], now_s: float,
    advised: Sequence[tuple[str, Mapping[str, object]]] | None = None,
) -> tuple[list[Recommendation], list[Recommendation]]:  # fmt: skip
    """Those that are new advice, and proposals of before that the new evidence no longer makes.

    The same advice is not repeated while it is open, nor for 30 days after it was declined, refuted, or left open by its
    check, unless the promised gain is above what was promised then. ``advised``: strategy and changes of all that the
    evidence advises, where ``found`` is only the best of it.
    """
    ordered = sorted(known, key=lambda r: r.steps[-1].at_s if r.steps else 0.0, reverse=True)
    new = [one for one in found if not _repeats(one, same_advice(one, ordered), now_s)]
    still = [(one.strategy, one.changes) for one in found] if advised is None else advised
    over = [
        one for one in known if one.state == "proposed" and not any(s == one.strategy and alike(c, one.changes) for s, c in still)
    ]  # fmt: skip
    return new, over


def same_advice(one: Recommendation, known: Iterable[Recommendation]) -> Recommendation | None:
    """The first of some that advises the same; None where none does."""
    return next(
        (k for k in known if (k.service, k.strategy) == (one.service, one.strategy) and alike(k.changes, one.changes)),
        None,
    )


def alike(a: Mapping[str, object], b: Mapping[str, object]) -> bool:
    """Whether two changes are one piece of advice: the same settings, limits and shares of them within a quarter.

    Examples
    --------
    >>> alike({"max_num_seqs": 64}, {"max_num_seqs": 60}), alike({"replicas": 4}, {"replicas": 5})
    (True, False)
    """
    return a.keys() == b.keys() and all(_near(name, a[name], b[name]) for name in a)


def _near(name: str, a: object, b: object) -> bool:
    if name in _FINE and isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= _ALIKE * min(abs(a), abs(b))
    return a == b or json.dumps(a, default=str) == json.dumps(b, default=str)  # a tuple comes back as a list


def _repeats(one: Recommendation, before: Recommendation | None, now_s: float) -> bool:
    if before is None or before.state == "verified":
        return False
    if before.state in ("proposed", "accepted", "applied"):
        return True
    if before.steps[-1].by == "goodwatch" and before.state == "declined":
        return False
    if now_s - before.steps[-1].at_s > QUIET_S:
        return False
    now, then = one.metric("attainment_ratio"), before.metric("attainment_ratio")
    more = now is not None and then is not None and now.change.low > then.change.high
    saves, saved = one.saving_usd_per_week, before.saving_usd_per_week
    return not more and not (saves is not None and saved is not None and saves.low > saved.high)


def _confidence(candidate: Candidate, evidence: Evidence) -> tuple[Confidence, str]:
    """How far to trust it, and why: the doubt of the fitted step, the narrowness of the band, what is missing."""
    gain = candidate.gain
    wide = (gain.high - gain.low) > max(0.1, abs(gain.point))
    doubts = []
    if evidence.sigma > 0.2:
        doubts.append(f"the step model is off by {evidence.sigma:.0%} on this service")
    if wide:
        doubts.append("the band is wide")
    if len(evidence.missing) > 2:
        doubts.append(f"{len(evidence.missing)} inputs are not known")
    told: Confidence = "high" if not doubts else "medium" if len(doubts) == 1 else "low"
    return told, "; ".join(doubts) or f"fitted to {evidence.seen.requests} requests within {evidence.sigma:.0%}"


def _band(one: Estimate) -> Band:
    return Band(one.point, one.low, one.high)


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_ADAPTER: Final = TypeAdapter(Recommendation)


def to_body(one: Recommendation) -> dict[str, object]:
    """JSON values of a recommendation, for ``RecordStore.put``."""
    body: dict[str, object] = _ADAPTER.dump_python(one, mode="json")
    return body


def from_record(record: Record) -> Recommendation:
    """The recommendation that a record holds.

    Raises
    ------
    ConfigError
        Something is missing or unknown; says where.
    """
    try:
        return _ADAPTER.validate_python(dict(record.body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"recommendation {record.id}: {where}: {first['msg']}; was it written by a newer version?"
        ) from None
