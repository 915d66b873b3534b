"""Requests of recorded engines (a tiny model on two shared cores), cut into what is fitted and what is predicted.

Each file: phase, arrived_s, input_tokens, output_tokens, cached_tokens, ttft_s, tpot_s, e2e_s (as the client saw them),
status. Where a request timed out its input is not known (the phase's mean stands in) and its output is what it asked for.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Final

from planner.simulate.fit import Seen
from planner.simulate.setup import Scheduler
from planner.simulate.trace import Trace, trace

DATA: Final = Path(__file__).parents[1] / "data" / "simulate"
#: flags of the recorded starts
_VLLM: Final = Scheduler(max_num_seqs=16, max_num_batched_tokens=2048, kv_tokens=8192, block_tokens=32)
_SGLANG: Final = Scheduler(max_num_seqs=16, max_num_batched_tokens=2048, kv_tokens=8192, block_tokens=1, mixed=False)
PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recording: requests in order, their half (True: to be predicted), and when the second half began."""

    name: str
    rules: Scheduler
    rows: tuple[dict[str, str], ...]
    requests: Trace
    seen: Seen
    later: tuple[bool, ...]
    middle_s: float

    def known(self) -> tuple[Trace, Seen]:
        """Calm, prefix and the first half of the overload."""
        keep = [i for i, later in enumerate(self.later) if not later]
        return _cut(self, keep)


def recorded(name: str) -> Recorded:
    """One recording up to the end of its overload."""
    with (DATA / f"{name}.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["phase"] in ("calm", "prefix", "overload")]
    rows.sort(key=lambda row: float(row["arrived_s"]))
    over = [float(row["arrived_s"]) for row in rows if row["phase"] == "overload"]
    middle = (min(over) + max(over)) / 2
    usual = {p: round(mean(int(r["input_tokens"]) for r in rows if r["phase"] == p and r["input_tokens"])) for p in
             {r["phase"] for r in rows}}  # fmt: skip
    requests = trace(
        [float(r["arrived_s"]) for r in rows], [int(r["input_tokens"] or usual[r["phase"]]) for r in rows],
        [int(r["output_tokens"]) for r in rows], cached_tokens=[int(r["cached_tokens"] or 0) for r in rows],
        patience_s=PATIENCE_S,
    )  # fmt: skip
    ok = [r["status"] == "ok" for r in rows]
    seen = Seen(
        [float(r["ttft_s"]) if r["ttft_s"] else None for r in rows],
        [float(r["tpot_s"]) if good and r["tpot_s"] else None for r, good in zip(rows, ok, strict=True)],
    )
    later = tuple(r["phase"] == "overload" and float(r["arrived_s"]) >= middle for r in rows)
    rules = _SGLANG if name.startswith("sglang") else _VLLM
    return Recorded(name, rules, tuple(rows), requests, seen, later, middle)


def _cut(one: Recorded, keep: list[int]) -> tuple[Trace, Seen]:
    whole = one.requests
    requests = trace(
        [whole.arrived_s[i] for i in keep], [whole.input_tokens[i] for i in keep], [whole.output_tokens[i] for i in keep],
        cached_tokens=[whole.cached_tokens[i] for i in keep], patience_s=whole.patience_s,
    )  # fmt: skip
    return requests, Seen([one.seen.ttft_s[i] for i in keep], [one.seen.tpot_s[i] for i in keep])
