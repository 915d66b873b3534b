"""A goodwatch that was restarted goes on as if it had not been."""

from dataclasses import replace

import polars as pl

from collector.stores.memory import MemoryStore
from collector.targets import TargetSpec
from goodwatch.app.engines import known_engines
from goodwatch.app.fleet import KEPT_S
from goodwatch.app.keeper import Keeper
from goodwatch.app.recovery import recovered
from goodwatch.app.watch import Terms, Watch
from goodwatch.core.model import Scrape, Target
from tests.app.test_keeper import SetClock
from tests.support.simulated_engine import Kind, Request, Simulated

EVERY_MS = 15_000
SPEC = TargetSpec(Target("t", "http://t/metrics", "s"))


def steady(kind: Kind = "vllm", *, seconds: int = 1_800) -> Simulated:
    """Two requests a second, in time; a client hangs up now and then."""
    requests = (Request(500 * i, tokens=3, hangs_up_ms=110 if i % 9 == 0 else None) for i in range(2 * seconds))
    return Simulated(kind, tuple(requests))


def watch_of(store: MemoryStore, clock: SetClock) -> Watch:
    made = Watch(known_engines(), store, Keeper(store, clock), clock, Terms({}, {}))
    made.update([SPEC])
    return made


async def feed(watch: Watch, clock: SetClock, engine: Simulated, after_s: int, until_s: int) -> None:
    """Scrape every 15 s in ``(after, until]``, keep, and fold the minutes as the service does."""
    state = watch.states["t"]
    for at_ms in range(after_s * 1000 + EVERY_MS, until_s * 1000 + 1, EVERY_MS):
        clock.at_s = at_ms / 1000
        scrape = engine.scrape(at_ms)
        state.take(scrape)
        watch.keeper.keep(scrape, None)
        await watch.keeper.flush()
        await watch.fold_minutes()


def counts(frame: pl.DataFrame) -> dict[tuple[float, str, str], float]:
    """Increases by minute, signal and part."""
    told = frame.filter(pl.col("increase").is_not_null())
    return {(r["minute_s"], r["signal"], r["part"]): r["increase"] for r in told.iter_rows(named=True)}


async def test_scrapes_come_back_as_they_were_taken() -> None:
    store, engine = MemoryStore(), replace(steady(seconds=60), ranks=2)
    taken = [engine.scrape(at) for at in (0, 15_000, 30_000)]
    down = Scrape(45.0, "t", "s", False, 3.0, error="timeout after 3 s", reason="timeout")
    store.append([*taken, down])
    found = recovered(store, 46.0, 1_000.0)["t"].scrapes
    assert [s.ts for s in found] == [0.0, 15.0, 30.0, 45.0]
    assert found[3] == down
    for was, now in zip(taken, found[:3], strict=True):
        assert {(s.rank, s.signal, s.part): s for s in was.samples} == {
            (s.rank, s.signal, s.part): s for s in now.samples
        }


async def test_counters_go_on_without_a_jump_or_a_gap() -> None:
    store, clock, engine = MemoryStore(), SetClock(0.0), steady(seconds=700)
    await feed(watch_of(store, clock), clock, engine, 0, 300)
    again = watch_of(store, clock)
    clock.at_s = 301.0
    await again.recover()
    await feed(again, clock, engine, 300, 360)
    await again.refresh()
    view = again.service("s")
    assert view is not None
    # 8 of 9 requests finish, two come a second
    rate = view.derived.numbers["request_rate_per_s"].value
    assert rate is not None
    assert abs(rate - 2 * 8 / 9) < 0.03
    goodput = view.derived.goodput
    assert goodput is not None
    assert goodput.broken == ()


async def test_a_pause_of_goodwatch_is_told_by_the_first_scrape_after_it() -> None:
    """Counters run on while nobody looks; what they gained is counted once, over the time that it took."""
    store, clock, engine = MemoryStore(), SetClock(0.0), steady(seconds=900)
    await feed(watch_of(store, clock), clock, engine, 0, 300)
    again = watch_of(store, clock)
    clock.at_s = 599.0
    await again.recover()
    await feed(again, clock, engine, 585, 600)
    rows = again.states["t"].steps[-1][1]
    gained = {r["signal"]: r["increase"] for r in rows if r.get("increase") is not None}
    assert gained["covered_seconds_total"] == 300.0
    assert gained["e2e_seconds"] == len([t for t in engine.ended_in(300_000, 600_000) if t.fate == "finished"])
    assert gained["restarts_total"] == 0.0


async def test_minutes_that_were_kept_stay_as_they_are_after_a_restart() -> None:
    """Also the oldest that is recovered, of which only a part is."""
    store, clock, engine = MemoryStore(), SetClock(0.0), steady()
    await feed(watch_of(store, clock), clock, engine, 0, 1_635)
    kept = counts(store.minutes(0.0, 1e9))
    again = watch_of(store, clock)
    clock.at_s = 1_640.0
    assert (clock.at_s - KEPT_S) % 60 > 0
    await again.recover()
    await again.fold_minutes()
    now = counts(store.minutes(0.0, 1e9))
    assert {key for key in kept if now.get(key) != kept[key]} == set()


async def test_history_counts_every_request_once_after_a_restart() -> None:
    """Steps that were recovered and minutes that are kept speak of the same requests."""
    store, clock, engine = MemoryStore(), SetClock(0.0), steady(seconds=700)
    before = watch_of(store, clock)
    await feed(before, clock, engine, 0, 600)
    told = await before.series("s", 0.0, 600.0, step_s=60.0)
    again = watch_of(store, clock)
    await again.recover()
    clock.at_s = 601.0
    retold = await again.series("s", 0.0, 600.0, step_s=60.0)
    columns = ["ts", "name", "value", "low", "high"]
    assert retold.select(columns).equals(told.select(columns))


async def test_a_store_that_cannot_be_read_leaves_an_empty_start() -> None:
    store, clock = MemoryStore(), SetClock(0.0)
    store.close()
    again = watch_of(store, clock)
    await again.recover()
    assert not again.states["t"].steps
