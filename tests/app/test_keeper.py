"""The only writer: batches, survives a store that is broken for a while, and tells what it lost."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl
import pytest

from collector.stores.memory import MemoryStore
from goodwatch.app import keeper as keeping
from goodwatch.app.keeper import Keeper
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Deployment, Scrape
from goodwatch.signals.increments import rows_frame


@dataclass(slots=True)
class SetClock:
    """A clock that stands where it is put."""

    at_s: float = 1_000.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


@dataclass
class FailingStore(MemoryStore):
    """A memory store that refuses the next ``failures`` writes, and writes down how many scrapes each call brought."""

    failures: int = 0
    batches: list[int] = field(default_factory=list)
    wrote: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__()

    def append(self, scrapes: Sequence[Scrape]) -> None:
        self._maybe_fail()
        super().append(scrapes)
        self.batches.append(len(scrapes))
        self.wrote.set()

    def append_minutes(self, minutes: pl.DataFrame) -> None:
        self._maybe_fail()
        super().append_minutes(minutes)

    def _maybe_fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("disk full: free some space")


class GatedStore(MemoryStore):
    """A memory store whose append waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()

    def append(self, scrapes: Sequence[Scrape]) -> None:
        self.entered.set()
        assert self.gate.wait(10)
        super().append(scrapes)


@dataclass
class CountingStore(MemoryStore):
    """A memory store that counts how often a deployment is brought to it."""

    recorded: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def record_deployment(self, deployment: Deployment) -> bool:
        self.recorded += 1
        return super().record_deployment(deployment)


def scrape(ts: float) -> Scrape:
    return scrape_of("t", ts)


def scrape_of(target: str, ts: float) -> Scrape:
    return Scrape(ts, target, "s", up=True, duration_s=0.1)


def written(store: MemoryStore) -> list[float]:
    return store.scrapes(0.0, 1e9)["ts"].to_list()


async def test_scrapes_are_written_in_batches_in_order() -> None:
    store = FailingStore()
    keeper = Keeper(store, SetClock())
    for ts in range(1, 1_102):
        keeper.keep(scrape(float(ts)), None)
    await keeper.flush()
    assert store.batches == [500, 500, 101]
    assert written(store) == [float(ts) for ts in range(1, 1_102)]
    assert (keeper.pending, keeper.written_total, keeper.dropped_total) == (0, 1_101, 0)


async def test_a_store_that_fails_for_a_while_loses_nothing_and_is_heard_of() -> None:
    errors: list[int] = []
    store = FailingStore(failures=3)
    clock = SetClock()
    keeper = Keeper(store, clock, on_error=lambda: errors.append(1))
    deployment = Deployment(1.0, "t", "s", "vllm", "0.32.0", "m", {"dtype": "bf16"})
    keeper.keep(scrape(1.0), deployment)
    for _ in range(3):
        await keeper.flush()
        clock.at_s += 10.0
    assert (len(errors), written(store)) == (3, [])
    assert "disk full" in keeper.message
    assert keeper.lag_s == clock.at_s - 1.0
    keeper.keep(scrape(2.0), None)
    await keeper.flush()
    assert written(store) == [1.0, 2.0]
    assert store.deployments(0.0, 1e9) == [deployment]
    assert (keeper.message, keeper.lag_s, keeper.pending) == ("", 0.0, 0)


async def test_the_running_writer_tries_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_RETRY_S", (0.001,))
    store = FailingStore(failures=5)
    keeper = Keeper(store, SetClock(), every_s=0.0)
    task = asyncio.create_task(keeper.run())
    for ts in (1.0, 2.0):
        keeper.keep(scrape(ts), None)
        assert await asyncio.to_thread(store.wrote.wait, 10)
        store.wrote.clear()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert written(store) == [1.0, 2.0]


async def test_beyond_the_limit_the_oldest_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MAX_PENDING", 10)
    store = FailingStore(failures=1)
    keeper = Keeper(store, SetClock())
    for ts in range(1, 15):
        keeper.keep(scrape(float(ts)), None)
    await keeper.flush()
    assert (keeper.pending, keeper.dropped_total) == (10, 4)
    await keeper.flush()
    assert written(store) == [float(ts) for ts in range(5, 15)]


async def test_what_comes_while_a_full_queue_is_written_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being written when the queue overflows is not in the queue any more: dropping it drops nobody else."""
    monkeypatch.setattr(keeping, "MAX_PENDING", 10)
    store = GatedStore()
    keeper = Keeper(store, SetClock())
    for ts in range(1, 11):
        keeper.keep(scrape(float(ts)), None)
    writing = asyncio.create_task(keeper.flush())
    await asyncio.to_thread(store.entered.wait, 10)
    for late in (11.0, 12.0, 13.0):
        keeper.keep(scrape(late), None)
    store.gate.set()
    await writing
    kept = written(store)
    # Whatever the policy: what is counted as dropped is what is missing, and the newest are never what is missing.
    assert 14 - 1 - len(kept) == keeper.dropped_total
    assert kept[-3:] == [11.0, 12.0, 13.0]


async def test_on_the_way_out_a_write_in_flight_is_waited_for_and_not_repeated() -> None:
    """The service flushes, then stops the writer."""
    store = GatedStore()
    keeper = Keeper(store, SetClock())
    task = asyncio.create_task(keeper.run())
    keeper.keep(scrape(1.0), None)
    await asyncio.to_thread(store.entered.wait, 10)
    keeper.keep(scrape(2.0), None)
    leaving = asyncio.create_task(keeper.flush())
    store.gate.set()
    await leaving
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert written(store) == [1.0, 2.0]


async def test_a_round_of_a_fleet_is_one_commit_and_no_target_ever_has_two_scrapes_that_wait() -> None:
    """What a crash can lose is the last scrape of each target: the second one does not wait beside it."""
    store = FailingStore()
    clock = SetClock()
    keeper = Keeper(store, clock, every_s=3_600.0)
    task = asyncio.create_task(keeper.run())
    keeper.keep(scrape_of("a", 1.0), None)
    assert await asyncio.to_thread(store.wrote.wait, 10)  # after a pause the first is written at once
    store.wrote.clear()
    for name in ("b", "c", "d"):
        keeper.keep(scrape_of(name, 2.0), None)
    for _ in range(20):
        await asyncio.sleep(0)
    assert (store.batches, keeper.pending) == ([1], 3)
    keeper.keep(scrape_of("b", 3.0), None)
    assert await asyncio.to_thread(store.wrote.wait, 10)
    assert store.batches == [1, 4]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_deployment_that_the_store_has_is_not_brought_to_it_for_every_scrape() -> None:
    store = CountingStore()
    keeper = Keeper(store, SetClock())

    async def keep(ts: float, version: str) -> None:
        keeper.keep(scrape(ts), Deployment(ts, "t", "s", "vllm", version, "m", {"dtype": "bf16"}))
        await keeper.flush()

    for ts in range(20):
        await keep(float(ts), "0.32.0")
    assert store.recorded == 1
    await keep(21.0, "0.33.0")
    await keep(22.0, "0.32.0")
    assert [d.engine_version for d in store.deployments(0.0, 1e9)] == ["0.32.0", "0.33.0", "0.32.0"]
    await keep(22.0 + 600.0, "0.32.0")  # now and then it is: the store may have let it expire
    assert store.recorded == 4
    assert len(store.deployments(0.0, 1e9)) == 3


async def test_minutes_that_cannot_be_written_are_told_and_not_swallowed() -> None:
    keeper = Keeper(FailingStore(failures=1), SetClock())
    assert await keeper.append_minutes(rows_frame([])) is False
    assert await keeper.append_minutes(rows_frame([])) is True


async def test_only_the_stores_own_errors_are_survived() -> None:
    keeper = Keeper(MemoryStore(), SetClock())

    def bug() -> None:
        raise KeyError("a bug keeps its traceback")

    with pytest.raises(KeyError):
        await keeper.call(bug)
