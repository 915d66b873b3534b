"""GuideLLM's ``benchmarks.json``: a sweep of benchmarks, statistics by how requests ended."""

from __future__ import annotations

from collections.abc import Mapping
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

#: their metric → ours, how it is pooled, and seconds of its unit: E2E is in seconds, the others in milliseconds
_LATENCIES: Final[Mapping[str, tuple[str, Pool, float]]] = {
    "time_to_first_token_ms": ("ttft_s", "request", 1e-3),
    "time_to_first_output_token_ms": ("ttfot_s", "request", 1e-3),
    "inter_token_latency_ms": ("tpot_s", "request", 1e-3),
    "request_latency": ("e2e_s", "request", 1.0),
    "request_dispatch_delay": ("client_queue_s", "request", 1.0),
    "time_per_output_token_ms": ("latency_per_token_s", "request", 1e-3),
}
_LENGTHS: Final = {"prompt_token_count": "input_tokens", "output_token_count": "output_tokens"}
_RATES: Final = {
    "requests_per_s": "requests_per_second",
    "output_tokens_per_s": "output_tokens_per_second",
    "total_tokens_per_s": "tokens_per_second",
}
_PERCENTILES: Final = {"p001": "p0.1", "p01": "p1", "p05": "p5", "p999": "p99.9"}
_FIGURES: Final = {"mean": "mean", "std_dev": "std", "min": "least", "max": "most", "median": "p50"}


def _recognises(file: Document) -> bool:
    runs = file.mapping.get("benchmarks")
    return isinstance(runs, list) and bool(runs) and isinstance(runs[0], Mapping) and "metrics" in runs[0]


def _read(file: Document) -> tuple[Benchmark, ...]:
    runs = [run for run in file.mapping["benchmarks"] if isinstance(run, Mapping)]
    return tuple(_benchmark(file.name, run, place, len(runs)) for place, run in enumerate(runs))


def _benchmark(name: str, run: Mapping[str, Any], place: int, whole: int) -> Benchmark:
    metrics = _mapping(run, "metrics")
    totals = _mapping(metrics, "request_totals")
    if not totals:
        totals = _mapping(_mapping(run, "scheduler_metrics"), "requests_made")
    config, strategy = _mapping(run, "config"), _mapping(_mapping(run, "config"), "strategy")
    found = [_statistic(metrics.get(theirs), ours, pool, scale) for theirs, (ours, pool, scale) in _LATENCIES.items()]
    lengths = [_statistic(metrics.get(theirs), ours, "request", 1.0, "tokens") for theirs, ours in _LENGTHS.items()]
    findings = []
    if "time_per_output_token_ms" in metrics:
        findings.append("time_per_output_token_ms includes the first token: TPOT is taken from inter_token_latency_ms")
    cut = number(totals.get("incomplete"))
    if cut:
        findings.append(f"{cut:g} requests were cut off by the end of the test: neither good nor bad")
    begin, end = number(run.get("start_time")), number(run.get("end_time"))
    used = {*_LATENCIES, *_LENGTHS, *_RATES.values(), "request_totals"}
    return Benchmark(
        "guidellm", name, label=f"{place + 1} of {whole}: {text(strategy.get('type_')) or 'unknown'}",
        model=text(_mapping(config, "backend").get("model")), concurrency=_concurrency(strategy),
        request_rate=number(strategy.get("rate")), started_s=begin,
        duration_s=number(run.get("duration")) or (end - begin if begin and end and end > begin else None),
        ok=number(totals.get("successful")), failed=number(totals.get("errored")), cut_off=cut,
        statistics=present(*found, *lengths),
        rates=rates(
            **{ours: _successful(metrics.get(theirs)).get("mean") for ours, theirs in _RATES.items()},
            good_requests_per_s=_successful(metrics.get("request_goodput")).get("mean"),
        ),
        unmapped={key: value for key, value in metrics.items() if key not in used}, findings=tuple(findings),
    )  # fmt: skip


def _statistic(metric: object, ours: str, pool: Pool, scale: float, unit: str = "s") -> Statistic | None:
    """Of successful requests only; those cut off at the end are shorter by chance."""
    summary = _successful(metric)
    figures: dict[str, object] = {ours_key: summary.get(theirs) for theirs, ours_key in _FIGURES.items()}
    for key, value in _mapping(summary, "percentiles").items():
        figures[_PERCENTILES.get(key, key)] = value
    return told(ours, pool, number(summary.get("count")), figures, scale=scale, unit=unit)


def _successful(metric: object) -> Mapping[str, Any]:
    return _mapping(metric, "successful") if isinstance(metric, Mapping) else {}


def _concurrency(strategy: Mapping[str, Any]) -> float | None:
    return number(strategy.get("streams")) or number(strategy.get("max_concurrency"))


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = of.get(key)
    return found if isinstance(found, Mapping) else {}


IMPORTER: Final = Importer("guidellm", "GuideLLM benchmarks.json", _recognises, _read)
