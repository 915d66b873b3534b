"""Scraping against its peers in the same run: parse speed against prometheus_client, CPU against a real Prometheus.

    python -m tests.bench.scrape [--quick] [--json] [--check]

Parse: lines a second on one core of recorded bodies, cold (a fresh cache) and warm (the series are known).
CPU: process CPU seconds per 1,000 scrapes of a recorded vLLM body over HTTP. goodwatch scrapes, parses, keeps and
derives; Prometheus scrapes the same ports at the same interval into its own store. ``--check`` exits 1 when the warm
parse is below 1,000,000 lines/s or goodwatch needs more CPU than Prometheus.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from collector.exposition import Parser
from tests.bench.collect import bodies, median_ms

WARM_AIM_LINES_PER_S = 1_000_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def parse_speed(name: str, rounds: int) -> dict[str, Any]:
    """Lines a second: ours cold, ours warm, prometheus_client."""
    body, content_type = bodies(name, 1)[0]
    lines = body.count("\n")
    warm = Parser()
    warm.parse(body, content_type=content_type)
    took = {
        "cold": median_ms(lambda: Parser().parse(body, content_type=content_type), rounds),
        "warm": median_ms(lambda: [warm.parse(body, content_type=content_type) for _ in range(10)], rounds) / 10,
        "prometheus_client": median_ms(lambda: list(text_string_to_metric_families(body)), rounds),
    }
    return {"page": name, "lines": lines, **{f"{k}_lines_per_s": round(lines / (ms / 1e3)) for k, ms in took.items()}}


def _serve(body: bytes, content_type: str, count: int, ports: Any) -> None:
    """Many engines in one process: each port answers with the body."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(head + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        servers = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(count)]
        ports.send([s.sockets[0].getsockname()[1] for s in servers])
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def engines(count: int) -> Iterator[list[int]]:
    """Ports of ``count`` served engines."""
    body, content_type = bodies("vllm-0.32.0", 1)[0]
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=_serve, args=(body.encode(), content_type or "text/plain", count, theirs), daemon=True
    )
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def peer_cpu(command: list[str], *, warm_s: float, seconds: float) -> float:
    """CPU seconds that a process uses in ``seconds``, after it has run for ``warm_s``."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(warm_s)
            before = cpu_s(process.pid)
            time.sleep(seconds)
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {process.returncode}")
            return cpu_s(process.pid) - before
        finally:
            process.kill()


def fleet_cpu(targets: int, interval_s: float, seconds: float) -> dict[str, Any]:
    """CPU seconds per 1,000 scrapes: goodwatch and Prometheus, one after the other on the same served engines."""
    with tempfile.TemporaryDirectory() as folder, engines(targets) as ports:
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
        scrapes = targets * seconds / interval_s
        goodwatch = peer_cpu(
            [sys.executable, "-m", "goodwatch", "serve", "-c", str(mine)],
            warm_s=max(6.0, 2 * interval_s),
            seconds=seconds,
        )
        prometheus = peer_cpu(
            [shutil.which("prometheus") or "prometheus", f"--config.file={theirs}", f"--storage.tsdb.path={home}/tsdb",
             "--web.listen-address=127.0.0.1:0"],
            warm_s=max(6.0, 2 * interval_s), seconds=seconds,
        )  # fmt: skip
    return {
        "targets": targets, "interval_s": interval_s, "seconds": seconds,
        "goodwatch_cpu_s_per_1000": round(goodwatch / scrapes * 1000, 2),
        "prometheus_cpu_s_per_1000": round(prometheus / scrapes * 1000, 2),
        "ratio": round(goodwatch / prometheus, 2) if prometheus else None,
    }  # fmt: skip


def main() -> int:
    """Run and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="under 40 s")
    options.add_argument("--json", action="store_true")
    options.add_argument("--check", action="store_true", help="exit 1 when an aim is missed")
    said = options.parse_args()
    rounds = 15 if said.quick else 60
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
