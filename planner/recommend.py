"""Evidence to advice: every strategy is asked, its proposals are simulated beside "stay", and the surest good one leads.

Rules: a candidate is judged by the pessimistic end of its band; a gain inside the band is no advice; no promise is larger
than the part that the change touches; levers that are undone easily come before those that are not, and hardware only
where nothing gentler reaches the objective; a swap whose direction no model can tell is a canary and promises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, hypot, sqrt
from typing import Final, Literal

from goodwatch.core.errors import ConfigError
from planner.candidate import LEVERS, Abstained, Advice, Candidate, Effect, Proposal, Strategy, World
from planner.estimate import Estimate
from planner.evidence import Evidence
from planner.strategies._models import grounded
from planner.twin import Doubt, Drawn, differences, draws, effect, ratios, seen_doubt

Mode = Literal["restore", "save"]

#: requests below which nothing is recommended: a P99 needs a hundred, a verdict on a tail several of those
LEAST_REQUESTS: Final = 300
#: a saving below this share of the bill is not worth a change
_LEAST_SAVING: Final = 0.03
#: a gain of attainment below this is not worth a change
_LEAST_GAIN: Final = 0.01
#: share of the gap to the objective that a change must surely close to be advice, and to be tried before paying more
_LEAST_CLOSED: Final = 0.1
_LIKELY: Final = 0.5
#: costs that are as good as equal
_NEAR: Final = 0.03
#: attainment that percentiles and counts of one window may be apart
_CONTRADICTS: Final = 0.05
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
    doubt = seen_doubt(staying(evidence), evidence.sigma, evidence.limits, evidence.seen)
    if doubt is None:
        return _none(evidence, _unlike(evidence), evidence.missing)
    asked, doubt = _centred(evidence, doubt)
    stay_draws = draws(staying(asked), doubt, evidence.limits)
    stay = effect(stay_draws, "simulated as it runs")
    wanted = mode or _wanted(evidence, stay)
    abstained: list[Abstained] = []
    tried: list[Candidate] = []
    asked = grounded(asked)
    for strategy in strategies:
        answer = strategy.propose(asked)
        if isinstance(answer, Abstained):
            abstained.append(answer)
            continue
        tried += [_tried(one, asked, doubt, (stay, stay_draws), wanted) for one in answer]
    good = ordered([one for one in tried if one.helps], stay, evidence.objective, wanted)
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
    return _not_latency(evidence)


def _not_latency(evidence: Evidence) -> str:
    """What is measured contradicts itself: 99 of 100 requests met each target, and yet far fewer were good."""
    limits, seen = evidence.limits, evidence.seen
    pairs = [(limits.ttft_s, seen.ttft_p99_s), (limits.tpot_s, seen.tpot_p99_s)]
    told = [(limit, value) for limit, value in pairs if limit is not None]
    met = all(value is not None and value <= limit for limit, value in told) and limits.e2e_s is None
    most = seen.attained[1] if seen.attained is not None else 1.0
    if not met or most >= 1 - 0.01 * len(told) - _CONTRADICTS:
        return ""
    return (
        f"99 of 100 requests met each latency target, and yet at most {most:.1%} were good: what they missed is not latency "
        "(failing requests, a gateway?); see how requests end"
    )


def staying(evidence: Evidence) -> World:
    """The service as it runs."""
    return World(evidence.fleet, evidence.trace, hourly(evidence, evidence.fleet.replicas))


def hourly(evidence: Evidence, replicas: int, *, gpus_per_replica: int | None = None) -> Estimate | None:
    """USD per hour of so many replicas, at the price of the cards in use; None where it is not known."""
    gpus = replicas * (gpus_per_replica or evidence.gpus_per_replica)
    return None if evidence.usd_per_gpu_hour is None else evidence.usd_per_gpu_hour.scaled(gpus)


def ordered(found: Sequence[Candidate], stay: Effect, objective: float, mode: Mode) -> list[Candidate]:
    """Best first.

    Restoring: those that surely reach the objective at no more money than today; then those that likely do, for they cost
    little to try and surely help; then those that reach it with more money; then by the sure gain. Among equals, and
    when saving: the least bill for what is served, and of those within 3 % of it the gentlest.
    """
    tiers: dict[int, list[Candidate]] = {}
    for one in found:
        tiers.setdefault(_tier(one, stay, objective) if mode == "restore" else 0, []).append(one)
    placed = []
    for tier in sorted(tiers):
        if tier == _NOT_REACHED:
            placed += sorted(tiers[tier], key=lambda one: (-round(one.effect.attainment.low, 2), _gentle(one)))
            continue
        least = min(_dear(one) for one in tiers[tier])
        placed += sorted(
            tiers[tier], key=lambda one: (_near(one, least), _gentle(one), _dear(one), -one.effect.attainment.low)
        )
    return placed


_NOT_REACHED: Final = 3


def _tier(one: Candidate, stay: Effect, objective: float) -> int:
    """0: surely reaches the objective for today's money; 1: likely does; 2: does either for more; 3: does not."""
    told = one.effect.attainment
    now, then = stay.usd_per_hour, one.effect.usd_per_hour
    more = then.point > now.point * (1 + _NEAR) if now and then else one.proposal.lever == "hardware"
    closed = (told.low - stay.attainment.low) >= _LIKELY * (objective - stay.attainment.low)
    sure, likely = told.low >= objective, told.point >= objective and closed
    if more:  # replicas come one by one: what is likely enough is tried before more is paid for
        return 2 if sure or likely else _NOT_REACHED
    return 0 if sure else 1 if likely else _NOT_REACHED


def _dear(one: Candidate) -> float:
    """The bill of what is served, at the pessimistic end; without a price, what is refused still counts."""
    world = one.proposal.world
    served = 1.0 if world.excess_only else 1 - world.turned_away_ratio
    bill = one.effect.usd_per_hour
    return (bill.high if bill else 1.0) / max(1e-9, served)


def _near(one: Candidate, least: float) -> float:
    return 0.0 if _dear(one) <= least * (1 + _NEAR) else _dear(one)


def _gentle(one: Candidate) -> int:
    """How easily it is undone; what needs a quality gate is as a change of precision at best."""
    place = LEVERS.index(one.proposal.lever)
    return max(place, LEVERS.index("precision")) if one.proposal.gate else place


def _centred(evidence: Evidence, doubt: Doubt) -> tuple[Evidence, Doubt]:
    """The fitted step moved to the middle of what the measured attainment leaves of its error."""
    centre = doubt.at(0.5)
    fleet = replace(evidence.fleet, cost=evidence.fleet.cost.scaled(exp(centre)))
    return replace(evidence, fleet=fleet), replace(doubt, centre=centre)


def _wanted(evidence: Evidence, stay: Effect) -> Mode:
    """What was measured says whether attainment is to be restored; the twin only where that is open."""
    low, high = evidence.seen.attained or (0.0, 1.0)
    if high < evidence.objective or low >= evidence.objective:
        return "restore" if high < evidence.objective else "save"
    return "restore" if stay.attainment.point < evidence.objective else "save"


def _tried(
    proposal: Proposal, evidence: Evidence, doubt: Doubt, stay: tuple[Effect, Sequence[Drawn]], mode: Mode
) -> Candidate:
    """A proposal with its effect beside that of staying (and its draws), and whether it surely helps."""
    now, now_draws = stay
    try:
        own = draws(_later(proposal.world, len(evidence.trace)), doubt, evidence.limits)
    except ConfigError as error:
        nothing = Estimate(0.0, 0.0, 0.0)
        return Candidate(proposal, now, nothing, None, None, helps=False, why_not=str(error))
    found = effect(own, "simulated after the change")
    gain = differences([one.attained_ratio for one in own], [one.attained_ratio for one in now_draws])
    cost = ratios([one.usd_per_million_good for one in own], [one.usd_per_million_good for one in now_draws])
    if mode == "save" and cost is not None:
        cost = cost.at_least(1 - proposal.touches_ratio)  # Amdahl: the rest of the bill stays
    assert gain is not None
    one = Candidate(proposal, found, gain, _saving(own, now_draws), cost, helps=True)
    why_not = _why_not(one, now, evidence.objective, mode)
    return replace(one, helps=not why_not, why_not=why_not)


def _later(world: World, requests: int) -> World:
    """The world with the traffic to come: the window's rate is known to one part in the root of its requests only.

    More requests are as a slower step. Staying has no such doubt here, for it is as it was measured.
    """
    return replace(world, sigma=hypot(world.sigma, 1 / sqrt(requests)))


def _saving(own: Sequence[Drawn], stay: Sequence[Drawn]) -> Estimate | None:
    """Money of a week, at the window's traffic."""
    found = differences([one.usd_per_hour for one in stay], [one.usd_per_hour for one in own])
    return None if found is None else found.scaled(_HOURS_PER_WEEK)


def _why_not(one: Candidate, stay: Effect, objective: float, mode: Mode) -> str:
    """Why a candidate is no advice; "" when it is."""
    gain, cost = one.gain, one.cost_ratio
    if one.proposal.canary_only:
        return "a model cannot tell whether it is better; try it on one replica"
    if mode == "restore":
        if gain.low >= max(_LEAST_GAIN, _LEAST_CLOSED * (objective - stay.attainment.point)):
            return ""
        small = (
            "the gain is inside the band"
            if gain.low < _LEAST_GAIN
            else f"too little for an objective of {objective:.4g}"
        )
        return f"attainment changes by {gain.low:+.1%} to {gain.high:+.1%}: {small}"
    if one.effect.attainment.low < objective:
        return f"attainment could fall to {one.effect.attainment.low:.1%}"
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


def _unlike(evidence: Evidence) -> str:
    low, high = evidence.seen.attained or (0.0, 0.0)
    return (
        f"an attainment of {low:.1%} to {high:.1%} was measured, and the model of the running service does not come to it at "
        f"any step time within three of its errors ({evidence.sigma:.0%} each): it does not know what limits this service "
        "(failing requests, a gateway, a busy host?)"
    )


def _none(evidence: Evidence, reason: str, missing: tuple[str, ...], stay: Effect | None = None) -> Advice:
    return Advice(evidence.service, evidence.start_s, evidence.end_s, "none", stay, reason=reason, missing=missing)
