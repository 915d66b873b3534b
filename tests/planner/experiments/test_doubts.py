"""What keeps runs from being compared: survivors, copies, coarse clocks, mixed units, arms of unequal spread."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from planner.experiments.calibration import calibration, checked
from planner.experiments.designs import change_text, judge
from planner.experiments.values import Effect, Experiment, Factor, Metric
from tests.planner.experiments.sides import E2E, changed, experiment
from tests.planner.experiments.test_calibration import done

RATE = Metric("images_per_s", "images/s", "higher")


def one_after_the_other(a: Sequence[float], b: Sequence[float], metric: Metric = E2E) -> Experiment:
    return experiment("A" * len(a) + "B" * len(b), [*a, *b], "before_after", metric)


def test_runs_that_did_nothing_do_not_leave_survivors_to_win() -> None:
    verdict = judge(one_after_the_other([1, 1.01, 1.02, 1.0, 0.99], [0, 0, 1.1, 1.12, 1.11], RATE))
    assert verdict.outcome == "inconclusive"
    assert "2 of 5 runs of arm b are 0 or below" in verdict.effects[0].reason


def test_a_run_without_the_metric_must_say_why_it_is_left_out() -> None:
    one = changed(0.5, "before_after")
    broken = replace(one.candidate.runs[0], measures={})
    silent = replace(one, candidate=replace(one.candidate, runs=(broken, *one.candidate.runs[1:])))
    assert judge(silent).outcome == "inconclusive"
    assert "1 of 6 counted runs of arm b do not tell it" in judge(silent).reason
    told = replace(broken, excluded="the node was drained")
    assert (
        judge(replace(silent, candidate=replace(one.candidate, runs=(told, *one.candidate.runs[1:])))).outcome
        == "better"
    )


def test_zeros_and_negative_values_are_compared_as_differences() -> None:
    metric = Metric("restarts", "restarts", "lower", scale="difference")
    verdict = judge(experiment("ABBA" * 3, [9, 0, 1, 8, 9.5, 0, 0, 9, 8, -1, 0, 9], metric=metric))
    assert verdict.outcome == "better"
    assert "restarts" in verdict.reason
    assert "points" not in verdict.reason


def test_a_run_that_is_there_twice_is_no_repeat() -> None:
    verdict = judge(one_after_the_other([1.2345678] * 3, [1.3456789] * 3))
    assert verdict.outcome == "inconclusive"
    assert "one run, taken twice" in verdict.reason


def test_a_change_of_one_step_of_the_clock_is_none() -> None:
    assert judge(one_after_the_other([1.0] * 3, [1.1] * 3)).outcome == "inconclusive"  # 1.049 and 1.051 are written so
    assert judge(one_after_the_other([1.0] * 3, [1.0] * 3)).outcome != "no_difference"
    assert judge(one_after_the_other([40.0] * 3, [30.0] * 3)).outcome == "better"  # ten steps are a change


def test_a_factor_between_units_is_asked_about_first() -> None:
    verdict = judge(one_after_the_other([0.12, 0.13, 0.125], [120, 131, 126.5]))
    assert verdict.outcome == "inconclusive"
    assert "1,000 times: is one arm in another unit than s?" in verdict.reason


def test_changes_beyond_all_numbers_do_not_overflow() -> None:
    assert judge(one_after_the_other([1e-308] * 3, [1e308] * 3)).effects[0].value is not None


@pytest.mark.parametrize(("few", "many"), [((3, 0.1), (30, 0.01)), ((4, 0.1), (20, 0.01))])
def test_a_small_noisy_arm_does_not_borrow_the_calm_of_a_large_one(
    few: tuple[int, float], many: tuple[int, float]
) -> None:
    rng = random.Random(11)
    wrong = 0
    for _ in range(200):
        sides = [[rng.lognormvariate(0, spread) for _ in range(n)] for n, spread in (few, many)]
        wrong += judge(one_after_the_other(sides[0], sides[1])).outcome in ("better", "worse")
    assert wrong / 200 <= 0.05  # 25 % and 10 % with one spread for both


def test_outliers_hide_changes_and_invent_none() -> None:
    rng = random.Random(12)
    wrong = 0
    for _ in range(200):
        sides = [[rng.gauss(1, 0.01) * (3 if rng.random() < 0.1 else 1) for _ in range(6)] for _ in range(2)]
        wrong += judge(one_after_the_other(sides[0], sides[1])).outcome in ("better", "worse")
    assert wrong / 200 <= 0.05


def test_an_engine_that_reports_the_factor_alike_in_both_arms_was_not_changed() -> None:
    one = replace(changed(0.7), factor=Factor("max_num_seqs", "256", "64"))
    arms = [replace(arm, effective={"max_num_seqs": "256"}) for arm in (one.baseline, one.candidate)]
    verdict = judge(replace(one, baseline=arms[0], candidate=arms[1]))
    assert verdict.outcome == "inconclusive"
    assert "set but not in effect" in verdict.reason


def test_a_difference_is_told_in_points_only_for_shares() -> None:
    effect = Effect("m", "better", "", -2.0, -3.0, -1.0)
    assert change_text(Metric("m", "1/s", "lower", scale="difference"), effect) == "m −2 1/s (−3 to −1 1/s)"
    assert (
        change_text(Metric("m", "ratio", "lower", scale="difference"), effect) == "m −200 points (−300 to −100 points)"
    )


def test_one_miss_of_one_does_not_make_intervals_too_narrow() -> None:
    missed = checked(done(0.8, 0.4, 0.5))
    assert calibration(missed).fault == ""  # one of five is promised to miss
    assert calibration(missed * 3).fault == "narrow"  # 0.2³ = 0.8 %
    held = checked(done(0.8, 0.7, 0.9))
    assert (calibration(held * 16).fault, calibration(held * 17).fault) == ("", "wide")  # 0.8¹⁶ = 2.8 %, 0.8¹⁷ = 2.3 %


def test_points_of_a_share_have_no_place_in_sharpness_and_bias() -> None:
    found = [replace(one, ratio=False) for one in checked(done(0.8, 0.7, 0.9))]
    assert (calibration(found).sharpness, calibration(found).bias) == (None, None)
