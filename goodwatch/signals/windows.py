"""What happened on one target and model in a window: sums of increases, and gauges with their edges. Pure.

A window reaches from one scrape to another; its edges are those instants, so that counts are exact within it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import polars as pl

from goodwatch.core.histogram import merged
from goodwatch.core.model import Histogram
from goodwatch.signals.increments import fold_histograms

Series = tuple[str, str]  # signal, part
Span = tuple[float, float]  # start and end, Unix seconds

_MINUTE_S: Final = 60.0
#: a target that was not tried to be read for longer was not there
_GAP_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge over a window; ``before`` is its last value ahead of the window, None when unknown."""

    mean: float
    min: float
    max: float
    last: float
    before: float | None = None


@dataclass(frozen=True, slots=True)
class TargetWindow:
    """One target and model in a window. Absent keys mean that the engine does not tell, not zero."""

    target: str
    service: str
    model: str
    engine: str
    start_s: float
    end_s: float
    counters: Mapping[Series, float] = field(default_factory=dict)
    histograms: Mapping[Series, Histogram] = field(default_factory=dict)
    gauges: Mapping[Series, Gauge] = field(default_factory=dict)
    held: tuple[Span, ...] | None = None  # when the target was there, up or down; None: all the time

    @property
    def held_s(self) -> float:
        """Seconds of the window in which the target was there: read, or tried to be read. Its GPUs cost as long."""
        return self.end_s - self.start_s if self.held is None else sum(end - start for start, end in self.held)

    def counter(self, signal: str, part: str | None = None) -> float | None:
        """Increase of a counter, summed over parts, or of the parts that start with ``part``; None when absent."""
        found = [v for (s, p), v in self.counters.items() if s == signal and (part is None or p.startswith(part))]
        return sum(found) if found else None

    def histogram(self, signal: str, part: str | None = None) -> Histogram | None:
        """Increase of a histogram over parts on their shared bounds, or of one part; None when absent."""
        return merged(h for (s, p), h in self.histograms.items() if s == signal and (part is None or p == part))

    def parts(self, signal: str) -> set[str]:
        """The parts that a histogram or counter is split into."""
        return {p for s, p in (*self.histograms, *self.counters) if s == signal}

    def gauge(self, signal: str) -> Gauge | None:
        """A gauge without parts; None when absent."""
        return self.gauges.get((signal, ""))

    @property
    def seconds(self) -> float:
        """Time that the counts cover: from scrape to scrape, which after a gap is more than the window."""
        return self.counter("covered_seconds_total") or 0.0

    @property
    def broken(self) -> str:
        """Why counts of this window may miss requests, for a person; "" when they do not.

        A failed scrape alone loses nothing, since counters run on; a restart or a silent end does.
        """
        if self.counter("restarts_total"):
            return "the engine restarted: what ended after its last scrape is not known"
        up = self.gauge("up")
        if up is not None and up.last == 0:
            return "the target could not be read at the end of the window"
        return ""


def target_windows(rows: pl.DataFrame, before: pl.DataFrame, start_s: float, end_s: float) -> list[TargetWindow]:
    """Windows of every target and model in ``rows``.

    Parameters
    ----------
    rows
        ``frames.MINUTES`` rows that belong to the window (steps or minutes).
    before
        Rows ahead of the window, for the gauges' values at its start; may be empty.
    start_s, end_s
        The window's edges, as shown.
    """
    if rows.is_empty():
        return []
    keys = ("target", "service", "model", "signal", "part")
    engines = {r[0]: r[1] for r in rows.group_by("target").agg(pl.col("engine").max()).iter_rows()}
    counters = rows.filter(pl.col("kind") == "counter").group_by(*keys).agg(pl.col("increase").sum())
    histograms = fold_histograms(rows.filter(pl.col("kind") == "histogram"), keys)
    gauges = (
        rows.filter(pl.col("kind") == "gauge")
        .sort("minute_s")
        .group_by(*keys, maintain_order=True)
        .agg(pl.col("mean").mean(), pl.col("min").min(), pl.col("max").max(), pl.col("last").last())
    )
    edges = _edges(before)
    collected: dict[tuple[str, str, str], _Collected] = {}
    for row in counters.iter_rows(named=True):
        _of(collected, row).counters[(row["signal"], row["part"])] = row["increase"]
    for row in histograms.iter_rows(named=True):
        _of(collected, row).histograms[(row["signal"], row["part"])] = Histogram(
            tuple(row["le"]), tuple(row["count"]), row["sum"]
        )
    for row in gauges.iter_rows(named=True):
        edge = edges.get((row["target"], row["model"], row["signal"], row["part"]))
        _of(collected, row).gauges[(row["signal"], row["part"])] = Gauge(
            row["mean"], row["min"], row["max"], row["last"], edge
        )
    held = _held(rows, before, start_s, end_s)
    return [replace(one, held=held[one.target]) for one in _assembled(collected, engines, start_s, end_s)]


def _held(rows: pl.DataFrame, before: pl.DataFrame, start_s: float, end_s: float) -> dict[str, tuple[Span, ...]]:
    """When each target was there, by the minutes in which somebody tried to read it.

    Short gaps are a restart of goodwatch; in longer ones nobody knows, and a replica that was scaled away is not paid for.
    """
    minutes = pl.concat([before.select("target", "minute_s"), rows.select("target", "minute_s")]).unique()
    found: dict[str, tuple[Span, ...]] = {}
    for target, times in minutes.group_by("target").agg(pl.col("minute_s").sort()).iter_rows():
        spans: list[list[float]] = []
        for at in times:
            if spans and at - spans[-1][1] <= _GAP_S:
                spans[-1][1] = at + _MINUTE_S
            else:  # a row tells of the time up to it; and what answers was started before
                spans.append([at - _MINUTE_S, at + _MINUTE_S])
        if end_s - spans[-1][1] <= _GAP_S:
            spans[-1][1] = max(spans[-1][1], end_s)  # the newest minutes may not be there yet
        inside = ((max(start, start_s), min(end, end_s)) for start, end in spans)
        found[target] = tuple((start, end) for start, end in inside if start < end)
    return found


@dataclass(slots=True)
class _Collected:
    counters: dict[Series, float] = field(default_factory=dict)
    histograms: dict[Series, Histogram] = field(default_factory=dict)
    gauges: dict[Series, Gauge] = field(default_factory=dict)


def _of(collected: dict[tuple[str, str, str], _Collected], row: dict[str, Any]) -> _Collected:
    return collected.setdefault((row["target"], row["service"], row["model"]), _Collected())


def _edges(before: pl.DataFrame) -> dict[tuple[str, str, str, str], float]:
    if before.is_empty():
        return {}
    last = (
        before.filter(pl.col("kind") == "gauge")
        .sort("minute_s")
        .group_by("target", "model", "signal", "part", maintain_order=True)
        .agg(pl.col("last").last())
    )
    return {(r[0], r[1], r[2], r[3]): r[4] for r in last.iter_rows()}


def _assembled(
    collected: dict[tuple[str, str, str], _Collected], engines: Mapping[str, str], start_s: float, end_s: float
) -> list[TargetWindow]:
    """Give every model of a target what the target tells without a model (up, restarts, HTTP)."""
    windows: list[TargetWindow] = []
    for (target, service, model), one in sorted(collected.items()):
        common = collected.get((target, service, ""))
        has_models = any(t == target and s == service and m for t, s, m in collected)
        if not model and has_models:
            continue
        if model and common is not None:
            one.counters = {**common.counters, **one.counters}
            one.histograms = {**common.histograms, **one.histograms}
            one.gauges = {**common.gauges, **one.gauges}
        windows.append(
            TargetWindow(
                target, service, model, engines[target], start_s, end_s, one.counters, one.histograms, one.gauges
            )
        )
    return windows
