"""What discoveries cannot do, on the pages and over the API: said where one looks, with what to do."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from exporters.prometheus import Exporter, SelfMetrics
from goodwatch.api.app import create_app
from goodwatch.api.auth import Auth
from goodwatch.api.routes_system import discovery_routes
from goodwatch.api.ui.pages import pages
from goodwatch.app.discovering import DiscoveryView
from goodwatch.app.telemetry import snapshot
from goodwatch.app.view import Views
from tests.support.browser import CHROMIUM, browser
from tests.support.views import RecordedViews, empty_views

LOST = "engines.prod does not exist (NXDOMAIN); the 3 targets found before stay for another 240 s"
TROUBLED = (
    DiscoveryView("file_sd[0]", 4),
    DiscoveryView("dns_sd[0]", 3, (("engines.prod", LOST),)),
    DiscoveryView("kubernetes_sd[0]", 0, tuple((f"prod/chat-{n}", "has several ports; write port") for n in range(25))),
)
FINE = (DiscoveryView("file_sd[0]", 4),)


def app_of(views: Views, found: Sequence[DiscoveryView]) -> FastAPI:
    def discoveries() -> Sequence[DiscoveryView]:
        return found

    return create_app(
        views, auth=Auth.of([], loopback=True, insecure=False),
        exporter=Exporter(lambda: snapshot(views), SelfMetrics("1.2.3")),
        routers=(pages(views, discoveries), discovery_routes(discoveries)),
    )  # fmt: skip


async def got(views: Views, found: Sequence[DiscoveryView], path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app_of(views, found))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9470") as client:
        answer = await client.get(path)
        assert answer.status_code == 200
        return answer


async def test_the_overview_says_which_discovery_is_in_trouble_what_stays_and_what_to_do() -> None:
    page = (await got(RecordedViews(), TROUBLED, "/")).text
    assert page.count('class="callout"') == 2
    assert "file_sd[0]" not in page
    assert f'<span class="mono">engines.prod</span>: {LOST}' in page
    assert "3 targets from it are watched now" in page
    assert "Ask the same server with dig" in page
    assert "It looks again by itself" in page


async def test_many_problems_of_one_discovery_are_cut_and_counted() -> None:
    page = (await got(RecordedViews(), TROUBLED, "/")).text
    assert page.count("has several ports; write port") == 5
    assert 'And 20 more, all at <a href="/api/v1/discoveries">' in page


async def test_one_that_broke_is_not_said_to_look_again() -> None:
    broken = (DiscoveryView("dns_sd[0]", 1, (("dns_sd[0]", "stopped looking because of a bug"),), running=False),)
    page = (await got(RecordedViews(), broken, "/")).text
    assert "stopped looking" in page
    assert "looks again by itself" not in page


async def test_without_trouble_the_overview_says_nothing_and_about_says_fine() -> None:
    for found in ((), FINE):
        assert "Discovery" not in (await got(RecordedViews(), found, "/")).text
    about = (await got(RecordedViews(), FINE, "/about")).text
    assert ("How targets are found" in about, ">fine<" in about) == (True, True)
    assert "How targets are found" not in (await got(RecordedViews(), (), "/about")).text


async def test_about_lists_every_discovery_with_its_targets_and_all_its_problems() -> None:
    about = (await got(RecordedViews(), TROUBLED, "/about")).text
    assert all(one.name in about for one in TROUBLED)
    assert about.count("has several ports; write port") == 25


async def test_nothing_found_is_not_told_as_nothing_configured() -> None:
    page = (await got(empty_views(), TROUBLED, "/")).text
    assert "the configuration names no target" not in page
    assert "found none" in page
    assert "the configuration names no target" in (await got(empty_views(), (), "/")).text


async def test_what_comes_from_outside_is_shown_as_text() -> None:
    hostile = (DiscoveryView("file_sd[0]", 1, (("<b>x</b>", "<script>alert(1)</script>"),)),)
    for path in ("/", "/about"):
        page = (await got(RecordedViews(), hostile, path)).text
        assert "<script>alert" not in page
        assert "<b>x</b>" not in page


async def test_the_api_gives_all_of_them_in_the_order_of_the_configuration() -> None:
    found = (await got(RecordedViews(), TROUBLED, "/api/v1/discoveries")).json()["discoveries"]
    assert [(d["name"], d["targets"], len(d["problems"])) for d in found] == [
        ("file_sd[0]", 4, 0), ("dns_sd[0]", 3, 1), ("kubernetes_sd[0]", 0, 25),
    ]  # fmt: skip
    assert found[1]["problems"] == [{"at": "engines.prod", "text": LOST}]


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(app_of(RecordedViews(repeats=1), TROUBLED)) as found:
        yield found


@pytest.mark.browser
@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; make packages installs it")
async def test_in_a_browser_the_problems_fit_a_phone_and_stand_over_the_services(url: str, tmp_path: Path) -> None:
    async with browser(tmp_path) as tab:
        for path in ("/", "/about"):
            for dark, width in ((True, 390), (False, 1440)):
                await tab.open(url + path, width=width, height=900, dark=dark)
                wide = await tab.evaluate("document.documentElement.scrollWidth")
                assert wide <= width
                assert tab.complaints == []
        above = "document.querySelector('.shortfalls').getBoundingClientRect().bottom"
        await tab.open(url + "/", width=1440, height=900)
        below = "document.querySelector('article.service').getBoundingClientRect().top"
        assert await tab.evaluate(above) < await tab.evaluate(below)
