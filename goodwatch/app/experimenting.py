"""The ledger of experiments for the command line: files to entries, entries to tables, copies to give away."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from collector.stores.sqlite_records import SqliteRecords
from goodwatch.app._files import read_text
from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Basis
from goodwatch.core.ports import RecordStore
from planner.experiments.benchmark import Benchmark, Statistic
from planner.experiments.calibration import Calibration, Checked, calibration, checked
from planner.experiments.designs import aa_noise, change_text, judge
from planner.experiments.importing import compared, read_benchmarks, share_change
from planner.experiments.redact import redacted
from planner.experiments.statistics import shown, summary_of
from planner.experiments.values import KIND, Experiment, Run, from_record, to_body

#: file of the records in ``data_dir``
RECORDS_FILE: Final = "records.sqlite"
#: result files with every request of a long run are large
_FILE_BYTES: Final = 512 * 2**20
_SUFFIXES: Final = (".json", ".jsonl", ".csv", ".ndjson")


def open_ledger(config: Path | None, data_dir: Path | None) -> SqliteRecords:
    """The records beside a service's data: of ``data_dir``, or of the configuration's.

    Raises
    ------
    ConfigError
        Neither is given, or there is no such folder.
    """
    if data_dir is None:
        if config is None:
            raise ConfigError(
                "which ledger? name the configuration with -c goodwatch.yaml, or its folder with --data-dir"
            )
        from goodwatch.app.config import load  # noqa: PLC0415  reading every table takes a while
        from goodwatch.app.engines import known_engines  # noqa: PLC0415

        data_dir = load(config, engines=known_engines(), environ=os.environ).data_dir
    if not data_dir.is_dir():
        raise ConfigError(f"{data_dir}: is no folder; start the service once, or create it")
    return SqliteRecords(data_dir / RECORDS_FILE)


def keep(ledger: RecordStore, experiment: Experiment) -> None:
    """Put an entry, or a new version of it. Raises ``StoreError``."""
    ledger.put(KIND, experiment.id, time.time(), to_body(experiment))


def entries(ledger: RecordStore) -> list[Experiment]:
    """Every experiment in its newest version, newest first."""
    return [from_record(record) for record in ledger.latest(KIND)]


def entry(ledger: RecordStore, id: str) -> Experiment:
    """One experiment. Raises ``ConfigError`` when there is none of this id, with those that begin alike."""
    record = ledger.get(KIND, id)
    if record is not None:
        return from_record(record)
    known = [one.id for one in ledger.latest(KIND)]
    near = [one for one in known if one.startswith(id[:8])][:5]
    raise ConfigError(f"experiment {id}: there is none{'; known are ' + ', '.join(near or known[:5]) if known else ''}")


def new_id(what: str, at_s: float) -> str:
    """An id that sorts by time: ``compare-20261201-053000-1a2b``."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(at_s))
    return f"{what}-{stamp}-{hashlib.sha256(f'{what}{at_s}{os.getpid()}'.encode()).hexdigest()[:4]}"


def imported(paths: Iterable[Path]) -> tuple[list[Benchmark], dict[str, str]]:
    """The runs of result files and folders of them, and each file's SHA-256 by name.

    Raises
    ------
    ConfigError
        A file cannot be read, or no known tool wrote it; a folder has no result file.
    """
    runs: list[Benchmark] = []
    hashes: dict[str, str] = {}
    for path in paths:
        for file in _files(path):
            try:
                text = read_text(file, _FILE_BYTES)
            except ValueError as error:
                raise ConfigError(f"{file} {error}") from error
            runs += read_benchmarks(file.name, text)
            hashes[file.name] = hashlib.sha256(text.encode()).hexdigest()
    return runs, hashes


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    # vLLM writes traces of its profiler beside its results
    found = sorted(f for f in path.iterdir() if f.suffix in _SUFFIXES and not f.name.endswith(".pytorch.json"))
    if not found:
        raise ConfigError(f"{path}: holds no result file ({', '.join(_SUFFIXES)})")
    return found


def compare(
    a: str,
    b: str,
    *,
    ledger: RecordStore | None,
    level: float | None = None,
    primary: str | None = None,
) -> Experiment:
    """Two sides, each a file, a folder of files, or the id of a sweep in the ledger; judged.

    Raises
    ------
    ConfigError
        A side cannot be read, the sides are not alike, or two sweeps are compared without a level that both have.
    """  # fmt: skip
    at_s = time.time()
    if Path(a).exists() and Path(b).exists():
        (first, hashes), (second, more) = imported([Path(a)]), imported([Path(b)])
        made = compared(new_id("compare", at_s), first, second, question=f"{Path(a).name} or {Path(b).name}?",
                        hashes={**hashes, **more}, primary=primary, at_s=at_s)  # fmt: skip
    elif ledger is not None:
        made = _of_sweeps(entry(ledger, a), entry(ledger, b), level, primary, at_s)
    else:
        missing = a if not Path(a).exists() else b
        raise ConfigError(f"{missing}: no such file; for an entry of the ledger name it with -c or --data-dir")
    noise = aa_noise(entries(ledger)) if ledger is not None else None
    return replace(made, verdict=judge(made, at_s=at_s, noise=noise))


def _of_sweeps(a: Experiment, b: Experiment, level: float | None, primary: str | None, at_s: float) -> Experiment:
    both = {run.level for run in a.baseline.runs} & {run.level for run in b.baseline.runs}
    common = sorted(one for one in both if one is not None)
    if level is None or level not in common:
        raise ConfigError(
            f"--level: name one that both have: {', '.join(f'{one:g}' for one in common) or 'there is none'}"
        )
    if [one.sha256 for one in a.inputs] != [one.sha256 for one in b.inputs]:
        raise ConfigError(f"{a.id} and {b.id}: their inputs differ; run both with the same plan")
    sides = [[run for run in one.baseline.runs if run.level == level] for one in (a, b)]
    starts = [run.started_s or 0.0 for side in sides for run in side]
    order = {start: place for place, start in enumerate(sorted(starts))}
    arms = [
        replace(one.baseline, name=name, runs=tuple(replace(run, position=order[run.started_s or 0.0]) for run in side))
        for one, name, side in zip((a, b), ("baseline", "candidate"), sides, strict=True)
    ]
    metrics = tuple(sorted(a.metrics, key=lambda metric: metric.name != primary))
    return replace(
        a, id=new_id("compare", at_s), question=f"{a.id} or {b.id} at level {level:g}?", design="imported", baseline=arms[0],
        candidate=arms[1], metrics=metrics, factor=None, created_s=at_s, notes=(*a.notes, *b.notes),
    )  # fmt: skip


def benchmark_json(run: Benchmark) -> dict[str, object]:
    """A run as JSON; raw values are left out, null is not told."""
    return {
        "tool": run.tool, "file": run.source, "label": run.label, "model": run.model, "engine": run.engine,
        "concurrency": run.concurrency, "request_rate": run.request_rate, "unlimited": run.unlimited,
        "duration_s": run.duration_s, "ok": run.ok, "failed": run.failed, "cut_off": run.cut_off,
        "rates": dict(run.rates), "statistics": {one.name: _statistic_json(one) for one in run.statistics},
        "unmapped": dict(run.unmapped), "findings": list(run.findings), "basis": Basis.MEASURED.value,
    }  # fmt: skip


def _statistic_json(one: Statistic) -> dict[str, object]:
    return {
        "unit": one.unit, "of": one.pool, "n": one.n, "mean": one.mean, "min": one.least, "max": one.most,
        **{f"p{q * 100:g}": value for q, value in one.quantiles},
    }  # fmt: skip


def show_benchmarks(console: Console, runs: Sequence[Benchmark]) -> None:
    """Runs as tables, findings below each; then what shares of two runs say about each other."""
    for run in runs:
        told = (
            f"{run.ok:g} ok" if run.ok is not None else None,
            f"{run.failed:g} failed" if run.failed is not None else None,
        )
        console.print(f"[bold]{run.source}[/] {run.tool} {run.label} {', '.join(filter(None, told))}", markup=True)
        table = Table(box=box.SIMPLE)
        for heading in ("metric", "unit", "of", "n", "mean", "min", "P50", "P90", "P99", "max"):
            table.add_column(heading, justify="left" if heading in ("metric", "unit", "of") else "right")
        for one in run.statistics:
            figures = (one.mean, one.least, one.at(0.5), one.at(0.9), one.at(0.99), one.most)
            n = "not told" if one.n is None else f"{one.n:g}"
            table.add_row(one.name, one.unit, one.pool, n, *map(_figure, figures))
        for name, value in run.rates.items():
            table.add_row(name, "1/s", "run", "", _figure(value))
        console.print(table)
        for said in run.findings:
            console.print(f"  - {said}", markup=False)
        if run.unmapped:
            console.print(f"  not mapped: {', '.join(sorted(run.unmapped))[:500]}", markup=False)
    if len(runs) == 2:
        for one in runs[0].statistics:
            other = runs[1].statistic(one.name)
            change = share_change(one, other) if other is not None else None
            if change is not None:
                console.print(f"from the first to the second: {change}", markup=False)


def show_experiment(console: Console, one: Experiment) -> None:
    """An entry for a person: question, verdict with its reason, every metric, every run as minimum, median, maximum."""
    console.print(f"{one.id}: {one.question} [{one.design}, {one.state}]", markup=False)
    if one.verdict is not None:
        console.print(f"{one.verdict.outcome.replace('_', ' ')}: {one.verdict.reason}", markup=False, style="bold")
        if one.verdict.gate_reason:
            console.print(f"quality {one.verdict.gate}: {one.verdict.gate_reason}", markup=False)
        if one.verdict.gpu_hours_ratio is not None:
            console.print(f"GPU-hours for the same work: {one.verdict.gpu_hours_ratio:.3f} times the baseline's")
        if one.verdict.predicted_inside is not None:
            console.print(f"the prediction {'held' if one.verdict.predicted_inside else 'did not hold'}")
        metrics = {metric.name: metric for metric in one.metrics}
        for effect in one.verdict.effects:
            said = change_text(metrics[effect.metric], effect)
            seen = "" if effect.detectable is None else f"; could have seen {effect.detectable * 100:.1f} %"
            console.print(f"  {effect.outcome.replace('_', ' ')}: {said}{seen}", markup=False)
    table = Table(box=box.SIMPLE)
    for heading in ("arm", "metric", "level", "runs", "min", "median", "max"):
        table.add_column(heading, justify="left" if heading in ("arm", "metric") else "right")
    for row in _arm_rows(one):
        table.add_row(*row)
    console.print(table)
    for said in (*(one.verdict.findings if one.verdict else ()), *one.notes):
        console.print(f"  - {said}", markup=False)


def _arm_rows(one: Experiment) -> list[tuple[str, ...]]:
    rows = []
    for arm in (one.baseline, one.candidate):
        for level in sorted({run.level for run in arm.runs if run.counts}, key=lambda level: level or 0.0):
            runs = [run for run in arm.runs if run.counts and run.level == level]
            for metric in one.metrics:
                found = [
                    v
                    for run in runs
                    if metric.name in run.measures
                    if (v := summary_of(run.measures[metric.name], metric)) is not None
                ]
                seen = shown(found)
                if seen is not None:
                    at = "" if level is None else f"{level:g}"
                    rows.append(
                        (arm.name, metric.name, at, str(seen.n), *map(_figure, (seen.least, seen.median, seen.most)))
                    )
    return rows


def show_list(console: Console, found: Sequence[Experiment]) -> None:
    """Entries, newest first, and how the planner's predictions did."""
    table = Table(box=box.SIMPLE)
    for heading in ("id", "question", "design", "state", "verdict"):
        table.add_column(heading)
    for one in found:
        table.add_row(
            one.id, one.question, one.design, one.state, one.verdict.outcome.replace("_", " ") if one.verdict else ""
        )
    console.print(table)
    console.print(planner_calibration(found).text, markup=False)


def predictions(found: Iterable[Experiment]) -> tuple[Checked, ...]:
    """Every prediction of the ledger that was checked; for the page and ``calibration.series``."""
    return tuple(one for experiment in found for one in checked(experiment))


def planner_calibration(found: Iterable[Experiment]) -> Calibration:
    """How well the planner's predictions held over the whole ledger."""
    return calibration(predictions(found))


def exported(experiment: Experiment, *, redact: bool) -> str:
    """An entry as JSON text: all of it, or the copy that may be given away."""
    body: Mapping[str, object] = redacted(experiment) if redact else to_body(experiment)
    return json.dumps(body, indent=2, ensure_ascii=False)


def judged(ledger: RecordStore, experiment: Experiment, runs: Mapping[str, Sequence[Run]]) -> Experiment:
    """An entry with further runs of its arms (by arm name), judged anew and kept. Raises ``StoreError``."""
    arms = [
        replace(arm, runs=(*arm.runs, *runs.get(arm.name, ()))) for arm in (experiment.baseline, experiment.candidate)
    ]
    grown = replace(experiment, baseline=arms[0], candidate=arms[1])
    noise = aa_noise(entries(ledger), experiment.service or None)
    verdict = judge(grown, at_s=time.time(), noise=noise)
    wanted = max(3, experiment.stop.repeats)
    done = min(sum(run.counts and not run.reference for run in arm.runs) for arm in arms) >= wanted
    grown = replace(grown, verdict=verdict, state="done" if done else "running")
    keep(ledger, grown)
    return grown


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
