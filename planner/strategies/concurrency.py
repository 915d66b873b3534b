"""How many requests run at once, and how many tokens a step may hold: at the knee, not past it."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Final

from planner.candidate import Abstained, Proposal, World
from planner.evidence import Evidence
from planner.recommend import staying
from planner.strategies._models import robust

_SEQUENCES: Final = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
_BATCHED: Final = (512, 1024, 2048, 4096, 8192, 16_384)
#: attainment above which neither flag can give more
_GOOD: Final = 0.995
#: proposals of each kind that are simulated in full
_BEST: Final = 2


class Concurrency:
    """Searches ``max_num_seqs`` and ``max_num_batched_tokens`` in the simulator."""

    name = "concurrency"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """The best few of either flag, by one run each."""
        found = [*self._sequences(evidence), *self._batched(evidence)]
        if not found:
            return Abstained(self.name, "no other value of either flag gives more good requests")
        return found

    def _sequences(self, evidence: Evidence) -> list[Proposal]:
        if evidence.vram is not None and evidence.vram.engine.rule == "fixed_context":
            return []  # each slot reserves its whole context: max_model_len looks at both
        scheduler = evidence.fleet.scheduler
        now = scheduler.max_num_seqs
        values = [one for one in _SEQUENCES if one != now and one <= scheduler.max_num_batched_tokens]
        return self._best(evidence, "max_num_seqs", now, values)

    def _batched(self, evidence: Evidence) -> list[Proposal]:
        scheduler = evidence.fleet.scheduler
        if not scheduler.mixed:
            return []  # prompts run alone: the budget does not lengthen anybody's step
        values = [one for one in _BATCHED if one != scheduler.max_num_batched_tokens and one >= scheduler.max_num_seqs]
        return self._best(evidence, "max_num_batched_tokens", scheduler.max_num_batched_tokens, values)

    def _best(self, evidence: Evidence, flag: str, now: int, values: list[int]) -> list[Proposal]:
        stay = robust(staying(evidence), evidence)
        if stay is None or stay >= _GOOD:
            return []
        runs = []
        for one in values:
            world = self._world(evidence, flag, one)
            found = robust(world, evidence)
            if found is not None and found > stay:
                runs.append((round(found, 2), -abs(log(one / now)), one, world))
        runs.sort(key=lambda run: run[:2], reverse=True)
        return [self._proposal(evidence, flag, now, one, world) for _, _, one, world in runs[:_BEST]]

    @staticmethod
    def _world(evidence: Evidence, flag: str, value: int) -> World:
        stay = staying(evidence)
        now = evidence.fleet.scheduler
        sequences = flag == "max_num_seqs"
        scheduler = replace(now, max_num_seqs=value) if sequences else replace(now, max_num_batched_tokens=value)
        return replace(stay, fleet=replace(stay.fleet, scheduler=scheduler))

    def _proposal(self, evidence: Evidence, flag: str, now: int, value: int, world: World) -> Proposal:
        seen = evidence.seen
        load = "" if seen.running_peak is None else f"; up to {seen.running_peak:.0f} ran at once"
        lower = value < now
        more = "longer waits before the first token" if lower else "longer steps for everybody who runs"
        why = (
            "steps are longer than the TPOT target leaves room for" if lower else "requests wait while steps have room"
        )
        return Proposal(
            self.name, "flags", f"{flag.replace('_', ' ')} {now:,} → {value:,}", {flag: value}, world,
            f"{why}: {now:,} allowed{load}", risks=(more,),
            assumes=("the next weeks' requests are like those of the window",),
        )  # fmt: skip


STRATEGY: Final = Concurrency()
