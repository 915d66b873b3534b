"""The bill of a window, split by hand: 10 USD, of which 2 idle; 8 USD over 100 s on the engine."""

import polars as pl
import pytest

from goodwatch.core.model import Absence
from goodwatch.signals.request_cost import Bill, knee, request_cost
from tests.signals.request_parts import fact, facts


def judged(*rows: tuple[str, str, float, dict[str, object]]) -> pl.DataFrame:
    """Requests as (verdict, status, seconds on the engine, more)."""
    made = [
        fact(
            **{
                "fact_id": f"f{n}", "trace_id": f"t{n}", "status": status, "engine_e2e_s": held + 1.0,
                "engine_queue_s": 1.0, "input_tokens": 100, "output_tokens": 50, "tenant": "a", **more,
            }
        )
        for n, (_, status, held, more) in enumerate(rows)
    ]  # fmt: skip
    return facts(*made).with_columns(verdict=pl.Series([verdict for verdict, *_ in rows]))


def test_money_goes_where_the_seconds_on_the_engine_went() -> None:
    rows = judged(
        ("good", "ok", 50.0, {}), ("bad", "ok", 20.0, {"tenant": "b"}), ("bad", "timeout", 20.0, {"tenant": "b"}),
        ("not_valid", "aborted", 10.0, {}),
    )  # fmt: skip
    found = request_cost(rows, Bill(10.0, 2.0), 3600.0, by="tenant")
    assert found.usd_by_class == pytest.approx(
        {"good": 4.0, "late": 1.6, "failed": 1.6, "aborted": 0.8, "unjudged": 0.0}
    )
    assert (found.usd.value, found.idle_usd.value) == (10.0, 2.0)
    assert {line.key: line.usd.value for line in found.lines} == pytest.approx({"a": 4.8, "b": 3.2})
    assert [line.key for line in found.lines] == ["a", "b"]  # most expensive first
    # 10 USD for the 150 tokens of the one good request, idle and wasted time in it
    assert found.whole.usd_per_million_good_tokens.value == pytest.approx(10.0 / 150 * 1e6)
    # tenant a: 60 of 100 s, so 6 of the 10 USD, for the same good tokens
    assert found.lines[0].usd_per_million_good_tokens.value == pytest.approx(6.0 / 150 * 1e6)
    assert found.lines[1].usd_per_million_good_tokens.absence is Absence.NO_TRAFFIC


def test_a_sampled_request_stands_for_those_that_were_not_kept() -> None:
    rows = judged(("good", "ok", 10.0, {"weight": 4.0}), ("bad", "ok", 40.0, {"weight": 1.0}))
    found = request_cost(rows, Bill(8.0, 0.0), 3600.0)
    assert found.usd_by_class["good"] == pytest.approx(4.0)  # 4 × 10 s of 80 s
    assert found.whole.requests == 5.0


def test_without_a_price_nothing_is_said() -> None:
    found = request_cost(judged(("good", "ok", 1.0, {})), Bill(None), 3600.0)
    for number in (found.usd, found.whole.usd, found.whole.usd_per_million_good_tokens, found.knee):
        assert number.absence is Absence.NOT_MEASURABLE


def test_requests_that_do_not_tell_their_time_are_counted_and_cost_nothing() -> None:
    rows = judged(("good", "ok", 10.0, {}), ("bad", "refused", 0.0, {"engine_e2e_s": None}))
    found = request_cost(rows, Bill(5.0, 0.0), 3600.0)
    assert found.silent == 1.0
    assert found.usd_by_class["failed"] == 0.0


def test_the_knee_is_the_busiest_five_minutes_that_met_the_objective() -> None:
    def period(start: float, good: int, bad: int, tokens: int) -> list[tuple[str, str, float, dict[str, object]]]:
        more: dict[str, object] = {"ended_at": start + 1.0, "input_tokens": 0, "output_tokens": tokens}
        return [("good", "ok", 1.0, more)] * good + [("bad", "ok", 1.0, more)] * bad

    rows = judged(*period(0.0, 40, 0, 10), *period(300.0, 60, 40, 100), *period(600.0, 10, 0, 1000))
    # the second misses 90 %, the third has too few requests; the first made 400 good tokens at 12 USD/h
    found = knee(rows, Bill(12.0), 3600.0, 0.9)
    assert found.value == pytest.approx(12.0 / 3600 * 300 / 400 * 1e6)
    assert knee(rows, Bill(12.0), 3600.0, 0.999999).value == found.value
    assert knee(rows.filter(pl.col("verdict") == "bad"), Bill(12.0), 3600.0, 0.9).absence is Absence.NO_DATA


def test_a_queue_that_looks_longer_than_the_whole_gives_no_money_back() -> None:
    rows = judged(("good", "ok", 10.0, {}), ("bad", "ok", -3.0, {"tenant": "b"}))
    found = request_cost(rows, Bill(5.0, 0.0), 3600.0, by="tenant")
    assert [line.usd.value for line in found.lines] == [5.0, 0.0]


def test_tokens_are_not_free_because_the_engine_calls_all_of_the_window_idle() -> None:
    found = request_cost(judged(("good", "ok", 0.2, {})), Bill(3.0, 3.0), 3600.0)
    assert found.whole.usd_per_million_good_tokens.value == pytest.approx(3.0 / 150 * 1e6)


def test_requests_that_left_no_trace_share_the_bill() -> None:
    rows = judged(("good", "ok", 10.0, {}), ("bad", "ok", 10.0, {}))
    found = request_cost(rows, Bill(3.0, 0.0), 3600.0, stands_for=1.5)  # the engine finished three, two are known
    assert found.usd_by_class["good"] == pytest.approx(1.5)
    assert found.whole.usd_per_million_output_tokens.value == pytest.approx(3.0 / (1.5 * 100) * 1e6)


def test_tokens_that_nobody_told_are_not_taken_for_none() -> None:
    silent = {"input_tokens": None, "output_tokens": None}
    alone = request_cost(judged(("good", "ok", 10.0, silent)), Bill(5.0, 0.0), 3600.0).whole
    assert alone.usd_per_million_good_tokens.absence is Absence.NOT_MEASURABLE
    beside = request_cost(judged(("good", "ok", 10.0, {}), ("good", "ok", 10.0, silent)), Bill(5.0, 0.0), 3600.0).whole
    assert beside.usd_per_million_output_tokens.value == pytest.approx(5.0 / 50 * 1e6)
    assert "1 requests do not tell their tokens" in beside.usd_per_million_output_tokens.note
