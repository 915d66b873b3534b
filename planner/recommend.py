"""Evidence to advice: every strategy is asked, its proposals are simulated beside "stay", and the surest good one leads.

Rules: a candidate is judged by the pessimistic end of its band; a gain inside the band is no advice; no promise is larger
than the part that the change touches; levers that are undone easily come before those that are not, and hardware only
where nothing gentler reaches the objective; a swap whose direction no model can tell is a canary and promises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from goodwatch.core.errors import ConfigError
from planner.candidate import LEVERS, Abstained, Advice, Candidate, Effect, Proposal, Strategy, World
from planner.estimate import Estimate
from planner.evidence import Evidence
from planner.twin import Drawn, differences, draws, effect, ratios, reproduces

Mode = Literal["restore", "save"]

#: requests below which nothing is recommended: a P99 needs a hundred, a verdict on a tail several of those
LEAST_REQUESTS: Final = 300
#: a saving below this share of the bill is not worth a change
_LEAST_SAVING: Final = 0.03
#: a gain of attainment below this is not worth a change
_LEAST_GAIN: Final = 0.01
#: how far the pessimistic end of a saving candidate's attainment may lie below that of staying
_GIVEN_UP: Final = 0.005
_HOURS_PER_WEEK: Final = 168.0
#: candidates that come close are listed, up to this many
_SHOWN: Final = 6


def recommend(evidence: Evidence, strategies: Sequence[Strategy], *, mode: Mode | None = None) -> Advice:
    """Ranked candidates for one service, or the reason why there are none.

    Parameters
    ----------
    evidence
        The service as measured.
    strategies
        All that may speak; each is asked once.
    mode
        "restore" looks for attainment, "save" for money at the same attainment; without it attainment decides.
    """
    refused = refusal(evidence)
    if refused:
        return _none(evidence, refused, evidence.missing)
    stay_draws = draws(staying(evidence), evidence.sigma, evidence.limits)
    stay = effect(stay_draws, "simulated as it runs")
    if reproduces(stay, evidence.seen.attained) is False:
        return _none(evidence, _unlike(stay, evidence), evidence.missing, stay)
    wanted = mode or ("restore" if stay.attainment.point < evidence.objective else "save")
    abstained: list[Abstained] = []
    tried: list[Candidate] = []
    for strategy in strategies:
        answer = strategy.propose(evidence)
        if isinstance(answer, Abstained):
            abstained.append(answer)
            continue
        tried += [_tried(one, evidence, stay, stay_draws, wanted) for one in answer]
    good = ordered([one for one in tried if one.helps], evidence.objective, wanted)
    lost = sorted((one for one in tried if not one.helps), key=lambda one: -one.effect.attainment.point)
    reason = "" if good else _why_stay(stay, evidence, wanted, len(tried))
    return Advice(
        evidence.service, evidence.start_s, evidence.end_s, wanted if good else "none", stay, tuple(good[:_SHOWN]),
        (*lost, *(replace(one, why_not="others are surer or cheaper") for one in good[_SHOWN:])), tuple(abstained), reason,
        evidence.missing,
    )  # fmt: skip


def refusal(evidence: Evidence) -> str:
    """Why this evidence cannot carry any advice; "" where it can."""
    if evidence.seen.off_scale:
        names = ", ".join(evidence.seen.off_scale)
        return f"{names}: the measured quantiles lie above the engine's last bucket; nobody knows how bad it is"
    if evidence.seen.requests < LEAST_REQUESTS or len(evidence.trace) < LEAST_REQUESTS:
        told = min(evidence.seen.requests, len(evidence.trace))
        return f"{told} requests in {evidence.hours:.3g} h; at least {LEAST_REQUESTS} are needed: wait, or widen the window"
    if not evidence.limits_told:
        return "no latency target is known: write an slo for the service"
    return ""


def staying(evidence: Evidence) -> World:
    """The service as it runs."""
    return World(evidence.fleet, evidence.trace, hourly(evidence, evidence.fleet.replicas))


def hourly(evidence: Evidence, replicas: int, *, gpus_per_replica: int | None = None) -> Estimate | None:
    """USD per hour of so many replicas, at the price of the cards in use; None where it is not known."""
    gpus = replicas * (gpus_per_replica or evidence.gpus_per_replica)
    return None if evidence.usd_per_gpu_hour is None else evidence.usd_per_gpu_hour.scaled(gpus)


def ordered(found: Sequence[Candidate], objective: float, mode: Mode) -> list[Candidate]:
    """Best first. Restoring: those that surely reach the objective, gentlest and cheapest first, then by the sure gain."""

    def place(one: Candidate) -> tuple[float, ...]:
        sure = one.effect.attainment.low
        lever = LEVERS.index(one.proposal.lever)
        gated = 1.0 if one.proposal.gate else 0.0
        canary = 1.0 if one.proposal.canary_only else 0.0
        if mode == "save":
            saved = one.saving_usd_per_week.low if one.saving_usd_per_week else 0.0
            return (canary, gated, -saved, lever)
        if sure >= objective:
            cost = one.cost_ratio.high if one.cost_ratio else 1.0
            return (canary, 0.0, gated, lever, cost, -sure)
        return (canary, 1.0, gated, -round(sure, 2), lever)

    return sorted(found, key=place)


def _tried(proposal: Proposal, evidence: Evidence, stay: Effect, stay_draws: Sequence[Drawn], mode: Mode) -> Candidate:
    """A proposal with its effect, and whether it surely helps."""
    try:
        own = draws(proposal.world, evidence.sigma, evidence.limits)
    except ConfigError as error:
        nothing = Estimate(0.0, 0.0, 0.0)
        return Candidate(proposal, stay, nothing, None, None, helps=False, why_not=str(error))
    found = effect(own, "simulated after the change")
    gain = differences([one.attained_ratio for one in own], [one.attained_ratio for one in stay_draws])
    cost = _bounded(
        ratios([one.usd_per_million_good for one in own], [one.usd_per_million_good for one in stay_draws]),
        proposal.touches_ratio,
    )
    assert gain is not None
    one = Candidate(proposal, found, gain, _saving(own, stay_draws), cost, helps=True)
    why_not = _why_not(one, stay, evidence.objective, mode)
    return replace(one, helps=not why_not, why_not=why_not)


def _bounded(ratio: Estimate | None, touches: float) -> Estimate | None:
    """Amdahl: a change that touches a share of the bill leaves the rest of it."""
    return None if ratio is None else ratio.at_least(1 - touches)


def _saving(own: Sequence[Drawn], stay: Sequence[Drawn]) -> Estimate | None:
    """Money of a week, at the window's traffic."""
    found = differences([one.usd_per_hour for one in stay], [one.usd_per_hour for one in own])
    return None if found is None else found.scaled(_HOURS_PER_WEEK)


def _why_not(one: Candidate, stay: Effect, objective: float, mode: Mode) -> str:
    """Why a candidate is no advice; "" when it is."""
    gain, cost = one.gain, one.cost_ratio
    if mode == "restore":
        inside = f"attainment changes by {gain.low:+.1%} to {gain.high:+.1%}: the gain is inside the band"
        return inside if gain.low < _LEAST_GAIN else ""
    floor = objective if stay.attainment.low >= objective else stay.attainment.low - _GIVEN_UP
    if one.effect.attainment.low < floor:
        return f"attainment could fall to {one.effect.attainment.low:.1%}"
    if one.proposal.canary_only:
        return "a model cannot tell whether it is cheaper; try it on one replica"
    if cost is None or one.saving_usd_per_week is None:
        return "no price is known, so that it is not known what it saves"
    if cost.high > 1 - _LEAST_SAVING:
        return f"cost per good token becomes {cost.low:.2f} to {cost.high:.2f} of today's: inside the band"
    return ""


def _why_stay(stay: Effect, evidence: Evidence, mode: Mode, tried: int) -> str:
    attained = f"attainment {stay.attainment.point:.1%} ({stay.attainment.low:.1%} to {stay.attainment.high:.1%})"
    goal = f"objective {evidence.objective:.4g}"
    if mode == "restore":
        return f"stay: {attained} is below the {goal}, and none of {tried} changes surely helps"
    return f"stay: {attained} meets the {goal}, and none of {tried} changes surely saves anything"


def _unlike(stay: Effect, evidence: Evidence) -> str:
    low, high = evidence.seen.attained or (0.0, 0.0)
    return (
        f"the model of the running service gives an attainment of {stay.attainment.low:.1%} to {stay.attainment.high:.1%}"
        f" and {low:.1%} to {high:.1%} was measured: it does not know what limits this service"
    )


def _none(evidence: Evidence, reason: str, missing: tuple[str, ...], stay: Effect | None = None) -> Advice:
    return Advice(evidence.service, evidence.start_s, evidence.end_s, "none", stay, reason=reason, missing=missing)
