"""The loop over a real store: parts settle once, late parts correct, rollups say what the facts say."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from collector.stores.memory_requests import MemoryRequestStore
from goodwatch.app.request_watch import RequestLoop, RequestTerms
from goodwatch.core.model import Limits
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment_limits import LimitsRow, LimitsTable
from goodwatch.signals.attainment_verdicts import judge
from goodwatch.signals.request_frames import SCORES
from goodwatch.signals.rollup import DAY_S, HOUR_S, MINUTE_S, roll_up
from tests.signals.request_parts import engine, outer, parts

DAY = 1_800_000_000 // DAY_S * DAY_S
LIMITS = LimitsTable((LimitsRow(Limits(ttft_s=0.5), "chat", service="chat"),))


@dataclass
class Hand:
    """A clock that is moved by hand."""

    now: float = float(DAY)

    def now_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now


@dataclass
class Running:
    """A loop over the reference store, and the facts that it counted."""

    clock: Hand = field(default_factory=Hand)
    counted: list[pl.DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MemoryRequestStore(clock=self.clock)
        terms = RequestTerms(settle_s=60.0, limits={"chat": LIMITS})
        self.loop = RequestLoop(self.store, self.clock, terms, settled=self.counted.append)

    def arrive(self, *rows: dict[str, Any]) -> None:
        self.store.append_parts([parts(*rows)])

    def facts(self) -> pl.DataFrame:
        return self.store.facts(0.0, 4e9)


def span_of(trace: str, ended_s: float, received_s: float, ttft_s: float = 0.25) -> dict[str, Any]:
    return engine(
        f"span-{trace}", trace_id=trace, started_s=ended_s - 1, ended_s=ended_s, received_s=received_s, service="chat",
        ttft_s=ttft_s, parent_id="caller",
    )  # fmt: skip


async def test_a_trace_settles_a_minute_after_its_last_part() -> None:
    run = Running()
    run.arrive(span_of("a", DAY + 1.0, DAY + 2.0))
    run.clock.now = DAY + 61.0
    assert await run.loop.settle() == 0
    run.clock.now = DAY + 63.0
    assert await run.loop.settle() == 1
    assert run.facts()["trace_id"].to_list() == ["a"]
    assert [f.height for f in run.counted] == [1]


async def test_a_late_part_corrects_the_fact_and_is_not_counted_again() -> None:
    run = Running()
    run.arrive(span_of("a", DAY + 1.0, DAY + 2.0))
    run.clock.now = DAY + 63.0
    await run.loop.settle()
    run.arrive(outer("client", "caller", DAY - 1.0, DAY + 200.0, trace_id="a", received_s=DAY + 300.0, service="chat"))
    run.clock.now = DAY + 400.0
    assert await run.loop.settle() == 1
    assert run.facts()["client_e2e_s"].to_list() == [201.0]
    assert sum(f.height for f in run.counted) == 1
    assert (run.loop.facts_total, run.loop.late_total) == (1, 1)
    await run.loop.roll()
    rolled = run.store.rollups(MINUTE_S, DAY, DAY + HOUR_S)
    assert rolled["requests"].sum() == 1  # it left the minute that it was in before
    assert rolled["start_s"].to_list() == [DAY + 180.0]  # the client's end, 200 s into the day


async def test_minutes_hours_and_days_add_up_to_the_facts() -> None:
    run = Running()
    for number in range(300):
        ended = DAY + number * 20.0
        run.arrive(span_of(f"t{number}", ended, ended + 1, ttft_s=0.1 * (1 + number % 9)))
    run.clock.now = float(DAY + DAY_S + 200)
    while await run.loop.settle():
        pass
    await run.loop.roll()
    judged = judge(run.facts(), LIMITS, vantage=Vantage.ENGINE)
    good = judged.filter(pl.col("verdict") == "good").height
    assert good == 300 - sum(0.1 * (1 + n % 9) > 0.5 for n in range(300))  # by hand: TTFT of at most 0.5 s
    for tier in (MINUTE_S, HOUR_S, DAY_S):
        rolled = run.store.rollups(tier, DAY, DAY + DAY_S)
        assert (rolled["requests"].sum(), rolled["good"].sum()) == (300, good)
        bins = run.store.bins(tier, DAY, DAY + DAY_S, "engine_ttft_s")
        assert bins["facts"].sum() == 300
    whole = roll_up(judged)[1].filter(pl.col("field") == "engine_ttft_s")
    assert sum(whole["count"].explode()) == 300


async def test_a_restart_rolls_up_what_settled_before_it() -> None:
    run = Running()
    run.arrive(span_of("a", DAY + 1.0, DAY + 2.0))
    run.clock.now = DAY + 130.0
    await run.loop.settle()
    again = RequestLoop(run.store, run.clock, run.loop.terms)  # the marks of the first one are lost
    await again.recover()
    await again.roll()
    assert run.store.rollups(MINUTE_S, DAY, DAY + MINUTE_S)["requests"].to_list() == [1]
    assert again.seen_services == {"chat"}


async def test_ranges_are_read_from_the_coarsest_tier_that_is_ready() -> None:
    run = Running()
    run.clock.now = float(DAY + 3 * DAY_S)
    run.arrive(span_of("a", DAY + 2 * DAY_S + 7300.0, DAY + 2 * DAY_S + 7301.0))
    await run.loop.settle()
    ready = run.loop.tiers(DAY + 2 * DAY_S, DAY + 3 * DAY_S)  # the fact's minute, hour and day are not rolled up yet
    assert ready == [
        (HOUR_S, DAY + 2 * DAY_S, DAY + 2 * DAY_S + 7200.0),
        (MINUTE_S, DAY + 2 * DAY_S + 7200.0, DAY + 2 * DAY_S + 7260.0),
        (0, DAY + 2 * DAY_S + 7260.0, DAY + 2 * DAY_S + 7320.0),
        (MINUTE_S, DAY + 2 * DAY_S + 7320.0, DAY + 2 * DAY_S + 10800.0),
        (HOUR_S, DAY + 2 * DAY_S + 10800.0, float(DAY + 3 * DAY_S)),
    ]
    await run.loop.roll()
    assert run.loop.tiers(DAY + 2 * DAY_S, DAY + 3 * DAY_S) == [(DAY_S, DAY + 2 * DAY_S, float(DAY + 3 * DAY_S))]


async def test_a_range_that_begins_within_a_minute_begins_with_single_requests() -> None:
    run = Running()
    run.clock.now = float(DAY + DAY_S)
    start = DAY + DAY_S - 150.0
    assert run.loop.tiers(start, DAY + DAY_S) == [(0, start, start + 30), (MINUTE_S, start + 30, float(DAY + DAY_S))]


async def test_a_broken_store_is_told_and_tried_again() -> None:
    run = Running()
    run.arrive(span_of("a", DAY + 1.0, DAY + 2.0))
    run.clock.now = DAY + 100.0
    run.store.close()
    assert await run.loop.settle() == 0
    assert run.loop.problem
    assert not run.counted


async def test_a_call_that_an_agent_makes_later_in_the_same_trace_is_counted() -> None:
    run = Running()
    for n, at in enumerate((DAY + 2.0, DAY + 300.0, DAY + 600.0)):
        run.arrive({**span_of("a", at - 1, at), "span_id": f"call-{n}"})
        run.clock.now = at + 90
        await run.loop.settle()
    assert [f["fact_id"].to_list() for f in run.counted] == [["call-0"], ["call-1"], ["call-2"]]
    assert (run.loop.facts_total, run.loop.late_total) == (3, 0)


async def test_two_tries_that_turn_out_to_be_one_request_leave_the_next_one_to_be_counted() -> None:
    run = Running()
    for n in (0, 1):
        run.arrive({**span_of("a", DAY + 2.0 + 3 * n, DAY + 10.0), "span_id": f"try-{n}", "parent_id": "gateway"})
    run.clock.now = DAY + 90.0
    await run.loop.settle()
    assert run.loop.facts_total == 2
    run.arrive(outer("gateway", "gateway", DAY + 0.5, DAY + 6.0, trace_id="a", received_s=DAY + 100.0, service="chat"))
    run.arrive({**span_of("a", DAY + 110.0, DAY + 111.0), "span_id": "next"})
    run.clock.now = DAY + 200.0
    await run.loop.settle()
    assert run.facts().height == 2
    assert run.loop.facts_total == 2  # as many as there are: a counter cannot take the second try back


async def test_what_settles_while_its_minute_is_rolled_up_is_not_forgotten() -> None:
    run = Running()
    run.arrive(span_of("a", DAY + 1.0, DAY + 2.0))
    run.clock.now = DAY + 200.0
    await run.loop.settle()
    replace = run.store.replace_rollups

    def interrupted(*given: Any) -> None:
        replace(*given)
        run.store.replace_rollups = replace  # type: ignore[method-assign]
        run.arrive(span_of("b", DAY + 3.0, DAY + 100.0))
        run.loop._touch(run.loop._settle({})[0]["ended_at"])  # as the other job does between the read and the mark

    run.store.replace_rollups = interrupted  # type: ignore[method-assign, assignment]
    await run.loop.roll()
    await run.loop.roll()
    assert run.store.rollups(MINUTE_S, DAY, DAY + HOUR_S)["requests"].sum() == 2


async def test_a_kill_after_a_fact_moved_leaves_nothing_counted_twice() -> None:
    run = Running()
    run.arrive(span_of("a", DAY + 1.0, DAY + 2.0))
    run.clock.now = float(DAY + 2 * HOUR_S)
    await run.loop.settle()
    await run.loop.roll()
    run.arrive(
        outer("client", "caller", DAY - 1.0, DAY + 4000.0, trace_id="a", received_s=DAY + 7201.0, service="chat")
    )
    run.clock.now += 100
    await run.loop.settle()  # its end moved to another hour; killed before that is rolled up
    again = RequestLoop(run.store, run.clock, run.loop.terms)
    await again.recover()
    await again.roll()
    for tier in (MINUTE_S, HOUR_S, DAY_S):
        assert run.store.rollups(tier, DAY, DAY + DAY_S)["requests"].to_list() == [1]


async def test_a_kill_between_minutes_and_hours_leaves_no_hour_out() -> None:
    run = Running()
    for n in range(12):
        run.arrive(span_of(f"t{n}", DAY + n * 600.0, DAY + n * 600.0 + 1))
    run.clock.now = float(DAY + 3 * HOUR_S)
    await run.loop.settle()
    run.clock.now = float(DAY + 6 * HOUR_S)
    run.arrive(span_of("last", DAY + 5.0 * HOUR_S, DAY + 5.0 * HOUR_S + 1))
    await run.loop.settle()
    run.loop._roll_minutes([*(DAY + n * 600.0 for n in range(12)), DAY + 5.0 * HOUR_S])  # killed here
    again = RequestLoop(run.store, run.clock, run.loop.terms)
    await again.recover()
    await again.roll()
    for tier in (HOUR_S, DAY_S):
        assert run.store.rollups(tier, DAY, DAY + DAY_S)["requests"].sum() == 13


async def test_a_late_fact_of_an_hour_whose_minutes_are_gone_loses_none_of_the_others() -> None:
    run = Running()
    for n in range(6):
        run.arrive(span_of(f"t{n}", DAY + n * 600.0, DAY + n * 600.0 + 1))
    run.clock.now = float(DAY + 2 * HOUR_S)
    await run.loop.settle()
    await run.loop.roll()
    run.clock.now = DAY + 47 * 3600.0 + 3000.0
    run.store.compact(run.clock.now + 7200)  # minutes are kept for 48 h
    assert run.store.rollups(MINUTE_S, DAY, DAY + HOUR_S).is_empty()
    run.arrive(span_of("late", DAY + 30.0, run.clock.now))
    run.clock.now += 100
    await run.loop.settle()
    await run.loop.roll()
    assert run.store.rollups(HOUR_S, DAY, DAY + HOUR_S)["requests"].sum() == 7


async def test_a_part_of_an_hour_whose_minutes_are_gone_is_told_by_its_facts() -> None:
    run = Running()
    run.clock.now = float(DAY + 10 * DAY_S)
    start = DAY + 5 * DAY_S + 600.0
    assert run.loop.tiers(start, start + 1800) == [(0, start, start + 1800)]
    assert run.loop.tiers(start, start + 7200) == [
        (0, start, start + 3000), (HOUR_S, start + 3000, start + 6600), (0, start + 6600, start + 7200),
    ]  # fmt: skip


async def test_where_facts_are_gone_too_a_range_is_widened_to_what_is_kept() -> None:
    run = Running()
    run.clock.now = float(DAY + 40 * DAY_S)
    start = DAY + 5 * DAY_S + 600.0
    assert run.loop.tiers(start, start + 1800) == [(HOUR_S, start - 600, start + 3000)]
    run.clock.now = float(DAY + 200 * DAY_S)
    assert run.loop.tiers(start, start + 1800) == [(DAY_S, start - 600, start - 600 + DAY_S)]


async def test_a_score_that_comes_after_its_minute_was_rolled_up_is_added_to_it() -> None:
    run = Running()
    run.arrive(span_of("a", DAY + 1.0, DAY + 2.0))
    run.clock.now = DAY + 130.0
    await run.loop.settle()
    await run.loop.roll()
    given = {"ts": DAY + 200.0, "received_s": DAY + 200.0, "trace_id": "a", "evaluator": "helpful", "score": 0.9}
    run.store.append_scores(pl.DataFrame([dict.fromkeys(SCORES) | given], schema=SCORES))
    run.clock.now = DAY + 210.0
    await run.loop.roll()
    rolled = run.store.rollups(MINUTE_S, DAY, DAY + HOUR_S)
    assert rolled.select("scored", "passed").rows() == [(1.0, 1.0)]


@given(
    st.integers(0, 10**7),
    st.integers(1, 10**7),
    st.sets(st.integers(0, 20 * 24 * 60).map(lambda n: n * 60), max_size=5),
)
def test_ranges_cover_an_interval_once_with_whole_periods_that_are_ready(
    start: int, length: int, stale: set[int]
) -> None:
    run = Running(Hand(float(DAY + 120 * DAY_S)))
    forever = 400.0 * DAY_S
    run.loop.terms = RequestTerms(minutes_kept_s=forever, hours_kept_s=forever, facts_kept_s=forever)
    run.loop._touch(pl.Series([float(DAY + at) for at in stale], dtype=pl.Float64))
    first, last = float(DAY + start), float(DAY + start + length)
    found = run.loop.tiers(first, last)
    assert (found[0][1], found[-1][2]) == (first, last)
    assert all(end == begin for (_, _, end), (_, begin, _) in pairwise(found))
    for tier, begin, end in found:
        assert begin < end
        if tier:
            assert begin % tier == end % tier == 0
            assert not [at for at in stale if begin <= (DAY + at) // tier * tier < end]


def test_a_month_is_read_from_days() -> None:
    run = Running(Hand(float(DAY + 31 * DAY_S)))
    assert run.loop.tiers(float(DAY), float(DAY + 30 * DAY_S)) == [(DAY_S, float(DAY), float(DAY + 30 * DAY_S))]
