"""How fast the P99 map over input × output length is, from rollups and from single requests, and what rollups cost.

    python -m tests.bench.heatmap [--requests N] [--quick] [--json] [--check] [--chdb PYTHON]

Makes N requests (10 million; ``--quick``: 1 million) over 30 days, of 3 services and 8 tenants, with lognormal lengths
and latencies; keeps them in a request store, raw and rolled up; and makes the same map by DuckDB's ``quantile_disc``
over the same file and by chDB's ``quantileExact`` over the same columns as Parquet, in the same run. chDB is asked in a
Python of its own: ``--chdb`` names one that has it; without it, and not with ``--quick``, one is made with pip.

Every map is checked: from requests it must equal DuckDB's, from rollups be within 1.1 % of it. Times are seconds of CPU
(the machine may be shared) and of the wall. 100 million requests need 12 GB of disk and 8 GB of memory for the raw map.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from collector.stores import _request_schema
from collector.stores._request_file import _Stream
from collector.stores.duckdb_requests import DuckDBRequestStore
from goodwatch.app.request_watch import RequestLoop
from goodwatch.core.exponential import enough
from goodwatch.signals.heatmap import Ask, Heatmap, Measure, heatmap, heatmap_of_facts
from goodwatch.signals.request_frames import FACTS, PARTS
from goodwatch.signals.rollup import coarser, roll_up

DAY_S, DAYS, HOUR_S = 86400, 30, 3600
FIELD, Q = "engine_ttft_s", 0.99
ASK = Ask(Measure.LATENCY, Q, FIELD)
COLUMNS = ["input_tokens", "output_tokens", FIELD]
MONTH = (0.0, float(DAYS * DAY_S))
CHUNK = 500_000  # requests made at a time
GROUP, BATCH, GROUPS = 8, 512, 60  # parts: batches of a commit, rows of a batch, commits

#: name: highest value that is good enough, in seconds of the wall or as a ratio of CPU seconds
AIMS = {
    "rolled_hours_wall_s": 0.2,
    "rolled_wall_s": 0.2,
    "raw_ratio_to_duckdb": 1.2,
    "append_ratio_to_bare_insert": 1.6,
}

#: two normal deviates need four uniform ones (Box-Muller)
REQUESTS = """
    select ended_at, service, tenant, input_tokens, output_tokens, ttft as engine_ttft_s, tpot as engine_tpot_s,
        ttft + tpot * (output_tokens - 1) as engine_e2e_s, ['llama-8b', 'qwen-32b', 'llama-70b'][nth] as model,
        lower(printf('%016x', (random() * 9e18)::bigint)) as fact_id, replace(uuid()::varchar, '-', '') as trace_id
    from (
        select ended_at, nth, ['chat', 'code', 'agent'][nth] as service, tenant,
            greatest(1, floor(exp(6.2 + 0.4 * nth + 1.1 * a)))::bigint as input_tokens,
            greatest(1, floor(exp(5.0 + 0.9 * b)))::bigint as output_tokens,
            exp(-1.8 + 0.3 * nth + 0.55 * c) + 0.00005 * exp(6.2 + 1.1 * a) as ttft,
            exp(-3.6 + 0.2 * nth + 0.25 * d) as tpot
        from (
            select $start + random() * $length as ended_at, 1 + floor(3 * random() * random())::int as nth,
                'team-' || floor(8 * random() * random())::int as tenant,
                sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) as a,
                sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) as b,
                sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) as c,
                sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) as d
            from range($count)))"""

PLACE = " + ".join(f"({{0}} >= {edge})::int" for edge in ASK.input_edges[1:])
BY_DUCKDB = f"""
    select {PLACE.format("input_tokens")} as i, {PLACE.format("output_tokens")} as o,
        quantile_disc({FIELD}, {Q}) as value, count(*) as requests
    from facts where ended_at >= {MONTH[0]} and ended_at < {MONTH[1]} group by all"""

BY_CHDB = """
import json, resource, sys, time
import chdb
place = lambda name: " + ".join(f"({name} >= {edge})" for edge in json.loads(sys.argv[2]))
query = f"select {place('input_tokens')} as i, {place('output_tokens')} as o, "
query += f"quantileExact(0.99)(engine_ttft_s), count() from file('{sys.argv[1]}', Parquet) group by i, o"
chdb.query("select 1")
cpu, wall = time.process_time(), time.perf_counter()
chdb.query(query + " settings max_threads = 2")
print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall]))
"""


class MonthEnd:
    """A clock that stands at the end of the month."""

    def now_s(self) -> float:
        """Unix seconds."""
        return MONTH[1]

    def monotonic_s(self) -> float:
        """Seconds."""
        return MONTH[1]


def timed(work: Callable[[], Any], rounds: int = 3) -> tuple[Any, float, float]:
    """The result, and the least seconds of CPU and of the wall."""
    cpu, wall, result = [], [], None
    for _ in range(rounds):
        began = time.process_time(), time.perf_counter()
        result = work()
        cpu.append(time.process_time() - began[0])
        wall.append(time.perf_counter() - began[1])
    return result, min(cpu), min(wall)


def fill(store: DuckDBRequestStore, count: int) -> dict[str, float]:
    """Make requests a day at a time; keep them as facts, and as rollups of hours and days."""
    source = duckdb.connect()
    per_day = count // DAYS
    rolled_s = kept_s = 0.0
    for day in range(DAYS):
        start = float(day * DAY_S)
        hours: list[tuple[pl.DataFrame, pl.DataFrame]] = []
        steps = max(1, min(24, -(-per_day // CHUNK)))
        for step in range(steps):  # whole hours each
            first, last = 24 * step // steps, 24 * (step + 1) // steps
            wanted = {"start": start + first * HOUR_S, "length": (last - first) * HOUR_S}
            made = pl.DataFrame(source.sql(REQUESTS, params={**wanted, "count": per_day * (last - first) // 24}))
            facts = as_facts(made)
            with store._transaction("fill") as file:
                file.insert("facts", facts.select(*FACTS), file.next_seq())
            began = time.process_time()
            hours.append(hourly(facts))
            rolled_s += time.process_time() - began
        rollups, bins = (pl.concat(frames) for frames in zip(*hours, strict=True))
        began = time.process_time()
        store.replace_rollups(HOUR_S, [start + hour * HOUR_S for hour in range(24)], rollups, bins)
        store.replace_rollups(DAY_S, [start], *coarser(rollups, bins, DAY_S))
        kept_s += time.process_time() - began
    return {"roll_up_cpu_s_per_million": rolled_s / count * 1e6, "keep_rollups_cpu_s": kept_s}


def as_facts(made: pl.DataFrame) -> pl.DataFrame:
    """Judged facts from what the query made."""
    told = made.with_columns(
        span_id=pl.col("fact_id"),
        arrived_at=pl.col("ended_at") - pl.col("engine_e2e_s"),
        weight=pl.lit(1.0),
        status=pl.lit("ok"),
        verdict=pl.when(pl.col(FIELD) < 0.6).then(pl.lit("good")).otherwise(pl.lit("bad")),
        slo=pl.lit("chat"),
    )
    missing = {name: pl.lit(None, dtype) for name, dtype in FACTS.items() if name not in told.columns}
    return told.with_columns(**missing)


def hourly(facts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rollups per hour, at once: every fact counts to the first minute of its hour."""
    floored = facts.with_columns(ended_at=(pl.col("ended_at") // HOUR_S) * HOUR_S)
    return coarser(*roll_up(floored), HOUR_S)


def from_rollups(store: DuckDBRequestStore, periods: Any) -> Heatmap:
    return heatmap(store.summed_rollups(periods), store.summed_bins(periods, FIELD), ASK)


def as_pages_do(store: DuckDBRequestStore) -> list[tuple[int, float, float]]:
    """The periods that the service reads for the month."""
    return RequestLoop(store, MonthEnd()).tiers(*MONTH)


def differences(found: Heatmap, true: dict[tuple[int, int], tuple[float, int]]) -> float:
    """The largest relative difference of a cell; the run ends when a cell is missing or counts otherwise."""
    worst = 0.0
    for cell in found.cells:
        value, requests = true.get((cell.input, cell.output), (0.0, 0))
        told = cell.number.value
        if cell.requests != requests or (told is None) == enough(requests, Q):
            raise SystemExit(f"cell {cell.input}, {cell.output}: {cell.requests} requests and not {requests}")
        if told is not None:
            worst = max(worst, abs(told / value - 1))
    return worst


def measure_maps(folder: Path, count: int, chdb: str | None) -> dict[str, float]:
    """Fill a store and make the map in every way."""
    store = DuckDBRequestStore(folder / "requests.db")
    found = fill(store, count)
    store._file().connection.execute("checkpoint")
    cursor = store._file().connection.cursor()
    rows, duckdb_cpu, duckdb_wall = timed(lambda: cursor.execute(BY_DUCKDB).fetchall())
    true = {(i, o): (value, requests) for i, o, value, requests in rows}
    raw, raw_cpu, raw_wall = timed(lambda: heatmap_of_facts(store.facts(*MONTH, columns=COLUMNS), ASK))
    hours, hours_cpu, hours_wall = timed(lambda: from_rollups(store, [(HOUR_S, *MONTH)]))
    rolled, rolled_cpu, rolled_wall = timed(lambda: from_rollups(store, as_pages_do(store)))
    found |= {
        "requests": float(count), "hour_rows": float(store.rollups(HOUR_S, *MONTH).height),
        "duckdb_cpu_s": duckdb_cpu, "duckdb_wall_s": duckdb_wall,
        "raw_cpu_s": raw_cpu, "raw_wall_s": raw_wall, "raw_ratio_to_duckdb": raw_cpu / duckdb_cpu,
        "rolled_hours_cpu_s": hours_cpu, "rolled_hours_wall_s": hours_wall,
        "rolled_cpu_s": rolled_cpu, "rolled_wall_s": rolled_wall,
        "raw_difference": differences(raw, true),
        "rolled_difference": max(differences(hours, true), differences(rolled, true)),
        "store_bytes": float(store.health().bytes),
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
    }  # fmt: skip
    if chdb is not None:
        found |= by_chdb(cursor, folder, chdb)
    store.close()
    return found


def by_chdb(cursor: duckdb.DuckDBPyConnection, folder: Path, python: str) -> dict[str, float]:
    """The same map by chDB."""
    path = folder / "requests.parquet"
    cursor.execute(f"copy (select {', '.join(COLUMNS)} from facts) to '{path}' (format parquet)")
    command = [python, "-c", BY_CHDB, str(path), json.dumps(ASK.input_edges[1:])]
    tries = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
    return {"chdb_cpu_s": min(cpu for cpu, _ in tries), "chdb_wall_s": min(wall for _, wall in tries)}


def chdb_python(folder: Path) -> str | None:
    """A Python of its own with chDB; None when there is no way to get it."""
    venv.create(folder / "chdb", with_pip=True)
    python = str(folder / "chdb" / "bin" / "python")
    done = subprocess.run([python, "-m", "pip", "install", "-q", "chdb"], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        print(
            f"chDB cannot be installed here and is left out: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr
        )
        return None
    return python


def measure_parts(folder: Path) -> dict[str, float]:
    """CPU seconds to commit 150,000 parts in groups of batches, the writing back of the journal included.

    Beside it the same for an insert of the same frames into the same table by DuckDB alone.
    """
    store = DuckDBRequestStore(folder / "parts.db")
    bare = _request_schema.DATABASE.connect(folder / "bare.db")
    ours = theirs = 0.0
    for number in range(GROUPS):
        batches = [parts(number * GROUP + nth) for nth in range(GROUP)]
        began = time.process_time()
        store.append_parts(batches)
        ours += time.process_time() - began
        began = time.process_time()
        bare.register("arriving", _Stream(pl.concat(batches)))
        bare.execute(f"insert into parts select {number} as seq, * from arriving")
        theirs += time.process_time() - began
    began = time.process_time()
    store._file().connection.execute("checkpoint")
    ours += time.process_time() - began
    began = time.process_time()
    bare.execute("checkpoint")
    theirs += time.process_time() - began
    rows = GROUPS * GROUP * BATCH
    size = store.health().bytes
    store.close()
    bare.close()
    return {
        "append_cpu_s_per_150k_parts": ours / rows * 150_000,
        "append_ratio_to_bare_insert": ours / theirs,
        "bytes_per_part": size / rows,
    }


def parts(number: int) -> pl.DataFrame:
    """A batch of 512 parts as an engine sends them: ids of their own, labels that repeat."""
    random = pl.int_range(number * BATCH, (number + 1) * BATCH, eager=True).hash(7)
    hexes = [f"{one:016x}" for one in random]
    share = random % 10_000 / 10_000
    labels = {
        "kind": "engine_request", "source": "vllm", "vantage": "engine", "name": "llm_request", "origin": "vllm-chat",
        "instance": "pod-1", "service": "chat", "target": "http://vllm-0:8000", "model": "llama-8b", "status": "unset",
        "finish_reason": "stop",
    }  # fmt: skip
    told: dict[str, Any] = {
        **dict.fromkeys(("started_s", "ended_s", "ttft_s", "e2e_s", "queue_s", "prefill_s", "decode_s"), share),
        **dict.fromkeys(("input_tokens", "output_tokens", "max_tokens"), random % 4096),
        "received_s": [1e9 + number] * BATCH, "trace_id": [one + one for one in hexes], "span_id": hexes,
        "parent_id": [one[::-1] for one in hexes], "request_id": [f"cmpl-{one}-0" for one in hexes],
        "tenant": [f"team-{one % 20}" for one in random],
    }  # fmt: skip
    columns = {name: told.get(name, [labels.get(name)] * BATCH) for name in PARTS}
    return pl.DataFrame({name: pl.Series(columns[name]).cast(dtype) for name, dtype in PARTS.items()})


def main() -> int:
    """Measure, print, and with ``--check`` return 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, help="how many, 10 million unless told")
    parser.add_argument("--quick", action="store_true", help="1 million requests and no new Python for chDB")
    parser.add_argument("--chdb", help="a Python that has chDB")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when an aim is missed")
    options = parser.parse_args()
    count = options.requests or (1_000_000 if options.quick else 10_000_000)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        chdb = options.chdb or (None if options.quick else chdb_python(folder))
        result = measure_parts(folder) | measure_maps(folder, count, chdb)
    missed = [name for name, most in AIMS.items() if result[name] > most]
    if options.json:
        print(json.dumps({"measured": result, "aims": AIMS, "missed": missed}))
    else:
        for name, value in result.items():
            aim = f"  (aim: at most {AIMS[name]:g}{', MISSED' if name in missed else ''})" if name in AIMS else ""
            print(f"{name:28}{value:18,.4f}{aim}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
