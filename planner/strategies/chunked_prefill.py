"""Long prompts cut into pieces that share steps with decoding, so that nobody's tokens wait for somebody's prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.flags import mixing_setting
from planner.recommend import staying


class ChunkedPrefill:
    """Proposes it where prompts run alone."""

    name = "chunked_prefill"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """Chunked prefill on; where prompts are cut and still run alone, the switch that lets them share steps."""
        if evidence.fleet.prefill_replicas:
            return Abstained(self.name, "prompts run on workers of their own")
        if evidence.fleet.scheduler.mixed:
            return Abstained(self.name, "chunked prefill is on")
        stay = staying(evidence)
        scheduler = replace(evidence.fleet.scheduler, mixed=True)
        setting = mixing_setting(evidence.engine)
        title = "prompts share steps with decoding" if setting == "mixed_chunk" else "chunked prefill on"
        longest = max(evidence.trace.input_tokens)
        return [
            Proposal(
                self.name, "flags", title, {setting: True},
                replace(stay, fleet=replace(stay.fleet, scheduler=scheduler)),
                f"prompts of up to {longest:,} tokens run alone, and everybody's next token waits for them",
                risks=("prompts themselves end later: TTFT grows where prompts are long",),
            )
        ]  # fmt: skip


STRATEGY: Final = ChunkedPrefill()
