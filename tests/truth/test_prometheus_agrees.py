"""Numbers from a Prometheus agree with numbers from the engine's own pages.

Two outside sources hold the reader to account, a real Prometheus and a real VictoriaMetrics. History: the pages of a
recording are put into them with their times, and what is back-filled from there must be what the recording itself
replays to, row by row. Live: they scrape a played engine beside goodwatch's own scraper, and the numbers derived over
one window must be the same, except for what depends on which pages each happened to see.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.exposition import Parser
from collector.pipeline import TargetReader
from collector.pull import PrometheusSource, PullOptions
from collector.scrape import Fetched, Scraper
from collector.stores.memory import MemoryStore
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.app import config
from goodwatch.app.backfilling import Backfill, Filled, Span
from goodwatch.app.engines import known_engines
from goodwatch.app.recording import Phase, RecordedScrape, Recording
from goodwatch.app.replay import Replayed, phase_report
from goodwatch.core.clock import SystemClock
from goodwatch.core.counter import Tracker
from goodwatch.core.model import Limits, Scrape, Target
from goodwatch.signals.increments import fold, rows_frame, step_rows
from tests.support.played_engine import PlayedEngine, played
from tests.support.prometheus_server import (
    MetricsServer,
    Scraped,
    fill_prometheus,
    fill_victoria,
    needs_prometheus,
    needs_victoria,
    prometheus_server,
    victoria_server,
)

pytestmark = [pytest.mark.integration, needs_prometheus, needs_victoria]

DATA = Path(__file__).parent / "data"
NAME = "gpu-1:8000"
LIMITS = Limits(0.5, 0.05)
LABELS = 'instance="gpu-1:8000",job="llm",pod="engine-0",engine="prod"'
MINUTES_KEY = ["minute_s", "model", "engine", "signal", "part", "kind"]


@cache
def scrapes_of(name: str) -> list[RecordedScrape]:
    """Text scrapes of a recording, one every 4 s or so: enough to tell apart, quick to load."""
    found = [s for s in Recording.open(DATA / name).scrapes() if "openmetrics" not in s.accept]
    return found[::4]


def at_of(scrape: RecordedScrape) -> float:
    return round(scrape.done_s, 3)  # Prometheus keeps milliseconds


@cache
def openmetrics(name: str) -> str:
    """A recording as a Prometheus stores it: target labels, ``exported_`` for what they cover, OpenMetrics' names."""
    parser, lines = Parser(), []
    for scrape in scrapes_of(name):
        at = f"{at_of(scrape):.3f}"
        lines.append(f"up{{{LABELS}}} {int(scrape.body is not None)} {at}")
        page = parser.parse(scrape.body, content_type=scrape.content_type) if scrape.body else None
        for sample in page.samples if page else ():
            own = {("exported_engine" if k == "engine" else k): v for k, v in sample.labels.items()}
            labels = "".join(f',{k}="{escaped(v)}"' for k, v in own.items())
            value = "NaN" if sample.value != sample.value else repr(sample.value)
            lines.append(f"{sample.name.replace('sglang:', 'sglang_')}{{{LABELS}{labels}}} {value} {at}")
    return "\n".join([*lines, "# EOF", ""])


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@cache
def replayed_minutes(name: str) -> pl.DataFrame:
    """The recording through goodwatch's own pipeline, without any Prometheus."""
    target = Target(NAME, "http://gpu-1:8000/metrics", "chat")
    reader, tracker = TargetReader(target, known_engines()), Tracker()
    rows: list[dict[str, Any]] = []
    engine = ""
    for recorded in scrapes_of(name):
        if recorded.body is None:
            scrape = Scrape(at_of(recorded), NAME, "chat", up=False, duration_s=0.0)
        else:
            understood = reader.understand(recorded.body, recorded.content_type)
            engine = understood.engine.name if understood.engine else engine
            scrape = reader.scrape(understood, at_of(recorded), 0.0, 0)
        step = tracker.advance(scrape)
        rows += step_rows(step, tracker, known_engines().get(step.engine or engine))
    return fold(rows_frame(rows))


@pytest.fixture(scope="module", params=["prometheus", "victoria"])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One server for each recording, by recording: its URL."""
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        urls: dict[str, str] = {}
        for name in ("vllm-0.32.0", "sglang-0.5.23"):
            if request.param == "prometheus":
                fill_prometheus(folder / name, openmetrics(name))
                urls[name] = stack.enter_context(prometheus_server(folder / name)).url
            else:
                server = stack.enter_context(victoria_server(folder / name))
                fill_victoria(server, openmetrics(name))
                urls[name] = server.url
        yield urls


def filled(url: str, span: Span, store: MemoryStore) -> list[Filled]:
    settings = config.Settings.model_validate(
        {"prometheus": [{"url": url, "selector": '{job="llm"}', "service": "chat"}], "retention": {"minutes": "36500d"}}
    )
    lines: list[str] = []
    work = Backfill(known_engines(), store, SystemClock(), lines.append).fill(settings, span)
    found = asyncio.run(work)
    assert lines, "a back-fill tells of its progress"
    return found


@pytest.mark.parametrize("name", ["vllm-0.32.0", "sglang-0.5.23"])
def test_backfilled_minutes_are_those_of_the_pages_themselves(history: Mapping[str, str], name: str) -> None:
    expected = replayed_minutes(name)
    first, last = expected["minute_s"].min(), expected["minute_s"].max()
    assert isinstance(first, float)
    assert isinstance(last, float)
    store = MemoryStore()
    (found,) = filled(history[name], Span(first, last + 60), store)
    assert (found.target, found.notes) == (NAME, [])
    assert found.scrapes == len(scrapes_of(name))
    once = store.minutes(first, last + 60)
    differences = compared(expected, once)
    assert differences.is_empty(), shown(differences)
    filled(history[name], Span(first, last + 60), store)
    assert store.minutes(first, last + 60).equals(once), "a second back-fill changes nothing"


def compared(expected: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Rows that differ. VictoriaMetrics keeps 12 digits or so, and increases are differences of such numbers."""
    both = expected.join(found, on=MINUTES_KEY, how="full", suffix="_found", coalesce=True, nulls_equal=True)
    apart = pl.lit(False)
    for column in ("increase", "sum", "mean", "min", "max", "last"):
        a, b = pl.col(column), pl.col(f"{column}_found")
        close = (a == b) | ((a - b).abs() <= 1e-6 * a.abs().clip(lower_bound=1.0))
        apart |= (a.is_null() != b.is_null()) | ~close.fill_null(True)
    for column in ("le", "count"):
        apart |= pl.col(column).ne_missing(pl.col(f"{column}_found"))
    return both.filter(apart)


def shown(differences: pl.DataFrame) -> str:
    names = ["minute_s", "engine", "signal", "part", "increase", "sum", "mean", "max", "last"]
    wanted = [n for n in (*names, *(f"{n}_found" for n in names[4:])) if n in differences.columns]
    return "\n".join(str(row) for row in differences.select(wanted).iter_rows(named=True))


@dataclass
class Seen:
    """What one source saw of an engine: its scrapes, as a recording that can be derived from."""

    scrapes: list[Scrape] = field(default_factory=list)

    def replayed(self) -> Replayed:
        tracker, rows = Tracker(), []
        for scrape in self.scrapes:
            step = tracker.advance(scrape)
            rows += step_rows(step, tracker, known_engines().get(step.engine))
        good = [s.ts for s in self.scrapes if s.up]
        return Replayed(rows_frame(rows), scrapes=len(self.scrapes), scrape_times=good)

    def most(self, signal: str, began_s: float, ended_s: float) -> float:
        inside = (s for s in self.scrapes if began_s <= s.ts <= ended_s)
        return max(x.value or 0.0 for s in inside for x in s.samples if x.signal == signal)


#: derived name → how it is read from a phase's report; equal whatever pages were seen between the two ends
COUNTED: dict[str, Any] = {
    "requests": lambda p: p["requests"],
    "input tokens": lambda p: p["input_tokens"],
    "output tokens": lambda p: p["output_tokens"],
    "TTFT p50": lambda p: p["ttft_s"]["p50"],
    "TTFT p90": lambda p: p["ttft_s"]["p90"],
    "TPOT p50": lambda p: p["tpot_s"]["p50"],
    "TPOT p90": lambda p: p["tpot_s"]["p90"],
    "E2E p50": lambda p: p["e2e_s"]["p50"],
    "E2E p90": lambda p: p["e2e_s"]["p90"],
    "attainment": lambda p: p["attainment"],
    "preemptions": lambda p: p["preemptions"],
}
PAGES_S, HOLD_S, EVERY_S = 8.0, 2.6, 0.2


async def watch_all(
    engines: Mapping[str, PlayedEngine], servers: Mapping[str, MetricsServer]
) -> tuple[dict[tuple[str, str], Seen], tuple[float, float]]:
    """Play every engine from a held first page to a held last one; what each source saw, and the window."""
    clock, seen = SystemClock(), {(source, name): Seen() for source in ("goodwatch", *servers) for name in engines}
    options = ScrapeOptions(interval_s=1.0, timeout_s=1.0)
    readers = {n: TargetReader(Target(n, e.url, "chat"), known_engines()) for n, e in engines.items()}

    async def on_page(spec: TargetSpec, fetched: Fetched) -> None:
        reader = readers[spec.target.name]
        scrape = reader.scrape(reader.understand(fetched.body, fetched.content_type), fetched.ts, 0.0, 0)
        seen["goodwatch", spec.target.name].scrapes.append(scrape)

    scraper = Scraper(on_page)
    scraper.update([TargetSpec(reader.target, options) for reader in readers.values()])
    scraping = asyncio.create_task(scraper.run())
    sources = {
        name: PrometheusSource.of(
            PullOptions(server.url, '{job=~"vllm|sglang"}', group_by=("job",), step_s=1.0, settle_s=1.5),
            known_engines(),
            clock,
        )
        for name, server in servers.items()
    }
    async with asyncio.timeout(30):  # Prometheus looks for targets every 5 s only
        while not all(any(scrape.up for scrape in one.scrapes) for one in seen.values()):
            await asyncio.sleep(0.2)
            await polled(sources, seen)
    began_s = clock.now_s() + HOLD_S - 0.2
    await asyncio.sleep(HOLD_S)
    for number in range(round(PAGES_S / EVERY_S)):
        for engine in engines.values():
            engine.step()
        await asyncio.sleep(EVERY_S)
        if number % 8 == 0:
            await polled(sources, seen)
    await asyncio.sleep(HOLD_S)
    ended_s = clock.now_s() - 0.1
    await asyncio.sleep(1.5)
    await polled(sources, seen)
    await scraper.stop()
    await scraping
    for source in sources.values():
        await source.close()
    return seen, (began_s, ended_s)


async def polled(sources: Mapping[str, PrometheusSource], seen: Mapping[tuple[str, str], Seen]) -> None:
    for name, source in sources.items():
        poll = await source.poll()
        assert poll.error == ""
        for reading in poll.readings:
            if reading.target.name in {n for _, n in seen}:
                seen[name, reading.target.name].scrapes.append(reading.scrape)


def pages_between(name: str, first_s: float, last_s: float, *, wanted: str) -> list[RecordedScrape]:
    """As many pages as are played, evenly out of a part of a recording (seconds since it began)."""
    found = [s for s in Recording.open(DATA / name).scrapes() if s.body is not None]
    start = next(iter(Recording.open(DATA / name).scrapes())).ts
    inside = [
        s for s in found if first_s <= s.ts - start <= last_s and (("openmetrics" in s.accept) == (wanted == "om"))
    ]
    count = round(PAGES_S / EVERY_S) + 1
    return [inside[round(i * (len(inside) - 1) / (count - 1))] for i in range(count)]


async def test_live_numbers_are_those_of_the_own_scraper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vllm = pages_between("vllm-0.32.0", 180, 440, wanted="text")
    # What a real SGLang answered when it was asked for OpenMetrics, as Prometheus asks: names with an underscore.
    sglang = pages_between("sglang-0.5.23", 190, 600, wanted="om")
    with ExitStack() as stack:
        engines = {"vllm": stack.enter_context(played(vllm)), "sglang": stack.enter_context(played(sglang))}
        jobs = [Scraped([e.url.split("/")[2]], job=name) for name, e in engines.items()]
        servers = {
            "prometheus": stack.enter_context(prometheus_server(tmp_path / "p", jobs)),
            "victoria": stack.enter_context(victoria_server(tmp_path / "v", jobs)),
        }
        seen, (began_s, ended_s) = await watch_all(engines, servers)
    table, apart = [], []
    for name in engines:
        views = {source: seen[source, name] for source in ("goodwatch", *servers)}
        reports = {source: report(view, began_s, ended_s) for source, view in views.items()}
        # SGLang's gauges lag, so its bounds allow for the fullest moment of the window, and that is one of those seen.
        fullest = [view.most("requests_running", began_s, ended_s) for view in views.values()]
        slack = (max(fullest) - min(fullest)) / reports["goodwatch"]["valid"][0] if name == "sglang" else 0.0
        for title, read in [*COUNTED.items(), ("KV used, most", lambda p: p["kv_cache_used_ratio_max"])]:
            values = [read(r) for r in reports.values()]
            table.append(f"{name:7} {title:14}" + "".join(f" {short(v):>22}" for v in values))
            allowed = slack if title == "attainment" else 0.0
            if title in COUNTED and not all(same(v, values[0], allowed) for v in values):
                apart.append((name, title, values))
        assert reports["goodwatch"]["requests"] > 20
    with capsys.disabled():
        print("\n" + f"{'':22}" + "".join(f" {s:>22}" for s in reports), *table, sep="\n")
    assert apart == []


def report(seen: Seen, began_s: float, ended_s: float) -> dict[str, Any]:
    return phase_report(seen.replayed(), Phase("played", began_s, ended_s), known_engines(), LIMITS)


def same(a: Any, b: Any, allowed: float = 0.0) -> bool:
    """Equal but for what is lost when a float is stored as text, and what is allowed."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, allowed) for x, y in zip(a, b, strict=True))
    return bool(a == b) if a is None or b is None else bool(abs(a - b) <= allowed + 1e-6 * abs(b))


def short(value: Any) -> str:
    return re.sub(r"(\d+\.\d{4})\d+", r"\1", str(value))
