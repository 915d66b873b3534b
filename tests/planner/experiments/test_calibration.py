from dataclasses import replace

import pytest

from planner.experiments.calibration import calibration, checked, over_time, series
from planner.experiments.designs import judge
from planner.experiments.values import Experiment, Factor, Prediction
from tests.planner.experiments.sides import changed

DAY_S = 86400.0


def done(factor: float, low: float, high: float, at_s: float = 0.0) -> Experiment:
    one = replace(
        changed(factor), predictions=(Prediction("e2e_s", low, high, (low * high) ** 0.5, 0.8, "step model"),)
    )
    return replace(one, verdict=judge(one, at_s=at_s))


def test_a_prediction_that_held_is_inside_and_misses_by_nothing() -> None:
    (found,) = checked(done(0.8, 0.7, 0.9))
    assert found.inside
    assert found.miss == 0
    assert found.certain


def test_a_prediction_that_failed_says_by_how_many_half_widths() -> None:
    (found,) = checked(done(0.8, 0.4, 0.5))
    assert not found.inside
    assert found.miss > 2


def test_a_measurement_that_reaches_over_the_end_is_a_near_thing() -> None:
    (found,) = checked(done(0.8, 0.8, 0.9))
    assert not found.certain


def test_nothing_is_learnt_from_an_experiment_without_enough_repeats() -> None:
    one = done(0.8, 0.7, 0.9)
    few = replace(one, candidate=replace(one.candidate, runs=one.candidate.runs[:2]))
    assert checked(replace(few, verdict=judge(few))) == ()
    assert checked(replace(one, verdict=None)) == ()


def test_nothing_is_learnt_from_a_change_that_was_not_in_effect() -> None:
    one = replace(done(0.8, 0.7, 0.9), factor=Factor("max_num_seqs", "256", "64"))
    arm = replace(one.candidate, intended={"max_num_seqs": "64"}, effective={"max_num_seqs": "256"})
    idle = replace(one, candidate=arm)
    idle = replace(idle, verdict=judge(idle))
    assert idle.verdict is not None
    assert idle.verdict.predicted_inside is None
    assert checked(idle) == ()


def test_intervals_that_hold_too_seldom_are_called_too_narrow() -> None:
    found = [one for place in range(20) for one in checked(done(0.8, 0.7, 0.9) if place < 8 else done(0.8, 0.4, 0.5))]
    told = calibration(found)
    assert (told.predictions, told.inside) == (20, 8)
    assert told.coverage_ratio == pytest.approx(0.4)
    assert "too narrow" in told.text


def test_sharpness_tells_a_planner_that_says_nothing() -> None:
    narrow, wide = (calibration(checked(done(0.8, low, high))) for low, high in ((0.78, 0.82), (0.1, 10.0)))
    assert narrow.sharpness == pytest.approx(0.82 / 0.78)
    assert wide.sharpness == pytest.approx(100)


def test_no_prediction_is_neither_good_nor_bad() -> None:
    assert calibration([]).coverage_ratio is None


def test_calibration_is_kept_by_period() -> None:
    found = [one for day in (0, 0, 8) for one in checked(done(0.8, 0.7, 0.9, day * DAY_S + 1))]
    assert [(start, told.predictions) for start, told in over_time(found, 7 * DAY_S)] == [(0.0, 2), (7 * DAY_S, 1)]


def test_the_series_counts_both_answers() -> None:
    found = [*checked(done(0.8, 0.7, 0.9)), *checked(done(0.8, 0.4, 0.5)), *checked(done(0.8, 0.4, 0.5))]
    assert series(found) == (({"inside": "true"}, 1.0), ({"inside": "false"}, 2.0))
