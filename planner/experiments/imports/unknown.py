"""A JSON object of a tool that nobody knows: fields are mapped by what their names mean, the others are kept.

Names such as ``p99_TTFT_ms`` and ``throughput_rps`` say what they are; a unit is taken only from the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from planner.experiments.benchmark import Benchmark, Document, Importer, Pool, Statistic, number, present, rates, told

_LATENCIES: Final[tuple[tuple[str, str, Pool], ...]] = (
    ("ttft", "ttft_s", "request"),
    ("time_to_first_token", "ttft_s", "request"),
    ("per_token_latency", "latency_per_token_s", "request"),
    ("tpot", "tpot_s", "request"),
    ("itl", "itl_s", "gap"),
    ("inter_token_latency", "itl_s", "gap"),
    ("latency", "e2e_s", "request"),
    ("e2e", "e2e_s", "request"),
)
_FIGURES: Final = {"avg": "mean", "mean": "mean", "median": "p50", "min": "least", "max": "most", "std": "std"}
_KEY: Final = re.compile(r"(avg|mean|median|min|max|std|p\d+(?:\.\d+)?)_(.+?)_(ms|s|us)")
_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "us": 1e-6}
_DURATIONS: Final = ("benchmark_time", "duration", "benchmark_duration", "elapsed_s")
_RATES: Final = {
    "requests_per_s": ("throughput_rps", "request_throughput", "requests_per_sec"),
    "total_tokens_per_s": ("tokens_per_sec", "total_token_throughput"),
    "output_tokens_per_s": ("output_tokens_per_sec", "output_throughput"),
}
_OUTPUTS: Final = ("total_output_token", "total_output_tokens")


def _recognises(file: Document) -> bool:
    return file.form != "table" and any(_parsed(key) for key in file.mapping)


def _read(file: Document) -> tuple[Benchmark, ...]:
    return tuple(_benchmark(file.name, run) for run in file.objects)


def _benchmark(name: str, run: Mapping[str, Any]) -> Benchmark:
    duration = _first(run, _DURATIONS)
    per_s = _first(run, _RATES["requests_per_s"])
    ok = _first(run, ("completed", "num_requests", "successful_requests"))
    findings = ["the tool is unknown: fields are mapped by their names, the others are kept as they are"]
    if ok is None and duration and per_s:
        ok = float(round(duration * per_s))
        findings.append(f"{ok:g} requests: rate times duration")
    grouped: dict[tuple[str, Pool], dict[str, object]] = {}
    for key, value in run.items():
        parsed = _parsed(key)
        if parsed is not None and (found := number(value)) is not None:
            ours, pool, figure, scale = parsed
            grouped.setdefault((ours, pool), {})[figure] = found * scale
    statistics = [_statistic(ours, pool, figures, ok) for (ours, pool), figures in grouped.items()]
    if any(ours == "latency_per_token_s" for ours, _ in grouped):
        findings.append("per-token latency is latency over tokens: it includes the first token and is no TPOT")
    output = _first(run, _OUTPUTS)
    tokens_per_s = output / duration if output is not None and duration else _first(run, _RATES["output_tokens_per_s"])
    used = {*_DURATIONS, *_OUTPUTS, *(key for keys in _RATES.values() for key in keys)}
    return Benchmark(
        "unknown", name, duration_s=duration, ok=ok, statistics=present(*statistics),
        rates=rates(
            requests_per_s=per_s, output_tokens_per_s=tokens_per_s,
            total_tokens_per_s=_first(run, _RATES["total_tokens_per_s"]),
        ),
        unmapped={key: value for key, value in run.items() if key not in used and _parsed(key) is None},
        findings=tuple(findings),
    )  # fmt: skip


def _statistic(ours: str, pool: Pool, figures: Mapping[str, object], ok: float | None) -> Statistic | None:
    return told(ours, pool, ok if pool == "request" else None, figures)


def _parsed(key: str) -> tuple[str, Pool, str, float] | None:
    """Our name, pool, figure and seconds of the unit; None when the name does not say all of it."""
    match = _KEY.fullmatch(key.lower())
    if match is None:
        return None
    figure, middle, unit = match.groups()
    for theirs, ours, pool in _LATENCIES:
        if middle in (theirs, f"{theirs}_latency"):
            return ours, pool, _FIGURES.get(figure, figure), _SECONDS[unit]
    return None


def _first(run: Mapping[str, Any], keys: tuple[str, ...]) -> float | None:
    return next((found for key in keys if (found := number(run.get(key))) is not None), None)


IMPORTER: Final = Importer(
    "unknown", "an unknown tool's JSON with fields such as p99_ttft_ms", _recognises, _read, last=True
)
