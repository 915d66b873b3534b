"""Scrape one /metrics page about once a second and keep every body as it came.

One JSON object a line, gzipped: ``ts`` (Unix seconds at the start of the scrape), ``elapsed_s``, ``accept``,
``status``, ``content_type``, ``body``. A failed scrape has status 0 and ``error`` in place of a body.
"""

import gzip
import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TEXT = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
EVERY_S = 1.0
OPENMETRICS_EVERY = 15  # every so many scrapes the page is also asked for in the other format


def scrape(url: str, accept: str, *, timeout_s: float = 10.0) -> dict[str, Any]:
    """One scrape as a row; never raises for what the server or the network does."""
    row: dict[str, Any] = {"ts": round(time.time(), 3), "accept": accept}
    began_s = time.perf_counter()
    try:
        request = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            row |= {"status": reply.status, "content_type": reply.headers.get("Content-Type")}
            row["body"] = reply.read().decode()
    except urllib.error.HTTPError as error:
        row |= {"status": error.code, "error": str(error), "body": error.read().decode(errors="replace")}
    except OSError as error:
        row |= {"status": 0, "error": f"{type(error).__name__}: {error}"}
    row["elapsed_s"] = round(time.perf_counter() - began_s, 4)
    return row


class Recorder:
    """``with Recorder(url, path)``: scrapes in a thread for as long as the block lasts."""

    def __init__(self, url: str, path: Path) -> None:
        self._url = url
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        due_s = time.monotonic()
        with gzip.open(self._path, "wt") as lines:
            for number in itertools.count():
                lines.write(json.dumps(scrape(self._url, TEXT)) + "\n")
                if number % OPENMETRICS_EVERY == 0:
                    lines.write(json.dumps(scrape(self._url, OPENMETRICS)) + "\n")
                due_s = max(due_s + EVERY_S, time.monotonic())
                if self._stop.wait(max(0.0, due_s - time.monotonic())):
                    break
            lines.write(json.dumps(scrape(self._url, TEXT)) + "\n")  # so that the last phase has a scrape after it
