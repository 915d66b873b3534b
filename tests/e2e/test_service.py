"""The whole service as a process, on the pages of a real engine."""

import signal
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from goodwatch.app.recording import RecordedScrape, Recording
from tests.support.played_engine import PlayedEngine, played
from tests.support.process import Running, running, wait_for

pytestmark = pytest.mark.integration
DATA = Path(__file__).parent.parent / "truth" / "data"


@cache
def pages(name: str = "vllm-0.32.0") -> tuple[RecordedScrape, ...]:
    """The pages of the first life of a recorded engine, from idle to the end of its recovery."""
    found = []
    for scrape in Recording.open(DATA / name).scrapes():
        if scrape.body is not None and "openmetrics" not in scrape.accept:
            found.append(scrape)
        elif found and scrape.body is None:
            break
    return tuple(found)


@pytest.fixture
def engine() -> Iterator[PlayedEngine]:
    with played(list(pages())) as one:
        yield one


def configure(folder: Path, url: str, more: str = "", listen: str = "127.0.0.1:0") -> Path:
    file = folder / "goodwatch.yaml"
    file.write_text(
        f"""listen: {listen}
data_dir: {folder}/data
scrape: {{interval: 200ms, timeout: 200ms}}
derive: {{every: 300ms, window: 5m}}
services:
  - name: chat
    slo: {{ttft: 500ms, tpot: 50ms, objective: 0.9}}
targets:
  - {{url: {url}, name: engine-a, service: chat, gpus: 2, gpu_hour_usd: 3.0}}
{more}"""
    )
    return file


def service(process: Running) -> dict[str, Any]:
    found: dict[str, Any] = process.get("/api/v1/services/chat")
    return found


def scraped(process: Running, engine: PlayedEngine, count: int = 2) -> None:
    before = engine.asked
    wait_for(lambda: engine.asked >= before + count, 20, lambda: process.output)


def test_a_fleet_of_one_is_scraped_derived_shown_and_exported(tmp_path: Path, engine: PlayedEngine) -> None:
    with running("serve", "-c", str(configure(tmp_path, engine.url))) as process:
        scraped(process, engine)
        engine.step(60)  # into the calm phase
        scraped(process, engine)

        def counted() -> dict[str, Any] | None:
            one = service(process)
            return one if (one["numbers"]["request_rate_per_s"]["value"] or 0) > 0 else None

        one = wait_for(counted, 20, lambda: process.output)
        assert one["numbers"]["attainment_ratio"]["low"] == 1.0  # calm: every request met 500 ms and 50 ms
        assert one["numbers"]["usd_per_hour"]["value"] == 6.0
        assert one["numbers"]["usd_per_million_good_tokens"]["absence"] == "not measurable"
        assert process.status("/healthz") == 200
        assert process.status("/readyz") == 200
        target = wait_for(lambda: _with_version(process, "0.32.0"), 20)
        assert target["engine"] == "vllm"
        metrics = process.get("/metrics")
        assert 'goodwatch_attainment_ratio_low{model="",service="chat"} 1.0' in metrics
        assert 'goodwatch_scrapes_total{reason="ok"}' in metrics
        for path in ("/", "/services/chat", "/targets/engine-a", "/about", "/api/docs"):
            assert process.status(path) == 200, path
        assert process.end() == 0, process.output


def _with_version(process: Running, version: str) -> dict[str, Any] | None:
    found: dict[str, Any] = process.get("/api/v1/targets/engine-a")
    return found if found["engine_version"] == version else None


def test_a_metrics_fault_is_no_data_and_not_zero_per_cent(tmp_path: Path, engine: PlayedEngine) -> None:
    """vLLM issue 49983: /metrics answers 500 while the engine serves. The SLO state is unknown, not 0 or 100 %."""
    engine.status = 500
    with running("serve", "-c", str(configure(tmp_path, engine.url))) as process:
        scraped(process, engine, 3)
        one = wait_for(lambda: s if "telemetry fault" in (s := service(process))["headline"] else None, 20)
        attainment = one["numbers"]["attainment_ratio"]
        assert (attainment["value"], attainment["low"], attainment["high"]) == (None, None, None)
        assert attainment["absence"] == "no data"
        assert one["state"] == "no data"
        assert "goodwatch_attainment_ratio" not in process.get("/metrics").replace("goodwatch_attainment_ratio is", "")


def test_kill_9_loses_nothing_that_was_committed_and_counts_go_on(tmp_path: Path, engine: PlayedEngine) -> None:
    file = str(configure(tmp_path, engine.url))
    with running("serve", "-c", file) as process:
        scraped(process, engine, 3)
        engine.step(40)
        scraped(process, engine, 5)
        process.end(signal.SIGKILL)
    with duckdb.connect(str(tmp_path / "data" / "goodwatch.duckdb"), read_only=True) as store:
        kept = store.execute("select count(*) from scrapes").fetchone()
    assert kept is not None
    assert kept[0] >= 6
    engine.step(40)  # the engine went on meanwhile
    with running("serve", "-c", file) as process:
        scraped(process, engine, 3)

        def rates() -> dict[str, Any] | None:
            number: dict[str, Any] = service(process)["numbers"]["request_rate_per_s"]
            return number if number["value"] else None

        wait_for(rates, 20, lambda: process.output)
        events = process.get("/api/v1/events?from=-10m")["events"]
        assert not [e for e in events if e["kind"] == "restart"], "goodwatch's own restart is not the engine's"
        assert process.end() == 0


def test_sighup_takes_a_good_file_and_refuses_a_bad_one(tmp_path: Path, engine: PlayedEngine) -> None:
    file = configure(tmp_path, engine.url)
    with running("serve", "-c", str(file)) as process:
        scraped(process, engine)
        good = file.read_text()
        file.write_text(good.replace("ttft: 500ms", "ttft: 2s"))
        process.send(signal.SIGHUP)
        wait_for(lambda: service(process)["limits"]["ttft_s"] == 2.0, 20, lambda: process.output)
        file.write_text(good.replace("objective: 0.9", "objective: 90"))
        process.send(signal.SIGHUP)
        wait_for(lambda: "refused" in process.output, 20)
        assert "objective" in process.output
        assert service(process)["limits"]["ttft_s"] == 2.0
        assert "goodwatch_config_reload_success 0.0" in process.get("/metrics")
        assert process.status("/api/v1/reload", method="POST") in (400, 409, 422)
        assert process.end() == 0


def test_targets_come_and_go_with_their_file(tmp_path: Path, engine: PlayedEngine) -> None:
    address = engine.url.removeprefix("http://").removesuffix("/metrics")
    more = f"file_sd:\n  - {{files: [{tmp_path}/sd/*.yaml], service: found, refresh: 200ms}}\n"
    with running("serve", "-c", str(configure(tmp_path, "http://127.0.0.1:1/metrics", more))) as process:
        process.url()
        (tmp_path / "sd").mkdir()
        listed = tmp_path / "sd" / "a.yaml"
        listed.write_text(f"- targets: [{address}]\n")
        names = lambda: [t["name"] for t in process.get("/api/v1/targets")["targets"]]  # noqa: E731
        wait_for(lambda: address in names(), 20, lambda: process.output)
        listed.unlink()
        wait_for(lambda: address not in names(), 20, lambda: process.output)


def test_a_port_in_use_is_one_clear_line_and_exit_code_2(tmp_path: Path, engine: PlayedEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        with running("serve", "-c", str(configure(tmp_path, engine.url, listen=f"127.0.0.1:{port}"))) as process:
            assert process.process.wait(30) == 2
            process._reader.join(5)
            assert f"127.0.0.1:{port}" in process.lines[-1]
            assert "Traceback" not in process.output


def test_a_second_service_on_one_folder_is_refused(tmp_path: Path, engine: PlayedEngine) -> None:
    file = str(configure(tmp_path, engine.url))
    with running("serve", "-c", file) as first:
        first.url()
        with running("serve", "-c", file) as second:
            assert second.process.wait(30) == 2
            second._reader.join(5)
            assert str(first.process.pid) in second.output or "another process" in second.output
            assert "Traceback" not in second.output


def test_anything_but_loopback_needs_a_token(tmp_path: Path, engine: PlayedEngine) -> None:
    secret = "a-long-read-token"
    more = f"auth:\n  tokens:\n    - {{name: grafana, role: read, token: {secret}}}\n"
    file = configure(tmp_path, engine.url, listen="0.0.0.0:0")
    with running("serve", "-c", str(file)) as process:
        assert process.process.wait(30) == 2
        process._reader.join(5)
        assert "token" in process.output
    with running("serve", "-c", str(configure(tmp_path, engine.url, more))) as process:
        process.url()
        assert process.status("/healthz") == 200
        assert process.status("/api/v1/services") == 401
        assert process.status("/metrics") == 401
        bearer = {"Authorization": f"Bearer {secret}"}
        assert process.status("/api/v1/services", headers=bearer) == 200
        assert process.status("/api/v1/reload", method="POST", headers=bearer) == 403
        assert secret not in process.output


def test_destructive_statistics_are_read_once_and_then_left_alone(tmp_path: Path, engine: PlayedEngine) -> None:
    """TensorRT-LLM's JSON /metrics is emptied by reading it (engine-metrics reference, G-T1)."""
    body = '[{"iter": 3, "numActiveRequests": 2, "numQueuedRequests": 5, "kvCacheStats": {"usedNumBlocks": 7, "maxNumBlocks": 10}}]'
    engine.pages = [RecordedScrape(0, 0, 200, "application/json", body, "", "")]
    file = configure(tmp_path, engine.url)
    with running("serve", "-c", str(file)) as process:
        wait_for(lambda: "not read again" in process.output, 20, lambda: process.output)
        asked = engine.asked
        assert asked <= 2
        target = process.get("/api/v1/targets/engine-a")
        assert "json_stats: true" in target["error"]
        file.write_text(
            file.read_text().replace("service: chat, gpus", "service: chat, engine: trtllm, json_stats: true, gpus")
        )
        process.send(signal.SIGHUP)
        wait_for(lambda: engine.asked > asked + 2, 20, lambda: process.output)
        running_now = wait_for(lambda: service(process)["numbers"]["requests_running"]["value"], 20)
        assert running_now == 2.0
