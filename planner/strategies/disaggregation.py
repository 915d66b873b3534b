"""Prompts on workers of their own, so that decoding never waits for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying
from planner.strategies._models import prompt_share

#: share of an engine's time that prompts must take before it is worth a second pool
_WORTH: Final = 0.25
#: handing a cache over, s (median of published rows; docs/models.md)
_HANDOVER_S: Final = 0.25
#: one-sigma error of published separate-prefill predictions (log units; docs/models.md)
_ERROR: Final = 0.35


class Disaggregation:
    """Splits the replicas that are there."""

    name = "disaggregation"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """One split for each count of prefill workers near the share of time that prompts take."""
        fleet, share = evidence.fleet, prompt_share(evidence)
        if fleet.prefill_replicas:
            return Abstained(self.name, "prompts run on workers of their own already")
        if fleet.replicas < 2:
            return Abstained(self.name, "there is one replica: nothing to split")
        if share < _WORTH:
            return Abstained(self.name, f"prompts take {share:.0%} of the time: too little for a second pool")
        count = min(fleet.replicas - 1, max(1, round(share * fleet.replicas)))
        stay = staying(evidence)
        split = replace(
            fleet,
            replicas=fleet.replicas - count,
            prefill_replicas=count,
            transfer_s=_HANDOVER_S,
            routing="least_loaded",
        )
        return [
            Proposal(
                self.name, "topology", f"{count} prefill and {fleet.replicas - count} decode workers",
                {"prefill_replicas": count, "decode_replicas": fleet.replicas - count},
                replace(stay, fleet=split, sigma=_ERROR),
                f"prompts take {share:.0%} of the time, and tokens wait for them",
                assumes=("the network hands a cache over in a quarter of a second",),
                risks=("more parts that can fail", "the split fits one mix of lengths only"),
                rollback="run all replicas for both again",
            )
        ]  # fmt: skip


STRATEGY: Final = Disaggregation()
