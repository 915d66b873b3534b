"""What the operator reads when the request store's file cannot be used, and that it works again when the fault is gone."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from collector.stores._database import journal_of
from collector.stores.duckdb import DuckDBStore
from collector.stores.duckdb_requests import DuckDBRequestStore
from goodwatch.core.errors import StoreError
from tests.collector.stores.request_contract import INF, facts, part, parts, trace_id

ROOT = Path(__file__).parents[3]
KILLS = 6
ROWS = 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.db"


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


#: appends batches forever and prints the number of each once it is committed; settles every fifth
WRITER = f"""
import sys
from pathlib import Path
from collector.stores.duckdb_requests import DuckDBRequestStore
from tests.collector.stores.request_contract import facts, fact, part, parts
store = DuckDBRequestStore(Path(sys.argv[1]))
number = int(sys.argv[2])
while True:
    batch = parts(*(part(str(number), span) for span in range({ROWS})))
    store.append_parts([batch[:20], batch[20:]])
    print(number, flush=True)
    if number % 5 == 4:
        due = store.unsettled(1e9, 3)
        store.settle(due, facts(*(fact("", trace_id=one) for one in due)))
    if number % 50 == 49:
        store.compact(0.0)
    number += 1
"""


@pytest.mark.integration
def test_kill_9_loses_nothing_that_was_acknowledged_and_doubles_nothing(path: Path) -> None:
    chance = random.Random(4)
    acknowledged: list[str] = []
    for nth in range(KILLS):
        start = 10_000 * nth
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(start)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(chance.randint(1, 60))]
            time.sleep(chance.uniform(0, 0.04))  # the moment of the kill is the point of the test: any will do
            process.send_signal(signal.SIGKILL)
            said += [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        acknowledged += [line.strip() for line in said]
        store = DuckDBRequestStore(path)
        found = store.parts([trace_id(number) for number in acknowledged])
        assert found.group_by("trace_id").len()["len"].unique().to_list() == [ROWS]
        assert found["trace_id"].n_unique() == len(acknowledged)
        waiting, settled = store.unsettled(INF, 10**6), store.facts(0, INF)["trace_id"].to_list()
        assert len(settled) == len(set(settled))
        assert set(waiting).isdisjoint(settled)
        assert set(map(trace_id, acknowledged)) <= set(waiting) | set(settled)
        repeated = parts(*(part(acknowledged[-1], span) for span in range(ROWS + 1)))
        assert store.append_parts([repeated]) == 1
        assert store.append_parts([parts(part(acknowledged[-1], ROWS))]) == 0
        acknowledged.pop()
        store.close()


def test_a_limit_on_file_size_is_said_and_the_store_works_on_when_it_is_raised(path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from collector.stores.duckdb_requests import DuckDBRequestStore
from goodwatch.core.errors import StoreError
from tests.collector.stores.request_contract import facts, part, parts, trace_id
store = DuckDBRequestStore(Path(sys.argv[1]))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (12_000_000, hard))
committed = []
try:
    for number in range(1000):
        store.append_parts([parts(*(part(f"{number:04}", span, name="x" * 50 + str(span)) for span in range(2000)))])
        committed.append(number)
except StoreError as error:
    print(error)
print(store.health().ok)
waiting = store.unsettled(1e9, 10000)
print(waiting == [trace_id(f"{number:04}") for number in committed], len(committed) > 3)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print(store.append_parts([parts(part("0000"), part("new"))]), store.health().ok)
print(store.parts([trace_id("0000")]).height, len(store.unsettled(1e9, 10000)) == len(committed) + 1)
store.close()
"""
    done = run(code, path)
    assert done.stderr == ""
    first, *rest = done.stdout.splitlines()
    assert "cannot append parts: no room on the disk; free space" in first
    assert rest == ["False", "True True", "1 True", "2000 True"]


def test_a_file_that_another_process_holds_is_said_with_that_process(path: Path) -> None:
    holder = DuckDBRequestStore(path)
    code = """
import sys
from pathlib import Path
from collector.stores.duckdb_requests import DuckDBRequestStore
DuckDBRequestStore(Path(sys.argv[1]))
"""
    said = run(code, path).stderr
    holder.close()
    assert "requests.db: cannot open the store: process " in said
    assert "only one process can; ask that service's API instead" in said


@pytest.mark.parametrize("content", [b"not a database" * 100, b"\0" * 8192])
def test_a_damaged_file_is_said_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged, or not a store; it was left as it is"):
        DuckDBRequestStore(path)
    assert path.read_bytes() == content


def test_a_damaged_block_is_said_by_who_reads_it(path: Path) -> None:
    store = DuckDBRequestStore(path)
    for number in range(3):
        store.append_parts([parts(*(part(f"{number}{n}", name=str(n * 7919)) for n in range(5000)))])
    store.compact(0.0)
    store.close()
    content = bytearray(path.read_bytes())
    for place in range(3 * 4096 + 100, len(content), 5000):
        content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged, or not a store"):
        DuckDBRequestStore(path).parts([trace_id("00")])


def test_a_damaged_journal_is_said(path: Path) -> None:
    DuckDBRequestStore(path).close()
    journal_of(path).write_bytes(b"xxxxxxxx")
    with pytest.raises(StoreError, match="the journal is damaged at its head"):
        DuckDBRequestStore(path)


def test_the_file_of_another_store_is_refused(path: Path) -> None:
    DuckDBStore(path).close()
    with pytest.raises(StoreError, match="not a store of requests; keep requests in another file"):
        DuckDBRequestStore(path)


def test_a_newer_store_is_refused(path: Path) -> None:
    DuckDBRequestStore(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("update request_meta set schema_version = 99")
    with pytest.raises(StoreError, match="has schema version 99 and this goodwatch knows"):
        DuckDBRequestStore(path)


def test_a_folder_is_refused_with_a_name_that_would_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"name a file in it, such as .*requests\.db"):
        DuckDBRequestStore(tmp_path)


def test_a_fault_is_gone_when_the_cause_is(path: Path) -> None:
    store = DuckDBRequestStore(path)
    store.append_parts([parts(part("a"))])
    store._let_go()
    with duckdb.connect(str(path)) as connection:  # somebody changed the file under the service
        connection.execute("alter table facts rename to facts_gone")
    with pytest.raises(StoreError, match="cannot"):
        store.settle([trace_id("a")], facts())
    assert not store.health().ok
    store._let_go()
    with duckdb.connect(str(path)) as connection:
        connection.execute("alter table facts_gone rename to facts")
    store.settle([trace_id("a")], facts())
    assert store.health().ok
    store.close()
