"""The pages of requests as HTML: what they say in every state, what they never say, and where their links lead."""

import doctest
import html
import re
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from exporters.prometheus import Exporter, SelfMetrics
from goodwatch.api import request_query
from goodwatch.api.app import create_app
from goodwatch.api.auth import Auth
from goodwatch.api.request_query import slice_of
from goodwatch.api.routes_requests import request_routes
from goodwatch.api.ui import heatmap_cells, money_pages, request_tables
from goodwatch.api.ui.assets import own_file
from goodwatch.api.ui.heatmap_cells import Held, held_against, tone_of
from goodwatch.api.ui.pages import pages
from goodwatch.api.ui.request_pages import request_pages
from goodwatch.api.ui.request_tables import WIDTH, lines_of
from goodwatch.app.config import Service
from goodwatch.app.telemetry import snapshot
from goodwatch.core.model import Basis, Bounds, Limits, Number
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment_limits import LimitsRow, LimitsTable
from goodwatch.signals.cost import Price
from goodwatch.signals.heatmap import Ask, Measure
from tests.api.test_pages import Reader, contrast
from tests.support.request_views import (
    LISTENING,
    NOW_S,
    RequestWorld,
    fact,
    part_of,
    recorded_world,
    score_of,
    traffic,
)
from tests.support.views import HOSTILE

#: pages of the menu that other routers serve; tests/e2e follows every link of a running service
ELSEWHERE = {"/slos", "/alerts", "/recommendations", "/experiments", "/reports"}
PAGES = ("/heatmap", "/requests", "/costs", "/quality")


def app_of(world: RequestWorld) -> FastAPI:
    views = world.watch
    routers = (
        pages(views, requests=True), request_pages(world.reads, views), request_routes(world.reads, views),
    )  # fmt: skip
    exporter = Exporter(lambda: snapshot(views), SelfMetrics("1.2.3"))
    return create_app(views, auth=Auth.of([], loopback=True, insecure=False), exporter=exporter, routers=routers)


async def got(world: RequestWorld, path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app_of(await world.ready()))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9470") as client:
        return await client.get(path, headers=headers)


async def words(world: RequestWorld, path: str) -> str:
    answer = await got(world, path)
    assert answer.status_code == 200, answer.text
    return Reader(answer.text).words


def hundred(**more: Any) -> list[dict[str, Any]]:
    """A hundred requests of one cell whose TTFT are 1 to 100 ms: by hand, the p99 is 99 ms and the p50 is 50 ms."""
    return [fact(n, engine_ttft_s=n / 1000, engine_queue_s=0.0, **more) for n in range(1, 101)]


@pytest.mark.parametrize(
    "module", [request_query, heatmap_cells, request_tables, money_pages], ids=lambda m: m.__name__
)
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


class TestHeatmap:
    async def test_a_cell_shows_its_number_its_count_and_in_words_its_interval_and_basis(self) -> None:
        page = (await got(RequestWorld(hundred()), "/heatmap?q=p50")).text
        said = re.search(r'class="sr">(input 64–255 tokens, output 0–63 tokens: [^<]*)', page)
        assert said
        # binomial table, n = 100, p = 0.5: P(X <= 41) = 0.0443, so the 42nd and the 59th bound the median, 95 % each
        assert "50 ms (interval 42–59 ms)" in said[1]
        assert "100 requests" in said[1]
        assert "estimated" in said[1]  # there is no counter that would agree
        assert "no counter to compare with" in said[1]
        assert "met: target 500 ms" in html.unescape(said[1])

    async def test_too_few_requests_are_said_with_their_count_and_no_number(self) -> None:
        text = await words(RequestWorld(hundred()[:12]), "/heatmap?q=p99")
        assert "too few" in text
        assert "12 requests do not support a p99" in text
        assert not re.search(r"\d ms 12 requests", text)

    async def test_a_cell_leads_to_exactly_its_requests_the_slowest_first(self) -> None:
        world = RequestWorld(traffic(300))
        page = (await got(world, "/heatmap?measure=requests")).text
        cells = re.findall(r'<a href="(/requests\?[^"]*)" title="[^"]*: requests ([\d,]+)', page)
        assert len(cells) > 5
        for link, count in cells:
            shown = await words(world, html.unescape(link))
            assert re.search(rf"\b{count} requests?\b", shown), link
            assert "slowest by E2E at the engine" in shown
        assert sum(int(count.replace(",", "")) for _, count in cells) == 300

    async def test_lengths_that_nobody_told_have_a_band_that_leads_to_them(self) -> None:
        world = RequestWorld([*hundred(), *(fact(n, output_tokens=None, tenant="dark") for n in range(101, 108))])
        page = (await got(world, "/heatmap?measure=requests")).text
        (link,) = re.findall(r'<a href="(/requests\?[^"]*output=%28not\+told%29[^"]*)"', page)
        assert "7 requests" in await words(world, html.unescape(link))

    async def test_the_legend_says_what_is_shown_of_how_many_and_what_is_unaccounted(self) -> None:
        text = await words(RequestWorld(hundred()), "/heatmap")
        for said in ("TTFT at the engine, p99", "Target 500 ms", "100 requests", "made of single requests",
                     "Unaccounted: arrivals are not counted here"):  # fmt: skip
            assert said in text

    async def test_requests_that_the_engine_counted_and_that_left_no_fact_are_told(self) -> None:
        text = await words(recorded_world(), "/heatmap?q=p50")
        # 552 in vllm:request_success_total at the end of drain2 (the recording's last scrape before it), 496 spans
        assert "Unaccounted: 0 requests" in text
        assert "496 ok, 56 missing" in text
        assert "89.9" in text

    async def test_a_sample_is_estimated(self) -> None:
        text = await words(RequestWorld(hundred(weight=10.0)), "/heatmap?measure=attainment")
        assert "estimated" in text
        assert "sampling probability" in text

    async def test_rollups_answer_long_ranges_and_say_so(self) -> None:
        assert "made of sums by minute, hour and day" in await words(RequestWorld(hundred()), "/heatmap?range=24h")

    @pytest.mark.parametrize("measure", ["attainment", "requests", "cost", "cost_good", "quality", "gateway_e2e"])
    async def test_every_measure_has_a_page(self, measure: str) -> None:
        rows = traffic(300)
        text = await words(RequestWorld(rows, scores=[score_of(r, 0.9) for r in rows]), f"/heatmap?measure={measure}")
        assert "by input length" in text

    async def test_a_client_latency_is_not_held_against_an_engine_s_target(self) -> None:
        text = await words(RequestWorld(hundred(client_e2e_s=9.0)), "/heatmap?measure=client_e2e")
        assert "Targets are held against the engine's stopwatch, not the client's" in text
        assert "✕" not in text


class TestTones:
    LIMIT = Held(0.5, 0.5)

    @pytest.mark.parametrize(
        ("low", "value", "high", "expected"),
        [
            (0.1, 0.2, 0.25, "met-far"), (0.3, 0.4, 0.5, "met"), (0.4, 0.45, 0.51, "near"), (0.4, 0.45, None, "near"),
            (0.5, 0.5, 0.5, "met"), (0.51, 0.9, 1.0, "missed"), (0.51, 1.1, None, "missed-far"),
        ],
    )  # fmt: skip
    def test_a_latency_at_its_limit_meets_it(self, low: float, value: float, high: float | None, expected: str) -> None:
        assert tone_of(Number("s", Basis.COUNTED, value, Bounds(low, high)), self.LIMIT) == expected

    @given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0.5, 0.999))
    def test_an_attainment_is_met_only_if_all_of_its_interval_is(
        self, one: float, two: float, three: float, objective: float
    ) -> None:
        low, value, high = sorted((one, two, three))
        tone = tone_of(
            Number("ratio", Basis.ESTIMATED, value, Bounds(low, high)), Held(objective, objective, above=True)
        )
        assert tone.startswith("met") == (low >= objective)
        assert tone.startswith("missed") == (high < objective)

    def test_requests_with_several_targets_are_held_to_the_strictest_and_missed_by_the_loosest(self) -> None:
        table = LimitsTable((LimitsRow(Limits(ttft_s=0.2), tenant="gold"), LimitsRow(Limits(ttft_s=1.0))))
        ask = Ask(Measure.LATENCY, 0.99, "engine_ttft_s")
        held = held_against(ask, table, Vantage.ENGINE, None, {})
        assert (held.low, held.high, held.text) == (0.2, 1.0, "target 200 ms to 1 s, by who asks")
        assert tone_of(Number("s", Basis.COUNTED, 0.5, Bounds(0.4, 0.6)), held) == "near"
        assert held_against(ask, table, Vantage.ENGINE, None, {"tenant": "silver"}).low == 1.0

    def test_without_a_limit_for_all_of_them_nothing_is_coloured(self) -> None:
        table = LimitsTable((LimitsRow(Limits(), tenant="batch"), LimitsRow(Limits(ttft_s=1.0))))
        held = held_against(Ask(Measure.LATENCY), table, Vantage.ENGINE, None, {})
        assert tone_of(Number("s", Basis.COUNTED, 0.5), held) == ""
        assert "filter by" in held.text

    @pytest.mark.parametrize("scheme", ["dark", "light"])
    def test_numbers_can_be_read_on_every_tone(self, scheme: str) -> None:
        text = own_file("goodwatch.css").decode()
        grounds = re.findall(r"--(met|met-far|near|missed|missed-far|shade-\d): (#\w{6})", text)
        found = grounds[: len(grounds) // 2] if scheme == "dark" else grounds[len(grounds) // 2 :]
        assert len(found) == 9
        ink = {"dark": "#eef2f7", "light": "#101720"}[scheme]
        for name, colour in found:
            assert contrast(ink, colour) >= 5.5, name  # WCAG 2.2, 1.4.3 asks for 4.5


class TestExplorer:
    async def test_filters_keep_what_they_say(self) -> None:
        rows = [
            fact(1, tenant="a", engine_e2e_s=3.0), fact(2, tenant="a", engine_e2e_s=0.3),
            fact(3, tenant=None, engine_e2e_s=4.0), fact(4, tenant="b", engine_e2e_s=5.0, status="error"),
        ]  # fmt: skip
        for query, count in (
            ("tenant=a", 2), ("tenant=(not told)", 1), ("over=1s", 3), ("status=error", 1), ("verdict=bad", 3),
            ("tenant=a&over=1s", 1), ("input=100", 4), ("input=101-", 0),
        ):  # fmt: skip
            text = await words(RequestWorld(rows), f"/requests?{query}")
            assert ("No request here" if not count else f"{count} request{'s' if count > 1 else ''} , 1 to") in text, (
                query
            )

    async def test_the_slowest_is_first_and_every_page_of_the_list_is_reached_once(self) -> None:
        world = RequestWorld(traffic(120))
        path, seen = "/requests", []
        while path:
            page = (await got(world, path)).text
            seen += re.findall(r'href="/requests/([0-9a-f]{32})"', page)
            found = re.search(r'href="(\?[^"]*)" rel="next"', page)
            path = f"/requests{html.unescape(found[1])}" if found else ""
        by_hand = sorted(world.rows, key=lambda r: -r["engine_e2e_s"])
        assert seen == [r["trace_id"] for r in by_hand]

    async def test_unknown_is_a_dash_and_not_zero(self) -> None:
        page = (await got(RequestWorld([fact(1, output_tokens=None), fact(2)]), "/requests")).text
        assert '<td class="num right">–</td>' in page

    async def test_a_time_says_whose_stopwatch_it_is_from(self) -> None:
        text = await words(RequestWorld([fact(1, client_e2e_s=1.2, gateway_ttft_s=0.3)]), "/requests")
        for title in ("E2E engine", "E2E client", "TTFT gateway"):
            assert title in text
        assert "E2E gateway" not in text

    @pytest.mark.parametrize(
        ("query", "complaint"),
        [
            ("order=best", "order: 'best' is not one of"), ("input=many", "input: 'many' is no number of tokens"),
            ("input=9-3", "ends before it begins"), ("over=fast", "over: 'fast' is not a duration"),
            ("status=fine", "status: 'fine' is not one of"), ("cursor=-1", "cursor: '-1' is not one of ours"),
            ("range=2y", "range: '2y' is not one of"), ("service=chta", "there is no 'chta'; there are: chat"),
        ],
    )  # fmt: skip
    async def test_a_wrong_part_of_the_url_is_named_with_what_would_be_right(self, query: str, complaint: str) -> None:
        answer = await got(RequestWorld([fact(1)]), f"/requests?{query}")
        assert answer.status_code == 400
        assert complaint in Reader(answer.text).words

    @given(st.dictionaries(st.sampled_from(["input", "output", "over", "status", "tenant"]), st.text(max_size=12)))
    def test_any_query_is_a_slice_or_a_sentence(self, query: Mapping[str, str]) -> None:
        complaint = ""
        try:
            slice_of(query, "chat", 0.0, 1.0, field="engine_e2e_s")
        except ValueError as error:
            complaint = str(error)
        assert re.match(r"(input|output|over|status): |$", complaint)


class TestOneRequest:
    ONE = fact(
        7, engine_queue_s=0.25, engine_prefill_s=0.5, engine_decode_s=1.0, engine_ttft_s=0.8, engine_e2e_s=2.0,
        gateway_ttft_s=0.9, gateway_e2e_s=2.25, tenant="acme", cached_tokens=64,
    )  # fmt: skip

    async def test_stages_are_the_engine_s_and_gateway_and_client_have_lines_of_their_own(self) -> None:
        text = await words(RequestWorld([self.ONE], [part_of(self.ONE)]), f"/requests/{self.ONE['trace_id']}")
        assert re.search(r"engine .*E2E 2 s .*queue 250 ms .*prefill 500 ms .*decode 1 s .*rest 250 ms", text)
        assert re.search(r"gateway .*E2E 2.25 s .*until first token 900 ms .*after it 1.35 s", text)
        assert "bad missed TTFT" in text  # 0.8 s against 0.5 s
        assert "engine request" in text
        assert "100, 64 of them cached" in text

    async def test_a_stage_that_nobody_told_is_named_and_not_drawn(self) -> None:
        (line,) = lines_of(fact(1, engine_prefill_s=0.5, engine_e2e_s=1.0))
        assert [s.name for s in line.stages] == ["prefill", "rest"]
        assert line.notes == ("not told: queue, decode",)

    @given(
        *(st.one_of(st.none(), st.floats(0, 100)) for _ in range(3)), st.one_of(st.none(), st.floats(0.001, 300)),
        st.one_of(st.none(), st.floats(0.001, 300)),
    )  # fmt: skip
    def test_no_line_leaves_its_drawing(
        self, queue: float | None, prefill: float | None, decode: float | None, e2e: float | None, client: float | None
    ) -> None:
        one = fact(
            1, engine_queue_s=queue, engine_prefill_s=prefill, engine_decode_s=decode, engine_e2e_s=e2e,
            engine_ttft_s=None, client_e2e_s=client,
        )  # fmt: skip
        for line in lines_of(one):
            for stage in line.stages:
                assert 0 <= stage.x <= WIDTH
                assert stage.x + stage.width <= WIDTH + 2

    async def test_the_link_is_to_the_operator_s_own_tool(self) -> None:
        world = RequestWorld([self.ONE], trace_url="https://tempo.example/t/{trace_id}")
        page = (await got(world, f"/requests/{self.ONE['trace_id']}")).text
        assert f'href="https://tempo.example/t/{self.ONE["trace_id"]}"' in page

    async def test_a_trace_that_is_not_settled_says_so(self) -> None:
        early = part_of(self.ONE)
        text = await words(RequestWorld([], [early]), f"/requests/{self.ONE['trace_id']}")
        assert "Not counted yet" in text

    async def test_an_unknown_trace_is_404(self) -> None:
        answer = await got(RequestWorld([self.ONE]), "/requests/abc")
        assert answer.status_code == 404
        assert "No trace" in Reader(answer.text).words


class TestMoney:
    async def test_the_bill_is_split_and_idle_is_its_own_line(self) -> None:
        text = await words(recorded_world(price=Price(1, 2.5)), "/costs")
        assert "$0.375 in the range" in text  # one GPU at 2.50 an hour for the nine minutes that it was there
        for name in ("good", "late", "idle"):
            assert re.search(rf"\b{name} \$[\d.]+ [\d.]+ %", text), name
        assert "Only 89.9 % of the requests that the engine finished" in text

    async def test_without_a_price_nothing_is_free(self) -> None:
        text = await words(RequestWorld(traffic(100), price=None), "/costs")
        assert "no price" in text
        assert "$0" not in text

    async def test_quality_says_how_many_were_scored_and_what_was_fast_but_wrong(self) -> None:
        rows = hundred()
        world = RequestWorld(rows, scores=[score_of(r, 0.1 if i < 10 else 0.9) for i, r in enumerate(rows[:50])])
        text = await words(world, "/quality")
        assert re.search(r"Scored estimated 50 %", text)
        assert re.search(
            r"Fast but wrong estimated ≈ 20 % 11.2–33.1 %", text
        )  # Wilson 95 % of 10 of 50: 0.1124, 0.3304
        assert "goodwatch itself asks no judge" in text

    async def test_judges_are_held_against_people(self) -> None:
        rows = hundred()
        pairs = [(0.9, 0.9)] * 40 + [(0.9, 0.1)] * 5 + [(0.1, 0.9)] * 10 + [(0.1, 0.1)] * 45
        scores = [score_of(r, judge) for r, (judge, _) in zip(rows, pairs, strict=True)]
        scores += [score_of(r, person, annotator="human") for r, (_, person) in zip(rows, pairs, strict=True)]
        text = await words(RequestWorld(rows, scores=scores), "/quality")
        assert re.search(r"faithfulness .* 100 85 % 0.70 \(0.\d\d to 0.\d\d\)", text)  # Cohen's kappa by hand: 0.70

    async def test_without_scores_the_page_says_how_they_come(self) -> None:
        text = await words(RequestWorld(hundred()), "/quality")
        assert "No score yet" in text
        assert re.search(r"Quality \? ?no data|Quality no data", text)


class TestStates:
    @pytest.mark.parametrize("path", PAGES)
    async def test_without_the_section_it_says_how_to_switch_it_on(self, path: str) -> None:
        text = await words(RequestWorld(enabled=False), path)
        assert "nothing listens for them" in text
        assert "otlp: origins:" in text

    @pytest.mark.parametrize("path", PAGES)
    async def test_before_anything_arrived_it_says_where_it_listens(self, path: str) -> None:
        text = await words(RequestWorld(), path)
        assert "Nothing arrived yet" in text
        assert "http://127.0.0.1:4318" in text

    @pytest.mark.parametrize("path", PAGES)
    async def test_a_broken_store_shows_no_number(self, path: str) -> None:
        world = await RequestWorld(traffic(50)).ready()
        world.break_store()
        transport = httpx.ASGITransport(app=app_of(world))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9470") as client:
            text = Reader((await client.get(path)).text).words
        assert "The request store cannot be read" in text
        assert "is closed" in text
        assert "Nothing arrived" not in text

    @pytest.mark.parametrize("path", PAGES)
    async def test_no_service_is_a_state_too(self, path: str) -> None:
        assert "No service yet" in await words(RequestWorld(services=()), path)

    async def test_a_range_without_requests_says_that_spans_come(self) -> None:
        told = replace(LISTENING, kept=1234, last_s=NOW_S - 5, waiting=3)
        text = await words(RequestWorld([fact(1, ended_at=NOW_S - 90_000)], told=told), "/requests")
        assert "No request of chat that fits ended in" in text
        assert "1,230 spans were kept" in text
        assert "3 traces are not settled yet" in text

    async def test_what_was_refused_is_told(self) -> None:
        told = replace(LISTENING, refused={"too_large": 7}, problem="requests.duckdb: the disk is full")
        text = await words(RequestWorld([fact(1)], told=told), "/heatmap")
        assert "7 too large" in text
        assert "the disk is full" in text

    @pytest.mark.parametrize("path", [*PAGES, "/requests/" + f"{1:032x}"])
    async def test_hostile_text_stays_text(self, path: str) -> None:
        names = ("model", "tenant", "adapter", "route", "target", "deployment", "error_type", "response_id", "form")
        one = fact(1, **dict.fromkeys(names, HOSTILE))
        world = RequestWorld(
            [one, fact(2, trace_id=f"{1:032x}")], [part_of(one, name=HOSTILE, source=HOSTILE, error_type=HOSTILE)],
            [score_of(one, 0.5, evaluator=HOSTILE, label=HOSTILE, explanation_ref=HOSTILE)],
        )  # fmt: skip
        answer = await got(world, path)
        page = Reader(answer.text)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert page.tags.count("script") == answer.text.count("<script")
        assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
        assert "unsafe" not in answer.headers["content-security-policy"]

    async def test_every_link_of_every_page_leads_somewhere(self) -> None:
        rows = traffic(60)
        world = RequestWorld(rows, services=(Service.model_validate({"name": "chat"}),))
        links: set[str] = set()
        transport = httpx.ASGITransport(app=app_of(await world.ready()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9470") as client:
            for path in (*PAGES, f"/requests/{rows[0]['trace_id']}"):
                found = Reader((await client.get(path)).text).links
                links |= {x if x.startswith("/") else path + x for x in found if x.startswith(("/", "?"))}
            by_kind = {re.sub(r"[0-9a-f]{32}|=[^&]*", "", link): link for link in links if "/static/vega" not in link}
            for link in set(by_kind.values()) - ELSEWHERE:
                assert (await client.get(link)).status_code == 200, link
