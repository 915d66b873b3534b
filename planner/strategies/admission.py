"""Refuse early what would be late anyway, so that the others are served in time."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Final

from planner.candidate import Abstained, Proposal, World
from planner.evidence import Evidence
from planner.recommend import staying
from planner.strategies._models import preview, robust, shift_sigma
from planner.twin import kept

_SHARES: Final = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)


class Admission:
    """Limits what is admitted where a queue grows; those that are refused count as bad."""

    name = "admission"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """The largest shares that reach the objective, and the one that gives the most good requests in all."""
        now = robust(staying(evidence), evidence)
        if now is None:
            return Abstained(self.name, "the window's longest request fits no empty cache")
        runs = [(share, world, run) for share in _SHARES
                if (run := robust(world := self._world(evidence, share), evidence)) is not None]  # fmt: skip
        better = [one for one in runs if one[2] > now]
        if not better:
            return Abstained(self.name, "fewer requests would not make more of them good: no queue spoils them")
        most = max(better, key=lambda one: one[2])
        reaching = [one for one in better  # the fewest refused come first
                    if (served := preview(one[1], evidence)) is not None and served.attained_ratio >= evidence.objective]  # fmt: skip
        chosen = {share: world for share, world, _ in (*reaching[:3], most)}
        return [self._proposal(evidence, share, world) for share, world in chosen.items()]

    def _proposal(self, evidence: Evidence, share: float, world: World) -> Proposal:
        waiting = evidence.seen.waiting
        queue = "" if waiting is None else f"; {waiting:.0f} wait on average"
        return Proposal(
            self.name, "admission", f"admit {share:.0%} of today's peak, refuse the rest at once", {"admitted_ratio": share},
            world, f"more arrives than is served in time, and the queue makes all of it late{queue}",
            assumes=("clients that get 429 come back later or go elsewhere",),
            risks=(f"{1 - share:.0%} of the requests of such hours are refused",), restart=False,
            rollback="lift the limit",
        )  # fmt: skip

    @staticmethod
    def _world(evidence: Evidence, share: float) -> World:
        """A step at half of the load is as far off as measured predictions of another load were; nearer by as much less."""
        far = shift_sigma("lengths") * log2(1 / share)
        return replace(staying(evidence), trace=kept(evidence.trace, share), turned_away_ratio=1 - share, sigma=far)


STRATEGY: Final = Admission()
