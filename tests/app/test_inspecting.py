"""Bodies from everywhere: URL, file, standard input, folder, recording; and what a hostile page may not do."""

import asyncio
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from collector.exposition import DEFAULT_LIMITS
from goodwatch.app.engines import known_engines
from goodwatch.app.inspecting import How, Inspected, as_json, inspect
from goodwatch.app.probing import probe_all
from goodwatch.app.show import show_capability, show_replay
from goodwatch.core.errors import ConfigError, TransientError
from goodwatch.core.model import Limits
from tests.app.config_files import read_here
from tests.collector.engines.pages import body
from tests.support.engine_server import PAGE, TEXT, Handler, dead_port, engine_server

HOW = How(known_engines(), Limits(), 1_800_000_000.0, timeout_s=5.0)
BODY = body("vllm_0_32_0").encode()


def one(source: str, how: How = HOW) -> Inspected:
    (found,) = inspect(source, how)
    return found


def shown(inspected: Inspected, *, every: bool = True) -> str:
    console = Console(width=120, highlight=False)
    with console.capture() as captured:
        show_capability(console, inspected, every=every)
    return captured.get()


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pack"),
    [("page.prom", bytes), ("page.prom.gz", gzip.compress), ("page.prom.xz", lzma.compress), ("page", bytes)],
)
def test_a_file_is_read_compressed_or_not(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / name).write_bytes(pack(BODY))
    found = one(str(tmp_path / name))
    assert (found.capability.engine, found.capability.version) == ("vllm", "0.32.0 or newer")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.gz", b"no gzip"),
        ("b.gz", gzip.compress(BODY)[:200]),
        ("c.gz", gzip.compress(BODY)[:40] + b"\xff" * 200),  # damaged within
        ("d.xz", b"no xz"),
        ("e.xz", lzma.compress(BODY)[:200]),
    ],
)
def test_a_damaged_file_is_the_operator_s_to_mend(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name}: cannot be read: "):
        one(str(tmp_path / name))


def test_a_packed_file_that_swells_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.prom.gz", "wb", compresslevel=1) as bomb:
        for _ in range(DEFAULT_LIMITS.body_bytes // 1_000_000 + 2):
            bomb.write(b"#" * 1_000_000)
    with pytest.raises(ConfigError, match=r"bomb\.prom\.gz: body of \d+ bytes; allowed are"):
        one(str(tmp_path / "bomb.prom.gz"))


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe\x80\n" * 99, b"<html>no</html>", b"{}", b"\n\n"])
def test_a_file_that_is_no_page_is_a_finding_and_no_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.txt").write_bytes(content)
    found = one(str(tmp_path / "odd.txt"))
    assert found.capability.engine == ""
    assert {"empty", "unknown_engine"} & {r.code for r in found.capability.remarks}
    assert "no engine that goodwatch knows" in shown(found)


def test_a_folder_gives_a_report_for_each_body(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_bytes(BODY)
    (tmp_path / "b.om.xz").write_bytes(lzma.compress(body("sglang_0_5_23").encode()))
    (tmp_path / "notes.md").write_text("not a body")
    (tmp_path / "c.prom").mkdir()
    found = list(inspect(str(tmp_path), HOW))
    assert [(Path(f.name).name, f.capability.engine) for f in found] == [("a.prom", "vllm"), ("b.om.xz", "sglang")]


def recording(folder: Path, *bodies: str | None) -> Path:
    lines = [
        {"ts": 1000.0 + i, "elapsed_s": 0.5, "status": 200 if b is not None else 0, "content_type": TEXT, "body": b}
        for i, b in enumerate(bodies)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_recording_is_reported_by_its_fullest_page(tmp_path: Path) -> None:
    small = "vllm:num_requests_running 1\n"
    found = one(str(recording(tmp_path, small, BODY.decode(), None, small)))
    assert found.about == "the fullest of 3 pages; 1 scrapes failed"
    assert found.capability.version == "0.32.0 or newer"
    assert one(str(tmp_path / "metrics.jsonl")).about == found.about


def test_a_recording_without_a_page_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none of its 2 scrapes brought a page"):
        one(str(recording(tmp_path, None, None)))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("nowhere.prom", "nowhere.prom: no such file or folder, and no URL"),
        ("gpu-1:8000", "for a host write http://gpu-1:8000"),
        ("gpu-1:8000/metrics", "for a host write http://gpu-1:8000/metrics"),
        ("nul\x00byte", "no such file or folder"),
        ("http://", "names no host"),
        ("http://[::1", "not a URL"),
        ("http://gpu-1:99999", "not a URL"),
    ],
)
def test_a_source_that_is_not_there_is_the_operator_s_to_mend(source: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one(source)
    assert says in str(caught.value)


def test_an_empty_folder_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"neither a recording \(metrics\.jsonl\) nor a body"):
        one(str(tmp_path))


def test_standard_input_is_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(BODY)))
    found = one("-")
    assert (found.name, found.capability.engine) == ("standard input", "vllm")


# -- URLs -----------------------------------------------------------------------------------------------------------


def answers(payload: bytes, status: int = 200) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=payload, status=status, headers={"Content-Type": TEXT})

    return handler


@pytest.mark.integration
@pytest.mark.parametrize("path", ["", "/", "/metrics"])
async def test_a_url_is_read_at_its_metrics_path_and_its_version_is_asked(path: str) -> None:
    async with engine_server({"/metrics": answers(BODY), "/version": answers(b'{"version": "0.40.0"}')}) as server:
        found = await asyncio.to_thread(one, server.url(path))
    assert (found.capability.version, found.capability.version_basis) == ("0.40.0", "told by the engine")
    assert found.name.endswith("/metrics")
    assert found.about.startswith("read in ")


@pytest.mark.integration
async def test_json_statistics_of_a_pinned_tensorrt_llm_are_not_consumed() -> None:
    page = body("trtllm_composed").encode()
    how = How(known_engines(), Limits(), 0.0, engine="trtllm", timeout_s=5.0)
    async with engine_server({"/prometheus/metrics": answers(page)}) as server:
        found = await asyncio.to_thread(one, server.url(""), how)
        assert "/metrics" not in [r.path for r in server.seen]
    assert found.capability.engine == "trtllm"


@pytest.mark.integration
async def test_credentials_in_a_url_are_sent_and_never_shown() -> None:
    async with engine_server({"/down": answers(b"", 503)}) as server:
        secret = server.url("/metrics?token=hush").replace("http://", "http://me:hush@")
        found = await asyncio.to_thread(one, secret)
        assert server.seen[0].headers["Authorization"].startswith("Basic ")
        assert server.seen[0].query["token"] == "hush"
        assert "hush" not in shown(found) + json.dumps(as_json(found))
        with pytest.raises(TransientError) as caught:
            await asyncio.to_thread(one, secret.replace("/metrics", "/down"))
        assert "hush" not in str(caught.value)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("status", "says"),
    [(404, "--enable-metrics"), (401, "credentials"), (500, "PROMETHEUS_MULTIPROC_DIR"), (503, "telemetry fault")],
)
async def test_an_answer_that_is_no_page_says_why_and_what_to_do(status: int, says: str) -> None:
    async with engine_server({"/metrics": answers(b"no", status)}) as server:
        with pytest.raises(TransientError, match=f"HTTP {status}") as caught:
            await asyncio.to_thread(one, server.url())
    assert says in str(caught.value)


def test_a_port_where_nobody_listens_is_refused() -> None:
    with pytest.raises(TransientError, match="refused the connection"):
        one(f"HTTP://127.0.0.1:{dead_port()}")


# -- shown ----------------------------------------------------------------------------------------------------------

HOSTILE = "[/bold][red]\x1b[31m{0}"


def hostile(tmp_path: Path) -> Inspected:
    label = HOSTILE.replace("\\", "\\\\")
    lines = [f'vllm:num_preemptions_total{{model_name="{label}",engine="{label}{e}"}} {e}' for e in (1, 2)]
    path = tmp_path / "[b]hostile.prom"
    path.write_text("# TYPE vllm:num_preemptions_total counter\n" + "\n".join(lines) + '\nvllm:x{le="\x1b[2J" 1\n')
    return one(str(path))


def test_a_hostile_page_neither_breaks_the_report_nor_steers_the_terminal(tmp_path: Path) -> None:
    text = shown(hostile(tmp_path))
    assert "[/bold][red]" in text
    assert "\x1b" not in text
    assert "\x1b" not in json.dumps(as_json(hostile(tmp_path)), ensure_ascii=False)


def test_a_hostile_phase_does_not_break_a_replay() -> None:
    none: dict[str, Any] = {"p50": None, "p90": None}
    phase = {
        "name": HOSTILE, "start": 0.0, "end": 60.0, "requests": None, "output_tokens_per_s": 1.0, "ttft_s": none,
        "tpot_s": none, "e2e_s": none, "attainment": [0.0, 1.0], "unaccounted": 0.0, "preemptions": None,
        "kv_cache_used_ratio_max": None, "notes": [HOSTILE],
    }  # fmt: skip
    report = {
        "engine": None,
        "version": None,
        "version_basis": None,
        "scrapes": 1,
        "failed_scrapes": 0,
        "phases": [phase],
    }
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        show_replay(console, report)
    assert "no known engine" in captured.get()
    assert "None" not in captured.get()


def test_absent_signals_that_no_number_needs_are_only_counted_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_bytes(BODY)
    found = one(str(tmp_path / "a.prom"))
    short, long = shown(found, every=False), shown(found)
    assert "--all says why" in short
    assert "requests_swapped" not in short
    assert "requests_swapped" in long
    assert "--all" not in long


def test_json_has_a_stable_shape_and_no_number_that_json_lacks(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_bytes(BODY)
    report = as_json(one(str(tmp_path / "a.prom")))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert set(report) == {
        "source", "about", "engine", "title", "version", "version_basis", "models", "page_format", "page_samples",
        "signals", "remarks", "facts", "unknown_families", "counts", "devices",
    }  # fmt: skip
    assert set(report["counts"]) == {"measured", "derived", "absent"}
    for signal in report["signals"]:
        assert set(signal) == {
            "name", "unit", "status", "source", "value", "number", "bounds", "parts", "ranks", "why", "definition",
            "kernel",
        }  # fmt: skip
        assert (signal["number"] is None) >= (signal["status"] == "absent")
    assert all(set(r) == {"code", "level", "text"} for r in report["remarks"])


# -- config check --probe -------------------------------------------------------------------------------------------


@pytest.mark.integration
async def test_every_target_is_asked_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with (
        engine_server({"/metrics": answers(BODY), "/version": answers(b'{"version": "0.32.0"}')}) as told,
        engine_server({"/metrics": answers(PAGE)}) as silent,
        engine_server({"/metrics": answers(b"up 1\n")}) as stranger,
        engine_server({"/metrics": answers(b"\n" * 2_000_001)}) as huge,
    ):
        urls = {"told": told, "silent": silent, "stranger": stranger, "huge": huge}
        entries = [f"- {{name: {n}, url: '{s.url()}'}}" for n, s in urls.items()]
        entries.append(f"- {{name: gone, url: 'http://127.0.0.1:{dead_port()}'}}")
        settings = read_here("targets:\n" + "\n".join(entries) + "\n")
        lines = await probe_all(settings, known_engines())
    assert [ok for ok, _ in lines] == [True, True, False, False, False]
    said = [line for _, line in lines]
    assert said[0] == "told: vllm 0.32.0"
    assert said[1] == "silent: vllm (does not tell its version)"
    assert said[2] == "stranger: answers, but no known engine wrote the page"
    assert "lines on one page" in said[3]
    assert "refused the connection" in said[4]
