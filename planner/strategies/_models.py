"""What strategies ask of the ledger and of the step model: a changed deployment, carried over from the measured one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any, Final

from goodwatch.core.errors import ConfigError
from planner.candidate import World
from planner.estimate import Estimate
from planner.evidence import Evidence
from planner.gpu import Gpu
from planner.ledger import ledger
from planner.simulate.setup import StepCost, cost_of
from planner.speed.calibrate import CARRIED, Change
from planner.speed.deployment import Named, deployment
from planner.speed.efficiency import factors, shipped
from planner.twin import Doubt, Drawn, draws

#: compute capability from which NVIDIA cards multiply and hold fp8 (Ada, Hopper and later)
_FP8_FROM: Final = 8.9
#: mean over peak of the running requests from which the load never varied
_ALWAYS_FULL: Final = 0.8
#: peak of running requests below which too little of the load axis was seen
_SEEN_RUNNING: Final = 24.0
#: running requests between which the shipped model's step is taken as a line, at least
_FAR_RUNNING: Final = 64.0
#: how much slower a step must be allowed to be
_SLOWER: Final = 1.15
#: 80 % of a normal distribution lie below it on one side of a two-sided band
_Z80: Final = 1.2816


@dataclass(frozen=True, slots=True)
class Room:
    """What a changed start has: tokens of cache over those of the running one, and whether it surely starts."""

    tokens_ratio: float
    tokens_ratio_low: float
    starts: bool
    why_not: str
    headroom_ratio: Estimate | None


def preview(world: World, evidence: Evidence) -> Drawn | None:
    """One middle run of a world, to choose among many; None where a request would never fit."""
    try:
        return draws(world, Doubt(0.0), evidence.limits, count=1)[0]
    except ConfigError:
        return None


def robust(world: World, evidence: Evidence) -> float | None:
    """Mean attainment with the fitted step and with a slower one, to choose a value that is right for both."""
    slower = replace(world, fleet=replace(world.fleet, cost=world.fleet.cost.scaled(_SLOWER)))
    runs = preview(world, evidence), preview(slower, evidence)
    return None if runs[0] is None or runs[1] is None else (runs[0].attained_ratio + runs[1].attained_ratio) / 2


def room(evidence: Evidence, **changed: Any) -> Room | None:
    """The ledger of the running deployment with fields of ``planner.vram.Request`` changed; None where it is not known."""
    if evidence.vram is None:
        return None
    now = ledger(evidence.vram)
    try:
        then = ledger(replace(evidence.vram, **changed))
    except ConfigError as error:
        return Room(0.0, 0.0, starts=False, why_not=str(error), headroom_ratio=None)
    if now.tokens is None or then.tokens is None or now.tokens.point <= 0:
        return None
    ratio = then.tokens.point / now.tokens.point
    low = then.tokens.low / now.tokens.point
    sure = then.outcome == "ok" and then.certain
    card = then.request.gpu.total_gib
    headroom = None
    if then.pool is not None and card is not None:
        headroom = then.pool.scaled(1 / (card.point * 2.0**30))
    return Room(ratio, min(ratio, low), sure, "" if sure else then.reason, headroom)


def carried_cost(evidence: Evidence, kind: Change, **changed: Any) -> tuple[StepCost, float] | None:
    """The measured step of the running deployment, carried over to a changed one; and its one-sigma error (log units).

    Decoding and prompts are each as much slower or faster as the shipped model says between the two, at the load that was
    seen. Of the running engine's ratio to its own prior such changes keep a part only (``planner.speed.calibrate.CARRIED``):
    an engine that beats its prior is taken to beat that of the changed one by less. One that is slower than its prior is
    taken to stay as much slower: half of that would be a gain that nobody made. None where the step model does not know
    one of the two.
    """
    if evidence.speed is None or not len(evidence.trace):
        return None
    running = max(2.0, evidence.seen.running or 8.0)
    try:
        before = _prior(evidence, evidence.speed, running)
        after = _prior(evidence, replace(evidence.speed, **changed), running)
    except ConfigError:
        return None
    holds = CARRIED[kind][0]
    now = evidence.fleet.cost
    measured = _step_s(evidence, now) / _step_s(evidence, before)
    lost = max(1.0, measured ** (holds - 1))
    decode = _decode_s(evidence, after) / _decode_s(evidence, before) * lost
    prompt = after.prompt_token_s / before.prompt_token_s * lost
    cost = replace(
        now, fixed_s=now.fixed_s * decode, running_s=now.running_s * decode, context_s=now.context_s * decode,
        prompt_token_s=now.prompt_token_s * prompt,
    )  # fmt: skip
    return cost, shift_sigma(kind)


def grounded(evidence: Evidence) -> Evidence:
    """The same service; where it always ran at its limit, or nearly idle, its step split as the shipped model splits it.

    An engine that was seen at one load only does not tell what part of a step grows with the load.
    """
    seen = evidence.seen
    if seen.running is None or not seen.running_peak:
        return evidence
    varied = seen.running < _ALWAYS_FULL * seen.running_peak and seen.running_peak >= _SEEN_RUNNING
    return evidence if varied else split_by_model(evidence)


def split_by_model(evidence: Evidence) -> Evidence:
    """The same service with its step split into prompts, requests and context as the shipped model splits it.

    The whole step stays as measured at the load that was seen. For changes along an axis that one mix of lengths does not
    tell: prompts that share every step with decoding are not seen apart from it. Unchanged where model or card is not known.
    """
    if evidence.speed is None or not len(evidence.trace):
        return evidence
    running = max(_FAR_RUNNING, 4 * (evidence.seen.running or 8.0))
    try:
        prior = _prior(evidence, evidence.speed, running)
    except ConfigError:
        return evidence
    now = evidence.fleet.cost
    cost = prior.scaled(_step_s(evidence, now) / _step_s(evidence, prior))
    cost = replace(cost, request_s=now.request_s, answer_s=now.answer_s)
    return replace(evidence, fleet=replace(evidence.fleet, cost=cost))


def shift_sigma(kind: Change) -> float:
    """One-sigma error (log units) of a prediction after such a change, by what measured ones were off."""
    return log(1 + CARRIED[kind][1]) / _Z80


def _prior(evidence: Evidence, named: Named, running: float) -> StepCost:
    one = deployment(named)
    inputs, outputs = mean(evidence.trace.input_tokens), mean(evidence.trace.output_tokens)
    return cost_of(
        one, factors(shipped(), one), running=running, input_tokens=inputs, context_tokens=inputs + outputs / 2
    )


def _decode_s(evidence: Evidence, cost: StepCost) -> float:
    """A step without prompts, at the load that was seen."""
    return _step_s(evidence, replace(cost, prompt_s=0.0, prompt_token_s=0.0))


def _step_s(evidence: Evidence, cost: StepCost) -> float:
    """A step at the load that was seen, with the prompts that it carries."""
    inputs, outputs = mean(evidence.trace.input_tokens), mean(evidence.trace.output_tokens)
    running = max(1.0, evidence.seen.running or 8.0)
    context = inputs + outputs / 2
    prompts = running / max(1.0, outputs)
    computed = inputs - mean(evidence.trace.cached_tokens)
    return cost.fixed_s + running * (cost.running_s + cost.context_s * context) + prompts * (
        cost.prompt_s + cost.prompt_token_s * computed
    )  # fmt: skip


def prompt_share(evidence: Evidence) -> float:
    """Share of the engine's time that prompts take, by the fitted step."""
    whole = _step_s(evidence, evidence.fleet.cost)
    without = _step_s(evidence, replace(evidence.fleet.cost, prompt_s=0.0, prompt_token_s=0.0))
    return 1 - without / whole if whole > 0 else 0.0


def context_share(evidence: Evidence) -> float:
    """Share of the engine's time that reading the KV cache takes, by the fitted step."""
    whole = _step_s(evidence, evidence.fleet.cost)
    return 1 - _step_s(evidence, replace(evidence.fleet.cost, context_s=0.0)) / whole if whole > 0 else 0.0


def has_fp8(gpu: Gpu) -> bool:
    """Whether a card holds and multiplies fp8; a card whose capability nobody told is taken to."""
    try:
        return float(gpu.capability) >= _FP8_FROM
    except ValueError:
        return True


def mean(values: Sequence[int]) -> float:
    """Mean; 0 of none."""
    return sum(values) / len(values) if len(values) else 0.0
