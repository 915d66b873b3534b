"""What is wrong with a service, in one line that is kind to someone awake at 3 am. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from goodwatch.core.model import Absence, Limits, Number
from goodwatch.signals.derive import Derived
from goodwatch.signals.saturation import Saturation, Stall

State = Literal["good", "warning", "bad", "no traffic", "no data"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """State of a service and the line that explains it."""

    state: State
    headline: str


@dataclass(frozen=True, slots=True)
class Reach:
    """How many targets answer; ``error`` is the sentence of one that does not."""

    total: int
    up: int
    pending: int  # not scraped yet
    error: str = ""
    blind: bool = False  # every target that cannot be read answers all the same, but not with a page


#: an interval wider than this is no ground to call a service good
_TELLS_NOTHING: Final = 0.5


def verdict(
    derived: Derived,
    limits: Limits,
    objective: float | None,
    reach: Reach,
    *,
    stalls: Sequence[Stall] = (),
    saturations: Sequence[Saturation] = (),
) -> Verdict:
    """The worst thing that is true, first match wins: unreadable, stalled, missing its objective, at risk, fine."""
    unreadable = _unreadable(reach)
    if unreadable is not None:
        return unreadable
    if stalls:
        s = stalls[0]
        work = f"{s.running:.0f} running, {s.waiting:.0f} waiting"
        return Verdict("bad", f"{s.target} stands still: {work}, and no token for {s.intervals} scrapes")
    down = reach.total - reach.up - reach.pending
    missed = _missed(derived, limits, objective, saturations)
    if missed is not None:
        return missed
    if down:
        return Verdict("warning", f"{down} of {reach.total} targets cannot be read: {reach.error}")
    if saturations:
        s0 = saturations[0]
        return Verdict("warning", f"{s0.target}: {s0.binding.reason if s0.binding else ''}")
    return _calm(derived, objective)


def _unreadable(reach: Reach) -> Verdict | None:
    if reach.total == 0:
        return Verdict("no data", "no targets; add some under targets or file_sd")
    if reach.pending == reach.total:
        return Verdict("no data", "not scraped yet")
    if reach.up == 0 and reach.pending == 0 and reach.blind:
        return Verdict("no data", f"goodwatch is blind here, which says nothing of the service: {reach.error}")
    if reach.up == 0 and reach.pending == 0:
        return Verdict("bad", f"no target can be read: {reach.error}")
    return None


def _missed(
    derived: Derived, limits: Limits, objective: float | None, saturations: Sequence[Saturation]
) -> Verdict | None:
    attainment = derived.numbers["attainment_ratio"]
    if objective is None or attainment.bounds is None or attainment.bounds.high is None:
        return None
    low, high = attainment.bounds.low, attainment.bounds.high
    why = _why(derived, limits, saturations)
    if high < objective:
        share = _share(low, high)
        return Verdict("bad", f"only {share} of requests meet the target, the objective is {objective * 100:g} %{why}")
    if low < objective and why:
        return Verdict("warning", f"{_share(low, high)} of requests meet the target{why}")
    return None


def _why(derived: Derived, limits: Limits, saturations: Sequence[Saturation]) -> str:
    """The latency that misses its target, and the limit that binds."""
    parts: list[str] = []
    for signal, limit in limits.items():
        name = signal.removesuffix("_seconds")
        over = _over(derived.numbers[f"{name}_p90_seconds"], limit) or _over(
            derived.numbers[f"{name}_p50_seconds"], limit
        )
        if over:
            parts.append(f"{name.upper()} {over}")
            break
    if saturations and saturations[0].binding is not None:
        parts.append(saturations[0].binding.reason)
    elif derived.numbers["unaccounted_per_s"].value:
        parts.append("requests were dropped before they finished")
    return ": " + "; ".join(parts) if parts else ""


def _over(number: Number, limit: float) -> str:
    if number.bounds is None or number.bounds.low < limit:
        return ""
    return f"above {number.bounds.low:g} s against {limit:g} s"


def _calm(derived: Derived, objective: float | None) -> Verdict:
    rate, attainment = derived.numbers["request_rate_per_s"], derived.numbers["attainment_ratio"]
    running = derived.numbers["requests_running"].value or 0.0
    if rate.absence is Absence.NO_DATA:
        return Verdict("no data", rate.note)
    if rate.value == 0 and running == 0:
        return Verdict("no traffic", "no request came in the last window; that is neither good nor bad")
    if attainment.bounds is None and derived.goodput is not None and derived.goodput.broken:
        return Verdict("warning", attainment.note)
    if attainment.bounds is None:
        return Verdict("good" if objective is None else "no data", attainment.note or "nothing stands out")
    low, high = attainment.bounds.low, attainment.bounds.high
    if objective is not None and low < objective and (high or 1.0) - low > _TELLS_NOTHING:
        text = f"attainment between {low:.1%} and {high or 0:.1%}, too wide to say anything; traces would tell (otlp)"
        return Verdict("no data", text)
    if objective is not None and low < objective:
        return Verdict(
            "good", f"nothing stands out; attainment between {low:.1%} and {high or 0:.1%}, too wide to prove it"
        )
    return Verdict("good", "meets its objective")


def _share(low: float, high: float) -> str:
    """An interval of a share, its ends rounded outwards as on the pages."""
    ends = math.floor(round(low * 1000, 6)) / 10, math.ceil(round(high * 1000, 6)) / 10
    return f"{ends[1]:g} %" if ends[0] == ends[1] else f"{ends[0]:g} to {ends[1]:g} %"
