"""Verdicts on applied recommendations: what a saving is, what bends, what an early look may say, what quality vetoes."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from planner.checking import checked
from planner.experiments.calibration import checked as calibrated
from planner.experiments.designs import judge
from planner.recommendations import Band, ChangeLine, Predicted, Recommendation, moved
from tests.planner.test_recommendations import NOW_S, predicted, recommendation

FLAT = Band(1.0, 1.0, 1.0)
#: 20 % less for a good token was promised, give or take a tenth
CHEAPER = Predicted("usd_per_million_good_tokens", FLAT, FLAT, Band(0.8, 0.7, 0.9), "ratio")


def side(share: Callable[[float], float], start_s: float, seed: int, count: int = 4000) -> pl.DataFrame:
    """Requests of an hour, evenly spaced, of which a share is good that depends on how far the hour is gone (0..1)."""
    rng = random.Random(seed)
    at = [place / count for place in range(count)]
    return pl.DataFrame(
        {
            "ended_at": [start_s + 3600 * x for x in at], "arrived_s": [start_s + 3600 * x - 1 for x in at],
            "input_tokens": [100] * count, "output_tokens": [50] * count, "good": [rng.random() < share(x) for x in at],
            "ttft_seen": [rng.lognormvariate(-2, 0.4) for _ in at], "tpot_seen": [rng.lognormvariate(-4, 0.2) for _ in at],
        }
    )  # fmt: skip


def steady(share: float, start_s: float = NOW_S, seed: int = 1, count: int = 4000) -> pl.DataFrame:
    return side(lambda _: share, start_s, seed, count)


#: as many requests as a check may want at most
MANY = 20_000
BEFORE = steady(0.97, NOW_S - 3600, 2, MANY)


#: days on which the load's turn looks like a step
SEEDS = (20, 29, 30)


def applied(**more: Any) -> Recommendation:
    return moved(recommendation(**more), "applied", NOW_S, "ann")


def saving(**more: Any) -> Recommendation:
    return applied(mode="save", predicted=(predicted(-0.02, 0.02), CHEAPER), **more)


def test_the_same_bill_for_the_same_answers_is_no_saving() -> None:
    told, experiment = checked(saving(), BEFORE, steady(0.97, count=MANY), None, NOW_S + 1, bill=(10.0, 10.0))
    assert told.state == "refuted"  # a tenth at least was promised, and it is surely not there
    (cost,) = [e for e in experiment.verdict.effects if e.metric == CHEAPER.metric]  # type: ignore[union-attr]
    assert cost.low is not None
    assert cost.high is not None
    assert cost.low < 1 < cost.high


def test_a_smaller_bill_for_the_same_answers_is_a_saving_with_its_interval() -> None:
    told, experiment = checked(saving(), BEFORE, steady(0.97, count=MANY), None, NOW_S + 1, bill=(10.0, 7.5))
    assert told.state == "verified", told.verdict
    money = told.metric(CHEAPER.metric)
    assert money is not None
    assert money.measured is not None
    # three quarters of the bill, and as many good answers give or take two points
    assert 0.75 * 0.97 <= money.measured <= 0.75 * 1.03
    assert money.inside
    assert [one.metric for one in calibrated(experiment)][-1] == CHEAPER.metric


def test_a_smaller_bill_that_good_answers_pay_for_is_none() -> None:
    told, experiment = checked(saving(), BEFORE, steady(0.6, count=MANY), None, NOW_S + 1, bill=(10.0, 7.5))
    assert told.state == "refuted"
    assert experiment.verdict is not None
    assert experiment.verdict.effects[-1].outcome == "inconclusive"


def test_a_saving_without_a_price_is_open() -> None:
    told, _ = checked(saving(), BEFORE, steady(0.97, count=MANY), None, NOW_S + 1)
    assert (told.state, "not known" in told.verdict) == ("inconclusive", True)


def test_what_helps_by_less_than_was_predicted_says_so() -> None:
    one = applied(predicted=(predicted(0.3, 0.4),))  # 30 points at least were promised
    told, _ = checked(one, steady(0.6, NOW_S - 3600, 3), steady(0.7), None, NOW_S + 1)
    assert told.state == "verified"
    assert "not as predicted" in told.verdict
    assert told.predicted[0].inside is False


def morning(seed: int, start_s: float, end_s: float) -> pl.DataFrame:
    """Requests of a day whose load rises until ``NOW_S`` and stays near its height, and of which the fewer are good the
    more there are."""
    rng, rows, at_s = random.Random(seed), [], start_s
    while at_s < end_s:
        day = 1 + 0.5 * math.sin(2 * math.pi * (at_s - NOW_S + 21_600) / 86_400)
        at_s += rng.expovariate(2 * day)
        good = rng.random() < 1 / (1 + math.exp(-0.4 + 0.8 * (day - 1)))
        rows.append((at_s, at_s - 1, 100, 50, good, rng.lognormvariate(-2, 0.4), rng.lognormvariate(-4, 0.2)))
    return pl.DataFrame(rows, schema=list(BEFORE.columns), orient="row")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drift_that_bends_at_the_change_is_no_step(seed: int) -> None:
    before, after = morning(seed, NOW_S - 21_600, NOW_S), morning(seed + 100, NOW_S + 60, NOW_S + 2460)
    told, experiment = checked(applied(), before, after, None, NOW_S + 1)
    seen = judge(experiment).outcome  # mostly "better": that is what a step beside a straight drift looks like
    assert told.state == "inconclusive"
    assert seen == "inconclusive" or "levels before and after do not differ" in told.verdict


def test_a_change_of_two_settings_is_one_change() -> None:
    lines = (ChangeLine("max_model_len", "8192", "4096"), ChangeLine("max_num_seqs", "64", "128"))
    one = applied(diff=lines, before={"max_model_len": "8192", "max_num_seqs": "64"})
    told, _ = checked(
        one, steady(0.6, NOW_S - 3600, 7), steady(0.9), {"max_model_len": "4096", "max_num_seqs": "128"}, NOW_S + 1
    )
    assert told.state == "verified", told.verdict
    other = {"max_model_len": "4096", "max_num_seqs": "128", "engine_version": "0.12.0"}
    told, _ = checked(
        replace(one, before={**(one.before or {}), "engine_version": "0.11.0"}),
        steady(0.6, NOW_S - 3600, 7),
        steady(0.9),
        other,
        NOW_S + 1,
    )
    assert (told.state, "engine_version differs as well" in told.verdict) == ("inconclusive", True)


def test_a_change_that_half_of_the_replicas_made_proves_nothing() -> None:
    one = applied(diff=(ChangeLine("max_num_seqs", "128", "8"),), before={"max_num_seqs": "128"})
    told, _ = checked(one, steady(0.6, NOW_S - 3600, 7), steady(0.9), {"max_num_seqs": "128 and 8"}, NOW_S + 1)
    assert (told.state, "the change was not made" in told.verdict) == ("inconclusive", True)


def test_quality_passes_vetoes_or_keeps_a_gated_change_open() -> None:
    one = applied(gate="quality is not worse")
    before, after = steady(0.6, NOW_S - 3600, 7), steady(0.9)
    states = {
        quality: checked(one, before, after, None, NOW_S + 1, quality=quality)[0].state
        for quality in (None, ((9000, 10_000), (9050, 10_000)), ((900, 1000), (700, 1000)))
    }
    assert list(states.values()) == ["inconclusive", "verified", "refuted"]


def test_an_entry_of_the_ledger_stays_small() -> None:
    before, after = (side(lambda _: 0.9, start_s, seed, 200_000) for start_s, seed in ((NOW_S - 3600, 5), (NOW_S, 6)))
    _, experiment = checked(applied(), before, after, None, NOW_S + 1)
    runs = [*experiment.baseline.runs, *experiment.candidate.runs]
    assert sum(len(m.values) for run in runs for m in run.measures.values()) <= 16 * (2 * 2000 + 2)
