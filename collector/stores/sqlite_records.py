"""Records in one SQLite file: small, durable at once, and open to several processes, so the command line can write."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from collector.stores._held import size_bytes
from collector.stores._terms import StoreHealth
from goodwatch.core.errors import StoreError
from goodwatch.core.record import Record

#: how long a writer waits for another process, s
_PATIENCE_S: Final = 10.0
#: "goodwatch", cut to the 32 bits that SQLite keeps for the application of a file
_APPLICATION: Final = 0x676F6F64
_SCHEMA: Final = (
    "create table records (seq integer primary key, kind text not null, id text not null, at_s real not null,"
    " body text not null)",
    "create index records_of on records (kind, id, seq)",
)
_NEWEST: Final = (
    "select kind, id, at_s, body from records r where kind = ? and at_s >= ? and at_s < ?"
    " and seq = (select max(seq) from records where kind = r.kind and id = r.id) order by at_s desc, seq desc limit ?"
)


class SqliteRecords:
    """Records that are kept for ever; ``path`` is the file, which is created when it is missing.

    Fulfils ``goodwatch.core.ports.RecordStore``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._fault = ""

    def put(self, kind: str, id: str, at_s: float, body: Mapping[str, object]) -> None:
        """Commit a version of a record."""
        text = json.dumps(dict(body), allow_nan=False, ensure_ascii=False, sort_keys=True)
        with self._guard("keep a record") as connection, connection:
            connection.execute("insert into records (kind, id, at_s, body) values (?, ?, ?, ?)", (kind, id, at_s, text))

    def latest(
        self, kind: str, *, start_s: float | None = None, end_s: float | None = None, limit: int | None = None
    ) -> list[Record]:
        """The newest version of each record of a kind."""
        start = float("-inf") if start_s is None else start_s
        end = float("inf") if end_s is None else end_s
        return self._read(_NEWEST, (kind, start, end, -1 if limit is None else limit))

    def get(self, kind: str, id: str) -> Record | None:
        """The newest version of one record."""
        found = self._read(
            "select kind, id, at_s, body from records where kind = ? and id = ? order by seq desc limit 1", (kind, id)
        )
        return found[0] if found else None

    def history(self, kind: str, id: str) -> list[Record]:
        """All versions of one record, oldest first."""
        return self._read("select kind, id, at_s, body from records where kind = ? and id = ? order by seq", (kind, id))

    def health(self) -> StoreHealth:
        """Whether the last call worked, and the size of the file."""
        return StoreHealth(not self._fault, self._fault, size_bytes(self._path), None, None, None)

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        with self._lock:
            self._closed = True
            self._let_go()

    def _read(self, query: str, values: Sequence[object]) -> list[Record]:
        with self._guard("read records") as connection:
            rows = connection.execute(query, values).fetchall()
        return [Record(kind, id, at_s, json.loads(body)) for kind, id, at_s, body in rows]

    @contextmanager
    def _guard(self, doing: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self._path}: the store is closed; open a new one")
            try:
                self._connection = self._connection or _opened(self._path)
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                self._let_go()
                self._fault = f"{self._path}: cannot {doing}: {error}; see that the disk is writable and has room"
                raise StoreError(self._fault) from error
            self._fault = ""

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path.absolute(), timeout=_PATIENCE_S, check_same_thread=False)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the table in an empty file; refuse a file of somebody else. Raises ``StoreError``."""
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    with connection:
        connection.execute("begin immediate")  # two processes may open an empty file at once
        (application,) = connection.execute("pragma application_id").fetchone()
        tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
        if application == _APPLICATION:
            return
        if tables:
            raise StoreError(f"{path}: is a database of another program; name another data_dir")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"pragma application_id = {_APPLICATION}")
