"""The pages of experiments in a real browser: dark, light, a phone, without scripts; nothing complains."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from goodwatch.api.ui.experiment_pages import experiment_pages
from goodwatch.app.experiment_ledger import Files
from tests.api.experiments_kept import Kept, entry, foreign_files, not_in_effect
from tests.api.test_pages_browser import foreign
from tests.support.browser import CHROMIUM, Tab, browser, served
from tests.support.views import PlainViews

pytestmark = [
    pytest.mark.browser,
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; make packages installs it"),
]

PATHS = ("/experiments", "/experiments/seqs-1", "/experiments/idle-1", "/experiments/calibration")
_WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
_UNNAMED = "[...document.querySelectorAll('svg:not([aria-hidden]):not([aria-label]), select:not(label select)')].length"


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    kept = Kept(tmp_path)
    for week in range(8):
        await kept.keep(entry(f"w{week}", 0.8, *((0.4, 0.5) if week % 4 == 2 else (0.7, 0.9))), weeks=week)
    await kept.keep(
        entry(), entry("slow-1", 1.4, 0.7, 0.9, question="Does FP8 KV cache help?"), not_in_effect(), weeks=8
    )
    sides = [
        tuple((one["name"], one["text"]) for one in foreign_files(images, videos, side))
        for side, images, videos in (("a", [4.0, 4.02, 3.99], [31.0, 31.2, 30.9]), ("b", [5.2, 5.21, 5.19], [24.8, 24.9, 24.7]))
    ]  # fmt: skip
    await kept.ledger.keep_files(Files(sides[0], sides[1], "Does compiling the UNet pay?", "images_per_s", "studio"))
    views = PlainViews()
    with served(views, experiment_pages(kept.ledger, views)) as found:
        yield found
    kept.records.close()


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browser(tmp_path / "profile") as found:
        yield found


async def test_the_pages_hold_in_dark_in_light_and_on_a_phone(tab: Tab, url: str, tmp_path: Path) -> None:
    grounds = set()
    for path in PATHS:
        for width, dark in ((1440, True), (1440, False), (390, True)):
            await tab.open(url + path, width=width, height=900, dark=dark)
            wide, seen = await tab.evaluate(_WIDTHS)
            assert wide <= seen, (path, width)
            assert await tab.evaluate(_UNNAMED) == 0, path
            assert tab.complaints == []
            assert foreign(tab, url) == []
            grounds.add(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            picture = tmp_path / f"{path.strip('/').replace('/', '-')}-{width}-{'dark' if dark else 'light'}.png"
            await tab.screenshot(picture, whole=True)
            assert picture.stat().st_size > 10_000
    assert len(grounds) == 2


async def test_without_scripts_nothing_is_missing_but_the_renewal(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/experiments")
    link = await tab.evaluate("document.querySelector('tbody a').href")
    await tab.call("Emulation.setScriptExecutionDisabled", value=True)
    await tab.call("Page.navigate", url=link)
    async with asyncio.timeout(30):  # timers of the page do not run, so it is asked from outside
        while True:
            if await tab.evaluate(f"location.href === {link!r} && document.readyState === 'complete'"):
                break
            await asyncio.sleep(0.02)
    assert await tab.evaluate("document.querySelectorAll('h1').length") == 1
    assert await tab.evaluate("document.querySelectorAll('svg.stages').length") > 3
    assert await tab.evaluate("document.getElementById('pause') === null || document.getElementById('pause').hidden")
