"""A service in the simulator, beside the same service after a change: each drawn many times over what is not known.

Both see the same requests and the same error of the fitted step in each draw, so that only the change makes them
differ. Draws are spread evenly over the normal distribution instead of at random: the same question has the same answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, isfinite
from statistics import NormalDist
from typing import Final

import polars as pl

from planner.candidate import Effect, World
from planner.estimate import Estimate
from planner.simulate.run import Limits, simulate
from planner.simulate.trace import Trace

#: draws; the 80 % band leaves one out at either end
DRAWS: Final = 11
#: requests of one draw: enough for a P99, few enough for a simulation of tens of milliseconds
_SLICE: Final = 1_500
_LEAST_FOR_P99: Final = 100
#: which draw of the change's own error goes with which of the fitted step's: a permutation without a trend
_PAIRED: Final = (5, 9, 2, 7, 0, 10, 4, 1, 8, 3, 6)
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


def draws(world: World, sigma: float, limits: Limits, *, count: int = DRAWS) -> list[Drawn]:
    """Runs of a world over the errors of its step time and over stretches of its trace.

    Parameters
    ----------
    world
        What runs, and what arrives.
    sigma
        One-sigma error of the fitted step, log units; shared with every other world of the same evidence.
    limits
        What a good request meets.

    Raises
    ------
    ConfigError
        A request that no empty cache of this world could hold.
    """
    normal, pieces = NormalDist(), slices(world.trace, count)
    found = []
    for place in range(count):
        fitted = sigma * normal.inv_cdf((place + 0.5) / count)
        own = world.sigma * normal.inv_cdf((_PAIRED[place % len(_PAIRED)] + 0.5) / len(_PAIRED))
        fleet = replace(world.fleet, cost=world.fleet.cost.scaled(exp(fitted + own)))
        requests = simulate(pieces[place % len(pieces)], fleet, limits).requests
        found.append(_drawn(requests, world, limits, ((place * _PRICE_STEP) % count + 0.5) / count))
    return found


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


def slices(whole: Trace, count: int) -> list[Trace]:
    """Stretches of a trace, in order of arrival and of at most 1,500 requests; spread over it when it is longer."""
    size = min(len(whole), _SLICE)
    if not size:
        return [whole]
    last = len(whole) - size
    starts = dict.fromkeys(round(last * place / max(1, count - 1)) for place in range(count))
    return [part(whole, start, start + size) for start in starts]


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


def reproduces(stay: Effect, attained: tuple[float, float] | None) -> bool | None:
    """Whether the twin of the running service comes to what was measured; None where nothing was."""
    if attained is None:
        return None
    low, high = attained
    return stay.attainment.low - _TOLERANCE <= high and stay.attainment.high + _TOLERANCE >= low


#: attainment that the twin may be off by beside its band
_TOLERANCE: Final = 0.05


def _drawn(requests: pl.DataFrame, world: World, limits: Limits, place: float) -> Drawn:
    ended = pl.col("e2e_s").is_not_null()
    good = ended
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        limit = getattr(limits, name)
        good = good & (pl.col(name).fill_null(0.0) <= limit) if limit is not None else good
    row = requests.select(
        good=good.sum(), all=pl.len(), good_tokens=pl.col("output_tokens").filter(good).sum(),
        tokens=pl.col("output_tokens").filter(ended).sum(), first=pl.col("arrived_s").min(),
        arrived=pl.col("arrived_s").max(), last=(pl.col("arrived_s") + pl.col("e2e_s")).max(),
    ).row(0, named=True)  # fmt: skip
    sure = 1 - world.turned_away_ratio
    paid_s = (row["arrived"] or 0.0) - (row["first"] or 0.0)
    span_s = max(paid_s, (row["last"] or 0.0) - (row["first"] or 0.0))
    hourly = None if world.usd_per_hour is None else _at(world.usd_per_hour, place) + world.elsewhere_usd_per_hour
    cost = None
    if hourly is not None and row["good_tokens"] and paid_s > 0:
        cost = hourly * paid_s / 3600 / row["good_tokens"] * 1e6
    return Drawn(
        row["good"] / row["all"] * sure if row["all"] else 0.0, _p99(requests["ttft_s"]), _p99(requests["tpot_s"]),
        row["tokens"] / span_s if span_s > 0 else 0.0, hourly, cost,
    )  # fmt: skip


def _at(price: Estimate, place: float) -> float:
    """A price of the band: all its draws are even, so that its interval shows in theirs."""
    return price.low + (price.high - price.low) * place if price.high > price.low else price.point


def _p99(column: pl.Series) -> float | None:
    told = column.drop_nulls().sort()
    return float(told[ceil(0.99 * len(told)) - 1]) if len(told) >= _LEAST_FOR_P99 else None


def _needed(values: Sequence[float], basis: str) -> Estimate:
    ordered = sorted(values)
    out = max(0, round(0.1 * len(ordered)))
    return Estimate(ordered[len(ordered) // 2], ordered[out], ordered[-1 - out], basis)


def _band(values: Sequence[float | None], basis: str) -> Estimate | None:
    told = [value for value in values if value is not None and isfinite(value)]
    return _needed(told, basis) if len(told) == len(values) and told else None
