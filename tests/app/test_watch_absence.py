"""A target that discovery loses and finds again goes on; one that stays away, or comes back as another, does not."""

from dataclasses import replace

import polars as pl

from collector.stores.memory import MemoryStore
from goodwatch.app.watch import Watch
from tests.app.test_keeper import SetClock
from tests.app.test_recovery import SPEC, feed, steady, watch_of


def counted(store: MemoryStore, until_s: float) -> float:
    """Requests that ended, by the minutes in the store."""
    minutes = store.minutes(0, until_s, signals=["requests_finished_total"])
    return float(minutes.select(pl.col("increase").sum()).item())


async def watched_until(until_s: int) -> tuple[Watch, SetClock, MemoryStore]:
    store, clock = MemoryStore(), SetClock(0.0)
    watch = watch_of(store, clock)
    await feed(watch, clock, steady(), 0, until_s)
    return watch, clock, store


async def test_a_target_that_flaps_goes_on_counting_from_where_it_was() -> None:
    watch, clock, store = await watched_until(300)
    before = watch.states["t"]
    watch.update([])
    assert watch.states == {}
    clock.at_s = 300 + 9 * 60
    watch.update([SPEC])
    assert watch.states["t"] is before
    await feed(watch, clock, steady(), 840, 960)
    _, _, steady_store = await watched_until(960)
    assert counted(store, 960) == counted(steady_store, 960) > 0


async def test_after_ten_minutes_of_absence_it_is_new() -> None:
    watch, clock, _ = await watched_until(60)
    before = watch.states["t"]
    watch.update([])
    clock.at_s = 60 + 601
    watch.update([SPEC])
    assert watch.states["t"] is not before
    assert watch.states["t"].tracker.last_s is None


async def test_another_target_under_the_old_name_is_new() -> None:
    watch, _, _ = await watched_until(60)
    before = watch.states["t"]
    watch.update([])
    watch.update([replace(SPEC, target=replace(SPEC.target, url="http://elsewhere/metrics"))])
    assert watch.states["t"] is not before
    assert watch.absent == {}


async def test_the_last_minute_of_a_target_that_left_is_kept_too() -> None:
    watch, clock, store = await watched_until(105)
    watch.update([])
    clock.at_s = 200
    await watch.fold_minutes()
    ups = store.minutes(0, 200, signals=["up"])
    assert ups["minute_s"].to_list() == [0.0, 60.0]


async def test_absent_targets_are_forgotten_and_do_not_pile_up() -> None:
    watch, clock, _ = await watched_until(15)
    for number in range(5):
        clock.at_s += 400
        watch.update([replace(SPEC, target=replace(SPEC.target, name=f"pod-{number}"))])
    assert sorted(watch.absent) == ["pod-2", "pod-3"]  # those of the last ten minutes
