"""The same cards as more, smaller replicas: less time spent on exchange between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying
from planner.strategies._models import carried_cost, room


class TensorParallel:
    """Halves the tensor parallel size and doubles the replicas, where the ledger says that each half still starts."""

    name = "tensor_parallel"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """TP down, replicas up, on the same cards."""
        if evidence.vram is None or evidence.speed is None:
            return Abstained(self.name, "the step of another layout is not known", "model and card")
        tp = evidence.vram.layout.tp
        if tp == 1:
            return Abstained(self.name, "each replica runs on one card already")
        found = [one for size in (tp // 2, tp // 4, 1) if 1 <= size < tp
                 if (one := self._with(evidence, size)) is not None]  # fmt: skip
        unique = {one.title: one for one in found}
        return [*unique.values()] or Abstained(self.name, f"the model does not surely start on fewer than {tp} cards")

    def _with(self, evidence: Evidence, size: int) -> Proposal | None:
        assert evidence.vram is not None
        assert evidence.speed is not None
        layout, cards = evidence.vram.layout, evidence.speed.layout
        times = layout.tp // size
        then = room(evidence, layout=replace(layout, tp=size))
        carried = carried_cost(
            evidence, "tensor_parallel", layout=replace(cards, tp=size), gpu_count=evidence.speed.gpu_count // times
        )
        if then is None or not then.starts or carried is None:
            return None
        cost, sigma = carried
        stay, fleet = staying(evidence), evidence.fleet
        scheduler = replace(fleet.scheduler, kv_tokens=max(1, int(fleet.scheduler.kv_tokens * then.tokens_ratio_low)))
        world = replace(
            stay, sigma=sigma,
            fleet=replace(fleet, cost=cost, scheduler=scheduler, replicas=fleet.replicas * times, routing="least_loaded"),
        )  # fmt: skip
        return Proposal(
            self.name, "topology", f"tensor parallel {layout.tp} → {size}, replicas {fleet.replicas} → {fleet.replicas * times}",
            {"tp": size, "replicas": fleet.replicas * times, "gpus_per_replica": evidence.gpus_per_replica // times}, world,
            f"the same cards without exchange between {layout.tp} of them; each replica holds "
            f"{then.tokens_ratio_low:.2f} times the tokens",
            assumes=("a router sends each request to the least loaded replica",),
            risks=("one long prompt takes longer on fewer cards", "shared prefixes are spread over more caches"),
            vram_headroom_ratio=then.headroom_ratio,
        )  # fmt: skip


STRATEGY: Final = TensorParallel()
