"""Weights in fewer bits: less to read at each step, more room for the cache. Changes answers: never without its gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.quantisation import scheme
from planner.recommend import staying
from planner.strategies._models import carried_cost, has_fp8, room


class WeightQuantisation:
    """Proposes the scheme that the card multiplies in: fp8 where it can, else 4-bit weights."""

    name = "weight_quantisation"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """One scheme, if the weights are in 16 bit."""
        if evidence.vram is None or evidence.speed is None:
            return Abstained(self.name, "the step after the change is not known", "model and card")
        if evidence.vram.scheme.name not in ("bf16", "fp16", "auto"):
            return Abstained(self.name, f"weights are in {evidence.vram.scheme.name} already")
        name = "fp8" if has_fp8(evidence.vram.gpu) else "awq"
        then, carried = room(evidence, scheme=scheme(name)), carried_cost(evidence, "precision", precision=name)
        if then is None or carried is None:
            return Abstained(self.name, "the step after the change is not known", "sizes of the model's layers")
        if not then.starts:
            return Abstained(self.name, f"{name}: it might not start: {then.why_not}")
        cost, sigma = carried
        stay, scheduler = staying(evidence), evidence.fleet.scheduler
        more = replace(scheduler, kv_tokens=max(scheduler.kv_tokens, int(scheduler.kv_tokens * then.tokens_ratio_low)))
        world = replace(stay, fleet=replace(stay.fleet, cost=cost, scheduler=more), sigma=sigma)
        return [
            Proposal(
                self.name, "precision", f"weights in {name}", {"quantisation": name}, world,
                f"a step reads fewer bytes, and the cache holds {then.tokens_ratio_low:.2f} times the tokens",
                assumes=(f"a checkpoint in {name} exists, or the engine makes one at start",),
                risks=("answers change", "kernels of this scheme may be slower at large batches"),
                gate="quality is not worse on the service's own evaluators", vram_headroom_ratio=then.headroom_ratio,
            )
        ]  # fmt: skip


STRATEGY: Final = WeightQuantisation()
