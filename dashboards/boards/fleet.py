"""The fleet: do users get what they were promised, and what does it cost? Worst services first."""

from typing import Final

from dashboards.boards._own import (
    ABSENT,
    BUDGET_STEPS,
    COSTS_PAGE,
    INCIDENT_UID,
    NOTES,
    OVERVIEW,
    PAGE,
    ROW_TO_PAGE,
    ROW_TO_REQUESTS,
    ROW_TO_SERVICE,
    SERVICE_PICKER,
    TO_BUDGET,
    TO_SERVICE,
    UP_MAPPING,
    exact,
    number,
    page_variable,
)  # fmt: skip
from dashboards.boards._tables import Column, joined
from dashboards.boards.budget import OWN_LEFT, left
from dashboards.promql import FLEET, SERVICE, at_least, at_most
from dashboards.values import BLUE, GREEN, RED, YELLOW, Board, Link, Options, Override, Panel, Query, Row, Step

_RULES: Final = "From goodwatch's rules in Prometheus (goodwatch alerts build), else goodwatch's own number."


_STATES: Final = {"good": GREEN, "warning": YELLOW, "bad": RED}


def fleet(options: Options) -> Board:
    """The board of all services."""
    rows = (
        Row("Do users get what they were promised, and what does it cost?", (*_now(), _worst())),
        Row("How it went", _trends()),
        Row("Cost", _cost()),
        Row("Can these numbers be trusted?", _trust()),
    )
    question = "Do users get what they were promised, and what does it cost? Services that miss most come first."
    return Board(
        "goodwatch-fleet", "Fleet", question, rows, (SERVICE_PICKER, page_variable(options.url)), NOTES, ("fleet",)
    )


def _now() -> tuple[Panel, ...]:
    state = f"goodwatch_service_state{{{SERVICE}}}"
    return (
        Panel(
            "stat", "Services by state", "Number of services in each state that any is in, as goodwatch judges them now. "
            "Series: goodwatch_service_state.",
            (Query(f"sum by (state) ({state}) > 0", "{{state}}", "now"),), "short", 5, 5, (Step(None, BLUE),), decimals=0,
            no_data="goodwatch knows no such service", links=(OVERVIEW,), options={"graphMode": "none", "textMode": "value_and_name"},
            overrides=tuple(Override(name, (("color", {"mode": "fixed", "fixedColor": color}),)) for name, color in _STATES.items()),
        ),
        Panel(
            "stat", "Good requests a second", "Requests a second that met every target, added up over services; both ends of "
            "the interval. Series: goodwatch_goodput_per_second.",
            (
                Query(f"sum({at_least('goodwatch_goodput_per_second', FLEET)})", "at least", "now"),
                Query(f"sum({at_most('goodwatch_goodput_per_second', FLEET)})", "at most", "now"),
            ),
            "reqps", 5, 5, no_data=ABSENT, links=(OVERVIEW,),
        ),
        Panel(
            "stat", "Requests a second", "Requests a second that ended, added up over services. "
            "Series: goodwatch_request_rate_per_second.",
            (Query(f"sum(goodwatch_request_rate_per_second{{{FLEET}}})", "", "now"),), "reqps", 4, 5, no_data=ABSENT, links=(OVERVIEW,),
        ),
        Panel(
            "stat", "Cost an hour", "Price of all GPUs held, busy or idle. Series: goodwatch_usd_per_hour.",
            (Query(f"sum(goodwatch_usd_per_hour{{{FLEET}}})", "", "now"),), "currencyUSD", 3, 5,
            no_data="No target has a price", links=(COSTS_PAGE,),
        ),
        Panel(
            "stat", "Least error budget left", f"The SLO that is closest to its end: share of its budget that is left. {_RULES} "
            f"Series: goodwatch:slo_budget_left:ratio, {OWN_LEFT}.",
            (Query(f"min({left(SERVICE)})", "", "now"),), "percentunit", 4, 5, BUDGET_STEPS,
            no_data="No SLO here yet", decimals=1, links=(TO_BUDGET,),
        ),
        Panel(
            "stat", "Alerts firing", "Alerts of these services that fire now. Series: ALERTS, which Prometheus and vmalert write.",
            (Query(f'count(ALERTS{{alertstate="firing",{SERVICE}}})', "", "now"),), "short", 3, 5,
            (Step(None, GREEN), Step(1.0, RED)), no_data="None fires, or no rules",
            why_empty="no alert fires on a healthy system",
            links=(Link("Incident board", f"/d/{INCIDENT_UID}?${{__url_time_range}}&var-datasource=${{datasource}}"),),
        ),
    )  # fmt: skip


def _worst() -> Panel:
    attained = "goodwatch_attainment_ratio"
    margin = f"max by (service) ({at_least(attained, FLEET)}) - on (service) max by (service) (goodwatch_objective_ratio{{{SERVICE}}})"
    columns = (
        Column("margin", margin, "percentunit", (Step(None, RED), Step(0.0, GREEN)), 2),
        Column("attainment ≥", f"max by (service) ({at_least(attained, FLEET)})", "percentunit", decimals=2),
        Column("attainment ≤", f"max by (service) ({at_most(attained, FLEET)})", "percentunit", decimals=2),
        Column("objective", f"max by (service) (goodwatch_objective_ratio{{{SERVICE}}})", "percentunit", decimals=2),
        Column("requests/s", f"max by (service) (goodwatch_request_rate_per_second{{{FLEET}}})", "short", decimals=2),
        Column("TTFT p99 ≤", f"max by (service) ({at_most('goodwatch_ttft_p99_seconds', FLEET)})", "s"),
        Column("TPOT p99 ≤", f"max by (service) ({at_most('goodwatch_tpot_p99_seconds', FLEET)})", "s"),
        Column("waiting", f"max by (service) (goodwatch_requests_waiting{{{FLEET}}})", "short", decimals=1),
        Column("KV cache, fullest", f"max by (service) (goodwatch_kv_cache_used_max_ratio{{{FLEET}}})", "percentunit", decimals=0),
        Column("USD/h", f"max by (service) (goodwatch_usd_per_hour{{{FLEET}}})", "currencyUSD"),
        Column("USD/M output", f"max by (service) (goodwatch_usd_per_million_output_tokens{{{FLEET}}})", "currencyUSD"),
    )  # fmt: skip
    return joined(
        "Services, worst first",
        "One row a service. Margin is the lower end of attainment minus the objective: under 0 the promise may be broken. "
        "Attainment is good over valid requests of goodwatch's window; ≥ and ≤ are the ends of its interval, equal where requests "
        "were counted one by one. Latencies are upper ends, engine's clock; USD/M output is the cost of a million output tokens. Empty cells have no number; never 0.",
        columns, ("service",), links=(ROW_TO_SERVICE, ROW_TO_REQUESTS, ROW_TO_PAGE), sort="margin", width=24, height=8,
        no_data="goodwatch knows no service that was picked",
    )  # fmt: skip


def _trends() -> tuple[Panel, ...]:
    return (
        number("attainment_ratio", "Attainment", scope=FLEET, high=1, links=(TO_SERVICE, PAGE)),
        number("goodput_per_s", "Goodput", scope=FLEET, unit="reqps", links=(TO_SERVICE, PAGE)),
        exact("request_rate_per_s", "Requests that ended", scope=FLEET, unit="reqps", links=(TO_SERVICE, PAGE)),
        exact("output_tokens_per_s", "Output tokens a second", scope=FLEET, links=(TO_SERVICE, PAGE)),
        exact("requests_waiting", "Waiting requests", scope=FLEET, links=(TO_SERVICE, PAGE)),
        exact(
            "kv_cache_used_max_ratio", "KV cache, fullest engine", scope=FLEET, high=1, links=(TO_SERVICE, PAGE),
            no_data="No KV gauge: this engine has none, or no data",
        ),
    )  # fmt: skip


def _cost() -> tuple[Panel, ...]:
    unpriced = "No price for these targets, or no tokens"
    return (
        exact("usd_per_hour", "Cost an hour", scope=FLEET, no_data=unpriced),
        exact("usd_per_million_output_tokens", "Cost of a million output tokens", scope=FLEET, no_data=unpriced),
        exact("idle_ratio", "Idle share of the time", scope=FLEET, high=1),
    )


def _trust() -> tuple[Panel, ...]:
    absent = f'count by (service, absence) (goodwatch_number_absent{{{SERVICE},model="",target=""}})'
    return (
        Panel(
            "state-timeline", "Targets that answer", "Whether the last scrape of each target succeeded. "
            "Series: goodwatch_target_up.",
            (Query(f"goodwatch_target_up{{{SERVICE}}}", "{{service}} {{target}}"),), "short", 12, 7,
            (Step(None, RED), Step(1.0, GREEN)), no_data="goodwatch scraped no target yet", mappings=(UP_MAPPING,), links=(PAGE,),
        ),
        Panel(
            "timeseries", "Numbers without a value", "How many derived numbers have none now, and why: no traffic, no data, or "
            "not measurable on this engine. Series: goodwatch_number_absent.",
            (Query(absent, "{{service}}: {{absence}}"),), "short", 6, 7, links=(PAGE,),
        ),
        Panel(
            "timeseries", "Data not yet stored", "Age of the oldest data that goodwatch's store has not committed. "
            "Series: goodwatch_store_lag_seconds.",
            (Query("max(goodwatch_store_lag_seconds)", "lag"),), "s", 6, 7, (Step(None, GREEN), Step(60.0, YELLOW), Step(300.0, RED)), links=(OVERVIEW,),
        ),
    )  # fmt: skip
