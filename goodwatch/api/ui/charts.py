"""Time charts as Vega-Lite: frames and events in, a chart with its data out. Pure.

A window is drawn over the time that it stands for. An interval is drawn as an interval: a box from its lower to its
upper end, open boxes reaching the top. Where there is no number nothing is drawn, and the tooltip says why.
Colours are names (``@bad``) that the browser takes from the style sheet.
"""

import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import altair as alt
import polars as pl

from goodwatch.api.ui.chart_rows import Domain, Row, datasets, log_ticks, rows_by_name, time_ticks
from goodwatch.app.view import Event
from goodwatch.core.model import Limits

HEIGHT_PX: Final = 150
_EVENT_COLOURS: Final = {"deployment": "@info", "restart": "@bad", "down": "@bad", "up": "@good"}
_VERDICT_COLOURS: Final = {"meets": "@good", "uncertain": "@warning", "misses": "@bad"}
_SECONDS_LABEL: Final = (
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : "
    "datum.value >= 0.001 ? format(datum.value * 1000, '~r') + ' ms' : format(datum.value * 1e6, '~r') + ' µs'"
)
_TIME_LABEL: Final = "datum.value % 86400000 === 0 ? utcFormat(datum.value, '%d %b') : utcFormat(datum.value, '%H:%M')"
_AXES: Final[dict[str, dict[str, Any]]] = {
    "ratio": {"format": ".3~%"},
    "s": {"labelExpr": _SECONDS_LABEL},
    "USD": {"format": "$,.4~r"},
    "1/s": {"format": ",.3~r"},
    "requests": {"format": ",.3~r"},
}


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a chart: its label, its name in ``derive.MEANINGS``, its colour in ``theme``."""

    label: str
    name: str
    colour: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart of the service page; ``limit`` is the field of ``Limits`` (or "objective") that it shows as a line."""

    key: str
    title: str
    unit: str  # as in derive.MEANINGS
    suffix: str  # unit beside the title
    lines: tuple[Line, ...]
    limit: str = ""
    scale: Literal["linear", "log"] = "linear"
    verdict: bool = False  # colour by where the interval lies to the limit


def _quantiles(name: str) -> tuple[Line, ...]:
    return tuple(Line(q, f"{name}_{q}_seconds", f"@{q}") for q in ("p99", "p90", "p50"))


CHARTS: Final[tuple[Chart, ...]] = (
    Chart(
        "attainment", "Attainment", "ratio", "", (Line("attainment", "attainment_ratio", "@first"),),
        limit="objective", verdict=True,
    ),
    Chart("ttft", "TTFT", "s", "first token", _quantiles("ttft"), limit="ttft_s", scale="log"),
    Chart("tpot", "TPOT", "s", "per output token", _quantiles("tpot"), limit="tpot_s", scale="log"),
    Chart("e2e", "E2E", "s", "whole request", _quantiles("e2e"), limit="e2e_s", scale="log"),
    Chart("requests", "Requests", "1/s", "a second", (
        Line("good", "goodput_per_s", "@good"), Line("ended", "request_rate_per_s", "@first"),
        Line("unaccounted", "unaccounted_per_s", "@third"), Line("failed", "failed_per_s", "@fourth"),
    )),
    Chart("load", "Running and waiting", "requests", "requests", (
        Line("running", "requests_running", "@first"), Line("waiting", "requests_waiting", "@third"),
    )),
    Chart("queue", "Queue time", "s", "accepted to started", _quantiles("queue"), scale="log"),
    Chart("kv", "KV cache used", "ratio", "of the pool", (
        Line("mean", "kv_cache_used_ratio", "@first"), Line("fullest", "kv_cache_used_max_ratio", "@second"),
    )),
    Chart("preemptions", "Preemptions", "1/s", "a second", (Line("preempted", "preemptions_per_s", "@fourth"),)),
    Chart("tokens", "Tokens", "1/s", "a second", (
        Line("output", "output_tokens_per_s", "@first"), Line("input", "input_tokens_per_s", "@second"),
    )),
    Chart("prefix", "Prefix cache hits", "ratio", "of looked-up tokens", (
        Line("hits", "prefix_hit_ratio", "@first"),
    )),
    Chart("cost", "Cost per million output tokens", "USD", "USD, idle time in it", (
        Line("cost", "usd_per_million_output_tokens", "@first"),
    )),
)  # fmt: skip


def charts(
    frame: pl.DataFrame,
    events: Sequence[Event],
    *,
    start_s: float,
    end_s: float,
    limits: Limits,
    objective: float | None,
) -> dict[str, dict[str, Any]]:
    """Every chart of ``CHARTS`` as a Vega-Lite document with its data, by key.

    Parameters
    ----------
    frame
        ``frames.DERIVED`` rows of one scope; other names than the charts' are left alone.
    events
        Drawn as upright lines on every chart.
    start_s, end_s
        The time axis, Unix seconds.
    limits, objective
        The SLO, drawn as a line where it is set.
    """
    rows = rows_by_name(frame, (line.name for chart in CHARTS for line in chart.lines))
    marks: dict[str, float | None] = {
        "objective": objective, "ttft_s": limits.ttft_s, "tpot_s": limits.tpot_s, "e2e_s": limits.e2e_s,
    }  # fmt: skip
    times = Domain(start_s * 1000, end_s * 1000)
    return {chart.key: _filled(chart, rows, events, times, marks.get(chart.limit)) for chart in CHARTS}


def _filled(
    chart: Chart, rows: Mapping[str, list[Row]], events: Iterable[Event], times: Domain, limit: float | None
) -> dict[str, Any]:
    spec = copy.deepcopy(template(chart.key))
    series = {line.label: rows.get(line.name, []) for line in chart.lines}
    spec["datasets"], values = datasets(chart.unit, series, events, times, limit, log=chart.scale == "log",
                                        verdict=chart.verdict)  # fmt: skip
    # Layers share axes and domains, so one of them says which. Not one with x2: Vega-Lite takes its domain twice.
    first = next(layer["encoding"] for layer in spec["layer"] if layer["data"]["name"] == "paths")
    for channel, domain in (("x", times), ("y", values)):
        first[channel]["scale"]["domain"] = [domain.low, domain.high]
    first["x"]["axis"]["values"] = time_ticks(times)
    if chart.scale == "log":
        first["y"]["axis"]["values"] = log_ticks(values)
    return spec


def warm() -> None:
    """Build every chart once: seconds of processor time, after which a page takes milliseconds."""
    for chart in CHARTS:
        template(chart.key)


@functools.cache
def template(key: str) -> dict[str, Any]:
    """The chart without data and domains; built once, because building and checking one takes milliseconds."""
    chart = next(c for c in CHARTS if c.key == key)
    layers = [
        _boxes(chart, "boxes", 0.42),
        _boxes(chart, "open", 0.22),
        _paths(chart),
        _points(chart),
        _limit_line(),
        _windows(chart),
        _events(),
        _nothing(),
    ]
    spec: dict[str, Any] = (
        alt.layer(*layers)
        .properties(width="container", height=HEIGHT_PX, autosize=alt.AutoSizeParams(type="fit", contains="padding"))
        .resolve_scale(color="independent")
        .configure(background="transparent", font="system-ui, sans-serif")
        .configure_view(stroke=None, continuousWidth=300)
        .configure_axis(
            gridColor="@grid", domainColor="@line", tickColor="@line", labelColor="@muted", labelFontSize=11,
            titleColor="@muted", titleFontSize=11, titleFontWeight="normal",
        )
        .to_dict()
    )  # fmt: skip
    spec["description"] = f"{chart.title} over time"
    return spec


def _x(field: str) -> alt.X:
    """Milliseconds on a plain axis: ticks and labels are ours, in UTC, and need nothing of the reader's time zone."""
    axis = alt.Axis(title=None, grid=False, labelExpr=_TIME_LABEL, labelOverlap=True, labelFlush=False)
    return alt.X(field, type="quantitative", axis=axis, scale=alt.Scale(nice=False, zero=False))


def _y(chart: Chart, field: str) -> alt.Y:
    scale = alt.Scale(type="log", nice=False) if chart.scale == "log" else alt.Scale(nice=False, zero=False)
    axis = alt.Axis(title=None, tickCount=4, labelOverlap=True, minExtent=44, maxExtent=44, **_AXES[chart.unit])
    return alt.Y(field, type="quantitative", axis=axis, scale=scale)


def _colours(chart: Chart) -> alt.Scale:
    known = _VERDICT_COLOURS if chart.verdict else {line.label: line.colour for line in chart.lines}
    return alt.Scale(domain=list(known), range=list(known.values()))


def _colour(chart: Chart) -> alt.Color:
    return alt.Color("s:N", legend=None, scale=_colours(chart))


def _boxes(chart: Chart, data: str, opacity: float) -> alt.Chart:
    base = alt.Chart(alt.NamedData(data)).mark_rect(clip=True, fillOpacity=opacity, strokeWidth=1.5, strokeOpacity=0.9)
    stroke = alt.Stroke("s:N", legend=None, scale=_colours(chart))
    top = alt.value(0) if data == "open" else alt.Y2("hi")
    layer: alt.Chart = base.encode(x=_x("t0"), x2="t1", y=_y(chart, "lo"), y2=top, color=_colour(chart), stroke=stroke)
    return layer


def _paths(chart: Chart) -> alt.Chart:
    line = alt.Chart(alt.NamedData("paths")).mark_line(clip=True, strokeWidth=2)
    layer: alt.Chart = line.encode(x=_x("t"), y=_y(chart, "v"), color=_colour(chart), detail="s:N")
    return layer


def _points(chart: Chart) -> alt.Chart:
    """Single numbers between two gaps, which a line does not show."""
    dots = alt.Chart(alt.NamedData("points")).mark_point(filled=True, size=28, opacity=1)
    layer: alt.Chart = dots.encode(x=_x("t"), y=_y(chart, "v"), color=_colour(chart))
    return layer


def _limit_line() -> alt.Chart:
    rule = alt.Chart(alt.NamedData("limit")).mark_rule(color="@text", strokeDash=[5, 4], strokeWidth=1.5)
    layer: alt.Chart = rule.encode(y=alt.Y("y:Q"))
    return layer


def _nothing() -> alt.Chart:
    """Why the whole chart is empty, where it is."""
    text = alt.Chart(alt.NamedData("nothing")).mark_text(color="@muted", fontSize=12, limit=330)
    centre = {"x": alt.value(alt.expr("width / 2")), "y": alt.value(alt.expr("height / 2"))}
    layer: alt.Chart = text.encode(text="text:N", **centre)
    return layer


def _windows(chart: Chart) -> alt.Chart:
    """Invisible columns over each window: they carry the tooltip and light up under the pointer."""
    hover = alt.selection_point(name="hover", on="pointerover", clear="pointerout", fields=["t0"], empty=False)
    tips = [alt.Tooltip("when:N", title="UTC")]
    tips += [alt.Tooltip(f"n{i}:N", title=line.label) for i, line in enumerate(chart.lines)]
    bars = alt.Chart(alt.NamedData("windows")).mark_rect(clip=True, fill="@text", strokeWidth=0)
    lit = alt.when(hover).then(alt.value(0.1)).otherwise(alt.value(0))
    layer: alt.Chart = bars.encode(x=_x("t0"), x2="t1", fillOpacity=lit, tooltip=tips).add_params(hover)
    return layer


def _events() -> alt.Chart:
    rules = alt.Chart(alt.NamedData("events")).mark_rule(strokeWidth=1.5, strokeDash=[2, 3], opacity=0.8)
    colour = alt.Color(
        "kind:N",
        legend=None,
        scale=alt.Scale(domain=list(_EVENT_COLOURS), range=list(_EVENT_COLOURS.values())),
    )
    tips = [
        alt.Tooltip("when:N", title="UTC"), alt.Tooltip("kind:N", title="event"), alt.Tooltip("text:N", title="what"),
    ]  # fmt: skip
    layer: alt.Chart = rules.encode(x=_x("t"), color=colour, tooltip=tips)
    return layer
