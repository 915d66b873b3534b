"""The web pages as HTML: what they say, what they never say, and how fast."""

import doctest
import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import httpx
import polars as pl
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from exporters.prometheus import Exporter, SelfMetrics
from goodwatch.api.app import create_app
from goodwatch.api.auth import Auth
from goodwatch.api.ui import bars, chart_rows, format, pages, ranges, render, tables, theme, tiles
from goodwatch.api.ui.assets import Assets
from goodwatch.api.ui.charts import CHARTS, charts, template
from goodwatch.api.ui.ranges import time_range
from goodwatch.app.telemetry import snapshot
from goodwatch.app.view import Event, Health, StoreView, Views
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Absence, Basis, Bounds, Limits, Number
from goodwatch.signals.derive import MEANINGS
from goodwatch.signals.frames import DERIVED
from tests.support.views import (
    AT_S,
    HOSTILE,
    LIMITS,
    PlainViews,
    RecordedViews,
    Together,
    derived_rows,
    empty_views,
    hostile_views,
    no_data_views,
    silent_service,
)

MODULES = (bars, chart_rows, format, pages, ranges, render, tables, theme, tiles)


def app_of(views: Views) -> FastAPI:
    return create_app(
        views, auth=Auth.of([], loopback=True, insecure=False),
        exporter=Exporter(lambda: snapshot(views), SelfMetrics("1.2.3")), routers=(pages.pages(views),),
    )  # fmt: skip


async def got(views: Views, path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app_of(views))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9470") as client:
        return await client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})


class Reader(HTMLParser):
    """Text, links, elements and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def charts_in(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts-data">(.*?)</script>', html, re.DOTALL)
    assert found
    specs: dict[str, Any] = json.loads(found[1])
    return specs


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


class TestNumbers:
    @pytest.mark.parametrize(
        ("number", "expected"),
        [
            (Number("ratio", Basis.BOUNDED, bounds=Bounds(0.97213, 0.98891)), "97.2–98.9 %"),
            (Number("ratio", Basis.BOUNDED, bounds=Bounds(1.0, 1.0)), "100 %"),
            (Number("ratio", Basis.BOUNDED, bounds=Bounds(0.9, 0.99999)), "90–99.999 %"),
            (Number("s", Basis.BOUNDED, bounds=Bounds(10.0, None)), "> 10 s"),
            (Number("s", Basis.BOUNDED, bounds=Bounds(10.0, float("inf"))), "> 10 s"),
            (Number("s", Basis.BOUNDED, bounds=Bounds(0.5, 1.0)), "0.5–1 s"),
            (Number("s", Basis.MEASURED, 0.000004), "4 µs"),
            (Number("1/s", Basis.MEASURED, 0.0), "0 /s"),
            (Number("USD", Basis.MEASURED, 0.9568), "$0.957"),
            (Number("USD/h", Basis.MEASURED, 2.5), "$2.50 /h"),
            (Number("ratio", Basis.ESTIMATED, 0.973, Bounds(0.96, 0.98)), "≈ 97.3 %"),
        ],
    )
    def test_read_as_a_person_writes_them(self, number: Number, expected: str) -> None:
        assert format.shown(number).line == expected

    def test_the_three_absences_differ_from_each_other_and_from_zero(self) -> None:
        kinds = {format.shown(Number.none("1/s", absence)).kind for absence in Absence}
        texts = {format.shown(Number.none("1/s", absence)).line for absence in Absence}
        assert len(kinds) == len(texts) == 3
        zero = format.shown(Number("1/s", Basis.MEASURED, 0.0))
        assert zero.kind not in kinds
        assert zero.line not in texts

    def test_an_absent_number_says_why(self) -> None:
        assert "no price" in format.shown(Number.none("USD", Absence.NOT_MEASURABLE, "no price for chat-0")).title

    @given(st.floats(1e-6, 1e5), st.floats(1, 50))
    def test_a_shown_interval_of_seconds_still_holds_the_truth(self, low: float, factor: float) -> None:
        text, unit = format.interval("s", Bounds(low, low * factor))
        size = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
        ends = [float(end.replace(",", "")) * size for end in text.split("–")]
        assert ends[0] <= low * (1 + 1e-8) or low == low * factor or len(ends) == 1
        assert ends[-1] >= low * factor * (1 - 5e-3 if len(ends) == 1 else 1 - 1e-8)

    @given(st.floats(0, 1), st.floats(0, 1))
    def test_a_shown_interval_of_ratios_still_holds_the_truth(self, one: float, other: float) -> None:
        low, high = sorted((one, other))
        if low == high:
            return
        text, _ = format.interval("ratio", Bounds(low, high))
        first, last = (float(end) / 100 for end in text.split("–"))
        assert first <= low * (1 + 1e-8)
        assert last >= high * (1 - 1e-8)

    @given(st.floats(0, 1))
    def test_not_all_is_never_shown_as_all_nor_something_as_nothing(self, ratio: float) -> None:
        assert (format.percent(ratio) == "100") == (ratio == 1)
        assert (format.percent(ratio) == "0") == (ratio == 0)


class TestOverview:
    async def test_says_what_is_wrong_and_shows_the_numbers_with_their_targets(self) -> None:
        page = Reader((await got(RecordedViews(), "/")).text)
        assert "TTFT p90 is above its target" in page.words
        assert "objective 99 %" in page.words
        assert "target 500 ms" in page.words
        assert "1/1 target up" in page.words
        assert "bounded" in page.words
        assert page.tags.count("svg") >= 4

    async def test_keeps_the_order_that_it_is_given(self) -> None:
        html = (await got(Together(RecordedViews(), RecordedViews(service="calm", phase="calm")), "/")).text
        assert html.index("/services/chat") < html.index("/services/calm")

    async def test_without_services_it_says_how_to_begin(self) -> None:
        page = Reader((await got(empty_views(), "/")).text)
        assert "No services yet" in page.words
        assert "targets:" in page.words

    async def test_before_the_first_scrape_nothing_is_zero(self) -> None:
        page = Reader((await got(no_data_views(), "/")).text)
        assert "waits for the first scrape" in page.words
        assert "no data" in page.words
        assert "first scrapes are under way" in page.words
        assert not re.search(r"(?<![\d–.])0 ?(%|/s|\$)", page.words.replace("0/1", ""))

    @pytest.mark.parametrize("absence", Absence)
    async def test_each_absence_has_its_own_look(self, absence: Absence) -> None:
        views = PlainViews([silent_service(absence=absence, note="because of this")])
        html = (await got(views, "/")).text
        assert f'class="absent {absence.value.replace(" ", "-")}" title="{absence.value}: because of this"' in html

    async def test_a_replay_says_that_it_is_one(self) -> None:
        assert "not your fleet" in (await got(RecordedViews(demo_note="A replay, not your fleet."), "/")).text

    async def test_a_sick_store_is_the_first_thing_that_is_said(self) -> None:
        sick = Health(True, True, "", StoreView(False, "the disk is full", 400.0, 0))
        html = (await got(RecordedViews(health=sick), "/")).text
        assert html.index("the disk is full") < html.index("<main")


class TestService:
    async def test_has_every_chart_with_data_and_the_events_on_each(self) -> None:
        specs = charts_in((await got(RecordedViews(repeats=2), "/services/chat")).text)
        assert set(specs) == {chart.key for chart in CHARTS}
        for key, spec in specs.items():
            assert spec["datasets"]["events"], key
            marks = sum(len(spec["datasets"][name]) for name in ("boxes", "open", "paths", "points"))
            assert marks > 0, key

    async def test_shows_models_targets_limits_and_events(self) -> None:
        page = Reader((await got(RecordedViews(repeats=2), "/services/chat")).text)
        for words in ("tiny", "chat-0", "Limit: KV cache", "all counters began again", "vllm"):
            assert words in page.words

    async def test_a_range_in_the_url_is_the_range_of_the_charts(self) -> None:
        path = "/services/chat?from=2026-03-04T02:00&to=2026-03-04T03:00"
        answer = await got(RecordedViews(repeats=2), path)
        scale = charts_in(answer.text)["ttft"]["layer"][2]["encoding"]["x"]["scale"]
        assert scale["domain"] == [(AT_S - 4320) * 1000, (AT_S - 720) * 1000]
        assert 'data-refresh-s="0"' in answer.text

    @pytest.mark.parametrize(
        ("query", "complaint"),
        [
            ("range=2y", "not one of 15m, 1h"),
            ("from=yesterday", "from: &#39;yesterday&#39; is not a time"),
            ("to=2026-03-04T03:00", "from: missing"),
            ("from=2026-03-04T03:00&to=2026-03-04T02:00", "is not after from"),
            ("from=1&to=1772593920", "at most 400 d"),
            ("from=99999999999999999999999999", "is not after from"),
            ("from=²", "is not a time"),
        ],
    )
    async def test_a_bad_range_is_refused_with_what_would_be_right(self, query: str, complaint: str) -> None:
        answer = await got(PlainViews([silent_service()]), f"/services/chat?{query}")
        assert answer.status_code == 400
        assert complaint in answer.text

    async def test_an_unknown_name_names_the_known_ones(self) -> None:
        answer = await got(PlainViews([silent_service("chat")]), "/services/<b>chta")
        assert answer.status_code == 404
        assert "There are: chat." in answer.text
        assert "<b>chta" not in answer.text

    async def test_a_broken_store_does_not_hide_the_current_numbers(self) -> None:
        class Broken(PlainViews):
            async def series(self, *_: object, **__: object) -> pl.DataFrame:
                raise StoreError("goodwatch.duckdb: cannot be read: disk I/O error")

        views = Broken(RecordedViews().services())
        service, overview = await got(views, "/services/chat"), await got(views, "/")
        assert service.status_code == overview.status_code == 200
        assert "disk I/O error" in service.text
        assert "8.71" in service.text

    async def test_a_name_that_needs_quoting_can_be_reached(self) -> None:
        views = PlainViews([silent_service("a/b c?d")])
        (link,) = {x for x in Reader((await got(views, "/")).text).links if "/services/" in x}
        assert (await got(views, link)).status_code == 200

    async def test_a_day_is_ready_in_time(self) -> None:
        views = PlainViews(RecordedViews().services())
        derived = views.shown[0].derived
        ends = [AT_S - 720 * i for i in range(120)]
        rows = [r for at in ends for r in derived_rows(replace(derived, start_s=at - 720, end_s=at), "chat")]
        views.frame = pl.DataFrame(rows, schema=DERIVED, orient="row")
        app = app_of(views)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:9470"
        ) as client:
            await client.get("/services/chat?range=24h")
            times = []
            for _ in range(3):
                start = time.perf_counter()
                answer = await client.get("/services/chat?range=24h")
                times.append(time.perf_counter() - start)
        assert len(charts_in(answer.text)["ttft"]["datasets"]["windows"]) == 120
        assert min(times) < 0.3


class TestTarget:
    async def test_says_what_it_can_tell_the_kernel_first(self) -> None:
        html = (await got(RecordedViews(), "/targets/chat-0")).text
        page = Reader(html)
        for words in ("measured", "absent", "vllm:time_to_first_token_seconds", "(22 bounds)", "★"):
            assert words in page.words
        assert html.index("kv_cache_used_ratio</span>") < html.index("kv_block_size_tokens</span>")

    async def test_a_target_that_is_down_says_why(self) -> None:
        page = Reader((await got(RecordedViews("vllm-0.10.2-engine-crash"), "/targets/chat-0")).text)
        assert "down" in page.words
        assert "connection refused" in page.words

    async def test_a_target_that_was_never_read_claims_nothing(self) -> None:
        page = Reader((await got(no_data_views(), "/targets/chat-0")).text)
        assert "not read yet" in page.words
        assert "No page was read yet" in page.words


async def test_about_defines_every_name_and_links_the_machines_pages() -> None:
    page = Reader((await got(RecordedViews(), "/about")).text)
    assert all(name in page.words for name in MEANINGS)
    assert {"/metrics", "/api/docs"} <= set(page.links)


PATHS = ("/", "/services/chat", "/targets/chat-0", "/about", "/services/none")


@pytest.mark.parametrize("path", PATHS)
async def test_hostile_text_stays_text(path: str) -> None:
    answer = await got(hostile_views(), path)
    page = Reader(answer.text)
    assert "<script>alert" not in answer.text
    assert "</style>" not in answer.text.replace("\\u003c/style\\u003e", "")
    assert page.tags.count("script") == answer.text.count("<script")
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    if path in ("/", "/services/chat"):
        assert HOSTILE in "".join(page.text)


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_may_load_only_from_here_and_runs_nothing_inline(path: str) -> None:
    answer = await got(RecordedViews(), path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    page = Reader(answer.text)
    assert all(link.startswith(("/", "?", "#")) or link == "" for link in page.links)
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PATHS)
async def test_every_link_keeps_the_prefix_of_the_external_url(path: str) -> None:
    views = RecordedViews(external_url="https://ops.example/watch/")
    links = Reader((await got(views, f"/watch{path}", host="ops.example")).text).links
    assert [x for x in links if x.startswith("/") and not x.startswith("/watch/")] == []
    for link in {x.partition("?")[0] for x in links if x.startswith("/watch/") and "vega" not in x}:
        assert (await got(views, link, host="ops.example")).status_code == 200, link


class TestCharts:
    def frame(self, *rows: tuple[float, float | None, float | None, float | None, str], name: str) -> pl.DataFrame:
        cells = [
            {"ts": ts, "window_s": 60.0, "service": "s", "target": "", "model": "", "name": name, "value": value,
             "low": low, "high": high, "basis": None, "note": note}
            for ts, value, low, high, note in rows
        ]  # fmt: skip
        return pl.DataFrame(cells, schema=DERIVED, orient="row")

    def drawn(self, frame: pl.DataFrame, *events: Event, objective: float | None = None) -> dict[str, dict[str, Any]]:
        return charts(frame, events, start_s=0, end_s=600, limits=LIMITS, objective=objective)

    def test_a_gap_stays_a_gap_and_says_why(self) -> None:
        rows = ((60.0, 1.0, None, None, ""), (120.0, None, None, None, "no traffic"), (180.0, 2.0, None, None, ""))
        found = self.drawn(self.frame(*rows, name="request_rate_per_s"))["requests"]["datasets"]
        assert [row["v"] for row in found["paths"]] == [1.0, None, 2.0]
        assert [row["v"] for row in found["points"]] == [1.0, 2.0]
        assert [row.get("n1") for row in found["windows"]] == ["1 /s", "no traffic", "2 /s"]

    def test_a_missing_window_breaks_the_line_too(self) -> None:
        rows = ((60.0, 1.0, None, None, ""), (300.0, 2.0, None, None, ""))
        found = self.drawn(self.frame(*rows, name="request_rate_per_s"))["requests"]["datasets"]
        assert [row["v"] for row in found["paths"]] == [1.0, None, 2.0]

    def test_an_interval_is_a_box_and_an_open_one_reaches_the_top(self) -> None:
        rows = ((60.0, None, 0.25, 0.5, ""), (120.0, None, 10.0, None, ""), (180.0, None, None, None, "no data"))
        found = self.drawn(self.frame(*rows, name="ttft_p99_seconds"))["ttft"]["datasets"]
        assert [(b["t0"], b["t1"], b["lo"], b["hi"]) for b in found["boxes"]] == [(0, 60_000, 0.25, 0.5)]
        assert [b["lo"] for b in found["open"]] == [10.0]
        assert found["paths"] == []
        assert [w["n0"] for w in found["windows"]] == ["250–500 ms", "> 10 s", "no data"]

    def test_attainment_is_coloured_by_what_the_whole_interval_says(self) -> None:
        rows = ((60.0, None, 0.99, 1.0, ""), (120.0, None, 0.5, 1.0, ""), (180.0, None, 0.1, 0.2, ""))
        found = self.drawn(self.frame(*rows, name="attainment_ratio"), objective=0.99)["attainment"]["datasets"]
        assert [b["s"] for b in found["boxes"]] == ["meets", "uncertain", "misses"]

    def test_targets_and_objective_are_in_sight(self) -> None:
        specs = self.drawn(pl.DataFrame(schema=DERIVED), objective=0.99)
        for key, limit in (("ttft", 0.5), ("tpot", 0.05), ("attainment", 0.99)):
            low, high = specs[key]["layer"][2]["encoding"]["y"]["scale"]["domain"]
            assert specs[key]["datasets"]["limit"] == [{"y": limit}]
            assert low < limit < high

    def test_without_any_number_the_charts_are_empty_and_still_charts(self) -> None:
        for spec in self.drawn(pl.DataFrame(schema=DERIVED)).values():
            assert not any(spec["datasets"][name] for name in ("boxes", "open", "paths", "points"))

    def test_an_empty_chart_says_why(self) -> None:
        rows = ((60.0, None, None, None, ""), (120.0, None, None, None, "no target tells preemptions_total"))
        found = self.drawn(self.frame(*rows, name="preemptions_per_s"))
        assert found["preemptions"]["datasets"]["nothing"] == [{"text": "no target tells preemptions_total"}]
        assert found["cost"]["datasets"]["nothing"] == [{"text": "no data"}]

    def test_events_outside_the_range_are_left_out(self) -> None:
        events = [Event(at, "s", "t", "restart", "again") for at in (-5.0, 300.0, 900.0)]
        found = self.drawn(pl.DataFrame(schema=DERIVED), *events)["kv"]["datasets"]["events"]
        assert [e["t"] for e in found] == [300_000]

    def test_every_name_that_a_chart_draws_exists_with_the_charts_unit(self) -> None:
        for chart in CHARTS:
            assert {MEANINGS[line.name].unit for line in chart.lines} == {chart.unit}

    def test_a_chart_is_built_once_and_not_changed_by_use(self) -> None:
        before = json.dumps(template("ttft"))
        self.drawn(pl.DataFrame(schema=DERIVED))
        assert json.dumps(template("ttft")) == before

    @given(st.floats(1e-4, 1e3), st.floats(1.2, 1e5))
    def test_a_logarithmic_axis_has_ticks(self, low: float, factor: float) -> None:
        axis = chart_rows.Domain(low, low * max(factor, 12))
        ticks = chart_rows.log_ticks(axis)
        assert 1 <= len(ticks) <= 10
        assert all(axis.low <= tick <= axis.high for tick in ticks)

    @given(st.integers(0, 2_000_000_000), st.integers(300, 30_000_000))
    def test_a_time_axis_has_few_ticks_inside_it(self, start_s: int, length_s: int) -> None:
        axis = chart_rows.Domain(start_s * 1000, (start_s + length_s) * 1000)
        ticks = chart_rows.time_ticks(axis)
        assert 1 <= len(ticks) <= 8
        assert all(axis.low <= tick <= axis.high for tick in ticks)


class TestRanges:
    def test_a_permanent_link_gives_the_same_range(self) -> None:
        first = time_range({"range": "6h"}, AT_S)
        query = dict(httpx.QueryParams(first.permanent))
        again = time_range(query, AT_S + 9999)
        assert (again.start_s, again.end_s, again.live) == (first.start_s, first.end_s, False)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [theme.DARK, theme.LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize("ground", ["ground", "card", "raised"])
def test_colours_can_be_read(palette: dict[str, str], ground: str) -> None:
    assert contrast(palette["text"], palette[ground]) >= 7
    for name in ("muted", "link", "good", "warning", "bad", "info"):
        assert contrast(palette[name], palette[ground]) >= 4.5, name
    for line in CHARTS:
        for one in line.lines:
            assert contrast(palette[one.colour[1:]], palette["card"]) >= 3, one.colour


class TestStaticFiles:
    async def test_files_named_with_their_version_are_kept_for_ever(self) -> None:
        html = (await got(RecordedViews(), "/services/chat")).text
        for name in ("goodwatch.css", "goodwatch.js", "icon.svg"):
            found = re.search(rf'"(/static/{re.escape(name)}\?v=\w+)"', html)
            assert found
            answer = await got(RecordedViews(), found[1])
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
            again = await got(RecordedViews(), found[1], if_none_match=answer.headers["etag"])
            assert again.status_code == 304

    async def test_a_file_that_is_not_ours_is_not_there(self) -> None:
        assert (await got(RecordedViews(), "/static/..%2Fpages.py")).status_code == 404

    async def test_the_chart_library_is_whole_compressed_and_made_once(self) -> None:
        app = app_of(RecordedViews())
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:9470"
        ) as client:
            answer = await client.get("/static/vega.js", headers={"accept-encoding": "gzip"})
            start = time.perf_counter()
            await client.get("/static/vega.js")
            assert time.perf_counter() - start < 0.5
        assert "vegaEmbed" in answer.text
        assert answer.headers["content-encoding"] == "gzip"
        assert int(answer.headers["content-length"]) < 400_000

    async def test_our_own_files_load_nothing_from_elsewhere(self) -> None:
        for name, asset in Assets().own.items():
            text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
            assert "http" not in text.replace("http: {", ""), name
            assert "@import" not in text, name
            assert "eval(" not in text, name

    def test_limits_without_a_target_have_no_line(self) -> None:
        assert pages.limit_texts(Limits(), None)["ttft_s"] == ""
