import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.compare import compare_counts, compare_latency, compare_totals, offset, table
from tests.engine.truth import Page, Row, count, engine_mean_s, output_tokens, quantile, read_pages, read_rows, window

PAGE = """# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf"}} {count}
vllm:time_to_first_token_seconds_count{{engine="0"}} {count}
vllm:time_to_first_token_seconds_sum{{engine="0"}} {sum}
"""


def page(ts: float, *, number: float = 0, total_s: float = 0, elapsed_s: float = 0.25) -> Page:
    return Page(ts, elapsed_s, PAGE.format(count=number, sum=total_s))


PAGES = [page(float(ts), number=ts, total_s=ts / 4) for ts in range(40)]


def row(start_s: float, *, e2e_s: float = 1.0, tokens: int = 4, ttft_s: float | None = 0.25) -> Row:
    chunks = () if ttft_s is None else tuple(start_s + ttft_s + n * (e2e_s - ttft_s) / tokens for n in range(tokens))
    return Row("calm", ttft_s is not None, "ok", start_s, start_s + e2e_s, 0.0, ttft_s, None, tokens, chunks)


def test_an_edge_reaches_from_the_scrape_before_to_the_end_of_the_scrape_after() -> None:
    cut = window(10.5, 20.0, PAGES)
    assert (cut.start.before_s, cut.start.after_s) == (10.0, 11.25)
    assert (cut.end.before_s, cut.end.after_s) == (20.0, 21.25)


def test_an_edge_outside_the_recording_stays_at_its_ends() -> None:
    cut = window(-5.0, 99.0, PAGES)
    assert (cut.start.before_s, cut.end.before_s) == (0.0, 39.0)


def test_requests_are_cut_by_their_end_and_half_open() -> None:
    found = count([10.5, 12.0, 20.4, 20.5, 25.0], window(10.5, 20.5, PAGES))
    assert found.inside == 3
    assert found.near == 3


def test_tokens_are_cut_by_the_moment_they_came() -> None:
    spanning = row(19.5, e2e_s=4.0, tokens=8, ttft_s=0.0)  # one token each half second from 19.5
    found = output_tokens([spanning], window(10.0, 20.5, PAGES))
    assert found.inside == 2
    assert found.near == 3  # 20.0, 20.5 and 21.0: between the scrape of 20 and the end of that of 21


def test_an_event_with_several_tokens_counts_for_its_share() -> None:
    merged = dataclasses.replace(row(12.0, tokens=4), output_tokens=10)
    assert output_tokens([merged], window(10.0, 20.5, PAGES)).inside == pytest.approx(10)


def test_the_tokens_of_an_unstreamed_request_over_an_edge_are_all_unsure() -> None:
    found = output_tokens([row(19.0, e2e_s=3.0, tokens=7, ttft_s=None)], window(10.0, 20.5, PAGES))
    assert (found.inside, found.near) == (0, 7)


@pytest.mark.parametrize(
    ("q", "shift", "expected"), [(0.5, 0, 5), (0.9, 0, 9), (0.9, 5, 10), (0.5, -9, 1), (0.5, 1.7, 6)]
)
def test_a_quantile_is_a_value_of_the_list(q: float, shift: float, expected: float) -> None:
    assert quantile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], q, shift=shift) == expected


def test_the_engines_mean_comes_from_the_increase_between_the_scrapes_around_the_window() -> None:
    assert engine_mean_s(PAGES, "vllm:time_to_first_token_seconds", window(10.5, 20.5, PAGES)) == pytest.approx(0.25)


def test_a_histogram_that_is_not_there_has_no_mean() -> None:
    assert engine_mean_s(PAGES, "vllm:no_such_seconds", window(10.0, 20.0, PAGES)) is None


def test_the_offset_is_never_below_its_floor() -> None:
    assert offset([1.0, 3.0], 1.25) == 0.75
    assert offset([1.0], 2.0) == offset([1.0], None) == 0.05


def test_events_that_came_in_one_go_with_the_first_are_counted() -> None:
    clumped = dataclasses.replace(row(12.0), chunks_s=(12.5, 12.5002, 12.5005, 12.51, 12.5101))
    assert clumped.events_with_the_first == 2
    assert row(12.0, ttft_s=None).events_with_the_first == 0


def phase(**said: Any) -> dict[str, Any]:
    return {"name": "calm", "start": 10.5, "end": 30.5, "requests": 24, "output_tokens": 96, "ttft_s": None} | said


ROWS = [row(11.5 + n * 0.75) for n in range(24)]


def test_right_counts_agree_and_wrong_or_missing_ones_do_not() -> None:
    cut = window(10.5, 30.5, PAGES)
    assert [line.ok for line in compare_counts(phase(), ROWS, cut)] == [True, True]
    assert [line.ok for line in compare_counts(phase(requests=None, output_tokens=80), ROWS, cut)] == [False, False]


@pytest.mark.parametrize(
    ("interval", "agrees"),
    [([0.2, 0.3], True), ([0.1, 0.21], True), ([0.1, 0.19], False), ([0.26, 0.5], False), ([0.2, None], True)],
)
def test_a_quantile_must_lie_in_the_interval_less_the_offset(interval: list[float | None], agrees: bool) -> None:
    said = phase(ttft_s={"p50": interval, "p90": interval})
    lines = compare_latency(said, "ttft_s", ROWS, PAGES, window(10.5, 30.5, PAGES))
    assert [line.ok for line in lines] == [agrees, agrees]
    assert ("<< off" in table(lines)) is not agrees


def test_too_few_requests_say_nothing_of_a_quantile() -> None:
    assert compare_latency(phase(), "ttft_s", ROWS[:5], PAGES, window(10.5, 30.5, PAGES)) == []


def test_totals_must_be_exact() -> None:
    halves = [phase(requests=12, output_tokens=48)] * 2
    assert all(line.ok for line in compare_totals(halves, ROWS))
    assert not any(line.ok for line in compare_totals([phase(requests=23, output_tokens=95)], ROWS))


def test_rows_and_pages_are_read_as_written(tmp_path: Path) -> None:
    said = {"phase": "calm", "stream": True, "status": "ok", "start": 10.0, "e2e_s": 0.5, "chunk_ms": [250.0]}
    (tmp_path / "rows").write_text(json.dumps(said) + "\n")
    scrapes = [
        {"ts": 1.0, "status": 0, "accept": "text/plain", "error": "refused"},
        {"ts": 2.0, "status": 200, "accept": "application/openmetrics-text", "elapsed_s": 0.1, "body": "x"},
        {"ts": 3.0, "status": 200, "accept": "text/plain;version=0.0.4", "elapsed_s": 0.1, "body": "a_total 2\n"},
    ]
    with gzip.open(tmp_path / "pages", "wt") as lines:
        lines.writelines(json.dumps(scrape) + "\n" for scrape in scrapes)
    (read,) = read_rows(tmp_path / "rows")
    assert (read.end_s, read.ttft_s, read.output_tokens, read.chunks_s) == (10.5, None, None, (10.25,))
    (good,) = read_pages(tmp_path / "pages")
    assert (good.ts, good.total("a_total"), good.total("a")) == (3.0, 2.0, None)
