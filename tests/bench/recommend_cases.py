"""Situations, and what goodwatch would have measured in each: a trace, a fitted step, bounds and means, none of them exact."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import exp, inf, sin, sqrt
from typing import Any

from planner.catalogue import accelerators, engine_budgets, known_model
from planner.estimate import Estimate, within
from planner.evidence import Evidence, Seen
from planner.gpu import find
from planner.quantisation import scheme
from planner.simulate.fit import Seen as Latencies
from planner.simulate.fit import calibrated
from planner.simulate.run import Limits
from planner.simulate.setup import Fleet, Scheduler
from planner.simulate.trace import Trace, trace
from planner.speed.deployment import Named
from planner.tensors import Layout
from planner.version import parsed
from planner.vram import Request as Start
from tests.bench.recommend_engine import Request, Setup, World
from tests.bench.recommend_world import Ran, Terms, run

PRICES = {"H100-SXM-80GB": 2.5, "H200-SXM-141GB": 3.6, "A100-SXM4-80GB": 1.5, "L40S-48GB": 1.0}
FIT_REQUESTS, FIT_ROUNDS = 280, 400
HOUR_S = 8.0  # of the short day


@dataclass(frozen=True)
class Traffic:
    """How requests come: ``shared`` of the input begins as one of ``prefixes`` others do; ``burst``: times the mean rate."""

    inputs: float = 800
    outputs: float = 200
    spread: float = 0.5
    prefixes: int = 0
    shared: float = 0.0
    burst: float = 1.0
    flood: float = 0.0
    daily: bool = False
    count: int = 700


@dataclass(frozen=True)
class Situation:
    """One question. ``good``: what carries the load that is fitted to this world;
    ``saves``: what runs carries it too, at too much money; ``lean``: nothing is to be mended or saved; ``hides``: what
    goodwatch does not get to know, so that it should abstain."""

    name: str
    now: Setup
    good: Mapping[str, Any] = field(default_factory=dict)
    traffic: Traffic = Traffic()
    load: float = 0.8
    ttft: float = 2.0
    tpot: float = 2.0
    objective: float = 0.9
    seed: int = 1
    acceptance: float = 0.7
    cards: Mapping[str, float] = field(default_factory=dict)
    small: float | None = None
    spare_input: float | None = None
    lean: bool = False
    saves: bool = False
    price: float | None = None
    hides: tuple[str, ...] = ()
    engine: str = "vllm"


@dataclass(frozen=True)
class Built:
    """A situation in its world: what runs, at which limits, with two draws of its traffic (seen, and to come)."""

    case: Situation
    world: World
    terms: Terms
    seen: list[Request]
    later: list[Request]
    measured: Ran


def requests(traffic: Traffic, rate: float, seed: int) -> list[Request]:
    """Arrivals of this mean rate."""
    rng, at = random.Random(seed), 0.0
    found: list[Request] = []
    end = 24 * HOUR_S if traffic.daily else inf
    while len(found) < traffic.count or (traffic.daily and at < end):
        at += rng.expovariate(rate * max(1.0, 2.0 if traffic.daily else traffic.burst))
        if traffic.daily:
            if at >= end:
                break
            if rng.random() > day(int(at / HOUR_S)) / 2.0:
                continue
        elif traffic.burst > 1 and not _inside(at * rate, traffic.burst, rng):
            continue
        found.append(_request(rng, at, traffic))
    return found


def day(hour: int) -> float:
    """Requests of an hour over the day's mean."""
    return 0.25 + 1.5 * sin(3.14159 * hour / 24) ** 2


def _inside(arrivals: float, burst: float, rng: random.Random) -> bool:
    """A fifth of the time everything comes ``burst`` times as fast, and less between."""
    calm = (1 - 0.2 * burst) / 0.8
    return rng.random() < (1.0 if arrivals % 150 < 30 else max(0.02, calm) / burst)


def _request(rng: random.Random, at: float, traffic: Traffic) -> Request:
    shift = traffic.spread**2 / 2
    shared = round(traffic.inputs * traffic.shared)
    own = (traffic.inputs - shared) * exp(rng.gauss(-shift, traffic.spread))
    outputs = traffic.outputs * exp(rng.gauss(-shift, traffic.spread))
    tenant = "flood" if rng.random() < traffic.flood else f"tenant {rng.randint(1, 4)}"
    prefix = rng.randrange(traffic.prefixes) if traffic.prefixes else -1
    return Request(at, shared + max(8, min(9000, round(own))), max(2, min(2500, round(outputs))), prefix, shared, tenant,
                   int(at / HOUR_S) if traffic.daily else 0)  # fmt: skip


def changed(now: Setup, changes: Mapping[str, Any]) -> Setup | None:
    """A setup after changes by their neutral names; None for one that this world does not have (another engine, an API)."""
    names = {
        "max_num_seqs": "seqs", "max_num_batched_tokens": "batched", "prefix_caching": "prefix", "routing": "routing",
        "chunked_prefill": "mixed", "kv_dtype": "kv", "quantisation": "weights", "speculative_tokens": "drafts", "tp": "tp",
        "replicas": "replicas", "gpu": "gpu", "prefill_replicas": "prefillers", "decode_replicas": "replicas",
        "admitted_ratio": "admitted", "input_spare_ratio": "trimmed", "routed_ratio": "routed",
        "max_model_len": "context",
    }  # fmt: skip
    found: dict[str, Any] = {}
    for name, value in changes.items():
        if name in names:
            found[names[name]] = value
        elif name == "replicas_by_hour":
            found["by_hour"] = tuple(value)
        elif name == "tenant_refused":
            found["tenant_refused"] = value
        elif name not in ("tenant", "refused_ratio", "tenant_share", "gpus_per_replica"):
            return None
    if "tenant" in changes and "refused_ratio" in changes:
        found["tenant_refused"] = changes["refused_ratio"] / changes.get("tenant_share", 1.0)
    if not now.context:
        found.pop("context", None)
    return replace(now, **found)


def build(case: Situation) -> Built:
    """The first world, counted up from the seed, in which what is wrong shows: what runs misses the objective clearly."""
    for seed in range(case.seed, case.seed + 4000, 400):
        for load in (case.load, (case.load + 0.97) / 2, 0.97):
            built = _built(replace(case, seed=seed, load=load))
            shows = case.saves or case.lean or case.hides or built.measured.attained < case.objective - 0.08
            if shows:
                return built
    raise ValueError(f"{case.name}: nothing is wrong in any of its worlds")


def _built(case: Situation) -> Built:
    """Fit the load to the world, then measure."""
    world = World(case.seed, case.acceptance)
    good = changed(case.now, case.good)
    assert good is not None
    law = world.law(good, case.now)
    traffic = case.traffic
    step = law.fixed + 16 * law.running * (1 + good.drafts) + 16 * law.context * (traffic.inputs + traffic.outputs / 2)
    prices = {**PRICES, **case.cards, **({case.now.gpu: case.price} if case.price else {})}
    terms = Terms(case.ttft, case.tpot * step, case.objective, prices, 0.25)
    rate = _carried(world, good, replace(case, traffic=replace(traffic, daily=False)), terms) * case.load
    rate /= 1.75 if traffic.daily else 1.0  # the busiest hour over the day's mean
    seen, later = (requests(traffic, rate, case.seed + shift) for shift in (100, 200))
    measured = run(world, case.now, case.now, seen, terms)
    assert measured is not None, case.name
    return Built(case, world, terms, seen, later, measured)


def _carried(world: World, good: Setup, case: Situation, terms: Terms) -> float:
    """Requests per second up to which the good setup reaches the objective, by halving."""
    low, high = 0.05, 60.0 * max(1, good.replicas)
    for _ in range(9):
        rate = sqrt(low * high)
        ran = run(world, good, case.now, requests(replace(case.traffic, count=500), rate, case.seed), terms)
        low, high = (rate, high) if ran is not None and ran.attained >= case.objective else (low, rate)
    return low


@cache
def _card(name: str) -> Any:
    found = find(name, accelerators())
    assert found is not None, name
    return found


def _start(case: Situation) -> Start:
    now = case.now
    engine = engine_budgets()[case.engine]
    return Start(
        known_model(now.model), _card(now.gpu), engine, parsed("0.11.0" if case.engine == "vllm" else "b6000", (0, 11)),
        scheme(now.weights), layout=Layout(tp=now.tp), max_model_len=now.context or 12_288,
        max_num_seqs=None if now.context else now.seqs, context_slots=now.seqs if now.context else 1,
        element_bytes=1.0 if now.kv == "fp8" else 2.0, kv_dtype=now.kv,
    )  # fmt: skip


def _scheduler(built: Built, rng: random.Random) -> Scheduler:
    now, world = built.case.now, built.world
    law = world.law(now, now)
    low, high, wanted = 0.0, 0.999, world.tokens_per_step(now.drafts)
    for _ in range(40 if now.drafts else 0):
        middle = (low + high) / 2
        value = (1 - middle ** (now.drafts + 1)) / (1 - middle)
        low, high = (middle, high) if value < wanted else (low, middle)
    drafting = (now.drafts * 0.06 * law.fixed + 2e-4) * exp(rng.gauss(0, 0.25)) if now.drafts else 0.0
    return Scheduler(now.seqs, now.batched, law.room, mixed=now.mixed, prefix_cache=now.prefix, draft_tokens=now.drafts,
                     acceptance_ratio=low, draft_s=drafting)  # fmt: skip


def _columns(built: Built, chosen: list[int], rng: random.Random) -> Trace:
    """As a collector tells them: outputs a little off, and what the cache gave."""
    ones, held = [built.seen[i] for i in chosen], [built.measured.cached[i] for i in chosen]
    return trace(
        [one.at for one in ones], [one.inputs for one in ones], [max(1, round(one.outputs * exp(rng.gauss(0, 0.06)))) for one in ones],
        cached_tokens=[min(a, one.inputs - 1) for a, one in zip(held, ones, strict=True)],
    )  # fmt: skip


def evidence(built: Built) -> Evidence:
    """What goodwatch would hold of this world."""
    case, ran, now = built.case, built.measured, built.case.now
    rng = random.Random(case.seed + 9)
    rules = _scheduler(built, rng)
    own = _busiest(built, [i for i, home in enumerate(ran.home) if home == 0])
    latencies = Latencies([ran.ttft[i] for i in own], [ran.tpot[i] for i in own])
    fitted = calibrated(_columns(built, own, rng), latencies, rules, rounds=FIT_ROUNDS)
    fleet = Fleet(fitted.cost, rules, now.replicas, now.routing)  # type: ignore[arg-type]
    known = "model" not in case.hides
    price = None if "price" in case.hides else _priced(built.terms.price[now.gpu], 0.05, rng)
    span = built.seen[-1].at - built.seen[0].at
    hours = 72.0 if case.traffic.daily else 6.0
    limits = Limits() if "slo" in case.hides else Limits(built.terms.ttft, built.terms.tpot)
    tokens = sum(one.inputs + one.outputs for one in built.seen)
    return Evidence(
        "chat", 0.0, 3600 * hours, fleet, fitted.sigma, _columns(built, list(range(len(built.seen))), rng), limits,
        case.objective, _seen(built, rules, rng), _settings(now), engine=case.engine, engine_version="0.11.0",
        vram=_start(case) if known else None,
        speed=Named(now.model, now.weights, now.gpu, now.tp, "vllm", "0.11.0", Layout(tp=now.tp), now.kv) if known else None,
        gpus_per_replica=now.tp, usd_per_gpu_hour=price, startup_s=180.0,
        card_usd_per_hour={name: _priced(usd, 0.15, rng) for name, usd in case.cards.items()},
        requests_by_hour=_by_hour(built), shared_ratio=_shared(built, rng), small_model_ratio=case.small,
        small_usd_per_million=None if case.small is None else _priced(built.terms.elsewhere_usd_per_million, 0.2, rng),
        api_usd_per_million=within(ran.usd_per_hour / (tokens / span * 3600) * 1e6 * 0.5, below=0, above=0) if "api" in case.hides else None,
        input_spare_ratio=case.spare_input, requests_by_tenant=_by_tenant(built),
    )  # fmt: skip


def _busiest(built: Built, own: list[int]) -> list[int]:
    """So many requests of one replica, from where they came fastest."""
    size = min(FIT_REQUESTS, len(own))
    starts = range(len(own) - size + 1)
    start = min(starts, key=lambda k: built.seen[own[k + size - 1]].at - built.seen[own[k]].at)
    return own[start : start + size] if built.case.traffic.daily else own[:size]


def _priced(usd: float, wide: float, rng: random.Random) -> Estimate:
    """A price that is not quite the one that is paid."""
    told = usd * (1 + rng.uniform(-wide, wide) / 2)
    return Estimate(told, told * (1 - wide), told * (1 + wide))


def _settings(now: Setup) -> dict[str, object]:
    told: dict[str, object] = {"prefix_caching": now.prefix, "kv_dtype": now.kv, "max_num_seqs": now.seqs}
    return {**told, "max_model_len": now.context} if now.context else told


def _seen(built: Built, rules: Scheduler, rng: random.Random) -> Seen:
    ran, case = built.measured, built.case
    busy = sum(one.busy for one in ran.engines)
    wide = 0.015 + sqrt(0.25 / len(built.seen))
    attained = (max(0.0, ran.attained - wide), min(1.0, ran.attained + wide))
    if "unlike" in case.hides:  # a gateway in front of it is what is slow
        attained = (0.28, 0.34)
    if "failing" in case.hides:  # a third of all requests end in an error, and no trace has them
        attained = (ran.attained * 0.66 - wide, ran.attained * 0.66 + wide)
    count = 140 if "requests" in case.hides else len(built.seen)
    span = built.seen[-1].at - built.seen[0].at
    drafts = rules.draft_tokens
    ttfts = sorted(one for one in ran.ttft if one is not None)
    tpots = sorted(one for one in ran.tpot if one is not None)
    return Seen(
        count, attained, ttfts[int(0.99 * len(ttfts))], tpots[int(0.99 * len(tpots))], ran.usd_per_hour,
        sum(one.run_time for one in ran.engines) / busy, max(one.peak for one in ran.engines),
        sum(one.wait_time for one in ran.engines) / busy,
        sum(one.kv_time for one in ran.engines) / busy / rules.kv_tokens,
        sum(ran.cached) / sum(one.inputs for one in built.seen),
        sum(one.preempted for one in ran.engines) / span * 3600 * rng.uniform(0.9, 1.1),
        (built.world.tokens_per_step(drafts) - 1) / drafts if drafts else None,
        max(one.inputs + one.outputs for one in built.seen),
        ("ttft_s", "tpot_s") if "scale" in case.hides else (),
    )  # fmt: skip


def _shared(built: Built, rng: random.Random) -> float | None:
    """Share of the input that an earlier prompt began with, off by a few per cent."""
    traffic = built.case.traffic
    if not traffic.prefixes:
        return 0.0
    inputs = sum(one.inputs for one in built.seen)
    seen: set[int] = set()
    again = 0
    for one in built.seen:
        again += one.shared if one.prefix in seen else 0
        seen.add(one.prefix)
    return again / inputs * rng.uniform(0.96, 1.01)


def _by_hour(built: Built) -> tuple[float, ...]:
    counts = [0.0] * 24
    for one in built.seen:
        counts[one.hour] += 1
    return tuple(count * 3600 / HOUR_S for count in counts) if built.case.traffic.daily else ()


def _by_tenant(built: Built) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in built.seen if built.case.traffic.flood else ():
        counts[one.tenant] = counts.get(one.tenant, 0) + 1
    return counts
