"""The cost of a step from what real requests saw: the simulator is run until it sees the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import exp, log, sqrt
from statistics import median
from typing import Final

from planner.simulate.run import simulate
from planner.simulate.setup import Fleet, Scheduler, StepCost
from planner.simulate.trace import Trace

#: what is fitted, and where the search starts, seconds
_START: Final = {"fixed_s": 0.01, "running_s": 1e-3, "prompt_token_s": 2e-5, "prompt_s": 2e-3, "answer_s": 1e-2}
#: error (log units) at which a request counts half
_WIDTH: Final = 0.7
#: latencies below this are timer and scheduling noise, seconds
_FLOOR_S: Final = 2e-3
_Z80: Final = 1.2816


@dataclass(frozen=True, slots=True)
class Seen:
    """What the requests of a trace saw, place by place; None where they saw none."""

    ttft_s: Sequence[float | None]
    tpot_s: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The cost, and how much faster or slower (log units, one sigma) stretches of the trace were than it says."""

    cost: StepCost
    sigma: float

    def band(self) -> tuple[StepCost, StepCost]:
        """The fast and the slow end of an 80 % band."""
        return self.cost.scaled(exp(-_Z80 * self.sigma)), self.cost.scaled(exp(_Z80 * self.sigma))


def calibrated(requests: Trace, seen: Seen, rules: Scheduler, *, stretches: int = 5, rounds: int = 600) -> Calibrated:
    """Fit the cost of a step to a trace and what its requests saw.

    Parameters
    ----------
    requests, seen
        The trace, and its latencies at one vantage point; a request without any takes part only as load.
    rules
        The engine's limits.
    stretches
        Parts of the trace (in order of arrival) whose own speed gives ``sigma``: what a busy host or a kind of load that
        the model does not know does to it.
    rounds
        Runs of the simulator that the search may take.
    """
    names = list(_START)

    def cost_at(place: Sequence[float]) -> StepCost:
        return StepCost(**{name: exp(p) for name, p in zip(names, place, strict=True)})

    def misfit(place: Sequence[float]) -> float:
        errors = _errors(requests, seen, Fleet(cost_at(place), rules))
        pull = sum(((p - log(_START[n])) / 3.0) ** 2 for n, p in zip(names, place, strict=True))
        return sum(log(1 + (e / _WIDTH) ** 2) for _, e in errors) + pull

    best = least(misfit, [log(v) for v in _START.values()], rounds=rounds)
    cost = cost_at(best)
    assert {one.name for one in fields(StepCost)} >= set(names)
    errors = _errors(requests, seen, Fleet(cost, rules))
    size = max(1, len(requests) // stretches)
    parts = [[e for place, e in errors if place // size == i] for i in range(stretches + 1)]
    middles = [median(one) for one in parts if len(one) >= 10]
    return Calibrated(cost, sqrt(sum(m * m for m in middles) / len(middles) + 0.05**2) if middles else 0.5)


def _errors(requests: Trace, seen: Seen, fleet: Fleet) -> list[tuple[int, float]]:
    """Place and log of simulated over seen latency, TTFT and TPOT."""
    frame = simulate(requests, fleet).requests
    errors: list[tuple[int, float]] = []
    for column, real in (("ttft_s", seen.ttft_s), ("tpot_s", seen.tpot_s)):
        floor = _FLOOR_S if column == "ttft_s" else _FLOOR_S / 10
        for place, (told, truth) in enumerate(zip(frame[column], real, strict=True)):
            if truth is not None and told is not None:
                errors.append((place, log((told + floor) / (truth + floor))))
    return errors


def least(worth: Callable[[Sequence[float]], float], start: Sequence[float], *, rounds: int) -> list[float]:
    """Where ``worth`` is least, by Nelder and Mead's simplex (Computer Journal 7, 1965)."""
    points = [list(start)] + [[s + (0.7 if i == j else 0.0) for i, s in enumerate(start)] for j in range(len(start))]
    known = sorted((worth(p), p) for p in points)
    spent = len(points)
    while spent < rounds:
        known.sort(key=lambda one: one[0])
        worst, last = known[-1]
        middle = [sum(p[i] for _, p in known[:-1]) / (len(known) - 1) for i in range(len(last))]

        def at(share: float, middle: list[float] = middle, last: list[float] = last) -> tuple[float, list[float]]:
            place = [m + share * (m - p) for m, p in zip(middle, last, strict=True)]
            return worth(place), place

        found = at(1.0)
        spent += 1
        if found[0] < known[0][0]:
            further = at(2.0)
            spent += 1
            found = min(found, further, key=lambda one: one[0])
        elif found[0] >= known[-2][0]:
            found = at(0.5 if found[0] < worst else -0.5)
            spent += 1
        if found[0] < worst:
            known[-1] = found
            continue
        best = known[0][1]
        known = [known[0]] + [_half(worth, best, p) for _, p in known[1:]]
        spent += len(known) - 1
    return min(known, key=lambda one: one[0])[1]


def _half(
    worth: Callable[[Sequence[float]], float], best: Sequence[float], other: Sequence[float]
) -> tuple[float, list[float]]:
    place = [(b + o) / 2 for b, o in zip(best, other, strict=True)]
    return worth(place), place
