"""Speculative decoding: off where too few drafts are accepted to pay for themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying
from planner.strategies._models import preview
from planner.twin import Drawn


class Speculative:
    """Takes drafts away where they hurt. Bringing them in needs an acceptance ratio, which only a trial tells."""

    name = "speculative"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """Off, or fewer drafts."""
        scheduler = evidence.fleet.scheduler
        if not scheduler.draft_tokens:
            text = "what a draft model would get accepted is not known"
            return Abstained(self.name, text, "acceptance ratio of a draft, from a trial on one replica")
        ratio = evidence.seen.acceptance_ratio
        if ratio is None:
            return Abstained(self.name, "it is on, and the engine does not tell how many drafts are accepted",
                             "acceptance ratio")  # fmt: skip
        now = preview(staying(evidence), evidence)
        found = [one for count in (0, 1, 2, 3, 5) if count != scheduler.draft_tokens
                 if (one := self._with(evidence, count, ratio)) is not None]  # fmt: skip
        better = [
            one for one in found
            if now is not None and (run := preview(one.world, evidence)) is not None and _worth(run) > _worth(now)
        ]  # fmt: skip
        return better or Abstained(self.name, f"{ratio:.0%} of the drafts are accepted: they pay for themselves")

    def _with(self, evidence: Evidence, count: int, ratio: float) -> Proposal | None:
        stay, scheduler = staying(evidence), evidence.fleet.scheduler
        draft_s = scheduler.draft_s * count / scheduler.draft_tokens
        if count > scheduler.draft_tokens:
            return None  # positions further out were never seen
        fewer = replace(scheduler, draft_tokens=count, draft_s=draft_s)
        title = "speculative decoding off" if count == 0 else f"draft tokens {scheduler.draft_tokens} → {count}"
        return Proposal(
            self.name, "flags", title, {"speculative_tokens": count},
            replace(stay, fleet=replace(stay.fleet, scheduler=fewer), sigma=0.05),
            f"{ratio:.0%} of the drafts are accepted, and each costs time in every step",
            risks=("at low load, drafts would have helped",),
        )  # fmt: skip


def _worth(run: Drawn) -> tuple[float, float]:
    return round(run.attained_ratio, 3), -(run.tpot_p99_s or 0.0)


STRATEGY: Final = Speculative()
