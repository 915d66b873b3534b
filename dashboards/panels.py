"""Boards as Grafana's classic JSON: the one place that knows grafanalib, and the panel types that it lacks.

grafanalib's own panel classes write options of Grafana 7 to 9, which today's schemas refuse; so panels are built from
its ``Panel`` with options and field options of today, and ``mend`` takes out what is left of the old form.
"""

import json
import zlib
from collections.abc import Iterator
from typing import Any, Final

import attr
import grafanalib.core as grafana
from grafanalib._gen import DashboardEncoder

from dashboards.mend import mended
from dashboards.shapes import field_config, options
from dashboards.values import GRID, Board, Note, Panel, Query, Row, Variable

#: data source of every panel and query: what the reader picked
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_GRAFANA: Final = {"type": "grafana", "uid": "-- Grafana --"}
_FORMATS: Final = {"series": "time_series", "table": "table", "now": "time_series", "buckets": "heatmap"}
_ROW_HEIGHT: Final = 1


@attr.s
class ClassicPanel(grafana.Panel):  # type: ignore[misc]  # grafanalib has no types
    """A panel of any type with today's options; grafanalib lacks most of the fields."""

    kind: str = attr.ib(default="timeseries")
    options: dict[str, Any] = attr.ib(factory=dict)
    fields: dict[str, Any] = attr.ib(factory=dict)

    def to_json_data(self) -> dict[str, Any]:
        """The panel as grafanalib's encoder wants it."""
        made: dict[str, Any] = self.panel_json({"type": self.kind, "options": self.options})
        return {**made, "fieldConfig": self.fields}


@attr.s
class ClassicTarget(grafana.Target):  # type: ignore[misc]
    """A query with what grafanalib's lacks: range beside instant, and exemplars."""

    exemplar: bool = attr.ib(default=False)

    def to_json_data(self) -> dict[str, Any]:
        """The query as grafanalib's encoder wants it."""
        return {**super().to_json_data(), "range": not self.instant, "exemplar": self.exemplar, "editorMode": "code"}


#: without types, as all of grafanalib is
_PANEL: Any = ClassicPanel
_TARGET: Any = ClassicTarget


def document(board: Board, build: str) -> dict[str, Any]:
    """The board as a JSON document; ``build`` is kept in a hidden variable."""
    variables = (
        Variable("datasource", "Data source", "prometheus", "datasource", multi=False),
        *board.variables,
        Variable("goodwatch_build", "Made by goodwatch", build, "constant", multi=False),
    )
    made = grafana.Dashboard(
        title=board.title, uid=board.uid, description=board.question, tags=["goodwatch", *board.tags], editable=False,
        timezone="browser", refresh=board.refresh, time=grafana.Time(board.range_from, "now"), sharedCrosshair=False,
        graphTooltip=1, panels=list(_laid_out(board)), templating=grafana.Templating([_variable(v) for v in variables]),
        annotations=grafana.Annotations([_note(note) for note in board.notes]),
        links=[grafana.DashboardLink(title="goodwatch boards", tags=["goodwatch"], asDropdown=True, includeVars=True, keepTime=True)],
    )  # fmt: skip
    return mended(json.loads(json.dumps(made, cls=DashboardEncoder)))


def _laid_out(board: Board) -> Iterator[Any]:
    """Rows and panels from top to bottom; ids follow from titles, so that a new panel moves no link."""
    taken: set[int] = set()
    top = 0
    for row in board.rows:
        placed, below = _placed(row, top + _ROW_HEIGHT, taken)
        yield grafana.RowPanel(
            title=row.title, collapsed=row.collapsed, panels=placed if row.collapsed else [],
            gridPos=grafana.GridPos(h=_ROW_HEIGHT, w=GRID, x=0, y=top), id=_identity(f"row {row.title}", taken),
        )  # fmt: skip
        top = top + _ROW_HEIGHT if row.collapsed else below
        yield from () if row.collapsed else placed


def _placed(row: Row, top: int, taken: set[int]) -> tuple[list[Any], int]:
    """The row's panels, and the first line below them."""
    found: list[Any] = []
    left = tallest = 0
    for panel in row.panels:
        if left + panel.width > GRID:
            left, top, tallest = 0, top + tallest, 0
        found.append(_panel(panel, grafana.GridPos(h=panel.height, w=panel.width, x=left, y=top), taken))
        left, tallest = left + panel.width, max(tallest, panel.height)
    return found, top + tallest


def _identity(title: str, taken: set[int]) -> int:
    found = zlib.crc32(title.encode()) % 1_000_000 + 1
    while found in taken:
        found += 1
    taken.add(found)
    return found


def _panel(panel: Panel, place: Any, taken: set[int]) -> Any:
    return _PANEL(
        dataSource=SOURCE, kind=panel.kind, title=panel.title, description=panel.description, gridPos=place,
        id=_identity(panel.title, taken), targets=[_target(query, i) for i, query in enumerate(panel.queries)],
        transformations=list(panel.transformations), options=options(panel), fields=field_config(panel),
        maxDataPoints=None,
    )  # fmt: skip


def _target(query: Query, place: int) -> Any:
    return _TARGET(
        expr=query.expr, legendFormat=query.legend or "__auto", refId=chr(ord("A") + place), datasource=SOURCE,
        format=_FORMATS[query.form], instant=query.form in ("table", "now"), exemplar=query.exemplars,
    )  # fmt: skip


def _variable(variable: Variable) -> Any:
    if variable.kind == "constant":
        return grafana.Template(
            variable.name, variable.query, type="constant", label=variable.label, hide=grafana.HIDE_VARIABLE,
            default=variable.query,
        )  # fmt: skip
    if variable.kind == "datasource":
        return grafana.Template(
            variable.name, variable.query, type="datasource", label=variable.label, sort=grafana.SORT_DISABLED
        )
    made = grafana.Template(
        variable.name, variable.query, dataSource=SOURCE, label=variable.label, multi=variable.multi, includeAll=True,
        allValue=variable.everything, refresh=grafana.REFRESH_ON_TIME_RANGE_CHANGE, sort=grafana.SORT_ALPHA_IGNORE_CASE_ASC,
    )  # fmt: skip
    made._current = (
        {"selected": True, "text": ["All"], "value": ["$__all"]}
        if variable.multi
        else {"text": "All", "value": "$__all"}
    )
    return made


def _note(note: Note) -> dict[str, Any]:
    common = {"name": note.name, "enable": True, "hide": False, "iconColor": note.color}
    if note.tags:
        target = {"type": "tags", "tags": list(note.tags), "matchAny": False, "limit": 100}
        return {**common, "datasource": _GRAFANA, "type": "tags", "target": target}
    return {
        **common, "datasource": SOURCE, "expr": note.expr, "step": "60s", "titleFormat": note.name, "textFormat": note.text,
    }  # fmt: skip
