"""What would lower the bill: a prefix cache, shorter contexts, a small model for the easy part. None saves more than its part.

A saving is a share of GPU time per request (Amdahl: what is taken away cannot be more than its own share). Money follows
only when GPUs are given back or more requests are served by them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from goodwatch.core.errors import ConfigError
from planner.cost.interval import quotient
from planner.cost.phases import Phases, phases
from planner.estimate import Estimate, total
from planner.speed.deployment import Deployment
from planner.speed.efficiency import Factors
from planner.speed.steps import Lengths

_GIVEN_BACK: Final = "of GPU time; of money once GPUs are given back or serve more"
#: quality that may be lost where the operator names no margin
MARGIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class Effect:
    """What a lever does. ``saving``: share of GPU time a request, at most ``bound`` (the share that it acts on)."""

    name: str
    saving: Estimate
    bound: Estimate


@dataclass(frozen=True, slots=True)
class Quality:
    """A measured comparison of the small model with the big one on the traffic that would move.

    ``loss_high``: upper end of the interval of the quality lost (0.01 = one judged answer in a hundred); ``margin``: what
    may be lost. Non-inferior is ``loss_high <= margin``.
    """

    loss_high: float
    margin: float = MARGIN


@dataclass(frozen=True, slots=True)
class Routed:
    """A part of the traffic on a small model. ``blended``: USD per million; ``saving``: against all on the big one."""

    blended: Estimate
    saving: Estimate
    allowed: bool
    reason: str


def prefix_cache(one: Deployment, by: Factors, lengths: Lengths, running: float, hit_ratio: float) -> Effect:
    """More of the input from the prefix cache: ``hit_ratio`` instead of ``lengths.cached_ratio``.

    Raises
    ------
    ConfigError
        The ratio is no share, or below what is cached now.
    """
    if not lengths.cached_ratio <= hit_ratio < 1:
        raise ConfigError(
            f"--what-if-hit-ratio {hit_ratio:g}: is not from --cached-ratio {lengths.cached_ratio:g} to below 1"
        )
    now = phases(one, by, lengths, running, 0.0)
    then = phases(one, by, replace(lengths, cached_ratio=hit_ratio), running, 0.0)
    taken = 1 - then.prefill_s / now.prefill_s if now.prefill_s else 0.0
    bound = now.prefill_ratio
    text = f"input from the prefix cache {lengths.cached_ratio:.0%} → {hit_ratio:.0%}"
    basis = f"{taken:.0%} of prefill, which is {bound.point:.0%} {_GIVEN_BACK}"
    return Effect(text, Estimate(bound.point * taken, bound.low * taken, bound.high * taken, basis), bound)


def trimmed(one: Deployment, by: Factors, lengths: Lengths, running: float, trim_ratio: float) -> Effect:
    """``trim_ratio`` of the input left away: less prefill, and less cache to read for each output token.

    Room that the shorter contexts leave for a larger batch is not counted.

    Raises
    ------
    ConfigError
        The ratio is no share.
    """
    if not 0 <= trim_ratio < 1:
        raise ConfigError(f"--what-if-trim {trim_ratio:g}: is not a share of 0 to below 1")
    shorter = replace(lengths, input_tokens=lengths.input_tokens * (1 - trim_ratio))
    now, then = phases(one, by, lengths, running, 0.0), phases(one, by, shorter, running, 0.0)
    bound = _bound(now)
    taken = 1 - (then.prefill_s + then.cache_s) / (now.prefill_s + now.cache_s)
    basis = f"{taken:.0%} of prefill and cache reading, which are {bound.point:.0%} {_GIVEN_BACK}"
    saving = Estimate(bound.point * taken, bound.low * taken, bound.high * taken, basis)
    return Effect(f"input {trim_ratio:.0%} shorter", saving, bound)


def _bound(now: Phases) -> Estimate:
    """Share of prefill and of reading the cache."""
    prefill = now.prefill_ratio
    reading = now.cache_s / now.decode_s
    low, point, high = (share + (1 - share) * reading for share in (prefill.low, prefill.point, prefill.high))
    return Estimate(point, low, high, "share of prefill and of reading the KV cache")


def routed(
    small: Estimate, big: Estimate, share: float, *, escalated: float = 0.0, big_use: tuple[float, float] | None = None,
    quality: Quality | None = None,
) -> Routed:  # fmt: skip
    """Cost when ``share`` of the tokens goes to a small model.

    Parameters
    ----------
    small, big
        USD per million tokens of the same kind, at the utilisation that each has then.
    share
        Of the tokens, 0 to 1.
    escalated
        Share of the small model's answers that the big one does again, and that are paid twice.
    big_use
        Utilisation of the big model (before, after) where its GPUs stay: its own cost rises by before / after.
    quality
        The measured comparison; without one that shows non-inferiority the saving is not allowed yet.

    Raises
    ------
    ConfigError
        A share is no share, or the quality is none.
    """
    for name, value in (("share to the small model", share), ("escalated share", escalated)):
        if not 0 <= value <= 1:
            raise ConfigError(f"{name} {value:g}: is not a share of 0 to 1")
    if big_use is not None and not (0 < big_use[1] <= 1 and 0 < big_use[0] <= 1):
        raise ConfigError(f"utilisation of the big model {big_use[0]:g} and {big_use[1]:g}: not above 0 and at most 1")
    dearer = big_use[0] / big_use[1] if big_use else 1.0
    on_big = (1 - share + share * escalated) * dearer
    told = f"{share:.0%} on the small model, {escalated:.0%} of that done again by the big one"
    if big_use:
        told += f"; the big one's GPUs stay, its use falls from {big_use[0]:.0%} to {big_use[1]:.0%}"
    blended = total([small.scaled(share), big.scaled(on_big)], told)
    ratio = quotient(small, big)
    point, low, high = (1 - share * one - on_big for one in (ratio.point, ratio.high, ratio.low))
    saving = Estimate(point, low, high, f"against all on the big one; {told}")
    allowed, reason = _guard(quality)
    return Routed(blended, saving, allowed, reason)


def _guard(quality: Quality | None) -> tuple[bool, str]:
    if quality is None:
        return False, "not allowed yet: no measured quality says that the small model is not worse on this traffic"
    for flag, value in (("--route-quality-loss", quality.loss_high), ("--route-quality-margin", quality.margin)):
        if not -1 <= value <= 1:
            raise ConfigError(f"{flag} {value:g}: is not a share of -1 to 1")
    if quality.loss_high > quality.margin:
        return False, (
            f"not allowed yet: the small model may lose {quality.loss_high:.1%}, more than the margin of {quality.margin:.1%}"
        )
    return True, f"measured: at most {quality.loss_high:.1%} of quality lost, within the margin of {quality.margin:.1%}"
