"""The planner: what is worth changing, what came of it, and whether its forecasts can be trusted."""

from typing import Final

from dashboards.boards._own import (
    DASHED,
    INSIDE_MAPPING,
    NOTES,
    OVERVIEW,
    PAGE,
    ROW_TO_PAGE,
    ROW_TO_SERVICE,
    SERVICE_PICKER,
    page_variable,
)
from dashboards.boards._tables import Column, joined
from dashboards.promql import SERVICE, ratio
from dashboards.values import GREEN, ORANGE, RED, YELLOW, Board, Options, Override, Panel, Query, Row, Step, Variable

INFO, PREDICTED, MEASURED, INSIDE, SAVING = (
    f"goodwatch_recommendation_{name}" for name in ("info", "predicted", "measured", "inside", "saving_usd_per_week")
)
MADE, PREDICTIONS, VERDICTS = (
    "goodwatch_recommendations_total", "goodwatch_planner_predictions_total", "goodwatch_experiment_verdicts_total",
)  # fmt: skip
#: metric of a recommendation → title, unit
METRICS: Final = {
    "attainment_ratio": ("Attainment", "percentunit"),
    "ttft_p99_seconds": ("Time to first token, P99", "s"),
    "tpot_p99_seconds": ("Time per output token, P99", "s"),
    "usd_per_million_good_tokens": ("Cost of a million good tokens", "currencyUSD"),
    "vram_headroom_ratio": ("Free device memory", "percentunit"),
}
#: the planner's bands are meant to hold the truth eight times of ten
BAND_RATIO: Final = 0.8

_STATE: Final = Variable("state", "State", f'label_values({INFO}{{service=~"$service"}}, state)')
_STRATEGY: Final = Variable("strategy", "Strategy", f'label_values({INFO}{{service=~"$service"}}, strategy)')
_PICKED: Final = f'{INFO}{{{SERVICE},state=~"$state",strategy=~"$strategy"}}'
#: one recommendation of a service
_ONE: Final = "service, recommendation"
_OPEN: Final = f'{INFO}{{{SERVICE},state=~"proposed|accepted",strategy=~"$strategy"}}'
_NONE: Final = "No recommendation yet"
_UNMEASURED: Final = "Nothing was changed and measured yet"
_STACKED: Final = {"stacking": {"group": "A", "mode": "normal"}, "fillOpacity": 30, "drawStyle": "bars"}
_HELD_STEPS: Final = (Step(None, RED), Step(0.6, ORANGE), Step(0.7, YELLOW), Step(BAND_RATIO, GREEN))


def planner(options: Options) -> Board:
    """The board of recommendations and of what came of them."""
    rows = (
        Row("Is there something worth changing, and can the forecasts be trusted?", (*_now(), _table())),
        Row("Predicted and measured", (*(_against(metric) for metric in METRICS), _calibration())),
        Row("What came of it", _came()),
    )
    return Board(
        "goodwatch-planner", "Planner", "Is there something worth changing, and can the planner's forecasts be trusted?", rows,
        (SERVICE_PICKER, _STATE, _STRATEGY, page_variable(options.url)), NOTES, ("planner",), "now-30d", "5m",
    )  # fmt: skip


def _of(name: str, matchers: str, picked: str = _PICKED) -> str:
    """A number of each picked recommendation."""
    return f"max by ({_ONE}) ({name}{{{SERVICE},{matchers}}}) and on ({_ONE}) {picked}"


def _saved(bound: str) -> str:
    """What the best open recommendation of each service saves."""
    matchers = f'bound="{bound}"'
    return f"max by (service) ({_of(SAVING, matchers, _OPEN)})"


def _now() -> tuple[Panel, ...]:
    return (
        Panel(
            "bargauge", "Recommendations by state", "How many there are in each state: proposed, accepted, declined, applied, and after a "
            f"measurement verified, refuted or inconclusive. Series: {INFO}.",
            (Query(f"count by (state) ({_PICKED})", "{{state}}", "now"),), "short", 6, 6, no_data=_NONE, low=0, decimals=0, links=(OVERVIEW,),
        ),
        Panel(
            "stat", "Open savings a week", "Dollars a week that proposed and accepted recommendations would save: of each service the best one, "
            f"because those of one service may exclude each other; ends of the forecast, rent of devices that are given back. Series: {SAVING}.",
            (Query(f"sum({_saved('low')})", "at least", "now"), Query(f"sum({_saved('high')})", "at most", "now")), "currencyUSD", 6, 6,
            no_data="Nothing open would save money", links=(OVERVIEW,), options={"graphMode": "none"},
        ),
        Panel(
            "stat", "Forecasts that held", "Share of checked forecasts whose measured value was inside the predicted interval, over the time that "
            f"is shown; an interval is meant to hold eight times of ten. Series: {PREDICTIONS}.",
            (Query(_held("[$__range]"), "held", "now"),), "percentunit", 6, 6, _HELD_STEPS, no_data=_UNMEASURED, decimals=0, links=(OVERVIEW,),
            options={"graphMode": "none", "textMode": "value"},
        ),
        Panel(
            "bargauge", "Experiments by verdict", "Experiments that ended in the time that is shown, by what they found against the noise floor. "
            f"Series: {VERDICTS}.",
            (Query(f"sum by (verdict) (increase({VERDICTS}[$__range]))", "{{verdict}}", "now"),), "short", 6, 6,
            no_data="No experiment ended yet", low=0, decimals=0, links=(OVERVIEW,),
        ),
    )  # fmt: skip


def _held(over: str) -> str:
    inside, every = (f"sum(increase({PREDICTIONS}{matchers}{over}))" for matchers in ('{inside="true"}', ""))
    return ratio(inside, every)


def _table() -> Panel:
    columns = (
        Column("", f"max by ({_ONE}, strategy, state, confidence) ({_PICKED})"),
        Column("USD/week ≥", _of(SAVING, 'bound="low"'), "currencyUSD", (Step(None, RED), Step(0.0, GREEN))),
        Column("USD/week ≤", _of(SAVING, 'bound="high"'), "currencyUSD"),
        Column("attainment ≥", _of(PREDICTED, 'metric="attainment_ratio",bound="low"'), "percentunit", decimals=2),
        Column("TTFT p99 ≤", _of(PREDICTED, 'metric="ttft_p99_seconds",bound="high"'), "s"),
        Column("TPOT p99 ≤", _of(PREDICTED, 'metric="tpot_p99_seconds",bound="high"'), "s"),
        Column("free memory ≥", _of(PREDICTED, 'metric="vram_headroom_ratio",bound="low"'), "percentunit", decimals=0),
    )  # fmt: skip
    return joined(
        "Recommendations, largest saving first", "One row a recommendation with its cautious ends: saving a week (under 0 it may cost more), and "
        f"predicted values after the change. What exactly changes, why and how to take it back is on goodwatch's page. Series: {INFO}, {SAVING}, {PREDICTED}.",
        columns, ("recommendation", "service", "strategy", "state", "confidence"), links=(ROW_TO_PAGE, ROW_TO_SERVICE), sort="USD/week ≥",
        sort_down=True, width=24, height=8, no_data=_NONE,
    )  # fmt: skip


def _against(metric: str) -> Panel:
    title, unit = METRICS[metric]

    def predicted(bound: str) -> str:
        return _of(PREDICTED, f'metric="{metric}",bound="{bound}"')

    columns = (
        Column("predicted", predicted("point"), unit),
        Column("at least", predicted("low"), unit),
        Column("at most", predicted("high"), unit),
        Column("measured", _of(MEASURED, f'metric="{metric}"'), unit),
        Column(
            "inside",
            _of(INSIDE, f'metric="{metric}"'),
            steps=(Step(None, RED), Step(1.0, GREEN)),
            mappings=(INSIDE_MAPPING,),
        ),
    )
    return joined(
        title, f"{title} of each recommendation: what was predicted, and what was measured after it was applied; without a measurement those cells are "
        f"empty. Inside says whether the change that was measured, on matched traffic, lies in the interval that was predicted of it. Series: {PREDICTED}, {MEASURED}, {INSIDE}.",
        columns, ("recommendation", "service"), links=(ROW_TO_PAGE,), width=12, height=7, no_data=_NONE,
        widths={"recommendation": 150, "service": 70},
    )  # fmt: skip


def _calibration() -> Panel:
    return Panel(
        "timeseries", "Forecasts that held, over time", "Share of the forecasts checked up to each moment that held, looking back as far as is "
        f"shown; the uppermost line is what the intervals are made for. Series: {PREDICTIONS}.",
        (Query(_held("[$__range]"), "held"),), "percentunit", 12, 7, _HELD_STEPS, no_data=_UNMEASURED, low=0, high=1, links=(OVERVIEW,),
    )  # fmt: skip


def _came() -> tuple[Panel, ...]:
    made = f'sum by (state) (increase({MADE}{{{SERVICE},strategy=~"$strategy"}}[$__rate_interval]))'
    return (
        Panel(
            "timeseries", "Recommendations, as they moved on", f"Recommendations that came into each state. Series: {MADE}.",
            (Query(made, "{{state}}"),), "short", 12, 8, no_data=_NONE, low=0, custom=_STACKED, links=(OVERVIEW,),
        ),
        Panel(
            "timeseries", "Savings a week that are open", "Of each service the best open recommendation: both ends of the forecast and its point. "
            f"Series: {SAVING}.",
            tuple(
                Query(_saved(bound), f"{{{{service}}}} {bound}")
                for bound in ("low", "point", "high")
            ),
            "currencyUSD", 12, 8, no_data="Nothing open would save money", links=(PAGE,),
            overrides=(Override(".* (low|high)$", (DASHED,), "byRegexp"),),
        ),
    )  # fmt: skip
