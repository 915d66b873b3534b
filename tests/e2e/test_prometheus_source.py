"""The whole service on a real Prometheus that scrapes the pages of a real engine."""

from pathlib import Path
from typing import Any

import pytest

from goodwatch.app.recording import Recording
from tests.support.played_engine import played
from tests.support.process import Running, running, wait_for
from tests.support.prometheus_server import Scraped, needs_prometheus, prometheus_server

pytestmark = [pytest.mark.integration, needs_prometheus]
RECORDED = Path(__file__).parent.parent / "truth" / "data" / "vllm-0.32.0"


def configured(folder: Path, url: str) -> Path:
    file = folder / "goodwatch.yaml"
    file.write_text(
        f"""listen: 127.0.0.1:0
data_dir: {folder}/data
derive: {{every: 300ms, window: 5m}}
services:
  - name: chat
    slo: {{ttft: 500ms, tpot: 50ms, objective: 0.9}}
prometheus:
  - {{url: '{url}', selector: '{{job="vllm"}}', service: chat, step: 500ms, settle: 300ms, gpus: 2, gpu_hour_usd: 3.0}}
"""
    )
    return file


def target(process: Running) -> dict[str, Any]:
    found: list[dict[str, Any]] = process.get("/api/v1/targets")["targets"]
    return found[0] if found else {}


def test_a_prometheus_stands_in_for_the_engines(tmp_path: Path) -> None:
    pages = [s for s in Recording.open(RECORDED).scrapes() if s.body is not None and "openmetrics" not in s.accept]
    with played(pages[20:180]) as engine:
        place = engine.url.split("/")[2]
        with (
            prometheus_server(tmp_path / "prometheus", [Scraped([place])]) as prometheus,
            running("serve", "-c", str(configured(tmp_path, prometheus.url))) as process,
        ):
            wait_for(lambda: target(process).get("name") == place, 30, lambda: process.output)

            def counted() -> bool:
                engine.step(10)
                rate = process.get("/api/v1/services/chat")["numbers"]["request_rate_per_s"]["value"]
                return bool(rate)

            wait_for(counted, 30, lambda: process.output)
            assert target(process)["engine"] == "vllm"
            assert target(process)["engine_version"].startswith("0.3")  # by names; Prometheus knows no version
            for path in ("/", "/services/chat", f"/targets/{place}", f"/api/v1/targets/{place}", "/metrics"):
                assert process.status(path) == 200, path
            engine.status = 500
            down = f"{prometheus.url.removeprefix('http://')} could not scrape {place}"
            wait_for(lambda: target(process)["error"] == down, 30, lambda: str(target(process)))
            engine.status = 200
            wait_for(lambda: target(process)["up"], 30, lambda: str(target(process)))
            prometheus.stop()
            gone = f"cannot be reached: Connection refused; nothing is known of {place} meanwhile"
            wait_for(lambda: gone in target(process)["error"], 30, lambda: str(target(process)))
            assert process.end() == 0, process.output
            assert "prometheus cannot be read" in process.output
            assert "Traceback" not in process.output
