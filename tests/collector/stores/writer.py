"""A process that appends numbered scrapes to a store forever and prints each number once it is committed."""

import itertools
import math
import sys
from pathlib import Path

from collector.stores.duckdb import DuckDBStore, Retention
from goodwatch.core.model import Histogram, Sample, Scrape

SAMPLES = 200
LE = (*(0.001 * 2**k for k in range(24)), math.inf)


def numbered(number: int, samples: int = SAMPLES) -> Scrape:
    """A scrape at the time ``number`` with that many histograms, each different."""
    ts = float(number)
    made = tuple(
        Sample(
            ts, "a", "chat", "llama", "vllm", "0.11.0", "", f"signal_{k}",
            histogram=Histogram(LE, tuple(ts * k + j**1.5 for j in range(len(LE))), ts),
        )
        for k in range(samples)
    )  # fmt: skip
    return Scrape(ts, "a", "chat", up=True, duration_s=0.1, samples=made)


def main() -> None:
    store = DuckDBStore(Path(sys.argv[1]), retention=Retention(samples_s=1e12))
    for number in itertools.count(int(sys.argv[2])):
        store.append([numbered(number)])
        print(number, flush=True)
        if number % 10 == 9:
            store.compact(float(number))


if __name__ == "__main__":
    main()
