"""Result files to runs, and runs to experiments: finds the tool, tells its traps, compares two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import planner.experiments.imports
from goodwatch.core.errors import ConfigError
from goodwatch.core.registry import adapters
from planner.experiments.benchmark import Benchmark, Document, Importer, Statistic, document
from planner.experiments.traps import traps
from planner.experiments.values import Arm, Experiment, FixedInput, Hardware, Measured, Metric, Run

#: what is compared where both sides have it, most wanted first
METRICS: Final = (
    Metric("output_tokens_per_s", "tokens/s", "higher", "mean"),
    Metric("total_tokens_per_s", "tokens/s", "higher", "mean"),
    Metric("requests_per_s", "requests/s", "higher", "mean"),
    Metric("good_requests_per_s", "requests/s", "higher", "mean"),
    Metric("ttft_s", "s", "lower", "mean"),
    Metric("tpot_s", "s", "lower", "mean"),
    Metric("itl_s", "s", "lower", "mean"),
    Metric("e2e_s", "s", "lower", "mean"),
)
#: what no clock makes negative; how late a request was scheduled may be, by jitter
_TIMES: Final = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "latency_per_token_s")
_NOT_RECOGNISED: Final = "no known tool wrote it"


def importers() -> Mapping[str, Importer]:
    """Every importer by name."""
    return adapters(planner.experiments.imports, "IMPORTER", Importer, group="goodwatch.benchmark_importers")


def read_benchmarks(name: str, text: str, known: Mapping[str, Importer] | None = None) -> tuple[Benchmark, ...]:
    """The runs of a result file, with what must be known about them in ``findings``.

    Raises
    ------
    ConfigError
        It cannot be parsed, or nobody knows its form; says which forms are known.
    """
    file = document(name, text)
    for importer in sorted((known or importers()).values(), key=lambda one: (one.last, one.name)):
        if importer.recognises(file):
            runs = [run for each in _read(importer, file) if (run := possible(each)).statistics or run.rates]
            if runs:
                return tuple(replace(run, findings=traps(run)) for run in runs)
    titles = "; ".join(one.title for one in (known or importers()).values())
    raise ConfigError(f"{name}: {_NOT_RECOGNISED}; known are {titles}")


def _read(importer: Importer, file: Document) -> tuple[Benchmark, ...]:
    try:
        return importer.read(file)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"{file.name}: looks like {importer.title}, but is not: {error!r}") from error


def possible(run: Benchmark) -> Benchmark:
    """A run without what cannot be: times, counts and rates below 0. Each is told in ``findings``."""
    counts = {"ok": run.ok, "failed": run.failed, "cut_off": run.cut_off, "duration_s": run.duration_s}
    below = [name for name, value in counts.items() if (value or 0.0) < 0]
    counts |= dict.fromkeys(below)
    gone = [one.name for one in run.statistics if one.name in _TIMES and _negative(one)]
    slow = [name for name, value in run.rates.items() if value < 0]
    if not (below or gone or slow):
        return run
    said = f"{', '.join((*below, *gone, *slow))}: below 0 in the file, which cannot be; left out"
    return replace(
        run, statistics=tuple(one for one in run.statistics if one.name not in gone), findings=(*run.findings, said),
        rates={name: value for name, value in run.rates.items() if name not in slow}, ok=counts["ok"],
        failed=counts["failed"], cut_off=counts["cut_off"], duration_s=counts["duration_s"],
    )  # fmt: skip


def _negative(one: Statistic) -> bool:
    told = (one.mean, one.least, one.most, *(value for _, value in one.quantiles))
    return any(value is not None and value < 0 for value in told)


def run_of(benchmark: Benchmark, position: int, block: int | None = None, gpus: float | None = None) -> Run:
    """A benchmark as one repeat: raw values where the file has them, else its means; rates as they are."""
    measures = {}
    for metric in metrics_of([benchmark]):
        value = benchmark.rates.get(metric.name)
        one = benchmark.statistic(metric.name)
        if value is not None:
            measures[metric.name] = Measured((value,))
        elif one is not None and one.values:
            measures[metric.name] = Measured(one.values)
        elif one is not None and one.mean is not None:
            measures[metric.name] = Measured((one.mean,))
    return Run(
        position, measures, block, started_s=benchmark.started_s, duration_s=benchmark.duration_s, gpus=gpus,
        level=benchmark.concurrency,
    )  # fmt: skip


def metrics_of(runs: Sequence[Benchmark]) -> tuple[Metric, ...]:
    """What these runs can be compared in: what files define themselves, then the known ones.

    Raises
    ------
    ConfigError
        Two files define one name differently: then the units are mixed.
    """
    fixed = {metric.name: metric for metric in METRICS}
    found: dict[str, Metric] = {}
    for run in runs:
        for metric in run.metrics:
            known = found.setdefault(metric.name, fixed.get(metric.name, metric))
            if (known.unit, known.better, known.summary) != (metric.unit, metric.better, metric.summary):
                raise ConfigError(
                    f"{metric.name} is in {known.unit}, {known.better} is better, and in {metric.unit}, {metric.better} is"
                    " better; use one unit and one direction in all files"
                )
    return (*found.values(), *(metric for metric in METRICS if metric.name not in found))


def compared(
    id: str,
    baseline: Sequence[Benchmark],
    candidate: Sequence[Benchmark],
    *,
    question: str = "",
    hashes: Mapping[str, str] | None = None,
    primary: str | None = None,
    at_s: float | None = None,
) -> Experiment:
    """An experiment of the runs of two sides. Without start times in the files, theirs is the order in which they come.

    Raises
    ------
    ConfigError
        A side is empty, the two have no metric in common, or their load differs.
    """  # fmt: skip
    if not baseline or not candidate:
        raise ConfigError("compare: both sides need at least one run")
    unlike = _unlike(baseline, candidate)
    if unlike:
        raise ConfigError(f"compare: {unlike}; compare runs of one load")
    ordered = _ordered(baseline, candidate)
    runs: tuple[list[Run], list[Run]] = ([], [])
    for position, (side, one) in enumerate(ordered):
        runs[side].append(run_of(one, position))
    known = metrics_of([*baseline, *candidate])
    common = [m for m in known if all(any(m.name in run.measures for run in side) for side in runs)]
    if primary is not None:
        common.sort(key=lambda metric: metric.name != primary)
    if not common or (primary is not None and common[0].name != primary):
        raise ConfigError(f"compare: {primary or 'no metric'} is in both sides; see what `bench import` finds in each")
    notes = tuple(dict.fromkeys(said for side in (baseline, candidate) for one in side for said in one.findings))
    if any(one.started_s is None for one in (*baseline, *candidate)):
        notes += ("the files do not say when each run was made: they are taken in the order in which they were named",)
    inputs = tuple(FixedInput(name, sha) for name, sha in sorted((hashes or {}).items()))
    first = baseline[0]
    return Experiment(
        id, question or "Does the second side do better than the first?", "imported", Arm("baseline", tuple(runs[0])),
        Arm("candidate", tuple(runs[1])), tuple(common), state="done", created_s=at_s, model=first.model,
        engine=first.engine, hardware=Hardware(), inputs=inputs,
        boundary=f"client: {first.tool}'s own stopwatch, request sent to last token", notes=notes,
    )  # fmt: skip


def _ordered(a: Sequence[Benchmark], b: Sequence[Benchmark]) -> list[tuple[int, Benchmark]]:
    """(side, run) in the order in which they were made, as far as the files tell."""
    sided = [*((0, one) for one in a), *((1, one) for one in b)]
    if all(one.started_s is not None for _, one in sided):
        sided.sort(key=lambda pair: pair[1].started_s or 0.0)
    return sided


def _unlike(a: Sequence[Benchmark], b: Sequence[Benchmark]) -> str:
    """In what the load of the two sides differs, or of the runs of one side; "" when in nothing that the files tell."""
    for name in ("tool", "concurrency", "request_rate"):
        found = {getattr(one, name) for one in (*a, *b)} - {None}
        if len(found) > 1:
            return f"{name.replace('_', ' ')} is {' and '.join(sorted(map(str, found)))}"
    return ""


def share_change(before: Statistic, after: Statistic) -> str | None:
    """What a change of a share means, in points and for the rest; None unless both means are shares 0..1.

    A hit ratio that rises by 19 points is 30 % more hits and half the misses; neither is a change of speed.

    Examples
    --------
    >>> one, other = Statistic("hit_ratio", "ratio", "run", mean=0.634), Statistic("hit_ratio", "ratio", "run", mean=0.826)
    >>> share_change(one, other)
    'hit_ratio +19.2 points (+30 % of it; what is left over changes by −52 %); says nothing about time: measure that too'
    """
    if before.unit != "ratio" or before.mean is None or after.mean is None or not 0 < before.mean < 1:
        return None
    points = (after.mean - before.mean) * 100
    relative = (after.mean / before.mean - 1) * 100
    rest = ((1 - after.mean) / (1 - before.mean) - 1) * 100
    said = f"{before.name} {points:+.1f} points ({relative:+.0f} % of it; what is left over changes by {rest:+.0f} %)"
    return f"{said.replace('-', '−')}; says nothing about time: measure that too"
