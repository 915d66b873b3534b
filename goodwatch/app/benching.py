"""Driving load tests: a plan in, measured levels out, from several client processes; kept as an experiment.

Two drivers: goodwatch's own client (needs nothing more), and AIPerf where it is installed. Each level runs
``repeats`` times in one order and then in the other, so that a drift of the server does not look like load.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from goodwatch.app.bench_client import Job
from goodwatch.core.errors import ConfigError, TransientError
from planner.experiments.benchmark import number
from planner.experiments.importing import METRICS
from planner.experiments.statistics import shown
from planner.experiments.sweep import Client, Knee, Level, Plan, Sent, client_limits, knee, requests_at, shares
from planner.experiments.values import Arm, Experiment, Factor, FixedInput, Measured, Metric, Run

#: on top of what a level's requests may take themselves
_GRACE_S: Final = 60.0
_WARM_UP: Final = 8
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_LATENCIES: Final = ("ttft_s", "tpot_s", "e2e_s")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What is tested: base URL without ``/v1``, model name, and the environment variable that holds the key."""

    url: str
    model: str
    key_variable: str = ""
    timeout_s: float = 120.0


class LoadDriver(Protocol):
    """Something that puts load on an endpoint."""

    @property
    def name(self) -> str:
        """Its name in the ledger."""
        ...

    async def run(self, endpoint: Endpoint, plan: Plan, level: float, repeat: int, requests: int) -> Level:
        """One repeat at one level. Raises ``TransientError`` when the tool failed; single requests may fail."""
        ...


class OwnClient:
    """goodwatch's own client, in ``plan.processes`` processes."""

    name = "goodwatch"

    async def run(self, endpoint: Endpoint, plan: Plan, level: float, repeat: int, requests: int) -> Level:
        """One repeat at one level."""
        counts = shares(
            requests, min(plan.processes, max(1, int(level))) if plan.arrival == "closed" else plan.processes
        )
        loads = shares(round(level), len(counts)) if plan.arrival == "closed" else [level / len(counts)] * len(counts)
        jobs = [
            Job(endpoint.url, endpoint.model, load, count, plan.arrival, plan.input_tokens, plan.output_tokens,
                seed=hash((plan.seed, level, repeat, place)) % 2**31, timeout_s=endpoint.timeout_s,
                key_variable=endpoint.key_variable)
            for place, (load, count) in enumerate(zip(loads, counts, strict=True))
        ]  # fmt: skip
        told = await asyncio.gather(*(_client(job) for job in jobs))
        sent = tuple(Sent(**one) for result in told for one in result["requests"])
        clients = tuple(Client(**result["client"]) for result in told)
        return Level(level, repeat, sent, clients)


async def _client(job: Job) -> dict[str, Any]:
    command = (sys.executable, "-m", "goodwatch.app.bench_client")
    out = await _ran(command, json.dumps(asdict(job)), _longest_s(job.arrival, job.level, job.requests, job.timeout_s))
    result: dict[str, Any] = json.loads(out)
    return result


def _longest_s(arrival: str, load: float, requests: int, timeout_s: float) -> float:
    """What one process may take when every request takes its whole time."""
    if arrival == "closed":
        return (math.ceil(requests / max(1.0, load)) + 1) * timeout_s + _GRACE_S
    return requests / load * 2 + timeout_s + _GRACE_S


async def _ran(command: Sequence[str], text: str, timeout_s: float, cwd: Path | None = None) -> str:
    """Standard output of a command. Raises ``TransientError`` when it fails or takes too long; it is ended then."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, start_new_session=True
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(text.encode()), timeout_s)
    except TimeoutError:
        raise TransientError(f"{command[0]}: no end within {timeout_s:.0f} s; is the endpoint stuck?") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own: its workers go with it
            await process.wait()
    if process.returncode:
        last = err.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise TransientError(f"{' '.join(command[:3])}: exit code {process.returncode}: {last[0][:500]}")
    return out.decode()


@dataclass(frozen=True, slots=True)
class AIPerf:
    """NVIDIA's AIPerf, as ``plan.processes`` processes; ``extra`` is handed through (``--tokenizer …``)."""

    extra: tuple[str, ...] = ()
    name: str = "aiperf"

    async def run(self, endpoint: Endpoint, plan: Plan, level: float, repeat: int, requests: int) -> Level:
        """One repeat at one level; requests are read from each process's records, so that nothing is averaged."""
        if shutil.which("aiperf") is None:
            raise ConfigError("aiperf is not installed; `pip install aiperf`, or leave --driver out")
        processes = min(plan.processes, max(1, int(level))) if plan.arrival == "closed" else plan.processes
        counts = shares(requests, processes)
        loads = shares(round(level), len(counts)) if plan.arrival == "closed" else [level / len(counts)] * len(counts)
        timeout_s = _longest_s(plan.arrival, min(loads), max(counts), endpoint.timeout_s)
        with tempfile.TemporaryDirectory(prefix="goodwatch-aiperf-") as folder:
            places = [Path(folder) / str(place) for place in range(len(counts))]
            commands = [
                aiperf_command(endpoint, plan, load, count, seed=plan.seed + 1000 * repeat + place, out=out)
                + self.extra
                for place, (load, count, out) in enumerate(zip(loads, counts, places, strict=True))
            ]
            await asyncio.gather(*(_ran(command, "", timeout_s, Path(folder)) for command in commands))
            sent = [one for out in places for one in await asyncio.to_thread(_records_of, out)]
        return Level(level, repeat, tuple(sent), tuple(Client(None, None) for _ in counts))


def aiperf_command(
    endpoint: Endpoint, plan: Plan, load: float, requests: int, *, seed: int, out: Path
) -> tuple[str, ...]:
    """The command line of one AIPerf process. A key is taken from its environment variable."""
    arrival = ("--concurrency", f"{load:g}")
    if plan.arrival != "closed":
        arrival = ("--request-rate", f"{load:g}", "--arrival-pattern", plan.arrival)  # type: ignore[assignment]
    key = os.environ.get(endpoint.key_variable, "") if endpoint.key_variable else ""
    return (
        "aiperf", "profile", "--model", endpoint.model, "--url", endpoint.url, "--endpoint-type", "chat", "--streaming",
        *arrival, "--request-count", str(requests), "--synthetic-input-tokens-mean", str(plan.input_tokens),
        "--output-tokens-mean", str(plan.output_tokens), "--extra-inputs", "ignore_eos:true",
        "--use-server-token-count", "--random-seed", str(seed), "--output-artifact-dir", str(out), "--ui", "none",
        *(("--api-key", key) if key else ()),
    )  # fmt: skip


def _records_of(out: Path) -> list[Sent]:
    path = next(iter(sorted(out.rglob("profile_export.jsonl"))), None)
    if path is None:
        raise TransientError(f"{out}: aiperf wrote no profile_export.jsonl; run it once by hand with --streaming")
    return aiperf_records(path.read_text(encoding="utf-8"))


def aiperf_records(text: str) -> list[Sent]:
    """Requests of AIPerf's ``profile_export.jsonl``; those of the warm-up are left out."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        record = json.loads(line)
        about, metrics = record.get("metadata") or {}, record.get("metrics") or {}
        if about.get("benchmark_phase", "profiling") != "profiling":
            continue
        begin, end = number(about.get("request_start_ns")), number(about.get("request_end_ns"))
        if begin is None or end is None:
            continue
        failed = record.get("error") or ("cancelled" if about.get("was_cancelled") else "")
        error = "" if not failed else str(failed.get("type", "error")) if isinstance(failed, Mapping) else str(failed)
        tokens = _value(metrics, "output_sequence_length", {"tokens": 1.0})
        e2e = _value(metrics, "request_latency", _SECONDS)
        found.append(
            Sent(begin * 1e-9, 0.0, (end - begin) * 1e-9 if e2e is None else e2e,
                 _value(metrics, "time_to_first_token", _SECONDS), None if tokens is None else int(tokens), 0, error)
        )  # fmt: skip
    return found


def _value(metrics: Mapping[str, Any], name: str, units: Mapping[str, float]) -> float | None:
    metric = metrics.get(name)
    if not isinstance(metric, Mapping):
        return None
    value, scale = number(metric.get("value")), units.get(str(metric.get("unit", "")))
    return None if value is None or scale is None else value * scale


async def sweep(
    driver: LoadDriver, endpoint: Endpoint, plan: Plan, say: Callable[[str], None] = lambda _: None
) -> tuple[Level, ...]:
    """Every level, ``plan.repeats`` times; a cold one first, kept and not counted. ``say`` is told how far it is."""
    found = []
    first = await driver.run(endpoint, plan, plan.levels[0], -1, max(_WARM_UP, math.ceil(plan.levels[0])))
    if not first.ok:
        why = first.requests[0].error if first.requests else "no request was sent"
        raise TransientError(f"{endpoint.url}: not one request of the warm-up was answered: {why}")
    found.append(Level(first.level, -1, first.requests, first.clients, cold=True))
    for repeat in range(plan.repeats):
        for level in plan.levels if repeat % 2 == 0 else tuple(reversed(plan.levels)):
            one = await driver.run(endpoint, plan, level, repeat, requests_at(plan, level))
            found.append(one)
            tokens = one.output_tokens_per_s
            rate = "tokens not counted by the server" if tokens is None else f"{tokens:.0f} output tokens/s"
            say(
                f"level {level:g}, repeat {repeat + 1} of {plan.repeats}: {len(one.ok)} of {len(one.requests)} ok, {rate}"
            )
    return tuple(found)


def experiment_of(
    id: str,
    endpoint: Endpoint,
    plan: Plan,
    measured: Sequence[Level],
    *,
    driver: str,
    at_s: float,
    gpus: float | None = None,
) -> tuple[Experiment, Knee]:
    """A sweep as an entry of the ledger, its knee and what speaks against its numbers among the notes."""  # fmt: skip
    found = knee(measured)
    limits = client_limits(measured)
    # the same plan sends the same words in the same order: its hash names the input
    sha = hashlib.sha256(json.dumps(asdict(plan), sort_keys=True).encode()).hexdigest()
    metrics = tuple(m for m in METRICS if m.name in ("output_tokens_per_s", "requests_per_s", *_LATENCIES))
    runs = tuple(_run(place, one, gpus) for place, one in enumerate(measured))
    entry = Experiment(
        id, "Where does more load begin to cost latency?", "sweep", Arm("sweep", runs), Arm("none"), metrics,
        Factor("load", f"{plan.levels[0]:g}", f"{plan.levels[-1]:g}"), "done", at_s, model=endpoint.model,
        inputs=(FixedInput(f"{plan.arrival} arrivals, {plan.input_tokens} in, {plan.output_tokens} out", sha, driver),),
        boundary="client: request sent to last token", notes=(found.text, *limits, *_failures(measured)),
    )  # fmt: skip
    return entry, found


def _run(place: int, one: Level, gpus: float | None) -> Run:
    measures = {s.name: Measured(s.values) for s in one.statistics() if s.name in _LATENCIES}
    whole = one.duration_s
    if whole:
        measures["requests_per_s"] = Measured((len(one.ok) / whole,))
    if one.output_tokens_per_s is not None:
        measures["output_tokens_per_s"] = Measured((one.output_tokens_per_s,))
    begin = min((request.started_s for request in one.requests), default=None)
    excluded = "" if one.ok else "no request was answered"
    return Run(place, measures, None, not one.cold, excluded=excluded, started_s=begin, duration_s=whole, gpus=gpus,
               level=one.level)  # fmt: skip


def _failures(measured: Sequence[Level]) -> list[str]:
    """Failed requests by level and reason, repeats added up."""
    found: Counter[tuple[float, str]] = Counter()
    whole: Counter[float] = Counter()
    for one in measured:
        if not one.cold:
            whole[one.level] += len(one.requests)
            found.update((one.level, request.error) for request in one.requests if request.error)
    return [
        f"level {level:g}: {n} of {whole[level]} requests failed ({why})" for (level, why), n in sorted(found.items())
    ]


def level_rows(measured: Sequence[Level]) -> list[dict[str, object]]:
    """One row a warm repeat: level, requests at once, rates, and latencies as minimum, median and maximum."""
    rows: list[dict[str, object]] = []
    for one in measured:
        if one.cold:
            continue
        row: dict[str, object] = {"level": one.level, "repeat": one.repeat, "running": one.running, "ok": len(one.ok),
                                  "failed": len(one.requests) - len(one.ok), "output_tokens_per_s": one.output_tokens_per_s}  # fmt: skip
        for statistic in one.statistics():
            seen = shown(statistic.values)
            if seen is not None and statistic.name in _LATENCIES:
                row[statistic.name] = {"n": seen.n, "min": seen.least, "median": seen.median, "max": seen.most,
                                       **{f"p{q * 100:g}": value for q, value in seen.quantiles}}  # fmt: skip
        rows.append(row)
    return rows


def metric_named(name: str) -> Metric:
    """A metric of benchmarks by name. Raises ``ConfigError`` with the known ones."""
    found = next((metric for metric in METRICS if metric.name == name), None)
    if found is None:
        raise ConfigError(f"--metric {name}: unknown; known are {', '.join(m.name for m in METRICS)}")
    return found
