"""The embedded store does what a store must do, answers as the one in memory, and is there after a second open."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from collector.stores import _schema
from collector.stores.duckdb import DuckDBStore
from collector.stores.memory import MemoryStore
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Histogram, Scrape
from goodwatch.signals.frames import DERIVED, MINUTES
from tests.collector.stores.contract import (
    INF,
    RETENTION,
    FixedClock,
    Store,
    StoreContract,
    deployment,
    derived,
    failed,
    frame,
    full,
    minute,
    sample,
    scrape,
)


class TestDuckDBStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = DuckDBStore(tmp_path / "store.db", retention=RETENTION, clock=FixedClock())
        yield store
        store.close()


def everything(store: Store) -> tuple[list[pl.DataFrame], list[Any]]:
    frames = [read(-INF, INF) for read in (store.samples, store.scrapes, store.minutes, store.derived)]
    return frames, store.deployments(-INF, INF)


def assert_same(one: Store, other: Store) -> None:
    frames, deployments = everything(one)
    wanted, wanted_deployments = everything(other)
    for found, expected in zip(frames, wanted, strict=True):
        assert_frame_equal(found, expected, check_exact=True)
    assert deployments == wanted_deployments


# what a second open sees


def test_a_second_open_sees_everything(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "store.db"
    first = DuckDBStore(path)
    spec = MemoryStore()
    for store in (first, spec):
        store.append([full(10.0), failed(20.0)])
        store.append_minutes(frame([minute(60, increase=1.0, le=[1.0, INF], count=[1.0, 2.0])], MINUTES))
        store.append_derived(frame([derived(60, value=1.0)], DERIVED))
        store.record_deployment(deployment(10.0))
    first.close()
    second = DuckDBStore(path)
    assert_same(second, spec)
    assert not second.record_deployment(deployment(30.0))
    for store in (second, spec):
        store.append([full(30.0), full(30.0, "new")])
    assert_same(second, spec)
    second.close()
    assert [p.name for p in path.parent.iterdir()] == ["store.db"]


HISTOGRAMS = st.integers(0, 5).flatmap(
    lambda n: st.builds(
        Histogram,
        st.lists(st.floats(-1e9, 1e9), min_size=n, max_size=n, unique=True).map(lambda le: tuple(sorted(le))),
        st.lists(st.floats(), min_size=n, max_size=n).map(tuple),
        st.none() | st.floats(),
    )
)
SAMPLE = st.builds(
    lambda signal, value: (
        sample(0.0, signal=signal, value=value)
        if not isinstance(value, Histogram)
        else sample(0.0, signal=signal, histogram=value)
    ),
    st.text(st.characters(codec="utf-8"), max_size=4),
    st.none() | st.floats() | HISTOGRAMS,
)


@st.composite
def scrapes(draw: st.DrawFn) -> Scrape:
    at = draw(st.integers(0, 2000)) + draw(st.sampled_from([0.0, 0.25]))
    target = draw(st.sampled_from("abc"))
    drawn = draw(st.lists(SAMPLE, max_size=4, unique_by=lambda s: s.signal))
    return scrape(at, target, samples=tuple(sample_at(s, at, target) for s in drawn))


def sample_at(drawn: Any, at: float, target: str) -> Any:
    return sample(
        at, target, drawn.signal, **{"histogram": drawn.histogram} if drawn.histogram else {"value": drawn.value}
    )


NUMBER = st.none() | st.floats()
OPERATIONS = st.lists(
    st.tuples(st.just("append"), st.lists(scrapes(), max_size=3, unique_by=lambda s: (s.ts, s.target)))
    | st.tuples(
        st.just("append_minutes"),
        st.lists(
            st.builds(
                lambda at, target, value: minute(60.0 * at, target=target, increase=value),
                st.integers(0, 9), st.sampled_from("ab"), NUMBER,
            ), max_size=4,
        ).map(lambda rows: frame(rows, MINUTES)),
    )
    | st.tuples(
        st.just("append_derived"),
        st.lists(
            st.builds(
                lambda at, name, value: derived(60.0 * at, name=name, value=value),
                st.integers(0, 9), st.sampled_from("ab"), NUMBER,
            ), max_size=4,
        ).map(lambda rows: frame(rows, DERIVED)),
    )
    | st.tuples(
        st.just("record_deployment"),
        st.builds(
            lambda at, target, dtype: deployment(at, target, facts={"dtype": dtype}),
            st.integers(0, 2000).map(float), st.sampled_from("ab"), st.sampled_from(["bf16", "fp8"]),
        ),
    )
    | st.tuples(st.just("compact"), st.integers(0, 3000).map(float))
    | st.tuples(st.just("open again"), st.none()),
    max_size=12,
)  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(OPERATIONS)
def test_it_answers_as_the_store_in_memory(operations: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        store, spec = DuckDBStore(path, retention=RETENTION), MemoryStore(retention=RETENTION)
        seen: set[tuple[float, str]] = set()
        for name, argument in operations:
            if name == "open again":
                store.close()
                store = DuckDBStore(path, retention=RETENTION)
                continue
            rows = argument
            if name == "append":  # rows of equal time and series have no order between them
                rows = [s for s in argument if (s.ts, s.target) not in seen]
                seen |= {(s.ts, s.target) for s in rows}
            assert getattr(store, name)(rows) == getattr(spec, name)(rows)
        assert_same(store, spec)
        store.close()


# transactions


def test_an_append_that_fails_half_way_leaves_nothing_and_the_store_works_on(tmp_path: Path) -> None:
    store = DuckDBStore(tmp_path / "store.db")
    store.append([full(10.0)])
    broken = scrape(20.0, samples=(sample(20.0, signal="new"), sample(20.0, value="many")))
    with pytest.raises(StoreError, match=r"store\.db: cannot append scrapes"):
        store.append([broken])
    assert not store.health().ok
    assert "cannot append scrapes" in store.health().message
    store.append([scrape(30.0, samples=(sample(30.0, signal="new"),))])
    assert store.health().ok
    assert set(store.samples(15.0, INF)["signal"]) == {"new"}
    assert store.scrapes(0, INF)["ts"].to_list() == [10.0, 30.0]
    store.close()


def test_text_that_is_not_unicode_leaves_nothing_and_the_store_works_on(tmp_path: Path) -> None:
    store = DuckDBStore(tmp_path / "store.db")
    with pytest.raises(StoreError, match="a value is not of the kind that its column keeps"):
        store.append([scrape(20.0, samples=(sample(20.0, part="\ud800"),))])
    store.append([full(30.0)])
    assert store.scrapes(0, INF)["ts"].to_list() == [30.0]
    store.close()


def test_threads_may_share_it(tmp_path: Path) -> None:
    store = DuckDBStore(tmp_path / "store.db")

    def work(number: int) -> None:
        for k in range(10):
            store.append([full(float(k), f"t{number}")])
            store.samples(0, INF, target=f"t{number}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.samples(0, INF).height == 4 * 10 * 4
    store.close()


# the schema


def test_the_strings_of_a_series_and_bounds_are_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = DuckDBStore(path)
    for ts in range(5):
        store.append([full(float(ts))])
    store.close()
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("select count(*) from series").fetchall() == [(4,)]
        assert connection.execute("select count(*) from bounds").fetchall() == [(1,)]


def test_unused_series_and_bounds_go_with_their_last_row(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = DuckDBStore(path, retention=RETENTION)
    store.append([full(0.0, "old"), full(1000.0, "new")])
    store.compact(1000.0)
    store.close()
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("select distinct target from series").fetchall() == [("new",)]


def test_a_new_file_has_the_newest_schema_version(tmp_path: Path) -> None:
    DuckDBStore(tmp_path / "store.db").close()
    with duckdb.connect(str(tmp_path / "store.db")) as connection:
        assert connection.execute("from meta").fetchall() == [(len(_schema.MIGRATIONS),)]


def test_an_empty_duckdb_file_is_schema_version_0_and_is_migrated(tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "store.db")).close()
    store = DuckDBStore(tmp_path / "store.db")
    store.append([full()])
    assert store.samples(0, INF).height == 4
    store.close()


def test_a_migration_that_fails_leaves_the_old_version(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = DuckDBStore(path)
    store.append([full()])
    store.close()
    broken = ("create table later (a integer)", "create table later (a integer)")
    with duckdb.connect(str(path)) as connection, pytest.raises(duckdb.Error, match="already exists"):
        _schema.DATABASE.migrate(connection, path, (*_schema.MIGRATIONS, broken))
    store = DuckDBStore(path)
    assert store.samples(0, INF).height == 4
    store.close()


def test_a_migration_runs_once_and_keeps_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = DuckDBStore(path)
    store.append([full()])
    store.close()
    next_one = ("alter table scrapes add column later varchar",)
    with duckdb.connect(str(path)) as connection:
        for _ in range(2):
            _schema.DATABASE.migrate(connection, path, (*_schema.MIGRATIONS, next_one))
        assert connection.execute("select schema_version from meta").fetchall() == [(2,)]
        assert connection.execute("select later from scrapes").fetchall() == [(None,)]


def test_a_draft_that_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "store.db.new").write_bytes(b"half")
    DuckDBStore(tmp_path / "store.db").close()
    assert [p.name for p in tmp_path.iterdir()] == ["store.db"]


def test_neither_pyarrow_nor_numpy_is_needed(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = sys.modules['numpy'] = sys.modules['pandas'] = None\n"
        "from pathlib import Path\n"
        "from collector.stores.duckdb import DuckDBStore\n"
        "from tests.collector.stores.contract import full\n"
        "store = DuckDBStore(Path(sys.argv[1])); store.append([full(10.0)])\n"
        "print(store.samples(0, 100).height)\n"
        "store.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store.db")], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("4\n", "")
