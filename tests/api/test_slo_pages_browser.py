"""The pages of SLOs and alerts in a real browser: both themes, a phone, no JavaScript, and the form of a silence."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.slo_world import Site
from tests.api.test_slo_pages import NAME
from tests.support.browser import CHROMIUM, Tab, browser, served

pytestmark = [
    pytest.mark.browser,
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; make packages installs it"),
]
PATHS = ("/slos", f"/slos/{NAME}", "/alerts", "/alerts?silence=x", "/triage/chat", "/docs/runbooks",
         "/docs/runbooks/error-budget-burn-fast")  # fmt: skip
_WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
_UNNAMED = (
    "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
    ".filter(e => !e.labels.length && !e.ariaLabel).map(e => e.name)"
)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Tab, str, Site]]:
    site = await Site(tmp_path).until(371)
    (tmp_path / "profile").mkdir()
    async with browser(tmp_path / "profile") as tab:
        with served(site.views, *site.routers()) as url:
            yield tab, url, site
    site.records.close()


async def test_every_page_in_both_themes_and_on_a_phone_fits_and_complains_of_nothing(
    opened: tuple[Tab, str, Site],
) -> None:
    tab, url, _ = opened
    for path in PATHS:
        for width, dark in ((1440, True), (1440, False), (390, True), (390, False)):
            await tab.open(url + path, width=width, height=900, dark=dark)
            wide, seen = await tab.evaluate(_WIDTHS)
            assert wide <= seen, (path, width)
            assert await tab.evaluate(_UNNAMED) == [], path
            assert tab.complaints == [], path


async def until_silences(site: Site, count: int) -> None:
    """Wait until the server has begun or ended one; the page navigates meanwhile."""
    async with asyncio.timeout(30):
        while len(await site.alerting.silences()) != count:  # noqa: ASYNC110  # another thread changes them
            await asyncio.sleep(0.02)


async def test_the_budget_is_drawn_without_javascript_and_a_silence_can_be_begun_and_ended(
    opened: tuple[Tab, str, Site],
) -> None:
    tab, url, site = opened
    await tab.open(f"{url}/slos/{NAME}")
    assert await tab.evaluate("document.querySelector('polyline.left').getBoundingClientRect().width") > 300
    await tab.open(f"{url}/alerts?silence=alertname%3D%22X%22")
    await tab.evaluate(
        "(() => { const f = document.querySelector('form.silence'); f.author.value = 'ann'; f.comment.value = 'why';"
        " f.requestSubmit(); })()"
    )
    await until_silences(site, 1)
    (held,) = await site.alerting.silences()
    await tab.open(f"{url}/alerts")
    assert (held.author, str(held.matchers[0])) == ("ann", 'alertname="X"')
    await tab.evaluate("document.querySelector('#silences table button').click()")
    await until_silences(site, 0)
    await tab.open(f"{url}/alerts")
    assert await tab.evaluate("document.querySelector('#silences table') === null")
    assert tab.complaints == []
