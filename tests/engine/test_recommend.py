"""From drift to a verified change on a real vLLM: a bad setting, advice from its own traces, a restart, the verdict.

Deselected unless GOODWATCH_ENGINE_TEST=1 (``make engine-test``); about four minutes. The engine sends its own traces to a
goodwatch in this process. Clients come in bursts, as from a batch of agents: with ``--max-num-seqs`` far past the knee
all of a burst run at once and share slow steps; the TPOT target lies between that and what a few at once see, measured
on this machine first, so that the setting truly hurts and the change truly can mend it.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp
import pytest

from goodwatch.api.service import Service, serve
from goodwatch.app.advising import Answer
from goodwatch.core.drift import Drift
from planner.candidate import Advice
from planner.recommendations import Recommendation
from tests.engine.load import MODEL, latencies, read_stream
from tests.engine.server import VllmServer
from tests.engine.setup import is_ready

pytestmark = pytest.mark.engine

BAD_SEQUENCES: Final = 128
#: requests of a burst, again and again: a step's parts can be told apart only where the load varies
SIZES: Final = (96, 20, 80)
#: of each quarter of the test; a check cuts both sides in eight, so each piece holds every size once
BURST, BURSTS, EVERY_S = 96, 12, 4.0
FEW: Final = 10
TTFT_LIMIT_S: Final = 15.0
SETTLE_S: Final = 4.0
TIMEOUT_S: Final = 800.0
#: minutes are judged half a minute after they end, advice is looked for every quarter of a minute, a check once a minute
PATIENCE_S: Final = 200.0


class Engine(VllmServer):
    """The engine of the other tests with another limit of requests at once, a cache that never fills, and traces."""

    def __init__(self, engine_dir: Path, *, port: int, log: Path, sequences: int, traces: str) -> None:
        super().__init__(engine_dir, port=port, log=log)
        for flag, value in (("--max-num-seqs", str(sequences)), ("--num-gpu-blocks-override", "2048")):
            self._command[self._command.index(flag) + 1] = value
        self._command += ["--otlp-traces-endpoint", traces, "--no-enable-prefix-caching"]


@dataclass(slots=True)
class Load:
    """Bursts of requests on one engine; remembers what their clients saw."""

    url: str
    session: aiohttp.ClientSession
    draw: random.Random

    async def burst(self, size: int) -> list[dict[str, Any]]:
        """So many requests at once, until all have ended."""
        return await asyncio.gather(*(self._one() for _ in range(size)))

    async def bursts(self) -> list[dict[str, Any]]:
        """The load of either half of the test."""
        rows: list[dict[str, Any]] = []
        for n in range(BURSTS):
            begun = time.monotonic()
            rows += await self.burst(SIZES[n % len(SIZES)])
            await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - begun)))
        return rows

    async def tpot_sums(self) -> tuple[float, float]:
        """Sum and number of the times per output token on the engine's page."""
        async with asyncio.timeout(20), self.session.get(f"{self.url}/metrics") as reply:
            lines = (await reply.text()).splitlines()
        name = "vllm:request_time_per_output_token_seconds"
        found = [
            sum(float(x.split()[-1]) for x in lines if x.startswith(f"{name}_{end}{{")) for end in ("sum", "count")
        ]
        return found[0], found[1]

    async def _one(self) -> dict[str, Any]:
        body = {
            "model": MODEL, "prompt": [self.draw.randrange(300, 4000) for _ in range(self.draw.randint(20, 60))],
            "max_tokens": self.draw.randint(30, 60), "ignore_eos": True, "temperature": 0.0, "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        row: dict[str, Any] = {}
        began = time.perf_counter()
        async with asyncio.timeout(60), self.session.post(f"{self.url}/v1/completions", json=body) as reply:
            await read_stream(reply.content, row, began)
        return row | latencies(row)


async def tpot_limit_s(load: Load) -> float:
    """A target between what requests of a full burst see and what twelve at once see, as this machine is now.

    By the engine's own sums: a client on two busy cores gets its tokens in clumps.
    """
    await load.burst(FEW)  # the first requests of a fresh engine are slow
    seen: dict[int, list[float]] = {FEW: [], BURST: []}
    for _ in range(3):
        for size, found in seen.items():
            before = await load.tpot_sums()
            await load.burst(size)
            await asyncio.sleep(0.3)
            after = await load.tpot_sums()
            found.append((after[0] - before[0]) / (after[1] - before[1]))
    low, high = median(seen[FEW]), median(seen[BURST])
    print(f"\nTPOT of {FEW} at once {low * 1e3:.1f} ms, of {BURST} at once {high * 1e3:.1f} ms")
    assert high > 1.4 * low, f"this machine shows no knee between {FEW} and a whole burst: nothing to recommend"
    return float((low * high) ** 0.5)


def flags_of(sequences: int) -> str:
    """The flags of the engine as an operator writes them down."""
    return f"--max-num-seqs {sequences} --max-num-batched-tokens 2048 --no-enable-prefix-caching"


def configuration(folder: Path, engine: str, ports: tuple[int, int], limit_s: float) -> Path:
    """goodwatch's file: one target, its SLO, its flags as set."""
    file = folder / "goodwatch.yaml"
    file.write_text(
        f"""listen: 127.0.0.1:{ports[0]}
data_dir: {folder / "data"}
otlp:
  http: 127.0.0.1:{ports[1]}
  grpc: null
  settle: {SETTLE_S:g}s
  origins: [{{service: chat, model: {MODEL}, target: vllm}}]
scrape: {{interval: 2s}}
derive: {{every: 5s}}
targets:
  - {{url: "{engine}/metrics", name: vllm, service: chat, gpus: 1, gpu_hour_usd: 2, args: "{flags_of(BAD_SEQUENCES)}"}}
services:
  - name: chat
    slo: {{ttft: {TTFT_LIMIT_S:g}s, tpot: {limit_s * 1e3:.2f}ms, objective: 0.95}}
"""
    )
    return file


@dataclass(slots=True)
class Seen:
    """What the service told: drifts."""

    drifts: list[Drift]

    def drifted(self, drift: Drift) -> None:
        """Remember it."""
        print(f"{time.strftime('%H:%M:%S', time.gmtime())} drift: {drift.text}")
        self.drifts.append(drift)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, below those that the kernel gives to the clients' connections."""
    found: list[int] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 200):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free port between 20000 and 32000")


def told(one: Recommendation) -> str:
    """A recommendation with its figures, for the log of the test."""
    lines = [f"{one.title} [{one.strategy}, {one.state}, {one.confidence}] {one.verdict}"]
    for p in one.predicted:
        measured = "" if p.measured is None else f", measured {p.measured:.3f}, inside {p.inside}"
        lines.append(
            f"  {p.metric}: {p.now.point:.4g} → {p.then.point:.4g}, {p.scale} {p.change.point:.3f}"
            f" ({p.change.low:.3f} to {p.change.high:.3f}){measured}"
        )
    return "\n".join(lines)


def why_none(advice: Advice) -> str:
    """What was tried and lost, for the log of a test that failed."""
    lines = [advice.reason, *advice.missing, f"stay: {advice.stay}"]
    lines += [f"lost: {one.proposal.title}: {one.why_not}: {one.effect}" for one in advice.lost]
    return "\n".join([*lines, *(f"silent: {one.strategy}: {one.reason}" for one in advice.abstained)])


async def until(done: Any, timeout_s: float) -> bool:
    """Wait for something that the service does by itself."""
    end = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.5)
    return True


@dataclass(slots=True)
class Run:
    """The whole story, played beside a running service."""

    engine_dir: Path
    folder: Path
    ports: tuple[int, int, int]  # goodwatch, traces, engine
    session: aiohttp.ClientSession
    engine: Engine
    drifts: list[Drift]
    answer: Answer | None = None
    verified: Recommendation | None = None

    @property
    def url(self) -> str:
        """Where the engine is."""
        return f"http://127.0.0.1:{self.ports[2]}"

    async def play(self, service: Service) -> None:
        """Bad setting, drift, advice, restart with it, verdict."""
        try:
            adviser = service.improvement.advising
            service.promises.listen(Seen(self.drifts))
            await Load(self.url, self.session, random.Random(1)).bursts()
            print(f"\n{time.strftime('%H:%M:%S', time.gmtime())} the load has ended")
            await until(lambda: "chat" in adviser.answers, PATIENCE_S)
            self.answer = adviser.answers.get("chat")
            await self._apply(service)
        finally:
            service.stop()

    async def _apply(self, service: Service) -> None:
        if self.answer is None or not self.answer.made:
            return
        adviser = service.improvement.advising
        first = self.answer.made[0]
        print(told(first))
        await adviser.move(first.id, "accepted", "the test")
        value = first.changes.get("max_num_seqs")
        if not isinstance(value, int):
            return
        await Load(self.url, self.session, random.Random(3)).bursts()  # on the old setting until the restart
        await asyncio.sleep(1)
        stopped_s, adviser.verifying.warm_s = time.time(), TIMEOUT_S  # no check before all of the load is there
        await asyncio.to_thread(self.engine.stop)
        again = engine_of(self.engine_dir, self.folder, self.ports, value)
        self.engine = await asyncio.to_thread(again.__enter__)
        load = Load(self.url, self.session, random.Random(2))
        await load.burst(8)
        await asyncio.sleep(SETTLE_S)
        warm_at_s = time.time()
        service.file.write_text(service.file.read_text().replace(flags_of(BAD_SEQUENCES), flags_of(value)))
        assert (await service.reload()).ok
        for _ in range(2):
            await load.bursts()
        await asyncio.sleep(SETTLE_S + 3)
        seen = adviser.one(first.id)
        if (
            seen is not None and seen.applied_s is None
        ):  # else what the engine tells of itself has changed, and was seen
            seen = await adviser.move(first.id, "applied", "the test", "restarted with the new value", stopped_s)
        print(f"applied, by {seen.steps[-1].by if seen else 'nobody'}")
        adviser.verifying.warm_s = max(0.0, warm_at_s - ((seen and seen.applied_s) or stopped_s))
        await until(lambda: (adviser.one(first.id) or first).verdict, PATIENCE_S)
        self.verified = adviser.one(first.id)
        print(f"waits: {adviser.waiting}; a check needs {first.check_requests} requests")


def engine_of(engine_dir: Path, folder: Path, ports: tuple[int, int, int], sequences: int) -> Engine:
    """An engine that sends its traces to goodwatch."""
    traces = f"http://127.0.0.1:{ports[1]}/v1/traces"
    return Engine(engine_dir, port=ports[2], log=folder / f"engine-{sequences}.log", sequences=sequences, traces=traces)


@pytest.fixture
def http_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM sends traces over HTTP and at once."""
    for name, value in (("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"), ("OTEL_BSP_SCHEDULE_DELAY", "500")):
        monkeypatch.setenv(name, value)


@pytest.fixture
def engine_dir() -> Path:
    """The folder with the engine and its model."""
    folder = Path(os.environ.get("GOODWATCH_ENGINE_DIR", ".engine-test")).resolve()
    assert is_ready(folder), f"{folder}: no vLLM there; run `python -m tests.engine.setup {folder}`"
    return folder


@pytest.mark.usefixtures("http_traces")
async def test_a_bad_limit_of_sequences_is_found_changed_and_verified(tmp_path: Path, engine_dir: Path) -> None:
    ports = tuple(free_ports(3))
    assert len(ports) == 3
    engine = engine_of(engine_dir, tmp_path, ports, BAD_SEQUENCES)
    run: Run | None = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.to_thread(engine.__enter__)
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            async with aiohttp.ClientSession(connector=connector) as session:
                run = Run(engine_dir, tmp_path, ports, session, engine, [])
                limit_s = await tpot_limit_s(Load(run.url, session, random.Random(0)))
                file = configuration(tmp_path, run.url, ports[:2], limit_s)
                await serve(file, beside=run.play)
    finally:
        await asyncio.to_thread((run.engine if run else engine).stop)
    assert run.drifts, "goodwatch saw no drift"
    assert run.answer is not None, "the drift led to no look at the service"
    assert run.answer.made, why_none(run.answer.advice)
    assert set(run.answer.made[0].changes) == {"max_num_seqs"}
    assert run.verified is not None, "too few requests for a verdict"
    print(told(run.verified))
    assert run.verified.state == "verified", run.verified.verdict
    attained = run.verified.metric("attainment_ratio")
    assert attained is not None
    assert attained.inside, told(run.verified)
