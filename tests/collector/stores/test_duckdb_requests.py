"""The embedded request store keeps the contract, and what only it promises."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from collector.stores.duckdb_requests import DuckDBRequestStore
from tests.collector.stores.request_contract import (
    INF,
    RETENTION,
    RequestStoreContract,
    RequestStoreModel,
    SetClock,
    Store,
    fact,
    facts,
    part,
    parts,
    trace_id,
)


class TestDuckDBRequestStore(RequestStoreContract):
    @pytest.fixture
    def store(self, clock: SetClock, tmp_path: Path) -> Iterator[Store]:
        store = DuckDBRequestStore(tmp_path / "requests.db", retention=RETENTION, clock=clock)
        yield store
        store.close()


class TestAnyOrderOfSteps(RequestStoreModel):
    def new_store(self) -> Store:
        return self.opened(Path(tempfile.mkdtemp()) / "requests.db")

    def reopened(self, store: Store) -> Store:
        assert isinstance(store, DuckDBRequestStore)
        store.close()
        return self.opened(store._path)

    def opened(self, path: Path) -> Store:
        return DuckDBRequestStore(path, retention=RETENTION, clock=SetClock())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.db"


def test_ids_are_known_again_after_a_restart(path: Path) -> None:
    store = DuckDBRequestStore(path)
    store.append_parts([parts(part("a"), part("b"))])
    store.close()
    again = DuckDBRequestStore(path)
    assert again.append_parts([parts(part("a"), part("b"), part("c"))]) == 1
    again.close()


def test_a_part_that_comes_again_after_its_id_was_forgotten_is_read_once(path: Path) -> None:
    store = DuckDBRequestStore(path, recent_ids=4)
    store.append_parts([parts(part("a", tenant="first"))])
    store.append_parts([parts(*(part("b", number) for number in range(8)))])
    assert store.append_parts([parts(part("a", tenant="again"))]) == 1
    assert store.parts([trace_id("a")])["tenant"].to_list() == ["first"]
    store.close()


def test_the_last_ids_are_always_known(path: Path) -> None:
    store = DuckDBRequestStore(path, recent_ids=10)
    for number in range(40):
        store.append_parts([parts(part("a", number))])
        again = [part("a", earlier) for earlier in range(max(0, number - 4), number + 1)]
        assert store.append_parts([parts(*again)]) == 0
    store.close()


def test_traces_that_find_no_room_in_memory_wait_in_the_file(path: Path) -> None:
    store = DuckDBRequestStore(path, open_traces=3)
    names = [f"{number:02}" for number in range(10)]
    store.append_parts([parts(*(part(name, 1, 10.0 + n) for n, name in enumerate(names)))])
    store.append_parts([parts(*(part(name, 2, 20.0 + n) for n, name in enumerate(names)))])
    settled: list[str] = []
    while due := store.unsettled(INF, 2):
        assert store.parts(due).group_by("trace_id").len()["len"].to_list() == [2] * len(due)
        store.settle(due, facts())
        settled += due
    assert sorted(settled) == sorted(map(trace_id, names))
    store.close()
    again = DuckDBRequestStore(path, open_traces=3)
    assert again.unsettled(INF, 10) == []
    again.close()


def test_what_was_read_stays_known_when_the_file_is_opened_again(path: Path) -> None:
    store = DuckDBRequestStore(path)
    store.append_parts([parts(part("a"))])
    store.parts([trace_id("a")])
    store.append_parts([parts(part("a", 2))])
    store._let_go()
    store.settle([trace_id("a")], facts(fact("a")))
    assert store.unsettled(INF, 10) == [trace_id("a")]
    store.close()


def test_numbers_of_commits_go_on_when_all_rows_are_gone(path: Path) -> None:
    clock = SetClock()
    store = DuckDBRequestStore(path, retention=RETENTION, clock=clock)
    for name in "abc":
        store.append_parts([parts(part(name))])
        store.settle([trace_id(name)], facts())
    store.compact(1e9)
    store.close()
    again = DuckDBRequestStore(path, retention=RETENTION, clock=clock)
    again.append_parts([parts(part("d"))])
    again.close()
    last = DuckDBRequestStore(path, retention=RETENTION, clock=clock)
    assert last.unsettled(INF, 10) == [trace_id("d")]
    last.close()


def test_readers_see_whole_commits_while_a_writer_writes(path: Path) -> None:
    store = DuckDBRequestStore(path)
    done, odd = threading.Event(), list[int]()

    def read() -> None:
        while not done.is_set():
            found = store.parts([trace_id("a")]).height
            if found % 50:
                odd.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(40):
        store.append_parts([parts(*(part("a", number * 50 + nth) for nth in range(50)))])
        if number % 10 == 9:
            store.compact(0.0)
    done.set()
    for reader in readers:
        reader.join()
    assert odd == []
    assert store.parts([trace_id("a")]).height == 2000
    store.close()


def test_a_reader_that_is_slow_does_not_hold_up_the_writer(path: Path) -> None:
    store = DuckDBRequestStore(path)
    store.append_parts([parts(part("a"))])
    with store._reading("read for a long time") as cursor:
        cursor.begin()
        assert cursor.execute("select count(*) from parts").fetchall() == [(1,)]
        assert store.append_parts([parts(part("b"))]) == 1
        store.settle([trace_id("a")], facts(fact("a")))
        assert store.compact(0.0) == 0
        assert cursor.execute("select count(*) from parts").fetchall() == [(1,)]
    assert store.facts(0, INF).height == 1
    store.close()


def test_room_is_given_back_when_rows_grow_old(path: Path) -> None:
    clock = SetClock()
    store = DuckDBRequestStore(path, retention=RETENTION, clock=clock)
    sizes = []
    for hour in range(12):
        clock.at_s = 1000.0 + 100 * hour
        rows = parts(*(part(f"{hour:04}{number:05}") for number in range(4000)))
        store.append_parts([rows])
        store.settle(rows["trace_id"].to_list(), facts())
        store.compact(clock.at_s)
        sizes.append(store.health().bytes)
    store.close()
    assert sizes[-1] < 3 * sizes[2]
    assert pl.Series(sizes).max() < 10 * 2**20
