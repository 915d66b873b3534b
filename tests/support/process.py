"""A real ``goodwatch`` process, and questions to it over HTTP."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
READY = re.compile(r"(http://[\d.\[\]:a-f]+/)")


class Running:
    """A process whose output is collected; ``url`` is where it answers."""

    def __init__(self, arguments: Sequence[str], *, environ: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "goodwatch", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environ or {})},
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def url(self, timeout_s: float = 40) -> str:
        """The URL that it said it answers on."""

        def found() -> str | None:
            hit = next((READY.search(line) for line in self.lines if "ready url=" in line), None)
            if self.process.poll() is not None and hit is None:
                raise AssertionError(f"it ended with {self.process.returncode}:\n{self.output}")
            return hit[1] if hit else None

        return wait_for(found, timeout_s, lambda: self.output)

    def get(self, path: str) -> Any:
        """JSON of a path, or its text."""
        with urllib.request.urlopen(self.url().rstrip("/") + path, timeout=20) as answer:
            body = answer.read().decode()
            return json.loads(body) if "json" in answer.headers["Content-Type"] else body

    def status(self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> int:
        """HTTP status of a path."""
        request = urllib.request.Request(self.url().rstrip("/") + path, method=method, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM, timeout_s: float = 20) -> int:
        """Send a signal and wait; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        self._reader.join(5)
        return code


def wait_for(ask: Callable[[], T | None], timeout_s: float, tell: Callable[[], str] = str) -> T:
    """The first answer that is not None or false, asked every 50 ms."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"nothing within {timeout_s} s: {tell()}")


@contextmanager
def running(*arguments: str, environ: dict[str, str] | None = None) -> Iterator[Running]:
    """A process that is killed at the end, whatever happens."""
    process = Running(arguments, environ=environ)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait(10)
        if process.process.stdout is not None:
            process._reader.join(5)
            process.process.stdout.close()
