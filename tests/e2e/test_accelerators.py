"""The whole service as a process, on an engine's pages and a page of its GPUs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.collector.accelerators.pages import Gpu, dcgm
from tests.e2e.test_service import configure, pages, scraped
from tests.support.played_engine import played
from tests.support.process import running, wait_for

pytestmark = pytest.mark.integration


@contextmanager
def gpus() -> Iterator[str]:
    """A DCGM exporter on loopback whose two GPUs draw 300 W and 200 W."""
    began = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            spent_s = 1e6 + time.monotonic() - began
            body = dcgm(
                Gpu("GPU-aaaa", 0, watts=300.0, millijoules=300e3 * spent_s),
                Gpu("GPU-bbbb", 1, watts=200.0, millijoules=200e3 * spent_s),
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def test_the_energy_of_a_service_is_derived_shown_and_exported(tmp_path: Path) -> None:
    with played(list(pages())) as engine, gpus() as url:
        file = configure(tmp_path, engine.url, f"accelerators:\n  - {{url: {url}, name: gpus, interval: 200ms}}\n")
        with running("serve", "-c", str(file)) as process:
            scraped(process, engine)
            engine.step(90)
            scraped(process, engine, 4)

            def energy() -> dict[str, Any] | None:
                found: dict[str, Any] = process.get("/api/v1/services/chat")
                one = found["numbers"]["energy_joules_per_million_output_tokens"]
                return found if one["value"] else None

            found = wait_for(energy, 20, lambda: process.output)
            assert found["numbers"]["gpu_power_watts"]["value"] == pytest.approx(500.0, rel=0.2)
            listed = {t["name"]: t["kind"] for t in process.get("/api/v1/targets")["targets"]}
            assert listed == {"engine-a": "engine", "gpus": "accelerator"}
            held = process.get("/api/v1/targets/engine-a")
            assert [(d["key"], d["basis"]) for d in held["devices"]] == [
                ("GPU-aaaa", "by its host"), ("GPU-bbbb", "by its host"),
            ]  # fmt: skip
            exporter = process.get("/api/v1/targets/gpus")
            assert exporter["device_numbers"]["gpu_power_watts"]["value"] == pytest.approx(500.0, rel=0.2)
            assert process.get("/api/v1/targets/gpus/capability")["engine"] == "dcgm"
            for path in ("/targets/engine-a", "/targets/gpus"):
                assert "GPU-aaaa" in process.get(path), path
            assert "goodwatch_energy_joules_per_million_output_tokens{" in process.get("/metrics")
            assert process.end() == 0, process.output
