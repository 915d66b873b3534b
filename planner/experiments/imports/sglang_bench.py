"""``sglang.bench_serving --output-file``: JSON lines, one run a line."""

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

_LATENCIES: Final[Mapping[str, tuple[str, Pool]]] = {
    "ttft": ("ttft_s", "request"),
    "tpot": ("tpot_s", "request"),
    "itl": ("itl_s", "gap"),
    "e2e_latency": ("e2e_s", "request"),
}
_USED: Final = [
    "backend",
    "duration",
    "completed",
    "request_throughput",
    "output_throughput",
    "total_throughput",
    "request_rate",
    "max_concurrency",
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "generated_texts",
    "errors",
    "total_output_tokens",
    "total_output_tokens_retokenized",
    "server_info",
    "tag",
]


def _recognises(file: Document) -> bool:
    run = file.mapping
    return "completed" in run and ("total_throughput" in run or "mean_e2e_latency_ms" in run)


def _read(file: Document) -> tuple[Benchmark, ...]:
    return tuple(_benchmark(file.name, run) for run in file.objects if "completed" in run)


def _benchmark(name: str, run: Mapping[str, Any]) -> Benchmark:
    ok = number(run.get("completed"))
    errors = run.get("errors")
    failed = float(sum(bool(error) for error in errors)) if isinstance(errors, list) else None
    server = run.get("server_info")
    rate = run.get("request_rate")
    found = [_summary(run, key, ours, pool, ok) for key, (ours, pool) in _LATENCIES.items()]
    lengths = run.get("output_lens")
    lengths = lengths if isinstance(lengths, list) else []
    found.append(counted("output_tokens", "request", lengths, unit="tokens"))
    asked = number(run.get("random_output_len")) if number(run.get("random_range_ratio")) == 1 else None
    known = isinstance(server, Mapping)
    return Benchmark(
        "sglang", name, label=text(run.get("tag")) or "", model=text(server.get("model_path")) if known else None,  # type: ignore[union-attr]
        engine=text(run.get("backend")), concurrency=number(run.get("max_concurrency")), request_rate=number(rate),
        unlimited=unlimited(rate), duration_s=number(run.get("duration")), ok=ok, failed=failed,
        statistics=present(*found),
        rates=rates(
            requests_per_s=run.get("request_throughput"), output_tokens_per_s=run.get("output_throughput"),
            total_tokens_per_s=run.get("total_throughput"),
        ),
        facts=rates(
            retokenised_tokens=run.get("total_output_tokens_retokenized"), output_tokens_asked=asked,
            output_tokens_total=run.get("total_output_tokens"), empty_answers=sum(n == 0 for n in lengths) or None,
        ),
        unmapped={key: value for key, value in run.items() if key not in _USED and not key.endswith("_ms")},
    )  # fmt: skip


def _summary(run: Mapping[str, Any], key: str, ours: str, pool: Pool, ok: float | None) -> Statistic | None:
    raw = run.get(f"{key}s")
    errors = run.get("errors")
    if ours == "ttft_s" and isinstance(raw, list):
        failed = errors if isinstance(errors, list) and len(errors) == len(raw) else [""] * len(raw)
        return counted(ours, pool, [value for value, error in zip(raw, failed, strict=True) if not error])
    if ours == "itl_s" and isinstance(raw, list):
        return counted(ours, pool, [gap for one in raw if isinstance(one, list) for gap in one])
    names = {"mean": "mean", "std": "std", "median": "p50", "max": "most"}
    suffix = f"_{key}_ms"
    figures = {
        names.get(head, head): value
        for head, value in ((k.removesuffix(suffix), v) for k, v in run.items() if k.endswith(suffix))
    }
    return told(ours, pool, ok if pool == "request" else None, figures, scale=1e-3)


IMPORTER: Final = Importer("sglang", "sglang.bench_serving --output-file", _recognises, _read)
