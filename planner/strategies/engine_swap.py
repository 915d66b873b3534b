"""Another engine: only ever a canary, because no step model can tell which of two is faster."""

from __future__ import annotations

from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying

#: share of input that is shared from which an engine that keeps prefixes in a tree is worth a try
_SHARED: Final = 0.5


class EngineSwap:
    """Names the engine that is worth a replica's trial, and promises nothing."""

    name = "engine_swap"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """A canary, or nothing."""
        share = evidence.shared_ratio if evidence.shared_ratio is not None else evidence.seen.prefix_hit_ratio
        if evidence.engine != "vllm" or share is None or share < _SHARED:
            return Abstained(self.name, "nothing in the traffic speaks for another engine")
        return [
            Proposal(
                self.name, "topology", "SGLang on one replica, as a canary", {"engine": "sglang"}, staying(evidence),
                f"{share:.0%} of the input is shared between prompts",
                assumes=("direction is not known: models were right in 57 % of measured swaps",),
                risks=("another engine samples differently",), gate="quality is not worse", canary_only=True,
                rollback="send its share back to the old replicas",
            )
        ]  # fmt: skip


STRATEGY: Final = EngineSwap()
