"""LLMPerf: ``*_summary.json`` (flattened) and ``*_individual_responses.json`` (a list). All in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.experiments.benchmark import (
    Benchmark,
    Document,
    Importer,
    Statistic,
    counted,
    number,
    present,
    rates,
    text,
    told,
)

_INCLUDES: Final = "inter_token_latency_s is the whole request over its tokens: it includes the first token"
_STATISTICS: Final = {
    "ttft_s": ("ttft_s", "s"),
    "end_to_end_latency_s": ("e2e_s", "s"),
    "inter_token_latency_s": ("latency_per_token_s", "s"),
    "number_input_tokens": ("input_tokens", "tokens"),
    "number_output_tokens": ("output_tokens", "tokens"),
}
_FIGURES: Final = {"mean": "mean", "stddev": "std", "min": "least", "max": "most"}


def _recognises(file: Document) -> bool:
    if "results_num_requests_started" in file.mapping or "results_ttft_s_mean" in file.mapping:
        return True
    first = file.objects[0] if file.form == "json" and isinstance(file.content, list) and file.objects else {}
    return "number_output_tokens" in first and "end_to_end_latency_s" in first


def _read(file: Document) -> tuple[Benchmark, ...]:
    if isinstance(file.content, list) and file.form == "json":
        return (_individual(file.name, file.objects),)
    return tuple(_summary(file.name, run) for run in file.objects)


def _summary(name: str, run: Mapping[str, Any]) -> Benchmark:
    ok, started = number(run.get("results_num_completed_requests")), number(run.get("results_num_requests_started"))
    failed = number(run.get("results_number_errors"))
    cut = None if None in (ok, started, failed) else max(0.0, (started or 0) - (ok or 0) - (failed or 0))
    found = {ours: _told(run, theirs, ours, unit, ok) for theirs, (ours, unit) in _STATISTICS.items()}
    tpot = _tpot_of_means(found, ok)
    findings = [_INCLUDES]
    if tpot is not None:
        findings.append("tpot_s is derived from means, (latency per token × tokens − TTFT) / (tokens − 1): a mean only")
    per_minute = number(run.get("results_num_completed_requests_per_min"))
    return Benchmark(
        "llmperf", name, model=text(run.get("model")), concurrency=number(run.get("num_concurrent_requests")), ok=ok,
        failed=failed, cut_off=cut, statistics=present(*found.values(), tpot),
        rates=rates(
            output_tokens_per_s=run.get("results_mean_output_throughput_token_per_s"),
            requests_per_s=None if per_minute is None else per_minute / 60,
        ),
        facts=rates(output_tokens_asked=run.get("mean_output_tokens")),
        unmapped={key: value for key, value in run.items() if not key.startswith("results_")}, findings=tuple(findings),
    )  # fmt: skip


def _told(run: Mapping[str, Any], theirs: str, ours: str, unit: str, ok: float | None) -> Statistic | None:
    prefix = f"results_{theirs}_"
    figures = {}
    for key, value in run.items():
        if key.startswith(prefix):
            rest = key.removeprefix(prefix).removeprefix("quantiles_")
            figures[_FIGURES.get(rest, rest)] = value
    return told(ours, "request", ok, figures, unit=unit)


def _tpot_of_means(found: Mapping[str, Statistic | None], ok: float | None) -> Statistic | None:
    each, first, tokens = (
        one.mean if (one := found.get(name)) is not None else None
        for name in ("latency_per_token_s", "ttft_s", "output_tokens")
    )
    if each is None or first is None or tokens is None or tokens <= 1 or each * tokens < first:
        return None
    return Statistic("tpot_s", "s", "request", ok, mean=(each * tokens - first) / (tokens - 1))


def _individual(name: str, rows: Any) -> Benchmark:
    fine = [row for row in rows if row.get("error_code") in (None, "", 0)]
    found = [
        counted(ours, "request", [row.get(theirs) for row in fine], unit=unit)
        for theirs, (ours, unit) in _STATISTICS.items()
    ]
    tpots = []
    for row in fine:
        whole, first, tokens = (number(row.get(k)) for k in ("end_to_end_latency_s", "ttft_s", "number_output_tokens"))
        if whole is not None and first is not None and tokens is not None and tokens > 1:
            tpots.append((whole - first) / (tokens - 1))
    found.append(counted("tpot_s", "request", tpots))
    return Benchmark(
        "llmperf", name, ok=float(len(fine)), failed=float(len(rows) - len(fine)), statistics=present(*found),
        findings=(_INCLUDES,),
    )  # fmt: skip


IMPORTER: Final = Importer("llmperf", "LLMPerf *_summary.json, *_individual_responses.json", _recognises, _read)
