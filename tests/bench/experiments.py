"""How often two equal arms get a verdict, and how often a real change is seen, by design and by kind of noise.

    python -m tests.bench.experiments [--quick] [--json] [--check] [--seed N]

Simulates 1,000 A/A pairs (``--quick``: 130) of each design, kind of noise and number of repeats, and pairs with a real
change of 5 % and of 10 %. Every run has 150 latencies whose logarithms spread by 30 %, and a level of its own:

- ``independent``: levels spread by 2 %;
- ``correlated``: levels and latencies each remember 60 % of the one before;
- ``drifting``: levels follow load, which wanders (90 % remembered) and climbs or falls steadily besides;
- ``heavy``: latencies are Pareto (exponent 2.2: no finite third moment), levels spread by 2 %;
- ``stepping``: as independent, and machines differ by 5 % (what a canary has to take off).

A canary has pieces of time before the change as well, as many as after it. The check holds every false-verdict rate
to 5 %; with ``--quick`` to what 130 pairs can tell from it.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from planner.experiments.designs import judge
from planner.experiments.values import Arm, Experiment, Measured, Metric, Run

METRIC = Metric("e2e_s", "s", "lower", "mean", indifference=0.0)
VALUES, SPREAD, LEVEL = 150, 0.3, 0.02
NOISES = ("independent", "correlated", "drifting", "heavy", "stepping")
DESIGNS = {"before_after": (3, 6, 12), "interleaved": (3, 6, 12), "abba": (3, 6), "canary": (10, 20)}
MOST_FALSE = 0.05


def levels(noise: str, n: int, rng: random.Random) -> list[float]:
    """Logarithm of the level of each of ``n`` runs, one after the other."""
    if noise == "drifting":
        slope, load, found = rng.gauss(0, 0.005), rng.gauss(0, 0.02), []
        for place in range(n):
            load = 0.9 * load + rng.gauss(0, 0.02 * math.sqrt(1 - 0.81))
            found.append(load + slope * place + rng.gauss(0, 0.01))
        return found
    if noise == "correlated":
        level, found = rng.gauss(0, LEVEL), []
        for _ in range(n):
            level = 0.6 * level + rng.gauss(0, LEVEL * 0.8)
            found.append(level)
        return found
    return [rng.gauss(0, LEVEL) for _ in range(n)]


def latencies(noise: str, level: float, rng: random.Random) -> tuple[float, ...]:
    """Values of one run."""
    if noise == "heavy":
        return tuple(math.exp(level) * 0.1 * rng.paretovariate(2.2) for _ in range(VALUES))
    keep, found, rest = (0.6 if noise == "correlated" else 0.0), [], rng.gauss(0, SPREAD)
    for _ in range(VALUES):
        rest = keep * rest + rng.gauss(0, SPREAD * math.sqrt(1 - keep * keep))
        found.append(0.1 * math.exp(level + rest))
    return tuple(found)


def order(design: str, repeats: int) -> str:
    """Which arm runs when."""
    if design == "before_after":
        return "A" * repeats + "B" * repeats
    if design == "interleaved":
        return ("ABBA" * repeats)[: 2 * repeats]
    return "ABBA" * repeats


def experiment(design: str, noise: str, repeats: int, change: float, rng: random.Random) -> Experiment:
    """One simulated experiment whose candidate takes ``change`` more time."""
    runs: dict[str, list[Run]] = {"A": [], "B": []}

    def add(arm: str, position: int, block: int, level: float, *, reference: bool = False) -> None:
        shift = math.log1p(change) if arm == "B" and not reference else 0.0
        measured = {METRIC.name: Measured(latencies(noise, level + shift, rng))}
        runs[arm].append(Run(position, measured, block=block, reference=reference))

    if design == "canary":
        common = levels(noise, 2 * repeats, rng)
        apart = levels(noise, 2 * repeats, rng) if noise != "drifting" else levels("correlated", 2 * repeats, rng)
        machine = rng.gauss(0, 0.05) if noise == "stepping" else 0.0
        for piece in range(2 * repeats):
            before = piece < repeats
            add("A", 2 * piece, piece, common[piece], reference=before)
            add("B", 2 * piece + 1, piece, common[piece] + machine + apart[piece], reference=before)
    else:
        made = order(design, repeats)
        size = 4 if design == "abba" else 2
        for position, (arm, level) in enumerate(zip(made, levels(noise, len(made), rng), strict=True)):
            add(arm, position, position // size, level)
    arms = Arm("a", tuple(runs["A"])), Arm("b", tuple(runs["B"]))
    return Experiment("sim", "", design, *arms, (METRIC,))  # type: ignore[arg-type]


def rate(pairs: int, found: Callable[[], str], wanted: tuple[str, ...]) -> float:
    """Share of pairs with one of these outcomes."""
    return sum(found() in wanted for _ in range(pairs)) / pairs


def measured(pairs: int, seed: int = 8) -> list[dict[str, Any]]:
    """One row a design, kind of noise and number of repeats (pairs, quads or pieces)."""
    rows = []
    for design, sizes in DESIGNS.items():
        for noise in NOISES:
            if (noise == "stepping") is not (design == "canary") and noise in ("stepping", "independent"):
                continue
            for repeats in sizes:
                rng = random.Random(f"{seed} {design} {noise} {repeats}")

                def outcome(change: float, args: Any = (design, noise, repeats), rng: random.Random = rng) -> str:
                    return judge(experiment(*args, change, rng)).outcome

                row = {"design": design, "noise": noise, "repeats": repeats, "pairs": pairs}
                row["false"] = rate(pairs, lambda: outcome(0.0), ("better", "worse"))
                for change in (0.05, 0.10):
                    seen = rate(pairs // 2, lambda change=change: outcome(change), ("worse",))
                    row[f"power_{change:.0%}"] = seen
                rows.append(row)
    return rows


def main() -> None:
    """Print the table; with ``--check`` fail when equal arms got too many verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--seed", type=int, default=8)
    asked = parser.parse_args()
    pairs = 130 if asked.quick else 1000
    began = time.process_time()
    rows = measured(pairs, asked.seed)
    allowed = MOST_FALSE + (2 * math.sqrt(MOST_FALSE * (1 - MOST_FALSE) / pairs) if asked.quick else 0.0)
    bad = [row for row in rows if row["false"] > allowed]
    whole = sum(row["false"] for row in rows) / len(rows)
    if asked.json:
        print(json.dumps({"rows": rows, "false_verdict_ratio": whole, "cpu_s": time.process_time() - began}))
    else:
        for row in rows:
            print(
                "{design:13} {noise:12} {repeats:3}  false {false:6.1%}  5 %: {power_5%:4.0%}  10 %: {power_10%:4.0%}".format(
                    **row
                )
            )
        print(f"all: false {whole:.1%} of {len(rows) * pairs} pairs, {time.process_time() - began:.0f} s CPU")
    if asked.check and bad:
        sys.exit(f"{len(bad)} of {len(rows)} have more than {allowed:.1%} false verdicts: {bad}")


if __name__ == "__main__":
    main()
