"""A store of parts in memory whose commits a test can hold up or break."""

import threading
from collections.abc import Sequence

import polars as pl

from goodwatch.core.errors import StoreError


class MemoryParts:
    """Parts in memory. ``pause`` makes commits wait for ``resume``; ``fault`` makes them fail."""

    def __init__(self) -> None:
        self.frames: list[pl.DataFrame] = []
        self.groups: list[int] = []
        self.fault: Exception | None = None
        self.entered = threading.Event()
        self._go = threading.Event()
        self._go.set()

    def append_parts(self, batches: Sequence[pl.DataFrame]) -> int:
        self.entered.set()
        if not self._go.wait(20):
            raise StoreError("the test never let the commit go on")
        if self.fault is not None:
            raise self.fault
        known = self.identities()
        fresh = pl.concat(batches).unique(("trace_id", "span_id"), keep="first", maintain_order=True)
        fresh = fresh.filter([row not in known for row in fresh.select("trace_id", "span_id").iter_rows()])
        self.frames.append(fresh)
        self.groups.append(len(batches))
        return fresh.height

    def identities(self) -> set[tuple[str, str]]:
        return {row for frame in self.frames for row in frame.select("trace_id", "span_id").iter_rows()}

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._go.set()
