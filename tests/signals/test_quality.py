"""Scores joined with requests, and what they say together."""

from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.model import Absence, Deployment
from goodwatch.core.quality import EvaluatorRule, QualityRules
from goodwatch.core.request import Verdict
from goodwatch.signals.quality import joined, unjoined, with_quality
from goodwatch.signals.quality_agreement import agreement
from goodwatch.signals.quality_shares import evaluators, quality, quality_by, with_deployments
from tests.signals.request_facts import fact, judged, scores

RULES = QualityRules()
TRACE_1, TRACE_2 = f"{1:032x}", f"{2:032x}"


def score(trace: str | None = TRACE_1, **more: Any) -> dict[str, Any]:
    usual = {"ts": 200.0, "received_s": 200.0, "trace_id": trace, "evaluator": "helpful", "score": 1.0}
    return {**usual, **more}


def verdicts(facts: list[dict[str, Any]], told: list[dict[str, Any]], rules: QualityRules = RULES) -> list[bool | None]:
    return with_quality(judged(facts), scores(told), rules)["passed"].to_list()


def test_a_score_belongs_to_the_request_that_it_names() -> None:
    two = [fact(1, response_id="r1"), fact(2, trace_id=TRACE_1, response_id="r2")]
    assert verdicts(two, [score(span_id=f"{2:016x}")]) == [None, True]
    assert verdicts(two, [score(response_id="r1")]) == [True, None]
    assert verdicts(two, [score(None, response_id="r2", score=0.0)]) == [None, False]
    assert verdicts(two, [score()]) == [True, True]  # of the whole trace


def test_a_span_around_the_only_request_of_a_trace_means_that_request() -> None:
    chain = score(span_id="f" * 16)
    assert verdicts([fact(1)], [chain]) == [True]
    several = [fact(1), fact(2, trace_id=TRACE_1)]
    assert verdicts(several, [chain]) == [None, None]
    assert unjoined(judged(several), scores([chain, score(), score(TRACE_2)])) == 1


def test_the_last_score_of_an_identity_wins_whatever_its_order_in_the_frame() -> None:
    late = score(score=0.0, received_s=900.0, ts=100.0)
    assert verdicts([fact(1)], [late, score()]) == [False]
    assert verdicts([fact(1)], [score(), late]) == [False]
    # another person's score is another identity: both count, and all must pass
    assert verdicts([fact(1)], [score(identifier="ann"), score(identifier="bob", score=0.0)]) == [False]


def test_a_check_can_fail_a_request_and_never_pass_it() -> None:
    check = score(evaluator="goodwatch.checks")
    assert verdicts([fact(1)], [check]) == [None]
    found = with_quality(judged([fact(1)]), scores([score(evaluator="goodwatch.checks", score=0.0)]), RULES)
    assert found.select("passed", "faulty", "failed_by").rows() == [(None, True, ["goodwatch.checks"])]
    assert verdicts([fact(1)], [score(), score(evaluator="goodwatch.checks", score=0.0)]) == [False]


def test_what_does_not_tell_is_no_verdict() -> None:
    assert verdicts([fact(1)], [score(score=None, label="yes")]) == [None]
    assert verdicts([fact(1)], [score(evaluator="toxicity", score=0.9)]) == [None]


def test_no_scores_leave_every_request_unscored() -> None:
    found = with_quality(judged([fact(1)]), scores([]), RULES)
    assert found.select("passed", "faulty", "scored_by", "failed_by").rows() == [(None, False, [], [])]


RULED = QualityRules(
    {"toxicity": EvaluatorRule(0.2, lower_is_better=True), "yesno": EvaluatorRule(labels={"yes": True, "no": False})},
    0.6,
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["helpful", "toxicity", "yesno", "hallucination", "goodwatch.checks"]),
            st.none() | st.floats(0, 1),
            st.sampled_from([None, "yes", "No", "pass", "FAIL", "?"]),
        ),
        max_size=8,
    )
)
def test_whole_columns_are_judged_as_single_scores(rows: list[tuple[str, float | None, str | None]]) -> None:
    told = [score(evaluator=e, score=s, label=x, identifier=str(n)) for n, (e, s, x) in enumerate(rows)]
    found = joined(judged([fact(1)]), scores(told), RULED)
    got = {(i, e): p for i, e, p in found.select("identifier", "evaluator", "passed").rows()}
    assert got == {(str(n), e): RULED.passes(e, s, x) for n, (e, s, x) in enumerate(rows)}


def rated(*rows: tuple[str, float | None], weight: float | None = 1.0, slo: str = "chat") -> pl.DataFrame:
    """Requests with a verdict and perhaps a score."""
    facts = [fact(n, verdict=v, slo=slo, weight=weight) for n, (v, _) in enumerate(rows, 1)]
    told = [score(f"{n:032x}", score=s) for n, (_, s) in enumerate(rows, 1) if s is not None]
    return with_quality(judged(facts), scores(told), RULES)


def test_fast_but_wrong_and_the_others_are_counted_by_hand() -> None:
    good, bad = Verdict.GOOD, Verdict.BAD
    found = quality(
        rated((good, 1.0), (good, 1.0), (good, 0.0), (good, None), (bad, 1.0), (bad, 0.0), (Verdict.UNDETERMINED, None))
    )
    assert (found.requests, found.scored, found.faulty) == (7, 5, 2)
    assert found.scored_ratio.value == pytest.approx(5 / 7)
    assert found.quality_ratio.value == pytest.approx(3 / 5)
    assert found.fast_but_wrong.value == pytest.approx(1 / 3)
    assert found.quality_when_slow.value == pytest.approx(1 / 2)
    # valid: 6 and the undetermined one; two are good and passed for certain, one good is open, one undetermined is
    assert found.good_and_passed.value is None
    assert found.good_and_passed.bounds is not None
    assert (found.good_and_passed.bounds.low, found.good_and_passed.bounds.high) == (2 / 7, 4 / 7)
    # attainment 4/6 times 2/3 of the scored good ones
    assert found.good_and_passed_likely.value == pytest.approx(4 / 6 * 2 / 3)


def test_the_interval_is_that_of_wilson() -> None:
    found = quality(rated(*[(Verdict.GOOD, 1.0)] * 8, *[(Verdict.GOOD, 0.0)] * 2)).quality_ratio
    # R: prop.test(8, 10, correct = FALSE)$conf.int is 0.4901625 0.9433178
    assert found.bounds is not None
    assert (found.bounds.low, found.bounds.high) == (pytest.approx(0.4902, abs=1e-3), pytest.approx(0.9433, abs=1e-3))


def test_all_passed_is_not_certainty() -> None:
    found = quality(rated(*[(Verdict.GOOD, 1.0)] * 20)).quality_ratio
    assert found.value == 1
    assert found.bounds is not None
    # R: prop.test(20, 20, correct = FALSE)$conf.int begins at 0.8388748
    assert found.bounds.low == pytest.approx(0.8389, abs=1e-3)


def test_one_score_for_many_requests_of_a_trace_is_one_observation() -> None:
    facts = [fact(n, trace_id=f"{n % 2:031x}1", slo="chat") for n in range(1, 201)]
    told = scores([score(f"{0:031x}1", score=1.0), score(f"{1:031x}1", score=0.0)])
    found = quality(with_quality(judged(facts), told, RULES)).quality_ratio
    assert found.value == 0.5
    assert found.bounds is not None
    assert found.bounds.low < 0.1  # two observations, not two hundred
    assert found.bounds.high is not None
    assert found.bounds.high > 0.9


def test_weights_count_and_widen() -> None:
    rows = [(Verdict.GOOD, 1.0)] * 10 + [(Verdict.GOOD, 0.0)] * 10
    facts = rated(*rows).with_columns(weight=pl.when(pl.col("passed")).then(9.0).otherwise(1.0))
    found, plain = quality(facts).quality_ratio, quality(rated(*rows)).quality_ratio
    assert found.value == pytest.approx(0.9)
    assert found.bounds is not None
    assert plain.bounds is not None
    assert plain.bounds.low < 0.5 < plain.bounds.high


@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
def test_nineteen_intervals_of_twenty_hold_the_truth(share: float) -> None:
    # Requests of traces of one to three that share their score, kept with a probability that depends on the trace.
    random, held, tries = Random(7), 0, 120
    for _ in range(tries):
        facts, told = [], []
        for trace in range(150):
            weight, passed = random.choice([1.0, 2.0, 5.0]), float(random.random() < share)
            for _ in range(random.choice([1, 1, 2, 3])):
                facts.append(fact(len(facts) + 1, trace_id=f"{trace + 1:032x}", weight=weight, slo="chat"))
            told.append(score(f"{trace + 1:032x}", score=passed))
        found = quality(with_quality(judged(facts), scores(told), RULES)).quality_ratio.bounds
        assert found is not None
        assert found.high is not None
        held += found.low <= share <= found.high
    # 95 % of 120 is 114, and four standard deviations less are 104
    assert held >= 104


def test_no_target_means_that_nobody_knows_what_fast_is() -> None:
    found = quality(rated((Verdict.GOOD, 0.0), slo=""))
    assert found.fast_but_wrong.absence is Absence.NOT_MEASURABLE


def test_no_requests_and_no_scores_are_two_answers() -> None:
    assert quality(rated()).good_and_passed.absence is Absence.NO_TRAFFIC
    unscored = quality(rated((Verdict.GOOD, None)))
    assert unscored.quality_ratio.absence is Absence.NO_DATA
    assert unscored.good_and_passed.bounds is not None
    assert (unscored.good_and_passed.bounds.low, unscored.good_and_passed.bounds.high) == (0, 1)


@given(
    st.lists(
        st.tuples(st.sampled_from([*Verdict]), st.none() | st.sampled_from([0.0, 1.0]), st.booleans()), max_size=30
    )
)
def test_the_truth_is_inside_the_bounds_whatever_the_unscored_are(
    rows: list[tuple[Verdict, float | None, bool]],
) -> None:
    found = quality(rated(*[(v, s) for v, s, _ in rows])).good_and_passed
    # what the truth is when undetermined ones turn out good or bad, and unscored ones right or wrong, by the third field
    valid = [(v, s, t) for v, s, t in rows if v is not Verdict.NOT_VALID]
    if not valid:
        assert found.absence is Absence.NO_TRAFFIC
        return
    good = [
        (v is Verdict.GOOD or (v is Verdict.UNDETERMINED and t)) and (t if s is None else s == 1.0) for v, s, t in valid
    ]
    assert found.bounds is not None
    assert found.bounds.high is not None
    assert found.bounds.low - 1e-9 <= sum(good) / len(valid) <= found.bounds.high + 1e-9


def test_quality_is_split_by_what_was_running_and_by_time() -> None:
    ran = [
        Deployment(0.0, "gpu1", "chat", "vllm", "0.10", "llama", {"quantization": "fp8"}),
        Deployment(1000.0, "gpu1", "chat", "vllm", "0.11", "llama", {"quantization": "awq"}),
    ]
    facts = [fact(n, target="gpu1", arrived_at=t, ended_at=t + 1) for n, t in ((1, 10.0), (2, 999.0), (3, 1000.0))]
    facts.append(fact(4, target="elsewhere", arrived_at=10.0, ended_at=11.0))
    told = scores([score(f"{n:032x}", score=float(n != 3)) for n in range(1, 5)])
    scored = with_quality(with_deployments(judged(facts), ran), told, RULES)
    assert scored["fact_id"].to_list() == [f"{n:016x}" for n in range(1, 5)]
    assert scored["engine_version"].to_list() == ["0.10", "0.10", "0.11", None]
    groups = quality_by(scored, "quantization")
    assert [(g.key, g.numbers.quality_ratio.value) for g in groups] == [("fp8", 1.0), (None, 1.0), ("awq", 0.0)]
    steps = quality_by(scored, None, 500.0)
    assert [(g.start_s, g.numbers.requests) for g in steps] == [(0.0, 2), (1000.0, 2)]


def test_each_evaluator_has_its_own_share_and_checks_are_among_them() -> None:
    facts = judged([fact(1), fact(2)])
    told = scores(
        [score(), score(evaluator="goodwatch.checks", score=0.0), score(TRACE_2, evaluator="goodwatch.checks")]
    )
    found = evaluators(facts, joined(facts, told, RULES))
    assert {name: number.value for name, number in found.items()} == {"goodwatch.checks": 0.5, "helpful": 1.0}


def test_judge_and_people_are_compared_on_the_requests_that_both_rated() -> None:
    facts = judged([fact(n) for n in range(1, 7)])
    rows = []
    for n, (judge, human) in enumerate([(1, 1), (1, 1), (1, 0), (0, 0), (0, 0), (1, None)], 1):
        rows.append(score(f"{n:032x}", evaluator="factuality", annotator="llm", score=float(judge)))
        if human is not None:
            rows.append(score(f"{n:032x}", evaluator="factuality", annotator="human", label=("bad", "good")[human]))
    rows.append(score(evaluator="tone", annotator="human"))
    found = agreement(joined(facts, scores(rows), RULES))
    # 2x2 of 2, 1, 0, 2: agreed 0.8, by chance 0.6*0.4 + 0.4*0.6 = 0.48
    assert found["factuality"].pairs == 5
    assert found["factuality"].kappa == pytest.approx((0.8 - 0.48) / (1 - 0.48))
    assert found["tone"].pairs == 0
