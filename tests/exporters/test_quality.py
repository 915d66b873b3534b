"""Series of quality scores: each enters once, beside the service of its request, and means follow from sums."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporters.quality import LOOK_BACK_S, MAX_PAIRS, OTHER, QUALITY_SERIES, QualitySeries, told_of
from goodwatch.core.quality import EvaluatorRule, QualityRules
from goodwatch.signals.request_frames import SCORES
from tests.signals.request_parts import fact, facts

NOW_S = 1_000.0
FACTS = facts(fact(fact_id="f1", trace_id="t1", service="chat"), fact(fact_id="f2", trace_id="t2", service="batch"))


def score(trace_id: str = "t1", **more: Any) -> dict[str, Any]:
    plain = {"ts": NOW_S, "received_s": NOW_S, "trace_id": trace_id, "evaluator": "helpful", "annotator": "llm"}
    return {**dict.fromkeys(SCORES), **plain, **more}


def told(*rows: dict[str, Any], rules: QualityRules = QualityRules()) -> pl.DataFrame:  # noqa: B008
    return told_of(FACTS, pl.DataFrame(list(rows), schema=SCORES), rules)


def value(series: QualitySeries, name: str, **labels: str) -> float | None:
    found = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in series.families() for s in f.samples}
    return found.get((name, tuple(sorted(labels.items()))))


def test_a_score_counts_for_the_service_of_its_request() -> None:
    series = QualitySeries()
    assert series.add(told(score("t1", score=0.9), score("t2", score=0.2), score("t3", score=0.2)), NOW_S) == 2
    chat = {"service": "chat", "evaluator": "helpful"}
    assert value(series, "goodwatch_quality_scores_total", **chat, verdict="passed") == 1
    assert value(series, "goodwatch_quality_scores_total", **chat, verdict="failed") == 0
    assert value(series, "goodwatch_quality_scores_total", service="batch", evaluator="helpful", verdict="failed") == 1


def test_the_mean_is_the_sum_over_the_count_and_labels_without_a_score_are_not_in_it() -> None:
    series = QualitySeries()
    rows = [score(score=0.25, identifier="a"), score(score=0.75, identifier="b"), score(label="pass", identifier="c")]
    series.add(told(*rows), NOW_S)
    chat = {"service": "chat", "evaluator": "helpful"}
    assert value(series, "goodwatch_quality_score_sum", **chat) == 1.0
    assert value(series, "goodwatch_quality_score_count", **chat) == 2
    assert value(series, "goodwatch_quality_scores_total", **chat, verdict="passed") == 2


def test_what_passes_is_what_the_operator_says() -> None:
    series, lower = QualitySeries(), QualityRules({"toxicity": EvaluatorRule(0.2, lower_is_better=True)})
    series.add(told(score(score=0.1, evaluator="toxicity"), rules=lower), NOW_S)
    assert value(series, "goodwatch_quality_scores_total", service="chat", evaluator="toxicity", verdict="passed") == 1
    unruled = QualitySeries()
    unruled.add(told(score(score=0.1, evaluator="toxicity")), NOW_S)
    assert value(unruled, "goodwatch_quality_scores_total", service="chat", evaluator="toxicity", verdict="untold") == 1


def test_a_score_that_is_seen_again_counts_once() -> None:
    series = QualitySeries()
    assert series.add(told(score(score=0.9)), NOW_S) == 1
    assert series.add(told(score(score=0.9)), NOW_S + LOOK_BACK_S) == 0
    assert series.add(told(score(score=0.9, annotator="human")), NOW_S + LOOK_BACK_S) == 1


def test_what_was_counted_long_ago_is_forgotten() -> None:
    series = QualitySeries()
    series.add(told(score(score=0.9)), NOW_S)
    series.add(told(), NOW_S + 3 * LOOK_BACK_S)
    assert len(series._known) == 0


def test_pairs_beyond_the_limit_are_added_up_and_counted() -> None:
    series = QualitySeries()
    rows = [score(score=0.9, evaluator=f"e{i}") for i in range(MAX_PAIRS + 3)]
    series.add(told(*rows), NOW_S)
    assert value(series, "goodwatch_quality_scores_total", service=OTHER, evaluator=OTHER, verdict="passed") == 3
    assert value(series, "goodwatch_quality_pairs_folded_total") == 3


@given(st.lists(st.floats(0, 1), max_size=30))
def test_buckets_hold_every_score_and_never_fall(scores: list[float]) -> None:
    series = QualitySeries()
    series.add(told(*(score(score=one, identifier=str(i)) for i, one in enumerate(scores))), NOW_S)
    for family in series.families():
        if family.name == "goodwatch_quality_score" and scores:
            buckets = [s.value for s in family.samples if s.name.endswith("_bucket")]
            assert buckets == sorted(buckets)
            assert buckets[-1] == len(scores)
            total = next(s.value for s in family.samples if s.name.endswith("_sum"))
            assert total == pytest.approx(sum(scores))


def test_the_page_is_openmetrics_and_every_series_is_in_the_table() -> None:
    series = QualitySeries()
    series.add(told(score(score=0.9, label='odd "label"\n')), NOW_S)

    class Page:
        def collect(self) -> object:
            return series.families()

    names = {family.name for family in text_string_to_metric_families(generate_latest(Page()).decode())}  # type: ignore[arg-type]
    assert names == {name.removesuffix("_total") for name, *_ in QUALITY_SERIES}
