"""A real Prometheus or VictoriaMetrics on loopback, for tests: it scrapes what it is told and keeps what it is given.

Both are Debian packages (``prometheus``, ``victoria-metrics``). Each starts on a free port with its data in a folder of
the test, and is ready when its own readiness path says so.
"""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

PROMETHEUS: Final = shutil.which("prometheus")
PROMTOOL: Final = shutil.which("promtool")
VICTORIA: Final = shutil.which("victoria-metrics")

needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="prometheus is not installed; Debian has it as a package"
)
needs_victoria = pytest.mark.skipif(
    VICTORIA is None, reason="victoria-metrics is not installed; Debian has it as a package"
)

_READY_WITHIN_S: Final = 30.0


@dataclass(slots=True)
class MetricsServer:
    """A running server: ``url`` is the root of its API."""

    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def stop(self) -> None:
        """End it now."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)


@dataclass(frozen=True, slots=True)
class Scraped:
    """One job: where its targets are (``host:port``), which labels they get, where the metrics are."""

    targets: Sequence[str]
    job: str = "vllm"
    labels: Mapping[str, str] | None = None
    path: str = "/metrics"

    def yaml(self, interval: str) -> str:
        labels = "".join(f"\n          {name}: {value}" for name, value in (self.labels or {}).items())
        static = f"      - targets: [{', '.join(self.targets)}]" + (f"\n        labels:{labels}" if labels else "")
        return (
            f"  - job_name: {self.job}\n    scrape_interval: {interval}\n    scrape_timeout: {interval}\n"
            f"    metrics_path: {self.path}\n    static_configs:\n{static}\n"
        )


@contextmanager
def prometheus_server(folder: Path, jobs: Sequence[Scraped] = (), *, interval: str = "1s") -> Iterator[MetricsServer]:
    """A Prometheus whose data is in ``folder/tsdb``; blocks that are there already are served."""
    folder.mkdir(parents=True, exist_ok=True)
    config, port = _scrape_config(folder, jobs, interval), free_port()
    assert PROMETHEUS is not None
    arguments = [
        PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=10y",
    ]  # fmt: skip
    with running(arguments, folder / "log", f"http://127.0.0.1:{port}", "/-/ready") as server:
        yield server


@contextmanager
def victoria_server(folder: Path, jobs: Sequence[Scraped] = (), *, interval: str = "1s") -> Iterator[MetricsServer]:
    """A single-node VictoriaMetrics whose data is in ``folder/vm``."""
    folder.mkdir(parents=True, exist_ok=True)
    config, port = _scrape_config(folder, jobs, interval), free_port()
    assert VICTORIA is not None
    arguments = [
        VICTORIA, f"-storageDataPath={folder / 'vm'}", f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=100y",
        f"-promscrape.config={config}", "-search.disableCache", "-loggerLevel=WARN",
        "-maxLabelsPerTimeseries=64",  # vLLM's cache_config_info has 38, above the default of 30
        "-memory.allowedBytes=256MB", "-storage.minFreeDiskSpaceBytes=10MB",
    ]  # fmt: skip
    with running(arguments, folder / "log", f"http://127.0.0.1:{port}", "/health") as server:
        yield server


def fill_prometheus(folder: Path, openmetrics: str) -> None:
    """Make blocks of samples with timestamps, before the server starts on the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "history.om"
    source.write_text(openmetrics)
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=720h",
         str(source), str(folder / "tsdb")], capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def fill_victoria(server: MetricsServer, openmetrics: str) -> None:
    """Import samples with timestamps (seconds in the text, milliseconds on its API)."""
    lines = (line.rsplit(" ", 1) for line in openmetrics.splitlines() if line and not line.startswith("#"))
    body = "\n".join(f"{head} {round(float(at) * 1000)}" for head, at in lines).encode() + b"\n"
    for path, data in (("/api/v1/import/prometheus", body), ("/internal/force_flush", None)):
        with urllib.request.urlopen(server.url + path, data=data, timeout=30) as answer:
            assert answer.status in (200, 204)


def _scrape_config(folder: Path, jobs: Sequence[Scraped], interval: str) -> Path:
    path = folder / "scrape.yml"
    path.write_text(
        "scrape_configs:\n" + "".join(job.yaml(interval) for job in jobs) if jobs else "scrape_configs: []\n"
    )
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(arguments: Sequence[str], log: Path, url: str, ready_path: str) -> Iterator[MetricsServer]:
    with log.open("wb") as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=out)
    server = MetricsServer(url, process, log)
    try:
        _until_ready(server, ready_path)
        yield server
    finally:
        server.stop()


def _until_ready(server: MetricsServer, path: str) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(server.url + path, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    raise AssertionError(f"{server.url} was not ready in {_READY_WITHIN_S} s: {server.log.read_text()[-2000:]}")
