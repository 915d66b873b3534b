"""Prompts, answers and documents that the operator chose to keep: redacted, for some days, within some bytes.

A DuckDB file of its own, so that it can be thrown away without anything else. Nothing enters it unredacted. What is
dropped is no longer read; its bytes may stay in the file until DuckDB writes over them.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from collector.quality.redact import Redactor
from collector.spans.texts import SpanText
from collector.stores._faults import store_error
from goodwatch.core.errors import StoreError

_SCHEMA: Final = (
    """create table if not exists texts (
        kept_s double not null, trace_id varchar not null, span_id varchar not null, input varchar, output varchar,
        context varchar[], bytes bigint not null, place bigint not null)""",
    # why a text is not asked about again: "scored", "refused", "unreadable"
    "create table if not exists judged (at_s double not null, trace_id varchar, span_id varchar, outcome varchar)",
    """create table if not exists spent (
        day varchar not null, calls bigint not null, input_tokens bigint not null, output_tokens bigint not null,
        usd double not null, untold_calls bigint not null)""",
)
_COLUMNS: Final = ("kept_s", "trace_id", "span_id", "input", "output", "context", "bytes", "place")
#: one statement for all rows: one for each takes some ten times as long
_INSERT: Final = f"insert into texts select {', '.join(f'unnest(${name})' for name in _COLUMNS)}"
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": "512MiB",
}
#: texts are dropped to this share of the room, so that not every commit drops some
_ROOM: Final = 0.9
#: what a row costs beside its texts
_ROW_BYTES: Final = 120
_WAITING: Final = """
    select kept_s, trace_id, span_id, input, output, context from (
        select *, row_number() over (
            partition by trace_id, md5(output) order by len(coalesce(context, [])) desc, span_id) as nth
        from texts where kept_s >= $start and kept_s < $end and output is not null)
    where nth = 1 and (trace_id, span_id) not in (select (trace_id, span_id) from judged)
    order by place, trace_id, span_id limit $limit"""


@dataclass(frozen=True, slots=True)
class KeptText:
    """What one span said, redacted. ``context`` are retrieved documents."""

    kept_s: float
    trace_id: str
    span_id: str
    input: str | None
    output: str | None
    context: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """What judging took in one day (UTC). ``usd`` holds the calls whose usage was told; ``untold_calls`` are the others."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    untold_calls: int = 0


@dataclass(frozen=True, slots=True)
class TextsHealth:
    """State and extent: ``bytes`` of the file, ``texts`` rows, ``text_bytes`` of what they hold."""

    ok: bool
    message: str
    bytes: int
    texts: int = 0
    text_bytes: int = 0
    oldest_s: float | None = None


def place_of(trace_id: str) -> int:
    """A place in ``[0, 2^63)`` that a trace has by its id alone: the same everywhere, and like a random one.

    Digested first: samplers look at the random bits of the id itself, so that what they keep is not spread over them.
    """
    return int.from_bytes(hashlib.sha256(trace_id.encode()).digest()[:8]) >> 1


class TextStore:
    """Texts in the DuckDB file at ``path``. Blocking; one process. Methods raise ``StoreError`` that says what to do."""

    def __init__(self, path: Path, redactor: Redactor, *, keep_s: float, keep_bytes: int) -> None:
        self._path = path
        self._redactor = redactor
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes
        self._lock = threading.RLock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._closed = False
        self._bytes: int | None = None  # of the texts; None: to be counted
        with self._using("open the store"):
            pass

    def append(self, texts: Iterable[SpanText], at_s: float, *, ratio: float = 1.0) -> int:
        """Redact and commit the texts of a share of the traces; the same span again replaces. Returns how many."""
        chosen = [one for one in texts if place_of(one.trace_id) < ratio * 2.0**63]
        rows = list({(one.trace_id, one.span_id): self._row(one, at_s) for one in chosen}.values())
        if not rows:
            return 0
        with self._transaction("keep texts") as connection:
            again = [[row[1], row[2]] for row in rows]
            gone = connection.execute(
                "select coalesce(sum(bytes), 0) from texts where [trace_id, span_id] in (select unnest($ids))",
                {"ids": again},
            ).fetchall()[0][0]
            if gone:
                connection.execute(
                    "delete from texts where [trace_id, span_id] in (select unnest($ids))", {"ids": again}
                )
            connection.execute(_INSERT, dict(zip(_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))
            self._bytes = (
                self._size(connection) if self._bytes is None else self._bytes - gone + sum(r[6] for r in rows)
            )
            if self._bytes > self._keep_bytes:
                self._make_room(connection)
        return len(rows)

    def of_trace(self, trace_id: str) -> list[KeptText]:
        """Texts of one trace, in the order of their spans' ids."""
        return self._read(
            "select kept_s, trace_id, span_id, input, output, context from texts where trace_id = $trace order by span_id",
            {"trace": trace_id},
        )

    def waiting(self, start_s: float, end_s: float, limit: int) -> list[KeptText]:
        """Answers kept in ``[start_s, end_s)`` that were not judged, in an order that is as good as random.

        Of spans of a trace that say the same only one is there, one with documents first.
        """
        return self._read(_WAITING, {"start": start_s, "end": end_s, "limit": limit})

    def judged(self, text: KeptText, at_s: float, outcome: str) -> None:
        """Do not bring this text again; ``outcome`` is what came of it."""
        with self._transaction("note what was judged") as connection:
            connection.execute("insert into judged values (?, ?, ?, ?)", [at_s, text.trace_id, text.span_id, outcome])

    def spent(self, day: str) -> Spent:
        """What judging took on a day (2026-12-01, UTC)."""
        with self._using("read what was spent") as connection:
            (row,) = connection.execute(
                """select coalesce(sum(calls), 0)::bigint, coalesce(sum(input_tokens), 0)::bigint,
                          coalesce(sum(output_tokens), 0)::bigint, coalesce(sum(usd), 0.0),
                          coalesce(sum(untold_calls), 0)::bigint from spent where day = ?""",
                [day],
            ).fetchall()
        return Spent(*row)

    def spend(self, day: str, more: Spent) -> None:
        """Add what a call took. On the disk when this returns: a restart must not give the budget back."""
        with self._transaction("note what was spent") as connection:
            row = [day, more.calls, more.input_tokens, more.output_tokens, more.usd, more.untold_calls]
            connection.execute("insert into spent values (?, ?, ?, ?, ?, ?)", row)

    def compact(self, now_s: float) -> int:
        """Drop what is past its time or has no room; returns texts dropped."""
        with self._transaction("drop old texts") as connection:
            before = _count(connection, "select count(*) from texts")
            connection.execute("delete from texts where kept_s < ?", [now_s - self._keep_s])
            self._bytes = self._size(connection)
            if self._bytes > self._keep_bytes:
                self._make_room(connection)
            connection.execute("delete from judged where at_s < ?", [now_s - 2 * self._keep_s])
            _fold_spent(connection)
            after = _count(connection, "select count(*) from texts")
        with self._using("write the journal back") as connection, suppress(duckdb.TransactionException):
            connection.execute("checkpoint")
        return before - after

    def health(self) -> TextsHealth:
        """State and extent; never raises."""
        size = sum(
            path.stat().st_size
            for path in (self._path, self._path.with_name(self._path.name + ".wal"))
            if path.exists()
        )
        try:
            with self._using("read its extent") as connection:
                row = connection.execute("select count(*), coalesce(sum(bytes), 0)::bigint, min(kept_s) from texts")
                texts, text_bytes, oldest_s = row.fetchall()[0]
        except StoreError as error:
            return TextsHealth(ok=False, message=str(error), bytes=size)
        return TextsHealth(ok=True, message="", bytes=size, texts=texts, text_bytes=text_bytes, oldest_s=oldest_s)

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        with self._lock:
            self._closed = True
            self._let_go()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _row(self, one: SpanText, at_s: float) -> list[Any]:
        clean = [None if text is None else self._redactor.redact(text).text for text in (one.input, one.output)]
        context = [self._redactor.redact(text).text for text in one.context]
        size = _ROW_BYTES + sum(len(text.encode("utf-8", "replace")) for text in (*clean, *context) if text is not None)
        return [at_s, one.trace_id, one.span_id, *clean, context, size, place_of(one.trace_id)]

    def _size(self, connection: duckdb.DuckDBPyConnection) -> int:
        return _count(connection, "select coalesce(sum(bytes), 0)::bigint from texts")

    def _make_room(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Drop the oldest texts until the others fit."""
        room = int(self._keep_bytes * _ROOM)
        connection.execute(
            """delete from texts where rowid in (select rowid from (
                select rowid, sum(bytes) over (order by kept_s desc, rowid desc) as held from texts) where held > ?)""",
            [room],
        )
        self._bytes = self._size(connection)

    def _read(self, query: str, wanted: dict[str, Any]) -> list[KeptText]:
        with self._using("read texts") as connection:
            rows: Sequence[tuple[Any, ...]] = connection.execute(query, wanted).fetchall()
        return [KeptText(at_s, one, span, said, back, tuple(docs or ())) for at_s, one, span, said, back, docs in rows]

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._using(doing) as connection:
            connection.begin()
            yield connection
            connection.commit()

    @contextmanager
    def _using(self, doing: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection; any error lets it go, which ends a transaction, and the next call opens the file again."""
        with self._lock:
            try:
                yield self._opened()
            except (duckdb.Error, OSError) as error:
                self._let_go()
                raise store_error(self._path, doing, error) from error
            except BaseException:
                self._let_go()
                raise

    def _opened(self) -> duckdb.DuckDBPyConnection:
        if self._closed:
            raise StoreError(f"{self._path}: the store is closed; open a new one")
        if self._connection is None:
            # The journal and what is spilled lie beside the file: the folder keeps others out, and the mode of one file
            # would not.
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._connection = duckdb.connect(str(self._path.absolute()), config=_CONFIG)
            self._path.chmod(0o600)  # what people wrote is for the service's user alone
            for statement in _SCHEMA:
                self._connection.execute(statement)
        return self._connection

    def _let_go(self) -> None:
        connection, self._connection, self._bytes = self._connection, None, None
        if connection is not None:
            with suppress(duckdb.Error):
                connection.close()


def _count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(connection.execute(query).fetchall()[0][0])


def _fold_spent(connection: duckdb.DuckDBPyConnection) -> None:
    """One row a day instead of one a call."""
    connection.execute(
        """create temp table folded as select day, sum(calls)::bigint, sum(input_tokens)::bigint,
                  sum(output_tokens)::bigint, sum(usd), sum(untold_calls)::bigint from spent group by day"""
    )
    connection.execute("delete from spent")
    connection.execute("insert into spent select * from folded")
    connection.execute("drop table folded")
