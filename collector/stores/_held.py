"""A store's file while it is open: opened when it is needed, let go after a fault, closed for good at the end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import duckdb
import polars as pl

from collector.stores._faults import store_error
from goodwatch.core.clock import Clock, SystemClock
from goodwatch.core.errors import StoreError


class Opened(Protocol):
    """What holds the connection that writes."""

    connection: duckdb.DuckDBPyConnection


F = TypeVar("F", bound=Opened)


class HeldFile(ABC, Generic[F]):
    """One file, one writer at a time. After a fault the file is let go and the next call opens it again.

    So a store works as soon as the fault is gone, and an open transaction ends with the connection.
    """

    def __init__(self, path: Path, clock: Clock | None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._open: F | None = None
        self._closed = False
        self._fault: str | None = None
        self._last_commit_s: float | None = None

    @abstractmethod
    def _opened(self) -> F:
        """Open the file."""

    def close(self) -> None:
        """Flush and let go of the file; safe to call twice."""
        with self._lock:
            self._closed = True
            self._let_go()

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[F]:
        """Commit what the block did, or nothing of it."""
        with self._lock:
            try:
                with self._guard(doing) as file:
                    file.connection.begin()
                    yield file
                    file.connection.commit()
            except StoreError as error:
                self._fault = str(error)
                raise
            self._fault = None
            self._last_commit_s = self._clock.now_s()

    @contextmanager
    def _guard(self, doing: str) -> Iterator[F]:
        """The open file; any error lets it go, which ends a transaction, and known ones become StoreError."""
        with self._lock:
            file = self._file()
            try:
                yield file
            except (duckdb.Error, pl.exceptions.PolarsError, OSError) as error:
                self._let_go()
                raise store_error(self._path, doing, error) from error
            except BaseException:
                self._let_go()
                raise

    def _file(self) -> F:
        if self._closed:
            raise StoreError(f"{self._path}: the store is closed; open a new one")
        if self._open is None:
            try:
                self._open = self._opened()
            except (duckdb.Error, OSError) as error:
                raise store_error(self._path, "open the store", error) from error
        return self._open

    def _let_go(self) -> None:
        file, self._open = self._open, None
        if file is not None:
            with suppress(duckdb.Error):  # what was committed is in the journal; closing only tidies up
                file.connection.close()


def size_bytes(path: Path) -> int:
    """Size of a file; 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
