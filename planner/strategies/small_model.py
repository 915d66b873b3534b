"""The requests that a smaller model answers as well, sent to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal, World
from planner.evidence import Evidence
from planner.recommend import hourly, staying
from planner.strategies._models import preview
from planner.twin import kept


class SmallModel:
    """Needs a measured share of requests that it answers as well; without that there is no advice, only a wish."""

    name = "small_model"

    @staticmethod
    def _fewest(evidence: Evidence, whole: World) -> tuple[int, World]:
        """The fewest replicas that carry what is left, and one to spare where there is one today."""
        now = evidence.fleet.replicas
        worlds = [
            replace(whole, fleet=replace(whole.fleet, replicas=count), usd_per_hour=hourly(evidence, count))
            for count in range(1, now + 1)
        ]
        for count, world in enumerate(worlds, 1):
            run = preview(world, evidence)
            if run is not None and run.attained_ratio >= evidence.objective:
                spare = min(now, count + 1)
                return spare, worlds[spare - 1]
        return now, worlds[-1]

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """That share routed away, and the big model's replicas reduced with it."""
        share, price = evidence.small_model_ratio, evidence.small_usd_per_million
        if share is None:
            return Abstained(self.name, "nobody has judged what a smaller model can answer", "quality scores of both")
        if price is None:
            return Abstained(self.name, "what the smaller model costs is not known", "its cost per million tokens")
        if share <= 0:
            return Abstained(self.name, "the smaller model was judged worse on everything")
        fleet, trace = evidence.fleet, evidence.trace
        rest = kept(trace, 1 - share)
        hours = max(1e-9, (trace.arrived_s[-1] - trace.arrived_s[0]) / 3600)
        away = share * (sum(trace.input_tokens) + sum(trace.output_tokens)) / hours
        whole = replace(
            staying(evidence), trace=rest, served_elsewhere_ratio=share, elsewhere_usd_per_hour=away / 1e6 * price.high
        )
        fewer, world = self._fewest(evidence, whole)
        return [
            Proposal(
                self.name, "topology", f"{share:.0%} of the requests to the smaller model, replicas {fleet.replicas} → {fewer}",
                {"routed_ratio": share, "replicas": fewer}, world,
                f"the smaller model was judged as good on {share:.0%} of the requests, and costs "
                f"{price.low:.2f} to {price.high:.2f} USD per million tokens",
                assumes=("what is judged today is what comes tomorrow", "requests are escalated seldom"),
                risks=("savings come only when the big model's replicas are really taken away",), restart=False,
                gate="quality of routed requests is not worse", rollback="route everything to the big model",
            )
        ]  # fmt: skip


STRATEGY: Final = SmallModel()
