"""Pieces that boards of goodwatch's own series share: pickers, links, intervals as bands, number panels."""

from collections.abc import Mapping
from typing import Any, Final

from dashboards.promql import SERVICE, WHOLE, at_least, at_most, target_lines
from dashboards.values import GREEN, ORANGE, RED, YELLOW, Link, Note, Override, Panel, Promise, Query, Step, Variable
from goodwatch.core.model import Limits
from goodwatch.signals.derive import MEANINGS

SERVICE_PICKER: Final = Variable("service", "Service", "label_values(goodwatch_service_state, service)")
MODEL_PICKER: Final = Variable(
    "model", "Model", 'label_values(goodwatch_number_absent{service=~"$service",model!=""}, model)', everything="^$"
)
TARGET_PICKER: Final = Variable("target", "Target", 'label_values(goodwatch_target_up{service=~"$service"}, target)')
TENANT_PICKER: Final = Variable(
    "tenant", "Tenant", 'label_values(goodwatch_tenant_requests_total{service=~"$service"}, tenant)'
)

#: the time that the reader looks at, as goodwatch's pages take it
_TIMES: Final = "from=${__from:date:seconds}&to=${__to:date:seconds}"
OVERVIEW: Final = Link("Open in goodwatch", "${goodwatch}/")
PAGE: Final = Link("Open in goodwatch", f"${{goodwatch}}/services/${{__field.labels.service}}?{_TIMES}")
TARGET_PAGE: Final = Link("Open in goodwatch", f"${{goodwatch}}/targets/${{__field.labels.target}}?{_TIMES}")
#: the way to a trace: each request of the list leads to its own
REQUESTS_PAGE: Final = Link(
    "Slowest requests and their traces", f"${{goodwatch}}/requests?service=${{__field.labels.service}}&{_TIMES}"
)
ANY_REQUESTS_PAGE: Final = Link("Slowest requests and their traces", f"${{goodwatch}}/requests?{_TIMES}")
BAD_REQUESTS_PAGE: Final = Link(
    "Bad requests and their traces", f"${{goodwatch}}/requests?service=${{__field.labels.service}}&verdict=bad&{_TIMES}"
)
TENANT_PAGE: Final = Link(
    "Requests of this tenant and their traces",
    f"${{goodwatch}}/requests?service=${{__field.labels.service}}&tenant=${{__field.labels.tenant}}&{_TIMES}",
)
COSTS_PAGE: Final = Link("Costs in goodwatch", f"${{goodwatch}}/costs?{_TIMES}")
ANY_QUALITY_PAGE: Final = Link("Quality in goodwatch", f"${{goodwatch}}/quality?{_TIMES}")
QUALITY_PAGE: Final = Link(
    "Quality in goodwatch", f"${{goodwatch}}/quality?service=${{__field.labels.service}}&{_TIMES}"
)
MAP_PAGE: Final = Link("Open the map in goodwatch", f"${{goodwatch}}/heatmap?{_TIMES}")
#: ids of boards that others lead to
SERVICE_UID, BUDGET_UID, INCIDENT_UID = "goodwatch-service", "goodwatch-budget", "goodwatch-incident"
_TO_SERVICE: Final = f"/d/{SERVICE_UID}?${{__url_time_range}}&var-datasource=${{datasource}}&var-service="
TO_SERVICE: Final = Link("Service board", f"{_TO_SERVICE}${{__field.labels.service}}")
TO_BUDGET: Final = Link(
    "Error budgets", f"/d/{BUDGET_UID}?${{__url_time_range}}&var-datasource=${{datasource}}&var-service=All"
)
ROW_TO_SERVICE: Final = Link("Service board", f"{_TO_SERVICE}${{__data.fields.service}}")
ROW_TO_PAGE: Final = Link("Open in goodwatch", f"${{goodwatch}}/services/${{__data.fields.service}}?{_TIMES}")
ROW_TO_REQUESTS: Final = Link(
    "Bad requests and their traces", f"${{goodwatch}}/requests?service=${{__data.fields.service}}&verdict=bad&{_TIMES}"
)
ROW_TO_QUALITY: Final = Link(
    "Quality in goodwatch", f"${{goodwatch}}/quality?service=${{__data.fields.service}}&{_TIMES}"
)
ROW_TO_TENANT: Final = Link(
    "Requests of this tenant and their traces",
    f"${{goodwatch}}/requests?service=${{__data.fields.service}}&tenant=${{__data.fields.tenant}}&{_TIMES}",
)
ROW_TO_TARGET: Final = Link("Open in goodwatch", f"${{goodwatch}}/targets/${{__data.fields.target}}?{_TIMES}")

#: unit of a number as goodwatch says it → unit of Grafana
UNITS: Final[Mapping[str, str]] = {
    "ratio": "percentunit", "1/s": "short", "s": "s", "USD": "currencyUSD", "USD/h": "currencyUSD", "W": "watt", "J": "joule",
    "requests": "short",
}  # fmt: skip
DASHED: Final = ("custom.lineStyle", {"fill": "dash", "dash": [8, 8]})
#: no number is no failure: the words say which of the three it can be
ABSENT: Final = "No number: no traffic, no data or not measurable (see goodwatch_number_absent)"
BUDGET_STEPS: Final = (Step(None, RED), Step(0.0, ORANGE), Step(0.25, YELLOW), Step(0.5, GREEN))
#: burn rates of the SRE Workbook's windows: ticket at 1 and 3, page at 6 and 14.4
BURN_STEPS: Final = (Step(None, GREEN), Step(1.0, YELLOW), Step(6.0, ORANGE), Step(14.4, RED))
#: a budget that ends within a day, three days, a week
LASTS_STEPS: Final = (Step(None, RED), Step(86_400.0, ORANGE), Step(3 * 86_400.0, YELLOW), Step(7 * 86_400.0, GREEN))


def either(no: tuple[str, str], yes: tuple[str, str]) -> dict[str, Any]:
    """A mapping of 0 and 1 to a text and a colour each."""
    words = {key: {"text": text, "color": color, "index": int(key)} for key, (text, color) in (("0", no), ("1", yes))}
    return {"type": "value", "options": words}


UP_MAPPING: Final = either(("down", "red"), ("up", "green"))
FIRES_MAPPING: Final = either(("quiet", "green"), ("fires", "red"))
DRIFT_MAPPING: Final = either(("as usual", "green"), ("drifts", "orange"))
STATE_MAPPING: Final = either(("no", "transparent"), ("yes", "blue"))
#: a state that is no good news has its colour
STATE_LOOKS: Final = tuple(
    Override(f".* {state}$", (("mappings", [either(("no", "transparent"), ("yes", color))]),), "byRegexp")
    for state, color in (("good", GREEN), ("warning", YELLOW), ("bad", RED))
)
INSIDE_MAPPING: Final = either(("no", "red"), ("yes", "green"))
#: what happened, over every panel
NOTES: Final = (
    Note(
        "Target down", "orange", f"goodwatch_target_up{{{SERVICE}}} == 0", "{{target}} of {{service}} does not answer"
    ),
    Note("Deployments", "blue", tags=("goodwatch", "deployment")),
    Note("Incidents", "red", tags=("goodwatch", "incident")),
)


def page_variable(url: str) -> Variable:
    """The hidden address of goodwatch's pages."""
    return Variable("goodwatch", "goodwatch", url.rstrip("/"), "constant", multi=False)


def meaning(name: str, *more: str) -> str:
    """Description of a derived number: definition, basis, series."""
    text = MEANINGS[name].text
    basis = "Where it is known only as an interval both ends are drawn."
    return " ".join(
        (f"{text[0].upper()}{text[1:]}, over goodwatch's window.", basis, *more, f"Series: {series(name)}.")
    )


def series(name: str) -> str:
    """Exported name of a derived number (docs/metrics.md)."""
    return f"goodwatch_{name.removesuffix('_s')}_second" if name.endswith("_per_s") else f"goodwatch_{name}"


def number(
    name: str, title: str, *, scope: str = WHOLE, legend: str = "{{service}}", kind: Any = "timeseries", **more: Any
) -> Panel:
    """A derived number as a band: the exact value, or both ends of its interval."""
    own = series(name)
    low, high = at_least(own, scope), at_most(own, scope)
    form: Any = "now" if kind in ("stat", "bargauge") else "series"
    ends = ("≥", "≤") if kind == "bargauge" else ("at least", "at most")  # beside a bar there is little room
    queries = (Query(low, f"{legend} {ends[0]}", form), Query(high, f"{legend} {ends[1]}", form))
    text = more.pop("description", meaning(name))
    return Panel(
        kind, title, text, queries, more.pop("unit", UNITS[MEANINGS[name].unit]), no_data=more.pop("no_data", ABSENT),
        overrides=(*more.pop("overrides", ()), Override(".* at least$", (DASHED,), "byRegexp")) if kind == "timeseries" else (),
        links=more.pop("links", (PAGE,)), **more,
    )  # fmt: skip


def exact(name: str, title: str, *, scope: str = WHOLE, legend: str = "{{service}}", **more: Any) -> Panel:
    """A derived number that is always known exactly, or not at all."""
    text = MEANINGS[name].text
    description = f"{text[0].upper()}{text[1:]}, over goodwatch's window. Series: {series(name)}."
    kind = more.pop("kind", "timeseries")
    form: Any = "now" if kind in ("stat", "bargauge") else "series"
    return Panel(
        kind, title, more.pop("description", description), (Query(f"{series(name)}{{{scope}}}", legend, form),),
        more.pop("unit", UNITS[MEANINGS[name].unit]), no_data=more.pop("no_data", ABSENT),
        links=more.pop("links", (PAGE,)), **more,
    )  # fmt: skip


def latency(signal: str, title: str, services: Mapping[str, Promise], **more: Any) -> Panel:
    """The P99 band and the median's upper end of a latency, and the target where one was promised."""
    p99, p50 = f"goodwatch_{signal}_p99_seconds", f"goodwatch_{signal}_p50_seconds"
    limits: Mapping[str, Limits] = {name: promise.limits for name, promise in services.items()}
    target = target_lines(limits, signal) if signal in ("ttft", "tpot", "e2e") else ""
    queries = [
        Query(at_least(p99, WHOLE), "{{service}} p99 at least"),
        Query(at_most(p99, WHOLE), "{{service}} p99 at most"),
        Query(at_most(p50, WHOLE), "{{service}} p50 at most"),
        *([Query(target, "{{service}} target")] if target else ()),
    ]
    text = (
        f"{MEANINGS[f'{signal}_p99_seconds'].text}: the bucket that holds the 99th percentile gives both ends, nothing is "
        "interpolated. An interval that is open above has no upper line. Vantage point: the engine. "
        f"Series: {p99}_low, {p99}_high, {p50}_high."
    )
    target_look = Override(
        ".* target$",
        (("color", {"mode": "fixed", "fixedColor": RED}), ("custom.lineWidth", 2), ("custom.fillOpacity", 0), DASHED),
        "byRegexp",
    )
    looks = (Override(".* at least$", (DASHED,), "byRegexp"), target_look)
    return Panel(
        "timeseries", title, text, tuple(queries), "s", no_data=ABSENT, overrides=looks, links=(PAGE,), low=0, **more
    )
