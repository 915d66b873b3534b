"""Events of SLOs from engines' minutes and from requests, against counts made by hand."""

import math
from typing import Any

import polars as pl
import pytest

from alerts.evaluate_sources import countings
from goodwatch.core.model import Limits
from goodwatch.core.slo import Availability, Cost, JointGoodput, Latency, Quality, Scope, Slo
from goodwatch.signals.frames import DERIVED
from goodwatch.signals.increments import rows_frame
from goodwatch.signals.request_frames import ROLLUPS, SCORES
from goodwatch.signals.slo_events import Counting, native_events
from goodwatch.signals.slo_events_counted import (
    band_condition,
    cost_events,
    fact_events,
    mean_events,
    prefix_events,
    rollup_events,
    score_events,
    spend_events,
)
from tests.alerts.services import OPTIONS
from tests.signals.request_parts import fact, facts

T0 = 1_800_000_000.0 // 60 * 60
TTFT = Slo("t", "chat", 0.99, Latency("ttft_seconds", 0.5))


def counter(signal: str, increase: float, part: str = "", **more: Any) -> dict[str, Any]:
    base = {"minute_s": T0, "target": "a", "service": "chat", "model": "", "engine": "vllm"}
    return {**base, "signal": signal, "part": part, "kind": "counter", "increase": increase, **more}


def histogram(signal: str, le: list[float], count: list[float], **more: Any) -> dict[str, Any]:
    cells = {"kind": "histogram", "increase": count[-1], "sum": 1.0, "le": le, "count": count}
    return {**counter(signal, count[-1]), **cells, **more}


def told(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return frame.select("group", "target", "total", "bad").rows()


def of(slo: Slo, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    return told(native_events(rows_frame(list(rows)), slo, countings(slo, OPTIONS)))


def test_requests_above_the_bound_are_bad_and_replicas_add_up() -> None:
    le = [0.5, 1.0, math.inf]
    rows = [histogram("ttft_seconds", le, [8, 9, 10]), histogram("ttft_seconds", le, [3, 3, 5], target="b")]
    assert of(TTFT, *rows) == [("", "ttft", 15, 4)]


def test_a_replica_without_the_bucket_is_left_out() -> None:
    lacks = histogram("ttft_seconds", [0.4, 1.0, math.inf], [0, 0, 10], target="b")
    assert of(TTFT, histogram("ttft_seconds", [0.5, math.inf], [8, 10]), lacks) == [("", "ttft", 10, 2)]


def test_only_streamed_requests_have_a_first_token() -> None:
    le = [0.5, math.inf]
    rows = [
        histogram("ttft_seconds", le, [8, 10], engine="sglang", part="is_streaming=true"),
        histogram("ttft_seconds", le, [0, 10], engine="sglang", part="is_streaming=False"),
    ]
    sglang = Counting({"ttft_seconds": (0.5,)})
    assert told(native_events(rows_frame(rows), TTFT, {"sglang": sglang})) == [("", "ttft", 10, 2)]


def test_engines_that_the_slo_does_not_meet_are_not_counted() -> None:
    slo = Slo("t", "chat", 0.99, TTFT.indicator, engines=("vllm",))
    router = histogram("ttft_seconds", [0.5, math.inf], [0, 10], engine="sglang", target="router")
    assert of(slo, histogram("ttft_seconds", [0.5, math.inf], [8, 10]), router) == [("", "ttft", 10, 2)]


def test_models_have_budgets_of_their_own_where_they_split_it() -> None:
    le = [0.5, math.inf]
    rows = [histogram("ttft_seconds", le, [1, 2], model="m"), histogram("ttft_seconds", le, [3, 3], model="n")]
    by = Slo("t", "chat", 0.99, TTFT.indicator, scope=Scope(by=("model",)), engines=("vllm",))
    one = Slo("t", "chat", 0.99, TTFT.indicator, scope=Scope(model="n"), engines=("vllm",))
    assert of(by, *rows) == [("m", "ttft", 2, 1), ("n", "ttft", 3, 0)]
    assert of(one, *rows) == [("", "ttft", 3, 0)]


def served(engine: str, **more: Any) -> Slo:
    return Slo("served", "chat", 0.99, Availability(), engines=(engine,), **more)


def test_http_answers_count_where_an_engine_has_them_and_a_callers_mistake_does_not() -> None:
    rows = [
        counter("http_requests_total", 90, "status=2xx"), counter("http_requests_total", 7, "status=4xx"),
        counter("http_requests_total", 10, "status=5xx"), counter("requests_finished_total", 88, "finished_reason=stop"),
    ]  # fmt: skip
    assert of(served("vllm"), *rows) == [("", "served", 100, 10)]
    codes = [counter("http_requests_total", n, f"status={code}", engine="sglang") for code, n in
             (("200", 90), ("400", 5), ("404", 5), ("408", 1), ("429", 2), ("503", 3))]  # fmt: skip
    assert of(served("sglang"), *codes) == [("", "served", 96, 6)]


def test_without_http_answers_the_finished_requests_count() -> None:
    rows = [
        counter("requests_finished_total", 90, "finished_reason=stop"),
        counter("requests_finished_total", 5, "finished_reason=abort"),
        counter("requests_finished_total", 4, "finished_reason=error"),
        counter("requests_failed_total", 4, "finished_reason=error"),
        counter("requests_rejected_total", 6),
    ]
    # 94 ended without being given up, 4 of them in an error; 6 were refused and are in no other count
    assert of(served("vllm"), *rows) == [("", "served", 100, 10)]


def test_each_replica_is_read_from_one_name_only() -> None:
    rows = [
        counter("http_requests_total", 50, "status=2xx"), counter("requests_finished_total", 50, "finished_reason=stop"),
        counter("requests_finished_total", 30, "finished_reason=stop", target="b"),
    ]  # fmt: skip
    assert of(served("vllm"), *rows) == [("", "served", 80, 0)]


def test_a_joint_slo_counts_each_target_by_itself() -> None:
    slo = Slo("chat", "chat", 0.99, JointGoodput(Limits(ttft_s=0.5, tpot_s=0.05)), engines=("vllm",))
    rows = [
        histogram("ttft_seconds", [0.5, math.inf], [8, 10]), histogram("tpot_seconds", [0.05, math.inf], [9, 10]),
        counter("requests_finished_total", 10, "finished_reason=stop"),
    ]  # fmt: skip
    assert of(slo, *rows) == [("", "served", 10, 0), ("", "tpot", 10, 1), ("", "ttft", 10, 2)]


def test_no_row_where_nothing_was_told_and_zeros_where_nothing_happened() -> None:
    assert of(TTFT, counter("requests_finished_total", 10)) == []
    assert of(TTFT, histogram("ttft_seconds", [0.5, math.inf], [0, 0])) == [("", "ttft", 0, 0)]


# --- counted by goodwatch ---------------------------------------------------------------------------------------------


def judged(*rows: dict[str, Any]) -> pl.DataFrame:
    made = [{"ended_at": T0 + 1, "service": "chat", "model": "m", "verdict": "good", **r} for r in rows]
    verdicts = [str(r.pop("verdict")) for r in made]
    return facts(*(fact(**r) for r in made)).with_columns(verdict=pl.Series(verdicts, dtype=pl.String))


def test_requests_count_by_their_weight_and_only_valid_ones() -> None:
    frame = judged(
        {"weight": 10.0}, {"verdict": "bad", "weight": None}, {"verdict": "not_valid"}, {"verdict": "undetermined"}
    )
    slo = Slo("chat", "chat", 0.99, JointGoodput(Limits(ttft_s=0.5)))
    assert told(fact_events(frame, slo)) == [("", "counted", 11, 1)]


def test_tenants_and_bands_narrow_and_split() -> None:
    frame = judged(
        {"tenant": "a", "input_tokens": 300, "verdict": "bad"}, {"tenant": "b", "input_tokens": 300},
        {"tenant": "a", "input_tokens": 3000}, {"tenant": None, "input_tokens": 300},
    )  # fmt: skip
    kind = JointGoodput(Limits(ttft_s=0.5))
    split = Slo("s", "chat", 0.99, kind, scope=Scope(by=("tenant",), input_band="256-1023"))
    assert told(fact_events(frame, split)) == [("", "counted", 1, 0), ("a", "counted", 1, 1), ("b", "counted", 1, 0)]
    one = Slo("s", "chat", 0.99, kind, scope=Scope(tenant="a"))
    assert told(fact_events(frame, one)) == [("", "counted", 2, 1)]


@pytest.mark.parametrize(
    ("text", "inside"), [("0", [0]), ("1-255", [1, 255]), ("256+", [256, 9000]), ("unknown", [None])]
)
def test_a_band_is_written_as_the_series_write_it(text: str, inside: list[int | None]) -> None:
    tokens = pl.DataFrame({"input_tokens": [0, 1, 255, 256, 9000, None]})
    assert tokens.filter(band_condition(text))["input_tokens"].to_list() == inside


def test_a_band_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'big' is no band"):
        band_condition("big")


def test_an_override_is_part_of_the_slo_that_it_is_written_in() -> None:
    rows = [{"start_s": T0, "slo": name, "valid": 10.0, "good": 9.0} for name in ("chat", "chat#1", "chats", "")]
    frame = pl.DataFrame([dict.fromkeys(ROLLUPS) | row for row in rows], schema=ROLLUPS)
    slo = Slo("chat", "chat", 0.99, JointGoodput(Limits(ttft_s=0.5)))
    assert told(rollup_events(frame, slo, 60.0)) == [("", "counted", 20, 2)]


def scores(*rows: dict[str, Any]) -> pl.DataFrame:
    base = dict.fromkeys(SCORES) | {"ts": T0, "received_s": T0 + 1, "evaluator": "e", "service": "chat"}
    return pl.DataFrame([base | row for row in rows], schema=SCORES)


def test_a_score_under_the_least_is_bad_and_a_label_alone_says_nothing() -> None:
    slo = Slo("q", "chat", 0.9, Quality(0.7, "e"))
    frame = scores({"score": 0.7}, {"score": 0.69}, {"score": None, "label": "bad"}, {"score": 0.1, "evaluator": "f"})
    assert told(score_events(frame, slo)) == [("", "counted", 2, 1)]


def test_scores_of_a_tenant_are_those_of_its_requests() -> None:
    slo = Slo("q", "chat", 0.9, Quality(0.7), scope=Scope(tenant="a"))
    frame = scores({"score": 0.1, "trace_id": "1"}, {"score": 0.9, "trace_id": "2"}, {"score": 0.1, "trace_id": None})
    requests = pl.DataFrame({"trace_id": ["1", "2"], "tenant": ["a", "b"]})
    assert told(score_events(frame, slo, requests)) == [("", "counted", 1, 1)]


def derived(*rows: tuple[float, str, float | None, float | None]) -> pl.DataFrame:
    base = dict.fromkeys(DERIVED) | {"service": "chat", "target": "", "model": ""}
    made = [base | {"ts": T0 + at, "name": name, "value": value, "low": low} for at, name, value, low in rows]
    return pl.DataFrame(made, schema=DERIVED)


def test_a_minute_costs_what_it_last_told_and_one_without_a_number_does_not_count() -> None:
    slo = Slo("c", "chat", 0.9, Cost(3.0, "output"))
    name = "usd_per_million_output_tokens"
    frame = derived((1, name, 9.0, None), (50, name, 2.0, None), (70, name, None, 3.5), (130, name, None, None))
    assert told(cost_events(frame, slo)) == [("", "cost", 1, 0), ("", "cost", 1, 1)]


def test_money_and_tokens_are_added_before_they_are_divided() -> None:
    frame = derived(
        (1, "usd_per_hour", 6.0, None), (1, "output_tokens_per_s", 100.0, None), (61, "usd_per_hour", 6.0, None)
    )
    assert told(spend_events(frame)) == [("", "spend", 6_000, 0.1)]  # a minute of 6 USD an hour


def test_lookups_and_means_are_sums() -> None:
    rows = [
        counter("prefix_cache_queries_total", 100), counter("prefix_cache_hits_total", 60),
        histogram("ttft_seconds", [0.5, math.inf], [8, 10], sum=4.0),
    ]  # fmt: skip
    assert told(prefix_events(rows_frame(rows))) == [("", "prefix", 100, 40)]
    assert told(mean_events(rows_frame(rows))) == [("", "ttft_seconds", 10, 4)]
