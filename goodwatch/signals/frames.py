"""The frames that pass between stages: one schema each. Times are Unix seconds UTC."""

import math
from collections.abc import Iterable
from typing import Any, Final

import polars as pl

from goodwatch.core.model import Histogram, Sample, Scrape

KEYS: Final = ("target", "service", "model", "engine", "engine_version", "rank", "signal", "part")

#: one row per canonical series and scrape; ``value`` for gauges and counters, the lists for histograms.
#: ``count`` is cumulative over ``le``; both end with +Inf and have equal length.
SAMPLES: Final[dict[str, Any]] = {
    "ts": pl.Float64,
    **dict.fromkeys(KEYS, pl.String),
    "value": pl.Float64,
    "sum": pl.Float64,
    "le": pl.List(pl.Float64),
    "count": pl.List(pl.Float64),
}

#: one row per scrape, failed ones included. ``instance`` counts restarts seen so far (see signals.increase).
SCRAPES: Final[dict[str, Any]] = {
    "ts": pl.Float64,
    "target": pl.String,
    "service": pl.String,
    "up": pl.Boolean,
    "duration_s": pl.Float64,
    "reason": pl.String,
    "error": pl.String,
    "body_bytes": pl.Int64,
    "page_samples": pl.Int64,
}

#: per minute and series: counters and histograms as increases within ``[minute_s, minute_s + 60)``,
#: gauges as mean, min, max and last. ``engine_version`` is left out so that an upgrade does not split a series.
MINUTES: Final[dict[str, Any]] = {
    "minute_s": pl.Float64,
    "target": pl.String,
    "service": pl.String,
    "model": pl.String,
    "engine": pl.String,
    "signal": pl.String,
    "part": pl.String,
    "kind": pl.String,  # gauge, counter, histogram
    "increase": pl.Float64,  # counter: increase; histogram: observations
    "sum": pl.Float64,  # histogram: increase of the sum
    "le": pl.List(pl.Float64),
    "count": pl.List(pl.Float64),  # histogram: cumulative increase per bound
    "mean": pl.Float64,
    "min": pl.Float64,
    "max": pl.Float64,
    "last": pl.Float64,
}

#: numbers as they were published: one row per name, scope and window end.
#: ``value`` for a point, ``low``/``high`` for an interval; ``note`` says why all three are null.
DERIVED: Final[dict[str, Any]] = {
    "ts": pl.Float64,  # end of the window
    "window_s": pl.Float64,
    "service": pl.String,
    "target": pl.String,  # "" for the whole service
    "model": pl.String,  # "" for all models
    "name": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "basis": pl.String,
    "note": pl.String,
}


def samples_frame(samples: Iterable[Sample]) -> pl.DataFrame:
    """Samples as a frame of ``SAMPLES``."""
    rows = [
        (
            s.ts, s.target, s.service, s.model, s.engine, s.engine_version, s.rank, s.signal, s.part, s.value,
            s.histogram.sum if s.histogram else None,
            list(s.histogram.le) if s.histogram else None,
            list(s.histogram.count) if s.histogram else None,
        )
        for s in samples
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SAMPLES, orient="row")


def scrapes_frame(scrapes: Iterable[Scrape]) -> pl.DataFrame:
    """Scrapes as a frame of ``SCRAPES``."""
    rows = [
        (s.ts, s.target, s.service, s.up, s.duration_s, s.reason, s.error, s.body_bytes, s.page_samples)
        for s in scrapes
    ]
    return pl.DataFrame(rows, schema=SCRAPES, orient="row")


def histogram_of(le: list[float], count: list[float], total_sum: float | None) -> Histogram:
    """One histogram cell of a frame as a value."""
    return Histogram(tuple(le), tuple(count), None if total_sum is None or math.isnan(total_sum) else total_sum)
