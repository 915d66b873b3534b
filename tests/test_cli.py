"""The command line as people and scripts use it: exit codes, what goes where, and how fast it starts."""

import asyncio
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pydantic
import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from goodwatch import __version__
from goodwatch.cli import main
from tests.collector.engines.pages import body
from tests.support.engine_server import TEXT, Handler, dead_port, engine_server

BODY = body("vllm_0_32_0")
#: what costs a second to import and no command that only prints needs
HEAVY = ("polars", "duckdb", "fastapi", "altair", "aiohttp", "opentelemetry", "pydantic", "rich", "yaml")
GOOD = (
    "targets:\n  - url: http://127.0.0.1:8000\n    service: chat\nservices:\n  - name: chat\n    slo: {ttft: 500ms}\n"
)
#: what people's terminals and scripts set that would change the answer
PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "140"}


class Report(pydantic.BaseModel, extra="forbid", strict=True):
    """The JSON of ``goodwatch inspect --json``."""

    class Signal(pydantic.BaseModel, extra="forbid", strict=True):
        name: str
        unit: str
        status: str = pydantic.Field(pattern="^(measured|derived|absent)$")
        source: str
        value: str
        number: float | None
        bounds: list[float]
        parts: list[str]
        ranks: list[str]
        why: str
        definition: str
        kernel: bool

    class Remark(pydantic.BaseModel, extra="forbid", strict=True):
        code: str
        level: str = pydantic.Field(pattern="^(warning|note)$")
        text: str

    source: str
    about: str
    engine: str
    title: str
    version: str
    version_basis: str
    models: list[str]
    page_format: str
    page_samples: int
    signals: list[Signal]
    remarks: list[Remark]
    facts: dict[str, str]
    unknown_families: int
    devices: list[dict[str, object]]
    counts: dict[str, int]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.prom").write_text(BODY)
    Path("stranger.prom").write_text("up 1\n")
    Path("empty.prom").write_text("")
    Path("garbage.prom").write_bytes(bytes(range(256)) * 40)
    Path("good.yaml").write_text(GOOD)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner(catch_exceptions=False).invoke(main, list(arguments), input=stdin, env=PLAIN)


def process(*arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "goodwatch", *arguments], input=stdin, capture_output=True, check=False,
        env={**os.environ, **PLAIN}, timeout=60,
    )  # fmt: skip


# -- inspect --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("page.prom", 0),
        ("stranger.prom", 1),
        ("empty.prom", 1),
        ("garbage.prom", 1),
        ("nowhere.prom", 2),
        ("gpu-1:8000", 2),
        ("http://[::1", 2),
    ],
)
def test_the_exit_code_says_whether_the_page_was_understood(source: str, code: int) -> None:
    done = run("inspect", source)
    assert done.exit_code == code
    assert bool(done.stderr) == (code == 2)
    assert bool(done.stdout) == (code != 2)
    assert "Traceback" not in done.output


def test_the_report_names_engine_version_and_signals() -> None:
    text = run("inspect", "page.prom").stdout
    for part in (
        "vLLM 0.32.0 or newer",
        "serving tiny",
        "●  ttft_seconds",
        "vllm:time_to_first_token_seconds",
        "--all says why",
    ):
        assert part in text
    assert "requests_swapped" in run("inspect", "page.prom", "--all").stdout


def test_standard_input_is_a_source() -> None:
    done = run("inspect", "-", "--json", stdin=BODY)
    assert done.exit_code == 0
    assert Report.model_validate_json(done.stdout).source == "standard input"


@pytest.mark.parametrize("source", ["page.prom", "stranger.prom", "empty.prom", "garbage.prom"])
def test_json_is_one_object_of_a_known_shape(source: str) -> None:
    report = Report.model_validate_json(run("inspect", source, "--json").stdout)
    assert report.source == source
    assert sum(report.counts.values()) == len(report.signals)


def test_several_bodies_are_a_list_and_one_stranger_among_them_a_finding() -> None:
    Path("pages").mkdir()
    Path("pages/a.prom").write_text(BODY)
    Path("pages/b.prom.xz").write_bytes(lzma.compress(body("sglang_0_5_23").encode()))
    done = run("inspect", "pages", "--json")
    reports = pydantic.TypeAdapter(list[Report]).validate_json(done.stdout)
    assert ([r.engine for r in reports], done.exit_code) == (["vllm", "sglang"], 0)
    Path("pages/c.prom").write_text("up 1\n")
    assert run("inspect", "pages").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["page.prom", "--engine", "vlm"], "--engine vlm: unknown; known are "),
        (["page.prom", "--ttft", "soon"], "--ttft soon: is not a duration; write for example 500ms"),
        (["page.prom", "--tpot", "-1"], "--tpot -1: is not a duration"),
        (["page.prom", "--e2e", "5 parsecs"], "--e2e 5 parsecs: is not a duration"),
        (["nowhere"], "nowhere: no such file or folder, and no URL"),
        (["gpu-1:8000"], "for a host write http://gpu-1:8000"),
        ([], "Missing argument 'SOURCE'"),
        (["page.prom", "--nope"], "No such option"),
    ],
)
def test_what_the_operator_can_mend_is_one_line_on_standard_error(arguments: list[str], says: str) -> None:
    done = run("inspect", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert says in done.stderr


@pytest.mark.parametrize("ttft", ["0.3", "300ms", "0.3s"])
def test_a_target_is_held_against_the_bounds(ttft: str) -> None:
    report = Report.model_validate_json(run("inspect", "page.prom", "--ttft", ttft, "--json").stdout)
    (remark,) = (r for r in report.remarks if r.code == "target_not_a_bound")
    assert "0.25 s and 0.5 s" in remark.text


def test_a_pinned_version_is_taken_as_it_is() -> None:
    report = Report.model_validate_json(run("inspect", "page.prom", "--engine-version", "0.33.0", "--json").stdout)
    assert report.version == "0.33.0"


def test_names_without_a_prefix_are_read_once_the_engine_is_told() -> None:
    Path("old.prom").write_text(body("trtllm_unprefixed_composed"))
    assert run("inspect", "old.prom").exit_code == 1
    told = run("inspect", "old.prom", "--engine", "trtllm")
    assert told.exit_code == 0
    assert "TensorRT-LLM 1.2.0 or older" in told.stdout


def test_a_real_process_keeps_results_and_errors_apart() -> None:
    good = process("inspect", "-", "--json", stdin=BODY.encode())
    assert (good.returncode, good.stderr) == (0, b"")
    assert Report.model_validate_json(good.stdout).engine == "vllm"
    bad = process("inspect", "nowhere")
    assert (bad.returncode, bad.stdout) == (2, b"")
    assert bad.stderr.decode().splitlines() == ["nowhere: no such file or folder, and no URL"]


def answers(payload: str, status: int = 200) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=payload.encode(), status=status, headers={"Content-Type": TEXT})

    return handler


async def process_beside(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """A process that asks a server in this loop."""
    return await asyncio.to_thread(process, *arguments)


@pytest.mark.integration
async def test_a_running_engine_is_asked_for_its_page_and_its_version() -> None:
    async with engine_server({"/metrics": answers(BODY), "/version": answers('{"version": "0.40.1"}')}) as server:
        done = await process_beside("inspect", server.url(""), "--json")
    report = Report.model_validate_json(done.stdout)
    assert (done.returncode, report.engine, report.version) == (0, "vllm", "0.40.1")
    assert report.version_basis == "told by the engine"


@pytest.mark.integration
async def test_an_engine_that_answers_500_is_a_finding_on_standard_error() -> None:
    async with engine_server({"/metrics": answers("no", 500)}) as server:
        done = await process_beside("inspect", server.url(""))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"HTTP 500" in done.stderr
    assert b"telemetry fault" in done.stderr


@pytest.mark.integration
def test_nobody_at_the_port_is_a_finding_on_standard_error() -> None:
    done = run("inspect", f"http://127.0.0.1:{dead_port()}")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "refused the connection" in done.stderr


# -- config ---------------------------------------------------------------------------------------------------------


def test_a_good_file_is_fine() -> None:
    done = run("config", "check", "good.yaml")
    assert (done.exit_code, done.stdout) == (0, "good.yaml: fine; 1 target, 1 services\n")


def test_every_problem_of_a_bad_file_is_told_with_its_place() -> None:
    Path("bad.yaml").write_text("targets:\n  - url: http://a:1\n    engin: vllm\n  - url: nonsense\n")
    done = run("config", "check", "bad.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("bad.yaml:3: targets[0].engin: ")
    assert lines[1].startswith("bad.yaml:4: targets[1].url: ")


@pytest.mark.parametrize("name", ["nowhere.yaml", "."])
def test_a_file_that_is_not_there_is_the_operator_s_to_mend(name: str) -> None:
    done = run("config", "check", name)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(name)


def write_targets(good: str, gone: str) -> None:
    """one.yaml has a target that answers, two.yaml one more that does not."""
    entry = f"targets:\n  - {{name: a, url: '{good}'}}\n"
    Path("one.yaml").write_text(entry)
    Path("two.yaml").write_text(f"{entry}  - {{name: gone, url: '{gone}'}}\n")


@pytest.mark.integration
async def test_probing_says_what_each_target_is_and_fails_when_one_does_not_answer() -> None:
    async with engine_server({"/metrics": answers(BODY), "/version": answers('{"version": "0.32.0"}')}) as server:
        write_targets(server.url(), f"http://127.0.0.1:{dead_port()}")
        one = await process_beside("config", "check", "one.yaml", "--probe")
        two = await process_beside("config", "check", "two.yaml", "--probe")
    assert one.returncode == 0
    assert "  a: vllm 0.32.0" in one.stdout.decode().splitlines()
    assert two.returncode == 1
    assert "gone: " in two.stdout.decode()


def test_the_schema_is_a_json_schema() -> None:
    done = run("config", "schema")
    schema = json.loads(done.stdout)
    assert done.exit_code == 0
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert {"targets", "services", "scrape"} <= set(schema["properties"])
    assert list(references(schema))
    for reference in references(schema):
        node = schema
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]


def references(node: object) -> Iterator[str]:
    """Every ``$ref`` in a schema."""
    if isinstance(node, dict):
        yield from (v for k, v in node.items() if k == "$ref" and isinstance(v, str))
        yield from (r for v in node.values() for r in references(v))
    elif isinstance(node, list):
        yield from (r for v in node for r in references(v))


# -- the rest -------------------------------------------------------------------------------------------------------


def test_the_version_names_the_engines() -> None:
    assert run("--version").stdout == f"goodwatch, version {__version__}\n"
    lines = run("version").stdout.splitlines()
    assert lines[0].startswith(f"goodwatch {__version__} (Python 3.")
    assert any(line.startswith("  vllm: vLLM, 0.6.0 to ") for line in lines)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(shell: str) -> None:
    done = run("completion", shell)
    assert done.exit_code == 0
    assert "_GOODWATCH_COMPLETE" in done.stdout


def test_a_shell_that_is_not_known_is_refused() -> None:
    assert run("completion", "tcsh").exit_code == 2


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize(
    ("path", "command"), list(commands(main)), ids=lambda v: " ".join(v) if isinstance(v, tuple) else ""
)
def test_the_help_of_every_command_says_what_it_takes(path: tuple[str, ...], command: click.Command) -> None:
    done = run(*path, "--help")
    assert done.exit_code == 0
    usage, _, text = done.stdout.partition("\n\n")
    assert usage.startswith("Usage:")
    assert len(text.split()) > 5
    assert not {"\\b", "\b"} & {*text.split()}, "a raw docstring: its examples are run together"
    for argument in (p for p in command.params if isinstance(p, click.Argument)):
        assert (
            argument.make_metavar(click.Context(command)).strip("[]{}.").split("|")[0].strip("]").upper()
            in text.upper()
        )
    for option in (p for p in command.params if isinstance(p, click.Option)):
        assert option.help, f"{' '.join(path)} {option.opts[0]}"


def test_a_command_that_is_not_known_is_refused() -> None:
    done = run("inspekt")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "inspekt" in done.stderr


def test_help_starts_without_what_only_a_service_needs() -> None:
    script = "import sys, goodwatch.cli; print([m for m in sys.argv[1:] if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script, *HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_lists_engines_and_accelerator_exporters() -> None:
    done = run("version")
    engines, accelerators = done.stdout.split("accelerator exporters:\n")
    assert f"goodwatch {__version__} (Python 3." in engines
    assert "  vllm: vLLM, 0." in engines
    assert "  dcgm: NVIDIA DCGM exporter\n" in accelerators
    assert "vllm" not in accelerators
