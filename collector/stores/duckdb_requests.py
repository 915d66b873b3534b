"""The embedded request store: one DuckDB file of its own, one process, no server.

Measured on two cores (tests/bench/heatmap.py tells of reading): a part costs about 7 µs of CPU to commit, writing back
of the journal included, and 120 bytes on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from collector.stores import _request_schema as schema
from collector.stores import _request_sql as sql
from collector.stores._database import journal_of
from collector.stores._faults import store_error
from collector.stores._held import HeldFile, size_bytes
from collector.stores._request_file import OpenFile
from collector.stores._request_open import OpenTraces
from collector.stores._request_terms import (
    FACT_KEY,
    PART_KEY,
    SCORE_KEY,
    RequestRetention,
    check_sums,
    check_tier,
    check_tiers,
    check_wanted,
    shaped,
)
from collector.stores._terms import StoreHealth
from goodwatch.core.clock import Clock
from goodwatch.core.errors import StoreError
from goodwatch.signals.request_frames import BINS, FACTS, LATENCY_FIELDS, PARTS, ROLLUPS, SCORES

__all__ = ["DuckDBRequestStore", "RequestRetention", "StoreHealth"]

DEFAULT_RETENTION: Final = RequestRetention()

#: about 75 MB; at 3,000 parts per second the repeats of nearly three minutes are told before they are written
RECENT_IDS: Final = 500_000

#: about 100 MB; more wait in the file alone
OPEN_TRACES: Final = 300_000

#: after these DuckDB refuses the database until it is opened again
_BROKEN: Final = (duckdb.FatalException, duckdb.InternalException, duckdb.IOException, OSError)


class DuckDBRequestStore(HeldFile[OpenFile]):
    """A ``RequestStore`` in the DuckDB file at ``path``, which is created when it is missing.

    A commit is on the disk before the method returns. Writers wait for each other; readers have a connection of their
    own, see the last commit, and neither wait for writers nor hold them up. After a fault the file is let go and the
    next call opens it again, so that the store works as soon as the fault is gone. One store per file.

    A part that comes again is left out while its id is among the last ``recent_ids``. One that comes later is written
    again, and left out when its trace is read; the number that ``append_parts`` returns counts it. Its trace settles
    once more, with the same facts.
    """

    def __init__(
        self,
        path: Path,
        *,
        retention: RequestRetention = DEFAULT_RETENTION,
        recent_ids: int = RECENT_IDS,
        open_traces: int = OPEN_TRACES,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(path, clock)
        self._retention = retention
        self._recent_ids = recent_ids
        self._traces = OpenTraces(open_traces)
        with self._lock:
            self._file()

    def append_parts(self, batches: Sequence[pl.DataFrame]) -> int:
        """Commit parts in one transaction; returns rows that were not known."""
        try:
            together = pl.concat(batches, rechunk=True) if batches else pl.DataFrame(schema=PARTS)
        except pl.exceptions.PolarsError:  # not all of one shape
            together = pl.concat([shaped(batch, PARTS, "received_s", "parts") for batch in batches], rechunk=True)
        parts = shaped(together, PARTS, "received_s", "parts")
        with self._lock:
            with self._transaction("append parts") as file:
                new, ids = file.recent.unknown(parts)
                if not ids:
                    return 0
                seq = file.next_seq()
                file.insert("parts", new, seq)
            file.recent.add(ids)
            file.traces.add(new, seq)
        return new.height

    def parts(self, trace_ids: Sequence[str]) -> pl.DataFrame:
        """All parts of these traces as ``PARTS``, in the order of their commits."""
        ids = list(dict.fromkeys(trace_ids))
        with self._lock:
            file = self._file()
            read_at, first_seqs = file.seq, [file.traces.first_seq(one) for one in ids]
        with self._reading("read parts") as cursor:
            earlier = {one: first for one, first, _ in cursor.execute(sql.EARLIER, {"ids": ids}).fetchall()}
            ((since,),) = cursor.execute(sql.OPEN_SINCE).fetchall()
            # what neither waits in memory nor was settled can only be among what waits in the file
            starts = [
                min((s for s in (first, earlier.get(one)) if s is not None), default=since)
                for one, first in zip(ids, first_seqs, strict=True)
            ]
            found = _frame(cursor, sql.PARTS_OF, PARTS, {"ids": ids, "since": min(starts, default=0)})
        with self._lock:
            file.traces.was_read(ids, read_at)
        return found.unique(subset=PART_KEY, keep="first", maintain_order=True)

    def unsettled(self, before_s: float, limit: int) -> list[str]:
        """Traces with parts that no fact holds and whose last part came before ``before_s``; oldest first."""
        with self._guard("read which traces wait") as file:
            due = file.traces.due(before_s, limit)
            if not due and file.traces.spilled:
                file.read_traces()
                due = file.traces.due(before_s, limit)
        return due

    def waiting(self) -> int:
        """How many traces wait to be settled, as far as they are held in memory."""
        return len(self._traces)

    def settle(self, trace_ids: Sequence[str], facts: pl.DataFrame) -> pl.DataFrame:
        """Replace the facts of these traces and mark their parts as settled, in one commit.

        Parts that came since ``parts`` read a trace leave it unsettled: its facts do not hold them.
        """
        new = shaped(facts, FACTS, "ended_at", "facts").unique(subset=FACT_KEY, keep="last", maintain_order=True)
        ids = list(dict.fromkeys(trace_ids))
        with self._lock:
            with self._transaction("settle traces") as file:
                replaced = file.settle(ids, new, self._clock.now_s())
            file.traces.settled(ids)
        return replaced

    def facts(
        self, start_s: float, end_s: float, *, columns: Sequence[str] | None = None, **wanted: object
    ) -> pl.DataFrame:
        """Facts that ended in ``[start_s, end_s)`` as ``FACTS``, sorted by ended_at; or these columns, in any order."""
        check_wanted({**wanted, **dict.fromkeys(columns or ())})
        chosen = list(columns or FACTS)
        with self._reading("read facts") as cursor:
            query = sql.facts_in(chosen, list(wanted))
            types = {name: FACTS[name] for name in chosen}
            return _frame(cursor, query, types, {"start": start_s, "end": end_s, **wanted})

    def replace_rollups(
        self, tier_s: int, starts_s: Sequence[float], rollups: pl.DataFrame, bins: pl.DataFrame
    ) -> None:
        """Put these rows in place of all of the same tier and starts."""
        new = shaped(rollups, ROLLUPS, "start_s", "rollups")
        new_bins = shaped(bins, BINS, "start_s", "bins")
        check_tiers(tier_s, starts_s, new, new_bins)
        with self._transaction("replace rollups") as file:
            for statement in sql.drop_periods(tier_s):
                file.connection.execute(statement, {"starts": list(starts_s)})
            file.insert(schema.rollups_table(tier_s), new.drop("tier_s"))
            for (field,), part in (
                new_bins.drop("tier_s").partition_by("field", as_dict=True, include_key=False).items()
            ):
                file.insert(schema.bins_table(tier_s, str(field)), part)

    def rollups(self, tier_s: int, start_s: float, end_s: float, *, service: str | None = None) -> pl.DataFrame:
        """Rollups that start in ``[start_s, end_s)`` as ``ROLLUPS``, sorted by their keys."""
        check_tier(tier_s)
        with self._reading("read rollups") as cursor:
            wanted = {"start": start_s, "end": end_s, "service": service}
            return _frame(cursor, sql.rollups_in(tier_s), ROLLUPS, wanted)

    def bins(
        self, tier_s: int, start_s: float, end_s: float, field: str, *, service: str | None = None
    ) -> pl.DataFrame:
        """Bins of one latency field that start in ``[start_s, end_s)`` as ``BINS``, sorted by their keys."""
        check_tier(tier_s)
        if field not in LATENCY_FIELDS:
            return pl.DataFrame(schema=BINS)
        with self._reading("read bins") as cursor:
            wanted = {"start": start_s, "end": end_s, "service": service}
            return _frame(cursor, sql.bins_in(tier_s, field), BINS, wanted)

    def summed_rollups(self, spans: Sequence[tuple[int, float, float]], by: Sequence[str] = ()) -> pl.DataFrame:
        """Rollups of spans (tier_s, start_s, end_s) that do not overlap, added up, as ``ROLLUPS``.

        Added up over time and over what is not in ``by`` (of service, model, tenant), which is null then, as are tier_s
        and slo; ``start_s`` is the first one. A map of a month reads these: what moves is one row a cell.
        """
        check_sums(spans, by)
        if not spans:
            return pl.DataFrame(schema=ROLLUPS)
        with self._reading("read rollups") as cursor:
            return _frame(cursor, sql.summed_rollups([tier for tier, _, _ in spans], by), ROLLUPS, _limits(spans))

    def summed_bins(
        self, spans: Sequence[tuple[int, float, float]], field: str, by: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Bins of one latency field added up in the same way, as ``BINS``."""
        check_sums(spans, by)
        if not spans or field not in LATENCY_FIELDS:
            return pl.DataFrame(schema=BINS)
        with self._reading("read bins") as cursor:
            return _frame(cursor, sql.summed_bins([tier for tier, _, _ in spans], field, by), BINS, _limits(spans))

    def append_scores(self, scores: pl.DataFrame) -> None:
        """Commit scores; the same identity again replaces."""
        new = shaped(scores, SCORES, "ts", "scores").unique(subset=SCORE_KEY, keep="last", maintain_order=True)
        with self._transaction("append scores") as file:
            file.execute_with(new, sql.DROP_SCORES)
            file.insert("scores", new)

    def scores(self, start_s: float, end_s: float, *, service: str | None = None) -> pl.DataFrame:
        """Scores given in ``[start_s, end_s)`` as ``SCORES``, sorted by ts."""
        with self._reading("read scores") as cursor:
            return _frame(cursor, sql.SCORES_IN, SCORES, {"start": start_s, "end": end_s, "service": service})

    def compact(self, now_s: float) -> int:
        """Drop what is past its retention and give its room back; returns rows dropped."""
        keep = self._retention
        statements = [
            (sql.EXPIRE_PARTS, keep.parts_s),
            ("delete from facts where ended_at < $cutoff", keep.facts_s),
            ("delete from scores where ts < $cutoff", keep.scores_s),
            *((statement, keep.minutes_s) for statement in sql.expire_periods(60)),
            *((statement, keep.hours_s) for statement in sql.expire_periods(3600)),
        ]
        with self._lock:
            with self._transaction("drop what is past its retention") as file:
                dropped = sum(file.delete(statement, {"cutoff": now_s - age_s}) for statement, age_s in statements)
                file.delete(sql.EXPIRE_SETTLED, {"cutoff": now_s - keep.parts_s})
            # while somebody reads it cannot be done; a later commit or compaction does it
            with self._guard("write the journal back") as file, suppress(duckdb.TransactionException):
                file.connection.execute("checkpoint")
        return dropped

    def health(self) -> StoreHealth:
        """State and extent (of facts); never raises, and opens the file again if it can."""
        oldest_s: float | None = None
        newest_s: float | None = None
        trouble = self._fault
        try:
            with self._reading("read its extent") as cursor:
                ((oldest_s, newest_s),) = cursor.execute(sql.EXTENT).fetchall()
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

    @contextmanager
    def _reading(self, doing: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of its own, outside the lock."""
        with self._lock:
            cursor = self._file().connection.cursor()
        try:
            yield cursor
        except (duckdb.Error, pl.exceptions.PolarsError, OSError) as error:
            if isinstance(error, _BROKEN):
                with self._lock:
                    self._let_go()
            raise store_error(self._path, doing, error) from error
        finally:
            with suppress(duckdb.Error):
                cursor.close()

    def _opened(self) -> OpenFile:
        return OpenFile(schema.DATABASE.connect(self._path), self._recent_ids, self._traces)


def _frame(
    cursor: duckdb.DuckDBPyConnection, query: str, types: Mapping[str, Any], wanted: Mapping[str, Any]
) -> pl.DataFrame:
    # polars takes the result over the Arrow C interface, for which neither side needs pyarrow
    found = pl.DataFrame(cursor.sql(query, params=dict(wanted)))
    return found.select(pl.col(name).cast(dtype) for name, dtype in types.items())


def _limits(spans: Sequence[tuple[int, float, float]]) -> dict[str, float]:
    starts = {f"start_{n}": start_s for n, (_, start_s, _) in enumerate(spans)}
    return starts | {f"end_{n}": end_s for n, (_, _, end_s) in enumerate(spans)}
