"""Options and field options of each panel type, as Grafana 10 to 13 write them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dashboards.values import Override, Panel

_REDUCE: Final = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def options(panel: Panel) -> dict[str, Any]:
    """The panel's options: those of its type, then its own."""
    return {**_OPTIONS[panel.kind](), **panel.options}


def field_config(panel: Panel) -> dict[str, Any]:
    """The panel's field options: unit, thresholds, links and what its type adds."""
    if panel.kind == "text":
        return {"defaults": {}, "overrides": []}
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        # In a table it stands in every empty cell; an empty table says "No data" by itself.
        "noValue": "–" if panel.kind == "table" else panel.no_data,
        "color": {"mode": panel.color or ("palette-classic" if panel.kind == "timeseries" else "thresholds")},
        "mappings": list(panel.mappings),
        "thresholds": {"mode": "absolute", "steps": [{"value": s.value, "color": s.color} for s in panel.steps]},
        "custom": {**_CUSTOM.get(panel.kind, {}), **panel.custom},
        **{key: value for key, value in (("min", panel.low), ("max", panel.high), ("decimals", panel.decimals)) if value is not None},
    }  # fmt: skip
    if panel.kind == "timeseries" and len(panel.steps) > 1:
        defaults["custom"] |= {"thresholdsStyle": {"mode": "dashed"}}
    if panel.links:
        defaults["links"] = [{"title": link.title, "url": link.url, "targetBlank": True} for link in panel.links]
    return {"defaults": defaults, "overrides": [_override(one) for one in panel.overrides]}


def _override(one: Override) -> dict[str, Any]:
    properties = [{"id": name, "value": value} for name, value in one.properties]
    return {"matcher": {"id": one.by, "options": one.match}, "properties": properties}


def _stat() -> dict[str, Any]:
    return {
        "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "reduceOptions": _REDUCE,
        "textMode": "auto", "wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard",
    }  # fmt: skip


def _timeseries() -> dict[str, Any]:
    return {
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc", "hideZeros": False},
    }


def _table() -> dict[str, Any]:
    return {"cellHeight": "sm", "frameIndex": 0, "showHeader": True}


def _bargauge() -> dict[str, Any]:
    return {
        "displayMode": "gradient", "orientation": "horizontal", "reduceOptions": _REDUCE, "showUnfilled": True,
        "valueMode": "color", "minVizHeight": 16, "minVizWidth": 8, "maxVizHeight": 300, "namePlacement": "auto",
        "sizing": "auto", "text": {"titleSize": 14, "valueSize": 20}, "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": False},
    }  # fmt: skip


def _heatmap() -> dict[str, Any]:
    return {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": "short"},
        "color": {
            "mode": "scheme", "scheme": "Oranges", "exponent": 0.5, "fill": "dark-orange", "scale": "exponential",
            "steps": 64, "reverse": False,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": "s"},
    }  # fmt: skip


def _timeline() -> dict[str, Any]:
    return {
        "alignValue": "left", "mergeValues": True, "rowHeight": 0.9, "showValue": "never",
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none", "hideZeros": False},
    }  # fmt: skip


_OPTIONS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "stat": _stat,
    "timeseries": _timeseries,
    "table": _table,
    "bargauge": _bargauge,
    "heatmap": _heatmap,
    "state-timeline": _timeline,
    "text": lambda: {
        "mode": "markdown",
        "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
    },
}
_CUSTOM: Final[Mapping[str, Mapping[str, Any]]] = {
    "timeseries": {
        "drawStyle": "line", "fillOpacity": 8, "lineInterpolation": "linear", "lineWidth": 1, "pointSize": 4,
        "showPoints": "auto", "spanNulls": False, "axisPlacement": "auto", "axisSoftMin": 0,
        "stacking": {"group": "A", "mode": "none"}, "thresholdsStyle": {"mode": "off"},
    },
    "table": {"align": "auto", "minWidth": 70, "cellOptions": {"type": "auto"}, "inspect": False},
    "heatmap": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}, "scaleDistribution": {"type": "linear"}},
    "state-timeline": {"fillOpacity": 80, "lineWidth": 0, "hideFrom": {"legend": False, "tooltip": False, "viz": False}},
}  # fmt: skip
