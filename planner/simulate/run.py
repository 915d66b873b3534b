"""Runs a trace through a fleet, and says what its requests saw."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isnan, nan

import polars as pl

from goodwatch.core.errors import ConfigError
from planner.simulate.replica import Replica
from planner.simulate.setup import Fleet
from planner.simulate.trace import Trace, faster, trace

#: a router that goes by prefix leaves its replica when it has this many more requests than the emptiest
_PATIENCE = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Latency targets; None is no target."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to.

    ``attained_ratio``: share of all requests that ended and met every limit, None without requests; ``goodput_per_s``:
    those per second from the first arrival to the last end; ``lost_count``: clients that went before their first token;
    ``kv_used_ratio``: mean over busy time; ``cached_ratio``: of input tokens.
    """

    requests: int
    ended: int
    lost_count: int
    attained_ratio: float | None
    goodput_per_s: float
    output_tokens_per_s: float
    kv_used_ratio: float
    kv_peak_ratio: float
    cached_ratio: float
    preemptions_count: int
    span_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """``requests``: columns arrived_s, input_tokens, output_tokens, ttft_s, tpot_s, e2e_s (f64, null where none came)."""

    requests: pl.DataFrame
    summary: Summary


def simulate(requests: Trace, fleet: Fleet, limits: Limits | None = None) -> Run:
    """Run a trace through a fleet.

    Parameters
    ----------
    requests
        In order of arrival, as ``planner.simulate.trace.trace`` makes them.
    fleet
        Replicas, their limits and cost, and the router.
    limits
        Targets that a good request meets; none means that every request that ended is good.

    Raises
    ------
    ConfigError
        A request that no empty cache could hold.
    """
    largest = max((a + b for a, b in zip(requests.input_tokens, requests.output_tokens, strict=True)), default=0)
    if largest > fleet.scheduler.kv_tokens:
        raise ConfigError(
            f"kv_tokens {fleet.scheduler.kv_tokens:,}: the longest request has {largest:,} tokens and never fits"
        )
    first, ended = (array("d", [nan]) * len(requests) for _ in range(2))
    if fleet.prefill_replicas:
        replicas = _split(requests, fleet, first, ended)
    else:
        replicas = _routed(requests, fleet, first, ended, fleet.replicas)
    return _told(requests, fleet, (first, ended), replicas, limits or Limits())


def _routed(requests: Trace, fleet: Fleet, first: array[float], ended: array[float], count: int, *,
            prefilled: bool = False) -> list[Replica]:  # fmt: skip
    replicas = [Replica(requests, fleet.cost, fleet.scheduler, first, ended, prefilled=prefilled) for _ in range(count)]
    choose = _router(fleet, requests, replicas)
    delay = fleet.cost.request_s
    for request, arrived in enumerate(requests.arrived_s):
        chosen = choose(request, arrived)
        chosen.advance(arrived + delay)
        chosen.push(request, arrived + delay)
    for one in replicas:
        one.advance(inf)
    return replicas


def _router(fleet: Fleet, requests: Trace, replicas: list[Replica]) -> Callable[[int, float], Replica]:
    """The replica that a request goes to."""
    count = len(replicas)

    def turn(request: int, arrived_s: float) -> Replica:
        del arrived_s
        return replicas[request % count]

    def emptiest(request: int, arrived_s: float) -> Replica:
        del request
        for one in replicas:
            one.advance(arrived_s)
        return min(replicas, key=lambda one: one.load)

    def by_prefix(request: int, arrived_s: float) -> Replica:
        other = emptiest(request, arrived_s)
        prefix = requests.prefix[request]
        home = replicas[prefix % count] if prefix >= 0 else other
        return home if home.load <= other.load + _PATIENCE else other

    if count == 1:
        return turn
    return {"round_robin": turn, "least_loaded": emptiest, "prefix_aware": by_prefix}[fleet.routing]


def _split(requests: Trace, fleet: Fleet, first: array[float], ended: array[float]) -> list[Replica]:
    """Prompts on their own workers; then what they made goes to the decoding ones, in order of its end."""
    count, ones = len(requests), [1] * len(requests)
    prompts = replace(requests, output_tokens=array("q", ones))
    replicas = _routed(prompts, fleet, first, array("d", [nan]) * count, fleet.prefill_replicas)
    order = sorted((i for i in range(count) if not isnan(first[i])), key=first.__getitem__)
    rest = trace(
        [first[i] + fleet.transfer_s for i in order], [requests.input_tokens[i] + 1 for i in order],
        [max(1, requests.output_tokens[i] - 1) for i in order], priority=[requests.priority[i] for i in order],
    )  # fmt: skip
    later, done = (array("d", [nan]) * len(order) for _ in range(2))
    replicas += _routed(rest, fleet, later, done, fleet.replicas, prefilled=True)
    for place, request in enumerate(order):
        ended[request] = first[request] if requests.output_tokens[request] == 1 else done[place]
    return replicas


def _told(
    requests: Trace, fleet: Fleet, seen: tuple[array[float], array[float]], replicas: list[Replica], limits: Limits
) -> Run:
    answer, (first, ended) = fleet.cost.answer_s, seen
    frame = pl.DataFrame(
        {
            "arrived_s": pl.Series(requests.arrived_s, dtype=pl.Float64),
            "input_tokens": pl.Series(requests.input_tokens, dtype=pl.Int64),
            "output_tokens": pl.Series(requests.output_tokens, dtype=pl.Int64),
            "first_s": pl.Series(first, dtype=pl.Float64).fill_nan(None), "ended_s": pl.Series(ended, dtype=pl.Float64).fill_nan(None),
        }
    ).with_columns(
        ttft_s=pl.col("first_s") - pl.col("arrived_s") + answer,
        e2e_s=pl.col("ended_s") - pl.col("arrived_s") + answer,
        tpot_s=pl.when(pl.col("output_tokens") > 1).then(
            (pl.col("ended_s") - pl.col("first_s")) / (pl.col("output_tokens") - 1)
        ),
    )  # fmt: skip
    good = pl.col("ended_s").is_not_null()
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        limit = getattr(limits, name)
        if limit is not None:
            good = good & (pl.col(name).fill_null(0.0) <= limit)
    counts = frame.select(
        good=good.sum(), ended=pl.col("ended_s").is_not_null().sum(), last=pl.col("ended_s").max(), first=pl.col("arrived_s").min(),
        output=pl.col("output_tokens").filter(pl.col("ended_s").is_not_null()).sum(), input=pl.col("input_tokens").sum(),
    ).row(0, named=True)  # fmt: skip
    span = (counts["last"] - counts["first"]) if counts["last"] is not None else 0.0
    busy, room = sum(one.busy_s for one in replicas), fleet.scheduler.kv_tokens
    n = len(requests)
    return Run(
        frame.drop("first_s", "ended_s"),
        Summary(
            n, counts["ended"], n - counts["ended"], counts["good"] / n if n else None,
            counts["good"] / span if span else 0.0, counts["output"] / span if span else 0.0,
            sum(one.kv_s for one in replicas) / busy / room if busy else 0.0,
            max((one.kv_peak for one in replicas), default=0.0) / room,
            sum(one.hits for one in replicas) / counts["input"] if n else 0.0,
            sum(one.preempted for one in replicas), span,
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Knee:
    """The highest rate, requests/s, at which at least ``objective`` of the requests met the limits, and that run."""

    rate_per_s: float
    summary: Summary


def knee(requests: Trace, fleet: Fleet, limits: Limits, *, objective: float = 0.9, rounds: int = 12) -> Knee | None:
    """Where attainment falls below ``objective`` when the same requests come faster; None if it does at any rate.

    Searches by halving, from 1/64 to 64 times the trace's own rate.
    """
    low, high, best = 1 / 64, 64.0, None
    own = len(requests) / max(1e-9, requests.arrived_s[-1] - requests.arrived_s[0]) if len(requests) else 0.0
    for _ in range(rounds):
        times = (low * high) ** 0.5
        found = simulate(faster(requests, times), fleet, limits).summary
        if found.attained_ratio is not None and found.attained_ratio >= objective:
            low, best = times, Knee(own * times, found)
        else:
            high = times
    return best
