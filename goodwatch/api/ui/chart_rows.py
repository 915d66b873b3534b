"""The rows behind the charts: which windows are boxes, lines or gaps, and what the tooltips say. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from goodwatch.api.ui.format import interval, scalar, utc
from goodwatch.app.view import Event
from goodwatch.core.model import Bounds

#: the axis of an empty chart: no number says where it would be
_EMPTY_LINEAR: Final = (0.0, 1.0)
_EMPTY_LOG: Final = (0.01, 10.0)
_DAY_S: Final = 86_400
_MOST_TICKS: Final = 7
_TICK_STEPS_S: Final = (
    60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY_S, 2 * _DAY_S, 7 * _DAY_S,
)  # fmt: skip
_LONG_DECADES: Final = 3.5


@dataclass(frozen=True, slots=True)
class Domain:
    """The two ends of an axis."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """One number of one window; ``high`` None with a ``low`` is open above, all three None is a gap."""

    start_s: float
    end_s: float
    value: float | None
    low: float | None
    high: float | None
    note: str

    @property
    def t(self) -> float:
        """Middle of the window, in the milliseconds that JavaScript counts in."""
        return (self.start_s + self.end_s) * 500

    @property
    def ends(self) -> tuple[float, ...]:
        """Every finite number of it."""
        return tuple(x for x in (self.value, self.low, self.high) if x is not None and math.isfinite(x))


def rows_by_name(frame: pl.DataFrame, names: Iterable[str]) -> dict[str, list[Row]]:
    """The rows of ``frames.DERIVED`` that a page draws, by name and in order of time."""
    wanted = frame.filter(pl.col("name").is_in(sorted(set(names)))).sort("ts")
    found: dict[str, list[Row]] = {}
    columns = ("name", "ts", "window_s", "value", "low", "high", "note")
    for name, ts, window_s, value, low, high, note in wanted.select(columns).iter_rows():
        found.setdefault(name, []).append(Row(ts - window_s, ts, value, low, high, note or ""))
    return found


def row_text(unit: str, row: Row) -> str:
    """What a tooltip says of a row: the number, or why there is none."""
    if row.low is not None:
        return " ".join(interval(unit, Bounds(row.low, row.high))).strip()
    if row.value is not None:
        return " ".join(scalar(unit, row.value)).strip()
    return row.note or "no data"


def datasets(
    unit: str,
    series: Mapping[str, list[Row]],
    events: Iterable[Event],
    times: Domain,
    limit: float | None,
    *,
    log: bool,
    verdict: bool,
) -> tuple[dict[str, list[dict[str, Any]]], Domain]:
    """All data of one chart and the domain of its value axis."""
    axis = value_domain(unit, [row for rows in series.values() for row in rows], limit, log=log)
    out: dict[str, list[dict[str, Any]]] = {"boxes": [], "open": [], "paths": [], "points": []}
    for label, rows in series.items():
        _add(out, label, rows, axis, limit if verdict else None)
    out["nothing"] = [] if any(out.values()) else [{"text": _why_empty(series)}]
    out["limit"] = [] if limit is None else [{"y": limit}]
    out["windows"] = _windows(unit, series)
    out["events"] = [
        {"t": e.ts * 1000, "when": _when(e.ts, times), "kind": e.kind, "text": e.text}
        for e in events
        if times.low <= e.ts * 1000 <= times.high
    ]
    return out, axis


def _why_empty(series: Mapping[str, list[Row]]) -> str:
    """The newest reason of the first line that has one."""
    notes = [rows[-1].note for rows in series.values() if rows and rows[-1].note]
    return notes[0] if notes else "no data"


def value_domain(unit: str, rows: Iterable[Row], limit: float | None, *, log: bool) -> Domain:
    """From where to where the value axis goes: all numbers and the limit in it, with a little air."""
    found = [x for row in rows for x in row.ends]
    top = [row.low for row in rows if row.low is not None and row.high is None]
    every = [*found, *([] if limit is None else [limit])]
    if log:
        positive = [x for x in (*every, *(x * 3 for x in top)) if x > 0] or list(_EMPTY_LOG)
        return Domain(min(positive) / 1.6, max(positive) * 1.6)
    if unit == "ratio":
        low = min(every) if every and limit is not None else 0.0
        low = 0.9 if low >= 1 else max(0.0, low - (1 - low) * 0.15)
        return Domain(low, 1 + (1 - low) * 0.03)  # so that 100 % is not half hidden by the edge
    high = max([*every, *(x * 1.5 for x in top)], default=_EMPTY_LINEAR[1])
    return Domain(0.0, high * 1.08 if high > 0 else _EMPTY_LINEAR[1])


def log_ticks(axis: Domain) -> list[float]:
    """Ticks of a logarithmic axis: 1 and 3 of every decade, or only 1 on a long one.

    Examples
    --------
    >>> log_ticks(Domain(0.02, 12.0)), log_ticks(Domain(0.0009, 120.0))
    ([0.03, 0.1, 0.3, 1.0, 3.0, 10.0], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0])
    """
    low, high = math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high))
    steps = (1, 3) if math.log10(axis.high / axis.low) < _LONG_DECADES else (1,)
    every = [float(f"{step}e{power}") for power in range(low, high + 1) for step in steps]
    return [tick for tick in every if axis.low <= tick <= axis.high]


def time_ticks(times: Domain) -> list[float]:
    """Ticks of a time axis in milliseconds, on whole units of UTC, at most eight.

    Examples
    --------
    >>> [tick / 60_000 for tick in time_ticks(Domain(0, 3_600_000))]
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    """
    length_s = (times.high - times.low) / 1000
    step_s = next((s for s in _TICK_STEPS_S if length_s / s <= _MOST_TICKS), math.ceil(length_s / 6 / _DAY_S) * _DAY_S)
    first = math.ceil(times.low / 1000 / step_s)
    last = math.floor(times.high / 1000 / step_s)
    return [i * step_s * 1000.0 for i in range(first, last + 1)]


def _add(
    out: dict[str, list[dict[str, Any]]], label: str, rows: list[Row], axis: Domain, objective: float | None
) -> None:
    alone = _alone(rows)
    for row, single in zip(rows, alone, strict=True):
        if row.low is not None:
            cells: dict[str, Any] = {"t0": row.start_s * 1000, "t1": row.end_s * 1000, "lo": max(row.low, axis.low)}
            cells["s"] = label if objective is None else verdict_of(row, objective)
            if row.high is None or not math.isfinite(row.high):
                out["open"].append(cells)
            else:
                out["boxes"].append(cells | {"hi": max(row.high, axis.low)})
        elif single:
            out["points"].append({"t": row.t, "s": label, "v": row.value})
    if any(row.value is not None and row.low is None for row in rows):
        out["paths"] += _path(label, rows)


def _path(label: str, rows: list[Row]) -> list[dict[str, Any]]:
    """A line's points; a null where a window has no number or is missing, so that the line breaks there."""
    path: list[dict[str, Any]] = []
    before: Row | None = None
    for row in rows:
        if before is not None and row.start_s - before.end_s > (row.end_s - row.start_s) / 2:
            path.append({"t": (before.end_s + row.start_s) * 500, "s": label, "v": None})
        path.append({"t": row.t, "s": label, "v": None if row.low is not None else row.value})
        before = row
    return path


def _alone(rows: list[Row]) -> list[bool]:
    known = [row.value is not None and row.low is None for row in rows]
    around = [False, *known, False]
    return [here and not (around[i] or around[i + 2]) for i, here in enumerate(known)]


def verdict_of(row: Row, objective: float) -> str:
    """Whether an interval of attainment meets, misses, or may meet the objective."""
    if row.low is not None and row.low >= objective:
        return "meets"
    return "misses" if row.high is not None and row.high < objective else "uncertain"


def _windows(unit: str, series: Mapping[str, list[Row]]) -> list[dict[str, Any]]:
    columns: dict[tuple[float, float], dict[str, Any]] = {}
    for i, rows in enumerate(series.values()):
        for row in rows:
            cells = columns.setdefault((row.start_s, row.end_s), {})
            cells[f"n{i}"] = row_text(unit, row)
    out = []
    for (start, end), cells in sorted(columns.items()):
        when = f"{utc(start, '%d %b %H:%M')}–{utc(end, '%H:%M' if (end - start) % 60 == 0 else '%H:%M:%S')}"
        out.append({"t0": start * 1000, "t1": end * 1000, "when": when, **cells})
    return out


def _when(at_s: float, times: Domain) -> str:
    return utc(at_s, "%H:%M:%S" if times.high - times.low <= _DAY_S * 1000 else "%d %b %H:%M:%S")
