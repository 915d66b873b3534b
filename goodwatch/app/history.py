"""Derived numbers over time: minutes of a range cut into steps, each derived like a window of its own. Pure."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

from goodwatch.core.engine import Engine
from goodwatch.core.model import Limits, Number
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import Derived, derive
from goodwatch.signals.frames import DERIVED, MINUTES
from goodwatch.signals.layers import Place, explained, layered
from goodwatch.signals.windows import target_windows

_STEPS: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
#: about as many steps as a chart has room for
_WANTED_STEPS: Final = 120


def step_for(seconds: float) -> float:
    """A whole-minute step that cuts a range into about 120 pieces.

    Examples
    --------
    >>> step_for(3600), step_for(86400)
    (60.0, 900.0)
    """
    wanted = seconds / _WANTED_STEPS
    return float(next((s for s in _STEPS if s >= wanted), _STEPS[-1]))


def series(
    minutes: pl.DataFrame,
    engines: Mapping[str, Engine],
    limits: Limits,
    prices: Mapping[str, Price],
    *,
    start_s: float,
    end_s: float,
    step_s: float,
    places: Mapping[str, Place] | None = None,
) -> pl.DataFrame:
    """Every derived name at every step of ``[start_s, end_s)``, as ``frames.DERIVED``.

    ``minutes`` may begin earlier: what lies before a step gives the gauges at its start. A step without a single
    scrape is there with nulls, so that a gap stays a gap.
    """
    first = math.floor(start_s / step_s) * step_s
    edges = [first + i * step_s for i in range(max(1, math.ceil((end_s - first) / step_s)))]
    stepped = minutes.with_columns(((pl.col("minute_s") / step_s).floor() * step_s).alias("_step"))
    parts = {key[0]: part.drop("_step") for key, part in stepped.partition_by("_step", as_dict=True).items()}
    empty = pl.DataFrame(schema=MINUTES)
    edges_frame = _last_gauges(minutes.filter(pl.col("minute_s") < first))
    rows: list[tuple[Any, ...]] = []
    for edge in edges:
        inside, before = parts.get(edge, empty), edges_frame
        end = edge + step_s
        if not inside.is_empty():
            edges_frame = _last_gauges(pl.concat([before, inside]))
        layers = layered(target_windows(inside, before, edge, end), engines, places, prices=prices)
        found = derive(layers.windows, engines, limits, layers.prices(prices), start_s=edge, end_s=end)
        rows += derived_rows(explained(found, layers), "", "", "")
    return pl.DataFrame(rows, schema=DERIVED, orient="row")


def _last_gauges(rows: pl.DataFrame) -> pl.DataFrame:
    """The last row of every gauge: what was in flight when the next step that was read began, also over a gap."""
    keys = ("target", "model", "signal", "part")
    return rows.filter(pl.col("kind") == "gauge").sort("minute_s").unique(keys, keep="last", maintain_order=True)


def derived_rows(derived: Derived, service: str, target: str, model: str) -> list[tuple[Any, ...]]:
    """One scope's numbers as rows of ``frames.DERIVED``."""
    return [
        (derived.end_s, derived.end_s - derived.start_s, service, target, model, name, *_cells(number))
        for name, number in derived.numbers.items()
    ]


def derived_frame(rows: Iterable[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows as a frame of ``frames.DERIVED``."""
    return pl.DataFrame(list(rows), schema=DERIVED, orient="row")


def _cells(number: Number) -> tuple[Any, ...]:
    low = high = None
    if number.bounds is not None:
        low = number.bounds.low
        high = math.inf if number.bounds.high is None else number.bounds.high
    note = number.note if number.absence is None else f"{number.absence}: {number.note}".rstrip(": ")
    return (number.value, low, high, number.basis or "", note)
