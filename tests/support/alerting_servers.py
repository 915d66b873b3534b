"""A real Prometheus that evaluates rules, a real Alertmanager, and a receiver of its webhooks; all on loopback.

Both are Debian packages (``prometheus``, ``prometheus-alertmanager``), started on free ports with their data in a folder
of the test.
"""

import json
import shutil
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.prometheus_server import PROMETHEUS, MetricsServer, Scraped, free_port, running

ALERTMANAGER: Final = shutil.which("prometheus-alertmanager")

needs_alertmanager = pytest.mark.skipif(
    ALERTMANAGER is None, reason="prometheus-alertmanager is not installed; Debian has it as a package"
)


@contextmanager
def ruling_prometheus(
    folder: Path,
    jobs: Sequence[Scraped],
    rules: Mapping[str, str],
    *,
    alertmanagers: Sequence[str] = (),
    interval: str = "1s",
) -> Iterator[MetricsServer]:
    """A Prometheus that scrapes ``jobs``, evaluates rule files (text by name) and tells Alertmanagers (``host:port``)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in rules.items():
        (folder / name).write_text(text)
    config = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": list(rules),
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]},
    }
    path, port = folder / "prometheus.yaml", free_port()
    scraped = "scrape_configs:\n" + "".join(job.yaml(interval) for job in jobs) if jobs else ""
    path.write_text(yaml.safe_dump(config) + scraped)
    assert PROMETHEUS is not None
    arguments = [
        PROMETHEUS, f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=10y",
    ]  # fmt: skip
    with running(arguments, folder / "log", f"http://127.0.0.1:{port}", "/-/ready") as server:
        yield server


@contextmanager
def alertmanager(folder: Path, config: Mapping[str, Any]) -> Iterator[MetricsServer]:
    """An Alertmanager alone, without a cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    path, port = folder / "alertmanager.yaml", free_port()
    path.write_text(yaml.safe_dump(dict(config)))
    assert ALERTMANAGER is not None
    arguments = [
        ALERTMANAGER, f"--config.file={path}", f"--storage.path={folder / 'data'}", "--cluster.listen-address=",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with running(arguments, folder / "log", f"http://127.0.0.1:{port}", "/-/ready") as server:
        yield server


@dataclass(frozen=True, slots=True)
class Told:
    """One request of a webhook: the receiver's path, when it came (Unix seconds), its body."""

    path: str
    at_s: float
    body: Mapping[str, Any]


@dataclass(slots=True)
class Receiver:
    """What came in over webhooks, in order; ``url`` is its root."""

    url: str = ""
    told: list[Told] = field(default_factory=list)

    def at(self, path: str) -> list[Told]:
        """What came to one path."""
        return [one for one in self.told if one.path == path]


@contextmanager
def webhook_receiver() -> Iterator[Receiver]:
    """A receiver on a free port that takes everything and answers 200."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.told.append(Told(self.path, time.time(), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def asked(server: MetricsServer, expr: str) -> list[tuple[dict[str, str], float]]:
    """Labels and values of an instant query."""
    query = urllib.parse.urlencode({"query": expr})
    with urllib.request.urlopen(f"{server.url}/api/v1/query?{query}", timeout=20) as answer:
        found = json.load(answer)["data"]["result"]
    return [(one["metric"], float(one["value"][1])) for one in found]
