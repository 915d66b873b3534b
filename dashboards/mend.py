"""Takes out of grafanalib's JSON what Grafana's own schema refuses: old fields, nulls, an old schema version."""

from typing import Any, Final

#: classic form that Grafana 10 reads as it is and 13 migrates at load
SCHEMA_VERSION: Final = 39

_DASHBOARD: Final = frozenset(
    {
        "annotations", "description", "editable", "fiscalYearStartMonth", "graphTooltip", "id", "links", "panels", "refresh",
        "schemaVersion", "tags", "templating", "time", "timepicker", "timezone", "title", "uid", "version",
    }
)  # fmt: skip
_PANEL: Final = frozenset(
    {
        "datasource",
        "description",
        "fieldConfig",
        "gridPos",
        "id",
        "options",
        "targets",
        "title",
        "transformations",
        "type",
    }
)
_ROW: Final = frozenset({"collapsed", "gridPos", "id", "panels", "title", "type"})
_TARGET: Final = frozenset(
    {"datasource", "editorMode", "exemplar", "expr", "format", "instant", "legendFormat", "range", "refId"}
)
_VARIABLE: Final = frozenset(
    {
        "allValue", "current", "datasource", "hide", "includeAll", "label", "multi", "name", "options", "query", "refresh",
        "regex", "skipUrlSync", "sort", "type",
    }
)  # fmt: skip


def mended(board: dict[str, Any]) -> dict[str, Any]:
    """The board in the classic form of Grafana 10 to 13."""
    kept = {key: value for key, value in board.items() if key in _DASHBOARD}
    kept |= {
        "schemaVersion": SCHEMA_VERSION,
        "id": None,
        "version": 0,
        "timepicker": {},
        "panels": [_panel(panel) for panel in board["panels"]],
        "templating": {"list": [_variable(v) for v in board["templating"]["list"]]},
        "links": [{**link, "icon": "external link", "url": link.get("url") or ""} for link in board["links"]],
    }
    clean: dict[str, Any] = _without_nulls(kept)
    return {**clean, "id": None}


def _panel(panel: dict[str, Any]) -> dict[str, Any]:
    if panel["type"] == "row":
        return {
            **{key: value for key, value in panel.items() if key in _ROW},
            "panels": [_panel(inner) for inner in panel.get("panels", ())],
        }
    kept = {key: value for key, value in panel.items() if key in _PANEL and value not in ([], None)}
    targets = [{k: v for k, v in target.items() if k in _TARGET} for target in panel["targets"]]
    return (
        {**kept, "targets": targets} if targets else {key: value for key, value in kept.items() if key != "datasource"}
    )


def _variable(variable: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in variable.items() if key in _VARIABLE and value is not None}
    kept["skipUrlSync"] = variable["type"] == "constant"
    if variable["type"] == "query":
        # The object form that Grafana 10 to 13 write; 5 is a query as text.
        kept["query"] = {
            "query": variable["query"],
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
            "qryType": 5,
        }
        kept["regex"] = variable.get("regex") or ""
    if variable["type"] == "datasource":
        kept["current"], kept["regex"] = {"selected": False, "text": "default", "value": "default"}, ""
    if variable["type"] == "constant":
        value = variable["query"]
        kept["current"] = {"selected": True, "text": value, "value": value}
        kept["options"] = [kept["current"]]
    return kept


def _without_nulls(node: Any) -> Any:
    """The same without nulls, except where a null is a value: the lowest threshold, and "no value" in a mapping."""
    if isinstance(node, dict):
        return {
            key: _without_nulls(value)
            for key, value in node.items()
            if value is not None or (key == "value" and "color" in node)
        }
    return [_without_nulls(one) for one in node] if isinstance(node, list) else node
