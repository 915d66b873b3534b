"""A table with one arm a row: its name first, then how many samples, and the mean, minimum and maximum of one share.

``router_policy,log_samples,mean_hit_pct,min,max`` is such a table: shares in per cent, taken over as 0..1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from planner.experiments.benchmark import Benchmark, Document, Importer, number, present, told

_MEAN: Final = re.compile(r"mean_(\w+?)_(pct|percent|ratio)")
_SAMPLES: Final = re.compile(r"(log_)?(samples|n|count)")


def _columns(file: Document) -> tuple[str, str, str] | None:
    """The columns of the arm, of how many samples, and of the mean; None when it is no such table."""
    if file.form != "table":
        return None
    names = list(file.content[0])
    mean = next((name for name in names[1:] if _MEAN.fullmatch(name)), None)
    samples = next((name for name in names[1:] if _SAMPLES.fullmatch(name)), None)
    return (names[0], samples, mean) if mean and samples else None


def _recognises(file: Document) -> bool:
    return _columns(file) is not None


def _read(file: Document) -> tuple[Benchmark, ...]:
    found = _columns(file)
    assert found is not None
    arm, samples, mean = found
    return tuple(_row(file.name, row, arm, samples, mean) for row in file.content)


def _row(name: str, row: Mapping[str, str], arm: str, samples: str, mean: str) -> Benchmark:
    match = _MEAN.fullmatch(mean)
    assert match is not None
    scale = 1.0 if match[2] == "ratio" else 0.01
    figures = {"mean": row[mean], "least": row.get("min"), "most": row.get("max")}
    share = told(f"{match[1]}_ratio", "run", number(row[samples]), figures, scale=scale, unit="ratio")
    return Benchmark(
        "arms", name, label=f"{arm}: {row[arm]}", statistics=present(share),
        unmapped={key: value for key, value in row.items() if key not in (arm, samples, mean, "min", "max")},
        findings=("samples of one log are not repeats: neighbours are alike, so there is no verdict from them",),
    )  # fmt: skip


IMPORTER: Final = Importer("arms", "a CSV table with one arm a row", _recognises, _read)
