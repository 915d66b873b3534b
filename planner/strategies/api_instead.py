"""Somebody else's API for the same traffic, where little traffic keeps own cards idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying


class ApiInstead:
    """Compares the bill; latency and quality of an API are not known here, so that it is a trial."""

    name = "api_instead"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """The API, if it is cheaper."""
        price, paid = evidence.api_usd_per_million, evidence.seen.usd_per_hour
        if price is None or paid is None:
            return Abstained(
                self.name, "there is nothing to compare", "price of an API for this model, and of the cards"
            )
        trace = evidence.trace
        hours = max(1e-9, (trace.arrived_s[-1] - trace.arrived_s[0]) / 3600)
        there = (sum(trace.input_tokens) + sum(trace.output_tokens)) / hours / 1e6 * price.high
        if there >= paid:
            return Abstained(self.name, f"an API would cost {there:.2f} USD per hour, the own cards cost {paid:.2f}")
        return [
            Proposal(
                self.name, "topology", "an API instead of own cards", {"api": True},
                replace(staying(evidence), usd_per_hour=None, elsewhere_usd_per_hour=there),
                f"the same tokens cost {there:.2f} USD per hour there and {paid:.2f} here",
                assumes=("its latency and quality are not known here",), risks=("data leaves the house",), restart=False,
                gate="quality, latency and data protection are looked at", canary_only=True,
                rollback="send requests to the own replicas",
            )
        ]  # fmt: skip


STRATEGY: Final = ApiInstead()
