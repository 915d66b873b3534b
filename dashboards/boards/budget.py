"""Error budgets: how much is left, how fast it goes, and which alerts follow."""

from typing import Final

from dashboards.boards._own import (
    BUDGET_STEPS,
    BURN_STEPS,
    DASHED,
    DRIFT_MAPPING,
    FIRES_MAPPING,
    LASTS_STEPS,
    NOTES,
    PAGE,
    ROW_TO_PAGE,
    ROW_TO_REQUESTS,
    ROW_TO_SERVICE,
    SERVICE_PICKER,
    page_variable,
)
from dashboards.boards._tables import Column, joined
from dashboards.promql import RATE, SERVICE
from dashboards.values import GREEN, RED, Board, Options, Override, Panel, Query, Row, Step, Variable

#: names of the rules that the boards read; alerts.rules.burn writes them
RATIO, TOTAL, BAD = "goodwatch:slo_error:ratio", "goodwatch:slo_total:increase", "goodwatch:slo_bad:increase"
BUDGET, BUDGET_LEFT, INFO = "goodwatch:slo_budget:ratio", "goodwatch:slo_budget_left:ratio", "goodwatch:slo_info"
OBJECTIVE: Final = "goodwatch:slo_objective:ratio"
#: goodwatch's own numbers of the same, for SLOs that no rule watches
OWN_LEFT, OWN_BURN, OWN_OBJECTIVE = (
    f"goodwatch_slo_{name}" for name in ("budget_remaining_ratio", "burn_rate", "objective_ratio")
)
EXHAUSTED, FIRING, DRIFT = (
    "goodwatch_slo_budget_exhaustion_seconds", "goodwatch_slo_alert_firing", "goodwatch_drift_active",
)  # fmt: skip

_SLO_PICKER: Final = Variable(
    "slo", "SLO", f'label_values({{__name__=~"{INFO}|{OWN_OBJECTIVE}",service=~"$service"}}, slo)'
)
_PICKED: Final = f'{SERVICE},slo=~"$slo"'
_NO_RULES: Final = "No SLO yet: load the rules of goodwatch alerts build"
_NO_OWN: Final = "goodwatch computes no SLO here yet"
_EITHER: Final = "Where no rule records it, goodwatch's own number."
_JOINT: Final = "Of a joint SLO, which is watched target by target, the worst target."
_WINDOWS: Final = ("5m", "1h", "6h", "3d")
_FIRES: Final = (Step(None, GREEN), Step(1.0, RED))


def budget(options: Options) -> Board:
    """The board of SLOs and their budgets."""
    rows = (
        Row("How much error budget is left, and how long does it last?", (*_left(), _table())),
        Row("How fast it burns, and when it ends", _burn()),
        Row("What was counted", _counted()),
        Row("Alerts and drift", _alerts()),
    )
    return Board(
        "goodwatch-budget", "Error budget", "How much error budget is left, and how long does it last?", rows,
        (SERVICE_PICKER, _SLO_PICKER, page_variable(options.url)), NOTES, ("budget",), "now-24h", "1m",
    )  # fmt: skip


def burn(window: str) -> str:
    """Burn rate over a window: error ratio over budget, the worst target of a joint SLO."""
    recorded = f"{RATIO}{window}{{{_PICKED}}} / on (service, slo) group_left () {BUDGET}{{{_PICKED}}}"
    own = f'{OWN_BURN}{{{_PICKED},window="{window}"}}'
    return f"max by (service, slo) ({recorded}) or max by (service, slo) ({own})"


def left(picked: str = _PICKED) -> str:
    """Share of the budget that is left, the worst target of a joint SLO."""
    return f"min by (service, slo) ({BUDGET_LEFT}{{{picked}}}) or min by (service, slo) ({OWN_LEFT}{{{picked}}})"


def _lasts(bound: str) -> str:
    return f'min by (service, slo) ({EXHAUSTED}{{{_PICKED},bound="{bound}"}})'


def _left() -> tuple[Panel, ...]:
    return (
        Panel(
            "bargauge", "Error budget left", f"1 minus bad events over the events that the budget allows, over the SLO's own period; events "
            f"are counted, not minutes. Under 0 the SLO is broken. {_JOINT} {_EITHER} Series: {BUDGET_LEFT}, {OWN_LEFT}.",
            (Query(left(), "{{slo}}", "now"),), "percentunit", 6, 7, BUDGET_STEPS,
            no_data=_NO_RULES, links=(PAGE,), low=0, high=1, decimals=1,
        ),
        Panel(
            "bargauge", "It lasts at least", "How long the budget lasts if requests go on failing as they do, the pessimistic end of the forecast; "
            f"nothing is shown while it does not run out. {_JOINT} Series: {EXHAUSTED}.",
            (Query(_lasts("soonest"), "{{slo}}", "now"),), "s", 6, 7, LASTS_STEPS, no_data="It does not run out, or no forecast yet",
            why_empty="a budget that does not run out has no end", links=(PAGE,), low=0, high=30 * 86_400.0,
        ),
        Panel(
            "bargauge", "Burn rate, 1 h", f"Error ratio of the last hour over the budget: at 1 it lasts just the period, at 14.4 two per "
            f"cent go in an hour. {_JOINT} {_EITHER} Series: {RATIO}1h, {BUDGET}, {OWN_BURN}.",
            (Query(burn("1h"), "{{slo}}", "now"),), "short", 6, 7, BURN_STEPS, no_data=_NO_RULES, links=(PAGE,), low=0, high=20,
            decimals=1,
        ),
        Panel(
            "bargauge", "Burn rate, 6 h", f"Error ratio of the last six hours over the budget. {_JOINT} {_EITHER} Series: {RATIO}6h, {BUDGET}, {OWN_BURN}.",
            (Query(burn("6h"), "{{slo}}", "now"),), "short", 6, 7, BURN_STEPS, no_data=_NO_RULES, links=(PAGE,), low=0, high=20,
            decimals=1,
        ),
    )  # fmt: skip


def _table() -> Panel:
    objective = (
        f"max by (service, slo) ({OBJECTIVE}{{{_PICKED}}}) or max by (service, slo) ({OWN_OBJECTIVE}{{{_PICKED}}})"
    )
    columns = (
        Column("budget left", left(), "percentunit", BUDGET_STEPS, 1),
        Column("lasts at least", _lasts("soonest"), "s", LASTS_STEPS),
        Column("objective", objective, "percentunit", decimals=3),
        Column("burn 1 h", burn("1h"), "short", BURN_STEPS, 2),
        Column("burn 6 h", burn("6h"), "short", BURN_STEPS, 2),
        Column("burn 3 d", burn("3d"), "short", BURN_STEPS, 2),
        Column("bad in the period", f"max by (service, slo) ({BAD}_period{{{_PICKED}}})", decimals=0),
        Column("events in the period", f"max by (service, slo) ({TOTAL}_period{{{_PICKED}}})", decimals=0),
    )
    return joined(
        "SLOs, least budget first",
        f"One row an SLO. {_JOINT} {_EITHER} A calendar month's budget is goodwatch's own: PromQL has no such window. "
        f"Series: {BUDGET_LEFT}, {OWN_LEFT}, {EXHAUSTED}, {OBJECTIVE}, {RATIO}*, {BAD}_period, {TOTAL}_period.",
        columns, ("slo", "service"), links=(ROW_TO_SERVICE, ROW_TO_REQUESTS, ROW_TO_PAGE), sort="budget left", width=24, height=7, no_data=_NO_RULES,
    )  # fmt: skip


def _burn() -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries", "Burn rates", f"Error ratio over the budget, by window; the lines of 1, 6 and 14.4 are the usual marks of tickets and "
            f"pages, those of an SLO with a low objective are lower (see its alert). {_JOINT} {_EITHER} Series: {RATIO}*, {BUDGET}, {OWN_BURN}.",
            tuple(Query(burn(window), f"{{{{slo}}}} {window}") for window in _WINDOWS), "short", 8, 9, BURN_STEPS, no_data=_NO_RULES,
            links=(PAGE,), low=0,
        ),
        Panel(
            "timeseries", "Budget left", f"Share of the period's budget that is left. {_JOINT} {_EITHER} Series: {BUDGET_LEFT}, {OWN_LEFT}.",
            (Query(left(), "{{slo}}"),), "percentunit", 8, 9, BUDGET_STEPS, no_data=_NO_RULES, links=(PAGE,), high=1,
        ),
        Panel(
            "timeseries", "How long it lasts", "Time until the budget is used up if requests go on failing as they do: the expected end, and the "
            f"soonest and latest that the events allow. Nothing is drawn while it does not run out. {_JOINT} Series: {EXHAUSTED}.",
            tuple(Query(_lasts(bound), f"{{{{slo}}}} {bound}") for bound in ("soonest", "expected", "latest")), "s", 8, 9, LASTS_STEPS,
            no_data="It does not run out, or no forecast yet", why_empty="a budget that does not run out has no end", links=(PAGE,), low=0,
            overrides=(Override(".* (soonest|latest)$", (DASHED,), "byRegexp"),),
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


def _alerts() -> tuple[Panel, ...]:
    alerts = f'max by (alertname, service, slo, severity) (ALERTS{{alertstate="firing",{SERVICE}}})'
    own = f"max by (service, slo, severity) ({FIRING}{{{_PICKED}}})"
    drift = f"max by (service, kind, slo) ({DRIFT}{{{SERVICE}}})"
    healthy = "no alert fires on a healthy system"
    return (
        Panel(
            "state-timeline", "Alerts over time", "When alerts of these services fired. Series: ALERTS, which Prometheus and vmalert write.",
            (Query(alerts, "{{alertname}} {{slo}} ({{severity}})"),), "short", 8, 7, _FIRES, mappings=(FIRES_MAPPING,),
            no_data="None fired, or no rules", why_empty=healthy, links=(PAGE,),
        ),
        Panel(
            "state-timeline", "Alerts that goodwatch itself evaluates", "Whether each pair of windows burns over its mark, from the store's own counts. "
            f"Series: {FIRING}.",
            (Query(own, "{{slo}} ({{severity}})"),), "short", 8, 7, _FIRES, mappings=(FIRES_MAPPING,), no_data=_NO_OWN, links=(PAGE,),
        ),
        Panel(
            "state-timeline", "Drift", f"Where a number of a service moved away from its usual course and stayed away. Series: {DRIFT}.",
            (Query(drift, "{{service}} {{kind}} {{slo}}"),), "short", 8, 7, _FIRES, mappings=(DRIFT_MAPPING,),
            no_data="No drift, or none is watched", why_empty="nothing drifts on a healthy system", links=(PAGE,),
        ),
    )  # fmt: skip
