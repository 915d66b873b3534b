import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.experiments.designs import aa_noise, effect_of, gpu_hours_ratio, judge, quality_gate
from planner.experiments.values import (
    Arm,
    Experiment,
    Factor,
    Measured,
    Metric,
    Prediction,
    QualityConstraint,
    Run,
    StopRule,
)
from tests.planner.experiments.sides import E2E, changed, experiment, run


@pytest.mark.parametrize("design", ["before_after", "interleaved", "abba"])
def test_a_clear_change_is_told_with_its_direction(design: str) -> None:
    assert judge(changed(0.7, design)).outcome == "better"
    assert judge(changed(1.4, design)).outcome == "worse"


def test_more_is_better_where_the_metric_says_so() -> None:
    images = Metric("images_per_s", "images/s", "higher", "mean")
    one = experiment("ABBA" * 3, [1, 2, 2.02, 1.01, 1.02, 2.01, 2, 1, 1.01, 2.02, 2.01, 1], metric=images)
    assert judge(one).outcome == "better"


@pytest.mark.parametrize("design", ["before_after", "interleaved", "abba"])
def test_equal_arms_under_a_drift_are_not_called_different(design: str) -> None:
    assert judge(changed(1.0, design)).outcome in ("no_difference", "inconclusive")


def test_a_difference_that_nobody_would_act_on_is_no_difference() -> None:
    assert judge(changed(1.002)).outcome == "no_difference"


@given(st.floats(0.2, 5))
def test_the_interval_holds_the_change_that_was_made(factor: float) -> None:
    effect = judge(changed(factor)).effects[0]
    assert effect.low is not None
    assert effect.high is not None
    assert effect.low <= factor <= effect.high


def test_two_repeats_are_no_verdict() -> None:
    verdict = judge(experiment("ABBA", [1, 2, 2, 1]))
    assert verdict.outcome == "inconclusive"
    assert "2 and 2 counted runs; 3 of each are needed" in verdict.reason


def test_looking_before_the_stop_rule_is_met_gives_no_verdict() -> None:
    early = replace(changed(0.5), stop=StopRule(repeats=10))
    assert judge(early).outcome == "inconclusive"
    assert "10 of each are needed" in judge(early).reason
    assert [one.outcome for one in judge(early).effects] == ["inconclusive"]


def test_one_run_each_shows_an_interval_and_no_verdict() -> None:
    values = tuple(1 + 0.01 * (n % 7) for n in range(60))
    arms = [Arm(name, (Run(place, {"e2e_s": Measured(tuple(v * f for v in values))}),))
            for place, (name, f) in enumerate((("a", 1.0), ("b", 0.5)))]  # fmt: skip
    effect = effect_of(Experiment("x", "?", "imported", *arms, (E2E,)), E2E)
    assert effect.outcome == "inconclusive"
    assert effect.value == pytest.approx(0.5)
    assert effect.high is not None
    assert effect.high < 0.6
    assert "inside one run each" in effect.basis


def test_cold_runs_are_kept_and_not_counted() -> None:
    one = changed(0.7)
    cold = replace(
        one, candidate=replace(one.candidate, runs=(replace(run(99, 50.0), warm=False), *one.candidate.runs))
    )
    verdict = judge(cold)
    assert verdict.outcome == "better"
    assert "arm b: 1 cold run kept and not counted" in verdict.findings


def test_a_run_that_was_left_out_is_told_with_its_reason() -> None:
    one = changed(0.7)
    first = replace(one.candidate.runs[0], excluded="the node was drained")
    left = replace(one, candidate=replace(one.candidate, runs=(first, *one.candidate.runs[1:])))
    assert any("not counted: the node was drained" in said for said in judge(left).findings)


def test_a_flag_that_is_set_and_not_in_effect_is_no_change() -> None:
    one = changed(0.7)
    candidate = replace(one.candidate, intended={"max_num_seqs": "64"}, effective={"max_num_seqs": "256"})
    told = judge(replace(one, candidate=candidate, factor=Factor("max_num_seqs", "256", "64")))
    assert told.outcome == "inconclusive"
    assert "set but not in effect" in told.reason


def test_a_second_difference_leaves_nothing_to_conclude() -> None:
    one = changed(0.7)
    arms = {"baseline": replace(one.baseline, effective={"a": "1", "b": "true"}),
            "candidate": replace(one.candidate, effective={"a": "2", "b": "False"})}  # fmt: skip
    assert "one thing at a time" in judge(replace(one, **arms, factor=Factor("a", "1", "2"))).reason  # type: ignore[arg-type]


def test_pairs_that_always_run_in_one_order_are_judged_beside_the_drift() -> None:
    drifting = [1.1**n for n in range(12)]
    assert judge(experiment("AB" * 6, drifting, "interleaved")).outcome not in ("better", "worse")


def canary(change: float, machine: float, *, before: bool = True) -> Experiment:
    runs: dict[str, list[Run]] = {"a": [], "b": []}
    for piece in range(0 if before else 12, 24):
        wobble = 0.01 * math.sin(1.7 * piece)
        reference = piece < 12
        runs["a"].append(run(2 * piece, 1 + wobble, piece, reference=reference))
        candidate = machine * (1 + 0.013 * math.cos(2.3 * piece)) * (1 if reference else change)
        runs["b"].append(run(2 * piece + 1, candidate, piece, reference=reference))
    return Experiment("c", "?", "canary", Arm("a", tuple(runs["a"])), Arm("b", tuple(runs["b"])), (E2E,))


def test_a_canary_on_a_slower_machine_is_not_worse_for_it() -> None:
    assert judge(canary(1.0, 1.3)).outcome not in ("better", "worse")
    assert judge(canary(0.8, 1.3)).outcome == "better"


def test_a_canary_without_a_look_at_the_machines_before_has_no_verdict() -> None:
    verdict = judge(canary(0.8, 1.3, before=False))
    assert verdict.outcome == "inconclusive"
    assert "machines differ" in verdict.reason


def test_the_noise_of_earlier_equal_arms_is_a_floor() -> None:
    one = changed(0.9)
    assert judge(one).outcome == "better"
    assert judge(one, noise={"e2e_s": 0.2}).outcome == "inconclusive"
    same = replace(changed(1.05), factor=Factor("nothing", "1", "1"))
    assert aa_noise([same, one])["e2e_s"] == pytest.approx(0.05, abs=0.02)


def gate(a: tuple[float, float], b: tuple[float, float], margin: float = 0.02) -> Experiment:
    one = replace(changed(0.7), quality=QualityConstraint("judge", margin))
    arms = [
        replace(arm, quality_passed=x[0], quality_judged=x[1])
        for arm, x in zip((one.baseline, one.candidate), (a, b), strict=True)
    ]
    return replace(one, baseline=arms[0], candidate=arms[1])


def test_the_interval_of_two_shares_is_newcombes() -> None:
    # R. G. Newcombe 1998, table II (a), method 10: 56/70 less 48/80 is 0.0524 to 0.3339
    assert "+5.2 to +33.4 points" in quality_gate(gate((48, 80), (56, 70)))[1]


def test_worse_answers_veto_a_quicker_engine() -> None:
    verdict = judge(gate((950, 1000), (800, 1000)))
    assert (verdict.outcome, verdict.gate) == ("worse", "vetoed")


def test_too_few_judged_answers_are_no_pass() -> None:
    verdict = judge(gate((19, 20), (19, 20)))
    assert (verdict.outcome, verdict.gate) == ("inconclusive", "not_shown")
    assert judge(replace(changed(0.7), quality=QualityConstraint("judge"))).gate == "not_shown"


def test_answers_as_good_as_before_let_a_verdict_pass() -> None:
    assert judge(gate((1900, 2000), (1905, 2000))).outcome == "better"


def test_gpu_hours_are_for_the_same_work() -> None:
    rate = Metric("output_tokens_per_s", "tokens/s", "higher", "rate")

    def arm(name: str, tokens: float, gpus: float) -> Arm:
        measured = {rate.name: Measured(numerator=tokens, denominator=3600.0)}
        return Arm(name, (Run(0, measured, duration_s=3600.0, gpus=gpus),))

    # twice the GPUs for three times the tokens: two thirds of the GPU-hours for one token
    one = Experiment("g", "?", "imported", arm("a", 1e6, 4), arm("b", 3e6, 8), (rate,))
    assert gpu_hours_ratio(one) == pytest.approx(2 / 3)
    unknown = replace(one, candidate=replace(one.candidate, runs=(replace(one.candidate.runs[0], gpus=None),)))
    assert gpu_hours_ratio(unknown) is None


def test_shares_are_compared_in_points() -> None:
    hits = Metric("hit_ratio", "ratio", "higher", "mean", "difference")
    one = experiment("ABBA" * 3, [0.6, 0.81, 0.8, 0.61, 0.6, 0.8, 0.8, 0.6, 0.61, 0.8, 0.81, 0.6], metric=hits)
    verdict = judge(one)
    assert verdict.outcome == "better"
    assert verdict.effects[0].value == pytest.approx(0.2, abs=0.01)
    assert "points" in verdict.reason


def test_the_prediction_is_compared_with_what_was_measured() -> None:
    one = changed(0.8)
    assert judge(replace(one, predictions=(Prediction("e2e_s", 0.75, 0.85),))).predicted_inside is True
    assert judge(replace(one, predictions=(Prediction("e2e_s", 0.5, 0.6),))).predicted_inside is False
    assert judge(one).predicted_inside is None


def test_a_quicker_first_token_bought_with_throughput_is_told() -> None:
    one = changed(0.7)
    other = Metric("output_tokens_per_s", "tokens/s", "higher", "mean")
    arms = []
    for arm, factor in ((one.baseline, 1.0), (one.candidate, 0.5)):
        runs = tuple(
            replace(r, measures={**r.measures, other.name: Measured((factor * (1 + 0.001 * r.position),))})
            for r in arm.runs
        )
        arms.append(replace(arm, runs=runs))
    verdict = judge(replace(one, baseline=arms[0], candidate=arms[1], metrics=(E2E, other)))
    assert verdict.outcome == "better"
    assert "but worse in output_tokens_per_s" in verdict.reason
