"""The guard between a test and its engine, with small commands in the engine's place."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engine.server import VllmServer

pytestmark = pytest.mark.integration

GUARD = [sys.executable, "-m", "tests.engine.server"]
# Says its own number and its child's, then stays; like an engine it has a child in the same group.
ENGINE = "sleep 600 & echo $$ $!; wait"


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, f"still running: {pids}"
        time.sleep(0.01)


def test_the_engine_goes_when_its_test_is_killed() -> None:
    with subprocess.Popen(
        [*GUARD, "bash", "-c", ENGINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as guard:
        assert guard.stdin is not None
        assert guard.stdout is not None
        pids = [int(word) for word in guard.stdout.readline().split()]
        assert all(map(is_running, pids))
        guard.stdin.close()  # what the system does to the pipe of a killed process
        assert guard.wait(10) == -signal.SIGKILL
    assert_gone(pids)


def test_the_guard_ends_as_the_engine_did() -> None:
    with subprocess.Popen([*GUARD, "bash", "-c", "exit 3"], stdin=subprocess.PIPE) as guard:
        assert guard.wait(10) == 3


def test_an_engine_that_ends_at_once_is_told_with_its_log(tmp_path: Path, free_port: int) -> None:
    engine = tmp_path / "venv/bin/vllm"
    engine.parent.mkdir(parents=True)
    engine.write_text("#!/bin/sh\necho no such model >&2\nexit 4\n")
    engine.chmod(0o755)
    server = VllmServer(tmp_path, port=free_port, log=tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"status 4:\nno such model"), server:
        pass
