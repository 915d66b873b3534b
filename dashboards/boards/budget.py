"""Error budgets: how much is left, how fast it goes, and which alerts follow."""

from typing import Final

from dashboards.boards._own import (
    BUDGET_STEPS,
    BURN_STEPS,
    NOTES,
    PAGE,
    ROW_TO_PAGE,
    ROW_TO_SERVICE,
    SERVICE_PICKER,
    page_variable,
)
from dashboards.boards._tables import Column, joined
from dashboards.promql import RATE, SERVICE
from dashboards.values import GREEN, ORANGE, RED, Board, Options, Panel, Query, Row, Step, Variable

#: names of the rules that the boards read; alerts.rules.burn writes them
RATIO, TOTAL, BAD = "goodwatch:slo_error:ratio", "goodwatch:slo_total:increase", "goodwatch:slo_bad:increase"
BUDGET, BUDGET_LEFT, INFO = "goodwatch:slo_budget:ratio", "goodwatch:slo_budget_left:ratio", "goodwatch:slo_info"
OBJECTIVE: Final = "goodwatch:slo_objective:ratio"

_SLO_PICKER: Final = Variable("slo", "SLO", f'label_values({INFO}{{service=~"$service"}}, slo)')
_PICKED: Final = f'{SERVICE},slo=~"$slo"'
_NO_RULES: Final = "No SLO rules here yet: load those of goodwatch alerts build"
_JOINT: Final = "Of a joint SLO, which is watched target by target, the worst target."
_WINDOWS: Final = ("5m", "1h", "6h", "1d", "3d")


def budget(options: Options) -> Board:
    """The board of SLOs and their budgets."""
    rows = (
        Row("How much error budget is left, and how long does it last?", (*_left(), _table())),
        Row("How fast it burns", _burn()),
        Row("What was counted", _counted()),
        Row("Alerts", (_alerts(),)),
    )
    return Board(
        "goodwatch-budget", "Error budget", "How much error budget is left, and how long does it last?", rows,
        (SERVICE_PICKER, _SLO_PICKER, page_variable(options.url)), NOTES, ("budget",), "now-24h", "1m",
    )  # fmt: skip


def burn(window: str) -> str:
    """Burn rate over a window: error ratio over budget, the worst target of a joint SLO."""
    return (
        f"max by (service, slo) ({RATIO}{window}{{{_PICKED}}} / on (service, slo) group_left () {BUDGET}{{{_PICKED}}})"
    )


def _left() -> tuple[Panel, ...]:
    return (
        Panel(
            "bargauge", "Error budget left", f"1 minus bad events over the events that the budget allows, over the SLO's own period; events "
            f"are counted, not minutes. Under 0 the SLO is broken. {_JOINT} Series: {BUDGET_LEFT}.",
            (Query(f"min by (service, slo) ({BUDGET_LEFT}{{{_PICKED}}})", "{{slo}}", "now"),), "percentunit", 8, 7, BUDGET_STEPS,
            no_data=_NO_RULES, links=(PAGE,), low=0, high=1, decimals=1,
        ),
        Panel(
            "bargauge", "Burn rate, 1 h", f"Error ratio of the last hour over the budget: at 1 it lasts just the period, at 14.4 two per "
            f"cent go in an hour. {_JOINT} Series: {RATIO}1h, {BUDGET}.",
            (Query(burn("1h"), "{{slo}}", "now"),), "short", 8, 7, BURN_STEPS, no_data=_NO_RULES, links=(PAGE,), low=0, high=20,
            decimals=1,
        ),
        Panel(
            "bargauge", "Burn rate, 6 h", f"Error ratio of the last six hours over the budget. {_JOINT} Series: {RATIO}6h, {BUDGET}.",
            (Query(burn("6h"), "{{slo}}", "now"),), "short", 8, 7, BURN_STEPS, no_data=_NO_RULES, links=(PAGE,), low=0, high=20,
            decimals=1,
        ),
    )  # fmt: skip


def _table() -> Panel:
    left = f"min by (service, slo) ({BUDGET_LEFT}{{{_PICKED}}})"
    columns = (
        Column("budget left", left, "percentunit", BUDGET_STEPS, 1),
        Column("objective", f"max by (service, slo) ({OBJECTIVE}{{{_PICKED}}})", "percentunit", decimals=3),
        Column("burn 1 h", burn("1h"), "short", BURN_STEPS, 2),
        Column("burn 6 h", burn("6h"), "short", BURN_STEPS, 2),
        Column("burn 3 d", burn("3d"), "short", BURN_STEPS, 2),
        Column("bad in the period", f"max by (service, slo) ({BAD}_period{{{_PICKED}}})", decimals=0),
        Column("events in the period", f"max by (service, slo) ({TOTAL}_period{{{_PICKED}}})", decimals=0),
    )
    return joined(
        "SLOs, least budget first",
        f"One row an SLO. {_JOINT} A calendar month's budget is on goodwatch's own page: PromQL has no such window. "
        f"Series: {BUDGET_LEFT}, {OBJECTIVE}, {RATIO}*, {BAD}_period, {TOTAL}_period.",
        columns, ("slo", "service"), links=(ROW_TO_SERVICE, ROW_TO_PAGE), sort="budget left", width=24, height=7, no_data=_NO_RULES,
    )  # fmt: skip


def _burn() -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries", "Burn rates", f"Error ratio over the budget, by window; the lines of 1, 6 and 14.4 are the usual marks of tickets and "
            f"pages, those of an SLO with a low objective are lower (see its alert). {_JOINT} Series: {RATIO}*, {BUDGET}.",
            tuple(Query(burn(window), f"{{{{slo}}}} {window}") for window in _WINDOWS), "short", 12, 9, BURN_STEPS, no_data=_NO_RULES,
            links=(PAGE,), low=0,
        ),
        Panel(
            "timeseries", "Budget left", f"Share of the period's budget that is left. {_JOINT} Series: {BUDGET_LEFT}.",
            (Query(f"min by (service, slo) ({BUDGET_LEFT}{{{_PICKED}}})", "{{slo}}"),), "percentunit", 12, 9, BUDGET_STEPS,
            no_data=_NO_RULES, links=(PAGE,), high=1,
        ),
    )  # fmt: skip


def _counted() -> tuple[Panel, ...]:
    events = "goodwatch_slo_{}_events_total"
    valid, good = (
        f"sum by (service, slo) (rate({events.format(kind)}{{{_PICKED}}}{RATE}))" for kind in ("valid", "good")
    )
    return (
        Panel(
            "timeseries", "Error ratio, 5 min, by target of the SLO", f"Bad over all events of five minutes. Series: {RATIO}5m.",
            (Query(f"{RATIO}5m{{{_PICKED}}}", "{{slo}} {{target}}"),), "percentunit", 8, no_data=f"{_NO_RULES}, or no traffic", links=(PAGE,),
            low=0,
        ),
        Panel(
            "timeseries", "Events, 5 min", f"Events that the rules counted in five minutes: all, and bad ones. Series: {TOTAL}5m, {BAD}5m.",
            (Query(f"{TOTAL}5m{{{_PICKED}}}", "{{slo}} {{target}} all"), Query(f"{BAD}5m{{{_PICKED}}}", "{{slo}} {{target}} bad")), "short", 8,
            no_data=_NO_RULES, links=(PAGE,), low=0,
        ),
        Panel(
            "timeseries", "Events, counted one by one", "Valid and good requests a second that settled, as goodwatch judged them one by one. "
            "Series: goodwatch_slo_valid_events_total, goodwatch_slo_good_events_total.",
            (Query(valid, "{{slo}} valid"), Query(good, "{{slo}} good")), "reqps", 8,
            no_data="No request spans yet: they come by OTLP (docs/configuration.md)", links=(PAGE,), low=0,
        ),
    )  # fmt: skip


def _alerts() -> Panel:
    alerts = f'max by (alertname, service, slo, severity) (ALERTS{{alertstate="firing",{SERVICE}}})'
    return Panel(
        "state-timeline", "Alerts over time", "When alerts of these services fired. Series: ALERTS, which Prometheus and vmalert write.",
        (Query(alerts, "{{alertname}} {{slo}} ({{severity}})"),), "short", 24, 7, (Step(None, GREEN), Step(0.5, ORANGE), Step(1.0, RED)),
        no_data="None fired, or no rules", why_empty="no alert fires on a healthy system", links=(PAGE,),
    )  # fmt: skip
