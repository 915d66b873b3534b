"""Replicas that follow the hours of the day instead of its peak."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import hourly, staying

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
        needed = [max(1, min(now, ceil(now * rate / peak * _ROOM))) for rate in rates] if peak else [now] * 24
        mean = sum(needed) / 24
        whole = hourly(evidence, now)
        if mean > 0.95 * now:
            return Abstained(self.name, "the load is as high at night as by day")
        world = replace(staying(evidence), usd_per_hour=None if whole is None else whole.scaled(mean / now))
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


STRATEGY: Final = ScaleByHour()
