"""The embedded store: one DuckDB file, one process, no server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from collector.stores import _sql
from collector.stores._database import journal_of
from collector.stores._held import HeldFile, size_bytes
from collector.stores._numbers import Numbers
from collector.stores._schema import DATABASE
from collector.stores._terms import (
    DERIVED_KEY,
    MINUTES_KEY,
    Retention,
    StoreHealth,
    check_times,
    conform,
    same_facts,
)
from goodwatch.core.clock import Clock
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Deployment, Sample, Scrape
from goodwatch.signals.frames import DERIVED, MINUTES, SAMPLES, SCRAPES

__all__ = ["DuckDBStore", "Retention", "StoreHealth"]

DEFAULT_RETENTION: Final = Retention()


class DuckDBStore(HeldFile["_Open"]):
    """A ``SampleStore`` in the DuckDB file at ``path``, which is created when it is missing.

    A commit is on the disk before the method returns. After a fault the file is let go; the next call opens it again,
    and so it works as soon as the fault is gone. One store per file: a second one in the same process is not guarded
    against, one in another process is refused. Safe to use from several threads; calls run one after another.
    """

    def __init__(self, path: Path, *, retention: Retention = DEFAULT_RETENTION, clock: Clock | None = None) -> None:
        super().__init__(path, clock)
        self._retention = retention
        with self._lock:
            self._file()

    def append(self, scrapes: Sequence[Scrape]) -> None:
        """Commit scrapes (samples and up/down rows) in one transaction."""
        check_times(scrapes)
        with self._transaction("append scrapes") as opened:
            rows = [opened.sample_row(sample) for scrape in scrapes for sample in scrape.samples]
            opened.write_numbers()
            opened.insert("samples", rows)
            opened.insert(
                "scrapes",
                [
                    (s.ts, s.target, s.service, s.up, s.duration_s, s.reason, s.error, s.body_bytes, s.page_samples)
                    for s in scrapes
                ],
            )

    def samples(
        self,
        start_s: float,
        end_s: float,
        *,
        service: str | None = None,
        target: str | None = None,
        signals: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Samples in ``[start_s, end_s)`` as ``frames.SAMPLES``, sorted by ts."""
        wanted = {"service": service, "target": target, "signals": None if signals is None else list(signals)}
        return self._read("samples", SAMPLES, {"start": start_s, "end": end_s, **wanted})

    def scrapes(
        self, start_s: float, end_s: float, *, service: str | None = None, target: str | None = None
    ) -> pl.DataFrame:
        """Scrapes in ``[start_s, end_s)`` as ``frames.SCRAPES``, sorted by ts."""
        return self._read("scrapes", SCRAPES, {"start": start_s, "end": end_s, "service": service, "target": target})

    def append_minutes(self, minutes: pl.DataFrame) -> None:
        """Commit per-minute increases (``frames.MINUTES``); the same minute of the same series replaces."""
        frame = conform(minutes, MINUTES, MINUTES_KEY, "minutes")
        with self._transaction("append minutes") as opened:
            rows = [opened.minute_row(row) for row in frame.iter_rows(named=True)]
            opened.write_numbers()
            if rows:
                keys = {"minute_s": [row[0] for row in rows], "series": [row[1] for row in rows]}
                opened.connection.execute(_sql.REPLACE_MINUTES, keys)
            opened.insert("minutes", rows)

    def minutes(
        self,
        start_s: float,
        end_s: float,
        *,
        service: str | None = None,
        target: str | None = None,
        signals: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Minutes that start in ``[start_s, end_s)`` as ``frames.MINUTES``, sorted by minute_s."""
        wanted = {"service": service, "target": target, "signals": None if signals is None else list(signals)}
        return self._read("minutes", MINUTES, {"start": start_s, "end": end_s, **wanted})

    def append_derived(self, derived: pl.DataFrame) -> None:
        """Commit derived numbers (``frames.DERIVED``); the same key again replaces."""
        frame = conform(derived, DERIVED, DERIVED_KEY, "derived")
        with self._transaction("append derived numbers") as opened:
            if not frame.is_empty():
                opened.connection.execute(_sql.REPLACE_DERIVED, {key: frame[key].to_list() for key in DERIVED_KEY})
            opened.insert("derived", frame.rows())

    def derived(
        self, start_s: float, end_s: float, *, service: str | None = None, name: str | None = None
    ) -> pl.DataFrame:
        """Derived numbers whose window ends in ``[start_s, end_s)`` as ``frames.DERIVED``, sorted by ts."""
        return self._read("derived", DERIVED, {"start": start_s, "end": end_s, "service": service, "name": name})

    def record_deployment(self, deployment: Deployment) -> bool:
        """Keep what a target runs if it differs from what was recorded last; True when it was a change."""
        with self._lock:
            last = self._deployments("the last deployment", _sql.LAST_DEPLOYMENT, {"target": deployment.target})
            if last and same_facts(last[0], deployment):
                return False
            with self._transaction("record a deployment") as opened:
                opened.connection.execute(_sql.ADD_DEPLOYMENT, _deployment_row(deployment))
        return True

    def deployments(self, start_s: float, end_s: float, *, service: str | None = None) -> list[Deployment]:
        """Deployment changes in ``[start_s, end_s)``, oldest first."""
        return self._deployments("deployments", _sql.DEPLOYMENTS, {"start": start_s, "end": end_s, "service": service})

    def compact(self, now_s: float) -> int:
        """Drop what is past its retention and give its room back; returns rows dropped."""
        keep = self._retention
        cutoffs = {
            "samples": now_s - keep.samples_s,
            "minutes": now_s - keep.minutes_s,
            "derived": now_s - keep.derived_s,
            "longest": now_s - keep.longest_s,
        }
        with self._lock:
            with self._transaction("drop what is past its retention") as opened:
                dropped = sum(opened.delete(statement, {name: cutoffs[name]}) for statement, name in _sql.EXPIRE)
                opened.delete(_sql.DROP_UNUSED_SERIES)
                opened.delete(_sql.DROP_UNUSED_BOUNDS)
                dropped += opened.delete(_sql.EXPIRE_DEPLOYMENTS, {"longest": cutoffs["longest"]})
                opened.read_numbers()
            with self._guard("write the journal back") as opened:
                opened.connection.execute("checkpoint")
        return dropped

    def health(self) -> StoreHealth:
        """State and extent; never raises, and opens the file again if it can."""
        oldest_s: float | None = None
        newest_s: float | None = None
        trouble = self._fault
        try:
            with self._guard("read its extent") as opened:
                ((oldest_s, newest_s),) = opened.connection.execute(_sql.EXTENT).fetchall()
        except StoreError as error:
            trouble = str(error)
        return StoreHealth(
            ok=trouble is None,
            message=trouble or "",
            bytes=size_bytes(self._path) + size_bytes(journal_of(self._path)),
            oldest_s=oldest_s,
            newest_s=newest_s,
            last_commit_s=self._last_commit_s,
        )

    def _read(self, table: str, schema: Mapping[str, Any], wanted: Mapping[str, Any]) -> pl.DataFrame:
        with self._guard(f"read {table}") as opened:
            relation = opened.connection.sql(_sql.READ[table], params=wanted)
            # polars takes the result over the Arrow C interface, for which neither side needs pyarrow
            return pl.DataFrame(relation).select(pl.col(name).cast(dtype) for name, dtype in schema.items())

    def _deployments(self, what: str, query: str, wanted: Mapping[str, Any]) -> list[Deployment]:
        with self._guard(f"read {what}") as opened:
            rows = opened.connection.execute(query, wanted).fetchall()
        return [
            Deployment(ts, target, service, engine, version, model, json.loads(facts))
            for ts, target, service, engine, version, model, facts in rows
        ]

    def _opened(self) -> _Open:
        return _Open(DATABASE.connect(self._path))


class _Open:
    """A connection and the numbers that its file gives to series and bounds."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.read_numbers()

    def read_numbers(self) -> None:
        """Forget and read again which number is which series and which bounds."""
        series = self.connection.execute("from series").fetchall()
        bounds = self.connection.execute("from bounds").fetchall()
        self._series = Numbers[tuple[str, ...]]((row[0], row[1:]) for row in series)
        self._bounds = Numbers[tuple[float, ...]]((number, tuple(le)) for number, le in bounds)

    def write_numbers(self) -> None:
        """Insert the numbers that rows of this transaction are the first to use."""
        self.insert("series", [(number, *key) for number, key in self._series.taken()])
        self.insert("bounds", [(number, list(le)) for number, le in self._bounds.taken()])

    def sample_row(self, sample: Sample) -> tuple[Any, ...]:
        """A row of the table ``samples``."""
        key = (
            sample.target, sample.service, sample.model, sample.engine,
            sample.engine_version, sample.rank, sample.signal, sample.part,
        )  # fmt: skip
        series = self._series(key)
        histogram = sample.histogram
        if histogram is None:
            return (sample.ts, series, sample.value, None, None, None)
        bounds = self._bounds(histogram.le)
        return (sample.ts, series, sample.value, histogram.sum, bounds, list(histogram.count))

    def minute_row(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """A row of the table ``minutes`` from a row of ``frames.MINUTES``."""
        series = self._series(
            (row["target"], row["service"], row["model"], row["engine"], "", "", row["signal"], row["part"])
        )
        bounds = None if row["le"] is None else self._bounds(tuple(row["le"]))
        return (
            row["minute_s"], series, row["kind"], row["increase"], row["sum"], bounds, row["count"],
            row["mean"], row["min"], row["max"], row["last"],
        )  # fmt: skip

    def insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows in the order of the table's columns."""
        if rows:
            with self.connection.appender(table) as appender:
                appender.append_rows(rows)

    def delete(self, statement: str, wanted: Mapping[str, Any] | None = None) -> int:
        """Run a delete; returns rows deleted."""
        ((count,),) = self.connection.execute(statement, wanted).fetchall()
        return int(count)


def _deployment_row(deployment: Deployment) -> list[Any]:
    return [
        deployment.ts, deployment.target, deployment.service, deployment.engine, deployment.engine_version,
        deployment.model, json.dumps(deployment.facts, sort_keys=True),
    ]  # fmt: skip
