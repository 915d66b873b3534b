"""Tables of boards: several queries joined by a label, and the map of input by output lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dashboards.values import GREEN, GREY, Link, Override, Panel, Query, Step

_ENDS: Final = ("0-63", "64-255", "256-1023", "1024-4095", "4096-16383", "16384-65535", "65536+")
#: bands of output lengths in their order: by text "1024-4095" would come before "256-1023"
BANDS: Final = ("0-255", *_ENDS)
KNOWN_LENGTHS: Final = 'input_band!="unknown",output_band!="unknown"'
#: a cell without a number has no colour either: the lowest threshold's would call it the worst
_EMPTY_CELL: Final = {
    "type": "special",
    "options": {"match": "null+nan", "result": {"text": "–", "color": "transparent", "index": 0}},
}
_NO_NUMBER: Final = {
    "type": "special",
    "options": {"match": "null+nan", "result": {"text": "–", "color": GREY, "index": 9}},
}
_CORNER: Final = "input_from\\output_band"
_CORNER_TITLE: Final = "input from ↓ output →"


@dataclass(frozen=True, slots=True)
class Column:
    """One query of a table: its heading ("": only its labels are shown), unit, thresholds where it has a colour."""

    title: str
    expr: str
    unit: str = "short"
    steps: tuple[Step, ...] = ()
    decimals: int | None = None
    mappings: tuple[dict[str, Any], ...] = ()


def joined(
    title: str, description: str, columns: Sequence[Column], by: Sequence[str], *, links: Sequence[Link] = (),
    sort: str = "", sort_down: bool = False, widths: Mapping[str, int] | None = None, **more: Any,
) -> Panel:  # fmt: skip
    """One row for each value of the first label of ``by``; other labels of ``by`` become columns too.

    ``widths`` are pixels of labels' columns.
    """
    many = len(columns) > 1
    named = {(f"Value #{chr(ord('A') + i)}" if many else "Value"): column for i, column in enumerate(columns)}
    values = {name: column for name, column in named.items() if column.title}
    order = [*by, *values]
    filtered = {"id": "filterFieldsByName", "options": {"include": {"names": order}}}
    return Panel(
        "table", title, description, tuple(Query(column.expr, "", "table") for column in columns), "short",
        transformations=(
            *(({"id": "merge", "options": {}},) if many else ()),
            filtered,
            {
                "id": "organize",
                "options": {
                    "excludeByName": {}, "indexByName": {name: i for i, name in enumerate(order)},
                    "renameByName": {name: column.title for name, column in values.items()},
                },
            },
            *(({"id": "sortBy", "options": {"fields": {}, "sort": [{"field": sort, "desc": sort_down}]}},) if sort else ()),
        ),
        overrides=(
            *(_look(column) for column in values.values()), *((_led(by[0], links),) if links else ()),
            *(Override(name, (("custom.width", width),)) for name, width in (widths or {}).items()),
        ),
        **more,
    )  # fmt: skip


def _look(column: Column) -> Override:
    properties: list[tuple[str, Any]] = [("unit", column.unit)]
    if column.decimals is not None:
        properties.append(("decimals", column.decimals))
    if column.steps:
        # A cell without a number has no judgement: the lowest threshold's colour would call it the worst.
        properties.append(("mappings", [_NO_NUMBER, *column.mappings]))
        steps = [{"value": step.value, "color": step.color} for step in column.steps]
        properties += [
            ("thresholds", {"mode": "absolute", "steps": steps}),
            ("custom.cellOptions", {"type": "color-text"}),
        ]
    return Override(column.title, tuple(properties))


def _led(name: str, links: Sequence[Link]) -> Override:
    return Override(
        name, (("links", [{"title": link.title, "url": link.url, "targetBlank": False} for link in links]),)
    )


def length_map(
    title: str, description: str, expr: str, unit: str, *, steps: tuple[Step, ...] = (), links: tuple[Link, ...] = (),
    **more: Any,
) -> Panel:  # fmt: skip
    """A value for each pair of input and output band: bands of inputs go down, those of outputs across.

    Grafana's heatmap panel cannot show it: its x axis is time for every frame that Prometheus gives.
    """
    # The lower end of a band as a number sorts; its text does not.
    rows = f'label_replace({expr}, "input_from", "$1", "input_band", "([0-9]+).*")'
    order = {name: i for i, name in enumerate((_CORNER, *BANDS))}
    corner = Override(
        _CORNER_TITLE,
        (
            ("custom.cellOptions", {"type": "auto"}),
            ("unit", "none"),
            ("decimals", 0),
            ("custom.width", 150),
            ("color", {"mode": "fixed"}),
        ),
    )
    return Panel(
        "table", title, description, (Query(rows, "", "table"),), unit, steps=steps or (Step(None, GREEN),),
        transformations=(
            {
                "id": "groupingToMatrix",
                "options": {
                    "columnField": "output_band", "rowField": "input_from", "valueField": "Value", "emptyValue": "null",
                },
            },
            {
                "id": "convertFieldType",
                "options": {"conversions": [{"targetField": _CORNER, "destinationType": "number"}], "fields": {}},
            },
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": _CORNER, "desc": False}]}},
            {
                "id": "organize",
                "options": {"excludeByName": {}, "indexByName": order, "renameByName": {_CORNER: _CORNER_TITLE}},
            },
        ),
        mappings=(_EMPTY_CELL,), overrides=(corner,), color="" if steps else "continuous-GrYlRd", links=links, custom={"cellOptions": {"type": "color-background", "mode": "basic"}},
        low=0, **more,
    )  # fmt: skip
