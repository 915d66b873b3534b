"""The map from rollups and from single requests, against sorting and counting by hand."""

import math
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.model import Absence, Basis, Bounds
from goodwatch.core.request import Verdict, band_of
from goodwatch.signals._bands import PageBand, page_bands, place_in, places_of_tokens
from goodwatch.signals.heatmap import Ask, Heatmap, Measure, heatmap, heatmap_of_facts
from goodwatch.signals.rollup import coarser, roll_up
from tests.signals.request_facts import ROWS, fact, judged, scores

EDGES = {"input_edges": (0, 128, 1024), "output_edges": (0, 16)}


def ask(measure: Measure, **more: Any) -> Ask:
    return Ask(measure, **{**EDGES, **more})


def both(facts: pl.DataFrame, asked: Ask, **more: Any) -> list[Heatmap]:
    rolled = roll_up(facts, more.get("scores"))
    return [heatmap(*rolled, asked), heatmap(*coarser(*rolled, 3600), asked), heatmap_of_facts(facts, asked, **more)]


def in_band(tokens: int | None, band: PageBand) -> bool:
    if tokens is None or band.low is None:
        return tokens is None and band.low is None
    return band.low <= tokens and (band.high is None or tokens < band.high)


def many(count: int, **more: Any) -> list[dict[str, Any]]:
    """Requests whose TTFT is 1 ms, 2 ms, …"""
    return [fact(n, engine_ttft_s=n / 1000, **more) for n in range(1, count + 1)]


@pytest.mark.parametrize("edges", [(3,), (-1,), (64, 32), (64, 64), (0, 100)])
def test_edges_that_are_no_base_bands_are_refused(edges: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="edge"):
        page_bands(edges)


def test_lengths_and_their_base_bands_come_to_the_same_place() -> None:
    lengths = [None, -1, 0, 1, 2, 63, 64, 127, 128, 1023, 1024, 2**40, 2**62, 2**63 - 1]
    bands = page_bands((1, 64, 1024, 2**62))
    frame = pl.DataFrame(
        {"n": lengths, "band": [band_of(n) for n in lengths]}, schema={"n": pl.Int64, "band": pl.Int16}
    )
    found = places_of_tokens(bands, frame["n"]).to_list()
    assert found == frame.select(place_in(bands, "band"))["band"].to_list()
    assert found == [5, 5, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("wrong", [{"field": "ttft"}, {"quantile": 99}])
def test_an_ask_without_an_answer_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"known are|between 0 and 1"):
        Ask(Measure.LATENCY, **wrong)


@given(ROWS, st.sampled_from((0.5, 0.9, 0.99)), st.sampled_from([{}, {"tenant": None}, {"tenant": "a"}]))
def test_each_cell_is_the_nearest_rank_of_its_requests(facts: pl.DataFrame, q: float, filters: dict[str, Any]) -> None:
    facts = pl.concat([facts.with_columns(weight=1.0), facts.with_columns(weight=1.0)])
    facts = facts.with_columns(fact_id=pl.int_range(pl.len()).cast(pl.String))
    for number, found in enumerate(both(facts, ask(Measure.LATENCY, quantile=q, filters=filters))):
        error = 0.011 if number < 2 else 0.0
        for cell in found.cells:
            rows = [
                row
                for row in facts.rows(named=True)
                if in_band(row["input_tokens"], found.inputs[cell.input])
                and in_band(row["output_tokens"], found.outputs[cell.output])
                and row["tenant"] == filters.get("tenant", row["tenant"])
            ]
            values = sorted(row["engine_ttft_s"] for row in rows if row["engine_ttft_s"] is not None)
            assert cell.requests == len(rows)
            if len(values) < round(1 / (1 - q), 6):
                assert cell.number.value is None
                assert cell.number.absence is not None
                continue
            true = values[math.ceil(Fraction(str(q)) * len(values)) - 1]
            assert cell.number.value == pytest.approx(true, rel=error + 1e-12)
            assert cell.number.basis is Basis.COUNTED


def test_a_p99_of_a_thousand_comes_with_its_order_statistics() -> None:
    rolled, _, exact = both(judged(many(1000)), ask(Measure.LATENCY))
    number = exact.cell(0, 0).number
    # ranks 985 and 996: binomial of 1000 and 0.01, P(K ≤ 4) = 0.029 and P(K ≥ 16) = 0.048
    assert (number.value, number.bounds) == (0.99, Bounds(0.985, 0.996))
    told = rolled.cell(0, 0).number
    assert told.value == pytest.approx(0.99, rel=0.011)
    assert told.bounds is not None
    assert told.bounds.low <= 0.985
    assert (told.bounds.high or 0) >= 0.996


def test_too_few_requests_are_told_instead_of_a_number() -> None:
    for found in both(judged(many(99)), ask(Measure.LATENCY)):
        number = found.cell(0, 0).number
        assert (number.value, number.absence, number.note) == (
            None,
            Absence.NO_DATA,
            "99 requests do not support a p99",
        )
        assert found.cell(0, 0).requests == 99


def test_an_interval_is_open_above_while_the_largest_may_be_too_small() -> None:
    for found in both(judged(many(298)), ask(Measure.LATENCY)):
        bounds = found.cell(0, 0).number.bounds
        assert bounds is not None
        assert bounds.high is None


def test_cells_without_requests_and_without_the_latency_say_so() -> None:
    for found in both(judged(many(100)), ask(Measure.LATENCY, field="client_ttft_s")):
        assert found.cell(0, 0).number.absence is Absence.NOT_MEASURABLE
        assert "client_ttft_s" in found.cell(0, 0).number.note
        assert found.cell(1, 1).number.absence is Absence.NO_TRAFFIC
        assert [band.text for band in found.inputs] == ["0–127", "128–1023", "1024 and more", "unknown"]


def test_lengths_that_nobody_told_have_a_band_of_their_own() -> None:
    for found in both(judged([fact(1, input_tokens=None), fact(2, output_tokens=None)]), ask(Measure.REQUESTS)):
        assert found.cell(3, 0).number.value == 1
        assert found.cell(0, 2).number.value == 1


def test_a_sample_is_estimated_and_its_interval_holds_what_was_seen() -> None:
    rows = judged([fact(n, weight=4.0) for n in range(100)])
    for found in both(rows, ask(Measure.REQUESTS)):
        number = found.cell(0, 0).number
        # 400 ± 1.96 √(100·(16 - 4))
        assert (number.value, number.basis) == (400, Basis.ESTIMATED)
        assert number.bounds == Bounds(pytest.approx(400 - 67.9, abs=0.1), pytest.approx(467.9, abs=0.1))
    for found in both(rows.with_columns(weight=pl.lit(None, pl.Float64)), ask(Measure.REQUESTS)):
        assert found.cell(0, 0).number.basis is Basis.ESTIMATED
        assert "do not tell how they were sampled" in found.cell(0, 0).number.note


def test_attainment_is_good_of_valid_and_undetermined_ones_are_inside_the_bounds() -> None:
    verdicts = [Verdict.GOOD] * 6 + [Verdict.BAD] * 2 + [Verdict.NOT_VALID] * 3
    for found in both(judged([fact(n, verdict=v) for n, v in enumerate(verdicts)]), ask(Measure.ATTAINMENT)):
        number = found.cell(0, 0).number
        assert (number.value, number.basis, number.bounds) == (0.75, Basis.COUNTED, None)
    verdicts += [Verdict.UNDETERMINED] * 2
    for found in both(judged([fact(n, verdict=v) for n, v in enumerate(verdicts)]), ask(Measure.ATTAINMENT)):
        assert found.cell(0, 0).number.bounds == Bounds(0.6, 0.8)


def test_attainment_without_a_valid_request_is_no_number() -> None:
    undetermined = judged([fact(1, verdict=Verdict.UNDETERMINED)])
    assert both(undetermined, ask(Measure.ATTAINMENT))[0].cell(0, 0).number.absence is Absence.NOT_MEASURABLE
    refused = judged([fact(1, verdict=Verdict.NOT_VALID)])
    assert both(refused, ask(Measure.ATTAINMENT))[0].cell(0, 0).number.absence is Absence.NO_TRAFFIC


def test_attainment_of_a_sample_has_an_interval() -> None:
    rows = [fact(n, weight=10.0, verdict=Verdict.GOOD if n % 4 else Verdict.BAD) for n in range(400)]
    number = both(judged(rows), ask(Measure.ATTAINMENT))[0].cell(0, 0).number
    # p = 0.75, n = 400, one of ten sampled: 1.96 √(p(1-p)/n · (1 - 1/10)) = 0.0403
    assert number.value == 0.75
    assert number.bounds == Bounds(pytest.approx(0.7097, abs=1e-3), pytest.approx(0.7903, abs=1e-3))


def test_quality_is_passed_of_scored_with_its_score_interval() -> None:
    rows = judged([fact(n) for n in range(1, 11)])
    given_scores = scores([{"trace_id": f"{n:032x}", "score": 1.0 if n <= 8 else 0.1} for n in range(1, 11)])
    for found in both(rows, ask(Measure.QUALITY), scores=given_scores):
        number = found.cell(0, 0).number
        # Wilson score interval of 8 of 10, as in Newcombe 1998: 0.490 to 0.943
        assert number.value == 0.8
        assert number.bounds == Bounds(pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert both(rows, ask(Measure.QUALITY))[0].cell(0, 0).number.absence is Absence.NOT_MEASURABLE


def test_cost_is_shared_by_seconds_on_the_engine() -> None:
    rows = [
        fact(1, engine_e2e_s=3.0, engine_queue_s=1.0, output_tokens=10),
        fact(2, engine_e2e_s=6.0, output_tokens=40, tenant="b", verdict=Verdict.BAD),
    ]
    for found in both(judged(rows), ask(Measure.COST, window_usd=8.0)):
        # 2 of 8 seconds: 2 USD for 10 tokens; 6 USD for 40
        assert found.cell(0, 0).number.value == pytest.approx(2 / 10 * 1e6)
        assert found.cell(0, 1).number.value == pytest.approx(6 / 40 * 1e6)
    for found in both(judged(rows), ask(Measure.COST_GOOD, window_usd=8.0, filters={"tenant": "b"})):
        assert found.cell(0, 0).number.absence is Absence.NO_TRAFFIC
        assert "good" in found.cell(0, 1).number.note
    for found in both(judged(rows), ask(Measure.COST, window_usd=8.0, filters={"tenant": "b"})):
        assert found.cell(0, 1).number.value == pytest.approx(6 / 40 * 1e6)
    for found in both(judged(rows), ask(Measure.COST)):
        assert "price" in found.cell(0, 0).number.note


def test_cost_says_when_requests_do_not_tell_their_time() -> None:
    rows = judged([fact(1), fact(2, engine_e2e_s=None)])
    for found in both(rows, ask(Measure.COST, window_usd=8.0)):
        assert "1 of 2 requests do not tell their time" in found.cell(0, 0).number.note


def test_any_column_slices_single_requests_and_rollups_say_that_they_cannot() -> None:
    rows = judged([*many(100), fact(0, target="b", engine_ttft_s=9.0)])
    asked = ask(Measure.LATENCY, quantile=0.5, filters={"target": None})
    assert heatmap_of_facts(rows, asked).cell(0, 0).requests == 100
    with pytest.raises(ValueError, match="target"):
        heatmap(*roll_up(rows), asked)


def test_a_latency_map_of_requests_needs_few_columns() -> None:
    few = judged(many(100)).select("input_tokens", "output_tokens", "engine_ttft_s")
    assert heatmap_of_facts(few, ask(Measure.LATENCY)).cell(0, 0).number.value == 0.099


def test_no_requests_make_an_empty_map() -> None:
    for measure in Measure:
        for found in both(judged([]), ask(measure)):
            assert {cell.number.absence for cell in found.cells} == {Absence.NO_TRAFFIC}
