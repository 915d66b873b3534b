"""Traffic of one service as a Prometheus scrapes it and as goodwatch does: the same values at the same instants."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from goodwatch.core.counter import Tracker
from goodwatch.core.model import Histogram, Sample, Scrape
from goodwatch.signals.increments import fold, rows_frame, step_rows
from tests.alerts.services import OPTIONS

SCRAPE_S: Final = 15.0
#: a whole day, so that every window begins on a whole minute
BEGIN_S: Final = 1_800_000_000 // 86_400 * 86_400.0
#: scrapes are not on the minute: Prometheus 2 and 3 do not agree on what belongs to an edge
_OFFSET_S: Final = 7.0


@dataclass(frozen=True, slots=True)
class Phase:
    """Steady traffic for some minutes. ``seen`` False: no scrape at all; ``told`` False: a page without the series."""

    minutes: int
    per_min: int
    bad_per_min: int = 0
    seen: bool = True
    told: bool = True
    reset: bool = False
    pod: str = "a"


@dataclass(frozen=True, slots=True)
class Point:
    """One scrape: cumulative requests and bad ones of a pod; None where the page does not have the series."""

    ts: float
    pod: str
    total: float | None
    bad: float


def points(phases: Sequence[Phase]) -> Iterator[Point]:
    """Every scrape of some phases; the requests of a minute come evenly, and those that do not divide come first."""
    at, total, bad, pod = BEGIN_S, 0, 0, ""
    for phase in phases:
        if phase.reset or phase.pod != pod:
            total = bad = 0
        pod = phase.pod
        for _ in range(phase.minutes):
            for quarter in range(4):
                total += _part(phase.per_min, quarter)
                bad += _part(phase.bad_per_min, quarter)
                if phase.seen:
                    yield Point(at + quarter * SCRAPE_S + _OFFSET_S, pod, total if phase.told else None, bad)
            at += 60.0


def _part(per_min: int, quarter: int) -> int:
    whole, rest = divmod(per_min, 4)
    return whole + (quarter < rest)


def length_min(phases: Sequence[Phase]) -> int:
    """Minutes of all phases."""
    return sum(phase.minutes for phase in phases)


def openmetrics(jobs: dict[str, Sequence[Phase]]) -> str:
    """All scenarios as one history, a job for each; families together, as the format asks."""
    families: dict[str, list[str]] = {"up": [], "vllm:time_to_first_token_seconds": []}
    for job, phases in jobs.items():
        for point in points(phases):
            labels = f'job="{job}",instance="{point.pod}"'
            families["up"].append(f"up{{{labels}}} 1 {point.ts}")
            if point.total is None:
                continue
            name, model = "vllm:time_to_first_token_seconds", f'{labels},model_name="m"'
            families[name] += [
                f'{name}_bucket{{{model},le="0.5"}} {point.total - point.bad} {point.ts}',
                f'{name}_bucket{{{model},le="+Inf"}} {point.total} {point.ts}',
                f"{name}_count{{{model}}} {point.total} {point.ts}",
                f"{name}_sum{{{model}}} {point.total * 0.1:.1f} {point.ts}",
            ]
    up, latency = families.values()
    latency.sort(key=lambda line: (line.rpartition("}")[0], float(line.rpartition(" ")[2])))
    head = "# TYPE vllm:time_to_first_token_seconds histogram"
    return "\n".join(["# TYPE up gauge", *up, head, *latency, "# EOF", ""])


def minutes(service: str, phases: Sequence[Phase]) -> pl.DataFrame:
    """``frames.MINUTES`` as the running service folds them."""
    trackers: dict[str, Tracker] = {}
    rows = []
    for point in points(phases):
        tracker = trackers.setdefault(point.pod, Tracker())
        samples: tuple[Sample, ...] = (_gauge(point, service),)
        if point.total is not None:
            samples += (_histogram(point, service, point.total),)
        step = tracker.advance(Scrape(point.ts, point.pod, service, up=True, duration_s=0.01, samples=samples))
        rows += step_rows(step, tracker, OPTIONS.engines["vllm"])
    return fold(rows_frame(rows))


def _histogram(point: Point, service: str, total: float) -> Sample:
    histogram = Histogram((0.5, math.inf), (total - point.bad, total), total * 0.1)
    return Sample(point.ts, point.pod, service, "m", "vllm", "0.32.0", "", "ttft_seconds", histogram=histogram)


def _gauge(point: Point, service: str) -> Sample:
    return Sample(point.ts, point.pod, service, "m", "vllm", "0.32.0", "", "requests_running", value=1.0)


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of an engine: its name and labels on the page, what goodwatch calls it, and what it gains a minute."""

    family: str
    labels: str
    signal: str
    part: str
    per_min: int
    from_min: int = 0  # it is on the page from this minute on, as engines create label sets at the first event


def counters_openmetrics(job: str, counters: Sequence[Counter], minutes_long: int) -> str:
    """Counters that run evenly, scraped as above."""
    text: list[str] = []
    for family in sorted({one.family for one in counters}):
        text.append(f"# TYPE {family} counter")
        for one in (one for one in counters if one.family == family):
            for ts, value in _running(one, minutes_long):
                text.append(f'{family}_total{{job="{job}",instance="a",{one.labels}}} {value} {ts}')
    return "\n".join([*text, "# EOF", ""])


def counters_minutes(service: str, engine: str, counters: Sequence[Counter], minutes_long: int) -> pl.DataFrame:
    """The same as goodwatch folds it."""
    at: dict[float, list[Sample]] = {}
    for one in counters:
        for ts, value in _running(one, minutes_long):
            sample = Sample(ts, "a", service, "", engine, "1", "", one.signal, one.part, value=value)
            at.setdefault(ts, []).append(sample)
    tracker, rows = Tracker(), []
    for ts, samples in sorted(at.items()):
        step = tracker.advance(Scrape(ts, "a", service, up=True, duration_s=0.01, samples=tuple(samples)))
        rows += step_rows(step, tracker, OPTIONS.engines[engine])
    return fold(rows_frame(rows))


def _running(one: Counter, minutes_long: int) -> Iterator[tuple[float, float]]:
    value = 0
    for minute in range(minutes_long):
        for quarter in range(4):
            if minute >= one.from_min:
                value += _part(one.per_min, quarter)
                yield BEGIN_S + 60 * minute + quarter * SCRAPE_S + _OFFSET_S, float(value)
