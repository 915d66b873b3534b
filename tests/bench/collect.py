"""What one scrape costs: parse, resolve, count; against prometheus_client's parser on the same page, in the same run.

    python -m tests.bench.collect [--quick] [--json] [--check]

``--check`` exits 1 when the whole of a scrape (parsing included) costs more than 0.8 of what prometheus_client's parser
alone costs on the same page.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from collector.families import Families
from collector.pipeline import TargetReader
from goodwatch.app.engines import known_engines
from goodwatch.app.recording import Recording
from goodwatch.core.counter import Tracker
from goodwatch.core.model import Target
from goodwatch.signals.increments import step_rows

DATA = Path(__file__).parent.parent / "truth" / "data"
AIM_RATIO = 0.8


def bodies(name: str, count: int) -> list[tuple[str, str | None]]:
    """The last ``count`` text pages of a recording."""
    found = [
        (s.body, s.content_type)
        for s in Recording.open(DATA / name).scrapes()
        if s.body and "openmetrics" not in s.accept
    ]
    return [(b, c) for b, c in found[-count:] if b]


def median_ms(work: Callable[[], object], rounds: int) -> float:
    """Median CPU milliseconds of ``work``."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1e3)
    return statistics.median(times)


def measure(name: str, count: int, rounds: int) -> dict[str, float | str]:
    """Milliseconds per page of every stage, warm."""
    pages, engines = bodies(name, count), known_engines()
    target = Target("bench", "http://bench/metrics", "bench")
    reader = TargetReader(target, engines)
    parsed = [reader.parser.parse(b, content_type=c) for b, c in pages]
    understood = [reader.understand(b, c) for b, c in pages]

    def whole() -> None:
        tracker = Tracker()
        for i, (body, content_type) in enumerate(pages):
            scrape = reader.scrape(reader.understand(body, content_type), float(i), 0.01, len(body))
            step_rows(tracker.advance(scrape), tracker, understood[i].engine)

    per_page = {
        "prometheus_client_ms": lambda: [list(text_string_to_metric_families(b)) for b, _ in pages],
        "parse_ms": lambda: [reader.parser.parse(b, content_type=c) for b, c in pages],
        "families_ms": lambda: [list(Families(p)) for p in parsed],
        "whole_scrape_ms": whole,
    }
    found: dict[str, float | str] = {"page": name, "samples": float(len(parsed[-1].samples))}
    for stage, work in per_page.items():
        found[stage] = round(median_ms(work, rounds) / len(pages), 3)
    found["ratio"] = round(float(found["whole_scrape_ms"]) / float(found["prometheus_client_ms"]), 3)
    return found


def main() -> int:
    """Run and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer pages and rounds: under 40 s")
    options.add_argument("--json", action="store_true", help="print JSON")
    options.add_argument("--check", action="store_true", help=f"exit 1 when a ratio is above {AIM_RATIO}")
    said = options.parse_args()
    count, rounds = (10, 5) if said.quick else (60, 15)
    rows = [measure(name, count, rounds) for name in ("vllm-0.32.0", "sglang-0.5.23", "vllm-0.8.5")]
    if said.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print("  ".join(f"{k} {v}" for k, v in row.items()))
    return 1 if said.check and any(float(r["ratio"]) > AIM_RATIO for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
