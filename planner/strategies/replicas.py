"""As many replicas as the real arrivals need: fewer where they idle, more where nothing gentler helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal, World
from planner.evidence import Evidence
from planner.recommend import hourly, staying
from planner.strategies._models import preview, split_by_model

#: replicas that are tried above what runs
_MORE: Final = 4


class Replicas:
    """Tries other counts on the arrivals of the window, and with one replica lost."""

    name = "replicas"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """The fewest that keep the objective even without one of them; else the fewest that reach it."""
        now = evidence.fleet.replicas
        stay = preview(staying(evidence), evidence)
        if stay is None:
            return Abstained(self.name, "the window's longest request fits no empty cache")
        if stay.attained_ratio >= evidence.objective:
            return self._fewer(evidence, now)
        return self._more(evidence, now)

    def _fewer(self, evidence: Evidence, now: int) -> list[Proposal] | Abstained:
        """Counts that keep the objective even with one of them lost: one restarts, or its host dies."""
        least = now
        while least > 1 and self._holds(evidence, least - 1):
            least -= 1
        found = [self._proposal(evidence, now, count) for count in range(least + 1, now)]
        text = f"{least} of {now} replicas keep the objective, and one is the spare that a restart needs"
        return found or Abstained(self.name, text)

    def _more(self, evidence: Evidence, now: int) -> list[Proposal] | Abstained:
        for count in range(now + 1, now + 1 + max(_MORE, now)):
            if self._holds(evidence, count):
                return [self._proposal(evidence, now, one) for one in (count, count + 1)]
        return Abstained(self.name, f"not even {now + max(_MORE, now)} replicas reach the objective: it is not load")

    def _holds(self, evidence: Evidence, count: int) -> bool:
        return self._attained(self._world(evidence, count), evidence) >= evidence.objective

    @staticmethod
    def _attained(world: World, evidence: Evidence) -> float:
        run = preview(world, evidence)
        return run.attained_ratio if run is not None else 0.0

    def _world(self, evidence: Evidence, count: int) -> World:
        """With the fitted step, or with the model's split of it, whichever is worse.

        Another count is another load, and latencies at one load do not tell a long step from one that grows: a target
        that no step meets is not met by more replicas either.
        """
        worlds = []
        for one in (evidence, split_by_model(evidence)):
            stay = staying(one)
            fleet = replace(stay.fleet, replicas=count)
            worlds.append(replace(stay, fleet=fleet, usd_per_hour=hourly(evidence, count)))
        return min(worlds, key=lambda world: self._attained(world, evidence)) if worlds[0] != worlds[1] else worlds[0]

    def _proposal(self, evidence: Evidence, now: int, count: int) -> Proposal:
        startup_s = evidence.startup_s
        waits = (
            "how long a replica takes to start" if startup_s is None else f"{startup_s / 60:.0f} min to start a replica"
        )
        fewer = count < now
        reason = f"the window's arrivals keep the objective on {count - 1} of them, and one more is the spare"
        if not fewer:
            reason = f"the load needs {count} replicas"
        return Proposal(
            self.name, "replicas" if fewer else "hardware", f"replicas {now} → {count}", {"replicas": count},
            self._world(evidence, count), reason, assumes=("arrivals are like those of the window", waits),
            risks=("a burst larger than the window's finds less room" if fewer else "they idle when the peak is over",),
            restart=False, rollback=f"scale back to {now}",
        )  # fmt: skip


STRATEGY: Final = Replicas()
