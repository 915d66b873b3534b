"""AIPerf and GenAI-Perf: one object a metric with its unit (JSON), or the table that they print (CSV)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from planner.experiments.benchmark import (
    Benchmark,
    Document,
    Importer,
    Pool,
    Statistic,
    number,
    present,
    rates,
    text,
    told,
)

#: their tag → our name and how it is pooled. ``inter_token_latency`` is a mean of each request: our TPOT
_LATENCIES: Final[Mapping[str, tuple[str, Pool]]] = {
    "time_to_first_token": ("ttft_s", "request"),
    "time_to_first_output_token": ("ttfot_s", "request"),
    "time_to_second_token": ("second_token_s", "request"),
    "inter_token_latency": ("tpot_s", "request"),
    "inter_chunk_latency": ("itl_s", "gap"),
    "request_latency": ("e2e_s", "request"),
}
_LENGTHS: Final = {"input_sequence_length": "input_tokens", "output_sequence_length": "output_tokens"}
_RATES: Final = {
    "requests_per_s": "request_throughput",
    "output_tokens_per_s": "output_token_throughput",
    "total_tokens_per_s": "total_token_throughput",
    "good_requests_per_s": "goodput",
}
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_FIGURES: Final = {"avg": "mean", "std": "std", "min": "least", "max": "most"}
_COUNTS: Final = ("request_count", "error_request_count", "completed_request_count", "benchmark_duration")
_TITLE: Final = re.compile(r"(.+?)\s*\(([^)]+)\)\s*")


def _recognises(file: Document) -> bool:
    if file.form == "table":
        return any(_tag(str(row.get(_first(row), "")))[0] in _LATENCIES for row in file.content) and (
            "avg" in file.content[0]
        )
    return any(isinstance(file.mapping.get(tag), Mapping) and "unit" in file.mapping[tag] for tag in _LATENCIES)


def _read(file: Document) -> tuple[Benchmark, ...]:
    if file.form == "table":
        metrics = {}
        for row in file.content:
            tag, unit = _tag(str(row.get(_first(row), "")))
            metrics[tag] = {**{key: value for key, value in row.items() if key != _first(row)}, "unit": unit}
        return (_benchmark(file.name, metrics),)
    return tuple(_benchmark(file.name, one) for one in file.objects)


def _benchmark(name: str, metrics: Mapping[str, Any]) -> Benchmark:
    config = metrics.get("input_config")
    config = config if isinstance(config, Mapping) else {}
    ok, failed = _avg(metrics, "request_count"), _avg(metrics, "error_request_count")
    whole = _avg(metrics, "completed_request_count")
    if failed is None and whole is not None and ok is not None:
        failed = whole - ok
    found = [_latency(tag, metrics.get(tag), ok) for tag in _LATENCIES]
    found += [_length(tag, metrics.get(tag), ok) for tag in _LENGTHS]
    findings = []
    if metrics.get("time_to_first_token") is None:
        findings.append("no TTFT: the test ran without --streaming, so only whole requests were timed")
    if isinstance(metrics.get("inter_token_latency"), Mapping):
        findings.append("inter_token_latency is a mean of each request: it compares with TPOT, not with gaps")
    asked = _asked(config)
    used = {*_LATENCIES, *_LENGTHS, *_RATES.values(), *_COUNTS, "input_config"}
    return Benchmark(
        "aiperf", name, model=_model(config), concurrency=asked.get("concurrency"), request_rate=asked.get("rate"),
        started_s=_instant(metrics.get("start_time")), duration_s=_duration(metrics.get("benchmark_duration")), ok=ok,
        failed=failed, statistics=present(*found),
        rates=rates(**{ours: _avg(metrics, theirs) for ours, theirs in _RATES.items()}),
        facts=rates(output_tokens_asked=config.get("output_tokens_mean")),
        unmapped={key: value for key, value in metrics.items() if key not in used}, findings=tuple(findings),
    )  # fmt: skip


def _latency(tag: str, metric: object, n: float | None) -> Statistic | None:
    if not isinstance(metric, Mapping):
        return None
    scale = _SECONDS.get(str(metric.get("unit", "")).strip().lower())
    if scale is None:
        return None  # a latency in a unit that nobody knows is no latency
    ours, pool = _LATENCIES[tag]
    return told(ours, pool, n if pool == "request" else number(metric.get("count")), _figures(metric), scale=scale)


def _length(tag: str, metric: object, n: float | None) -> Statistic | None:
    return told(_LENGTHS[tag], "request", n, _figures(metric), unit="tokens") if isinstance(metric, Mapping) else None


def _figures(metric: Mapping[str, object]) -> dict[str, object]:
    return {_FIGURES.get(str(key), str(key)): value for key, value in metric.items()}


def _avg(metrics: Mapping[str, Any], tag: str) -> float | None:
    metric = metrics.get(tag)
    return number(metric.get("avg")) if isinstance(metric, Mapping) else number(metric)


def _duration(metric: object) -> float | None:
    value = number(metric.get("avg")) if isinstance(metric, Mapping) else number(metric)
    scale = _SECONDS.get(str(metric.get("unit", "s")).lower(), 1.0) if isinstance(metric, Mapping) else 1.0
    return None if value is None else value * scale


def _asked(config: Mapping[str, Any]) -> dict[str, float]:
    """Concurrency and rate of the profiling phase (AIPerf), or of the flat configuration (GenAI-Perf)."""
    phases = config.get("phases")
    wanted = [p for p in phases if isinstance(p, Mapping)] if isinstance(phases, list) else []
    phase = next((p for p in wanted if p.get("type") == "profiling"), wanted[-1] if wanted else config)
    loadgen = config.get("loadgen")
    spread = {**(loadgen if isinstance(loadgen, Mapping) else {}), **phase}
    rate = spread.get("rate", spread.get("request_rate"))
    return rates(concurrency=spread.get("concurrency"), rate=rate)


def _model(config: Mapping[str, Any]) -> str | None:
    endpoint = config.get("endpoint")
    for place in (config, endpoint if isinstance(endpoint, Mapping) else {}):
        for key in ("model", "models", "model_names", "model_name"):
            value = place.get(key)
            found = text(value[0] if isinstance(value, list) and value else value)
            if found:
                return found
    return None


def _instant(value: object) -> float | None:
    try:
        return datetime.fromisoformat(str(value)).astimezone().timestamp() if text(value) else None
    except (ValueError, OverflowError):
        return None


def _first(row: Mapping[str, object]) -> str:
    return next(iter(row))


def _tag(title: str) -> tuple[str, str]:
    """``Time to First Token (ms)`` → its tag and its unit."""
    match = _TITLE.fullmatch(title)
    name, unit = match.groups() if match else (title, "")
    return name.strip().lower().replace(" ", "_"), unit


IMPORTER: Final = Importer(
    "aiperf", "AIPerf, GenAI-Perf: profile_export_*.json, or the printed table as CSV", _recognises, _read
)
