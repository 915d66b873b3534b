"""A real Prometheus scrapes the served page and answers a query for what was on it."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvicorn

from exporters.prometheus import Exporter, SelfMetrics
from goodwatch.api.app import create_app
from goodwatch.api.auth import Auth
from goodwatch.app.telemetry import snapshot
from tests.support.views import RecordedViews

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed; Debian has it as a package"),
]

CONFIG = """
scrape_configs:
  - job_name: goodwatch
    scrape_interval: 1s
    honor_labels: true
    authorization: {{credentials: reader-secret}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@asynccontextmanager
async def served(views: RecordedViews) -> AsyncIterator[int]:
    """The application on a loopback port."""
    auth = Auth.of([("prometheus", "read", "reader-secret")], loopback=True, insecure=False)
    app = create_app(views, auth=auth, exporter=Exporter(lambda: snapshot(views), SelfMetrics("1.2.3")))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


@asynccontextmanager
async def prometheus(folder: Path, scraped_port: int, port: int) -> AsyncIterator[str]:
    """Prometheus on a loopback port; yields its API."""
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(port=scraped_port))
    assert PROMETHEUS is not None
    with (folder / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}", stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}/api/v1/query"
        finally:
            process.terminate()
            await process.wait()


async def answer(api: str, query: str) -> list[dict[str, object]]:
    """Result of a query, asked until there is one; a Prometheus that never has one fails after 30 s."""
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(api, params={"query": query}) as response:
                    found: list[dict[str, object]] = (await response.json())["data"]["result"] if response.ok else []
            except aiohttp.ClientConnectionError:
                found = []
            if found:
                return found
            await asyncio.sleep(0.2)


async def test_prometheus_scrapes_the_page_and_knows_the_interval(tmp_path: Path, free_port: int) -> None:
    views = RecordedViews()
    async with served(views) as port, prometheus(tmp_path, port, free_port) as api:
        (low,) = await answer(api, 'goodwatch_attainment_ratio_low{service="chat",model="",target=""}')
        (up,) = await answer(api, 'up{job="goodwatch"}')
        (absent,) = await answer(api, 'goodwatch_number_absent{name="usd_per_million_good_tokens",model="",target=""}')
    bounds = views.services()[0].derived.numbers["attainment_ratio"].bounds
    assert bounds is not None
    assert isinstance(low["value"], list)
    assert float(low["value"][1]) == bounds.low
    assert isinstance(up["value"], list)
    assert up["value"][1] == "1"
    assert absent["metric"]["absence"] == "not measurable"  # type: ignore[index]
