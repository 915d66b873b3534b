"""Discovery through a Prometheus: real servers whose targets API is read, and answers that make no sense."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from collector._http import Session
from collector.discovery.prometheus import Choice, PrometheusSD
from collector.targets import Defaults, ScrapeOptions
from tests.support.engine_server import EngineServer, Handler, dead_port, engine_server
from tests.support.process import wait_for
from tests.support.prometheus_server import (
    MetricsServer,
    Scraped,
    needs_prometheus,
    needs_victoria,
    prometheus_server,
    victoria_server,
)

pytestmark = pytest.mark.integration
TARGETS = "/api/v1/targets"
JOBS = (
    Scraped(("127.0.0.1:8000", "127.0.0.1:8001"), "vllm-chat", {"team": "search"}),
    Scraped(("127.0.0.1:9100",), "node"),
)
CHOICE = Choice(jobs=("vllm-.*",))


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with Session() as one:
        yield one


async def looked(found: PrometheusSD, names: list[str]) -> None:
    """Look until these targets are there: a server needs a moment to take its configuration in."""
    async with asyncio.timeout(30):
        while [s.target.name for s in found.targets] != names:
            await found.refresh()
            await asyncio.sleep(0.1)


async def follows_a_server(server: MetricsServer, folder: Path, session: Session) -> None:
    """Find the targets of the jobs that are wanted, and lose those that the server drops."""
    found = PrometheusSD("p", server.url, session=session, choice=CHOICE, defaults=Defaults(gpus=2))
    await looked(found, ["vllm-chat/127.0.0.1:8000", "vllm-chat/127.0.0.1:8001"])
    target = found.targets[0].target
    assert target.url == "http://127.0.0.1:8000/metrics"
    assert (target.service, target.gpus) == ("vllm-chat", 2)
    assert target.labels == {"job": "vllm-chat", "instance": "127.0.0.1:8000", "team": "search"}
    one = Scraped(("127.0.0.1:8001",), "vllm-chat", {"team": "search"})
    (folder / "scrape.yml").write_text("scrape_configs:\n" + one.yaml("1s"))
    server.process.send_signal(signal.SIGHUP)
    await looked(found, ["vllm-chat/127.0.0.1:8001"])
    assert found.problems == {}
    await asyncio.to_thread(server.stop)
    assert not await found.refresh()
    assert len(found.targets) == 1, "its silence says nothing of the engines"
    (problem,) = found.problems.values()
    assert "cannot be reached" in problem
    assert "the 1 targets read before stay" in problem


@needs_prometheus
async def test_targets_of_a_real_prometheus_are_found_and_lost(tmp_path: Path, session: Session) -> None:
    with prometheus_server(tmp_path, JOBS) as server:
        await follows_a_server(server, tmp_path, session)


@needs_victoria
async def test_targets_of_a_real_victoriametrics_are_found_and_lost(tmp_path: Path, session: Session) -> None:
    with victoria_server(tmp_path, JOBS) as server:
        await follows_a_server(server, tmp_path, session)


# -- answers ------------------------------------------------------------------------------------------------------------


def active(url: str = "http://10.0.0.1:8000/metrics", **labels: str) -> dict[str, Any]:
    return {"scrapeUrl": url, "labels": {"job": "vllm", "instance": "10.0.0.1:8000", **labels}, "health": "up"}


def answering(*entries: dict[str, Any], status: int = 200, body: object = None) -> dict[str, Handler]:
    shown = {"status": "success", "data": {"activeTargets": list(entries)}} if body is None else body

    async def targets(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=shown if isinstance(shown, str) else json.dumps(shown))

    return {TARGETS: targets}


async def one_look(
    server: EngineServer, session: Session, choice: Choice | None = None, api: ScrapeOptions | None = None
) -> PrometheusSD:
    found = PrometheusSD("p", server.url("/"), session=session, choice=choice, api=api)
    await found.refresh()
    return found


async def test_only_active_targets_are_asked_for_with_the_credentials_of_the_api(session: Session) -> None:
    async with engine_server(answering(active())) as server:
        found = await one_look(server, session, api=ScrapeOptions(bearer="hush", headers=(("X-Scope-OrgID", "team"),)))
    (request,) = server.seen
    assert request.query_string == "state=active"
    assert request.headers["Authorization"] == "Bearer hush"
    assert request.headers["X-Scope-OrgID"] == "team"
    assert found.targets[0].options.bearer is None, "the targets have credentials of their own"


async def test_labels_choose_by_whole_values(session: Session) -> None:
    entries = [
        active(f"http://10.0.0.{n}:1/metrics", instance=str(n), env=env) for n, env in enumerate(("prod", "prod2", ""))
    ]
    async with engine_server(answering(*entries)) as server:
        found = await one_look(server, session, Choice(jobs=("vllm",), labels=(("env", "prod|"),)))
    assert [s.target.name for s in found.targets] == ["vllm/0", "vllm/2"]


async def test_parameters_and_paths_of_the_scrape_url_stay(session: Session) -> None:
    url = "https://10.0.0.1/x/metrics?part=1"
    async with engine_server(answering(active(url, service="chat"))) as server:
        found = await one_look(server, session)
    assert [(s.target.url, s.target.service) for s in found.targets] == [(url, "chat")]


async def test_localhost_of_another_machine_is_replaced_by_how_others_reach_it(session: Session) -> None:
    entry = {**active("http://localhost:8000/metrics"), "globalUrl": "http://prom-1:8000/metrics"}
    here = PrometheusSD("p", "http://127.0.0.1:9090", session=session)
    there = PrometheusSD("p", "http://prom-1:9090", session=session)
    assert here._chosen([entry])[0][0].target.url == "http://localhost:8000/metrics"
    assert there._chosen([entry])[0][0].target.url == "http://prom-1:8000/metrics"


async def test_one_name_for_two_pages_is_told_and_what_cannot_be_scraped_is_left_out(session: Session) -> None:
    odd = active("ftp://10.0.0.9/x", instance="odd")
    async with engine_server(answering(active(), active("http://10.0.0.2:8000/metrics"), odd)) as server:
        found = await one_look(server, session)
    assert [s.target.url for s in found.targets] == ["http://10.0.0.1:8000/metrics"]
    assert "is the name of http://10.0.0.1:8000/metrics and of another page" in found.problems["vllm/10.0.0.1:8000"]
    assert "left out: its scrape URL is not http" in found.problems["vllm/odd"]


@pytest.mark.parametrize(
    ("status", "body", "reason", "says"),
    [
        (200, "<html>", "not_json", "did not answer with JSON"),
        (200, {"status": "success", "data": {}}, "not_targets", "not with a list of targets; write the URL of a Prom"),
        (200, [1], "not_targets", "not with a list of targets"),
        (200, "[" * 100_000, "not_json", "did not answer with JSON"),
        (401, "no", "http_401", "check api.authorization, api.basic_auth or api.headers"),
        (404, "no", "http_404", "write the URL of a Prometheus, without /api"),
        (302, "", "http_302", "a redirect is not followed; write the final URL"),
        (422, {"status": "error", "error": "tenant missing"}, "http_422", "tenant missing"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_told_and_counted(
    session: Session, status: int, body: object, reason: str, says: str
) -> None:
    async with engine_server(answering(status=status, body=body)) as server:
        found = await one_look(server, session)
    (problem,) = found.problems.values()
    assert says in problem
    assert found.failures_total == {reason: 1}


async def test_an_empty_list_of_go_is_no_targets_and_no_problem(session: Session) -> None:
    body = {"status": "success", "data": {"activeTargets": None}}
    async with engine_server(answering(body=body)) as server:
        found = await one_look(server, session)
    assert (found.targets, found.problems) == ((), {})


async def test_a_server_that_does_not_answer_is_told_in_time(session: Session) -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with engine_server({TARGETS: hang}) as server, asyncio.timeout(5):
        found = await one_look(server, session, api=ScrapeOptions(timeout_s=0.2))
    assert "did not answer within 0.2 s" in next(iter(found.problems.values()))
    nobody = PrometheusSD("p", f"http://127.0.0.1:{dead_port()}", session=session)
    await nobody.refresh()
    assert nobody.failures_total == {"connection": 1}


async def test_running_tells_of_changes_only(session: Session) -> None:
    entries = [active()]

    async def targets(_: web.Request) -> web.StreamResponse:
        return web.json_response({"data": {"activeTargets": entries}})

    told: asyncio.Queue[int] = asyncio.Queue()
    async with engine_server({TARGETS: targets}) as server, asyncio.timeout(10):
        found = PrometheusSD("p", server.url("/"), session=session, refresh_s=0.01)
        run = asyncio.create_task(found.run(lambda specs: told.put_nowait(len(specs))))
        assert await told.get() == 1
        await asyncio.to_thread(wait_for, lambda: len(server.seen) > 3, 5)
        assert told.empty()
        entries.clear()
        assert await told.get() == 0
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
