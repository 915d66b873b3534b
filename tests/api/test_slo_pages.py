"""SLOs over HTTP and as pages: what they say in an outage, and what they never say without data."""

import doctest
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from goodwatch.api.auth import Auth
from goodwatch.api.ui import incident_tables, markdown, slo_tables
from goodwatch.api.ui.markdown import html_of
from goodwatch.api.ui.pages import pages
from tests.alerts.services import first_token
from tests.api.slo_world import Site
from tests.api.test_app import OPEN, app_of, client_of, problem_of
from tests.api.test_pages import Reader

NAME = first_token(30).name
FORM = {"content-type": "application/x-www-form-urlencoded"}
SILENCE = {"matchers": 'service="chat"\nalertname=~"Llm.*"', "duration": "2h", "author": "ann", "comment": "moving"}
CLOSED = Auth.of([("grafana", "read", "read-secret"), ("ops", "admin", "admin-secret")], loopback=False, insecure=False)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Ten minutes into a total outage."""
    made = await Site(tmp_path).until(371)
    yield made
    made.records.close()


async def asked(site: Site, path: str, method: str = "GET", *, auth: Auth = OPEN, **more: Any) -> httpx.Response:
    app = app_of(site.views, auth, pages(site.views, requests=True), *site.routers())
    async with client_of(app) as client:
        return await client.request(method, path, **more)


@pytest.mark.parametrize("module", [incident_tables, markdown, slo_tables], ids=lambda m: m.__name__)
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


async def test_the_api_tells_budget_windows_and_what_fires(site: Site) -> None:
    (one,) = (await asked(site, "/api/v1/slos")).json()["slos"]
    assert (one["name"], one["service"], one["note"], one["at_most"]) == (NAME, "chat", "", False)
    assert "LlmErrorBudgetBurnFast" in one["firing"]
    detail = (await asked(site, f"/api/v1/slos/{NAME}")).json()
    (count,) = detail["counts"]
    hour = next(w for w in count["windows"] if w["length_s"] == 3600)
    # the windows end at minute 371; the outage of 1000 a minute began at 360: 11 of 60 minutes
    assert (hour["total"], hour["bad"]) == (60_000, 11_000)
    assert hour["burn"] == pytest.approx(11 / 60 / (1 - detail["objective"]))
    # of the first minute three quarters are known: a counter's first value has none before it
    assert one["budget_left_ratio"] == pytest.approx(1 - 11 / 370.75 / (1 - detail["objective"]))
    assert detail["curve"][-1]["budget_left_ratio"] == pytest.approx(one["budget_left_ratio"])
    assert [e["bad"] for e in detail["eaters"]["target"]] == [11_000]
    assert any(pair["fires"] and pair["severity"] == "page" for pair in detail["pairs"])


async def test_an_unknown_slo_names_the_known_ones(site: Site) -> None:
    assert NAME in problem_of(await asked(site, "/api/v1/slos/none")).detail
    answer = await asked(site, "/slos/%3Cb%3Enone")
    assert answer.status_code == 404
    assert "<b>none" not in answer.text
    assert f"There are: {NAME}." in answer.text


async def test_drifts_are_those_of_the_loop(site: Site) -> None:
    found = (await asked(site, "/api/v1/drifts")).json()["drifts"]
    assert [d["id"] for d in found] == [d.id for d in site.world.loop.reads.drifts()]
    assert found


async def test_the_list_and_the_detail_show_the_outage(site: Site) -> None:
    for path in ("/slos", f"/slos/{NAME}", "/slos?service=chat"):
        page = Reader((await asked(site, path)).text)
        assert "LlmErrorBudgetBurnFast" in page.words, path
        assert "−" in page.words  # overdrawn
    detail = Reader((await asked(site, f"/slos/{NAME}")).text)
    assert "polyline" in detail.tags
    assert "11,000 of 60,000" in detail.words
    assert "✕ above" in detail.words
    assert {"/triage/chat", "/heatmap?service=chat", "/requests?service=chat", "/services/chat"} <= set(detail.links)


async def test_before_its_history_is_read_nothing_is_a_number(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for path in ("/slos", f"/slos/{NAME}", "/triage/chat"):
        answer = await asked(site, path)
        page = Reader(answer.text)
        assert answer.status_code == 200
        assert "its history is being read" in page.words, path
        assert 'class="absent no-data"' in answer.text
    (one,) = (await asked(site, "/api/v1/slos")).json()["slos"]
    assert (one["budget_left_ratio"], one["at_s"], one["counts"]) == (None, None, [])
    assert one["note"] == "its history is being read"
    site.records.close()


async def test_without_slos_the_page_says_how_to_begin(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.world.loop.use(())
    assert "No SLO yet" in (await asked(site, "/slos")).text
    site.records.close()


async def test_the_history_has_the_alert_with_its_ways_in_and_filters(site: Site) -> None:
    page = Reader((await asked(site, "/alerts")).text)
    assert "✕ firing" in page.words
    # what it says is that of now (11 of 60 minutes), not that of the minute in which it began
    assert "18.33% of the requests" in page.words
    assert "/docs/runbooks/error-budget-burn-fast" in page.links
    assert any(link.startswith("/alerts?silence=alertname%3D%22LlmErrorBudgetBurnFast%22") for link in page.links)
    assert "No alert in the range" in (await asked(site, "/alerts?state=resolved")).text
    assert "✕ firing" in (await asked(site, "/alerts?service=chat&state=firing&source=goodwatch&range=24h")).text
    assert (await asked(site, "/alerts?state=odd")).status_code == 400


async def test_a_silence_is_begun_shown_and_ended_with_plain_forms(site: Site) -> None:
    answer = await asked(site, "/silences", "POST", content=urlencode(SILENCE), headers=FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, "/alerts#silences")
    (held,) = await site.alerting.silences()
    assert [str(m) for m in held.matchers] == ['service="chat"', 'alertname=~"Llm.*"']
    assert held.ends_at_s == site.world.clock.now + 7200
    page = Reader((await asked(site, "/alerts")).text)
    assert f"/silences/{held.id}/end" in page.links
    assert "moving" in page.words
    site.world.clock.now += 60
    assert (await asked(site, f"/silences/{held.id}/end", "POST", headers=FORM)).status_code == 303
    assert await site.alerting.silences() == []
    assert (await asked(site, f"/silences/{held.id}/end", "POST", headers=FORM)).status_code == 404


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"matchers": "chat"}, "is not a matcher"), ({"matchers": ""}, "Not silenced"),
        ({"matchers": 'service=~".*"'}, "silence everything"), ({"duration": "soon"}, "is not a duration"),
        ({"duration": "400d"}, "at most a year"), ({"author": " "}, "author: write"), ({"comment": ""}, "comment: write"),
        ({"comment": "<script>alert(1)</script>", "author": ""}, "&lt;script&gt;alert(1)"),
    ],
)  # fmt: skip
async def test_a_silence_that_cannot_be_keeps_what_was_typed(site: Site, more: dict[str, str], says: str) -> None:
    answer = await asked(site, "/silences", "POST", content=urlencode(SILENCE | more), headers=FORM)
    assert answer.status_code == 400
    assert says in answer.text
    assert "<script>alert" not in answer.text
    assert await site.alerting.silences() == []


async def test_only_an_admin_on_our_own_pages_may_silence(site: Site) -> None:
    body, reader = urlencode(SILENCE), {"authorization": "Bearer read-secret"}
    for path in ("/silences", "/silences/x/end"):
        foreign = await asked(site, path, "POST", content=body, headers={**FORM, "sec-fetch-site": "cross-site"})
        assert foreign.status_code == 403
        assert (await asked(site, path, "POST", auth=CLOSED, content=body, headers=FORM)).status_code == 401
        refused = await asked(site, path, "POST", auth=CLOSED, content=body, headers={**FORM, **reader})
        assert refused.status_code == 403
    assert await site.alerting.silences() == []


async def test_triage_gathers_what_is_known(site: Site) -> None:
    for path in ("/triage/chat", "/triage?service=chat&alert=LlmErrorBudgetBurnFast"):
        page = Reader((await asked(site, path)).text)
        for words in ("TTFT p90 is above its target", NAME, "LlmErrorBudgetBurnFast", "requests_waiting", "chat-0"):
            assert words in page.words, path
    assert (await asked(site, "/triage/none")).status_code == 404


async def test_triage_of_a_service_whose_targets_are_gone_says_so(tmp_path: Path) -> None:
    site = await Site(tmp_path, services=False).until(371)
    page = Reader((await asked(site, "/triage/chat")).text)
    assert "No data: goodwatch sees no target of this service now" in page.words
    assert "LlmErrorBudgetBurnFast" in page.words
    site.records.close()


async def test_runbooks_are_pages_with_the_rules_that_are_evaluated(site: Site) -> None:
    page = Reader((await asked(site, "/docs/runbooks/error-budget-burn-fast")).text)
    assert "Where to look" in page.words
    assert {"ol", "pre", "h1", "h2"} <= set(page.tags)
    assert page.tags.count("h1") == 1
    index = Reader((await asked(site, "/docs/runbooks")).text)
    for link in {x for x in index.links if x.startswith("/docs/runbooks/")}:
        assert (await asked(site, link)).status_code == 200, link
    assert (await asked(site, "/docs/runbooks/none")).status_code == 404


@pytest.mark.parametrize("path", ["/slos", f"/slos/{NAME}", "/alerts", "/triage/chat", "/docs/runbooks/engine-stalled"])
async def test_pages_run_nothing_inline_and_their_tables_have_headers(site: Site, path: str) -> None:
    answer = await asked(site, path)
    page = Reader(answer.text)
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    assert all(link.startswith(("/", "?", "#")) for link in page.links)
    assert page.tags.count("caption") == page.tags.count("table")
    assert len(re.findall(r"<th[ >]", answer.text)) == len(re.findall(r"<th scope=", answer.text))


def test_markdown_never_lets_text_become_markup() -> None:
    html = html_of("# <script>\n\n[a](//evil.example) [b](https://ok.example) **<i>**\n\n| a |\n| --- |\n| <b> |\n")
    assert "<script>" not in html
    assert 'href="//evil' not in html
    assert '<a href="https://ok.example">b</a>' in html
    assert "<i>" not in html
    assert '<td class="wrap">&lt;b&gt;</td>' in html
