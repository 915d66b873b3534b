"""The longest request that is allowed: lowered where it sizes the cache, left alone where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying
from planner.strategies._models import room

#: the new limit over the longest request that was seen
_SPARE: Final = 1.5
_ROUND: Final = 1024


class MaxModelLen:
    """Engines that reserve the whole context for each slot gain slots; paged engines gain nothing in a running pool."""

    name = "max_model_len"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """A shorter limit, and as many more slots."""
        longest, vram = evidence.seen.longest_tokens, evidence.vram
        if vram is None:
            return Abstained(self.name, "what the limit reserves is not known", "model and card")
        if vram.engine.rule != "fixed_context":
            return Abstained(
                self.name, f"{vram.engine.title} pages its cache: a shorter limit frees nothing while it runs"
            )
        now = evidence.settings.get("max_model_len")
        if longest is None or not isinstance(now, int):
            return Abstained(self.name, "the longest request, or the limit, is not known", "lengths of requests")
        limit = -(-int(longest * _SPARE) // _ROUND) * _ROUND
        if limit >= 0.75 * now:
            return Abstained(self.name, f"the longest request has {longest:,} tokens of {now:,} allowed")
        slots = max(vram.context_slots, vram.context_slots * now // limit)
        then = room(evidence, max_model_len=limit, context_slots=slots)
        if then is None or not then.starts:
            return Abstained(self.name, f"it might not start: {then.why_not if then else 'the pool is not known'}")
        stay = staying(evidence)
        scheduler = replace(evidence.fleet.scheduler, max_num_seqs=slots)
        return [
            Proposal(
                self.name, "flags", f"max model len {now:,} → {limit:,}, slots → {slots}",
                {"max_model_len": limit, "max_num_seqs": slots}, replace(stay, fleet=replace(stay.fleet, scheduler=scheduler)),
                f"each slot reserves {now:,} tokens, and the longest request had {longest:,}",
                risks=(f"requests of more than {limit:,} tokens are refused",), vram_headroom_ratio=then.headroom_ratio,
            )
        ]  # fmt: skip


STRATEGY: Final = MaxModelLen()
