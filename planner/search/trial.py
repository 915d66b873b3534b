"""One configuration in the simulator, at the fast end, the point and the slow end of its bands.

A replica gets its share of the load: requests as a random router would send them, or every n-th of a real trace.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gcd
from typing import Any, Final, Literal

import polars as pl

from planner.cost.unit import HOURS_PER_MONTH
from planner.estimate import Estimate
from planner.search.pace import APART_ERROR, HANDOVER_S, Pace, paced
from planner.search.question import Question
from planner.search.space import Instance
from planner.simulate.run import simulate
from planner.simulate.setup import Fleet, Scheduler, StepCost, cost_of
from planner.simulate.trace import Trace, drawn, trace
from planner.speed.deployment import Deployment
from planner.speed.efficiency import Factors
from planner.speed.steps import decode_s, prompt_s

End = Literal["slow", "point", "fast"]
#: a run lasts so many lifetimes of a request; what is before and after the steady part is left out
_LIFETIMES: Final = 12.0
_LEAST: Final = 1000
_MOST: Final = 1600
_WARM, _DRAINED = 0.25, 0.9
#: requests of a real trace that one run takes, around its busiest place
_STRETCH: Final = 3000
_ROUNDS: Final = 30


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration: an instance with its limits and how often it is run.

    ``replicas``: those that decode; ``prefill_replicas``: 0 where prompts run there too; ``seats``: requests of the mean
    context that the cache of one rank holds, ``seats_low`` its low end.
    """

    instance: Instance
    max_model_len: int
    max_num_seqs: int
    batched_tokens: int
    prefix_caching: bool
    chunked_prefill: bool
    replicas: int
    prefill_replicas: int
    seats: float
    seats_low: float
    kv_tokens: Estimate
    mixed: bool

    @property
    def gpus(self) -> int:
        """Cards in all."""
        return self.instance.layout.gpus * (self.replicas + self.prefill_replicas)

    @property
    def usd_per_month(self) -> Estimate:
        """All cards for a month of 730.5 hours, with the price's interval."""
        return self.instance.price.usd_per_gpu_hour.scaled(self.gpus * HOURS_PER_MONTH)


@dataclass(frozen=True, slots=True)
class Figures:
    """One run; latencies in seconds over the steady part. ``attained_ratio``: met every target."""

    attained_ratio: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    running: float = 0.0


def setup_of(row: Mapping[str, Any], instances: tuple[Instance, ...]) -> Setup:
    """A row of the screen as a configuration."""
    return Setup(
        instances[row["instance"]], row["max_model_len"], row["max_num_seqs"], row["batched_tokens"], row["prefix_caching"],
        row["chunked_prefill"], int(row["replicas"] or 1), int(row["prefill_replicas"] or 0), row["seats"], row["seats_low"],
        Estimate(row["tokens"], row["tokens_low"], row["tokens_high"], "tokens that one engine would print"), row["mixed"],
    )  # fmt: skip


def tried(question: Question, setup: Setup, end: End, *, times: float = 1.0) -> Figures:
    """Run one configuration.

    Parameters
    ----------
    end
        Which end of the bands of speed and memory.
    times
        The load as a multiple of the asked one.
    """
    found, one, by = paced(question, setup.instance)
    slow = {"slow": found.slow, "point": 1.0, "fast": found.fast}[end]
    late = {"slow": found.late, "point": 1.0, "fast": found.early}[end]
    if setup.prefill_replicas and end == "slow":
        slow *= 1 + APART_ERROR * 0.64  # half of such predictions' own 80 % band; the other half is in TPOT's
    parts = gcd(setup.replicas, setup.prefill_replicas) if setup.prefill_replicas else setup.replicas
    rate = question.arrivals.rate_per_s * times / parts
    per_engine = rate / (setup.replicas / parts)
    cost, running = step_cost(question, setup, (found, one, by), per_engine)
    fleet = Fleet(
        cost.scaled(slow), _rules(question, setup, found, low=end == "slow"), setup.replicas // parts,
        "least_loaded" if setup.prefill_replicas else "round_robin", setup.prefill_replicas // parts,
        HANDOVER_S if setup.prefill_replicas else 0.0,
    )  # fmt: skip
    requests = _share(question, rate, parts, times, hit=setup.prefix_caching, held_s=running / per_engine)
    frame = simulate(requests, fleet).requests
    run = steady(frame, question, late, real=question.arrivals.trace is not None)
    # targets of hours do not show in minutes of simulation that more comes than is served
    served = min(1.0, _most_per_s(question, setup, fleet) / per_engine)
    return replace(run, attained_ratio=run.attained_ratio * served, running=running)


def _most_per_s(question: Question, setup: Setup, fleet: Fleet) -> float:
    """Requests per second that one engine serves with every place taken."""
    cost, rules, load = fleet.cost, fleet.scheduler, question.arrivals
    places = max(1.0, min(rules.max_num_seqs, rules.kv_tokens / question.context_tokens))
    each = cost.running_s * (1 + rules.draft_tokens) + cost.context_s * question.context_tokens
    tpot = (cost.fixed_s + rules.draft_s + places * each) / rules.tokens_per_step
    new = load.input_tokens * (1 - load.shared_ratio * setup.prefix_caching)
    prompt = 0.0 if setup.prefill_replicas else cost.prompt_s + cost.prompt_token_s * new
    return places / (load.output_tokens * tpot + places * prompt)


def step_cost(question: Question, setup: Setup, made: tuple[Pace, Deployment, Factors], rate_per_s: float) -> tuple[StepCost, float]:  # fmt: skip
    """The cost of a step near the batch that this rate comes to, and that batch."""
    found, one, by = made
    load, context = question.arrivals, question.context_tokens
    new = load.input_tokens * (1 - load.shared_ratio * setup.prefix_caching)
    places = setup.max_num_seqs * found.ranks
    running = 1.0
    for _ in range(_ROUNDS):  # Little's law with the step at that batch
        step = decode_s(one, by, running, context) + found.draft_s
        carried = 0.0 if setup.prefill_replicas else running / load.output_tokens * prompt_s(one, by, new)
        tpot = step / found.tokens_per_step + carried
        running = max(1.0, min(places, (running + rate_per_s * load.output_tokens * tpot) / 2))
    cost = cost_of(one, by, running=running, input_tokens=new, context_tokens=context)
    lag = found.lag_steps * decode_s(one, by, running, context)
    wait = HANDOVER_S if setup.prefill_replicas else 0.0
    return replace(cost, answer_s=cost.answer_s + lag + wait), running


def _rules(question: Question, setup: Setup, found: Pace, *, low: bool) -> Scheduler:
    seats = setup.seats_low if low else setup.seats
    kv = max(seats * question.context_tokens * found.ranks, question.needed_tokens)
    one = setup.instance
    return Scheduler(
        setup.max_num_seqs * found.ranks, setup.batched_tokens * found.ranks, int(kv), one.engine.block_tokens, setup.mixed,
        setup.prefix_caching, one.draft_tokens, question.acceptance_ratio or 0.0, found.draft_s,
    )  # fmt: skip


def _share(question: Question, rate: float, parts: int, times: float, *, hit: bool, held_s: float) -> Trace:
    """Requests that one of ``parts`` equal parts of the fleet sees."""
    real = question.arrivals.trace
    if real is None:
        count = ceil(min(_MOST, max(_LEAST, rate * held_s * _LIFETIMES)))
        # a shorter run in the same proportion is the same random numbers: counts go up in steps, so that runs are kept
        return _drawn(question, rate, -(-count // 200) * 200, hit=hit)
    return _stretch(real, parts, times, question.needed_tokens, hit=hit)


def _drawn(question: Question, rate: float, count: int, *, hit: bool) -> Trace:
    load = question.arrivals
    lengths = (load.input_tokens, load.output_tokens, load.spread)
    base = _unit(count, lengths, question.seed, question.needed_tokens)
    cached = array("q", [int(n * load.shared_ratio) if hit else 0 for n in base.input_tokens])
    arrived = array("d", [at / rate for at in base.arrived_s])
    return replace(base, arrived_s=arrived, cached_tokens=cached)


@lru_cache(maxsize=32)
def _unit(count: int, lengths: tuple[float, float, float], seed: int, most: int) -> Trace:
    """Requests at one a second; longer ones than the engine accepts are cut."""
    inputs, outputs, spread = lengths
    base = drawn(count, 1.0, input_tokens=inputs, output_tokens=outputs, spread=spread, seed=seed)
    output = array("q", [min(n, most - 1) for n in base.output_tokens])
    return replace(
        base, output_tokens=output, input_tokens=array("q", [min(a, most - b) for a, b in zip(base.input_tokens, output, strict=True)])
    )  # fmt: skip


def _stretch(real: Trace, parts: int, times: float, most: int, *, hit: bool) -> Trace:
    """Every n-th request of the busiest stretch of a trace; requests longer than the engine accepts are left out."""
    size = min(len(real), _STRETCH * parts)
    starts = range(0, len(real) - size + 1, max(1, size // 10))
    start = min(starts, key=lambda s: real.arrived_s[s + size - 1] - real.arrived_s[s])
    places = [i for i in range(start, start + size, parts) if real.input_tokens[i] + real.output_tokens[i] <= most]
    return trace(
        [real.arrived_s[i] / times for i in places], [real.input_tokens[i] for i in places],
        [real.output_tokens[i] for i in places], cached_tokens=[real.cached_tokens[i] if hit else 0 for i in places],
    )  # fmt: skip


def steady(frame: pl.DataFrame, question: Question, late: float, *, real: bool) -> Figures:
    """Figures of the steady part of a run, TTFT times ``late``; of all of it where the requests are real."""
    n, limits = len(frame), question.limits
    part = frame if real else frame.slice(int(n * _WARM), max(1, int(n * (_DRAINED - _WARM))))
    part = part.with_columns(e2e_s=pl.col("e2e_s") + pl.col("ttft_s") * (late - 1), ttft_s=pl.col("ttft_s") * late)
    good = pl.col("e2e_s").is_not_null()
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        limit = getattr(limits, name)
        good = good & (pl.col(name).fill_null(0.0) <= limit) if limit is not None else good
    row = part.select(
        good=good.mean(),
        **{f"{name}_{label}": pl.col(name).quantile(q, "higher") for name in ("ttft_s", "tpot_s") for label, q in (("p50", 0.5), ("p99", 0.99))},
    ).row(0, named=True)  # fmt: skip
    return Figures(
        row["good"] or 0.0, row["ttft_s_p50"] or 0.0, row["ttft_s_p99"] or 0.0, row["tpot_s_p50"] or 0.0,
        row["tpot_s_p99"] or 0.0,
    )  # fmt: skip
