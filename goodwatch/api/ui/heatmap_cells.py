"""A heatmap as a table of texts and tones. Pure.

A tone says how a cell stands to the target: met, near (the target lies inside the cell's interval) or missed, each with
a mark of its own, so that nothing depends on colour. Without a target to hold it against a cell only has a shade, which
says how large it is beside the largest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from goodwatch.api.request_query import NOT_TOLD, field_key, field_text, link, measure_text
from goodwatch.api.request_shapes import cell_number
from goodwatch.api.ui.format import digits, interval, scalar, seconds, shown
from goodwatch.app.request_view import MapView
from goodwatch.core.model import Absence, Bounds, Number
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.heatmap import Ask, Cell, Heatmap, Measure
from goodwatch.signals.reconcile import Reconciled

#: class of a cell → (mark, word, what it means)
TONES: Final[dict[str, tuple[str, str, str]]] = {
    "met-far": ("✓", "met", "less than half of the target"),
    "met": ("✓", "met", "the whole interval is within the target"),
    "near": ("▲", "near or unsure", "the target lies inside the interval"),
    "missed": ("✕", "missed", "the whole interval is beyond the target"),
    "missed-far": ("✕", "missed", "more than twice the target"),
}
_SHADES: Final = 4
_FAR: Final = 2.0
#: columns of ``LimitsRow`` that a filter can settle
_SETTLED_BY: Final = ("model", "form", "tenant", "route")


@dataclass(frozen=True, slots=True)
class Held:
    """What cells are held against: the least and the greatest target of the requests on the map, or why there is none."""

    low: float | None = None
    high: float | None = None
    above: bool = False  # good is at or above (attainment), not at or below
    text: str = ""


@dataclass(frozen=True, slots=True)
class MapCell:
    """One cell: ``tone`` is its class, ``text`` its number, ``small`` the line below, ``said`` all of it in words."""

    tone: str
    mark: str
    text: str
    small: str
    said: str
    query: str  # of the list of its requests; "" when there is none


@dataclass(frozen=True, slots=True)
class MapRow:
    """The cells of one band of input lengths."""

    band: str
    cells: tuple[MapCell, ...]


@dataclass(frozen=True, slots=True)
class MapTable:
    """The map without the bands at its edges that have no request."""

    outputs: tuple[str, ...]
    rows: tuple[MapRow, ...]
    requests: float
    cells_shown: int  # with a number
    cells_few: int  # with too few requests for one


def held_against(ask: Ask, limits: LimitsTable, vantage: Vantage, objective: float | None, filters: object) -> Held:
    """What a map is held against.

    A latency of another vantage point than the SLO's has no target; nor has queue time. Where requests on one map have
    different targets a cell is met when it meets the strictest, and missed when it misses the loosest.
    """
    if ask.measure is Measure.ATTAINMENT:
        if objective is None:
            return Held(text="no objective is set")
        return Held(objective, objective, above=True, text=f"objective {' '.join(scalar('ratio', objective))}")
    if ask.measure is not Measure.LATENCY:
        return Held(text="no target applies to it")
    at, _, name = field_key(ask.field).partition("_")
    if at != vantage.value:
        return Held(text=f"targets are held against the {vantage.value}'s stopwatch, not the {at}'s")
    wanted = filters if isinstance(filters, Mapping) else {}
    rows = [row for row in limits if _can_match(row, wanted)]
    found = [getattr(row.limits, f"{name}_s", None) for row in rows]
    told = [limit for limit in found if limit is not None]
    if not told:
        return Held(text=f"no target is set for {field_text(ask.field)}")
    if len(told) < len(found):
        return Held(text="some of these requests have no such target; filter by tenant, model, form or route")
    low, high = min(told), max(told)
    texts = seconds(low) if low == high else f"{seconds(low)} to {seconds(high)}, by who asks"
    return Held(low, high, text=f"target {texts}")


def _can_match(row: object, wanted: Mapping[str, object]) -> bool:
    asked = {name: getattr(row, name, None) for name in _SETTLED_BY}
    return all(value is None or name not in wanted or wanted[name] == value for name, value in asked.items())


def tone_of(number: Number, held: Held) -> str:
    """Class of a number that is there; "" when nothing holds it.

    Examples
    --------
    >>> limit = Held(0.5, 0.5)
    >>> [tone_of(Number("s", None, v, Bounds(a, b)), limit) for v, a, b in ((0.2, 0.2, 0.3), (0.5, 0.4, 0.6), (2, 2, 3))]
    ['met-far', 'near', 'missed-far']
    """
    if held.low is None or held.high is None:
        return ""
    low, high, value = _ends(number)
    if held.above:
        if low >= held.high:
            return "met"
        missed = high is not None and high < held.low
        far = missed and value is not None and 1 - value > _FAR * (1 - held.low)
        return ("missed-far" if far else "missed") if missed else "near"
    if high is not None and high <= held.low:
        return "met-far" if value is not None and value <= held.low / _FAR else "met"
    if low > held.high:
        return "missed-far" if value is not None and value > held.high * _FAR else "missed"
    return "near"


def _ends(number: Number) -> tuple[float, float | None, float | None]:
    bounds = number.bounds or Bounds(number.value or 0.0, number.value)
    return bounds.low, bounds.high, number.value


def map_table(view: MapView, held: Held, query: Mapping[str, str]) -> MapTable:
    """The map as texts; ``query`` are the filters and range that every cell's link keeps."""
    of = replace(view.map, cells=tuple(_told(cell, view.reconciled) for cell in view.map.cells))
    width = range(len(of.outputs))
    rows = _used([sum(of.cell(i, j).requests for j in width) for i in range(len(of.inputs))])
    columns = _used([sum(of.cell(i, j).requests for i in range(len(of.inputs))) for j in width])
    largest = max((c.number.value or 0.0 for c in of.cells if c.number.absence is None), default=0.0)
    made = [
        MapRow(
            of.inputs[i].text, tuple(_cell(of, of.cell(i, j), held, largest=largest, query=query) for j in columns)
        )
        for i in rows
    ]  # fmt: skip
    few = [c for c in of.cells if c.requests and c.number.absence is not None]
    return MapTable(
        tuple(of.outputs[j].text for j in columns), tuple(made), sum(c.requests for c in of.cells),
        sum(c.number.absence is None for c in of.cells), len(few),
    )  # fmt: skip


def _told(cell: Cell, against: Reconciled) -> Cell:
    return replace(cell, number=cell_number(cell.number, against))


def _used(requests: Sequence[float]) -> range | list[int]:
    """Bands from the first to the last that has requests, and the unknown one (the last) only if it has some."""
    known = [i for i, count in enumerate(requests[:-1]) if count]
    found = list(range(known[0], known[-1] + 1)) if known else []
    return [*found, *([len(requests) - 1] if requests[-1] else [])]


def _cell(of: Heatmap, cell: Cell, held: Held, *, largest: float, query: Mapping[str, str]) -> MapCell:
    bands = of.inputs[cell.input], of.outputs[cell.output]
    place = f"input {bands[0].text} tokens, output {bands[1].text} tokens"
    if not cell.requests:
        return MapCell("none", "", "·", "", f"{place}: no request", "")
    count = f"{digits(cell.requests)} request{'' if cell.requests == 1 else 's'}"
    target = link(
        **{
            **query,
            "input": _band_query(bands[0].low, bands[0].high),
            "output": _band_query(bands[1].low, bands[1].high),
            "order": _order(of.ask),
        }
    )
    number = cell.number
    if number.absence is not None:
        few = number.absence is Absence.NO_DATA
        text = ("too few" if few else number.absence.value, "few" if few else "not-told")
        return MapCell(text[1], "", text[0], count, f"{place}: {count}; {number.note}", target)
    tone = tone_of(number, held)
    mark, word = TONES[tone][:2] if tone else ("", "")
    said = f"{place}: {measure_text(of.ask)} {_value(number)}{_interval(number)}; {count}; {shown(number).title}"
    return MapCell(
        tone or _shade(number, largest), mark, _value(number), count, said + (f"; {word}: {held.text}" if word else ""),
        target,
    )  # fmt: skip


def _value(number: Number) -> str:
    if number.value is None and number.bounds is not None:
        return " ".join(interval(number.unit, number.bounds)).strip()
    return " ".join(scalar(number.unit, number.value or 0.0)).strip()


def _interval(number: Number) -> str:
    if number.bounds is None or number.value is None:
        return ""
    if number.bounds.high is not None and number.bounds.low == number.bounds.high:
        return ""
    return f" (interval {' '.join(interval(number.unit, number.bounds)).strip()})"


def _shade(number: Number, largest: float) -> str:
    """Four shades by size, each four times as large as the one before; the first also holds all that is smaller."""
    value = number.value or 0.0
    if value <= 0 or largest <= 0:
        return "shade-1"
    step = _SHADES - math.floor(math.log(largest / value, 4))
    return f"shade-{min(_SHADES, max(1, step))}"


def _band_query(low: int | None, high: int | None) -> str:
    if low is None:
        return NOT_TOLD
    return f"{low}-" if high is None else f"{low}-{high - 1}"


def _order(ask: Ask) -> str:
    return field_key(ask.field) if ask.measure is Measure.LATENCY else ""


def class_texts(by_class: Mapping[str, float]) -> str:
    """Classes of requests with their counts, for one line."""
    return ", ".join(f"{digits(count)} {name.replace('_', ' ')}" for name, count in by_class.items())
