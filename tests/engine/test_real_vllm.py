"""goodwatch's replay of a real vLLM, held against what the clients of the same run saw.

Deselected unless GOODWATCH_ENGINE_TEST=1 (``make engine-test``). GOODWATCH_ENGINE_DIR names the engine's folder
(default .engine-test); GOODWATCH_ENGINE_RECORDING names a finished recording to compare again without a new run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.compare import (
    TPOT_LIMIT_S,
    TTFT_LIMIT_S,
    Line,
    compare_attainment,
    compare_counts,
    compare_latency,
    compare_totals,
    table,
)
from tests.engine.run import WHOLE, record
from tests.engine.setup import is_ready
from tests.engine.truth import Page, Row, read_pages, read_rows, window

pytestmark = pytest.mark.engine

LATENCY_PHASES = tuple(f"{name}{WHOLE}" for name in ("calm", "overload", "kv_pressure", "recovery"))


@pytest.fixture(scope="module")
def recording() -> Path:
    """A folder with the recording of a whole run."""
    if finished := os.environ.get("GOODWATCH_ENGINE_RECORDING"):
        return Path(finished)
    engine_dir = Path(os.environ.get("GOODWATCH_ENGINE_DIR", ".engine-test")).resolve()
    assert is_ready(engine_dir), f"{engine_dir}: no vLLM there; run `python -m tests.engine.setup {engine_dir}`"
    folder = Path(os.environ.get("GOODWATCH_ENGINE_OUT", engine_dir / "recording")).resolve()
    record(engine_dir, folder)
    return folder


@pytest.fixture(scope="module")
def rows(recording: Path) -> list[Row]:
    """What the clients saw."""
    return read_rows(recording / "client_truth.jsonl")


@pytest.fixture(scope="module")
def pages(recording: Path) -> list[Page]:
    """What the engine's page said."""
    return read_pages(recording / "metrics.jsonl.gz")


@pytest.fixture(scope="module")
def phases(recording: Path) -> list[dict[str, Any]]:
    """The replay's phases, as the command prints them."""
    command = ["replay", str(recording), "--ttft", str(TTFT_LIMIT_S), "--tpot", str(TPOT_LIMIT_S), "--json"]
    run = "from goodwatch.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", run, *command], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"goodwatch {' '.join(command)} ended with {done.returncode}:\n{done.stderr}"
    said = json.loads(done.stdout)
    assert said["engine"] == "vllm"
    found: list[dict[str, Any]] = said["phases"]
    return found


def agree(lines: list[Line]) -> None:
    """Print the comparison; fail with the lines that are off."""
    print("\n" + table(lines))
    off = [line for line in lines if not line.ok]
    assert not off, "\n" + table(off)


def test_the_engine_tells_its_version(recording: Path) -> None:
    said = json.loads((recording / "inspect.json").read_text())
    started = (recording / "engine.log").read_text(errors="replace")
    assert said["engine"] == "vllm"
    assert said["version_basis"] == "told by the engine"
    assert said["version"]
    assert f"version {said['version']}" in started, "vLLM names its version in its log when it starts"


def test_every_request_succeeded(rows: list[Row]) -> None:
    assert {row.status for row in rows} == {"ok"}


def test_every_phase_of_the_recording_is_replayed(recording: Path, phases: list[dict[str, Any]]) -> None:
    done = [json.loads(line) for line in (recording / "phases.jsonl").read_text().splitlines()]
    assert [phase["name"] for phase in phases] == [phase["phase"] for phase in done]


def test_nothing_is_lost_or_counted_twice(rows: list[Row], phases: list[dict[str, Any]]) -> None:
    agree(compare_totals([p for p in phases if not p["name"].endswith(WHOLE)], rows))


def test_counts_agree_within_one_scrape(rows: list[Row], pages: list[Page], phases: list[dict[str, Any]]) -> None:
    cuts = [(phase, window(phase["start"], phase["end"], pages)) for phase in phases]
    agree([line for phase, cut in cuts for line in compare_counts(phase, rows, cut)])


@pytest.mark.parametrize("what", ["ttft_s", "e2e_s"])
def test_the_clients_quantiles_lie_in_the_intervals(
    what: str, rows: list[Row], pages: list[Page], phases: list[dict[str, Any]]
) -> None:
    lines = []
    for phase in phases:
        if phase["name"] in LATENCY_PHASES:
            cut = window(phase["start"], phase["end"], pages)
            lines += compare_latency(phase, what, rows, pages, cut)
    assert lines, "no phase had requests enough to compare"
    agree(lines)


def test_the_clients_attainment_lies_in_the_bounds(
    rows: list[Row], pages: list[Page], phases: list[dict[str, Any]]
) -> None:
    lines = []
    for phase in phases:
        if phase["name"] in LATENCY_PHASES:
            cut = window(phase["start"], phase["end"], pages)
            lines += compare_attainment(phase, rows, pages, cut)
    assert lines, "no phase had requests enough to compare"
    agree(lines)


def test_preemptions_show_under_kv_pressure_and_nowhere_in_the_calm(phases: list[dict[str, Any]]) -> None:
    said = {phase["name"]: phase["preemptions"] for phase in phases}
    print("\npreemptions: " + ", ".join(f"{name} {number}" for name, number in said.items()))
    assert said["kv_pressure"] + said["kv_pressure_end"] > 0
    assert said["calm"] == 0


def test_the_overload_is_seen_as_one(phases: list[dict[str, Any]]) -> None:
    """The p90 TTFT under overload lies wholly above that of the calm."""
    calm, overload = (next(phase for phase in phases if phase["name"] == name) for name in ("calm", "overload"))
    assert overload["ttft_s"]["p90"][0] >= calm["ttft_s"]["p90"][1]
