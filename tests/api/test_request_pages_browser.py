"""The pages of requests in a real browser: from a cell to one request by clicks, on a desk and on a phone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from goodwatch.api.routes_requests import request_routes
from goodwatch.api.ui.request_pages import request_pages
from tests.api.test_pages_browser import foreign
from tests.support.browser import CHROMIUM, Tab, browser, served
from tests.support.request_views import RequestWorld, part_of, score_of, traffic

pytestmark = [
    pytest.mark.browser,
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; make packages installs it"),
]

ROWS = traffic(600)
PATHS = ("/heatmap", "/heatmap?measure=cost", "/requests", f"/requests/{ROWS[1]['trace_id']}", "/costs", "/quality")
_WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    world = RequestWorld(ROWS, [part_of(r) for r in ROWS[:20]], [score_of(r, 0.7) for r in ROWS[:200]])
    await world.ready()
    with served(
        world.watch, request_pages(world.reads, world.watch), request_routes(world.reads, world.watch)
    ) as found:
        yield found


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browser(tmp_path) as found:
        yield found


async def gone_on(tab: Tab, script: str, part: str) -> None:
    """Do what leads to another page, and wait until its URL has this part and it is complete."""
    await tab.evaluate(f"void setTimeout(() => {script}, 0)")
    there = f"location.href.includes({part!r}) && document.readyState === 'complete'"
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(AssertionError):  # between two pages there is none to ask
                if await tab.evaluate(there):
                    return
            await asyncio.sleep(0.02)


async def clicked(tab: Tab, selector: str, part: str) -> None:
    """Click a link and wait for the page that it leads to."""
    await gone_on(tab, f"document.querySelector({selector!r}).click()", part)


async def test_a_click_on_a_cell_leads_to_its_requests_and_on_to_one_of_them(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/heatmap?measure=requests")
    cell = "td.cell.shade-4 a"
    count = await tab.evaluate(f"document.querySelector({cell!r} + ' .value').textContent.trim()")
    await clicked(tab, cell, "/requests?")
    assert (await tab.evaluate("document.querySelector('.list-head b').textContent")).startswith(f"{count} request")
    slowest = await tab.evaluate("document.querySelector('table.requests tbody a').getAttribute('href')")
    await clicked(tab, "table.requests tbody a", slowest)
    shown = await tab.evaluate("document.querySelector('main').innerText")
    assert "E2E" in shown
    assert "queue" in shown
    assert tab.complaints == []
    assert foreign(tab, url) == []


async def test_the_form_works_and_keeps_what_was_chosen(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/heatmap")
    await tab.evaluate("document.querySelector('select[name=measure]').value = 'attainment'")
    await tab.evaluate("document.querySelector('select[name=tenant]').value = 'acme'")
    await gone_on(tab, "document.querySelector('form.filters').submit()", "measure=attainment")
    assert await tab.evaluate("document.querySelector('select[name=tenant]').value") == "acme"
    assert "Attainment" in await tab.evaluate("document.querySelector('.map-title').textContent")


async def test_both_themes_and_a_phone_show_every_page_whole(tab: Tab, url: str) -> None:
    for path in PATHS:
        for dark, width in ((True, 1440), (False, 1440), (True, 390)):
            await tab.open(url + path, width=width, height=844, dark=dark)
            wide, seen = await tab.evaluate(_WIDTHS)
            assert wide <= seen == width, path
            assert tab.complaints == [], path
            assert foreign(tab, url) == [], path


async def test_a_cell_tells_a_screen_reader_all_that_it_shows(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/heatmap")
    tree = await tab.call("Accessibility.getFullAXTree")
    names = [n["name"]["value"] for n in tree["nodes"] if n.get("role", {}).get("value") == "link" and "name" in n]
    cells = [name for name in names if name.startswith("input ")]
    assert cells
    assert all("requests" in name or "1 request" in name for name in cells)
    assert any("interval" in name and "estimated" in name for name in cells)
