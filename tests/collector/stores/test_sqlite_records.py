"""Records: every version is kept, on disk at once, for several processes."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.stores.sqlite_records import SqliteRecords
from goodwatch.core.errors import StoreError
from goodwatch.core.ports import RecordStore
from goodwatch.core.record import Record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[RecordStore]:
    made = SqliteRecords(path)
    yield made
    made.close()


def test_an_empty_store_has_no_records(store: RecordStore) -> None:
    assert store.latest("alert") == []
    assert store.get("alert", "a") is None
    assert store.history("alert", "a") == []


def test_every_version_of_a_record_is_kept_and_the_newest_is_what_it_is_now(store: RecordStore) -> None:
    store.put("alert", "a", 1.0, {"state": "firing", "labels": {"service": "chat"}})
    store.put("alert", "b", 2.0, {"state": "firing"})
    store.put("alert", "a", 3.0, {"state": "resolved"})
    store.put("silence", "a", 4.0, {})
    assert store.get("alert", "a") == Record("alert", "a", 3.0, {"state": "resolved"})
    assert [one.body["state"] for one in store.history("alert", "a")] == ["firing", "resolved"]
    assert [(one.id, one.at_s) for one in store.latest("alert")] == [("a", 3.0), ("b", 2.0)]


def test_a_record_is_looked_for_by_the_time_of_its_newest_version(store: RecordStore) -> None:
    store.put("alert", "a", 1.0, {})
    store.put("alert", "a", 3.0, {})
    store.put("alert", "b", 2.0, {})
    assert [one.id for one in store.latest("alert", start_s=0.0, end_s=3.0)] == ["b"]
    assert [one.id for one in store.latest("alert", start_s=2.0)] == ["a", "b"]
    assert [one.id for one in store.latest("alert", limit=1)] == ["a"]


def test_the_version_written_last_counts_even_where_the_clock_went_back(store: RecordStore) -> None:
    store.put("alert", "a", 9.0, {"v": 1})
    store.put("alert", "a", 5.0, {"v": 2})
    found = store.get("alert", "a")
    assert found is not None
    assert found.body == {"v": 2}
    assert [one.body for one in store.latest("alert")] == [{"v": 2}]


def test_records_outlive_the_process(path: Path, store: RecordStore) -> None:
    code = (
        "import os, sys; from pathlib import Path; from collector.stores.sqlite_records import SqliteRecords;"
        "SqliteRecords(Path(sys.argv[1])).put('note', 'n', 1.0, {'text': '过'}); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    assert store.history("note", "n") == [Record("note", "n", 1.0, {"text": "过"})]


def test_threads_write_at_once_and_nothing_is_lost(path: Path) -> None:
    stores = [SqliteRecords(path) for _ in range(4)]

    def write(store: SqliteRecords, name: int) -> None:
        for place in range(25):
            store.put("n", f"{name}-{place}", float(place), {})

    threads = [threading.Thread(target=write, args=(store, name)) for name, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores[0].latest("n")) == 100
    for store in stores:
        store.close()


def test_a_body_that_json_cannot_hold_is_refused_and_nothing_is_kept(store: RecordStore) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.put("n", "a", 1.0, {"x": float("nan")})
    assert store.latest("n") == []


def test_a_database_of_another_program_is_left_alone(path: Path, store: RecordStore) -> None:
    with sqlite3.connect(path) as other:
        other.execute("create table theirs (x)")
    other.close()
    with pytest.raises(StoreError, match="another program"):
        store.put("n", "a", 1.0, {})


def test_a_file_that_is_no_database_is_an_error_that_names_it_and_the_store_works_once_it_is_gone(
    path: Path, store: RecordStore
) -> None:
    path.write_text("x" * 5000, encoding="utf-8")
    with pytest.raises(StoreError, match=r"records\.sqlite"):
        store.latest("n")
    assert not store.health().ok
    path.unlink()
    store.put("n", "a", 1.0, {})
    assert store.health().ok
    assert store.health().bytes > 0


def test_a_closed_store_says_so(store: RecordStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.put("n", "a", 1.0, {})
