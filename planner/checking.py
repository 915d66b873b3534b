"""Did an applied recommendation do what was predicted: traffic before and after it, as an experiment with a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Final

import polars as pl

from planner.experiments.designs import judge, obstacle
from planner.experiments.matching import before_after
from planner.experiments.statistics import Contrast, levels, summary_of
from planner.experiments.values import (
    Arm,
    Effect,
    Experiment,
    Factor,
    Metric,
    Outcome,
    QualityConstraint,
    Verdict,
)
from planner.gathering import PIECES
from planner.recommendations import COST_METRIC, Predicted, Recommendation, State, moved, predictions

#: metric and the column of the judged requests that holds it; the first decides
COLUMNS: Final = (
    (Metric("attainment_ratio", "ratio", "higher", scale="difference", indifference=0.01), "good"),
    (Metric("tpot_p99_seconds", "s", "lower", summary="p99"), "tpot_seen"),
    (Metric("ttft_p99_seconds", "s", "lower", summary="p99"), "ttft_seen"),
)
#: an early look wants a 99 % interval where a last one wants 97 %: so much longer it is with some ten runs (Student's t)
_EARLY: Final = 1.3
COST: Final = Metric(COST_METRIC, "usd", "lower", summary="rate")


def checked(
    one: Recommendation,
    before: pl.DataFrame,
    after: pl.DataFrame,
    effective: Mapping[str, str] | None,
    at_s: float,
    *,
    bill: tuple[float, float] | None = None,
    quality: tuple[tuple[int, int], tuple[int, int]] | None = None,
    early: bool = False,
) -> tuple[Recommendation, Experiment]:
    """The verdict on an applied recommendation, and the experiment for the ledger.

    Parameters
    ----------
    before, after
        Requests of the evidence and since the change, as ``gathering.ready_columns`` makes them.
    effective
        What the engine reports now, by neutral setting; None where it does not tell.
    bill
        USD an hour of the service's GPUs before and after; None where it is not known.
    quality
        Answers that passed and answers that were judged, before and after; None where nobody judged.
    early
        It will be looked again if this says nothing: what is to be said now must be clearer, or looking often would
        find what is not there.

    Raises
    ------
    NoDataError
        The traffic of both is too unlike, or one side is empty.
    """
    made = before_after(planned(one, effective), before, after, COLUMNS, pieces=PIECES, loads=True)
    if quality is not None:
        made = replace(
            made, baseline=_judged(made.baseline, *quality[0]), candidate=_judged(made.candidate, *quality[1])
        )
    verdict = _doubted(made, judge(made, at_s=at_s), early=early)
    cost = None if bill is None else _cost(made, verdict, bill)
    if cost is not None:
        made = replace(made, metrics=(*made.metrics, COST))
        verdict = replace(verdict, effects=(*verdict.effects, cost))
    found = replace(made, verdict=verdict)
    return concluded(one, found, at_s), found


def _doubted(made: Experiment, verdict: Verdict, *, early: bool) -> Verdict:
    """The verdict, taken back where the levels before and after do not say the same, or an early look is not clear."""
    first, metric = verdict.effects[0], made.metrics[0]
    if verdict.outcome not in ("better", "worse") or verdict.gate == "vetoed" or first.value is None:
        return verdict
    sides = [summaries(arm, metric) for arm in (made.baseline, made.candidate)]
    plain = levels(*sides)
    reach = max((first.high or 0.0) - first.value, first.value - (first.low or 0.0))
    if plain is None or abs(plain.change) <= plain.reach or (plain.change > 0) != (first.value > 0):
        reason = "a step beside a drift, but the levels before and after do not differ by it: what came may have changed its course"
    elif early and abs(first.value) < _EARLY * reach:
        reason = "a first look must be clearer than this; it is looked again with more requests"
    else:
        return verdict
    said = f"{first.reason}; {reason}"
    effects = (replace(first, outcome="inconclusive", reason=said), *verdict.effects[1:])
    return replace(verdict, outcome="inconclusive", reason=said, effects=effects)


def _judged(arm: Arm, passed: int, judged: int) -> Arm:
    return replace(arm, quality_passed=float(passed), quality_judged=float(judged))


def _cost(made: Experiment, verdict: Verdict, bill: tuple[float, float]) -> Effect | None:
    """Cost per good token after over before, at like lengths and loads: the bill's ratio over that of good requests.

    Whole windows must not be compared: the same GPUs make a good token cheaper whenever more requests come. Without an
    interval where it is not shown that users get as many good answers as before: what they pay for is no saving.
    """
    metric = made.metrics[0]
    shares = [summaries(arm, metric) for arm in (made.baseline, made.candidate)]
    found = levels(*shares)
    if found is None or min(bill) <= 0:
        return None
    before = sum(shares[0]) / len(shares[0])
    ends = [before + change for change in (found.change, found.change + found.reach, found.change - found.reach)]
    if min(before, *ends) <= 0:
        return None
    paid = bill[1] / bill[0]
    value, low, high = (paid * before / end for end in ends)
    repeats = verdict.effects[0].repeats
    basis = "the bill, and requests of like load"
    why_not = _why_no_saving(made, verdict, found)
    if why_not:
        return Effect(COST.name, "inconclusive", why_not, value, repeats=repeats, basis=basis)
    outcome: Outcome = "better" if high < 1 else "worse" if low > 1 else "inconclusive"
    reason = (
        f"cost {value:.2f} ({low:.2f} to {high:.2f}) of before: bill {paid:.2f}, good requests {ends[0] / before:.2f}"
    )
    return Effect(COST.name, outcome, reason, value, low, high, repeats=repeats, basis=basis)


def _why_no_saving(made: Experiment, verdict: Verdict, found: Contrast) -> str:
    """Why less money would be no saving; "" where nobody gets less for it."""
    first = verdict.effects[0]
    if (
        obstacle(made, first.repeats) is not None
        or verdict.outcome == "worse"
        or verdict.gate in ("vetoed", "not_shown")
    ):
        return verdict.reason
    least = found.change - found.reach
    if least < -made.metrics[0].indifference:
        return f"attainment may have fallen by {-least:.1%}: that users get no less for it is not shown"
    return ""


def summaries(arm: Arm, metric: Metric) -> list[float]:
    """What the counted runs of an arm came to, those that tell."""
    told = [run.measures[metric.name] for run in arm.runs if run.counts and metric.name in run.measures]
    return [value for one in told if (value := summary_of(one, metric)) is not None]


def planned(one: Recommendation, effective: Mapping[str, str] | None) -> Experiment:
    """The experiment of a recommendation before it has runs: question, factor, arms, what is predicted."""
    first = one.diff[0] if one.diff else None
    also = tuple(line.setting for line in one.diff[1:])
    factor = Factor(first.setting, first.before or "default", first.after, also) if first else None
    intended = {line.setting: line.after for line in one.diff if line.after}
    return Experiment(
        f"check-{one.id}", f"does “{one.title}” do what was predicted for {one.service}?", "before_after",
        Arm("before", effective=one.before), Arm("after", intended=intended, effective=effective),
        tuple(metric for metric, _ in COLUMNS), factor, "running", one.applied_s, one.service,
        boundary="requests as the SLO judges them, by its vantage point",
        quality=QualityConstraint(one.gate) if one.gate else None, predictions=predictions(one), recommendation=one.id,
    )  # fmt: skip


def concluded(one: Recommendation, checked: Experiment, at_s: float) -> Recommendation:
    """The recommendation after a verdict on it: what was measured, whether it was predicted, and its state.

    "no difference" refutes where attainment was promised. Where money was, it must surely be less, and nobody may get
    less for it. What helped, but surely by less than was predicted, is verified and says so.
    """
    verdict = checked.verdict
    assert verdict is not None
    effects = {effect.metric: effect for effect in verdict.effects}
    after = {metric.name: _level(checked, metric) for metric in checked.metrics}
    found = tuple(
        _measured(p, effects[p.metric].value if p.metric in effects else None, after.get(p.metric))
        for p in one.predicted
    )
    state: State = {"better": "verified", "inconclusive": "inconclusive"}.get(verdict.outcome, "refuted")  # type: ignore[assignment]
    reason = verdict.reason
    if one.mode == "save" and verdict.outcome != "worse":
        state, said = _saved(one, effects.get(COST_METRIC))
        reason += said
    elif state == "verified":
        first = checked.metrics[0].name
        reason += _short(one.metric(first), effects.get(first))
    told = replace(one, predicted=found, experiment=checked.id, verdict=reason)
    return moved(told, state, at_s, "goodwatch", reason)


def _saved(one: Recommendation, cost: Effect | None) -> tuple[State, str]:
    """Whether money was saved, and in words: only where the whole interval of the cost is on one side."""
    if cost is None or cost.value is None:
        return "inconclusive", "; what it cost is not known"
    if cost.low is None or cost.high is None:
        return "inconclusive", f"; {cost.reason}"
    said = f"; cost per good token {cost.value:.2f} ({cost.low:.2f} to {cost.high:.2f}) of before"
    promised = one.metric(COST_METRIC)
    if cost.high < 1:
        return "verified", said + _short(promised, cost)
    if cost.low >= 1 or (promised is not None and cost.low > promised.change.high):
        return "refuted", f"{said}: the saving that was promised is not there"
    return "inconclusive", f"{said}: that it is less is not shown"


def _short(promised: Predicted | None, found: Effect | None) -> str:
    """That the result surely lies beside what was predicted; "" where it does not, or nobody can tell."""
    if promised is None or found is None or found.low is None or found.high is None:
        return ""
    if found.low > promised.change.high or found.high < promised.change.low:
        band = f"{promised.change.low:.3g} to {promised.change.high:.3g}"
        return f"; but not as predicted: {found.low:.3g} to {found.high:.3g} was measured, {band} was predicted"
    return ""


def _level(checked: Experiment, metric: Metric) -> float | None:
    """The middle of what the runs after the change came to."""
    found = summaries(checked.candidate, metric)
    return median(found) if found else None


def _measured(one: Predicted, value: float | None, after: float | None) -> Predicted:
    if value is None:
        return one
    return replace(one, measured=value, inside=one.change.low <= value <= one.change.high, after=after)
