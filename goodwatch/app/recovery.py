"""Recent scrapes from the store, as they were taken: what a restarted goodwatch begins from. Blocking."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from goodwatch.core.model import Sample, Scrape
from goodwatch.core.ports import SampleStore
from goodwatch.signals.frames import histogram_of


@dataclass(slots=True)
class Recovered:
    """What the store knows of one target: recent scrapes, oldest first, and the last minute that it has folded."""

    scrapes: list[Scrape] = field(default_factory=list)
    folded_s: float = -math.inf


def recovered(store: SampleStore, now_s: float, span_s: float) -> Mapping[str, Recovered]:
    """Scrapes of the last ``span_s`` seconds by target. Raises ``StoreError``."""
    scrapes = store.scrapes(now_s - span_s, now_s)
    samples = store.samples(now_s - span_s, now_s)
    by_page = samples.partition_by("target", "ts", as_dict=True)
    found: dict[str, Recovered] = {}
    for row in scrapes.iter_rows(named=True):
        page = by_page.get((row["target"], row["ts"]))
        found.setdefault(row["target"], Recovered()).scrapes.append(_scrape(row, page))
    folded = store.minutes(now_s - span_s, now_s, signals=["up"]).group_by("target").agg(pl.col("minute_s").max())
    for target, minute_s in folded.iter_rows():
        if target in found:
            found[target].folded_s = minute_s
    return found


def _scrape(row: Mapping[str, Any], page: pl.DataFrame | None) -> Scrape:
    samples = () if page is None else tuple(_sample(s) for s in page.iter_rows(named=True))
    return Scrape(
        row["ts"], row["target"], row["service"], row["up"], row["duration_s"], samples, row["error"] or "",
        row["reason"] or "", row["body_bytes"] or 0, row["page_samples"] or 0,
    )  # fmt: skip


def _sample(row: Mapping[str, Any]) -> Sample:
    histogram = None if row["le"] is None else histogram_of(row["le"], row["count"], row["sum"])
    return Sample(
        row["ts"], row["target"], row["service"], row["model"], row["engine"], row["engine_version"], row["rank"],
        row["signal"], row["part"], row["value"], histogram,
    )  # fmt: skip
