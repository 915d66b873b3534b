"""``goodwatch inspect`` and ``config check --probe`` on pages of accelerator exporters."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner

from goodwatch.app.config import Settings
from goodwatch.app.engines import known_engines
from goodwatch.app.probing import probe_all
from goodwatch.cli import main
from tests.collector.accelerators.pages import Gpu, dcgm, page
from tests.support.engine_server import engine_server

PAGE = dcgm(Gpu("GPU-aaaa", 0, pod="ai/chat-0", watts=312.0, millijoules=5e9), Gpu("GPU-bbbb", 1, watts=95.0))


def test_a_page_of_devices_becomes_a_table_of_them(tmp_path: Path) -> None:
    (tmp_path / "dcgm.prom").write_text(PAGE)
    done = CliRunner().invoke(main, ["inspect", str(tmp_path / "dcgm.prom")])
    assert done.exit_code == 0, done.output
    assert "NVIDIA DCGM exporter  2 devices" in done.output
    first = next(line for line in done.output.splitlines() if "GPU-aaaa" in line)
    for text in ("NVIDIA H100", "gpu-1", "ai/chat-0", "312", "5,000"):
        assert text in first
    second = next(line for line in done.output.splitlines() if "GPU-bbbb" in line)
    assert "–" in second, "what is not told is not 0"
    assert "no engine" not in done.output


def test_the_json_of_a_page_of_devices_has_them_in_canonical_units(tmp_path: Path) -> None:
    (tmp_path / "dcgm.prom").write_text(PAGE)
    done = CliRunner().invoke(main, ["inspect", "--json", str(tmp_path / "dcgm.prom")])
    report = json.loads(done.output)
    assert [d["key"] for d in report["devices"]] == ["GPU-aaaa", "GPU-bbbb"]
    assert report["devices"][0]["values"]["gpu_energy_joules_total"] == 5e6


def test_an_engine_that_tells_of_devices_too_stays_an_engine(tmp_path: Path) -> None:
    text = page([
        (("nv_trt_llm_kv_cache_block_metrics", "gauge", 1.0), {"model": "m", "kv_cache_block_type": "used"}),
        (("nv_gpu_utilization", "gauge", 0.5), {"gpu_uuid": "GPU-a"}),
        (("nv_gpu_power_usage", "gauge", 90.0), {"gpu_uuid": "GPU-a"}),
    ])  # fmt: skip
    (tmp_path / "triton.prom").write_text(text)
    done = CliRunner().invoke(main, ["inspect", "--json", str(tmp_path / "triton.prom")])
    assert json.loads(done.output)["engine"] == "triton_trtllm"


@pytest.mark.integration
async def test_exporters_are_asked_what_they_are() -> None:
    async def devices(_: web.Request) -> web.StreamResponse:
        return web.Response(text=PAGE, headers={"Content-Type": "text/plain"})

    async with engine_server({"/metrics": devices}) as server, engine_server() as engine:
        settings = Settings.model_validate(
            {"accelerators": [{"url": server.url(), "name": "gpus"}, {"url": engine.url(), "name": "odd"}]},
            by_name=True,
        )
        lines = await probe_all(settings, known_engines())
    assert lines == [(True, "gpus: dcgm"), (False, "odd: answers, but no known engine wrote the page")]
