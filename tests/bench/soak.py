"""A fleet for an hour: does memory stay flat, is every interval taken, what does it cost in CPU and on the disk?

    python -m tests.bench.soak [--targets 200] [--interval 5] [--minutes 60] [--http] [--quick] [--json] [--check]

Without ``--http`` the hour is simulated: pages of a recorded vLLM whose counters go on growing are handed to the real
pieces (``Watch``, ``Keeper``, ``DuckDBStore`` on a real disk) under a clock that the run sets, as fast as the machine
can. An interval is late when its work took more CPU than it lasts, so that one core could not have kept up. With
``--http`` the minutes are real ones: servers on as many ports as there are targets, scraped by ``goodwatch serve``.

``--check`` exits 1 when memory grows by more than 10 % in the second half of the run, or an interval was missed.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import re
import resource
import selectors
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import polars as pl

from collector.scrape import Fetched, phase_s
from collector.stores.duckdb import DuckDBStore
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.app.config import Service
from goodwatch.app.engines import known_engines
from goodwatch.app.keeper import Keeper
from goodwatch.app.watch import Terms, Watch
from goodwatch.app.wiring import Priced
from goodwatch.core.model import Target
from goodwatch.signals.cost import Price
from tests.bench.collect import bodies
from tests.support.process import running

GROWTH_AIM_RATIO: Final = 0.10
BEGIN_S: Final = 1_800_000_000.0
POINTS: Final = 5
#: what the service does beside scraping, and how often (goodwatch/api/service.py and the defaults of derive)
REFRESH_S, FOLD_S, MEASURE_S, COMPACT_S = 30, 10, 30, 3600
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STAGGER: Final = 16  # so many targets in a row are at different pages
_TYPE: Final = re.compile(r"# TYPE (\S+) (counter|histogram|summary)$", re.M)


class LivingEngine:
    """Pages of a recorded vLLM, one after another without end: what counts goes on where the last page stopped."""

    def __init__(self) -> None:
        pages = [(body.splitlines(), kind) for body, kind in bodies("vllm-0.32.0", 10_000)]
        heads = [line.rpartition(" ")[0] for line in pages[len(pages) // 2][0]]
        self._pages = [lines for lines, _ in pages if [line.rpartition(" ")[0] for line in lines] == heads]
        # The recording has more than one life of the engine: the longest run without a step back is played.
        self._counts = [i for i, line in enumerate(self._pages[0]) if self._is_count(line)]
        self._pages = self._longest_life()
        first, last = self._pages[0], self._pages[-1]
        self._growth = {i: g for i in self._counts if (g := _value(last[i]) - _value(first[i]))}
        self.content_type = pages[0][1] or "text/plain"
        self.body = lru_cache(maxsize=4 * _STAGGER)(self._body)

    def _is_count(self, line: str) -> bool:
        families = tuple(name for name, _ in _TYPE.findall("\n".join(self._pages[0])))
        return not line.startswith("#") and re.split(r"[{ ]", line)[0].startswith(families) and "_created" not in line

    def _longest_life(self) -> list[list[str]]:
        lives: list[list[list[str]]] = [[]]
        for page in self._pages:
            before = lives[-1][-1] if lives[-1] else page
            if any(_value(page[i]) < _value(before[i]) for i in self._counts):
                lives.append([])
            lives[-1].append(page)
        return max(lives, key=len)

    def _body(self, step: int) -> bytes:
        cycle, place = divmod(step, len(self._pages))
        lines = list(self._pages[place])
        for i, growth in self._growth.items():
            head, _, value = lines[i].rpartition(" ")
            lines[i] = f"{head} {float(value) + cycle * growth}"
        return ("\n".join(lines) + "\n").encode()


def _value(line: str) -> float:
    return float(line.rpartition(" ")[2])


@dataclass(slots=True)
class SetClock:
    """A clock that stands where it is put."""

    at_s: float = BEGIN_S

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


class TimedSelector(selectors.DefaultSelector):
    """Tells the longest turn of an event loop, in CPU of its thread: so long nothing else could be answered."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self._since_s: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._since_s is not None:
            self.longest_s = max(self.longest_s, time.thread_time() - self._since_s)
        ready = super().select(timeout)
        self._since_s = time.thread_time()
        return ready


@dataclass(slots=True)
class Soak:
    """What one run found."""

    mode: str
    targets: int
    interval_s: float
    seconds: float
    scrapes: int = 0
    missed_intervals: int = 0
    late_intervals: int = 0  # simulated: whose work took more CPU than they last
    failed_scrapes: int = 0
    rss_bytes: list[int] = field(default_factory=list)  # at 20, 40, … 100 % of the run
    store_memory_bytes: list[int] = field(default_factory=list)  # simulated: of it what DuckDB holds, at the same times
    store_bytes: int = 0
    cpu_s: float = 0.0
    loop_lag_max_s: float = 0.0  # simulated: CPU of the longest turn; over HTTP: at most so late, by the service
    peak_rss_bytes: int = 0
    wall_s: float = 0.0

    def figures(self) -> dict[str, Any]:
        """All of it, and what follows from it."""
        days = self.seconds / 86_400 * self.targets
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "rss_growth_second_half_ratio": round(self.growth_ratio, 4),
            # of a short run most is what an empty file takes
            "store_bytes_per_target_day": round(self.store_bytes / days) if self.seconds >= 600 else None,
            "cpu_s_per_1000_scrapes": round(self.cpu_s / max(1, self.scrapes) * 1000, 2),
            "cpu_cores": round(self.cpu_s / self.seconds, 3),
        }

    @property
    def growth_ratio(self) -> float:
        """Growth of memory from the middle of the run to its end, as a share of what it was.

        Without DuckDB's cache where that is known: it fills up to its limit of 1 GiB and stays there.
        """
        held = self.store_memory_bytes or [0] * len(self.rss_bytes)
        own = [rss - store for rss, store in zip(self.rss_bytes, held, strict=True)]
        return own[-1] / ((own[1] + own[2]) / 2) - 1

    @property
    def faults(self) -> list[str]:
        """What ``--check`` fails for."""
        found = [f"{self.missed_intervals} intervals missed"] if self.missed_intervals else []
        found += [f"{self.late_intervals} intervals late"] if self.late_intervals else []
        grew = f"memory grew by {self.growth_ratio:.1%} in the second half; at most {GROWTH_AIM_RATIO:.0%} is allowed"
        return [*found, grew] if self.growth_ratio > GROWTH_AIM_RATIO else found


def missed(scrapes: pl.DataFrame, interval_s: float) -> int:
    """Intervals without a scrape between two scrapes of a target. ``scrapes`` as ``frames.SCRAPES``."""
    gaps = scrapes.sort("target", "ts").select(pl.col("ts").diff().over("target") / interval_s)["ts"].drop_nulls()
    return int((gaps.filter(gaps > 1.5).round() - 1).sum())


def rss_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def services_of(targets: int) -> list[str]:
    return [f"service-{n}" for n in range(max(1, targets // 25))]


# -- an hour of simulated time ---------------------------------------------------------------------------------------


class Simulation:
    """The real watch, keeper and store under a clock that is set."""

    def __init__(self, folder: Path, soak: Soak) -> None:
        self.soak, self.clock, self.engine = soak, SetClock(), LivingEngine()
        self.store = DuckDBStore(folder / "soak.duckdb", clock=self.clock)
        self.keeper = Keeper(self.store, self.clock)
        names = services_of(soak.targets)
        slo = {"ttft": "500ms", "tpot": "50ms", "objective": 0.99}
        services = {n: Service.model_validate({"name": n, "slo": slo}) for n in names}
        options = ScrapeOptions(interval_s=soak.interval_s, timeout_s=soak.interval_s)
        self.specs = [
            TargetSpec(Target(f"10.0.{n // 250}.{n % 250}:8000", f"http://10.0.{n // 250}.{n % 250}:8000/metrics",
                              names[n % len(names)], engine_version="0.32.0"), options)
            for n in range(soak.targets)
        ]  # fmt: skip
        prices = {s.target.name: Priced(Price(1, 2.5)) for s in self.specs}
        self.watch = Watch(known_engines(), self.store, self.keeper, self.clock, Terms(services, prices))
        self.watch.update(self.specs)
        for state in self.watch.states.values():
            state.version_settled = True
        self.making_s = 0.0  # CPU that went into the pages: the engines' work, not goodwatch's

    async def run(self) -> None:
        soak = self.soak
        order = sorted(enumerate(self.specs), key=lambda one: phase_s(one[1].target.name, soak.interval_s))
        steps, began_s = int(soak.seconds / soak.interval_s), time.process_time()
        points = [steps * n // POINTS for n in range(1, POINTS + 1)]
        for step in range(steps):
            interval_began_s = time.process_time() - self.making_s
            await self._interval(step, order)
            spent_s = time.process_time() - self.making_s - interval_began_s
            soak.late_intervals += spent_s > soak.interval_s
            if step + 1 in points:
                soak.rss_bytes.append(rss_bytes())
                soak.store_memory_bytes.append(self._store_memory_bytes())
                share = (step + 1) / steps
                print(f"{share:.0%}: {rss_bytes() / 1e6:.0f} MB, {spent_s:.2f} s the last interval", file=sys.stderr)
        await self.keeper.flush()
        soak.cpu_s = round(time.process_time() - began_s - self.making_s, 2)
        kept = self.store.scrapes(0.0, self.clock.at_s + 1)
        soak.scrapes = kept.height
        soak.failed_scrapes = int((~kept["up"]).sum())
        soak.missed_intervals = steps * soak.targets - kept.height
        self.store.compact(self.clock.at_s)
        soak.store_bytes = self.store.health().bytes
        self.store.close()

    def _store_memory_bytes(self) -> int:
        """What DuckDB says it holds in memory: pages of its file, up to its limit."""
        connection = self.store._connection().connection
        ((held,),) = connection.execute("select sum(memory_usage_bytes) from duckdb_memory()").fetchall()
        return int(held)

    async def _interval(self, step: int, order: list[tuple[int, TargetSpec]]) -> None:
        """Every target once, at its own phase; what is written and derived meanwhile, second by second."""
        second = int(self.clock.at_s)
        for number, spec in order:
            phase = phase_s(spec.target.name, self.soak.interval_s)
            self.clock.at_s = BEGIN_S + step * self.soak.interval_s + phase
            while second < int(self.clock.at_s):
                second += 1
                await self._second(second)
            began_s = time.process_time()
            body = self.engine.body(step + number % _STAGGER)
            self.making_s += time.process_time() - began_s
            await self.watch.take(spec, Fetched(self.clock.at_s, True, 0.01, body, self.engine.content_type, 200))
            await asyncio.sleep(0)

    async def _second(self, second: int) -> None:
        await self.keeper.flush()
        if second % FOLD_S == 0:
            await self.watch.fold_minutes()
        if second % REFRESH_S == 0:
            await self.watch.refresh()
        if second % MEASURE_S == 0:
            await self.keeper.measure()
        if second % COMPACT_S == 0:
            await self.keeper.call(lambda: self.store.compact(float(second)))


def simulate(soak: Soak) -> Soak:
    """Run the simulated time in this process."""
    gc.set_threshold(100_000, 50, 50)  # as the service does
    began_s, selector = time.monotonic(), TimedSelector()
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation(Path(folder), soak)
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(simulation.run())
    soak.loop_lag_max_s = round(selector.longest_s, 4)
    soak.peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    soak.wall_s = round(time.monotonic() - began_s, 1)
    return soak


# -- real minutes over HTTP ------------------------------------------------------------------------------------------


def _serve(count: int, interval_s: float, ports: Any) -> None:
    engine, began_s = LivingEngine(), time.monotonic()

    async def answer(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                body = engine.body(int((time.monotonic() - began_s) / interval_s) + number % _STAGGER)
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {engine.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    async def run() -> None:
        servers = [await asyncio.start_server(partial(answer, n), "127.0.0.1", 0) for n in range(count)]
        ports.send([s.sockets[0].getsockname()[1] for s in servers])
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def served(count: int, interval_s: float) -> Iterator[list[int]]:
    """Ports of ``count`` living engines in a process of their own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(count, interval_s, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def configure(folder: Path, soak: Soak, ports: list[int]) -> Path:
    names = services_of(soak.targets)
    services = "\n".join(f"  - {{name: {n}, slo: {{ttft: 500ms, tpot: 50ms, objective: 0.99}}}}" for n in names)
    targets = "\n".join(
        f"  - {{url: 'http://127.0.0.1:{port}/metrics', service: {names[i % len(names)]}, gpus: 1, gpu_hour_usd: 2.5}}"
        for i, port in enumerate(ports)
    )
    file = folder / "goodwatch.yaml"
    file.write_text(
        f"listen: 127.0.0.1:0\ndata_dir: {folder}/data\n"
        f"scrape: {{interval: {soak.interval_s:g}s, timeout: {soak.interval_s:g}s}}\n"
        f"services:\n{services}\ntargets:\n{targets}\n"
    )
    return file


def over_http(soak: Soak) -> Soak:
    """Run the service on real servers for real minutes."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as home, served(soak.targets, soak.interval_s) as ports:
        folder = Path(home)
        with running("serve", "-c", str(configure(folder, soak, ports))) as service:
            service.url(120)
            pid, warm_s = service.process.pid, 2 * soak.interval_s
            time.sleep(warm_s)
            lags, first_s, before_s = _lags(service), time.time(), cpu_s(pid)
            for _ in range(POINTS):
                time.sleep(soak.seconds / POINTS)
                soak.rss_bytes.append(rss_bytes(pid))
            soak.cpu_s, last_s = round(cpu_s(pid) - before_s, 2), time.time()
            soak.loop_lag_max_s = _longest(lags, _lags(service))
            status = Path(f"/proc/{pid}/status").read_text()
            soak.peak_rss_bytes = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024
            assert service.end(timeout_s=60) == 0, service.output
        store = DuckDBStore(folder / "data" / "goodwatch.duckdb")
        kept = store.scrapes(first_s, last_s)
        soak.scrapes, soak.failed_scrapes = kept.height, int((~kept["up"]).sum())
        silent = soak.targets - kept["target"].n_unique()
        soak.missed_intervals = missed(kept, soak.interval_s) + silent * int(soak.seconds / soak.interval_s)
        store.compact(last_s)
        soak.store_bytes = round(store.health().bytes * soak.seconds / (soak.seconds + warm_s))
        store.close()
    soak.wall_s = round(time.monotonic() - began_s, 1)
    return soak


def _lags(service: Any) -> dict[float, float]:
    """How often the service's event loop woke so late or less, by bound."""
    found = re.findall(r'^goodwatch_event_loop_lag_seconds_bucket\{le="(\S+)"\} (\S+)', service.get("/metrics"), re.M)
    return {float(le): float(count) for le, count in found}


def _longest(first: dict[float, float], last: dict[float, float]) -> float:
    """The bound of the latest wake-up between two looks; infinite beyond the last bound."""
    between = {le: count - first.get(le, 0.0) for le, count in last.items()}
    return min(le for le, count in between.items() if count == between[float("inf")])


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def main() -> int:
    """Run and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--targets", type=int, default=200)
    options.add_argument("--interval", type=float, default=5.0, help="seconds between two scrapes of a target")
    options.add_argument("--minutes", type=float, help="simulated minutes (60), or real ones with --http (5)")
    options.add_argument("--http", action="store_true", help="real servers, real minutes, goodwatch serve")
    options.add_argument("--quick", action="store_true", help="20 targets, 10 minutes (half a minute with --http)")
    options.add_argument("--json", action="store_true", help="print JSON")
    options.add_argument("--check", action="store_true", help="exit 1 when memory grows or an interval is missed")
    said = options.parse_args()
    minutes = said.minutes or (5.0 if said.http else 60.0)
    targets = said.targets
    if said.quick:
        targets, minutes = 20, 0.33 if said.http else 10.0
    soak = Soak("http" if said.http else "simulated", targets, said.interval, minutes * 60)
    found = (over_http if said.http else simulate)(soak).figures()
    if said.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:30}{value}")
    for fault in soak.faults:
        print(fault, file=sys.stderr)
    return 1 if said.check and soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
