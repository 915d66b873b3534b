"""How fast and how small the embedded store is: a fleet of 100 targets of 60 signals, a quarter of them histograms.

``python -m tests.bench.bench_store [--quick] [--json] [--check]`` appends an hour of scrapes (``--quick``) or six, reads
one service of five back, and compares with writing the same frames as one Parquet file a scrape.
"""

import argparse
import json
import math
import operator
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from collector.stores.duckdb import DuckDBStore, Retention
from goodwatch.core.model import Histogram, Sample, Scrape
from goodwatch.signals.frames import samples_frame

TARGETS = 100
SERVICES = 5
HISTOGRAMS = 15
COUNTERS = 25
GAUGES = 20
SIGNALS = HISTOGRAMS + COUNTERS + GAUGES
LE = (*(0.001 * 2 ** (k / 1.5) for k in range(24)), math.inf)
EVERY_S = 15
HOUR = 3600 // EVERY_S
PARQUET_EVERY = 4  # rounds
START_S = 1.7e9

#: name: highest value that is good enough
AIMS = {
    "append_median_s": 0.5,
    "append_worst_s": 2.0,
    "read_hour_of_service_s": 1.0,
    "bytes_per_sample": 30.0,
    "journal_worst_bytes": 20 * 2**20,
}


def fleet(chance: random.Random, rounds: int) -> Iterator[list[Scrape]]:
    """One list of scrapes a round; counters and histograms grow as those of a busy fleet do."""
    increments = [_increment(chance) for _ in range(500)]
    counts = [[(0.0,) * len(LE)] * HISTOGRAMS for _ in range(TARGETS)]
    sums = [[0.0] * HISTOGRAMS for _ in range(TARGETS)]
    totals = [[0.0] * COUNTERS for _ in range(TARGETS)]
    for number in range(rounds):
        scrapes = []
        for target in range(TARGETS):
            ts = START_S + EVERY_S * number + 0.137 * target + 0.01 * chance.random()
            name, service = f"http://vllm-{target}:8000", f"service-{target % SERVICES}"
            said = ("meta-llama/Llama-3.1-8B-Instruct", "vllm", "0.11.0", "")
            samples = []
            for k in range(HISTOGRAMS):
                counts[target][k] = tuple(map(operator.add, counts[target][k], chance.choice(increments)))
                sums[target][k] += chance.random() * 30
                histogram = Histogram(LE, counts[target][k], sums[target][k])
                samples.append(Sample(ts, name, service, *said, f"latency_{k}_seconds", histogram=histogram))
            for k in range(COUNTERS):
                totals[target][k] += chance.randrange(500)
                samples.append(Sample(ts, name, service, *said, f"counter_{k}_total", value=totals[target][k]))
            for k in range(GAUGES):
                value = chance.choice([0.0, float(chance.randrange(60)), round(chance.random(), 4)])
                samples.append(Sample(ts, name, service, *said, f"gauge_{k}", value=value))
            scrapes.append(Scrape(ts, name, service, up=True, duration_s=0.02, samples=tuple(samples)))
        yield scrapes


def _increment(chance: random.Random) -> tuple[float, ...]:
    at = chance.uniform(6, 14)
    seen = [min(len(LE) - 1, max(0, int(chance.gauss(at, 2)))) for _ in range(chance.randrange(30))]
    return tuple(float(sum(bucket <= k for bucket in seen)) for k in range(len(LE)))


def parquet_append(folder: Path, number: int, scrapes: list[Scrape]) -> float:
    """Seconds to write the scrapes as one file that is on the disk."""
    begin = time.perf_counter()
    path = folder / f"{number}.parquet"
    samples_frame(sample for scrape in scrapes for sample in scrape.samples).write_parquet(path, compression="zstd")
    handle = os.open(path, os.O_RDWR)
    os.fsync(handle)
    os.close(handle)
    return time.perf_counter() - begin


def measure(folder: Path, hours: int) -> dict[str, float]:
    """Run it all in ``folder``; returns what was measured, seconds and bytes."""
    path, plain = folder / "store.db", folder / "plain"
    plain.mkdir()
    store = DuckDBStore(path, retention=Retention(samples_s=3600))
    appends: list[float] = []
    parquets: list[float] = []
    journal: list[int] = []
    sizes: list[int] = []
    compactions: list[float] = []
    for number, scrapes in enumerate(fleet(random.Random(1), hours * HOUR)):
        begin = time.perf_counter()
        store.append(scrapes)
        appends.append(time.perf_counter() - begin)
        wal = path.with_name("store.db.wal")
        journal.append(wal.stat().st_size if wal.exists() else 0)
        if number < HOUR and number % PARQUET_EVERY == 0:
            parquets.append(parquet_append(plain, number, scrapes))
        if number % HOUR == HOUR - 1:
            begin = time.perf_counter()
            store.compact(START_S + number * EVERY_S)
            compactions.append(time.perf_counter() - begin)
            sizes.append(path.stat().st_size)
    end_s = START_S + hours * 3600
    reads = [_read_s(store, end_s) for _ in range(3)]
    store.close()
    samples = HOUR * TARGETS * SIGNALS
    return {
        "append_median_s": statistics.median(appends),
        "append_worst_s": max(appends),
        "append_parquet_median_s": statistics.median(parquets),
        "append_ratio_to_parquet": statistics.median(appends) / statistics.median(parquets),
        "read_hour_of_service_s": statistics.median(reads),
        "bytes_per_sample": sizes[0] / samples,
        "bytes_per_sample_parquet": sum(file.stat().st_size for file in plain.iterdir()) / (samples / PARQUET_EVERY),
        "journal_worst_bytes": max(journal),
        "compact_worst_s": max(compactions),
        "size_growth_ratio": sizes[-1] / sizes[0],
    }


def _read_s(store: DuckDBStore, end_s: float) -> float:
    begin = time.perf_counter()
    found = store.samples(end_s - 3600, end_s, service="service-1")
    took = time.perf_counter() - begin
    wanted = HOUR * TARGETS // SERVICES * SIGNALS
    if abs(found.height / wanted - 1) > 0.02:  # offsets of targets put some scrapes outside the hour
        raise SystemExit(f"read {found.height} rows and not about {wanted}: the store lost rows")
    return took


def main() -> int:
    """Measure, print, and with ``--check`` return 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one hour of scrapes and not six (about 20 s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when an aim is missed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), hours=1 if options.quick else 6)
    missed = [name for name, most in AIMS.items() if result[name] > most]
    if options.json:
        print(json.dumps({"measured": result, "aims": AIMS, "missed": missed}))
    else:
        for name, value in result.items():
            aim = f"  (aim: at most {AIMS[name]:g}{', MISSED' if name in missed else ''})" if name in AIMS else ""
            print(f"{name:28}{value:14,.3f}{aim}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
