"""Durable spans per second and CPU of the OTLP receiver, beside Arize Phoenix on the same batches in the same run.

    python -m tests.bench.ingest [--quick] [--json] [--check] [--minutes 10] [--peer DIR]

One receiver process with the product's mapper and store; requests of 512 spans with 25 attributes each, as vLLM's
exporter sends them. A span counts when it was acknowledged, and all of them are looked for in the file afterwards. CPU
is that of the receiver process, all threads, in user and kernel. Phoenix is measured from the first byte until its
database holds the spans, as it answers before that. It is installed into DIR (a temporary folder when none is given;
--quick never installs).
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import grpc
import grpc.aio

from collector.otlp.kinds import TRACES
from tests.support.otlp_receiver import identities
from tests.support.otlp_spans import PADDING, REAL, request, span

SPANS: Final = 512
SENDERS: Final = 16
PEER_BODIES, PEER_BODIES_QUICK = 12, 3
AIMS: Final = {"http_spans_per_cpu_s": 30_000, "grpc_spans_per_cpu_s": 30_000, "ratio_to_phoenix": 10}
GROWTH_AIM: Final = 1.1  # RSS at the end over RSS in the middle

Send = Callable[[bytes], Awaitable[None]]


class Bodies:
    """Requests without end: one template of different spans, and new ids in each."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        now_ns = time.time_ns()
        spans = [self._span(now_ns, number) for number in range(SPANS)]
        template = request(spans).SerializeToString()
        self._places = [(template.index(one.trace_id), template.index(one.span_id)) for one in spans]
        self._template = bytearray(template)

    def __next__(self) -> bytes:
        for trace_at, span_at in self._places:
            self._template[trace_at : trace_at + 16] = self._random.randbytes(16)
            self._template[span_at : span_at + 8] = self._random.randbytes(8)
        return bytes(self._template)

    def _span(self, now_ns: int, number: int) -> Any:
        chance = self._random
        queue_s, prefill_s, decode_s = chance.expovariate(20), chance.lognormvariate(-2, 1), chance.lognormvariate(1, 1)
        own = {
            "gen_ai.latency.time_in_queue": queue_s,
            "gen_ai.latency.time_in_model_prefill": prefill_s,
            "gen_ai.latency.time_in_model_decode": decode_s,
            "gen_ai.latency.time_in_model_inference": prefill_s + decode_s,
            "gen_ai.latency.time_to_first_token": queue_s + prefill_s + 0.01,
            "gen_ai.latency.e2e": queue_s + prefill_s + decode_s + 0.01,
            "gen_ai.usage.prompt_tokens": int(chance.lognormvariate(6, 1)) + 1,
            "gen_ai.usage.completion_tokens": int(chance.lognormvariate(5, 1)) + 1,
            "gen_ai.request.id": f"chatcmpl-{chance.randbytes(16).hex()}",
            "tenant.id": f"tenant-{chance.randrange(50):04}",
            "app.session": chance.randbytes(16).hex(),
        }
        attributes = {**REAL, **PADDING, **own}
        ended_ns = now_ns + number * 1_000_000
        times = {
            "start_time_unix_nano": ended_ns - int(own["gen_ai.latency.e2e"] * 1e9),
            "end_time_unix_nano": ended_ns,
        }
        ids = {"trace_id": chance.randbytes(16), "span_id": chance.randbytes(8), "parent_span_id": chance.randbytes(8)}
        return span(number, attributes, **ids, **times)


@dataclass
class Process:
    """A server process and what it uses."""

    pid: int
    rss_bytes: list[int] = field(default_factory=list)

    def cpu_s(self) -> float:
        """User and kernel time of all its threads until now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        """Note its resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        self.rss_bytes.append(pages * os.sysconf("SC_PAGE_SIZE"))


@contextmanager
def receiver(path: Path) -> Iterator[tuple[Process, int, int]]:
    """The receiver over a store, and its ports."""
    command = [sys.executable, "-m", "tests.support.otlp_receiver", str(path), "0", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            _, http_port, grpc_port = process.stdout.readline().split()
            yield Process(process.pid), int(http_port), int(grpc_port)
        finally:
            process.kill()


@asynccontextmanager
async def over_http(port: int) -> AsyncIterator[Send]:
    """Sends bodies over HTTP; again when asked to."""
    url, headers = f"http://127.0.0.1:{port}/v1/traces", {"Content-Type": "application/x-protobuf"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:

        async def send(body: bytes) -> None:
            while True:
                async with session.post(url, data=body, headers=headers) as response:
                    await response.read()
                    if response.status not in (429, 503):
                        response.raise_for_status()
                        return
                await asyncio.sleep(0.5)

        yield send


@asynccontextmanager
async def over_grpc(port: int) -> AsyncIterator[Send]:
    """Sends bodies over gRPC."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        export = channel.unary_unary(f"/{TRACES.service}/Export", request_serializer=None, response_deserializer=None)

        async def send(body: bytes) -> None:
            await export(body, timeout=60)

        yield send


async def drive(send: Send, bodies: Bodies, server: Process, seconds: float) -> dict[str, float]:
    """Send with many senders at once; spans acknowledged, seconds and CPU seconds after a warm-up of a fifth."""
    began = time.perf_counter()
    acknowledged, mark = 0, (0, 0.0, 0.0)

    async def sender() -> None:
        nonlocal acknowledged
        while time.perf_counter() - began < seconds:
            await send(next(bodies))
            acknowledged += SPANS

    async def watch() -> None:
        nonlocal mark
        await asyncio.sleep(seconds / 5)
        mark = (acknowledged, time.perf_counter(), server.cpu_s())
        for _ in range(5):
            server.look()
            await asyncio.sleep(seconds / 7)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    end_s, cpu_s = time.perf_counter(), server.cpu_s()
    await watching
    spans = acknowledged - mark[0]
    return {
        "sent": acknowledged,
        "spans_per_s": spans / (end_s - mark[1]),
        "spans_per_cpu_s": spans / (cpu_s - mark[2]),
    }


async def measure_receiver(folder: Path, seconds: float) -> dict[str, float]:
    """HTTP, then gRPC, each over a store of its own."""
    found: dict[str, float] = {}
    for name, door in (("http", over_http), ("grpc", over_grpc)):
        path = folder / f"{name}.duckdb"
        with receiver(path) as (server, http_port, grpc_port):
            async with door(http_port if name == "http" else grpc_port) as send:
                result = await drive(send, Bodies(len(found)), server, seconds)
        kept = len(set(identities(path)))
        if kept != result["sent"]:
            raise SystemExit(f"{result['sent']} spans were acknowledged over {name} and {kept} are in the file")
        found[f"{name}_spans_per_s"] = result["spans_per_s"]
        found[f"{name}_spans_per_cpu_s"] = result["spans_per_cpu_s"]
        found[f"{name}_cpu_s_per_1000_spans"] = 1000 / result["spans_per_cpu_s"]
        found[f"{name}_bytes_per_span"] = path.stat().st_size / kept
        found |= {f"{name}_rss_{k}_mib": size / 2**20 for k, size in enumerate(server.rss_bytes)}
        found[f"{name}_rss_growth_ratio"] = server.rss_bytes[-1] / server.rss_bytes[len(server.rss_bytes) // 2]
        path.unlink()
    return found


def phoenix(folder: Path, *, install: bool) -> Path | None:
    """The command of Phoenix in a virtual environment in ``folder``; None when it is not there and cannot be."""
    command = folder / "bin" / "phoenix"
    if command.exists() or not install:
        return command if command.exists() else None
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "arize-phoenix"]
    done = subprocess.run(pip, check=False, capture_output=True, text=True)
    return command if done.returncode == 0 and command.exists() else None


async def measure_peer(command: Path, folder: Path, count: int) -> dict[str, float]:
    """Phoenix: from the first byte until all spans of ``count`` bodies are in its SQLite database."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = one.getsockname()[1], other.getsockname()[1]
    plain = {
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        "PHOENIX_HOST": "127.0.0.1",
    }
    own = {"PHOENIX_WORKING_DIR": str(folder), "PHOENIX_PORT": str(ports[0]), "PHOENIX_GRPC_PORT": str(ports[1])}
    with subprocess.Popen(  # noqa: ASYNC220 (nothing else runs on the loop yet)
        [command, "serve"], env={**os.environ, **plain, **own}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            server, bodies = Process(process.pid), Bodies(7)
            async with asyncio.timeout(300), over_http(ports[0]) as send:
                await _until_it_listens(ports[0])
                await send(next(bodies))  # the first one makes the project
                await _until_kept(folder, SPANS)
                cpu_s, began = server.cpu_s(), time.perf_counter()
                await asyncio.gather(*(send(next(bodies)) for _ in range(count)))
                await _until_kept(folder, SPANS * (1 + count))
                spans, used_s = SPANS * count, server.cpu_s() - cpu_s
                server.look()
            return {
                "phoenix_spans_per_s": spans / (time.perf_counter() - began),
                "phoenix_spans_per_cpu_s": spans / used_s,
                "phoenix_rss_mib": server.rss_bytes[-1] / 2**20,
            }
        finally:
            process.kill()


async def _until_it_listens(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.2)
        else:
            writer.close()
            await writer.wait_closed()
            return


async def _until_kept(folder: Path, spans: int) -> None:
    kept = 0
    while kept < spans:
        await asyncio.sleep(0.2)
        try:
            with sqlite3.connect(f"file:{folder / 'phoenix.db'}?mode=ro", uri=True) as connection:
                ((kept,),) = connection.execute("select count(*) from spans").fetchall()
        except sqlite3.OperationalError:
            continue  # busy, or not made yet


async def measure(folder: Path, options: argparse.Namespace) -> tuple[dict[str, float], str]:
    """All figures, and why the peer's are missing ("" when they are there)."""
    seconds = options.minutes * 60 if options.minutes else (5.0 if options.quick else 25.0)
    found = await measure_receiver(folder, seconds)
    command = phoenix(options.peer or folder / "peer", install=not options.quick)
    if command is None:
        return (
            found,
            "arize-phoenix is not installed there" if options.quick else "arize-phoenix could not be installed",
        )
    (folder / "phoenix").mkdir()
    found |= await measure_peer(command, folder / "phoenix", PEER_BODIES_QUICK if options.quick else PEER_BODIES)
    found["ratio_to_phoenix"] = found["http_spans_per_cpu_s"] / found["phoenix_spans_per_cpu_s"]
    return found, ""


def main() -> int:
    """Measure, print, and with ``--check`` return 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="5 s a transport and not 25 (20 s; Phoenix adds half a minute)"
    )
    parser.add_argument("--minutes", type=float, help="so many minutes a transport: memory over time")
    parser.add_argument("--peer", type=Path, help="virtual environment of Phoenix, made when it is not there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when an aim is missed")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="goodwatch-ingest-"))
    try:
        found, without_peer = asyncio.run(measure(folder, options))
    finally:
        shutil.rmtree(folder)
    missed = [name for name, least in AIMS.items() if name in found and found[name] < least]
    if options.minutes:  # in a short run the index of known spans still fills
        missed += [name for name in found if name.endswith("growth_ratio") and found[name] > GROWTH_AIM]
    if options.json:
        print(json.dumps({"measured": found, "aims": AIMS, "missed": missed, "without_peer": without_peer}))
    else:
        for name, value in found.items():
            aim = f"  (aim: at least {AIMS[name]:,}{', MISSED' if name in missed else ''})" if name in AIMS else ""
            print(f"{name:28}{value:14,.3f}{aim}")
        if without_peer:
            print(f"Phoenix was not measured: {without_peer}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
