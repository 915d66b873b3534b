"""Other cards: the step carried over to each that has a price, with the error that such predictions had."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from goodwatch.core.errors import ConfigError
from planner.candidate import Abstained, Proposal
from planner.catalogue import accelerators
from planner.estimate import Estimate
from planner.evidence import Evidence
from planner.gpu import find
from planner.recommend import staying
from planner.strategies._models import carried_cost, room


class GpuSwap:
    """Tries every priced card on which the ledger says that the model surely starts."""

    name = "gpu_swap"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """One proposal a card."""
        if evidence.vram is None or evidence.speed is None:
            return Abstained(self.name, "the step on another card is not known", "model and card")
        if not evidence.card_usd_per_hour:
            return Abstained(self.name, "no other card has a price", "prices of other cards")
        found = [one for name, price in sorted(evidence.card_usd_per_hour.items())
                 if (one := self._with(evidence, name, price)) is not None]  # fmt: skip
        return found or Abstained(self.name, "on no other priced card does the model surely start")

    def _with(self, evidence: Evidence, name: str, price: Estimate) -> Proposal | None:
        assert evidence.vram is not None
        card = find(name, accelerators())
        if card is None or card.name == evidence.vram.gpu.name:
            return None
        try:
            then, carried = room(evidence, gpu=card), carried_cost(evidence, "gpu", gpu=card.name)
        except ConfigError:
            return None
        if then is None or not then.starts or carried is None:
            return None
        cost, sigma = carried
        stay, fleet = staying(evidence), evidence.fleet
        scheduler = replace(fleet.scheduler, kv_tokens=max(1, int(fleet.scheduler.kv_tokens * then.tokens_ratio_low)))
        hourly = price.scaled(fleet.replicas * evidence.gpus_per_replica)
        world = replace(stay, fleet=replace(fleet, cost=cost, scheduler=scheduler), usd_per_hour=hourly, sigma=sigma)
        return Proposal(
            self.name, "hardware", f"{evidence.vram.gpu.name} → {card.name}", {"gpu": card.name}, world,
            f"{card.name} costs {price.low:.2f} to {price.high:.2f} USD per hour and card, and the model starts on as many",
            assumes=("cards of this kind are to be had",),
            risks=("the step on this card is carried over, not measured",), vram_headroom_ratio=then.headroom_ratio,
            rollback="keep the old cards until the new ones have been checked",
        )  # fmt: skip


STRATEGY: Final = GpuSwap()
