"""What every request store must do, as one test class; a subclass gives the ``store`` fixture."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from collector.stores._request_terms import RequestRetention
from collector.stores._terms import StoreHealth
from collector.stores.memory_requests import MemoryRequestStore
from goodwatch.core.errors import StoreError
from goodwatch.core.ports import RequestStore
from goodwatch.signals.request_frames import BINS, FACTS, PARTS, ROLLUPS, SCORES

RETENTION = RequestRetention(parts_s=100, facts_s=1000, minutes_s=500, hours_s=5000, scores_s=700)
INF = math.inf


class Store(RequestStore, Protocol):
    def health(self) -> StoreHealth: ...

    def facts(
        self, start_s: float, end_s: float, *, columns: Sequence[str] | None = None, **wanted: object
    ) -> pl.DataFrame: ...

    def summed_rollups(self, spans: Sequence[tuple[int, float, float]], by: Sequence[str] = ()) -> pl.DataFrame: ...

    def summed_bins(
        self, spans: Sequence[tuple[int, float, float]], field: str, by: Sequence[str] = ()
    ) -> pl.DataFrame: ...


class SetClock:
    def __init__(self, at_s: float = 1000.0) -> None:
        self.at_s = at_s

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


def frame(rows: list[dict[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


def part(trace: str, span: int = 1, received_s: float = 10.0, **more: Any) -> dict[str, Any]:
    usual = {
        "received_s": received_s, "trace_id": trace_id(trace), "span_id": f"{span:016x}", "kind": "engine_request",
        "source": "vllm", "vantage": "engine", "name": "llm_request", "service": "chat", "input_tokens": 100,
        "ttft_s": 0.25, "stream": True,
    }  # fmt: skip
    return {**usual, **more}


def parts(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame(list(rows), PARTS)


def trace_id(name: str) -> str:
    return name.encode().hex().rjust(32, "0")


def fact(trace: str, number: int = 1, ended_at: float = 10.0, **more: Any) -> dict[str, Any]:
    usual = {
        "fact_id": f"{number:016x}", "trace_id": trace_id(trace), "ended_at": ended_at, "arrived_at": ended_at - 1,
        "service": "chat", "model": "llama", "engine_ttft_s": 0.5, "late": False,
    }  # fmt: skip
    return {**usual, **more}


def facts(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame(list(rows), FACTS)


def rollup(start_s: float, **more: Any) -> dict[str, Any]:
    sums = {name: 1.5 for name, dtype in ROLLUPS.items() if dtype == pl.Float64}
    keys = {"tier_s": 60, "service": "chat", "model": "llama", "input_band": 6, "output_band": -2, "slo": ""}
    return {**sums, **keys, "start_s": start_s, **more}


def rollups(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame(list(rows), ROLLUPS)


def bins(*rows: dict[str, Any]) -> pl.DataFrame:
    usual = {"field": "engine_ttft_s", "zero": 1.0, "facts": 4.0, "sum": 2.0, "bin": [-40, 3], "count": [1.0, 2.5]}
    return frame([{**rollup(0), **usual, **row} for row in rows], BINS)


def score(trace: str | None, ts: float = 10.0, **more: Any) -> dict[str, Any]:
    named = None if trace is None else trace_id(trace)
    usual = {"ts": ts, "received_s": ts, "trace_id": named, "evaluator": "judge", "score": 0.5, "service": "chat"}
    return {**usual, **more}


def scores(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame(list(rows), SCORES)


class RequestStoreContract:
    """Subclasses give ``clock``, and ``store``: empty, with ``RETENTION`` and that clock."""

    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock()

    @pytest.fixture
    def store(self, clock: SetClock) -> Store | Iterator[Store]:
        raise NotImplementedError

    def test_an_empty_store_answers_with_empty_frames(self, store: Store) -> None:
        assert_frame_equal(store.parts([trace_id("a")]), parts())
        assert store.unsettled(INF, 10) == []
        assert store.waiting() == 0
        assert_frame_equal(store.facts(0, INF), facts())
        assert_frame_equal(store.rollups(60, 0, INF), rollups())
        assert_frame_equal(store.bins(60, 0, INF, "engine_ttft_s"), bins())
        assert_frame_equal(store.scores(0, INF), scores())

    # parts

    def test_parts_are_read_back_by_trace(self, store: Store) -> None:
        first, second = parts(part("a"), part("b", ttft_s=None)), parts(part("a", 2, tenant="路由=é"), part("c"))
        assert store.append_parts([first, second]) == 4
        assert_frame_equal(store.parts([trace_id("a")]), parts(part("a"), part("a", 2, tenant="路由=é")))
        found = store.parts([trace_id("c"), trace_id("b"), trace_id("b"), trace_id("none")])
        assert_frame_equal(found, parts(part("b", ttft_s=None), part("c")), check_row_order=False)
        assert store.parts([]).is_empty()

    def test_a_value_comes_back_bit_for_bit(self, store: Store) -> None:
        values = [None, math.nan, INF, -0.0, 5e-324, 2.0**53 + 2]
        store.append_parts([parts(*(part("a", n, e2e_s=value) for n, value in enumerate(values)))])
        found = store.parts([trace_id("a")])["e2e_s"].to_list()
        assert [repr(value) for value in found] == [repr(value) for value in values]

    def test_a_part_that_comes_again_counts_once(self, store: Store) -> None:
        assert store.append_parts([parts(part("a", tenant="first")), parts(part("a", tenant="again"), part("b"))]) == 2
        assert store.append_parts([parts(part("a", tenant="again"))]) == 0
        assert store.append_parts([parts(part("b", 2), part("b"), part("b", 2))]) == 1
        assert store.parts([trace_id("a")])["tenant"].to_list() == ["first"]
        assert store.parts([trace_id("b")])["span_id"].to_list() == [f"{1:016x}", f"{2:016x}"]

    def test_the_same_span_id_in_another_trace_is_another_part(self, store: Store) -> None:
        assert store.append_parts([parts(part("a"), part("b"))]) == 2

    def test_nothing_to_append_is_fine(self, store: Store) -> None:
        assert store.append_parts([]) == 0
        assert store.append_parts([parts()]) == 0

    @pytest.mark.parametrize("bad", [math.nan, INF, None])
    def test_a_time_that_is_no_number_is_refused_and_nothing_is_kept(self, store: Store, bad: float | None) -> None:
        with pytest.raises(StoreError, match="received_s has a value that is not finite"):
            store.append_parts([parts(part("a")), parts(part("b", received_s=bad))])  # type: ignore[arg-type]
        assert store.unsettled(INF, 10) == []

    def test_a_frame_of_another_shape_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="no column ttft_s"):
            store.append_parts([parts(part("a")).drop("ttft_s")])
        with pytest.raises(StoreError, match="not of the kinds"):
            store.settle([], facts(fact("a")).with_columns(engine_ttft_s=pl.lit("x")))

    # settling

    def test_a_trace_waits_until_its_last_part_is_old_enough_and_the_oldest_comes_first(self, store: Store) -> None:
        store.append_parts([parts(part("a", 1, 10), part("b", 1, 20), part("c", 1, 30))])
        store.append_parts([parts(part("a", 2, 40))])
        assert store.waiting() == 3
        assert store.unsettled(30, 10) == [trace_id("b")]
        assert store.unsettled(41, 10) == [trace_id("b"), trace_id("c"), trace_id("a")]
        assert store.unsettled(41, 2) == [trace_id("b"), trace_id("c")]

    def test_a_settled_trace_waits_no_more_until_another_part_comes(self, store: Store) -> None:
        store.append_parts([parts(part("a"), part("b"))])
        store.settle([trace_id("a")], facts(fact("a")))
        assert store.unsettled(INF, 10) == [trace_id("b")]
        store.append_parts([parts(part("a"), part("a", 2))])
        assert sorted(store.unsettled(INF, 10)) == [trace_id("a"), trace_id("b")]
        assert store.parts([trace_id("a")]).height == 2

    def test_facts_of_a_trace_are_replaced_when_it_settles_again(self, store: Store) -> None:
        store.append_parts([parts(part("a"), part("b"))])
        store.settle([trace_id("a"), trace_id("b")], facts(fact("a"), fact("a", 2), fact("b")))
        store.append_parts([parts(part("a", 2))])
        store.settle([trace_id("a")], facts(fact("a", 3, late=True)))
        found = store.facts(0, INF).select("trace_id", "fact_id", "late").rows()
        assert found == [(trace_id("a"), f"{3:016x}", True), (trace_id("b"), f"{1:016x}", False)]

    def test_a_trace_may_settle_without_facts(self, store: Store) -> None:
        store.append_parts([parts(part("a"))])
        store.settle([trace_id("a")], facts())
        assert store.unsettled(INF, 10) == []

    def test_a_part_that_comes_between_reading_and_settling_still_waits(self, store: Store) -> None:
        store.append_parts([parts(part("a"))])
        read = store.parts([trace_id("a")])
        store.append_parts([parts(part("a", 2))])
        store.settle([trace_id("a")], facts(fact("a", parts=read.height)))
        assert store.unsettled(INF, 10) == [trace_id("a")]
        read = store.parts([trace_id("a")])
        store.settle([trace_id("a")], facts(fact("a", parts=read.height)))
        assert store.unsettled(INF, 10) == []
        assert store.facts(0, INF)["parts"].to_list() == [2]

    def test_of_two_facts_with_one_id_the_last_is_kept(self, store: Store) -> None:
        store.settle([trace_id("a")], facts(fact("a", model="x"), fact("a", model="y")))
        assert store.facts(0, INF)["model"].to_list() == ["y"]

    # facts

    def test_facts_are_read_back_by_when_they_ended(self, store: Store) -> None:
        rows = [fact("c", ended_at=30.0), fact("a", ended_at=10.0, tenant=None), fact("b", ended_at=20.0, weight=4.0)]
        store.settle([trace_id(name) for name in "abc"], facts(*rows))
        assert_frame_equal(store.facts(10, 30), facts(rows[1], rows[2]))
        assert store.facts(20, 20).is_empty()

    def test_facts_are_chosen_by_any_column_and_none_is_not_told(self, store: Store) -> None:
        rows = [fact("a", target="x", stream=True), fact("b", target=None, stream=False), fact("c", target="y")]
        store.settle([trace_id(name) for name in "abc"], facts(*rows))
        assert store.facts(0, INF, target="x")["trace_id"].to_list() == [trace_id("a")]
        assert store.facts(0, INF, target=None)["trace_id"].to_list() == [trace_id("b")]
        assert store.facts(0, INF, stream=True, service="chat")["trace_id"].to_list() == [trace_id("a")]
        assert store.facts(0, INF, service="code").is_empty()
        with pytest.raises(StoreError, match="no column pod"):
            store.facts(0, INF, pod="x")

    def test_facts_are_read_in_part_when_few_columns_are_asked_for(self, store: Store) -> None:
        store.settle([trace_id("a")], facts(fact("a")))
        assert store.facts(0, INF, columns=["model", "ended_at"]).rows() == [("llama", 10.0)]
        with pytest.raises(StoreError, match="no column pod"):
            store.facts(0, INF, columns=["pod"])

    # rollups and bins

    def test_rollups_and_bins_are_read_back(self, store: Store) -> None:
        rows = rollups(rollup(60), rollup(60, tenant="b"), rollup(120))
        binned = bins({"start_s": 60.0}, {"start_s": 120.0, "bin": [], "count": []})
        other = bins({"start_s": 60.0, "field": "client_e2e_s"})
        store.replace_rollups(60, [60.0, 120.0], rows, pl.concat([binned, other]))
        assert_frame_equal(store.rollups(60, 60, 121), rows.sort("start_s", "tenant", nulls_last=True))
        assert_frame_equal(store.bins(60, 60, 121, "engine_ttft_s"), binned)
        assert_frame_equal(store.bins(60, 60, 121, "client_e2e_s"), other)
        assert store.rollups(60, 60, 120).height == 2
        assert store.rollups(60, 0, INF, service="code").is_empty()
        assert store.bins(60, 0, INF, "engine_ttft_s", service="chat").height == 2
        assert store.rollups(3600, 0, INF).is_empty()

    def test_periods_are_replaced_as_a_whole_and_others_stay(self, store: Store) -> None:
        store.replace_rollups(
            60, [60.0, 120.0], rollups(rollup(60), rollup(60, tenant="b"), rollup(120)), bins({"start_s": 60.0})
        )
        store.replace_rollups(3600, [0.0], rollups(rollup(0, tier_s=3600)), bins({"start_s": 0.0, "tier_s": 3600}))
        store.replace_rollups(60, [60.0], rollups(rollup(60, requests=7.0)), bins())
        assert store.rollups(60, 0, INF).select("start_s", "requests").rows() == [(60.0, 7.0), (120.0, 1.5)]
        assert store.bins(60, 0, INF, "engine_ttft_s").is_empty()
        assert store.bins(3600, 0, INF, "engine_ttft_s").height == 1
        store.replace_rollups(60, [60.0, 120.0], rollups(), bins())
        assert store.rollups(60, 0, INF).is_empty()

    def test_rows_of_other_periods_are_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="not of those to be replaced"):
            store.replace_rollups(60, [60.0], rollups(rollup(120)), bins())
        with pytest.raises(StoreError, match="not of those to be replaced"):
            store.replace_rollups(60, [60.0], rollups(), bins({"start_s": 60.0, "tier_s": 3600}))
        with pytest.raises(StoreError, match="rollups of 300 s"):
            store.rollups(300, 0, INF)

    def test_rollups_are_added_up_over_tiers_tenants_and_time(self, store: Store) -> None:
        minutes = [rollup(60), rollup(60, tenant="b"), rollup(120, output_band=3), rollup(180)]
        store.replace_rollups(60, [60.0, 120.0, 180.0], rollups(*minutes), bins())
        store.replace_rollups(3600, [3600.0], rollups(rollup(3600, tier_s=3600, model="x", good=9.0)), bins())
        spans = [(60, 60.0, 180.0), (3600, 3600.0, 7200.0)]
        found = store.summed_rollups(spans).sort("output_band")
        assert found.schema == pl.Schema(ROLLUPS)
        keys = ("tier_s", "start_s", "service", "model", "tenant", "input_band", "output_band", "slo")
        assert found.select(keys).rows() == [
            (None, 60.0, None, None, None, 6, -2, None),
            (None, 120.0, None, None, None, 6, 3, None),
        ]
        assert found.select("requests", "good").rows() == [(4.5, 12.0), (1.5, 1.5)]
        by_tenant = store.summed_rollups(spans, by=["tenant", "model"]).filter(pl.col("tenant") == "b")
        assert by_tenant.select("tenant", "model", "requests").rows() == [("b", "llama", 1.5)]
        assert store.summed_rollups([]).is_empty()
        with pytest.raises(StoreError, match="sums of rollups by route"):
            store.summed_rollups(spans, by=["route"])
        with pytest.raises(StoreError, match="rollups of 300 s"):
            store.summed_rollups([(300, 0.0, INF)])

    def test_bins_are_added_up_over_tiers_tenants_and_time(self, store: Store) -> None:
        minutes = bins(
            {"start_s": 60.0, "bin": [-1, 4], "count": [1.0, 2.0]},
            {"start_s": 60.0, "tenant": "b", "bin": [2, 4], "count": [1.0, 0.5]},
            {"start_s": 120.0, "output_band": 3, "bin": [], "count": []},
            {"start_s": 120.0, "field": "client_e2e_s"},
        )
        store.replace_rollups(60, [60.0, 120.0], rollups(), minutes)
        hours = bins({"start_s": 0.0, "tier_s": 3600, "bin": [-7, -1], "count": [4.0, 4.0]})
        store.replace_rollups(3600, [0.0], rollups(), hours)
        spans = [(60, -INF, INF), (3600, 0.0, INF)]
        found = store.summed_bins(spans, "engine_ttft_s").sort("output_band")
        assert found.schema == pl.Schema(BINS)
        columns = ("start_s", "tenant", "output_band", "field", "zero", "facts", "sum", "bin", "count")
        assert found.select(columns).rows() == [
            (0.0, None, -2, "engine_ttft_s", 3.0, 12.0, 6.0, [-7, -1, 2, 4], [4.0, 5.0, 1.0, 2.5]),
            (120.0, None, 3, "engine_ttft_s", 1.0, 4.0, 2.0, [], []),
        ]
        apart = store.summed_bins(spans, "engine_ttft_s", by=["tenant"]).filter(pl.col("tenant") == "b")
        assert apart.select("bin", "count").rows() == [([2, 4], [1.0, 0.5])]
        assert store.summed_bins(spans, "none").is_empty()
        assert store.summed_bins([], "engine_ttft_s").is_empty()

    # scores

    def test_scores_are_read_back_and_the_same_identity_replaces(self, store: Store) -> None:
        store.append_scores(scores(score("a"), score(None, response_id="r"), score("a", evaluator="other")))
        store.append_scores(
            scores(score("a", 20, score=0.9), score("a", 20, score=1.0), score(None, 5, response_id="r"))
        )
        found = store.scores(0, INF).select("ts", "response_id", "evaluator", "score").rows()
        assert found == [(5.0, "r", "judge", 0.5), (10.0, None, "other", 0.5), (20.0, None, "judge", 1.0)]
        assert store.scores(10, 20).height == 1
        assert store.scores(0, INF, service="code").is_empty()

    # retention and the rest

    def test_each_kind_of_row_is_dropped_at_its_own_age(self, store: Store, clock: SetClock) -> None:
        store.append_parts([parts(part("a"), part("b"), part("open"))])
        clock.at_s = 899.0
        store.settle([trace_id("a")], facts(fact("a", ended_at=-1.0), fact("a", 2, ended_at=0.0)))
        clock.at_s = 900.0
        store.settle([trace_id("b")], facts())
        for tier in (60, 3600, 86400):
            starts = [-1e9, -4001.0, -4000.0, 499.0, 500.0]
            store.replace_rollups(
                tier, starts, rollups(*(rollup(at, tier_s=tier) for at in starts)),
                bins(*({"start_s": at, "tier_s": tier} for at in starts)),
            )  # fmt: skip
        store.append_scores(scores(score("a", 299.0), score("b", 300.0)))
        assert store.compact(1000.0) == 1 + 1 + 1 + 2 * (4 + 2)
        assert store.parts([trace_id("a")]).is_empty()
        assert store.parts([trace_id("b"), trace_id("open")]).height == 2
        assert store.unsettled(INF, 10) == [trace_id("open")]
        assert store.facts(-INF, INF)["ended_at"].to_list() == [0.0]
        assert [store.rollups(tier, -INF, INF).height for tier in (60, 3600, 86400)] == [1, 3, 5]
        assert [store.bins(tier, -INF, INF, "engine_ttft_s").height for tier in (60, 3600, 86400)] == [1, 3, 5]
        assert store.scores(-INF, INF)["ts"].to_list() == [300.0]
        assert store.compact(1000.0) == 0

    def test_a_part_that_waits_is_kept_when_older_ones_of_its_trace_go(self, store: Store, clock: SetClock) -> None:
        store.append_parts([parts(part("a"))])
        store.settle([trace_id("a")], facts())
        store.append_parts([parts(part("a", 2))])
        assert store.compact(2000.0) == 1
        assert store.unsettled(INF, 10) == [trace_id("a")]
        assert store.parts([trace_id("a")])["span_id"].to_list() == [f"{2:016x}"]

    def test_health_tells_the_extent_of_the_facts(self, store: Store) -> None:
        assert store.health().oldest_s is None
        store.settle([trace_id("a")], facts(fact("a", ended_at=10.0), fact("a", 2, ended_at=20.0)))
        health = store.health()
        assert (health.ok, health.oldest_s, health.newest_s, health.last_commit_s) == (True, 10.0, 20.0, 1000.0)
        assert health.bytes > 0

    def test_a_closed_store_refuses_and_closes_again(self, store: Store) -> None:
        store.close()
        store.close()
        assert not store.health().ok
        for use in (lambda: store.append_parts([]), lambda: store.facts(0, INF), lambda: store.compact(0.0)):
            with pytest.raises(StoreError, match="closed"):
                use()


#: parts of a batch as (trace, span), or what else to do
STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), min_size=1, max_size=4),
        st.sampled_from(["settle", "read", "compact"]),
    ),
    max_size=12,
)


class RequestStoreModel:
    """Any order of appending, reading and settling leaves a store and the reference in the same state."""

    def new_store(self) -> Store:
        raise NotImplementedError

    def reopened(self, store: Store) -> Store:
        return store

    @settings(max_examples=15)
    @given(STEPS)
    def test_any_order_of_steps_ends_like_the_reference(self, steps: list[Any]) -> None:
        clock = SetClock()
        ours, reference = self.new_store(), MemoryRequestStore(retention=RETENTION, clock=clock)
        names = [trace_id(name) for name in "abc"]
        for number, step in enumerate(steps):
            clock.at_s += 1
            for store in (ours, reference):
                if isinstance(step, list):
                    store.append_parts([parts(*(part(name, span, float(number)) for name, span in step))])
                elif step == "read":
                    store.parts(names)
                elif step == "settle":
                    due = store.unsettled(INF, 2)
                    found = store.parts(due[:1]).group_by("trace_id").len()
                    made = [fact("", number, ended_at=float(number), trace_id=one, parts=n) for one, n in found.rows()]
                    store.settle(due, facts(*made))
                else:
                    store.compact(1.0)
            if number % 3 == 2:
                ours = self.reopened(ours)
                reference._read_at.clear()  # what was read and not settled is read again after a restart
            assert sorted(ours.unsettled(INF, 10)) == sorted(reference.unsettled(INF, 10))
        assert_frame_equal(ours.facts(-INF, INF), reference.facts(-INF, INF))
        assert_frame_equal(ours.parts(names), reference.parts(names))
        ours.close()
