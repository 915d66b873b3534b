"""What the operator reads when the file cannot be used, and that the store works again when the fault is gone."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from collector.stores._database import journal_of
from collector.stores.duckdb import DuckDBStore
from goodwatch.core.errors import StoreError
from tests.collector.stores.contract import INF, full, sample, scrape
from tests.collector.stores.writer import numbered

ROOT = Path(__file__).parents[3]


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


class SmallDisk:
    """A tmpfs of a few MiB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], check=False)
    if made.returncode != 0:
        pytest.skip("only root may mount a small disk; the tests with a limit on file size and chmod run instead")
    yield SmallDisk(folder)
    subprocess.run(["umount", str(folder)], check=True)


def fill(store: DuckDBStore, committed: list[float]) -> None:
    for number in range(1000):
        store.append([numbered(number, samples=500)])
        committed.append(float(number))


# no room


def test_a_full_disk_is_said_and_the_store_works_on_when_there_is_room(disk: SmallDisk) -> None:
    store = DuckDBStore(disk.folder / "store.db")
    committed: list[float] = []
    with pytest.raises(StoreError, match=r"store\.db: cannot append scrapes: no room on the disk; free space"):
        fill(store, committed)
    assert committed
    for _ in range(3):
        with pytest.raises(StoreError, match="no room"):
            store.append([numbered(2000, samples=2000)])
    assert not store.health().ok
    assert "no room" in store.health().message
    assert store.scrapes(0, INF)["ts"].to_list() == committed
    disk.remount("size=60m")
    store.append([numbered(3000, samples=500)])
    assert store.health().ok
    assert store.scrapes(0, INF)["ts"].to_list() == [*committed, 3000.0]
    assert store.samples(0, INF).height == 500 * (len(committed) + 1)
    store.close()


def test_a_limit_on_file_size_is_said_and_the_store_works_on_when_it_is_raised(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from collector.stores.duckdb import DuckDBStore
from goodwatch.core.errors import StoreError
from tests.collector.stores.writer import numbered
store = DuckDBStore(Path(sys.argv[1]))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
committed = []
try:
    for number in range(1000):
        store.append([numbered(number, samples=500)])
        committed.append(float(number))
except StoreError as error:
    print(error)
print(store.health().ok)
print(store.scrapes(0, 1e9)["ts"].to_list() == committed, len(committed) > 3)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
store.append([numbered(5000, samples=500)])
print(store.health().ok, store.scrapes(0, 1e9)["ts"].to_list() == [*committed, 5000.0])
store.close()
"""
    done = run(code, tmp_path / "store.db")
    assert done.stderr == ""
    first, *rest = done.stdout.splitlines()
    assert "cannot append scrapes: no room on the disk" in first
    assert rest == ["False", "True True", "True True"]


# not ours to write


def test_a_read_only_disk_is_said_for_a_new_and_for_an_old_file(disk: SmallDisk) -> None:
    DuckDBStore(disk.folder / "store.db").close()
    disk.remount("ro")
    for name in ("store.db", "new.db"):
        with pytest.raises(StoreError, match=rf"{name}: cannot open the store: not writable; let the service's user"):
            DuckDBStore(disk.folder / name)


def test_a_read_only_folder_is_said() -> None:
    code = """
import os, sys
from pathlib import Path
from collector.stores.duckdb import DuckDBStore
from goodwatch.core.errors import StoreError
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write everywhere
try:
    DuckDBStore(Path(sys.argv[1]))
except StoreError as error:
    print(error)
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        done = run(code, Path(folder) / "store.db")
        Path(folder).chmod(0o700)
    assert (done.stderr, "store.db: cannot open the store: not writable" in done.stdout) == ("", True), done.stdout


def test_a_folder_in_place_of_the_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is a folder; .* such as .*store\.db"):
        DuckDBStore(tmp_path)


def test_a_file_in_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot open the store"):
        DuckDBStore(tmp_path / "file" / "store.db")


# held by another process


def test_a_file_that_another_process_holds_is_refused_with_its_pid(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    code = (
        "import sys\nfrom pathlib import Path\nfrom collector.stores.duckdb import DuckDBStore\n"
        "store = DuckDBStore(Path(sys.argv[1]))\nprint('open', flush=True)\nsys.stdin.read()\nstore.close()\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=rf"process {holder.pid} .* has the file open.*API"):
            DuckDBStore(path)
        holder.communicate("")
    store = DuckDBStore(path)
    store.append([full()])
    assert run("import duckdb, sys; duckdb.connect(sys.argv[1])", path).returncode != 0
    store.close()
    assert run("import duckdb, sys; duckdb.connect(sys.argv[1]).close()", path).returncode == 0


# not a store, or not any more


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A closed store of several blocks."""
    store = DuckDBStore(tmp_path / "store.db")
    for number in range(20):
        store.append([numbered(number, samples=500)])
    store.close()
    return tmp_path / "store.db"


def overwrite(path: Path, offset: int, size: int = 64) -> bytes:
    content = bytearray(path.read_bytes())
    content[offset : offset + size] = b"\xaa" * size
    path.write_bytes(content)
    return bytes(content)


@pytest.mark.parametrize("offset", [0, 8, 16])
def test_a_damaged_head_is_said_and_the_file_left_alone(written: Path, offset: int) -> None:
    content = overwrite(written, offset)
    with pytest.raises(StoreError, match=r"store\.db: cannot open the store: damaged.*left as it is: move it"):
        DuckDBStore(written)
    assert written.read_bytes() == content


def test_damaged_rows_are_said_when_they_are_read_and_the_file_left_alone(written: Path) -> None:
    size = written.stat().st_size
    content = overwrite(written, 12288, size - 12288)
    with pytest.raises(StoreError, match="damaged"):
        DuckDBStore(written).samples(0, INF)
    assert written.read_bytes() == content


def test_one_damaged_block_is_never_read_as_if_it_were_well(written: Path) -> None:
    intact = written.read_bytes()
    said: list[str] = []
    for block in range(12288, len(intact), 262144):
        written.write_bytes(intact)
        content = overwrite(written, block + 4096)
        try:
            store = DuckDBStore(written)
            assert store.samples(0, INF).height == 20 * 500
            store.close()
        except StoreError as error:
            said.append(str(error))
        assert written.read_bytes() == content
    assert said
    assert all("damaged" in line for line in said)


def journal_left_by_a_kill(path: Path) -> Path:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom collector.stores.duckdb import DuckDBStore\n"
        "from tests.collector.stores.writer import numbered\nstore = DuckDBStore(Path(sys.argv[1]))\n"
        "for number in range(100, 120): store.append([numbered(number, samples=5)])\nos._exit(0)\n"
    )
    assert run(code, path).returncode == 0
    return journal_of(path)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_damaged_journal_is_said_and_left_alone(written: Path, share: float) -> None:
    journal = journal_left_by_a_kill(written)
    content = overwrite(journal, int(share * journal.stat().st_size), 8)
    before = written.read_bytes()
    with pytest.raises(StoreError, match="damaged"):
        DuckDBStore(written)
    assert (written.read_bytes(), journal.read_bytes()) == (before, content)


def test_a_journal_that_was_cut_off_loses_only_its_last_commit(written: Path) -> None:
    journal = journal_left_by_a_kill(written)
    journal.write_bytes(journal.read_bytes()[:-100])
    store = DuckDBStore(written)
    assert store.scrapes(100, INF)["ts"].to_list() == [float(n) for n in range(100, 119)]
    store.close()


@pytest.mark.parametrize("content", [b"", b"hello" * 10_000, b"SQLite format 3\0" + bytes(8192)])
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged, or not a store"):
        DuckDBStore(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("table", ["mine (a integer)", "meta (schema_version varchar)"])
def test_somebody_elses_duckdb_file_is_refused(tmp_path: Path, table: str) -> None:
    path = tmp_path / "store.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create table {table}")
    with pytest.raises(StoreError, match="goodwatch did not write"):
        DuckDBStore(path)


def test_a_store_of_a_newer_schema_is_refused(written: Path) -> None:
    with duckdb.connect(str(written)) as connection:
        connection.execute("update meta set schema_version = 99")
    with pytest.raises(StoreError, match=r"schema version 99 and this goodwatch knows 1; upgrade goodwatch"):
        DuckDBStore(written)


def test_a_fault_while_running_is_over_when_its_cause_is(written: Path) -> None:
    store = DuckDBStore(written)
    with pytest.raises(StoreError):
        store.append([scrape(samples=(sample(value="many"),))])
    content = written.read_bytes()
    overwrite(written, 0)
    assert not store.health().ok
    with pytest.raises(StoreError, match="damaged"):
        store.append([full(50.0)])
    with pytest.raises(StoreError, match="damaged"):
        store.samples(0, 1)
    written.write_bytes(content)
    store.append([full(50.0)])
    assert store.health().ok
    store.close()
