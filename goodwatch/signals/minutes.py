"""Rows of steps added up as they come, into what ``increments.fold`` makes of them at once. Pure.

A minute that is still open is asked for again and again; this way that costs its series and not its steps.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]  # of ``frames.MINUTES``; what it lacks is null
_Key = tuple[str, str, str, str, str, str]


@dataclass(slots=True)
class _Gauge:
    row: Row  # the newest
    total: float
    count: int
    low: float
    high: float

    def add(self, row: Row) -> None:
        self.total += row["mean"]
        self.count += 1
        self.low = min(self.low, row["min"])
        self.high = max(self.high, row["max"])
        if row["minute_s"] >= self.row["minute_s"]:
            self.row = row

    def made(self) -> dict[str, Any]:
        return {**self.row, "mean": self.total / self.count, "min": self.low, "max": self.high}


@dataclass(slots=True)
class _Counter:
    row: Row
    increase: float

    def add(self, row: Row) -> None:
        self.increase += row["increase"]

    def made(self) -> dict[str, Any]:
        return {**self.row, "increase": self.increase}


@dataclass(slots=True)
class _Histograms:
    """One row for each set of bounds."""

    rows: list[dict[str, Any]]

    def add(self, row: Row) -> None:
        same = next((one for one in self.rows if one["le"] == row["le"]), None)
        if same is None:
            self.rows.append(dict(row))
            return
        same["sum"] = None if same["sum"] is None or row["sum"] is None else same["sum"] + row["sum"]
        if row["increase"]:
            same["increase"] += row["increase"]
            same["count"] = [a + b for a, b in zip(same["count"], row["count"], strict=True)]


@dataclass(slots=True)
class Minute:
    """Steps of one minute, added up. Counters and histograms sum, gauges keep mean, min, max and last."""

    _gauges: dict[_Key, _Gauge] = field(default_factory=dict)
    _counters: dict[_Key, _Counter] = field(default_factory=dict)
    _histograms: dict[_Key, _Histograms] = field(default_factory=dict)

    def add(self, rows: Iterable[Row]) -> None:
        """Take the rows of one more step; ``kind`` says which columns of a row are filled."""
        for row in rows:
            key = (row["target"], row["service"], row["model"], row["engine"], row["signal"], row["part"])
            kind = row["kind"]
            if kind == "gauge":
                gauge = self._gauges.get(key)
                if gauge is None:
                    self._gauges[key] = _Gauge(row, row["mean"], 1, row["min"], row["max"])
                else:
                    gauge.add(row)
            elif kind == "counter":
                counter = self._counters.get(key)
                if counter is None:
                    self._counters[key] = _Counter(row, row["increase"])
                else:
                    counter.add(row)
            elif (histograms := self._histograms.get(key)) is None:
                self._histograms[key] = _Histograms([dict(row)])
            else:
                histograms.add(row)

    def rows(self) -> list[dict[str, Any]]:
        """One row a series, at the instant of one of its steps; histograms one for each set of bounds."""
        gauges = [one.made() for one in self._gauges.values()]
        counters = [one.made() for one in self._counters.values()]
        return [*gauges, *counters, *(dict(row) for one in self._histograms.values() for row in one.rows)]
