"""Drafts of engine modules: held to the tables that people wrote for the same pages."""

import asyncio
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from collector.draft import Draft, draft, words_of
from collector.exposition import parse
from collector.families import Families
from collector.normalise import read
from goodwatch.app.drafting import drafted, module_of
from goodwatch.app.engines import known_engines
from goodwatch.app.recording import Recording
from goodwatch.cli import main
from goodwatch.core.catalogue import CATALOGUE
from goodwatch.core.engine import Engine
from goodwatch.core.errors import ConfigError, TransientError
from tests.collector.engines import test_tables
from tests.support.engine_server import dead_port, engine_server

_RECORDINGS = Path(__file__).parents[1] / "truth/data"
_DATA = Path(__file__).parent / "engines/data"
_VLLM = ("vllm-0.8.5", "vllm-0.10.2", "vllm-0.12.0", "vllm-0.32.0", "vllm-0.32.0-two-api-servers")
_KERNEL = {s.name for s in CATALOGUE.values() if s.kernel}


@cache
def page_of(recording: str) -> str:
    """The fullest page of a recording, everything that the engine exports on it."""
    bodies = (s.body for s in Recording.open(_RECORDINGS / recording).scrapes() if s.body is not None)
    return max(bodies, key=lambda body: body.count("\n"))


def drafted_from(body: str) -> Draft:
    page = parse(body)
    return draft(Families(page), page.help)


def wrong(found: Draft, engine: Engine) -> dict[str, str]:
    """Signals that the draft reads from a family from which the engine's own table reads nothing of it."""
    return {
        g.signal: g.family
        for g in found.guesses
        if g.family not in {s.metric for s in engine.signals.get(g.signal, ())}
    }


@pytest.mark.parametrize("recording", _VLLM)
def test_of_vllm_every_kernel_signal_is_placed_and_none_wrongly(recording: str) -> None:
    table, body = known_engines()["vllm"], page_of(recording)
    found = drafted_from(body)
    there = _KERNEL & set(read(Families(parse(body)), table).resolved)
    assert len(there) >= 10
    assert wrong(found, table) == {}
    assert there <= {g.signal for g in found.guesses}


def test_of_llama_cpp_every_kernel_signal_is_placed_and_none_wrongly() -> None:
    table, body = known_engines()["llamacpp"], (_DATA / "llamacpp_11434.prom").read_text()
    found = drafted_from(body)
    there = _KERNEL & set(read(Families(parse(body)), table).resolved)
    assert there <= {g.signal for g in found.guesses}
    assert wrong(found, table) == {}
    left = {one.family for one in found.left}
    assert {"llamacpp:n_tokens_max", "llamacpp:prompt_tokens_seconds", "llamacpp:prompt_seconds"} <= left


def test_of_sglang_at_most_the_ended_requests_are_not_placed() -> None:
    table, body = known_engines()["sglang"], page_of("sglang-0.5.23")
    found = drafted_from(body)
    there = _KERNEL & set(read(Families(parse(body)), table).resolved)
    assert wrong(found, table) == {}
    assert there - {g.signal for g in found.guesses} <= {"requests_finished_total"}  # num_requests may be arrivals


def test_one_name_of_two_things_is_told_by_its_number_of_observations() -> None:
    placed = {g.signal: g.family for g in drafted_from(page_of("vllm-0.8.5")).guesses}
    assert placed["itl_seconds"] == "vllm:time_per_output_token_seconds"
    lmdeploy = {g.signal: g.family for g in drafted_from((_DATA / "lmdeploy_composed.prom").read_text()).guesses}
    assert lmdeploy["tpot_seconds"] == "lmdeploy:time_per_output_token_seconds"


def test_a_time_per_output_token_that_nobody_observed_is_not_placed() -> None:
    body = "# TYPE my_time_per_output_token_seconds histogram\n"
    body += 'my_time_per_output_token_seconds_bucket{le="+Inf"} 0\nmy_time_per_output_token_seconds_count 0\n'
    found = drafted_from(body)
    assert found.guesses == ()
    assert "no observation yet" in found.left[0].about


@pytest.mark.parametrize(
    ("lines", "scale"),
    [
        ("# TYPE my_ttft_ms histogram\nmy_ttft_ms_bucket{le=\"100\"} 1\nmy_ttft_ms_bucket{le=\"+Inf\"} 1\n", 1e-3),
        ("# TYPE my_ttft histogram\nmy_ttft_bucket{le=\"5\"} 1\nmy_ttft_bucket{le=\"5000\"} 1\n", 1e-3),
        ("# TYPE my_ttft histogram\nmy_ttft_bucket{le=\"0.5\"} 1\nmy_ttft_bucket{le=\"60\"} 1\n", 1.0),
        ("# TYPE my_kv_cache_usage_percent gauge\nmy_kv_cache_usage_percent 42\n", 1e-2),
        ("# TYPE my_kv_cache_usage_percent gauge\nmy_kv_cache_usage_percent 0.42\n", 1.0),
    ],
)  # fmt: skip
def test_units_come_from_endings_bounds_and_values(lines: str, scale: float) -> None:
    (guess,) = drafted_from(lines).guesses
    assert guess.scale == scale


def test_tokens_without_a_counter_are_the_sum_of_their_lengths() -> None:
    found = {g.signal: (g.family, g.read) for g in drafted_from((_DATA / "tgi_composed.prom").read_text()).guesses}
    assert found["output_tokens_total"] == ("tgi_request_generated_tokens", "sum")


@pytest.mark.parametrize(
    ("one", "other"), [("num_queue_reqs", "requests_waiting_num"), ("ttft_seconds", "time_to_first_token")]
)
def test_words_of_one_meaning_are_one(one: str, other: str) -> None:
    assert words_of(one) - {"to"} == words_of(other) - {"to"}


# -- the module that is written --------------------------------------------------------------------------------------


def engine_of(text: str, tmp_path: Path) -> Engine:
    """The engine of a written module, imported as any other."""
    path = tmp_path / "drafted_module.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("drafted_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Engine = module.ENGINE
    return found


_PAGES = {
    "llamacpp": _DATA / "llamacpp_11434.prom",
    "vllm": _DATA / "vllm_0_32_0.prom",
    "tgi": _DATA / "tgi_composed.prom",
    "litellm": _DATA / "litellm_composed.prom",
}


@pytest.mark.parametrize("name", _PAGES)
def test_the_module_is_formatted_imports_and_passes_the_test_of_every_table(name: str, tmp_path: Path) -> None:
    text = drafted(str(_PAGES[name]), name)
    engine = engine_of(text, tmp_path)
    assert engine.name == name
    for check in (f for n, f in vars(test_tables).items() if n.startswith("test_")):
        assert list(inspect.signature(check).parameters) == ["engine"]
        check(engine)
    for arguments in (["format", "--check"], ["check"]):
        command = [
            str(Path(sys.executable).with_name("ruff")),
            *arguments,
            "--stdin-filename",
            "collector/engines/x.py",
            "-",
        ]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert text.count("# guess: ") >= len(engine.signals)
    reasons = {absent.why for absent in engine.absent.values()}
    assert reasons == {"not on the page it was drafted from"}


def test_what_the_module_reads_is_what_the_page_says(tmp_path: Path) -> None:
    engine = engine_of(drafted(str(_PAGES["llamacpp"])), tmp_path)
    found = read(Families(parse(_PAGES["llamacpp"].read_text())), engine)
    assert set(found.resolved) == set(engine.signals)


def test_every_family_is_placed_or_listed_with_type_labels_and_help(tmp_path: Path) -> None:
    text = drafted(str(_PAGES["llamacpp"]))
    for family in Families(parse(_PAGES["llamacpp"].read_text())):
        assert family.name.removesuffix("_total") in text
    assert re.search(r"#   llamacpp:n_tokens_max  counter: Largest observed sequence length", text)
    assert re.search(r"#   tgi_batch_decode_duration  histogram \{method\}", drafted(str(_PAGES["tgi"])))


def test_a_page_cannot_write_code_into_the_module(tmp_path: Path) -> None:
    page = parse(
        '# HELP my_x a\\nimport os \\u2028"""\\\\ # " end\n# TYPE my_x gauge\nmy_x{a="1"} 1\nmy_num_requests_running 1\n'
    )
    text = module_of(draft(Families(page), page.help), "my", 'a"""b\\.prom')
    compile(text, "drafted", "exec")
    assert not re.search("^import os", text, flags=re.MULTILINE)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["my_", "my:", "other_", ""]),
            st.lists(
                st.sampled_from(["request", "token", "output", "prompt", "time", "per", "first", "queue", "cache", "usage", "total", "seconds", "num", "e2e", "x"]),
                min_size=1, max_size=5, unique=True,
            ),
            st.sampled_from(["gauge", "counter", "histogram", "summary", ""]),
        ),
        max_size=8,
    )
)  # fmt: skip
def test_whatever_the_names_a_module_comes_of_it(families: list[tuple[str, list[str], str]]) -> None:
    lines = []
    for prefix, words, kind in families:
        name = prefix + "_".join(words)
        lines += [f"# TYPE {name} {kind}"] if kind else []
        lines += [f'{name}_bucket{{le="1"}} 1', f"{name}_count 1"] if kind == "histogram" else [f"{name} 1"]
    found = drafted_from("\n".join(lines) + "\n")
    signals = [g.signal for g in found.guesses]
    assert len(signals) == len(set(signals))
    compile(module_of(found, "my", "page"), "drafted", "exec")


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_a_module_named_by_the_prefix_or_by_the_operator() -> None:
    told = CliRunner().invoke(main, ["engine", "draft", str(_PAGES["tgi"])])
    assert (told.exit_code, told.stderr) == (0, "")
    assert 'name="tgi"' in told.stdout
    named = CliRunner().invoke(main, ["engine", "draft", str(_PAGES["tgi"]), "--name", "mine"])
    assert 'name="mine"' in named.stdout
    piped = CliRunner().invoke(main, ["engine", "draft", "-"], input=_PAGES["tgi"].read_bytes())
    assert piped.stdout == told.stdout.replace("tgi_composed.prom", "standard input")


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        ("nowhere.prom", None, "no such file, and no URL"),
        ("http://", None, "not a URL"),
        (str(_PAGES["tgi"]), "two words", "must be the name of a module"),
        (str(_PAGES["tgi"]), "class", "must be the name of a module"),
    ],
)
def test_what_cannot_be_drafted_says_why(source: str, name: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        drafted(source, name)


def test_a_page_without_an_engine_s_series_is_no_draft(tmp_path: Path) -> None:
    page = tmp_path / "p.prom"
    page.write_text("process_start_time_seconds 1\n")
    with pytest.raises(ConfigError, match=r"p\.prom: no engine's series on it"):
        drafted(str(page))


@pytest.mark.integration
async def test_a_url_is_read_at_its_metrics_path() -> None:
    async with engine_server() as server:
        text = await asyncio.to_thread(drafted, server.url(""))
        assert 'prefixes=("vllm:",)' in text
        assert '"vllm:num_requests_running"' in text
    with pytest.raises(TransientError, match=r"127\.0\.0\.1"):
        await asyncio.to_thread(drafted, f"http://127.0.0.1:{dead_port()}")


def test_the_list_names_every_engine_with_its_role() -> None:
    told = CliRunner().invoke(main, ["engine", "list"])
    assert told.exit_code == 0
    assert re.search(r"^litellm +gateway +LiteLLM proxy", told.stdout, flags=re.MULTILINE)
    assert "vLLM on Ascend; " in told.stdout
    assert "only where it is set as engine" in told.stdout
    rows = json.loads(CliRunner().invoke(main, ["engine", "list", "--json"]).stdout)
    assert {r["name"] for r in rows} == set(known_engines())
    assert {r["role"] for r in rows} == {"engine", "router", "gateway", "worker"}
