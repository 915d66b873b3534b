"""The tables of the embedded request store, their versions, and how a file comes to hold them.

There are no keys: an index slows appending as a table grows. What must be found again is found by ``seq``, the number
of the commit that wrote a row: it ascends through the file, so that DuckDB skips all blocks but a few.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from collector.stores._request_terms import TIERS_S
from goodwatch.core.errors import StoreError
from goodwatch.signals.request_frames import BINS, FACTS, LATENCY_FIELDS, PARTS, ROLLUPS, SCORES

#: open_since: every part of a lower seq belongs to a trace that is settled
_META: Final = "create table request_meta (schema_version integer not null, open_since bigint not null)"

#: One row a settled trace. The key is the MD5 of the trace id: 16 bytes instead of text, which is looked through four
#: times as fast. Its parts have a seq in [first_seq, up_to], its facts have fact_seq.
_SETTLED: Final = """
    create table settled (
        trace_key uuid not null, first_seq bigint not null, up_to bigint not null, fact_seq bigint not null,
        settled_s double not null)"""

_TYPES: Final[Mapping[Any, str]] = {
    pl.String: "varchar",
    pl.Float64: "double",
    pl.Int64: "bigint",
    pl.Int32: "integer",
    pl.Int16: "smallint",
    pl.Boolean: "boolean",
    pl.List(pl.Int32): "integer[]",
    pl.List(pl.Float64): "double[]",
}


def rollups_table(tier_s: int) -> str:
    """Where rollups of a tier are: each tier has its own age at which rows go."""
    return f"rollups_{tier_s}"


def bins_table(tier_s: int, field: str) -> str:
    """Where bins of a tier and a latency field are: a map reads one field, and so one table."""
    return f"bins_{tier_s}_{field}"


#: table → the columns that it keeps; what its name says is no column
TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "parts": {"seq": pl.Int64, **PARTS},
    "facts": {"seq": pl.Int64, **FACTS},
    "scores": SCORES,
    **{rollups_table(tier): {n: t for n, t in ROLLUPS.items() if n != "tier_s"} for tier in TIERS_S},
    **{
        bins_table(tier, field): {n: t for n, t in BINS.items() if n not in {"tier_s", "field"}}
        for tier in TIERS_S
        for field in LATENCY_FIELDS
    },
}


def creation(table: str, columns: Mapping[str, Any]) -> str:
    """The statement that makes a table."""
    return f"create table {table} ({', '.join(f'{name} {_TYPES[dtype]}' for name, dtype in columns.items())})"


#: ``MIGRATIONS[n]`` leads from schema version n to n + 1; a released one is never edited
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (_META, "insert into request_meta values (0, 0)", _SETTLED, *(creation(*table) for table in TABLES.items())),
)

#: No extension is fetched from the network. 64 MiB of journal is about 150,000 parts and replays within two seconds.
#: What does not fit in the memory is spilled beside the file.
CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "checkpoint_threshold": "64MiB",
    "memory_limit": "1GiB",
    "storage_compatibility_version": "latest",
}

#: every journal begins so: field 100 of a record, of the type 98 (version). DuckDB takes a journal with a broken head
#: for one whose writing was cut short and drops it.
_JOURNAL_HEAD: Final = b"\x64\x00\x62"


def journal_of(path: Path) -> Path:
    """The file that holds what is committed and not yet in the main file."""
    return path.with_name(path.name + ".wal")


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the file at ``path`` for this process alone, create it when it is missing, and bring it up to date.

    Raises StoreError for what is no request store; ``duckdb.Error`` and ``OSError`` for the rest.
    """
    if path.is_dir():
        raise StoreError(
            f"{path}: is a folder; the store is one file: name a file in it, such as {path / 'requests.db'}"
        )
    if not path.exists():
        _create(path)
    _check_journal(journal_of(path))
    connection = duckdb.connect(str(path.absolute()), config=CONFIG)  # a relative "md:x" would be a service
    try:
        migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(
    connection: duckdb.DuckDBPyConnection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> None:
    """Run the missing migrations in one transaction; refuse a newer store and a file of somebody else."""
    found, known = _version(connection, path), len(migrations)
    if found > known:
        raise StoreError(
            f"{path}: has schema version {found} and this goodwatch knows {known}; "
            "upgrade goodwatch, or keep the store in a new file"
        )
    if found == known:
        return
    connection.begin()
    for statements in migrations[found:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute("update request_meta set schema_version = ?", [known])
    connection.commit()


def _version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    tables = {name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()}
    if not tables:
        return 0
    if "request_meta" in tables:
        rows = connection.execute("select schema_version from request_meta").fetchall()
        if len(rows) == 1 and isinstance(rows[0][0], int):
            return int(rows[0][0])
    raise StoreError(f"{path}: is a DuckDB file, but not a store of requests; keep requests in another file")


def _create(path: Path) -> None:
    """Make an empty store under another name first, so that a kill never leaves half a file at ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    journal_of(draft).unlink(missing_ok=True)
    try:
        with duckdb.connect(str(draft.absolute()), config=CONFIG) as connection:
            migrate(connection, draft)
        os.link(draft, path)  # unlike a rename it never replaces a file that came in between
    except FileExistsError:
        pass  # another process was faster: opening it says so
    except OSError:
        draft.rename(path)  # a file system without hard links
    finally:
        draft.unlink(missing_ok=True)
        journal_of(draft).unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_journal(journal: Path) -> None:
    try:
        with journal.open("rb") as file:
            head = file.read(len(_JOURNAL_HEAD))
    except FileNotFoundError:
        return
    if not _JOURNAL_HEAD.startswith(head):
        raise StoreError(
            f"{journal}: the journal is damaged at its head and holds what was committed last; it was left as it is: "
            "put a backup of the store in its place, or move this one file away to go on without those rows"
        )
