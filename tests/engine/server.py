"""A real vLLM as a child process: small enough to overload and to run out of KV cache.

Between the test and vLLM stands a guard (this module as a program): it holds a pipe whose other end is the test's, so
that the engine goes even when the test is killed and can clean up nothing.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

READY_TIMEOUT_S = 420.0  # measured 35 to 215 s on two cores that were busy with other work
STOP_TIMEOUT_S = 20.0
BLOCKS, BLOCK_TOKENS = 256, 32  # 8,192 tokens of KV cache: four requests of the longest kind
FLAGS: Final = (
    *("--served-model-name", "tiny", "--dtype", "bfloat16", "--max-model-len", "2048"),
    *("--max-num-seqs", "16", "--max-num-batched-tokens", "2048"),
    *("--block-size", str(BLOCK_TOKENS), "--num-gpu-blocks-override", str(BLOCKS)),
    *("--enable-prompt-tokens-details", "--enable-request-id-headers", "--enforce-eager"),
)
ENVIRONMENT: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


class VllmServer:
    """``with VllmServer(...)``: healthy inside the block, gone with its whole process group after it."""

    def __init__(self, engine_dir: Path, *, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        # Behind the client in line for the processors: a stopwatch that waits for the engine's own work tells nothing.
        self._command = [
            *(sys.executable, "-m", "tests.engine.server", "nice", "-n", "10"),
            *(str(engine_dir / "venv/bin/vllm"), "serve", str(engine_dir / "tiny")),
            *("--host", "127.0.0.1", "--port", str(port), *FLAGS),
        ]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_healthy(self._process)
        except BaseException:  # interrupted as well: the engine must not outlive the test
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask the group to end, then end what is left of it."""
        if self._process is None or self._process.stdin is None:
            return
        _signal_group(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        _signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process = None

    def log_tail(self, lines: int = 30) -> str:
        """The last lines that the engine printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"vLLM ended with status {process.returncode}:\n{self.log_tail()}")
            if _is_healthy(self.url):
                return
            time.sleep(0.5)
        raise RuntimeError(f"vLLM was not healthy after {READY_TIMEOUT_S:.0f} s:\n{self.log_tail()}")


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:  # refused while it starts; urllib's own errors are OSErrors
        return False


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def guard(command: list[str]) -> int:
    """Run the command; end the whole process group when standard input closes. Returns the command's status."""
    if os.getpgrp() != os.getpid():
        os.setpgrp()  # never the group of whoever started it
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # meant for the command, which is in the same group
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_group_at_end_of_input, daemon=True).start()
    return child.wait()


def _end_group_at_end_of_input() -> None:
    os.read(0, 1)  # nothing is ever written: this returns when the other end is gone
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
