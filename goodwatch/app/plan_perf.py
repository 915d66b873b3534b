"""Speed for the command line: files and flags to predictions, predictions to JSON and a short text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from goodwatch.app._cases import read_cases
from planner.speed.cases import predict_case, row
from planner.speed.efficiency import shipped

#: largest file of cases that is read


def case_rows(path: Path, *, baseline: bool = False) -> list[dict[str, Any]]:
    """One row a case of a file in the schema of speed cases; figures that the file measured are not read.

    Raises
    ------
    ConfigError
        The file cannot be read or holds no cases.
    """
    return [row(case, shipped(), baseline=baseline) for case in read_cases(path)]


def perf(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one question that flags ask: ``model``, ``gpu``, ``engine`` …, lengths and ``concurrency``.

    Raises
    ------
    ConfigError
        A flag is missing, absurd, or names something unknown.
    """
    case = case_of(flags)
    predict_case(case, shipped())  # so that what is wrong with the flags is an error and not a row
    return row(case, shipped(), baseline=bool(flags.get("baseline")))


def case_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags in the form of a case."""
    at_once = flags.get("concurrency")
    return {
        "id": "--model", "kind": "closed_loop" if at_once else "max_throughput", "model": flags["model"],
        "precision": flags.get("quantization") or "bf16", "gpu": flags["gpu"], "tp": flags["tp"], "pp": flags["pp"],
        "gpu_count": flags["tp"] * flags["pp"] * flags["dp"],
        "ep": flags["ep"], "attention_dp": flags["dp"], "engine": flags["engine"],
        "engine_version": flags.get("engine_version") or "", "isl": flags["input_tokens"], "osl": flags["output_tokens"],
        "concurrency": at_once, "kv_dtype": None if flags.get("kv_cache_dtype") in (None, "auto") else flags["kv_cache_dtype"],
    }  # fmt: skip


def show_perf(console: Console, found: Mapping[str, Any], title: str) -> None:
    """Print one prediction: figure, interval, and what was not known."""
    console.print()
    console.print(Text(f"  {title}", "bold"))
    console.print(Text("  point, and the interval that holds 4 of 5 measurements", "dim"))
    console.print()
    for name, unit, label in _FIGURES:
        point, ends = found[name], found["interval"][name]
        if point is None:
            console.print(f"  {label:<22}{'no data':>10}  (a saturated engine has no meaningful {label})")
            continue
        beside = _beside(found.get("baseline"), name)
        console.print(f"  {label:<22}{point:>10,.1f} {unit:<5} {ends[0]:,.1f} to {ends[1]:,.1f}{beside}")
    _unknown(console, found["unknown"])


_FIGURES: Final = (
    ("output_tok_s", "tok/s", "output tokens"),
    ("ttft_ms", "ms", "TTFT"),
    ("tpot_ms", "ms", "TPOT"),
)


def _beside(baseline: Mapping[str, float | None] | None, name: str) -> str:
    plain = baseline.get(name) if baseline else None
    return "" if plain is None else f"   plain roofline: {plain:,.1f}"


def _unknown(console: Console, unknown: Iterable[str]) -> None:
    told = "; ".join(unknown)
    if told:
        console.print()
        console.print(Text(f"  not told or not measured, in the intervals: {told}", "dim"))
