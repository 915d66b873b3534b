"""Series of recommendations as Prometheus reads them."""

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest

from exporters.recommendations import (
    MAX_SHOWN,
    RECOMMENDATION_SERIES,
    AdviceNow,
    RecommendationSeries,
    recommendation_families,
)


class Page:
    """Collects the families of one moment."""

    def __init__(self, now: AdviceNow) -> None:
        self.now = now

    def collect(self) -> list[Metric]:
        return list(recommendation_families(self.now))


def text_of(now: AdviceNow) -> list[str]:
    registry = CollectorRegistry()
    registry.register(Page(now))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


ONE = RecommendationSeries(
    "chat", "a1", "concurrency", "verified", "high", {"attainment_ratio": (0.99, 0.97, 1.0)}, {"attainment_ratio": 0.985},
    {"attainment_ratio": True}, (5.0, 3.0, 8.0)
)  # fmt: skip


def test_a_recommendation_tells_its_state_its_bands_and_what_was_measured() -> None:
    found = text_of(AdviceNow([ONE], [("chat", "concurrency", "proposed", 2)], {True: 3}, {"better": 1}))
    about = 'recommendation="a1",service="chat"'
    assert (
        f'goodwatch_recommendation_info{{confidence="high",{about},state="verified",strategy="concurrency"}} 1.0'
        in [_sorted(line) for line in found]
    )
    values = {_sorted(line).rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in found}
    assert values['goodwatch_recommendation_predicted{bound="low",metric="attainment_ratio",' + about + "}"] == 0.97
    assert values['goodwatch_recommendation_measured{metric="attainment_ratio",' + about + "}"] == 0.985
    assert values['goodwatch_recommendation_inside{metric="attainment_ratio",' + about + "}"] == 1
    assert values['goodwatch_recommendation_saving_usd_per_week{bound="high",' + about + "}"] == 8.0
    assert values['goodwatch_recommendations_total{service="chat",state="proposed",strategy="concurrency"}'] == 2
    assert values['goodwatch_planner_predictions_total{inside="true"}'] == 3
    assert values['goodwatch_experiment_verdicts_total{verdict="better"}'] == 1


def test_what_is_not_known_gives_no_sample_and_counters_begin_at_0() -> None:
    found = text_of(AdviceNow())
    assert {line.split("{")[0] for line in found} == {
        "goodwatch_planner_predictions_total",
        "goodwatch_experiment_verdicts_total",
    }
    assert {line.rsplit(" ", 1)[1] for line in found} == {"0.0"}


def test_only_the_newest_get_series_of_their_own() -> None:
    many = [RecommendationSeries("chat", f"r{n}", "s", "proposed", "low") for n in range(MAX_SHOWN + 5)]
    assert sum(line.startswith("goodwatch_recommendation_info") for line in text_of(AdviceNow(many))) == MAX_SHOWN


def test_every_series_is_in_the_table() -> None:
    names = {line.split("{")[0] for line in text_of(AdviceNow([ONE], [("chat", "c", "proposed", 1)]))}
    assert names == {name for name, *_ in RECOMMENDATION_SERIES}


def _sorted(line: str) -> str:
    name, rest = line.split("{", 1)
    labels, value = rest.rsplit("} ", 1)
    return f"{name}{{{','.join(sorted(labels.split(',')))}}} {value}"
