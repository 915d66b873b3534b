"""The read side of requests for tests: the real one, over the reference store, with requests of a test's making.

``RequestWorld`` has a service ``chat`` whose engine counters come from minutes that the test gives, or from none.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from collector.stores.memory import MemoryStore
from collector.stores.memory_requests import MemoryRequestStore
from goodwatch.app.config import Service
from goodwatch.app.engines import known_engines
from goodwatch.app.facts_replay import recorded_parts
from goodwatch.app.keeper import Keeper
from goodwatch.app.recording import Recording
from goodwatch.app.request_reads import RequestReads
from goodwatch.app.request_view import IntakeView
from goodwatch.app.request_watch import RequestLoop, RequestTerms
from goodwatch.app.request_wiring import limits_table_of, vantage_of
from goodwatch.app.watch import Terms, Watch
from goodwatch.app.wiring import Priced
from goodwatch.core.request import Origin
from goodwatch.signals.assemble import assemble
from goodwatch.signals.cost import Price
from goodwatch.signals.increments import fold
from goodwatch.signals.request_frames import FACTS, PARTS, SCORES
from tests.support.views import AT_S, DATA, replayed

#: 2026-03-04 03:12:00 UTC, as in the other views
NOW_S: Final = AT_S
CHAT: Final = Service.model_validate({"name": "chat", "slo": {"ttft": "500ms", "tpot": "50ms", "objective": 0.99}})
LISTENING: Final = IntakeView(("http://127.0.0.1:4318", "grpc://127.0.0.1:4317"), 0, 0, {}, {}, 0, None, "")


@dataclass(slots=True)
class Clock:
    """A clock that stands."""

    at_s: float = NOW_S

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


def fact(number: int, **more: Any) -> dict[str, Any]:
    """A request that the engine served in a second with a TTFT of 0.2 s, ten minutes before now."""
    ttft, e2e = more.get("engine_ttft_s", 0.2), more.get("engine_e2e_s", 1.0)
    out = more.get("output_tokens", 40)
    tpot = None if ttft is None or e2e is None or not out or out < 2 else (e2e - ttft) / (out - 1)
    plain = {
        "fact_id": f"{number:016x}", "span_id": f"{number:016x}", "trace_id": f"{number:032x}",
        "ended_at": NOW_S - 600, "service": "chat", "model": "llama", "engine": "vllm", "target": "chat-0",
        "input_tokens": 100, "output_tokens": out, "stream": True, "engine_ttft_s": ttft, "engine_tpot_s": tpot,
        "engine_e2e_s": e2e, "status": "ok", "finish_reason": "stop", "weight": 1.0, "parts": 1, "late": False,
        "settled_at": NOW_S - 500,
    }  # fmt: skip
    made: dict[str, Any] = {**dict.fromkeys(FACTS), **plain, **more}
    return made | {"arrived_at": made["ended_at"] - (e2e or 0.0)}


def part_of(one: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The engine's span that a fact was made of."""
    same = {name: one[name] for name in ("trace_id", "span_id", "service", "model", "target", "output_tokens")}
    plain = {
        "received_s": one["ended_at"] + 1, "kind": "engine_request", "source": "vllm", "vantage": "engine",
        "name": "llm_request", "started_s": one["arrived_at"], "ended_s": one["ended_at"], "status": "unset",
        "ttft_s": one["engine_ttft_s"], "e2e_s": one["engine_e2e_s"],
    }  # fmt: skip
    return dict.fromkeys(PARTS) | same | plain | more


def score_of(one: Mapping[str, Any], score: float | None, **more: Any) -> dict[str, Any]:
    """A score that a judge gave to a request."""
    plain = {
        "ts": one["ended_at"] + 30, "received_s": one["ended_at"] + 31, "trace_id": one["trace_id"],
        "evaluator": "faithfulness", "annotator": "llm", "score": score,
    }  # fmt: skip
    return dict.fromkeys(SCORES) | plain | more


def traffic(count: int = 2000, *, seed: int = 1, weight: float | None = 1.0) -> list[dict[str, Any]]:
    """Requests of an hour whose latencies grow with their lengths; a few fail, hang up, or do not tell."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        prompt = int(min(60_000, rng.lognormvariate(6.0, 1.4)))
        output = 1 + int(min(3000, rng.lognormvariate(4.6, 1.0)))
        queue = rng.expovariate(1 / 0.03)
        prefill = 0.02 + prompt / 12_000 * rng.uniform(0.8, 1.3)
        decode = (output - 1) * rng.uniform(0.018, 0.04)
        e2e = queue + prefill + decode
        ended = NOW_S - 60 - rng.random() * 3500
        more: dict[str, Any] = {
            "ended_at": ended, "input_tokens": prompt, "output_tokens": output, "engine_queue_s": queue,
            "engine_prefill_s": prefill, "engine_decode_s": decode, "engine_ttft_s": queue + prefill,
            "engine_e2e_s": e2e, "tenant": rng.choice(["acme", "umbrella", None]), "route": "/v1/chat/completions",
            "adapter": rng.choice([None, None, "legal-lora"]), "target": rng.choice(["chat-0", "chat-1"]),
            "model": "meta-llama/Llama-3.1-8B-Instruct", "deployment": "vllm 0.32.0 llama", "weight": weight,
            "cached_tokens": prompt // 3,
        }  # fmt: skip
        if number % 40 == 0:
            more |= {"status": "error", "output_tokens": None, "finish_reason": "error", "error_type": "OutOfMemory"}
        elif number % 33 == 0:
            more |= {"status": "aborted", "finish_reason": "abort"}
        if number % 2:
            more |= {"gateway_ttft_s": queue + prefill + 0.02, "gateway_e2e_s": e2e + 0.03}
        rows.append(fact(number + 1, **more))
    return rows


@dataclass(slots=True)
class RequestWorld:
    """A store, its loop, a watch, and what pages ask; ``minutes`` are engine counters as the sample store keeps them."""

    rows: Sequence[Mapping[str, Any]] = ()
    parts: Sequence[Mapping[str, Any]] = ()
    scores: Sequence[Mapping[str, Any]] = ()
    services: Sequence[Service] = (CHAT,)
    minutes: pl.DataFrame | None = None
    price: Price | None = field(default_factory=lambda: Price(2, 2.5))
    enabled: bool = True
    told: IntakeView = LISTENING
    trace_url: str = ""
    targets: Iterable[str] = ("chat-0",)
    store: MemoryRequestStore = field(init=False)
    loop: RequestLoop = field(init=False)
    watch: Watch = field(init=False)
    reads: RequestReads = field(init=False)

    def __post_init__(self) -> None:
        clock, samples = Clock(), MemoryStore()
        self.store = MemoryRequestStore(clock=clock)
        if self.parts:
            self.store.append_parts([pl.DataFrame(list(self.parts), schema=PARTS)])
        facts = pl.DataFrame([dict(row) for row in self.rows], schema=FACTS)
        self.store.settle(facts["trace_id"].unique().to_list(), facts)
        if self.scores:
            self.store.append_scores(pl.DataFrame(list(self.scores), schema=SCORES))
        by_name = {one.name: one for one in self.services}
        self.loop = RequestLoop(
            self.store, clock,
            RequestTerms(
                limits={n: limits_table_of(s) for n, s in by_name.items()},
                vantages={n: vantage_of(s) for n, s in by_name.items()}, trace_url=self.trace_url,
            ),
        )  # fmt: skip
        self.loop.seen_services.update(facts["service"].drop_nulls().unique().to_list())
        prices = {} if self.price is None else {name: Priced(self.price) for name in self.targets}
        if self.minutes is not None:
            samples.append_minutes(self.minutes)
        self.watch = Watch(known_engines(), samples, Keeper(samples, clock), clock, Terms(by_name, prices, 300.0))
        self.reads = RequestReads(self.loop, self.watch, self.enabled, lambda: self.told)

    async def ready(self) -> "RequestWorld":
        """Derive the services, as the running service does every few seconds."""
        await self.loop.recover()
        await self.watch.refresh()
        return self

    def break_store(self) -> None:
        """From now on the store refuses, as one does whose file is gone."""
        self.store.close()


def recorded_world(name: str = "vllm-0.32.0", phase: str = "drain2", **more: Any) -> RequestWorld:
    """A real engine's counters and the spans of the same requests; what came after the end of a phase is left out."""
    end_s = next(p for p in Recording.open(DATA / name).phases() if p.name == phase).end_s
    parts = recorded_parts(DATA / name, [Origin(service="chat", model="tiny", target="chat-0")])
    assert parts is not None
    shift = NOW_S - 60 - end_s
    moved = parts.filter(pl.col("ended_s") <= end_s).with_columns(pl.col("received_s", "started_s", "ended_s") + shift)
    rows = replayed(name).rows.filter(pl.col("minute_s") <= end_s)
    named = rows.with_columns(
        pl.lit("chat-0").alias("target"), pl.lit("chat").alias("service"), pl.col("minute_s") + shift
    )
    facts = assemble(moved, NOW_S)
    return RequestWorld(facts.rows(named=True), moved.rows(named=True), minutes=fold(named), **more)
