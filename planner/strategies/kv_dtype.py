"""The KV cache in 8 bit: twice the context in the same memory, and half of it to read at each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.estimate import Estimate
from planner.evidence import Evidence
from planner.recommend import staying
from planner.strategies._models import context_share, has_fp8, room

#: use of the cache below which more of it changes nothing
_FULL: Final = 0.7
#: reading share of a step below which halving it changes nothing
_READ: Final = 0.1
#: one-sigma error (log units) of the step: dequantising costs something
_ERROR: Final = 0.06


class KvDtype:
    """Proposes fp8 where the cache is what limits, behind a quality gate."""

    name = "kv_dtype"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """An fp8 cache."""
        seen = evidence.seen
        if "8" in str(evidence.settings.get("kv_dtype", "auto")):
            return Abstained(self.name, "the KV cache is in 8 bit already")
        if evidence.vram is None:
            return Abstained(self.name, "the cache's size after the change is not known", "model and card")
        if not has_fp8(evidence.vram.gpu):
            return Abstained(self.name, f"{evidence.vram.gpu.name} has no fp8")
        full = (seen.kv_used_ratio or 0.0) >= _FULL or (seen.preemptions_per_hour or 0.0) > 0
        share = context_share(evidence)
        if not full and share < _READ:
            used = "not told" if seen.kv_used_ratio is None else f"{seen.kv_used_ratio:.0%}"
            return Abstained(self.name, f"the cache does not limit: used {used}, {share:.0%} of a step reads it")
        then = room(evidence, element_bytes=1.0, kv_dtype="fp8")
        if then is None or not then.starts:
            return Abstained(self.name, f"it might not start: {then.why_not if then else 'the pool is not known'}")
        return [self._proposal(evidence, then.tokens_ratio_low, share, then.headroom_ratio)]

    def _proposal(self, evidence: Evidence, tokens_ratio: float, share: float, headroom: Estimate | None) -> Proposal:
        stay, scheduler = staying(evidence), evidence.fleet.scheduler
        more = replace(scheduler, kv_tokens=max(scheduler.kv_tokens, int(scheduler.kv_tokens * tokens_ratio)))
        cost = replace(evidence.fleet.cost, context_s=evidence.fleet.cost.context_s / 2)
        world = replace(stay, fleet=replace(stay.fleet, scheduler=more, cost=cost), sigma=_ERROR)
        return Proposal(
            self.name, "precision", "KV cache in fp8", {"kv_dtype": "fp8"}, world,
            f"the cache holds {tokens_ratio:.2f} times the tokens, and {share:.0%} of a step reads it",
            risks=("answers change: long contexts first",), gate="quality of long answers is not worse",
            touches_ratio=1.0, vram_headroom_ratio=headroom,
        )  # fmt: skip


STRATEGY: Final = KvDtype()
