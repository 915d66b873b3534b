"""Quality of answers on a board: shares and means from sums of scores, so that any range and services can be added."""

from typing import Final

from dashboards.boards._own import ANY_QUALITY_PAGE, QUALITY_PAGE, ROW_TO_QUALITY
from dashboards.boards._tables import Column, joined
from dashboards.promql import RATE, SERVICE, ratio, summed
from dashboards.values import GREEN, ORANGE, RED, YELLOW, Panel, Query, Step

_SCORES, _SCORE = "goodwatch_quality_scores_total", "goodwatch_quality_score"
_BY: Final = ("service", "evaluator")
_RANGE: Final = "[$__range]"
_NO_SCORES: Final = "No scores yet: they come with traces, by the API, or from a judge (docs/quality.md)"
_STEPS: Final = (Step(None, RED), Step(0.5, ORANGE), Step(0.8, YELLOW), Step(0.95, GREEN))
_OPINIONS: Final = (
    "A score is one opinion of one evaluator, so this is a share of scores; a request passes when all of its scores do, which "
    "goodwatch's page shows with its interval. Scores count when their request is known."
)


def quality() -> tuple[Panel, ...]:
    """Panels of the picked services' scores, by evaluator."""
    return (
        _table(),
        Panel(
            "timeseries", "Scores that pass", f"Passed over passed and failed, by evaluator. {_OPINIONS} Series: {_SCORES}.",
            (Query(_passed(RATE), "{{service}} {{evaluator}}"),), "percentunit", 12, 8, _STEPS, no_data=_NO_SCORES, low=0, high=1,
            links=(QUALITY_PAGE,),
        ),
        Panel(
            "timeseries", "Mean score", f"Sum of scores over their number, by evaluator; labels without a score are left out. Series: {_SCORE}.",
            (Query(_mean(RATE), "{{service}} {{evaluator}}"),), "percentunit", 8, 8, no_data=_NO_SCORES, low=0, high=1, links=(QUALITY_PAGE,),
        ),
        Panel(
            "timeseries", "Scores by verdict", "Scores a second: passed, failed, and those that do not tell, because nobody said what passes. "
            f"Series: {_SCORES}.",
            (Query(f"sum by (service, verdict) (rate({_SCORES}{{{SERVICE}}}{RATE}))", "{{service}} {{verdict}}"),), "cps", 8, 8,
            no_data=_NO_SCORES, low=0, links=(QUALITY_PAGE,), custom={"stacking": {"group": "A", "mode": "normal"}, "fillOpacity": 30},
        ),
        Panel(
            "heatmap", "Distribution of scores", f"Scores from 0 to 1 of all evaluators, by bucket. Series: {_SCORE}.",
            (Query(f"sum by (le) (increase({_SCORE}_bucket{{{SERVICE}}}{RATE}))", "{{le}}", "buckets"),), "short", 8, 8, no_data=_NO_SCORES,
            links=(ANY_QUALITY_PAGE,),
            options={"yAxis": {"axisPlacement": "left", "reverse": False, "unit": "short"}},
        ),
    )  # fmt: skip


def _passed(over: str) -> str:
    passed, told = (
        summed(_BY, f"rate({_SCORES}{{{SERVICE},{verdict}}}{over})")
        for verdict in ('verdict="passed"', 'verdict=~"passed|failed"')
    )
    return ratio(passed, told)


def _mean(over: str) -> str:
    total, count = (summed(_BY, f"rate({_SCORE}_{end}{{{SERVICE}}}{over})") for end in ("sum", "count"))
    return ratio(total, count)


def _table() -> Panel:
    given = summed(_BY, f"increase({_SCORES}{{{SERVICE}}}{_RANGE})")
    failed = summed(_BY, f'increase({_SCORES}{{{SERVICE},verdict="failed"}}{_RANGE})')
    columns = (
        Column("pass", _passed(_RANGE), "percentunit", _STEPS, 1),
        Column("mean score", _mean(_RANGE), "percentunit", decimals=1),
        Column("scores", given, decimals=0),
        Column("failed", failed, decimals=0),
    )
    return joined(
        "Evaluators, least passed first", f"One row an evaluator and service, over the time that is shown. {_OPINIONS} Series: {_SCORES}, {_SCORE}.",
        columns, ("evaluator", "service"), links=(ROW_TO_QUALITY,), sort="pass", width=12, height=8, no_data=_NO_SCORES,
    )  # fmt: skip
