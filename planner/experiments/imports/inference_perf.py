"""inference-perf's ``*_lifecycle_metrics.json``: seconds, survivors and failures apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.experiments.benchmark import Benchmark, Document, Importer, Pool, Statistic, number, present, rates, told

_LATENCIES: Final[Mapping[str, tuple[str, Pool]]] = {
    "request_latency": ("e2e_s", "request"),
    "time_to_first_token": ("ttft_s", "request"),
    "time_per_output_token": ("tpot_s", "request"),
    "inter_token_latency": ("itl_s", "gap"),
    "normalized_time_per_output_token": ("latency_per_token_s", "request"),
}
_FIGURES: Final = {"mean": "mean", "std": "std", "min": "least", "max": "most", "median": "p50"}


def _recognises(file: Document) -> bool:
    return isinstance(file.mapping.get("load_summary"), Mapping) and isinstance(file.mapping.get("successes"), Mapping)


def _read(file: Document) -> tuple[Benchmark, ...]:
    return tuple(_benchmark(file.name, run) for run in file.objects if isinstance(run.get("successes"), Mapping))


def _benchmark(name: str, run: Mapping[str, Any]) -> Benchmark:
    good, load = run["successes"], _mapping(run, "load_summary")
    ok = number(good.get("count"))
    latency, throughput = _mapping(good, "latency"), _mapping(good, "throughput")
    found = [_told(latency, theirs, ours, pool, ok) for theirs, (ours, pool) in _LATENCIES.items()]
    found.append(_told(load, "schedule_delay", "client_queue_s", "request", number(load.get("count"))))
    lengths = [
        _told(good, theirs, ours, "request", ok, unit="tokens")
        for theirs, ours in (("prompt_len", "input_tokens"), ("output_len", "output_tokens"))
    ]
    failures = _mapping(run, "failures")
    failed = number(failures.get("count"))
    sent = number(load.get("count"))
    if failed is None and sent is not None and ok is not None:
        failed = sent - ok
    findings = []
    if "normalized_time_per_output_token" in latency:
        findings.append(
            "normalised time per output token is E2E over tokens: it includes the first token and is no TPOT"
        )
    return Benchmark(
        "inference-perf", name, request_rate=number(load.get("requested_rate")), ok=ok, failed=failed,
        statistics=present(*found, *lengths),
        rates=rates(
            requests_per_s=throughput.get("requests_per_sec"), output_tokens_per_s=throughput.get("output_tokens_per_sec"),
            total_tokens_per_s=throughput.get("total_tokens_per_sec"),
        ),
        unmapped={key: value for key, value in run.items() if key not in ("load_summary", "successes", "failures")},
        findings=tuple(findings),
    )  # fmt: skip


def _told(
    of: Mapping[str, Any], theirs: str, ours: str, pool: Pool, n: float | None, *, unit: str = "s"
) -> Statistic | None:
    figures = {_FIGURES.get(key, key): value for key, value in _mapping(of, theirs).items()}
    return told(ours, pool, n if pool == "request" else None, figures, unit=unit)


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = of.get(key)
    return found if isinstance(found, Mapping) else {}


IMPORTER: Final = Importer("inference-perf", "inference-perf *_lifecycle_metrics.json", _recognises, _read)
