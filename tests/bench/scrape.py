"""Scraping against its peers in the same run: parse speed against prometheus_client, CPU against a real Prometheus.

    python -m tests.bench.scrape [--quick] [--json] [--check]

Parse: lines a second on one core of recorded bodies: cold (a fresh cache), warm (the bodies of a recording under load
one after the other, births of series among them), still (a body that does not change, as of an idle engine).
CPU: process CPU seconds per 1,000 scrapes of a vLLM recording under load over HTTP, its bodies in turn. goodwatch
scrapes, parses, keeps and derives; Prometheus scrapes the same ports at the same interval into its own store. What
each does once at its start is left out. ``--check`` exits 1 when the warm parse is below 1,000,000 lines/s or
goodwatch needs more CPU than Prometheus.
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from collector.exposition import Parser
from tests.bench.collect import bodies, median_ms

WARM_AIM_LINES_PER_S = 1_000_000
BODIES = 100
START_S = 20.0  # goodwatch draws its charts once after it started, to have them warm
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def parse_speed(name: str, rounds: int) -> dict[str, Any]:
    """Lines a second: ours cold, warm and still, and prometheus_client."""
    pages = bodies(name, BODIES)
    body, content_type = pages[-1]
    lines, all_lines = body.count("\n"), sum(page.count("\n") for page, _ in pages)
    warm, still = Parser(), Parser()
    per_line_ms = {
        "cold": median_ms(lambda: Parser().parse(body, content_type=content_type), rounds) / lines,
        "warm": median_ms(lambda: [warm.parse(b, content_type=c) for b, c in pages], rounds) / all_lines,
        "still": median_ms(lambda: [still.parse(body, content_type=content_type) for _ in range(10)], rounds)
        / (10 * lines),
        "prometheus_client": median_ms(lambda: list(text_string_to_metric_families(body)), rounds) / lines,
    }
    return {"page": name, "lines": lines, **{f"{k}_lines_per_s": round(1e3 / ms) for k, ms in per_line_ms.items()}}


def _serve(pages: list[tuple[str, str | None]], count: int, ports: Any, answered: Any) -> None:
    """Many engines in one process: each port answers with the bodies in turn, each from a place of its own."""
    answers = [
        f"HTTP/1.1 200 OK\r\nContent-Type: {content_type or 'text/plain'}\r\n"
        f"Content-Length: {len(body.encode())}\r\n\r\n{body}".encode()
        for body, content_type in pages
    ]

    def engine(first: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        turn = itertools.cycle(answers[first:] + answers[:first])

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(next(turn))
                    await writer.drain()
                    answered.value += 1
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        return answer

    async def run() -> None:
        starts = [i * len(answers) // count for i in range(count)]
        servers = [await asyncio.start_server(engine(first), "127.0.0.1", 0) for first in starts]
        ports.send([s.sockets[0].getsockname()[1] for s in servers])
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def engines(count: int) -> Iterator[tuple[list[int], Callable[[], int]]]:
    """Ports of ``count`` served engines, and how many scrapes they answered so far."""
    ours, theirs = multiprocessing.Pipe()
    answered = multiprocessing.Value("q", 0, lock=False)
    process = multiprocessing.Process(
        target=_serve, args=(bodies("vllm-0.32.0", BODIES), count, theirs, answered), daemon=True
    )
    process.start()
    try:
        yield ours.recv(), lambda: answered.value
    finally:
        process.kill()
        process.join()


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def peer_cpu(command: list[str], answered: Callable[[], int], *, first: int, seconds: float) -> float:
    """CPU seconds of a process per 1,000 scrapes, over ``seconds`` behind its first scrapes and its start."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = answered() + first
            while answered() < until:
                time.sleep(0.1)
                if process.poll() is not None:
                    raise RuntimeError(f"{command[0]} ended with {process.returncode}")
            time.sleep(START_S)
            used_s, scrapes = cpu_s(process.pid), answered()
            time.sleep(seconds)
            return (cpu_s(process.pid) - used_s) / (answered() - scrapes) * 1000
        finally:
            process.kill()


def fleet_cpu(targets: int, interval_s: float, seconds: float) -> dict[str, Any]:
    """CPU seconds per 1,000 scrapes: goodwatch and Prometheus, one after the other on the same served engines."""
    with tempfile.TemporaryDirectory() as folder, engines(targets) as (ports, answered):
        home = Path(folder)
        mine, theirs = home / "goodwatch.yaml", home / "prometheus.yml"
        listed = "\n".join(f"  - {{url: 'http://127.0.0.1:{p}/metrics', service: s}}" for p in ports)
        mine.write_text(
            f"listen: 127.0.0.1:0\ndata_dir: {home}/data\nscrape: {{interval: {interval_s}s, timeout: {interval_s}s}}\n"
            f"services: [{{name: s, slo: {{ttft: 500ms, tpot: 50ms}}}}]\ntargets:\n{listed}\n"
        )
        addresses = ", ".join(f"'127.0.0.1:{p}'" for p in ports)
        theirs.write_text(
            f"global: {{scrape_interval: {interval_s:g}s}}\nscrape_configs:\n  - job_name: e\n"
            f"    static_configs: [{{targets: [{addresses}]}}]\n"
        )
        goodwatch = peer_cpu(
            [sys.executable, "-m", "goodwatch", "serve", "-c", str(mine)], answered, first=2 * targets, seconds=seconds
        )
        prometheus = peer_cpu(
            [shutil.which("prometheus") or "prometheus", f"--config.file={theirs}", f"--storage.tsdb.path={home}/tsdb",
             "--web.listen-address=127.0.0.1:0"],
            answered, first=2 * targets, seconds=seconds,
        )  # fmt: skip
    return {
        "targets": targets, "interval_s": interval_s, "seconds": seconds,
        "goodwatch_cpu_s_per_1000": round(goodwatch, 2), "prometheus_cpu_s_per_1000": round(prometheus, 2),
        "ratio": round(goodwatch / prometheus, 2) if prometheus else None,
    }  # fmt: skip


def main() -> int:
    """Run and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="about a minute")
    options.add_argument("--json", action="store_true")
    options.add_argument("--check", action="store_true", help="exit 1 when an aim is missed")
    said = options.parse_args()
    rounds = 5 if said.quick else 30
    parse = [parse_speed(name, rounds) for name in ("vllm-0.32.0", "sglang-0.5.23")]
    fleet = fleet_cpu(20, 1.0, 8.0) if said.quick else fleet_cpu(40, 2.0, 60.0)
    found = {"parse": parse, "fleet": fleet}
    if said.json:
        print(json.dumps(found, indent=2))
    else:
        for row in (*parse, fleet):
            print("  ".join(f"{k} {v}" for k, v in row.items()))
    missed = any(p["warm_lines_per_s"] < WARM_AIM_LINES_PER_S for p in parse) or (fleet["ratio"] or 0) > 1.0
    return 1 if said.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
