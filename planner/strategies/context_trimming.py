"""Prompts without what nobody needs: old turns, repeated documents, long system texts."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying
from planner.strategies._models import prompt_share, shift_sigma, split_by_model


class ContextTrimming:
    """Needs to be told which share of the input could be left out."""

    name = "context_trimming"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """Shorter prompts."""
        share = evidence.input_spare_ratio
        if not share:
            return Abstained(
                self.name, "nobody knows what prompts could do without", "share of input that is not needed"
            )
        evidence = split_by_model(evidence)
        trace = evidence.trace
        shorter = array("q", [max(1, round(tokens * (1 - share))) for tokens in trace.input_tokens])
        held = array("q", [min(a, b - 1) for a, b in zip(trace.cached_tokens, shorter, strict=True)])
        world = replace(
            staying(evidence),
            trace=replace(trace, input_tokens=shorter, cached_tokens=held),
            sigma=shift_sigma("lengths"),
        )
        return [
            Proposal(
                self.name, "admission", f"prompts {share:.0%} shorter", {"input_spare_ratio": share}, world,
                f"{share:.0%} of the input is not needed, and prompts take {prompt_share(evidence):.0%} of the time",
                risks=("answers miss what was cut",), gate="quality of answers is not worse", restart=False,
                rollback="send whole prompts again",
            )
        ]  # fmt: skip


STRATEGY: Final = ContextTrimming()
