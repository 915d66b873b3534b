"""Runs requests through a setup of that other world: tokenizer, router, engines, and what came of it."""

import random
from dataclasses import dataclass, replace
from math import inf

from tests.bench.recommend_engine import Engine, Request, Setup, World


@dataclass(frozen=True)
class Ran:
    """What a setup came to: by request (None where it was refused), and for the engines."""

    ttft: list[float | None]
    tpot: list[float | None]
    home: list[int]
    cached: list[int]
    good: list[bool]
    attained: float
    usd_per_hour: float
    usd_per_million_good: float
    usd_per_served: float
    engines: list[Engine]


@dataclass(frozen=True)
class Terms:
    """What a request must meet, and what things cost here."""

    ttft: float
    tpot: float
    objective: float
    price: dict[str, float]
    elsewhere_usd_per_million: float = 0.0


def kept(world: World, now: Setup, requests: list[Request]) -> list[int]:
    """Requests that come to these engines at all."""
    rng = random.Random(world.seed + 5)
    found = []
    for i, one in enumerate(requests):
        chance, tenant, away = rng.random(), rng.random(), rng.random()
        refused = (
            (now.context and one.inputs + one.outputs > now.context)
            or chance >= now.admitted
            or (one.tenant == "flood" and tenant < now.tenant_refused)
            or away < now.routed
        )
        if not refused:
            found.append(i)
    return found


def run(world: World, now: Setup, base: Setup, requests: list[Request], terms: Terms) -> Ran | None:
    """Run requests through a setup; None where it does not start or a request never fits."""
    law = world.law(now, base)
    if now.trimmed:
        requests = [replace(one, inputs=max(1, round(one.inputs * (1 - now.trimmed))), shared=0) for one in requests]
    longest = max(one.inputs + one.outputs for one in requests)
    if law.room < longest or (now.context and now.seqs * now.context > law.room):
        return None
    most = max(now.by_hour) if now.by_hour else now.replicas
    chosen = kept(world, now, requests)
    prompts = requests if not now.prefillers else [replace(one, outputs=1) for one in requests]
    front = [Engine(world, law, now, prompts, i) for i in range(now.prefillers or most)]
    home = _route(world, now, front, requests, chosen)
    engines, first = front, {i: at for one in front for i, at in one.first.items()}
    last = {i: at for one in front for i, at in one.last.items()}
    if now.prefillers:
        back = [
            Engine(world, law, replace(now, prefix=False), requests, 50 + i, decoding=True) for i in range(now.replicas)
        ]
        late = sorted((at + 0.12 * world.term["transfer"], i) for i, at in first.items())
        for at, i in late:
            _push(back, i, at)
        for one in back:
            one.advance(inf)
        last.update({i: at for one in back for i, at in one.last.items()})
        engines = front + back
    return _told(_Came(world, now, requests, home, engines, first, last), terms)


def _push(engines: list[Engine], i: int, at: float) -> int:
    for one in engines:
        one.advance(at)
    best = min(range(len(engines)), key=lambda k: engines[k].load)
    engines[best].push(i, at)
    return best


def _route(
    world: World, now: Setup, engines: list[Engine], requests: list[Request], chosen: list[int]
) -> dict[int, int]:
    """Tokenizer first, one for all; then a router."""
    free, home = 0.0, {}
    for turn, i in enumerate(chosen):
        one = requests[i]
        free = max(free, one.at) + (5e-4 + one.inputs / 1.5e6) * world.term["tokenizer"]
        open_ones = engines[: now.by_hour[one.hour]] if now.by_hour else engines
        count = len(open_ones)
        if now.routing == "round_robin" and not now.prefillers:
            home[i] = turn % count
            open_ones[home[i]].advance(free)
            open_ones[home[i]].push(i, free)
        elif now.routing == "prefix_aware" and one.prefix >= 0:
            for other in open_ones:
                other.advance(free)
            mine, least = one.prefix % count, min(other.load for other in open_ones)
            home[i] = mine if open_ones[mine].load <= least + 6 else min(range(count), key=lambda k: open_ones[k].load)
            open_ones[home[i]].push(i, free)
        else:
            home[i] = _push(open_ones, i, free)
    for other in engines:
        other.advance(inf)
    return home


@dataclass(frozen=True)
class _Came:
    """What a run left: by request, the engine, the first and the last token."""

    world: World
    now: Setup
    requests: list[Request]
    home: dict[int, int]
    engines: list[Engine]
    first: dict[int, float]
    last: dict[int, float]


def _told(came: _Came, terms: Terms) -> Ran:
    world, now, requests, home = came.world, came.now, came.requests, came.home
    engines, first, last = came.engines, came.first, came.last
    answer, n = 6e-3 * world.term["answer"], len(requests)
    ttft: list[float | None] = [None] * n
    tpot: list[float | None] = [None] * n
    good, good_tokens = [False] * n, 0
    for i, one in enumerate(requests):
        if i not in home:
            continue
        late = ttft[i] = first[i] - one.at + answer
        tpot[i] = (last[i] - first[i]) / (one.outputs - 1) if one.outputs > 1 else None
        good[i] = late <= terms.ttft and (tpot[i] or 0.0) <= terms.tpot
        good_tokens += one.outputs * good[i]
    cached = [0] * n
    for engine in engines:
        for i, hit in engine.cached.items():
            cached[i] = max(cached[i], hit)
    share, span = sum(good) / n, requests[-1].at - requests[0].at
    replicas = sum(now.by_hour) / len(now.by_hour) if now.by_hour else now.replicas + now.prefillers
    hourly = replicas * now.tp * terms.price[now.gpu]
    if now.routed:  # the smaller model is judged as good, and is not late more often than this one
        away = [one for i, one in enumerate(requests) if i not in home]
        here = share * n / max(1, len(home))
        share += min(0.99, here + 0.02) * len(away) / n
        good_tokens += round(sum(one.outputs for one in away) * min(0.99, here + 0.02))
        hourly += sum(one.inputs + one.outputs for one in away) / span * 3600 / 1e6 * terms.elsewhere_usd_per_million
    usd = hourly * span / 3600 / good_tokens * 1e6 if good_tokens else inf
    served = 1.0 if now.routed or now.tenant_refused else len(home) / n  # who floods loses no more than its excess
    return Ran(
        ttft, tpot, [home.get(i, -1) for i in range(n)], cached, good, share, hourly, usd, hourly / served, engines
    )
