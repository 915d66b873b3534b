"""The store as plain Python: what every other store must do, kept for as long as the process lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from collector.stores._terms import (
    DERIVED_KEY,
    DERIVED_ORDER,
    MINUTES_KEY,
    MINUTES_ORDER,
    SAMPLES_ORDER,
    SCRAPES_ORDER,
    Retention,
    StoreHealth,
    check_times,
    conform,
    same_facts,
)
from goodwatch.core.clock import Clock, SystemClock
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Deployment, Scrape
from goodwatch.signals.frames import DERIVED, MINUTES, SAMPLES, SCRAPES, samples_frame, scrapes_frame

__all__ = ["MemoryStore", "Retention", "StoreHealth"]

DEFAULT_RETENTION: Final = Retention()


class MemoryStore:
    """A ``SampleStore`` in memory: for tests and for looking around; nothing survives the process."""

    def __init__(self, *, retention: Retention = DEFAULT_RETENTION, clock: Clock | None = None) -> None:
        self._retention = retention
        self._clock = clock or SystemClock()
        self._closed = False
        self._last_commit_s: float | None = None
        self._samples = pl.DataFrame(schema=SAMPLES)
        self._scrapes = pl.DataFrame(schema=SCRAPES)
        self._minutes = pl.DataFrame(schema=MINUTES)
        self._derived = pl.DataFrame(schema=DERIVED)
        self._deployments: list[Deployment] = []  # in the order of recording

    def append(self, scrapes: Sequence[Scrape]) -> None:
        """Keep scrapes; all of them or none."""
        self._ready()
        check_times(scrapes)
        samples = samples_frame(sample for scrape in scrapes for sample in scrape.samples)
        self._samples = pl.concat([self._samples, samples])
        self._scrapes = pl.concat([self._scrapes, scrapes_frame(scrapes)])
        self._committed()

    def samples(
        self,
        start_s: float,
        end_s: float,
        *,
        service: str | None = None,
        target: str | None = None,
        signals: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Samples in ``[start_s, end_s)`` as ``frames.SAMPLES``."""
        self._ready()
        chosen = _between(self._samples, "ts", start_s, end_s, service=service, target=target)
        return _with_signals(chosen, signals).sort(SAMPLES_ORDER, nulls_last=True)

    def scrapes(
        self, start_s: float, end_s: float, *, service: str | None = None, target: str | None = None
    ) -> pl.DataFrame:
        """Scrapes in ``[start_s, end_s)`` as ``frames.SCRAPES``."""
        self._ready()
        chosen = _between(self._scrapes, "ts", start_s, end_s, service=service, target=target)
        return chosen.sort(SCRAPES_ORDER, nulls_last=True)

    def append_minutes(self, minutes: pl.DataFrame) -> None:
        """Keep per-minute increases; the same minute of the same series replaces."""
        self._ready()
        new = conform(minutes, MINUTES, MINUTES_KEY, "minutes")
        self._minutes = pl.concat([self._minutes.join(new, on=MINUTES_KEY, how="anti", nulls_equal=True), new])
        self._committed()

    def minutes(
        self,
        start_s: float,
        end_s: float,
        *,
        service: str | None = None,
        target: str | None = None,
        signals: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Minutes that start in ``[start_s, end_s)`` as ``frames.MINUTES``."""
        self._ready()
        chosen = _between(self._minutes, "minute_s", start_s, end_s, service=service, target=target)
        return _with_signals(chosen, signals).sort(MINUTES_ORDER, nulls_last=True)

    def append_derived(self, derived: pl.DataFrame) -> None:
        """Keep derived numbers; the same key again replaces."""
        self._ready()
        new = conform(derived, DERIVED, DERIVED_KEY, "derived")
        self._derived = pl.concat([self._derived.join(new, on=DERIVED_KEY, how="anti", nulls_equal=True), new])
        self._committed()

    def derived(
        self, start_s: float, end_s: float, *, service: str | None = None, name: str | None = None
    ) -> pl.DataFrame:
        """Derived numbers whose window ends in ``[start_s, end_s)`` as ``frames.DERIVED``."""
        self._ready()
        chosen = _between(self._derived, "ts", start_s, end_s, service=service, name=name)
        return chosen.sort(DERIVED_ORDER, nulls_last=True)

    def record_deployment(self, deployment: Deployment) -> bool:
        """Keep what a target runs if it differs from what was recorded last; True when it was a change."""
        self._ready()
        before = [d for d in self._deployments if d.target == deployment.target]
        if before and same_facts(before[-1], deployment):
            return False
        self._deployments.append(deployment)
        self._committed()
        return True

    def deployments(self, start_s: float, end_s: float, *, service: str | None = None) -> list[Deployment]:
        """Deployment changes in ``[start_s, end_s)``, oldest first."""
        self._ready()
        chosen = [d for d in self._deployments if start_s <= d.ts < end_s and service in {None, d.service}]
        return sorted(chosen, key=lambda d: d.ts)

    def compact(self, now_s: float) -> int:
        """Drop what is past its retention; returns rows dropped."""
        self._ready()
        before = self._rows()
        keep = self._retention
        self._samples = self._samples.filter(pl.col("ts") >= now_s - keep.samples_s)
        self._scrapes = self._scrapes.filter(pl.col("ts") >= now_s - keep.samples_s)
        self._minutes = self._minutes.filter(pl.col("minute_s") >= now_s - keep.minutes_s)
        self._derived = self._derived.filter(pl.col("ts") >= now_s - keep.derived_s)
        self._drop_deployments(now_s - keep.longest_s)
        self._committed()
        return before - self._rows()

    def health(self) -> StoreHealth:
        """State and extent; ``bytes`` is what the frames take in memory."""
        frames = (self._samples, self._scrapes, self._minutes, self._derived)
        times = self._scrapes["ts"].to_list()
        return StoreHealth(
            ok=not self._closed,
            message="closed" if self._closed else "in memory: gone when the process ends",
            bytes=sum(int(frame.estimated_size()) for frame in frames),
            oldest_s=min(times, default=None),
            newest_s=max(times, default=None),
            last_commit_s=self._last_commit_s,
        )

    def close(self) -> None:
        """Refuse further use; safe to call twice."""
        self._closed = True

    def _ready(self) -> None:
        if self._closed:
            raise StoreError("the store in memory is closed: make a new one")

    def _committed(self) -> None:
        self._last_commit_s = self._clock.now_s()

    def _rows(self) -> int:
        frames = (self._samples, self._scrapes, self._minutes, self._derived)
        return sum(frame.height for frame in frames) + len(self._deployments)

    def _drop_deployments(self, cutoff_s: float) -> None:
        seen = {name for frame in (self._samples, self._scrapes, self._minutes) for name in frame["target"].unique()}
        kept: list[Deployment] = []
        for index, deployment in enumerate(self._deployments):
            later = [d for d in self._deployments[index + 1 :] if d.target == deployment.target]
            superseded = any(d.ts <= cutoff_s for d in later)
            if deployment.ts >= cutoff_s or (not superseded and deployment.target in seen):
                kept.append(deployment)
        self._deployments = kept


def _between(frame: pl.DataFrame, time: str, start_s: float, end_s: float, **equal: str | None) -> pl.DataFrame:
    chosen = frame.filter(pl.col(time) >= start_s, pl.col(time) < end_s)
    for column, wanted in equal.items():
        if wanted is not None:
            chosen = chosen.filter(pl.col(column) == wanted)
    return chosen


def _with_signals(frame: pl.DataFrame, signals: Sequence[str] | None) -> pl.DataFrame:
    return frame if signals is None else frame.filter(pl.col("signal").is_in(list(signals)))
