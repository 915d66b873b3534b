"""The watch on pages of real engines: what it shows, keeps and remembers."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from collector.scrape import Fetched
from collector.stores.memory import MemoryStore
from collector.targets import TargetSpec
from goodwatch.app.config import Service
from goodwatch.app.engines import known_engines
from goodwatch.app.keeper import Keeper
from goodwatch.app.recording import RecordedScrape, Recording
from goodwatch.app.view import ServiceView
from goodwatch.app.watch import Terms, Watch
from goodwatch.app.wiring import Priced
from goodwatch.core.model import Absence, Target
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import MEANINGS
from tests.app.test_keeper import SetClock
from tests.support.simulated_engine import Request, Simulated
from tests.support.views import DATA

CHAT = Service.model_validate({"name": "chat", "slo": {"ttft": "500ms", "tpot": "50ms", "objective": 0.9}})

DOWN = RecordedScrape(0.0, 0.1, 0, None, None, "connection refused", "")


@functools.cache
def pages(name: str) -> tuple[RecordedScrape, ...]:
    """The last scrapes of a recording while its engine ran."""
    every = list(Recording.open(DATA / name).scrapes())
    good = [i for i, one in enumerate(every) if one.body is not None]
    return tuple(every[max(good[0], good[-1] - 120) : good[-1] + 1])


def spec(name: str, service: str = "chat") -> TargetSpec:
    return TargetSpec(Target(name, f"http://{name}/metrics", service))


def fetched(one: RecordedScrape, at_s: float) -> Fetched:
    if one.body is None:
        return Fetched(at_s, False, one.elapsed_s, reason="refused", error=one.error or "connection refused")
    return Fetched(at_s, True, one.elapsed_s, one.body.encode(), one.content_type or "", 200)


def watch_of(names: Sequence[str], *, window_s: float = 300.0) -> tuple[Watch, MemoryStore, SetClock]:
    store, clock = MemoryStore(), SetClock(0.0)
    prices = {n: Priced(Price(1, 2.5)) for n in names}
    made = Watch(known_engines(), store, Keeper(store, clock), clock, Terms({"chat": CHAT}, prices, window_s))
    made.update([spec(n) for n in names])
    return made, store, clock


async def play(watch: Watch, clock: SetClock, name: str, target: str) -> float:
    """Every page of a recording, at the times at which it came; returns the time of the last."""
    for one in pages(name):
        clock.at_s = one.done_s
        await watch.take(spec(target), fetched(one, one.done_s))
        await watch.keeper.flush()
    await watch.refresh()
    return clock.at_s


def view_of(watch: Watch) -> ServiceView:
    view = watch.service("chat")
    assert view is not None
    return view


async def test_before_any_scrape_a_service_is_there_and_has_no_data() -> None:
    watch, _, _ = watch_of(["t"])
    await watch.refresh()
    view = view_of(watch)
    assert (view.state, view.headline) == ("no data", "not scraped yet")
    assert {n.absence for n in view.derived.numbers.values()} == {Absence.NO_DATA}
    assert [t.up for t in watch.targets()] == [None]
    assert watch.service("other") is None
    assert watch.target("other") is None


@pytest.mark.parametrize("recording", ["vllm-0.32.0", "sglang-0.5.23", "vllm-0.8.5"])
async def test_a_real_engine_has_every_number_or_a_reason(recording: str) -> None:
    watch, store, clock = watch_of(["t"])
    await play(watch, clock, recording, "t")
    view = view_of(watch)
    assert list(view.derived.numbers) == list(MEANINGS)
    assert all((n.absence is None) != (n.value is None and n.bounds is None) for n in view.derived.numbers.values())
    (target,) = view.targets
    assert target.engine == recording.split("-", maxsplit=1)[0]
    assert (target.up, target.models) == (True, ("tiny",))
    detailed = watch.target("t")
    assert detailed is not None
    assert detailed.capability is not None
    assert store.derived(0.0, 1e11)["name"].n_unique() == len(MEANINGS)


async def test_minutes_and_the_live_window_count_the_same_requests() -> None:
    watch, store, clock = watch_of(["t"], window_s=1e6)
    end_s = await play(watch, clock, "vllm-0.32.0", "t")
    goodput = view_of(watch).derived.goodput
    assert goodput is not None
    clock.at_s = end_s + 120
    await watch.fold_minutes()
    minutes = store.minutes(0.0, 1e11, signals=["requests_finished_total"])
    assert minutes["increase"].sum() == goodput.ended > 0


async def test_series_is_the_same_before_and_after_minutes_are_folded() -> None:
    watch, store, clock = watch_of(["t"])
    end_s = await play(watch, clock, "vllm-0.32.0", "t")
    start_s = (end_s // 60 - 5) * 60
    columns = ["ts", "name", "value", "low", "high"]
    fresh = (await watch.series("chat", start_s, end_s + 1, step_s=60.0)).select(columns)
    clock.at_s = end_s + 120
    await watch.fold_minutes()
    assert not store.minutes(0.0, 1e11).is_empty()
    kept = (await watch.series("chat", start_s, end_s + 1, step_s=60.0)).select(columns)
    for was, now in zip(fresh.iter_rows(), kept.iter_rows(), strict=True):
        assert was[:2] == now[:2]
        for a, b in zip(was[2:], now[2:], strict=True):
            assert (a is None and b is None) or a == pytest.approx(b), was[:2]


async def test_a_range_that_begins_inside_a_minute_knows_what_was_in_flight_at_its_first_step() -> None:
    """A step is the whole minute, told the same whether its range begins with it or some seconds later."""
    watch, _, clock = watch_of(["t"])
    # All first tokens come within the first minute, all ends between 80 s and 140 s.
    engine = Simulated("vllm", tuple(Request(1_000 * i, tokens=2_000, gap_ms=40) for i in range(60)))
    for at_ms in range(10_000, 200_000, 35_000):
        clock.at_s = at_ms / 1000
        watch.states["t"].take(replace(engine.scrape(at_ms), service="chat"))
    clock.at_s = 300.0
    await watch.fold_minutes()
    columns = ["ts", "name", "value", "low", "high"]
    aligned = (await watch.series("chat", 120.0, 180.0, step_s=60.0)).select(columns)
    later = (await watch.series("chat", 127.0, 180.0, step_s=60.0)).select(columns)
    assert aligned["low"].drop_nulls().len() > 0
    assert later.equals(aligned)


async def test_a_slow_scrape_that_arrives_after_its_minute_was_folded_is_not_lost() -> None:
    """A timeout may be as long as the interval, say a minute: a page that began at 2:55 can be here at 3:25."""
    watch, store, clock = watch_of(["t"])
    engine = Simulated("vllm", tuple(Request(1_000 * i, tokens=1) for i in range(240)))
    for began_ms, here_s in ((55_000, 56.0), (115_000, 116.0), (175_000, 205.0), (235_000, 236.0)):
        clock.at_s = here_s - 5
        await watch.fold_minutes()
        watch.states["t"].take(engine.scrape(began_ms))
    clock.at_s = 400.0
    await watch.fold_minutes()
    finished = store.minutes(0.0, 1e9, signals=["requests_finished_total"])["increase"].sum()
    # 1 request a second, done 0.1 s after its arrival: 180 ended in (55 s, 235 s]
    assert finished == len(engine.ended_in(55_000, 235_000)) == 180


async def test_a_minute_that_cannot_be_written_is_tried_again() -> None:
    watch, store, clock = watch_of(["t"])
    end_s = await play(watch, clock, "vllm-0.32.0", "t")
    clock.at_s = end_s + 120
    store.close()
    await watch.fold_minutes()
    assert watch.states["t"].unfolded
    assert "clos" in watch.health().store.message
    assert watch.health().ok is False


async def test_an_engine_that_crashes_and_comes_back_leaves_events_in_order() -> None:
    watch, _, clock = watch_of(["t"])
    live, base = pages("vllm-0.32.0"), 60.0 * 1_000_000
    last, first = live[-1], pages("vllm-0.12.0")[0]
    plan = [last] * 8 + [DOWN] * 12 + [first] * 8  # 15 s apart: two minutes up, three down, another process
    for i, one in enumerate(plan):
        clock.at_s = base + 15 * i
        await watch.take(spec("t"), fetched(one, clock.at_s))
    clock.at_s += 120
    await watch.fold_minutes()
    events = await watch.events(base, clock.at_s, service="chat")
    assert [(e.kind, e.ts - base) for e in events] == [("down", 120.0), ("restart", 300.0), ("up", 300.0)]
    assert await watch.events(base, clock.at_s, service="other") == []


async def test_an_outage_that_began_before_the_range_did_not_begin_in_it() -> None:
    watch, _, clock = watch_of(["t"])
    for at_s in range(0, 601, 15):
        clock.at_s = float(at_s)
        await watch.take(spec("t"), fetched(DOWN, float(at_s)))
    clock.at_s = 700.0
    await watch.fold_minutes()
    assert [e.kind for e in await watch.events(0.0, 600.0)] == ["down"]
    assert await watch.events(300.0, 600.0) == []


async def test_a_page_that_is_not_metrics_is_a_failed_scrape_with_a_sentence() -> None:
    watch, store, clock = watch_of(["t"])
    clock.at_s = 10.0
    await watch.take(spec("t"), Fetched(10.0, True, 0.1, b"<html>hello</html>", "text/html", 200))
    await watch.keeper.flush()
    await watch.refresh()
    (target,) = watch.targets()
    assert (target.up, "not with metrics" in target.error) == (False, True)
    assert view_of(watch).state == "no data"  # something answered: goodwatch is blind, the service may be fine
    assert store.scrapes(0.0, 100.0)["up"].to_list() == [False]


async def test_an_answer_of_a_target_that_was_removed_is_left_alone() -> None:
    watch, store, clock = watch_of(["t"])
    watch.update([])
    clock.at_s = 10.0
    await watch.take(spec("t"), fetched(pages("vllm-0.32.0")[0], 10.0))
    await watch.keeper.flush()
    assert store.scrapes(0.0, 100.0).is_empty()
    assert watch.states == {}


async def test_services_come_worst_first() -> None:
    watch, _, clock = watch_of(["good", "bad"])
    watch.update([spec("good"), spec("bad", "ailing")])
    await watch.take(spec("bad", "ailing"), Fetched(1.0, False, 0.1, reason="refused", error="refused"))
    await play(watch, clock, "vllm-0.32.0", "good")
    found = watch.services()
    assert found[0].name == "ailing"
    assert found[0].state == "bad"
    assert [t.name for t in watch.targets()] == ["bad", "good"]


async def test_a_target_that_failed_at_once_and_then_answered_is_up_at_the_windows_end() -> None:
    """Its engine is not known yet while it fails; in one minute with what follows, the last word counts."""
    watch, _, clock = watch_of(["t"])
    base = 60.0 * 1_000_000
    await watch.take(spec("t"), fetched(DOWN, base + 1))
    for i, one in enumerate(pages("vllm-0.32.0")[:3]):
        await watch.take(spec("t"), fetched(one, base + 10 + 10 * i))
    clock.at_s = base + 200
    await watch.fold_minutes()
    frame = await watch.series("chat", base, base + 60, step_s=60.0)
    rate = frame.filter(frame["name"] == "attainment_ratio")["note"][0]
    assert "could not be read" not in rate
