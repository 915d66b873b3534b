"""Back-filling: the range that texts name, and what is written for whom."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.stores.duckdb import DuckDBStore
from collector.stores.memory import MemoryStore
from goodwatch.app.backfilling import Backfill, Filled, Span, instant
from goodwatch.app.config import Settings
from goodwatch.app.engines import known_engines
from goodwatch.core.clock import SystemClock
from goodwatch.core.errors import ConfigError
from tests.support.prometheus_answers import HandClock, pages
from tests.support.prometheus_double import PrometheusDouble, prometheus_double

NOW_S = 1_700_000_000.0
START_S = 1_699_999_200.0  # 22:00:00
TEN_MINUTES = Span(START_S, START_S + 600)
EVERY_15_S = {START_S + 15.0 * i: (100.0 + 2 * i, 3.0) for i in range(-40, 60)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", NOW_S),
        ("-15m", NOW_S - 900),
        ("-7d", NOW_S - 7 * 86_400),
        ("-1h30m", NOW_S - 5400),
        ("1699999200", START_S),
        ("2023-11-14T22:00:00Z", START_S),
        ("2023-11-14T23:00:00+01:00", START_S),
        ("2023-11-14 22:00", START_S),
        ("2023-11-14", START_S - 22 * 3600),
    ],
)
def test_a_time_can_be_written_as_people_do(text: str, seconds: float) -> None:
    assert instant(text, NOW_S, "--from") == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "7d", "-7", "-1y", "2023-13-01", "12", "--7d"])
def test_any_other_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--from .*: not a time; write for example -7d, now, 2026-01-31"):
        instant(text, NOW_S, "--from")


def test_a_range_is_whole_minutes_and_ends_now_at_the_latest() -> None:
    assert Span.of("2023-11-14T21:00:30Z", "-1m", NOW_S) == Span(START_S - 3600, START_S + 12 * 60)
    assert Span.of("-10m", "2030-01-01", NOW_S).end_s == START_S + 13 * 60


@pytest.mark.parametrize(("begin", "end"), [("now", "-1h"), ("-15s", "-5s"), ("now", "now")])
def test_a_range_without_a_minute_is_refused(begin: str, end: str) -> None:
    with pytest.raises(ConfigError, match="--from must be a minute or more before --to"):
        Span.of(begin, end, NOW_S)


async def filled(
    double: PrometheusDouble, store: MemoryStore, span: Span = TEN_MINUTES, **entry: Any
) -> tuple[list[Filled], list[str]]:
    settings = Settings.model_validate(
        {"prometheus": [{"url": double.url, "selector": '{job="vllm"}', "service": "chat", **entry}]}
    )
    lines: list[str] = []
    work = Backfill(known_engines(), store, HandClock(NOW_S), lines.append)
    return await work.fill(settings, span), lines


async def test_minutes_are_written_whole_and_counted_from_before_the_range() -> None:
    store = MemoryStore()
    async with prometheus_double(pages(EVERY_15_S)) as double:
        (found,), lines = await filled(double, store)
    assert (found.target, found.service, found.scrapes, found.minutes, found.notes) == (
        "gpu-1:8000",
        "chat",
        40,
        10,
        [],
    )
    minutes = store.minutes(0, NOW_S, signals=["requests_finished_total", "covered_seconds_total"])
    finished = minutes.filter(pl.col("signal") == "requests_finished_total")
    assert finished["minute_s"].to_list() == [START_S + 60.0 * i for i in range(10)]
    assert finished["increase"].to_list() == [8.0] * 10
    assert minutes.filter(pl.col("signal") == "covered_seconds_total")["increase"].to_list() == [60.0] * 10
    assert "1 targets from 2023-11-14 22:00 to 2023-11-14 22:10 UTC" in lines[0]
    assert lines[-1].endswith("100%, 40 scrapes, 10 minutes")


async def test_filling_twice_or_in_parts_is_the_same_as_once() -> None:
    once, parts = MemoryStore(), MemoryStore()
    async with prometheus_double(pages(EVERY_15_S)) as double:
        await filled(double, once)
        for first, last in ((0, 240), (180, 600), (0, 600)):
            await filled(double, parts, Span(START_S + first, START_S + last))
    assert parts.minutes(0, NOW_S).equals(once.minutes(0, NOW_S))


async def test_each_target_is_filled_apart() -> None:
    store = MemoryStore()
    async with prometheus_double([*pages(EVERY_15_S), *pages(EVERY_15_S, instance="gpu-2:8000")]) as double:
        found, _ = await filled(double, store)
    assert [f.target for f in found] == ["gpu-1:8000", "gpu-2:8000"]
    up = store.minutes(0, NOW_S, signals=["up"])
    assert sorted(up.group_by("target").len().rows()) == [("gpu-1:8000", 10), ("gpu-2:8000", 10)]


async def test_a_part_that_was_missing_is_noted_with_its_time() -> None:
    async with prometheus_double(pages(EVERY_15_S), isPartial=True) as double:
        (found,), _ = await filled(double, MemoryStore())
    assert found.notes == [
        f"2023-11-14 21:55 to 2023-11-14 22:10: {double.place}: a part of its data was not there"
    ]  # fmt: skip
    assert found.minutes == 10, "what came is kept"


async def test_nothing_older_than_minutes_are_kept_is_read() -> None:
    async with prometheus_double(pages(EVERY_15_S)) as double:
        _, lines = await filled(double, MemoryStore(), Span(NOW_S - 200 * 86_400, START_S + 600))
    assert "minutes are kept since 2023-08-14 22:14 (retention.minutes); nothing older is read" in lines


async def test_a_source_that_refuses_ends_it() -> None:
    async with prometheus_double(pages(EVERY_15_S), status=401) as double:
        with pytest.raises(ConfigError, match="answers 401"):
            await filled(double, MemoryStore())


@pytest.mark.integration
async def test_the_command_fills_the_store_of_a_service(tmp_path: Path) -> None:
    now_s = SystemClock().now_s() // 60 * 60
    rows = pages({now_s - 15.0 * i: (1000.0 - 2 * i, 3.0) for i in range(80)})
    async with prometheus_double(rows) as double:
        file = tmp_path / "goodwatch.yaml"
        file.write_text(
            f"data_dir: {tmp_path / 'data'}\n"
            f"prometheus:\n  - {{url: '{double.url}', selector: '{{job=\"vllm\"}}', service: chat}}\n"
        )
        span = ("--from", f"{now_s - 600:.0f}", "--to", f"{now_s:.0f}")
        for _ in range(2):
            code, out, told = await command("backfill", "-c", str(file), *span)
            assert (code, out.rpartition(",")[0]) == (0, "gpu-1:8000 (chat): 40 scrapes, 0 failed"), told
            assert "100%" in told
        double.status = 401
        code, _, told = await command("backfill", "-c", str(file), "--from", "-10m")
        assert (code, "answers 401: not today; check authorization" in told) == (2, True)
        code, _, told = await command("backfill", "-c", str(file), "--from", "yesterday")
        assert (code, "--from yesterday: not a time" in told) == (2, True)
    store = DuckDBStore(tmp_path / "data" / "goodwatch.duckdb")
    finished = store.minutes(0, now_s, signals=["requests_finished_total"])
    store.close()
    assert finished["increase"].to_list() == [8.0] * 10


async def command(*arguments: str) -> tuple[int | None, str, str]:
    """Exit code and outputs of a real goodwatch process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "goodwatch", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, told = await process.communicate()
    return process.returncode, out.decode().strip(), told.decode()


async def test_without_a_source_there_is_nothing_to_read_from() -> None:
    work = Backfill(known_engines(), MemoryStore(), HandClock(NOW_S), print)
    with pytest.raises(ConfigError, match="prometheus: no entry; write one with url and selector"):
        await work.fill(Settings(), Span(START_S, NOW_S))
