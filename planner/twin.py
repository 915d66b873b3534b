"""A service in the simulator, beside the same service after a change: each drawn many times over what is not known.

Both see the same requests and the same error of the fitted step in each draw, so that only the change makes them
differ. Draws are spread evenly over the normal distribution instead of at random: the same question has the same answer.
Where attainment was measured, only such errors of the step are drawn as come to it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, exp, isfinite, log
from statistics import NormalDist
from typing import Final

import polars as pl

from planner.candidate import Effect, World
from planner.estimate import Estimate
from planner.evidence import Seen as Measured
from planner.simulate.run import Limits, simulate
from planner.simulate.trace import Trace

#: draws, at the middles of sevenths: the outermost two leave out a fourteenth at either end, and make the band
DRAWS: Final = 7
#: requests of one run that is not cut into stretches
_WHOLE: Final = 1_500
#: stretches of a longer trace, evenly spread, and requests of each: enough for a queue to show
_STRETCHES: Final = 3
_STRETCH: Final = 800
_LEAST_FOR_P99: Final = 100
#: which draw of the change's own error goes with which of the fitted step's: a permutation without correlation
_PAIRED: Final = (2, 4, 6, 0, 1, 5, 3)
#: sigmas beyond which an error of the fitted step is not looked for
_REACH: Final = 3
#: no end
_FAR: Final = 8.0
#: factor by which a simulated 99th percentile may be off one that was measured
_P99_OFF: Final = 1.15
#: attainment that the twin may be off by beside what was measured
_TOLERANCE: Final = 0.03
#: the price's place in its band goes through all draws in an order of its own; no divisor of their number
_PRICE_STEP: Final = 4


@dataclass(frozen=True, slots=True)
class Drawn:
    """One run; cost per good token is in USD per million, None without good tokens or a price."""

    attained_ratio: float
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    output_tokens_per_s: float
    usd_per_hour: float | None
    usd_per_million_good: float | None


@dataclass(frozen=True, slots=True)
class Doubt:
    """The error of the fitted step: one sigma (log units), and between which ends (in sigmas) it lies.

    ``centre``: what of it the step that is drawn over has in it already, log units.
    """

    sigma: float
    low: float = -_FAR
    high: float = _FAR
    centre: float = 0.0

    def at(self, place: float) -> float:
        """Log error at a place in (0, 1) of the normal distribution between the two ends."""
        normal = NormalDist()
        first, last = normal.cdf(self.low), normal.cdf(self.high)
        return self.sigma * normal.inv_cdf(min(1 - 1e-9, max(1e-9, first + (last - first) * place))) - self.centre


def draws(world: World, doubt: Doubt, limits: Limits, *, count: int = DRAWS) -> list[Drawn]:
    """Runs of a world over the errors of its step time.

    Parameters
    ----------
    world
        What runs, and what arrives.
    doubt
        Of the fitted step; shared with every other world of the same evidence.
    limits
        What a good request meets.

    Raises
    ------
    ConfigError
        A request that no empty cache of this world could hold.
    """
    own = Doubt(world.sigma)
    parts = world.parts or tuple((1.0, world.fleet, one) for one in stretches(world.trace))
    found = []
    for place in range(count):
        slow = exp(
            doubt.at((place + 0.5) / count) + own.at((_PAIRED[place % DRAWS] + 0.5) / DRAWS if count > 1 else 0.5)
        )
        runs = [
            (weight, simulate(requests, replace(fleet, cost=fleet.cost.scaled(slow)), limits).requests)
            for weight, fleet, requests in parts
        ]
        found.append(_drawn(runs, world, limits, ((place * _PRICE_STEP) % count + 0.5) / count))
    return found


def seen_doubt(stay: World, sigma: float, limits: Limits, seen: Measured) -> Doubt | None:
    """The errors of the fitted step at which the twin comes to what was measured; None: at none of them.

    Attainment says much more about a service near its knee than latencies do: a step that is 5 % too fast puts it on
    the other side. Far from the knee it says nothing, and the 99th percentiles do: they narrow the errors further where
    they agree with any. A trace of which only stretches are run has no queue as long as the measured one, and no such
    percentile.
    """
    if seen.attained is None:
        return Doubt(sigma)
    least, most = seen.attained[0] - _TOLERANCE, seen.attained[1] + _TOLERANCE
    found = [
        (step / 4, draws(stay, Doubt(1.0, centre=-sigma * step / 4), limits, count=1)[0])
        for step in range(-4 * _REACH, 4 * _REACH + 1)
    ]
    kept = [(place, run) for place, run in found if least <= run.attained_ratio <= most]
    if not kept:
        # attainment can jump over what was measured between two places: then it is there
        jumps = [(a[0], b[0]) for a, b in pairwise(found) if a[1].attained_ratio > most and b[1].attained_ratio < least]
        return Doubt(sigma, *jumps[0]) if jumps else None
    if len(stay.trace) <= _WHOLE:
        for told, name in ((seen.tpot_p99_s, "tpot_p99_s"), (seen.ttft_p99_s, "ttft_p99_s")):
            near = [one for one in kept if _alike(getattr(one[1], name), told)]
            kept = near or kept
    low, high = kept[0][0], kept[-1][0]
    return Doubt(sigma, -_FAR if low <= -_REACH else low - 1 / 8, _FAR if high >= _REACH else high + 1 / 8)


def _alike(simulated: float | None, told: float | None) -> bool:
    return bool(simulated and told) and abs(log(simulated / told)) <= log(_P99_OFF)  # type: ignore[operator]


def effect(found: Sequence[Drawn], basis: str = "") -> Effect:
    """What draws come to, with 80 % intervals."""
    return Effect(
        _needed([one.attained_ratio for one in found], basis), _band([one.ttft_p99_s for one in found], basis),
        _band([one.tpot_p99_s for one in found], basis), _needed([one.output_tokens_per_s for one in found], basis),
        _band([one.usd_per_hour for one in found], basis), _band([one.usd_per_million_good for one in found], basis),
    )  # fmt: skip


def differences(of: Sequence[float | None], against: Sequence[float | None]) -> Estimate | None:
    """The difference of paired draws; None where a draw of either is not known."""
    pairs = zip(of, against, strict=True)
    return _band([None if a is None or b is None else a - b for a, b in pairs], "paired draws")


def ratios(of: Sequence[float | None], against: Sequence[float | None]) -> Estimate | None:
    """The ratio of paired draws; None where a draw of either is not known or is 0."""
    pairs = zip(of, against, strict=True)
    return _band([None if not a or not b else a / b for a, b in pairs], "paired draws")


def stretches(whole: Trace) -> list[Trace]:
    """The whole trace; or three stretches of 800 requests, evenly spread, of one with more than 1,500."""
    if len(whole) <= _WHOLE:
        return [whole]
    last = len(whole) - _STRETCH
    starts = [round(last * (place + 0.5) / _STRETCHES) for place in range(_STRETCHES)]
    return [part(whole, start, start + _STRETCH) for start in starts]


def busiest(whole: Trace, count: int = _STRETCH) -> Trace:
    """The stretch of so many requests that came in the least time; the whole trace when it has no more."""
    size = min(count, len(whole))
    if size == len(whole):
        return whole
    arrived = whole.arrived_s
    start = min(range(len(whole) - size), key=lambda i: arrived[i + size] - arrived[i])
    return part(whole, start, start + size)


def part(whole: Trace, start: int, end: int) -> Trace:
    """Requests ``[start, end)`` of a trace."""
    return Trace(
        whole.arrived_s[start:end], whole.input_tokens[start:end], whole.output_tokens[start:end],
        whole.cached_tokens[start:end], whole.prefix[start:end], whole.prefix_tokens[start:end],
        whole.priority[start:end], whole.patience_s,
    )  # fmt: skip


def kept(whole: Trace, share: float) -> Trace:
    """Every request but an even share of them: what is left when some go elsewhere."""
    chosen = [i for i in range(len(whole)) if int((i + 1) * share) > int(i * share)]

    def of(column: array[int]) -> array[int]:
        return array("q", [column[i] for i in chosen])

    arrived = array("d", [whole.arrived_s[i] for i in chosen])
    return Trace(
        arrived, of(whole.input_tokens), of(whole.output_tokens), of(whole.cached_tokens), of(whole.prefix),
        of(whole.prefix_tokens), of(whole.priority), whole.patience_s,
    )  # fmt: skip


def _drawn(runs: Sequence[tuple[float, pl.DataFrame]], world: World, limits: Limits, place: float) -> Drawn:
    """One draw of all its parts, weighted: they are stretches of one trace, or hours of a day."""
    frame = pl.concat([one.with_columns(weight=pl.lit(weight)) for weight, one in runs])
    good = pl.col("e2e_s").is_not_null()
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        limit = getattr(limits, name)
        good = good & (pl.col(name).fill_null(0.0) <= limit) if limit is not None else good
    tokens, weight = pl.col("output_tokens") * pl.col("weight"), pl.col("weight")
    row = frame.select(
        good=(weight * good).sum(), all=weight.sum(), good_tokens=(tokens * good).sum(), tokens=tokens.sum(),
        made=(tokens * pl.col("e2e_s").is_not_null()).sum(),
    ).row(0, named=True)  # fmt: skip
    share = row["good"] / row["all"] if row["all"] else 0.0
    elsewhere = world.served_elsewhere_ratio  # what another service answers is taken to be good as often as here
    sure = 1 - world.turned_away_ratio
    per_hour = _offered_per_hour(world.trace) / (1 - elsewhere)
    good_per_hour = per_hour * (row["good_tokens"] / row["tokens"] if row["tokens"] else 0.0)
    hourly = None if world.usd_per_hour is None else _at(world.usd_per_hour, place) + world.elsewhere_usd_per_hour
    cost = None if hourly is None or good_per_hour <= 0 else hourly / good_per_hour * 1e6
    made = row["made"] / row["tokens"] * per_hour / 3600 if row["tokens"] else 0.0
    return Drawn(share * sure, _p99(frame["ttft_s"]), _p99(frame["tpot_s"]), made, hourly, cost)


def _offered_per_hour(whole: Trace) -> float:
    """Output tokens per hour that the requests of a trace ask for."""
    span_s = whole.arrived_s[-1] - whole.arrived_s[0] if len(whole) > 1 else 0.0
    return sum(whole.output_tokens) / span_s * 3600 if span_s > 0 else 0.0


def _at(price: Estimate, place: float) -> float:
    """A price of the band: all its draws are even, so that its interval shows in theirs."""
    return price.low + (price.high - price.low) * place if price.high > price.low else price.point


def _p99(column: pl.Series) -> float | None:
    told = column.drop_nulls().sort()
    return float(told[ceil(0.99 * len(told)) - 1]) if len(told) >= _LEAST_FOR_P99 else None


def _needed(values: Sequence[float], basis: str) -> Estimate:
    ordered = sorted(values)
    out = len(ordered) // 10
    return Estimate(ordered[len(ordered) // 2], ordered[out], ordered[-1 - out], basis)


def _band(values: Sequence[float | None], basis: str) -> Estimate | None:
    told = [value for value in values if value is not None and isfinite(value)]
    return _needed(told, basis) if len(told) == len(values) and told else None
