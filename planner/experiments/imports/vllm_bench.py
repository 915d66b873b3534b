"""``vllm bench serve --save-result`` (JSON) and ``--append-result`` (JSON lines)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.experiments.benchmark import (
    Benchmark,
    Document,
    Importer,
    Pool,
    Statistic,
    counted,
    number,
    present,
    rates,
    text,
    told,
    unlimited,
)

#: the middle of their keys → ours; TPOT is over requests, ITL over gaps
_LATENCIES: Final[Mapping[str, tuple[str, Pool]]] = {
    "ttft": ("ttft_s", "request"),
    "tpot": ("tpot_s", "request"),
    "itl": ("itl_s", "gap"),
    "e2el": ("e2e_s", "request"),
    "client_queue_time": ("client_queue_s", "request"),
}
_USED: Final = [
    "duration",
    "completed",
    "failed",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "latencies",
    "start_times",
    "queue_times",
    "generated_texts",
    "errors",
    "model_id",
    "label",
    "request_rate",
    "max_concurrency",
    "backend",
    "endpoint_type",
    "total_output_tokens",
    "total_input_tokens",
]
_PREFIXES: Final = ("mean", "median", "std")


def _recognises(file: Document) -> bool:
    run = file.mapping
    return "completed" in run and "duration" in run and "total_token_throughput" in run


def _read(file: Document) -> tuple[Benchmark, ...]:
    return tuple(_benchmark(file.name, run) for run in file.objects if "completed" in run)


def _benchmark(name: str, run: Mapping[str, Any]) -> Benchmark:
    ok, failed = number(run.get("completed")), number(run.get("failed"))
    errors = run.get("errors")
    if failed is None and isinstance(errors, list):
        failed = float(sum(bool(error) for error in errors))
    raw = _raw(run)
    found = [raw.get(ours) or _summary(run, key, ours, pool, ok) for key, (ours, pool) in _LATENCIES.items()]
    lengths = [counted("input_tokens", "request", _list(run, "input_lens"), unit="tokens")]
    lengths.append(counted("output_tokens", "request", _list(run, "output_lens"), unit="tokens"))
    findings = ["start stamps are of a monotonic clock: they cannot be joined with metrics by time"] * (
        "start_times" in run
    )
    if number(run.get("max_concurrency")) and "client_queue_s" not in {one.name for one in present(*found)}:
        findings.append(
            "a concurrency cap without client wait in the file: time before sending may be missing from TTFT"
        )
    used = {*_USED, *(key for key in run if _is_latency(key))}
    rate = run.get("request_rate")
    return Benchmark(
        "vllm", name, label=text(run.get("label")) or "", model=text(run.get("model_id")),
        engine=text(run.get("backend")) or text(run.get("endpoint_type")),
        concurrency=number(run.get("max_concurrency")), request_rate=number(rate), unlimited=unlimited(rate),
        duration_s=number(run.get("duration")), ok=ok, failed=failed,
        statistics=present(*found, *lengths),
        rates=rates(
            requests_per_s=run.get("request_throughput"), good_requests_per_s=run.get("request_goodput"),
            output_tokens_per_s=run.get("output_throughput"), total_tokens_per_s=run.get("total_token_throughput"),
        ),
        facts=_facts(run, ok), unmapped={key: value for key, value in run.items() if key not in used},
        findings=tuple(findings),
    )  # fmt: skip


def _summary(run: Mapping[str, Any], key: str, ours: str, pool: Pool, ok: float | None) -> Statistic | None:
    figures: dict[str, object] = {"mean": run.get(f"mean_{key}_ms"), "std": run.get(f"std_{key}_ms")}
    figures["p50"] = run.get(f"median_{key}_ms")
    for name, value in run.items():
        head, _, rest = name.partition("_")
        if rest == f"{key}_ms" and head not in _PREFIXES:
            figures[head] = value
    n = ok if pool == "request" else None  # how many gaps there were is not in the file
    return told(ours, pool, n, figures, scale=1e-3)


def _raw(run: Mapping[str, Any]) -> dict[str, Statistic]:
    """Statistics from the arrays of ``--save-detailed``: seconds, of requests that did not fail."""
    errors = _list(run, "errors")

    def fine(values: list[Any]) -> list[Any]:
        return [v for v, e in zip(values, errors, strict=True) if not e] if len(errors) == len(values) else values

    ttfts, gaps, lengths = (fine(_list(run, key)) for key in ("ttfts", "itls", "output_lens"))
    found = [counted("ttft_s", "request", ttfts), counted("client_queue_s", "request", _list(run, "queue_times"))]
    lists = [one for one in gaps if isinstance(one, list)]
    found.append(counted("itl_s", "gap", [gap for one in lists for gap in one]))
    if lists and len(lists) == len(ttfts) == len(lengths):
        sums = [sum(gap for gap in one if isinstance(gap, int | float)) for one in lists]
        firsts = [number(t) for t in ttfts]
        found.append(counted("e2e_s", "request", [s + t for s, t in zip(sums, firsts, strict=True) if t is not None]))
        sizes = [number(n) for n in lengths]
        found.append(
            counted("tpot_s", "request", [s / (n - 1) for s, n in zip(sums, sizes, strict=True) if n and n > 1])
        )
    return {one.name: one for one in present(*found)}


def _facts(run: Mapping[str, Any], ok: float | None) -> dict[str, float]:
    facts = rates(
        output_tokens_total=run.get("total_output_tokens"), acceptance_percent=run.get("spec_decode_acceptance_rate")
    )
    gaps = [one for one in _list(run, "itls") if isinstance(one, list)]
    total = facts.get("output_tokens_total")
    if gaps and total and ok and total > ok:
        facts["chunks_per_token"] = sum(map(len, gaps)) / (total - ok)
    lengths, errors = _list(run, "output_lens"), _list(run, "errors")
    if lengths and len(errors) in (0, len(lengths)):
        facts["empty_answers"] = sum(
            n == 0 and not e for n, e in zip(lengths, errors or [""] * len(lengths), strict=True)
        )
    return facts


def _list(run: Mapping[str, Any], key: str) -> list[Any]:
    value = run.get(key)
    return value if isinstance(value, list) else []


def _is_latency(key: str) -> bool:
    return key.endswith("_ms") and any(key.partition("_")[2] == f"{name}_ms" for name in _LATENCIES)


IMPORTER: Final = Importer("vllm", "vllm bench serve --save-result", _recognises, _read)
