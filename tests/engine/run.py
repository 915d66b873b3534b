"""One recorded run: start vLLM, scrape it, load it, stop it.

``python -m tests.engine.run ENGINE_FOLDER RECORDING_FOLDER`` leaves metrics.jsonl.gz, client_truth.jsonl,
phases.jsonl, events.jsonl, inspect.json and engine.log in the second folder, which is emptied of them first.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.engine.recorder import Recorder
from tests.engine.server import VllmServer

FILES: Final = ("metrics.jsonl.gz", "client_truth.jsonl", "phases.jsonl", "events.jsonl", "inspect.json", "engine.log")
LOAD_TIMEOUT_S = 480.0
WHOLE: Final = "_whole"


def record(engine_dir: Path, recording: Path) -> None:
    """Record the whole scenario; raises RuntimeError or CalledProcessError when engine or client fail."""
    recording.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (recording / name).unlink(missing_ok=True)
    server = VllmServer(engine_dir, port=_unused_port(), log=recording / "engine.log")
    _note(recording, "server starting")
    with server:
        _note(recording, "server ready")
        _inspect(server.url, recording)
        with Recorder(f"{server.url}/metrics", recording / "metrics.jsonl.gz"):
            _load(server.url, recording)
        _add_whole_phases(recording / "phases.jsonl")
        _note(recording, "SIGTERM")
    _note(recording, "server gone")


def _load(url: str, recording: Path) -> None:
    # A process of its own: the client's clock must not wait for the recorder's work, nor the other way round.
    command = [sys.executable, "-m", "tests.engine.load", url, str(recording)]
    subprocess.run(command, check=True, timeout=LOAD_TIMEOUT_S)


def _add_whole_phases(path: Path) -> None:
    """Each phase with its quiet end as one more, NAME_whole: from idle to idle.

    A loaded client reads its events late, so at an edge under load it can see dozens of requests end after the engine
    did; between two idle edges both hold the same requests.
    """
    found = {row["phase"]: row for row in map(json.loads, path.read_text().splitlines())}
    with path.open("a") as lines:
        for name, row in found.items():
            if (end := found.get(f"{name}_end")) is not None:
                whole = {"phase": f"{name}{WHOLE}", "start": row["start"], "end": end["end"]}
                lines.write(json.dumps(whole) + "\n")


def _inspect(url: str, recording: Path) -> None:
    """What ``goodwatch inspect`` says of the live engine, which also asks it for its version."""
    done = subprocess.run(
        [sys.executable, "-m", "goodwatch", "inspect", url, "--json"], check=True, timeout=60, capture_output=True
    )
    (recording / "inspect.json").write_bytes(done.stdout)


def _note(recording: Path, event: str) -> None:
    row = json.dumps({"ts": round(time.time(), 3), "event": event})
    with (recording / "events.jsonl").open("a") as lines:
        lines.write(row + "\n")
    print(row, flush=True)


def _unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Record with the folders named on the command line."""
    if len(sys.argv) != 3:
        sys.exit("run.py: two arguments are wanted: the engine's folder and the folder for the recording")
    record(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
