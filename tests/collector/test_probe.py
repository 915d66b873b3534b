"""A target asked what it is, over real HTTP: its page, its version, and every way in which it does not tell."""

import json

import pytest
from aiohttp import web

from collector.engines.sglang import ENGINE as SGLANG
from collector.engines.trtllm import ENGINE as TRTLLM
from collector.engines.vllm import ENGINE as VLLM
from collector.probe import Probed, probe
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.core.model import Target
from tests.collector.engines.pages import body
from tests.support.engine_server import TEXT, EngineServer, Handler, dead_port, engine_server

pytestmark = pytest.mark.integration

ENGINES = {e.name: e for e in (VLLM, SGLANG, TRTLLM)}


def answers(text: str | bytes, content_type: str = TEXT, status: int = 200) -> Handler:
    payload = text if isinstance(text, bytes) else text.encode()

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=payload, status=status, headers={"Content-Type": content_type})

    return handler


async def ask(url: str) -> Probed:
    spec = TargetSpec(Target("t", url, "s"), ScrapeOptions(interval_s=5, timeout_s=5))
    return await probe(spec, ENGINES)


def asked(server: EngineServer) -> list[str]:
    return [request.path for request in server.seen]


async def test_the_version_that_the_engine_tells_is_taken() -> None:
    async with engine_server({"/version": answers('{"version": "0.32.0+cu128"}')}) as server:
        found = await ask(server.url())
        assert (found.fetched.up, found.engine, found.version) == (True, "vllm", "0.32.0")


async def test_an_older_path_is_asked_when_the_newer_one_is_not_there() -> None:
    routes = {"/metrics": answers(body("sglang_0_5_23")), "/get_server_info": answers('{"version": "0.5.1", "tp": 2}')}
    async with engine_server(routes) as server:
        found = await ask(server.url())
        assert (found.engine, found.version) == ("sglang", "0.5.1")
        assert asked(server) == ["/metrics", "/server_info", "/get_server_info"]


async def test_behind_a_prefix_the_engine_s_own_version_is_asked() -> None:
    page = answers(body("vllm_0_32_0"))
    routes = {
        "/a/metrics": page,
        "/a/version": answers('{"version": "0.32.0"}'),
        "/version": answers('{"version": "1.2.3"}'),  # the gateway's
    }
    async with engine_server(routes) as server:
        assert (await ask(server.url("/a/metrics"))).version == "0.32.0"


@pytest.mark.parametrize(
    "said",
    [
        "not JSON",
        '["0.32.0"]',
        '{"version": 32}',
        '{"version": null}',
        '{"version": "dev"}',
        '{"major": "1", "gitVersion": "v1.30"}',
        "[" * 100_000,
        json.dumps({"version": "0.32.0", "more": "x" * 300_000}),
    ],
    ids=range(8),
)
async def test_an_answer_that_is_no_version_is_none(said: str) -> None:
    async with engine_server({"/version": answers(said)}) as server:
        found = await ask(server.url())
        assert (found.engine, found.version) == ("vllm", "")


async def test_a_target_without_a_version_endpoint_is_known_by_its_page() -> None:
    async with engine_server() as server:
        found = await ask(server.url())
        assert (found.engine, found.version) == ("vllm", "")


async def test_a_page_of_nobody_we_know_is_up_without_an_engine() -> None:
    async with engine_server({"/metrics": answers("up 1\n")}) as server:
        found = await ask(server.url())
        assert found.fetched.up
        assert found.engine == ""
        assert asked(server) == ["/metrics"]


async def test_a_failure_is_a_value() -> None:
    refused = await ask(f"http://127.0.0.1:{dead_port()}/metrics")
    assert (refused.fetched.up, refused.fetched.reason) == (False, "refused")
    async with engine_server({"/metrics": answers("down", status=500)}) as server:
        assert (await ask(server.url())).fetched.reason == "http_status"


async def test_a_page_over_the_limits_is_a_failure_and_not_the_end_of_the_round() -> None:
    async with engine_server({"/metrics": answers("\n" * 2_000_001)}) as server:
        found = await ask(server.url())
        assert (found.fetched.up, found.fetched.reason) == (False, "sample_limit")
        assert "lines on one page" in found.fetched.error
