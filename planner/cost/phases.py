"""Whose GPU time it was: a request's share of prefill and of decode, from the speed model's terms.

An engine does both in one batch, so that the split is an **allocation**, not a measurement: prefill takes what the model
says a prompt adds to the steps, output tokens take the rest of the steps. Cached input is given no time of its own: what
reading it costs is part of every output token's step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.estimate import Estimate
from planner.speed.deployment import Deployment
from planner.speed.efficiency import Factors
from planner.speed.steps import Lengths, decode_s, prompt_s

#: how far prefill / decode may be off, either way: as much as TTFT, whose 80 % band is a factor of 1.8 down and 2.3 up (both
#: were fitted on the same rates, so that the one may stand in for the other)
_ODDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Phases:
    """GPU time of one request of a full batch, seconds of the whole instance.

    ``cache_s`` is the part of ``decode_s`` that reads the KV cache; ``residue_ratio``: share of the time between requests
    that the two do not explain (negative: they explain more than there is).
    """

    prefill_s: float
    decode_s: float
    cache_s: float
    running: float
    residue_ratio: float

    @property
    def prefill_ratio(self) -> Estimate:
        """Share of prefill in the time of both, with its doubt."""
        odds = self.prefill_s / self.decode_s
        low, point, high = (one / (1 + one) for one in (odds / _ODDS, odds, odds * _ODDS))
        return Estimate(point, low, high, "allocation by the speed model's prefill and decode time")


def phases(one: Deployment, by: Factors, lengths: Lengths, running: float, requests_per_s: float) -> Phases:
    """The split of a batch of ``running`` requests that ends ``requests_per_s``.

    Parameters
    ----------
    one, by
        The deployment and its factors.
    lengths
        Mean lengths; cached input is taken out of prefill.
    running, requests_per_s
        Requests at once on one instance, and what it finishes; the second closes the account.
    """
    tokens, output = lengths.input_tokens, lengths.output_tokens
    context = tokens + output / 2
    prefill = prompt_s(one, by, tokens, tokens * lengths.cached_ratio)
    decode = output * decode_s(one, by, running, context) / running
    reading = output * by.cache * one.work.context_s(context)
    return Phases(prefill, decode, reading, running, 1 - requests_per_s * (prefill + decode))


@dataclass(frozen=True, slots=True)
class SplitCost:
    """USD for a million tokens of each kind; together, at the mix of the traffic, they are the whole bill.

    ``uncached_input`` is None where all input is cached; ``cached_input`` is 0 by allocation.
    """

    uncached_input: Estimate | None
    cached_input: Estimate
    output: Estimate


def split_cost(output_cost: Estimate, share: Estimate, lengths: Lengths) -> SplitCost:
    """``output_cost`` (the whole bill per million output tokens) split by the ``share`` of prefill."""
    fresh = lengths.input_tokens * (1 - lengths.cached_ratio)
    ratio = lengths.output_tokens / fresh if fresh else 0.0
    told = f"{share.point:.0%} of the bill (idle time in proportion) is given to prefill, an {share.basis}"
    prefill = _parts(output_cost, share, f"per million input tokens not from the cache; {told}")
    decode = Estimate(1 - share.point, 1 - share.high, 1 - share.low)
    return SplitCost(
        prefill.scaled(ratio) if fresh else None,
        Estimate(0.0, 0.0, 0.0, "per million cached input tokens: none of the bill, by allocation; output tokens read them"),
        _parts(output_cost, decode, f"per million output tokens, input apart; {told}"),
    )  # fmt: skip


def _parts(cost: Estimate, share: Estimate, basis: str) -> Estimate:
    return Estimate(cost.point * share.point, cost.low * share.low, cost.high * share.high, basis)
