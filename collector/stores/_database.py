"""A DuckDB file of goodwatch's own: created whole, told from others, brought up to date, its journal looked at."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from goodwatch.core.errors import StoreError

Setting = str | bool | int | float | list[str]

#: No extension is fetched from the network. What does not fit in the memory is spilled beside the file.
_CONFIG: Final[dict[str, Setting]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": "1GiB",
}

#: every journal begins so: field 100 of a record, of the type 98 (version). DuckDB takes a journal with a broken head
#: for one whose writing was cut short and drops it.
_JOURNAL_HEAD: Final = b"\x64\x00\x62"


def journal_of(path: Path) -> Path:
    """The file that holds what is committed and not yet in the main file."""
    return path.with_name(path.name + ".wal")


@dataclass(frozen=True, slots=True)
class Database:
    """What one kind of store keeps in its file.

    ``meta`` is the table of one row that tells it from others, with the columns ``meta_columns``, ``schema_version``
    among them. ``migrations[n]`` leads from version n to n + 1; a released one is never edited. ``example`` is the name
    of a file and ``foreign`` what to say of a file that somebody else wrote, for a person.
    """

    meta: str
    meta_columns: frozenset[str]
    migrations: Sequence[Sequence[str]]
    settings: Mapping[str, Setting]
    example: str
    foreign: str

    def connect(self, path: Path) -> duckdb.DuckDBPyConnection:
        """Open the file at ``path`` for this process alone, create it when it is missing, and bring it up to date.

        Raises StoreError for what is no store of this kind; ``duckdb.Error`` and ``OSError`` for the rest.
        """
        if path.is_dir():
            text = f"{path}: is a folder; the store is one file: name a file in it, such as {path / self.example}"
            raise StoreError(text)
        if not path.exists():
            self._create(path)
        _check_journal(journal_of(path))
        connection = self._opened(path)
        try:
            self.migrate(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection

    def migrate(
        self, connection: duckdb.DuckDBPyConnection, path: Path, migrations: Sequence[Sequence[str]] | None = None
    ) -> None:
        """Run the missing migrations in one transaction; refuse a newer store and a file of somebody else."""
        steps = self.migrations if migrations is None else migrations
        found, known = self._version(connection, path), len(steps)
        if found > known:
            raise StoreError(
                f"{path}: has schema version {found} and this goodwatch knows {known}; "
                "upgrade goodwatch, or keep the store in a new file"
            )
        if found == known:
            return
        connection.begin()
        for statements in steps[found:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"update {self.meta} set schema_version = ?", [known])  # noqa: S608  our own name
        connection.commit()

    def _opened(self, path: Path) -> duckdb.DuckDBPyConnection:
        # a relative "md:x" would be a service
        return duckdb.connect(str(path.absolute()), config={**_CONFIG, **self.settings})

    def _version(self, connection: duckdb.DuckDBPyConnection, path: Path) -> int:
        named = connection.execute("select table_name, column_name from duckdb_columns() where not internal").fetchall()
        if not named:
            return 0
        if frozenset(column for table, column in named if table == self.meta) == self.meta_columns:
            rows = connection.execute(f"select schema_version from {self.meta}").fetchall()  # noqa: S608  our own name
            if len(rows) == 1 and isinstance(rows[0][0], int):
                return int(rows[0][0])
        raise StoreError(f"{path}: {self.foreign}")

    def _create(self, path: Path) -> None:
        """Make an empty store under another name first, so that a kill never leaves half a file at ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".new")
        draft.unlink(missing_ok=True)
        journal_of(draft).unlink(missing_ok=True)
        try:
            with self._opened(draft) as connection:
                self.migrate(connection, draft)
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
