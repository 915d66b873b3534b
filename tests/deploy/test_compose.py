"""deploy/compose: it is a Compose file, what it names is there, its configurations are taken by the programs they are for."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from goodwatch.app.config import load
from goodwatch.app.engines import known_engines
from tests.deploy.files import DEPLOY, ROOT, complaints, documents, schema
from tests.support.otlp_receiver import receiving, until
from tests.support.otlp_store import MemoryParts

COMPOSE: Final = DEPLOY / "compose"
(PROJECT,) = documents(COMPOSE / "compose.yaml")
SERVICES: Final[dict[str, dict[str, Any]]] = PROJECT["services"]
(PROMETHEUS,) = documents(COMPOSE / "prometheus.yaml")
SETTINGS: Final = load(COMPOSE / "goodwatch.yaml", engines=known_engines(), environ={})
#: host:port → where it is answered, by container
ANSWERED: Final = {
    "engine:8000", "engine:8001", "engine:30000", "goodwatch:9470", "goodwatch:4318", "alertmanager:9093", "prometheus:9090",
}  # fmt: skip


def mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """Source and place of what is mounted from the checkout."""
    pairs = [one.split(":") for one in service.get("volumes", ())]
    return [(pair[0], pair[1]) for pair in pairs if pair[0].startswith(".")]


def test_it_fits_the_schema_of_the_compose_specification() -> None:
    assert complaints(PROJECT, schema("compose-spec.json")) == []


def test_the_schema_finds_a_wrong_key() -> None:
    broken = json.loads(json.dumps(PROJECT))
    broken["services"]["grafana"]["portz"] = []
    assert len(complaints(broken, schema("compose-spec.json"))) == 1


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_mounts_and_builds_from_is_there(name: str) -> None:
    service = SERVICES[name]
    missing = [source for source, _ in mounts(service) if not (COMPOSE / source).exists()]
    assert missing == []
    assert all(one.endswith(":ro") for one in service.get("volumes", ()) if one.startswith("."))
    if "build" in service:
        context = (COMPOSE / service["build"]["context"]).resolve()
        assert context == ROOT
        assert (context / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_by_version(name: str) -> None:
    image = SERVICES[name]["image"]
    tag = image.removesuffix("}").rpartition(":")[2]
    assert tag == "local" or re.fullmatch(r"v?\d+\.\d+\.\d+", tag), image


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


def test_no_file_of_it_holds_a_secret() -> None:
    found = [
        f"{path.name}: {line.strip()}"
        for path in COMPOSE.iterdir() if path.is_file() for line in path.read_text().splitlines()
        if re.search(r"(?i)(password|secret|token|api_?key)\w*\s*[:=]\s*\S", line.partition("#")[0])
    ]  # fmt: skip
    assert found == []


def test_services_that_others_wait_for_say_when_they_are_ready() -> None:
    waited = {name for service in SERVICES.values() for name in service.get("depends_on", {})}
    assert waited
    assert all("healthcheck" in SERVICES[name] for name in waited)


def test_every_address_in_its_configurations_is_one_that_a_container_answers() -> None:
    targets = {t for job in PROMETHEUS["scrape_configs"] for one in job["static_configs"] for t in one["targets"]}
    targets |= {
        t for one in PROMETHEUS["alerting"]["alertmanagers"] for s in one["static_configs"] for t in s["targets"]
    }
    targets |= {t.url.removeprefix("http://").removesuffix("/metrics") for t in SETTINGS.targets}
    texts = [(COMPOSE / name).read_text() for name in ("compose.yaml", "alertmanager.yaml")]
    texts.append((DEPLOY / "grafana/provisioning/datasources/goodwatch.yaml").read_text())
    named = {m for text in texts for m in re.findall(r"http://((?!127)[a-z]+:\d+)", text)}
    assert targets | named <= ANSWERED
    assert {address.partition(":")[0] for address in ANSWERED} <= set(SERVICES)


def test_its_services_and_promises_are_those_that_boards_and_rules_were_built_for() -> None:
    example = load(DEPLOY / "goodwatch.example.yaml", engines=known_engines(), environ={})
    assert [(s.name, s.slo) for s in SETTINGS.services] == [(s.name, s.slo) for s in example.services]
    jobs = {job["job_name"] for job in PROMETHEUS["scrape_configs"]}
    assert {service.name for service in SETTINGS.services} < jobs
    assert str(SETTINGS.external_url).rstrip("/") == "http://127.0.0.1:9470"


def test_grafana_finds_boards_where_the_provider_looks() -> None:
    (provider,) = documents(DEPLOY / "grafana/provisioning/dashboards/goodwatch.yaml")
    places = {place: source for source, place in mounts(SERVICES["grafana"])}
    boards = COMPOSE / places[provider["providers"][0]["options"]["path"]]
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (boards / home.name).is_file()
    assert "/etc/grafana/provisioning/datasources/goodwatch.yaml" in places


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed; Debian has it in prometheus")
def test_promtool_takes_prometheus_configuration_and_rules(tmp_path: Path) -> None:
    shutil.copy(COMPOSE / "prometheus.yaml", tmp_path)
    (tmp_path / "rules").symlink_to(DEPLOY / "prometheus" / "rules")
    done = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "3 rule files found" in done.stdout


@pytest.mark.integration
@pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool is not installed; Debian has it in prometheus-alertmanager"
)
@pytest.mark.parametrize("path", ["compose/alertmanager.yaml", "alertmanager/alertmanager.yaml"])
def test_amtool_takes_alertmanager_s_configuration(path: str) -> None:
    done = subprocess.run(["amtool", "check-config", str(DEPLOY / path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@pytest.mark.integration
async def test_the_demo_engine_serves_its_pages_and_sends_its_spans() -> None:
    ports = dict(zip(("chat-0", "chat-1", "batch-0"), free_ports(3), strict=True))
    store = MemoryParts()
    async with receiving(store) as receiver:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(COMPOSE / "engine.py"), "--otlp", f"http://127.0.0.1:{receiver.http_port}",
            *(f"--port={name}={port}" for name, port in ports.items()), cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readline(), 30) == b"serving\n"
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
                pages = {}
                for name, port in ports.items():
                    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                        pages[name] = await answer.text()
            await until(lambda: store.frames, 20)
        finally:
            process.terminate()
            await process.wait()
    for name, prefix in (("chat-0", "vllm"), ("chat-1", "vllm"), ("batch-0", "sglang")):
        assert f"{prefix}:time_to_first_token_seconds_bucket" in pages[name]


def test_spans_of_every_demo_engine_are_told_apart_by_the_configuration() -> None:
    assert SETTINGS.otlp is not None
    known = {o.match["service.name"]: (o.service, o.target) for o in SETTINGS.otlp.origins}
    assert known == {t.name: (t.service, t.name) for t in SETTINGS.targets}
    text = (COMPOSE / "engine.py").read_text()
    for target in SETTINGS.targets:
        port = target.url.removesuffix("/metrics").rpartition(":")[2]
        assert re.search(rf'"{target.name}": Part\(.*, {port}, ', text), target.name
