"""What was acknowledged is there after a kill at any moment, and the journal stays small."""

import itertools
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.stores._database import journal_of
from collector.stores.duckdb import DuckDBStore
from tests.collector.stores.writer import SAMPLES, numbered

KILLS = 14
ROOT = Path(__file__).parents[3]


def killed_run(path: Path, start: int, wanted: int, extra_s: float) -> list[int]:
    """Numbers that a writer acknowledged before it was killed ``extra_s`` after it said ``wanted`` numbers."""
    command = [sys.executable, "-m", "tests.collector.stores.writer", str(path), str(start)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(wanted)]
        time.sleep(extra_s)  # the moment of the kill is the point of the test: any will do
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    assert process.returncode == -signal.SIGKILL
    return said


@pytest.mark.integration
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chance = random.Random(4)
    acknowledged: list[int] = []
    for run in range(KILLS):
        # every third run is killed while it starts: imports, creation, replay of the journal
        starts = run % 3 == 0
        wanted, extra_s = (0, chance.uniform(0.2, 1.0)) if starts else (chance.randint(1, 45), chance.uniform(0, 0.04))
        start = 1000 * run
        said = killed_run(path, start, wanted, extra_s)
        assert said == list(range(start, start + len(said)))
        acknowledged += said
        store = DuckDBStore(path)
        found = [int(ts) for ts in store.scrapes(0, 1e9)["ts"]]
        samples = store.samples(start, start + 1000)
        store.close()
        assert len(found) == len(set(found)), "a scrape is there twice"
        assert set(acknowledged) <= set(found), "an acknowledged scrape is lost"
        unsaid = [number for number in found if number >= start and number not in said]
        assert len(unsaid) <= 1, "only the last commit may be there without its acknowledgement"
        assert set(samples.group_by("ts").len()["len"]) <= {SAMPLES}, "a scrape is there in part"
        acknowledged += unsaid
    assert len(acknowledged) > KILLS


def test_the_journal_is_written_back_before_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = DuckDBStore(path)
    sizes = []
    for number in range(30):
        store.append([numbered(number, samples=4000)])
        sizes.append(journal_of(path).stat().st_size if journal_of(path).exists() else 0)
    store.close()
    assert max(sizes) < 20 * 2**20
    assert any(later < earlier for earlier, later in itertools.pairwise(sizes))
    assert not journal_of(path).exists()
