"""Targets appear and vanish while the service runs, by DNS and by Kubernetes: real processes, real lookups."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.test_service import pages
from tests.support.dns_server import DnsServer, dns_server
from tests.support.kubernetes_api import KubernetesApi, kubernetes_api, pod
from tests.support.played_engine import PlayedEngine, played
from tests.support.process import Running, running, wait_for

pytestmark = pytest.mark.integration
NEW_UID = "77777777-0000-4000-8000-000000000000"


@pytest.fixture
def engine() -> Iterator[PlayedEngine]:
    with played(list(pages())) as one:
        yield one


@pytest.fixture
def resolver() -> Iterator[DnsServer]:
    with dns_server() as one:
        yield one


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api() as one:
        yield one


def configure(folder: Path, discovery: str) -> Path:
    file = folder / "goodwatch.yaml"
    file.write_text(
        f"""listen: 127.0.0.1:0
data_dir: {folder}/data
scrape: {{interval: 200ms, timeout: 200ms}}
derive: {{every: 300ms, window: 5m}}
{discovery}"""
    )
    return file


def by_dns(folder: Path, engine: PlayedEngine, resolver: DnsServer, keep: str = "300ms") -> Path:
    return configure(
        folder,
        f"dns_sd:\n  - {{names: [engine.test], port: {port_of(engine)}, resolvers: ['127.0.0.1:{resolver.port}'], "
        f"refresh: 100ms, keep: {keep}, service: found}}\n",
    )


def port_of(engine: PlayedEngine) -> int:
    port = urlsplit(engine.url).port
    assert port is not None
    return port


def targets(process: Running) -> dict[str, Any]:
    return {t["name"]: t for t in process.get("/api/v1/targets")["targets"]}


def scraped(process: Running, name: str) -> dict[str, Any]:
    """The target once it was read."""

    def found() -> dict[str, Any] | None:
        target: dict[str, Any] | None = targets(process).get(name)
        return target if target is not None and target["up"] else None

    return wait_for(found, 20, lambda: process.output)


def test_a_target_appears_by_dns_is_scraped_and_is_gone(
    tmp_path: Path, engine: PlayedEngine, resolver: DnsServer
) -> None:
    name = f"127.0.0.1:{port_of(engine)}"
    with running("serve", "-c", str(by_dns(tmp_path, engine, resolver))) as process:
        process.url()
        assert targets(process) == {}
        resolver.put("engine.test", "A", "127.0.0.1")
        target = scraped(process, name)
        assert (target["engine"], target["service"]) == ("vllm", "found")
        assert target["labels"] == {"dns_name": "engine.test"}
        resolver.zone.clear()
        wait_for(lambda: not targets(process), 20, lambda: process.output)
        asked = engine.asked
        assert 'goodwatch_discovery_failures_total{discovery="dns_sd[0]",reason="nxdomain"}' in process.get("/metrics")
        assert "engine.test does not exist (NXDOMAIN)" in process.output
        assert process.end() == 0, process.output
        assert engine.asked <= asked + 1, "it is not read any more"


def test_a_pod_appears_is_made_again_under_its_name_and_is_gone(
    tmp_path: Path, engine: PlayedEngine, api: KubernetesApi
) -> None:
    (tmp_path / "kubeconfig").write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{api.url}'}}}}]\nusers: [{{name: u, user: {{token: hush}}}}]\n"
    )
    api.token = "hush"
    api.put(pod("redis-0", labels={"app": "redis"}, ports=(("redis", 6379),)))
    vllm = {"ports": (("http", port_of(engine)),), "limits": {"nvidia.com/gpu": "2"}}
    file = configure(tmp_path, "kubernetes_sd: [{selector: app=vllm, kubeconfig: kubeconfig, gpu_hour_usd: 3}]\n")
    with running("serve", "-c", str(file)) as process:
        process.url()
        wait_for(lambda: api.watchers, 20, lambda: process.output)
        assert targets(process) == {}
        api.put(pod("vllm-0", **vllm))
        target = scraped(process, "default/vllm-0/3f8a1c20")
        assert target["engine"] == "vllm"
        assert target["service"] == "vllm"
        assert target["labels"]["node"] == "node-1"
        usd = lambda: process.get("/api/v1/services/vllm")["numbers"]["usd_per_hour"]["value"]  # noqa: E731
        wait_for(lambda: usd() == 6.0, 20, lambda: process.output)
        assert process.status("/targets/default/vllm-0/3f8a1c20") == 200
        api.delete("vllm-0")
        api.put(pod("vllm-0", uid=NEW_UID, **vllm))
        scraped(process, "default/vllm-0/77777777")
        assert list(targets(process)) == ["default/vllm-0/77777777"]
        api.delete("vllm-0")
        wait_for(lambda: not targets(process), 20, lambda: process.output)
        assert process.end() == 0, process.output
        assert "hush" not in process.output


def test_a_target_that_dns_loses_for_a_moment_goes_on_counting(
    tmp_path: Path, engine: PlayedEngine, resolver: DnsServer
) -> None:
    resolver.put("engine.test", "A", "127.0.0.1")
    name = f"127.0.0.1:{port_of(engine)}"
    with running("serve", "-c", str(by_dns(tmp_path, engine, resolver))) as process:
        scraped(process, name)
        resolver.zone.clear()
        wait_for(lambda: not targets(process), 20, lambda: process.output)
        engine.step(60)  # what happens meanwhile is not lost
        resolver.put("engine.test", "A", "127.0.0.1")
        scraped(process, name)

        def ended() -> float | None:
            number: dict[str, Any] = process.get("/api/v1/services/found")["numbers"]["request_rate_per_s"]
            return number["value"]

        assert wait_for(ended, 20, lambda: process.output) > 0


def test_a_reload_that_does_not_touch_discovery_leaves_it_alone(
    tmp_path: Path, engine: PlayedEngine, api: KubernetesApi
) -> None:
    (tmp_path / "kubeconfig").write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{api.url}'}}}}]\n"
    )
    api.put(pod("vllm-0", ports=(("http", port_of(engine)),)))
    file = configure(tmp_path, "kubernetes_sd: [{kubeconfig: kubeconfig}]\n")
    with running("serve", "-c", str(file)) as process:
        scraped(process, "default/vllm-0/3f8a1c20")
        wait_for(lambda: api.watchers, 20, lambda: process.output)
        api.down = True
        file.write_text(file.read_text() + "services: [{name: vllm, slo: {ttft: 2s}}]\n")
        assert process.status("/api/v1/reload", method="POST") == 200
        assert list(targets(process)) == ["default/vllm-0/3f8a1c20"], "it is known although the API is down now"
        assert api.requests.count("list pods") == 1


def test_the_check_of_a_configuration_asks_discovered_targets_too(
    tmp_path: Path, engine: PlayedEngine, resolver: DnsServer
) -> None:
    file = str(by_dns(tmp_path, engine, resolver))
    with running("config", "check", file, "--probe") as process:
        assert process.process.wait(30) == 1
        process._reader.join(5)
        assert "  dns_sd[0]: engine.test: engine.test does not exist (NXDOMAIN)" in process.lines
    resolver.put("engine.test", "A", "127.0.0.1")
    with running("config", "check", file, "--probe") as process:
        assert process.process.wait(30) == 0, process.output
        process._reader.join(5)
        assert f"  127.0.0.1:{port_of(engine)}: vllm 0.32.0" in process.lines
