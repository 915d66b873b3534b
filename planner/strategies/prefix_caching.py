"""Prompts that begin alike are computed once: the prefix cache on, and a router that sends them to the same replica."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Final

from planner.candidate import Abstained, Proposal
from planner.evidence import Evidence
from planner.recommend import staying
from planner.simulate.trace import Trace
from planner.strategies._models import prompt_share, shift_sigma, split_by_model

#: share of input tokens below which a shared beginning is not worth a restart
_WORTH: Final = 0.05
#: error of a prediction at another hit ratio
_ERROR: Final = shift_sigma("hit_ratio")


class PrefixCaching:
    """Turns the cache on where prompts share their beginnings; looks at routing where it is on already."""

    name = "prefix_caching"

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """The cache on, or prefixes kept together."""
        evidence = split_by_model(evidence)
        if evidence.fleet.scheduler.prefix_cache and evidence.settings.get("prefix_caching") is not False:
            return self._together(evidence)
        share = evidence.shared_ratio
        if share is None:
            missing = "how many prompts begin alike (prefix caching is off, and no trace tells)"
            return Abstained(self.name, "nobody knows whether prompts share their beginnings", missing)
        if share < _WORTH:
            return Abstained(self.name, f"only {share:.0%} of the input tokens begin as an earlier prompt did")
        return [self._on(evidence, share)]

    def _on(self, evidence: Evidence, share: float) -> Proposal:
        stay = staying(evidence)
        scheduler = replace(evidence.fleet.scheduler, prefix_cache=True)
        world = replace(
            stay, fleet=replace(stay.fleet, scheduler=scheduler), trace=cached(evidence.trace, share), sigma=_ERROR
        )
        return Proposal(
            self.name, "flags", "prefix caching on", {"prefix_caching": True}, world,
            f"{share:.0%} of the input tokens begin as an earlier prompt did, and are computed again each time",
            assumes=("what is shared stays in the cache between requests",),
            risks=("a cache that thrashes hits less than this",), touches_ratio=prompt_share(evidence),
        )  # fmt: skip

    def _together(self, evidence: Evidence) -> list[Proposal] | Abstained:
        hit, share, fleet = evidence.seen.prefix_hit_ratio, evidence.shared_ratio, evidence.fleet
        if share is None or hit is None:
            return Abstained(self.name, "the prefix cache is on", "how much more of the prompts could hit it")
        if share - hit < _WORTH:
            return Abstained(self.name, f"the prefix cache is on and hits {hit:.0%} of at most {share:.0%}")
        if fleet.replicas < 2 or fleet.routing == "prefix_aware":
            text = f"{share - hit:.0%} of the input could hit and does not: put what differs at the end of prompts"
            return Abstained(self.name, text)
        world = replace(
            staying(evidence),
            fleet=replace(fleet, routing="prefix_aware"),
            trace=cached(evidence.trace, share),
            sigma=_ERROR,
        )
        return [
            Proposal(
                self.name, "admission", "route by prefix", {"routing": "prefix_aware"}, world,
                f"{hit:.0%} of the input hits the cache, {share:.0%} could if prompts that begin alike met one replica",
                risks=("a hot prefix loads one replica: the router must let go of it",), restart=False,
                rollback="route as before", touches_ratio=prompt_share(evidence),
            )
        ]  # fmt: skip


def cached(trace: Trace, share: float) -> Trace:
    """The same requests with this share of each prompt in the cache already; at least what is there now."""
    now = zip(trace.input_tokens, trace.cached_tokens, strict=True)
    tokens = array("q", [max(held, min(whole - 1, round(whole * share))) for whole, held in now])
    return replace(trace, cached_tokens=tokens)


STRATEGY: Final = PrefixCaching()
