"""The tables of the embedded store, their versions, and how a file comes to hold them.

Strings that repeat in every row (what a series is, the bounds of a histogram) are kept once and named by a number:
measured with 100 vLLM-like targets that makes 18 bytes a sample instead of 87. There are no keys on the big tables,
because an index slows appending as the table grows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

from goodwatch.core.errors import StoreError

_CREATION: Final = (
    "create table meta (schema_version integer not null)",
    "insert into meta values (0)",
    """create table series (
        id integer primary key, target varchar, service varchar, model varchar, engine varchar,
        engine_version varchar, rank varchar, signal varchar, part varchar)""",
    "create table bounds (id integer primary key, le double[] not null)",
    """create table samples (
        ts double not null, series integer not null, value double, sum double, bounds integer, count double[])""",
    """create table scrapes (
        ts double not null, target varchar, service varchar, up boolean, duration_s double, reason varchar,
        error varchar, body_bytes bigint, page_samples bigint)""",
    # a series of minutes has "" as engine_version and rank
    """create table minutes (
        minute_s double not null, series integer not null, kind varchar, increase double, sum double,
        bounds integer, count double[], mean double, min double, max double, last double)""",
    """create table derived (
        ts double not null, window_s double, service varchar, target varchar, model varchar, name varchar,
        value double, low double, high double, basis varchar, note varchar)""",
    # seq is the order of recording; facts is a JSON object
    """create table deployments (
        seq integer not null, ts double not null, target varchar, service varchar, engine varchar,
        engine_version varchar, model varchar, facts varchar)""",
)

#: ``MIGRATIONS[n]`` leads from schema version n to n + 1; a released one is never edited
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (_CREATION,)

#: No extension is fetched from the network. 16 MiB of journal is about six minutes of 100 targets and replays in
#: well under a second. What does not fit in the memory is spilled beside the file.
CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "checkpoint_threshold": "16MiB",
    "memory_limit": "1GiB",
}

#: every journal begins so: field 100 of a record, of the type 98 (version). DuckDB takes a journal with a broken head
#: for one whose writing was cut short and drops it.
_JOURNAL_HEAD: Final = b"\x64\x00\x62"


def journal_of(path: Path) -> Path:
    """The file that holds what is committed and not yet in the main file."""
    return path.with_name(path.name + ".wal")


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the file at ``path`` for this process alone, create it when it is missing, and bring it up to date.

    Raises StoreError for what is no store of ours; ``duckdb.Error`` and ``OSError`` for the rest.
    """
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; the store is one file: name a file in it, such as {path / 'store.db'}")
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
    connection.execute("update meta set schema_version = ?", [known])
    connection.commit()


def _version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    tables = {name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()}
    if not tables:
        return 0
    if "meta" in tables:
        rows = connection.execute("from meta").fetchall()
        if len(rows) == 1 and len(rows[0]) == 1 and isinstance(rows[0][0], int):
            return int(rows[0][0])
    raise StoreError(f"{path}: is a DuckDB file that goodwatch did not write; keep the store in another file")


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
