"""Rollups against counting by hand, and coarser tiers against rolling up at once."""

import math

import polars as pl
import pytest
from hypothesis import given
from polars.testing import assert_frame_equal

from goodwatch.core.exponential import bin_of, exponential
from goodwatch.core.request import Verdict, band_of
from goodwatch.signals.request_frames import BINS, ROLLUP_KEYS, ROLLUPS
from goodwatch.signals.rollup import band_expr, coarser, roll_up
from tests.signals.request_facts import ROWS, fact, judged, scores


def test_bands_are_those_of_single_lengths() -> None:
    lengths = [None, -1, 0, 1, 2, 3, 4, 2**20 - 1, 2**20, 2**53 - 1, 2**53, 2**62, 2**63 - 1]
    found = pl.DataFrame({"n": lengths}, schema={"n": pl.Int64}).select(band=band_expr("n"))["band"].to_list()
    assert found == [band_of(length) for length in lengths]


def test_no_requests_roll_up_to_nothing() -> None:
    rollups, bins = roll_up(judged([]))
    assert_frame_equal(rollups, pl.DataFrame(schema=ROLLUPS))
    assert_frame_equal(bins, pl.DataFrame(schema=BINS))
    assert_frame_equal(coarser(rollups, bins, 3600)[1], bins)


def test_counts_and_sums_are_those_of_the_requests() -> None:
    rows = [
        fact(1, weight=4.0, input_tokens=100, cached_tokens=50, output_tokens=10),
        fact(2, weight=None, output_tokens=12, verdict=Verdict.BAD),
        fact(3, output_tokens=9, verdict=Verdict.BAD, status="timeout"),
        fact(4, output_tokens=8, verdict=Verdict.NOT_VALID, status="aborted"),
        fact(5, output_tokens=8, verdict=Verdict.UNDETERMINED),
    ]
    rollups, _ = roll_up(judged(rows))
    (row,) = rollups.rows(named=True)
    assert {key: row[key] for key in ROLLUP_KEYS} == {
        "tier_s": 60, "start_s": 120.0, "service": "chat", "model": "llama", "tenant": None,
        "input_band": 6, "output_band": 3,
    }  # fmt: skip
    # weights 4, 1 (not told), 1, 1, 1; good is the first, valid the first three
    assert {name: row[name] for name in row if name not in {*ROLLUP_KEYS, "slo"}} == {
        "requests": 5, "weighted": 8, "weighted_sq": 20, "unweighted": 1, "valid": 6, "good": 4, "undetermined": 1,
        "failed": 1, "aborted": 1, "good_sq": 16, "valid_sq": 18, "input_tokens": 800, "cached_tokens": 200,
        "output_tokens": 40 + 12 + 9 + 8 + 8, "good_output_tokens": 40, "good_tokens": 440, "lost_output_tokens": 17,
        "scored": 0, "passed": 0, "passed_good": 0,
    }  # fmt: skip


def test_a_request_belongs_to_the_minute_in_which_it_ended() -> None:
    rollups, _ = roll_up(judged([fact(1, ended_at=119.999), fact(2, ended_at=120.0), fact(3, ended_at=179.9)]))
    assert rollups.select("start_s", "requests").rows() == [(60.0, 1.0), (120.0, 2.0)]


def test_bins_hold_each_latency_that_is_told_and_no_other() -> None:
    rows = [
        fact(1, engine_ttft_s=1.0),
        fact(2, engine_ttft_s=1.0, weight=4.0),
        fact(3, engine_ttft_s=0.0),
        fact(4, engine_ttft_s=None),
    ]
    _, bins = roll_up(judged(rows))
    assert bins["field"].to_list() == ["engine_e2e_s", "engine_ttft_s"]
    ttft = bins.row(1, named=True)
    assert (ttft["zero"], ttft["facts"], ttft["sum"]) == (1.0, 3.0, 5.0)
    assert (ttft["bin"], ttft["count"]) == ([bin_of(1.0)], [5.0])


@given(ROWS)
def test_the_bins_of_a_scope_are_the_histogram_of_its_requests(facts: pl.DataFrame) -> None:
    facts = facts.with_columns(weight=1.0)
    _, bins = roll_up(facts)
    asked = facts.with_columns(minute=(pl.col("ended_at") // 60) * 60, band=band_expr("input_tokens"))
    for row in bins.rows(named=True):
        same = asked.filter(
            pl.col("minute") == row["start_s"],
            pl.col("service") == row["service"],
            pl.col("tenant").eq_missing(row["tenant"]),
            pl.col("band") == row["input_band"],
            band_expr("output_tokens") == row["output_band"],
        )
        values = same[row["field"]].drop_nulls().to_list()
        whole = exponential(values)
        assert (row["zero"], dict(zip(row["bin"], row["count"], strict=True))) == (whole.zero, dict(whole.count))
        assert row["bin"] == sorted(row["bin"])
        assert (row["facts"], row["sum"]) == (len(values), pytest.approx(math.fsum(values)))


@given(ROWS)
def test_an_hour_of_minutes_is_the_hour_of_its_requests(facts: pl.DataFrame) -> None:
    minutes = roll_up(facts)
    hours = coarser(*minutes, 3600)
    at_once = roll_up(facts.with_columns(ended_at=(pl.col("ended_at") // 3600) * 3600))
    for found, wanted in zip(hours, at_once, strict=True):
        assert_frame_equal(found, wanted.with_columns(tier_s=pl.lit(3600, pl.Int32)), check_exact=False)
    for found, wanted in zip(coarser(*hours, 86400), coarser(*minutes, 86400), strict=True):
        assert_frame_equal(found, wanted, check_exact=False)


@given(ROWS)
def test_nothing_is_lost_on_the_way_up(facts: pl.DataFrame) -> None:
    rollups, bins = coarser(*roll_up(facts), 86400)
    assert rollups["requests"].sum() == facts.height
    seen = sum(facts.height - facts[field].null_count() for field in ("engine_ttft_s", "engine_e2e_s", "client_e2e_s"))
    assert bins["facts"].sum() == seen


def test_a_request_passes_when_all_of_its_scores_do() -> None:
    facts = judged([fact(n, response_id=f"r{n}", verdict=Verdict.GOOD if n != 2 else Verdict.BAD) for n in range(1, 6)])
    ids = {n: {"trace_id": f"{n:032x}"} for n in range(1, 6)}
    given_scores = scores(
        [
            {**ids[1], "span_id": f"{1:016x}", "score": 0.9, "evaluator": "a"},
            {**ids[1], "score": 0.4, "evaluator": "b"},
            {**ids[2], "score": 0.5},
            {**ids[3], "span_id": "f" * 16, "score": 0.0},  # of another span of the trace, which has one request
            {"response_id": "r4", "score": 1.0},
            {**ids[5], "label": "fine"},  # a label alone says nothing here
        ]
    )
    rollups, _ = roll_up(facts, given_scores)
    assert rollups.select("scored", "passed", "passed_good").rows() == [(4.0, 2.0, 1.0)]


def test_a_score_of_a_response_is_not_one_of_its_whole_trace() -> None:
    facts = judged([fact(n, trace_id="a" * 32, response_id=f"r{n}") for n in (1, 2)])
    of_one = scores([{"trace_id": "a" * 32, "response_id": "r2", "score": 1.0}])
    assert roll_up(facts, of_one)[0]["scored"].item() == 1
    of_all = scores([{"trace_id": "a" * 32, "score": 1.0}])
    assert roll_up(facts, of_all)[0]["scored"].item() == 2
