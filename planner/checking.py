"""Did an applied recommendation do what was predicted: traffic before and after it, as an experiment with a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import polars as pl

from planner.experiments.designs import judge
from planner.experiments.matching import before_after
from planner.experiments.values import Arm, Experiment, Factor, Metric, QualityConstraint
from planner.gathering import PIECES
from planner.recommendations import Recommendation, concluded, predictions

#: metric and the column of the judged requests that holds it; the first decides
COLUMNS: Final = (
    (Metric("attainment_ratio", "ratio", "higher", scale="difference", indifference=0.01), "good"),
    (Metric("tpot_p99_seconds", "s", "lower", summary="p99"), "tpot_seen"),
    (Metric("ttft_p99_seconds", "s", "lower", summary="p99"), "ttft_seen"),
)


def checked(
    one: Recommendation,
    before: pl.DataFrame,
    after: pl.DataFrame,
    effective: Mapping[str, str] | None,
    at_s: float,
    *,
    cost_ratio: tuple[float, float] | None = None,
) -> tuple[Recommendation, Experiment]:
    """The verdict on an applied recommendation, and the experiment for the ledger.

    Parameters
    ----------
    before, after
        Requests of the evidence and since the change, as ``gathering.ready_columns`` makes them.
    effective
        What the engine reports now, by neutral setting; None where it does not tell.
    cost_ratio
        Cost per million good tokens after over before, and after; of the bill, so without an interval.

    Raises
    ------
    NoDataError
        The traffic of both is too unlike, or one side is empty.
    """
    made = before_after(planned(one, effective), before, after, COLUMNS, pieces=PIECES, loads=True)
    found = replace(made, verdict=judge(made, at_s=at_s))
    return concluded(one, found, at_s, cost_ratio), found


def planned(one: Recommendation, effective: Mapping[str, str] | None) -> Experiment:
    """The experiment of a recommendation before it has runs: question, factor, arms, what is predicted."""
    first = one.diff[0] if one.diff else None
    factor = Factor(first.setting, first.before or "default", first.after) if first else None
    intended = {line.setting: line.after for line in one.diff if line.after}
    return Experiment(
        f"check-{one.id}", f"does “{one.title}” do what was predicted for {one.service}?", "before_after",
        Arm("before", effective=one.before), Arm("after", intended=intended, effective=effective),
        tuple(metric for metric, _ in COLUMNS), factor, "running", one.applied_s, one.service,
        boundary="requests as the SLO judges them, by its vantage point",
        quality=QualityConstraint(one.gate) if one.gate else None, predictions=predictions(one), recommendation=one.id,
    )  # fmt: skip
