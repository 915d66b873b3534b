"""The load client and the recorder against a small real server."""

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.engine.load import Phase, drive, latencies
from tests.engine.recorder import TEXT, Recorder, scrape

pytestmark = pytest.mark.integration

USAGE = {"prompt_tokens": 30, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 16}}


async def complete(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    if len(body["prompt"]) > 900:
        return web.json_response({"error": "too long"}, status=400)
    if not body["stream"]:
        return web.json_response({"choices": [{}], "usage": USAGE})
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for event in [{"choices": [{"text": "a"}]}] * 3 + [{"choices": [], "usage": USAGE}]:
        await answer.write(f"data: {json.dumps(event)}\n\n".encode())
    if len(body["prompt"]) < 500:  # longer ones are cut off before the closing line
        await answer.write(b"data: [DONE]\n\n")
    return answer


async def metrics(request: web.Request) -> web.Response:
    return web.Response(text=f"# {request.headers['Accept']}\nup 1\n")


@pytest.fixture
async def url(free_port: int) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes([web.post("/v1/completions", complete), web.get("/metrics", metrics)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", free_port).start()
    yield f"http://127.0.0.1:{free_port}"
    await runner.cleanup()


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "client_truth.jsonl").read_text().splitlines()]


async def test_every_request_leaves_one_row(url: str, tmp_path: Path) -> None:
    await drive(url, tmp_path, [Phase("burst", 0.2, 20, burst=8)])
    written = rows(tmp_path)
    assert len(written) >= 8
    assert {row["status"] for row in written} == {"ok"}
    first = written[0]
    assert first["input_tokens"] == 30
    assert first["output_tokens"] == 3
    assert first["cached_tokens"] == 16
    assert len(first["chunk_ms"]) == 3
    assert 0 <= first["headers_s"] <= first["ttft_s"] <= first["e2e_s"]
    assert first["tpot_s"] >= 0


async def test_an_unstreamed_request_has_tokens_and_no_ttft(url: str, tmp_path: Path) -> None:
    await drive(url, tmp_path, [Phase("plain", 0.05, 1, burst=2, unstreamed_ratio=1.0)])
    assert all(row["output_tokens"] == 3 and "ttft_s" not in row and not row["stream"] for row in rows(tmp_path))


@pytest.mark.parametrize(("length", "status"), [(950, "http_error"), (600, "truncated")])
async def test_a_refusal_and_a_cut_stream_are_told_apart(length: int, status: str, url: str, tmp_path: Path) -> None:
    await drive(url, tmp_path, [Phase("bad", 0.05, 1, input_tokens=(length, length), burst=1)])
    assert {row["status"] for row in rows(tmp_path)} == {status}
    assert all("tpot_s" not in row for row in rows(tmp_path))


async def test_a_dead_server_is_a_disconnect(free_port: int, tmp_path: Path) -> None:
    await drive(f"http://127.0.0.1:{free_port}", tmp_path, [Phase("dead", 0.05, 1, burst=1)])
    assert {row["status"] for row in rows(tmp_path)} == {"disconnect"}


async def test_phases_touch_so_that_nothing_falls_between_them(url: str, tmp_path: Path) -> None:
    await drive(url, tmp_path, [Phase("one", 0.05, 5), Phase("two", 0.05, 5)])
    one, two = (json.loads(line) for line in (tmp_path / "phases.jsonl").read_text().splitlines())
    assert (one["phase"], two["phase"]) == ("one", "two")
    assert one["end"] == two["start"]


def test_one_output_token_has_no_tpot() -> None:
    assert latencies({"status": "ok", "chunk_ms": [12.0], "output_tokens": 1}) == {"ttft_s": 0.012}
    assert latencies({"status": "disconnect"}) == {}


def test_load_on_another_machine_is_refused() -> None:
    command = [sys.executable, "-m", "tests.engine.load", "http://192.0.2.1:8000", "nowhere"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "loopback" in done.stderr


async def test_the_recorder_keeps_bodies_in_both_formats(url: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl.gz"
    await asyncio.to_thread(record_a_moment, f"{url}/metrics", path)
    scrapes = list(read(path))
    assert {one["accept"].split(";")[0] for one in scrapes} == {"text/plain", "application/openmetrics-text"}
    assert all(one["status"] == 200 and "up 1" in one["body"] for one in scrapes)
    assert [one["ts"] for one in scrapes] == sorted(one["ts"] for one in scrapes)


def record_a_moment(url: str, path: Path) -> None:
    with Recorder(url, path):
        pass


def read(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        yield from map(json.loads, lines)


def test_a_failed_scrape_is_a_row_too(free_port: int) -> None:
    row = scrape(f"http://127.0.0.1:{free_port}/metrics", TEXT)
    assert row["status"] == 0
    assert "refused" in row["error"]
    assert "body" not in row
