"""Series of recommendations: what is advised, what it should do, what it did, and how good the predictions were.

What is not known gives no sample, never 0. Only the newest recommendations get series of their own, all are counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from prometheus_client import Metric

from exporters._families import label_text

#: recommendations that get series of their own, the newest first
MAX_SHOWN: Final = 50

#: name, type, labels, meaning
RECOMMENDATION_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("goodwatch_recommendation_info", "gauge", "service, recommendation, strategy, state, confidence", "1 for every recommendation that is shown, with its state"),
    ("goodwatch_recommendation_predicted", "gauge", "service, recommendation, metric, bound", "what a metric will be after the change: point, low and high end of an 80 % interval"),
    ("goodwatch_recommendation_measured", "gauge", "service, recommendation, metric", "what the metric was after the change, on matched traffic"),
    ("goodwatch_recommendation_inside", "gauge", "service, recommendation, metric", "1 where the change that was measured lay in the predicted interval, 0 where it did not"),
    ("goodwatch_recommendation_saving_usd_per_week", "gauge", "service, recommendation, bound", "money of a week that the change saves"),
    ("goodwatch_recommendations_total", "counter", "service, strategy, state", "recommendations that came to a state"),
    ("goodwatch_planner_predictions_total", "counter", "inside", "predictions that were checked, by whether the measurement lay in the interval"),
    ("goodwatch_experiment_verdicts_total", "counter", "verdict", "experiments with a verdict"),
)  # fmt: skip
_MEANINGS: Final = {name: (kind, text) for name, kind, _, text in RECOMMENDATION_SERIES}
_BOUNDS: Final = ("point", "low", "high")
#: verdicts that have a sample from the start, so that a rate has a beginning
VERDICTS: Final = ("better", "worse", "no_difference", "inconclusive")

Interval = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class RecommendationSeries:
    """One recommendation.

    ``predicted`` are point, low, high by metric; ``measured`` what is known of them, ``inside`` whether the change lay in
    the predicted interval.
    """

    service: str
    id: str
    strategy: str
    state: str
    confidence: str
    predicted: Mapping[str, Interval] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    inside: Mapping[str, bool] = field(default_factory=dict)
    saving_usd_per_week: Interval | None = None


@dataclass(frozen=True, slots=True)
class AdviceNow:
    """Everything at one moment; ``counted`` are (service, strategy, state, count), ``inside`` predictions by outcome."""

    shown: Sequence[RecommendationSeries] = ()
    counted: Sequence[tuple[str, str, str, int]] = ()
    inside: Mapping[bool, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)


def recommendation_families(now: AdviceNow) -> Iterator[Metric]:
    """Families of recommendations; one without samples is left out."""
    made = {name: Metric(name.removesuffix("_total"), text, kind) for name, (kind, text) in _MEANINGS.items()}

    def add(name: str, labels: Mapping[str, str], value: float | None) -> None:
        if value is not None and isfinite(value):
            made[name].add_sample(name, {key: label_text(text) for key, text in labels.items()}, value)

    for one in now.shown[:MAX_SHOWN]:
        names = {"service": one.service, "recommendation": one.id}
        about = names | {"strategy": one.strategy, "state": one.state, "confidence": one.confidence}
        add("goodwatch_recommendation_info", about, 1.0)
        for metric, interval in one.predicted.items():
            for bound, value in zip(_BOUNDS, interval, strict=True):
                add("goodwatch_recommendation_predicted", names | {"metric": metric, "bound": bound}, value)
        for metric, value in one.measured.items():
            add("goodwatch_recommendation_measured", names | {"metric": metric}, value)
        for metric, held in one.inside.items():
            add("goodwatch_recommendation_inside", names | {"metric": metric}, float(held))
        for bound, value in zip(_BOUNDS, one.saving_usd_per_week or (), strict=False):
            add("goodwatch_recommendation_saving_usd_per_week", names | {"bound": bound}, value)
    for service, strategy, state, count in now.counted:
        of = {"service": service, "strategy": strategy, "state": state}
        add("goodwatch_recommendations_total", of, float(count))
    for inside in (True, False):
        add("goodwatch_planner_predictions_total", {"inside": str(inside).lower()}, float(now.inside.get(inside, 0)))
    for verdict in VERDICTS:
        add("goodwatch_experiment_verdicts_total", {"verdict": verdict}, float(now.verdicts.get(verdict, 0)))
    yield from (family for family in made.values() if family.samples)
