"""Numbers for values that repeat: a series, the bounds of a histogram."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Numbers(Generic[K]):
    """A value's number, the same one each time; new values wait in ``taken`` until they are written."""

    def __init__(self, known: Iterable[tuple[int, K]]) -> None:
        self._number_of = {value: number for number, value in known}
        self._next = max(self._number_of.values(), default=-1) + 1
        self._new: list[tuple[int, K]] = []

    def __call__(self, value: K) -> int:
        """The number of ``value``; a new one when it was never seen."""
        number = self._number_of.get(value)
        if number is None:
            number = self._number_of[value] = self._next
            self._next += 1
            self._new.append((number, value))
        return number

    def taken(self) -> list[tuple[int, K]]:
        """The values that got their number since the last call."""
        new, self._new = self._new, []
        return new
