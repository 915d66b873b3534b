"""What an open request store holds in memory: ids seen lately, and traces that wait to be settled.

Both are bounded, both can be read from the file again, and neither is needed for a right answer: ids that fell out of
the index are found to be doubles when a trace is read, and traces that found no room are read from the file later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import polars as pl

from goodwatch.core.errors import StoreError


class RecentIds:
    """The last ``limit`` ids of parts, or up to twice as few: half of them are forgotten when the index is full.

    An id takes about 150 bytes.
    """

    def __init__(self, limit: int, ids: Iterable[str]) -> None:
        self._half = max(1, limit // 2)
        self._older: set[str] = set()
        self._newer: set[str] = set()
        self.add(list(ids))

    def unknown(self, parts: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        """The parts that are not known, each once, and their ids."""
        ids: list[str] = (parts["trace_id"] + parts["span_id"]).to_list()
        distinct = dict.fromkeys(ids)
        if None in distinct:
            raise StoreError("parts: a row without trace_id or span_id; what maps spans should have refused it")
        if len(distinct) == len(ids) and self._newer.isdisjoint(distinct) and self._older.isdisjoint(distinct):
            return parts, ids
        fresh = {one: place for place, one in reversed([*enumerate(ids)])}  # the first place of each
        for known in (self._newer, self._older):
            for one in known.intersection(fresh):
                del fresh[one]
        places = sorted(fresh.values())
        return parts[places], [ids[place] for place in places]

    def add(self, ids: Sequence[str]) -> None:
        """Remember ids that are committed."""
        for start in range(0, len(ids), self._half):
            self._newer.update(ids[start : start + self._half])
            if len(self._newer) >= self._half:
                self._older, self._newer = self._newer, set()


class Waiting(NamedTuple):
    """The commits of the first and of the last part that no fact holds, and when the last one came."""

    first: int
    last: int
    last_s: float


class OpenTraces:
    """Traces that wait to be settled, by when they were seen first. At most ``limit``; ``spilled``: some are not here."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spilled = False
        self._waiting: dict[str, Waiting] = {}
        self._read: dict[str, int] = {}  # up to which commit the parts were read last

    def __len__(self) -> int:
        return len(self._waiting)

    def load(self, rows: Sequence[tuple[str, int, int, float]]) -> None:
        """Take traces from the file (id, first commit, last commit, when the last part came) in place of all.

        ``limit`` rows mean that there may be more. What was read of a trace stays known when the file is opened again.
        """
        self._waiting = {one: Waiting(first, last, last_s) for one, first, last, last_s in rows}
        self._read = {one: seq for one, seq in self._read.items() if one in self._waiting}
        self.spilled = len(rows) >= self.limit

    def add(self, parts: pl.DataFrame, seq: int) -> None:
        """Take parts that are committed. While some traces are in the file alone, a new one may be one of those."""
        waiting = self._waiting
        times = parts["received_s"]
        alike = {at: Waiting(seq, seq, at) for at in times.unique()}  # most traces are new: they share these
        ids, room = parts["trace_id"].to_list(), self.limit - len(waiting) - parts.height
        if room >= 0 and not self.spilled and times.is_sorted() and waiting.keys().isdisjoint(ids):
            waiting.update(zip(ids, map(alike.__getitem__, times.to_list()), strict=True))
            return
        for one, at in zip(ids, times.to_list(), strict=True):
            seen = waiting.get(one)
            if seen is not None:
                waiting[one] = Waiting(seen.first, seq, max(seen.last_s, at))
            elif len(waiting) < self.limit and not self.spilled:
                waiting[one] = alike[at]
            else:
                self.spilled = True

    def due(self, before_s: float, limit: int) -> list[str]:
        """Traces whose last part came before ``before_s``, oldest first."""
        due = ((seen.last_s, one) for one, seen in self._waiting.items() if seen.last_s < before_s)
        return [one for _, one in heapq.nsmallest(limit, due)]

    def first_seq(self, one: str) -> int | None:
        """The commit of the first part that no fact holds; None when the trace does not wait here."""
        seen = self._waiting.get(one)
        return None if seen is None else seen.first

    def was_read(self, ids: Iterable[str], seq: int) -> None:
        """Remember up to which commit the parts of these traces were read."""
        self._read.update(dict.fromkeys((one for one in ids if one in self._waiting), seq))

    def held_up_to(self, one: str, seq: int) -> int:
        """Up to which commit the facts of a trace hold its parts, if settled now: what was read, else all to ``seq``."""
        return self._read.get(one, seq)

    def open_since(self, closing: Iterable[str], seq: int) -> int:
        """The lowest first commit once these are settled; ``seq`` when none is left."""
        gone = {one for one in closing if self._closes(one)}
        return next((seen.first for one, seen in self._waiting.items() if one not in gone), seq)

    def settled(self, ids: Iterable[str]) -> None:
        """Forget traces whose parts were all read."""
        for one in ids:
            if self._closes(one):
                self._waiting.pop(one, None)
            self._read.pop(one, None)

    def _closes(self, one: str) -> bool:
        seen, read = self._waiting.get(one), self._read.get(one)
        return seen is None or read is None or seen.last <= read
