"""The pages in a real browser: charts are drawn, nothing is fetched from elsewhere, nothing complains."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from goodwatch.api.ui.charts import CHARTS
from goodwatch.core.model import Absence, Basis, Bounds, Number
from tests.support.browser import CHROMIUM, Tab, browser, served
from tests.support.views import (
    HOSTILE,
    PlainViews,
    RecordedViews,
    Together,
    empty_views,
    hostile_views,
    no_data_views,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed; make packages installs it"),
]

#: marks of one chart that carry numbers: boxes, lines, points; the tooltip columns are transparent
_MARKS = (
    "[...document.querySelectorAll('figure[data-chart]')].map(f => [f.dataset.chart,"
    " [...f.querySelectorAll('.mark-rect path, .mark-line path, .mark-symbol path')]"
    ".filter(p => p.getAttribute('d') && p.getAttribute('fill-opacity') !== '0').length])"
)
_WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    views = Together(
        RecordedViews(repeats=8), RecordedViews("vllm-0.10.2-engine-crash", service="vision", target="vision-0"),
        demo_note="This is a replay of recorded engines.",
    )  # fmt: skip
    with served(views) as found:
        yield found


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browser(tmp_path) as found:
        yield found


def foreign(tab: Tab, url: str) -> list[str]:
    """What was asked of another host; images of the browser's own widgets are data URLs."""
    return [u for u in tab.requested if urlsplit(u).scheme != "data" and urlsplit(u).netloc != urlsplit(url).netloc]


async def test_charts_are_drawn_with_marks_in_dark_and_light_without_a_complaint(tab: Tab, url: str) -> None:
    grounds = []
    for dark in (True, False):
        await tab.open(f"{url}/services/chat", dark=dark)
        marks = dict(await tab.evaluate(_MARKS))
        assert set(marks) == {chart.key for chart in CHARTS}
        assert all(count > 0 for count in marks.values()), marks
        grounds.append(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert tab.complaints == []
        assert foreign(tab, url) == []
    assert grounds[0] != grounds[1]


@pytest.mark.parametrize("path", ["/", "/services/chat", "/services/vision", "/targets/chat-0", "/about"])
async def test_a_phone_never_scrolls_sideways(tab: Tab, url: str, path: str) -> None:
    await tab.open(f"{url}{path}", width=390, height=844)
    wide, seen = await tab.evaluate(_WIDTHS)
    assert seen == 390
    assert wide <= seen
    assert tab.complaints == []
    assert foreign(tab, url) == []


@pytest.mark.parametrize("width", [360, 770, 1024, 1380, 1440])
async def test_no_number_is_cut_off(tab: Tab, width: int) -> None:
    (service,) = RecordedViews().services()
    longest = {
        "attainment_ratio": Number("ratio", Basis.BOUNDED, bounds=Bounds(0.66314, 0.80611)),
        "goodput_per_s": Number("1/s", Basis.BOUNDED, bounds=Bounds(0.01623, 0.5671)),
        "ttft_p99_seconds": Number("s", Basis.BOUNDED, bounds=Bounds(0.7501, 1.253)),
        "requests_running": Number("requests", Basis.MEASURED, 1234.0),
        "requests_waiting": Number("requests", Basis.MEASURED, 12345.0),
        "usd_per_million_output_tokens": Number("USD", Basis.MEASURED, 12345.6),
        "request_rate_per_s": Number.none("1/s", Absence.NOT_MEASURABLE, "no counter"),
    }
    derived = replace(service.derived, numbers={**service.derived.numbers, **longest})
    with served(PlainViews([replace(service, derived=derived)])) as url:
        for path in ("/", "/services/chat"):
            await tab.open(url + path, width=width)
            cut = await tab.evaluate(
                "[...document.querySelectorAll('.big')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
            )
            assert cut == []


async def test_nothing_moves_while_the_charts_arrive(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/services/chat")
    shift = await tab.evaluate(
        "new Promise(done => new PerformanceObserver(list => done(list.getEntries().reduce((s, e) => s + e.value, 0)))"
        ".observe({type: 'layout-shift', buffered: true}) ?? setTimeout(() => done(0), 300))"
    )
    assert shift < 0.01


async def test_the_tooltip_says_the_interval_of_every_line(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/services/chat")
    await tab.hover("#chart-ttft .plot svg", 0.5)
    await tab.until("document.querySelector('#vg-tooltip-element.visible td.value')")
    text = await tab.evaluate("document.querySelector('#vg-tooltip-element').innerText")
    assert "p99" in text
    assert "–" in text
    assert tab.complaints == []


async def test_an_open_page_renews_itself_in_place_and_can_be_paused(tab: Tab) -> None:
    views = PlainViews(RecordedViews(repeats=1).services())
    with served(views) as url:
        await tab.open(f"{url}/services/chat")
        await tab.evaluate("scrollTo(0, 500)")
        before = await tab.evaluate("scrollY")
        views.shown = [replace(views.shown[0], headline="something new happened", state="good")]
        await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await tab.until("document.querySelector('.headline').textContent === 'something new happened'")
        assert await tab.evaluate("scrollY") == before > 0
        assert await tab.evaluate("document.title") == "good · chat – goodwatch"
        await tab.evaluate("document.getElementById('pause').click()")
        seen = len(tab.requested)
        await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await tab.evaluate("new Promise(requestAnimationFrame)")
        assert await tab.evaluate("document.getElementById('pause').textContent") == "▶ resume"
        assert len(tab.requested) == seen
        assert tab.complaints == []


async def test_a_page_that_cannot_be_renewed_says_that_its_numbers_are_old(tab: Tab) -> None:
    with served(RecordedViews()) as url:
        await tab.open(url + "/")
    await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await tab.until("document.documentElement.classList.contains('stale')")
    assert "numbers are old" in await tab.evaluate("document.getElementById('refresh-note').textContent")


async def test_hostile_text_is_shown_as_text_also_in_tooltips(tab: Tab) -> None:
    with served(hostile_views()) as url:
        await tab.call("Page.addScriptToEvaluateOnNewDocument", source="window.alert = () => { window.hit = true; };")
        for path in ("/", "/targets/chat-0", "/services/chat?range=15m"):
            await tab.open(url + path)
            assert tab.complaints == []
            assert not await tab.evaluate("window.hit === true")
        assert await tab.evaluate("document.querySelector('.headline').textContent") == HOSTILE
        await tab.hover("#chart-cost .plot svg", 0.87)
        await tab.until("document.querySelector('#vg-tooltip-element.visible')")
        assert not await tab.evaluate("document.querySelector('#vg-tooltip-element script') !== null")
        assert not await tab.evaluate("window.hit === true")


@pytest.mark.parametrize("views", [empty_views(), no_data_views()], ids=["no services", "no data"])
async def test_empty_states_are_pages_too(tab: Tab, views: PlainViews) -> None:
    with served(views) as url:
        for path in ("/", *(f"/services/{s.name}" for s in views.services())):
            await tab.open(url + path, width=390, height=844)
            wide, seen = await tab.evaluate(_WIDTHS)
            assert wide <= seen
            assert tab.complaints == []


async def test_everything_works_behind_a_prefix(tab: Tab) -> None:
    with served(RecordedViews(external_url="http://127.0.0.1/watch", repeats=1)) as url:
        assert url.endswith("/watch")
        await tab.open(f"{url}/services/chat")
        assert all(count > 0 for _, count in await tab.evaluate(_MARKS))
        assert tab.complaints == []
        assert all("/watch/" in u for u in tab.requested if not u.startswith("data:"))


async def test_signals_can_be_filtered(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/targets/chat-0")
    await tab.evaluate(
        "(() => { const f = document.getElementById('filter'); f.value = 'ttft'; f.dispatchEvent(new Event('input')); })()"
    )
    shown = await tab.evaluate("[...document.querySelectorAll('[data-filter]:not([hidden])')].length")
    assert 1 <= shown <= 4
