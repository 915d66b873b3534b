"""Replicas that follow the hours of the day instead of its peak."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import hourly, staying
from planner.simulate.setup import Fleet
from planner.simulate.trace import Trace
from planner.strategies._models import preview
from planner.twin import busiest, kept

#: hours that the evidence must cover before hours can be told apart
_LEAST_HOURS: Final = 48.0
#: extra room over what the hour's load asks: start-up takes time, and hours are not alike
_ROOM: Final = 1.2


class ScaleByHour:
    """Prices a schedule that gives each hour the replicas that its load needs, at the peak's own load per replica."""

    name = "scale_by_hour"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """One schedule."""
        rates, now = evidence.requests_by_hour, evidence.fleet.replicas
        if now < 2:
            return Abstained(self.name, "there is one replica: nothing to scale")
        if len(rates) != 24 or evidence.hours < _LEAST_HOURS:
            return Abstained(self.name, "hours cannot be told apart yet", f"{_LEAST_HOURS:.0f} hours of traffic")
        peak = max(rates)
        if peak <= 0:
            return Abstained(self.name, "no hour had any requests", "traffic")
        needed = [self._needed(evidence, rate / peak) for rate in rates]
        mean = sum(needed) / 24
        whole = hourly(evidence, now)
        if mean > 0.95 * now:
            return Abstained(self.name, f"the hours need {mean:.1f} of {now} replicas on average: nothing to gain")
        world = replace(
            staying(evidence), usd_per_hour=None if whole is None else whole.scaled(mean / now),
            parts=self._parts(evidence, needed),
        )  # fmt: skip
        startup = (
            "how long a replica takes to start"
            if evidence.startup_s is None
            else f"{evidence.startup_s / 60:.0f} min to start a replica"
        )
        return [
            Proposal(
                self.name, "replicas", f"{min(needed)} to {now} replicas by the hour", {"replicas_by_hour": needed}, world,
                f"the quietest hour has {min(rates) / peak:.0%} of the busiest one's requests; {mean:.1f} replicas on average",
                assumes=("replicas that are off cost nothing", startup),
                risks=("a burst in a quiet hour waits for a start", "caches are cold after it"), restart=False,
                rollback=f"keep {now} replicas all day",
            )
        ]  # fmt: skip

    @staticmethod
    def _at(evidence: Evidence, share: float) -> Trace:
        """The busiest stretch of the window, thinned to this share of the busiest hour's requests."""
        return kept(busiest(evidence.trace), share)

    def _needed(self, evidence: Evidence, share: float) -> int:
        """Replicas of an hour: at the peak's load for each, with room, and more where that misses the objective."""
        now = evidence.fleet.replicas
        count = max(1, min(now, ceil(now * share * _ROOM)))
        while count < now:
            world = replace(
                staying(evidence), fleet=replace(evidence.fleet, replicas=count), trace=self._at(evidence, share)
            )
            run = preview(world, evidence) if len(world.trace) else None
            if run is None or run.attained_ratio >= evidence.objective:
                break
            count += 1
        return count

    def _parts(self, evidence: Evidence, needed: list[int]) -> tuple[tuple[float, Fleet, Trace], ...]:
        """Each count of replicas at the highest load that it gets; a request weighs as many as come in such hours."""
        rates, found = evidence.requests_by_hour, []
        for count in sorted(set(needed)):
            of_hours = [rate for rate, one in zip(rates, needed, strict=True) if one == count]
            requests = self._at(evidence, max(of_hours) / max(rates))
            if len(requests):
                found.append((sum(of_hours) / len(requests), replace(evidence.fleet, replicas=count), requests))
        return tuple(found)


STRATEGY: Final = ScaleByHour()
