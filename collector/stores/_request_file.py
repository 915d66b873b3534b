"""The open file of a request store: one connection that writes, and what it holds in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import duckdb
import polars as pl

from collector.stores import _request_sql as sql
from collector.stores._request_open import OpenTraces, RecentIds
from collector.stores._request_terms import REPLACED

_SETTLED: Final = {
    "trace_id": pl.String,
    "first_seq": pl.Int64,
    "up_to": pl.Int64,
    "fact_seq": pl.Int64,
    "settled_s": pl.Float64,
}


class OpenFile:
    """A connection, the number of its last commit, the ids seen lately and the traces that wait to be settled."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, recent_ids: int, traces: OpenTraces) -> None:
        self.connection = connection
        self.seq = int(connection.execute(sql.LAST_SEQ).fetchall()[0][0])
        ids = connection.execute(sql.RECENT_IDS, {"limit": recent_ids}).fetchall()
        self.recent = RecentIds(recent_ids, (one for (one,) in ids))
        self.traces = traces
        self.read_traces()

    def next_seq(self) -> int:
        """The number of the commit that is being written."""
        self.seq += 1
        return self.seq

    def read_traces(self) -> None:
        """Read from the file which traces wait to be settled."""
        ((since,),) = self.connection.execute(sql.OPEN_SINCE).fetchall()
        wanted = {"since": since, "limit": self.traces.limit}
        self.traces.load(self.connection.execute(sql.OPEN_TRACES, wanted).fetchall())

    def settle(self, ids: Sequence[str], facts: pl.DataFrame, now_s: float) -> pl.DataFrame:
        """Write facts and marks in the transaction that is open; returns which facts were replaced."""
        replaced: list[tuple[str, float]] = []
        earlier = self.connection.execute(sql.EARLIER, {"ids": ids}).fetchall()
        if earlier:
            again, seqs = [one for one, _, _ in earlier], [fact_seq for _, _, fact_seq in earlier]
            dropped = {"ids": again, "first": min(seqs), "last": max(seqs)}
            replaced = self.connection.execute(sql.DROP_FACTS, dropped).fetchall()
            self.connection.execute(sql.DROP_SETTLED, {"ids": again})
        ((since,),) = self.connection.execute(sql.OPEN_SINCE).fetchall()
        first_seqs = {one: first for one, first, _ in earlier}
        read_to = self.seq
        seq = self.next_seq()
        marks = []
        for one in ids:
            waiting_from = self.traces.first_seq(one)
            first = first_seqs.get(one, since if waiting_from is None else waiting_from)
            marks.append((one, first, self.traces.held_up_to(one, read_to), seq, now_s))
        self.insert("facts", facts, seq)
        self.execute_with(pl.DataFrame(marks, schema=_SETTLED, orient="row"), sql.ADD_SETTLED)
        if not self.traces.spilled:
            self.connection.execute(sql.SET_OPEN_SINCE, {"since": self.traces.open_since(ids, seq)})
        return pl.DataFrame(replaced, schema=REPLACED, orient="row")

    def insert(self, table: str, rows: pl.DataFrame, seq: int | None = None) -> None:
        """Add rows, with ``seq`` where the table has it. Columns without a value are left out, which is faster."""
        if rows.is_empty():
            return
        told = rows.select(column.name for column in rows if column.null_count() < rows.height)
        number = "" if seq is None else f"{seq} as seq, "
        self.execute_with(told, f"insert into {table} by name select {number}* from arriving")  # noqa: S608  our names

    def execute_with(self, arriving: pl.DataFrame, statement: str) -> None:
        """Run a statement that reads the frame as ``arriving``."""
        self.connection.register("arriving", _Stream(arriving))
        try:
            self.connection.execute(statement)
        finally:
            self.connection.unregister("arriving")

    def delete(self, statement: str, wanted: Mapping[str, Any]) -> int:
        """Run a delete; returns rows deleted."""
        ((count,),) = self.connection.execute(statement, wanted).fetchall()
        return int(count)


class _Stream:
    """A frame as a stream of Arrow batches and nothing else: DuckDB would ask pyarrow for a frame of polars."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)
