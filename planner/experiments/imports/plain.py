"""A file that says itself what it measured: any metric with a unit and a direction, for images, video, training.

``{"workload": "sdxl", "started_s": 1772593920, "duration_s": 60, "metrics": {"images_per_s": {"unit": "images/s",
"better": "higher", "value": 4.2}, "seconds_per_video": {"unit": "s", "better": "lower", "values": [31.5, 30.9]}}}``
is one run; a list of them, or one a line, is several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from planner.experiments.benchmark import Benchmark, Document, Importer, Statistic, counted, number, text
from planner.experiments.values import Metric


def _recognises(file: Document) -> bool:
    told = [run.get("metrics") for run in file.objects] if file.form != "table" else []
    return bool(told) and all(isinstance(one, Mapping) and one and all(map(_defines, one.values())) for one in told)


def _defines(one: object) -> bool:
    return isinstance(one, Mapping) and "unit" in one and "better" in one and bool({"value", "values"} & set(one))


def _read(file: Document) -> tuple[Benchmark, ...]:
    return tuple(_benchmark(file.name, run) for run in file.objects)


def _benchmark(name: str, run: Mapping[str, Any]) -> Benchmark:
    statistics: list[Statistic] = []
    metrics = []
    findings = []
    for key, one in run["metrics"].items():
        told = one.get("values", [one.get("value")])
        found = counted(key, "run", told, unit=str(one["unit"]))
        if found is None or len(found.values) < len(told):
            findings.append(
                f"{key}: {len(told) - len(found.values if found else ())} of {len(told)} values are no numbers"
            )
        if found is not None:
            statistics.append(found)
            metrics.append(Metric(key, str(one["unit"]), one["better"], str(one.get("summary", "mean"))))
            if one["better"] not in ("lower", "higher"):
                raise ValueError(f"{key}: better: write lower or higher")
    return Benchmark(
        text(run.get("tool")) or "plain", name, label=text(run.get("workload")) or "", model=text(run.get("model")),
        started_s=number(run.get("started_s")), duration_s=number(run.get("duration_s")), statistics=tuple(statistics),
        concurrency=number(run.get("concurrency")), findings=tuple(findings), metrics=tuple(metrics),
    )  # fmt: skip


IMPORTER: Final = Importer(
    "plain",
    'any metric with its unit: {"metrics": {NAME: {"unit", "better", "value" or "values"}}}',
    _recognises,
    _read,
)
