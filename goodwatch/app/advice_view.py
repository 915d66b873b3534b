"""What is exported of recommendations: values only."""

from collections import Counter

from exporters.recommendations import AdviceNow, Interval, RecommendationSeries
from goodwatch.app.advising import Advising
from planner.experiments.calibration import checked
from planner.recommendations import Band, Recommendation


def advice_now(advising: Advising) -> AdviceNow:
    """Everything that is known at this moment."""
    known = advising.all()
    counted = Counter((one.service, one.strategy, step.state) for one in known for step in one.steps)
    inside = Counter(one.inside for experiment in advising.experiments for one in checked(experiment))
    verdicts = Counter(one.verdict.outcome for one in advising.experiments if one.verdict is not None)
    return AdviceNow(
        [series_of(one) for one in known], [(*key, count) for key, count in sorted(counted.items())], inside,
        {str(name): count for name, count in verdicts.items()},
    )  # fmt: skip


def series_of(one: Recommendation) -> RecommendationSeries:
    """One recommendation."""
    measured = {p.metric: p.after for p in one.predicted if p.after is not None}
    inside = {p.metric: p.inside for p in one.predicted if p.inside is not None}
    saving = one.saving_usd_per_week
    return RecommendationSeries(
        one.service, one.id, one.strategy, one.state, one.confidence, {p.metric: _three(p.then) for p in one.predicted},
        measured, inside, None if saving is None else _three(saving),
    )  # fmt: skip


def _three(band: Band) -> Interval:
    return band.point, band.low, band.high
