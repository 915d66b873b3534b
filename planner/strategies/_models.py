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
from planner.twin import Drawn, draws

#: compute capability from which NVIDIA cards multiply and hold fp8 (Ada, Hopper and later)
_FP8_FROM: Final = 8.9
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
        return draws(world, 0.0, evidence.limits, count=1)[0]
    except ConfigError:
        return None


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

    The shipped model's step for the changed deployment times the running one's ratio to its own, as far as such changes
    let that hold (``planner.speed.calibrate.CARRIED``). None where the step model does not know one of the two.
    """
    if evidence.speed is None or not len(evidence.trace):
        return None
    try:
        before, after = _prior(evidence, evidence.speed), _prior(evidence, replace(evidence.speed, **changed))
    except ConfigError:
        return None
    holds, error = CARRIED[kind]
    measured = _step_s(evidence, evidence.fleet.cost) / _step_s(evidence, before)
    cost = after.scaled(measured**holds)
    kept = evidence.fleet.cost
    return replace(cost, request_s=kept.request_s, answer_s=kept.answer_s), log(1 + error) / _Z80


def _prior(evidence: Evidence, named: Named) -> StepCost:
    one = deployment(named)
    inputs, outputs = mean(evidence.trace.input_tokens), mean(evidence.trace.output_tokens)
    running = max(2.0, evidence.seen.running or 8.0)
    return cost_of(
        one, factors(shipped(), one), running=running, input_tokens=inputs, context_tokens=inputs + outputs / 2
    )


def _step_s(evidence: Evidence, cost: StepCost) -> float:
    """A step at the load that was seen, with the prompts that it carries."""
    inputs, outputs = mean(evidence.trace.input_tokens), mean(evidence.trace.output_tokens)
    running = max(1.0, evidence.seen.running or 8.0)
    context = inputs + outputs / 2
    prompts = running / max(1.0, outputs)
    return cost.fixed_s + running * (cost.running_s + cost.context_s * context) + prompts * (
        cost.prompt_s + cost.prompt_token_s * inputs
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
