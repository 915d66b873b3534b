"""Every kind of page that real engines gave over their lives: start, load, restart, crash. Inspect reads them all.

A page is looked at once for each set of series that was seen; the values of the same series come from many pages and
change nothing of what is on the page.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from collector.capability import Capability, capability
from collector.detect import version_key
from collector.pipeline import TargetReader, Understood
from goodwatch.app.engines import known_engines
from goodwatch.app.inspecting import How, Inspected, as_json, inspect
from goodwatch.app.recording import Recording
from goodwatch.app.show import show_capability
from goodwatch.core.engine import Engine, Source
from goodwatch.core.model import Limits, SignalStatus, Target

DATA = Path(__file__).parent / "data"
RECORDINGS = sorted(p.name for p in DATA.iterdir() if p.is_dir())
ENGINES = [name for name in RECORDINGS if not name.startswith("llama")]
SERIES = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
#: at the start of these there is no request yet and so no series that a served engine has
BARE_SERIES = 30


@dataclass(frozen=True)
class Seen:
    """One kind of page, and what was made of it."""

    body: str
    done_s: float
    understood: Understood
    report: Capability


@cache
def pages(name: str) -> tuple[Seen, ...]:
    found: list[Seen] = []
    kinds: set[frozenset[str]] = set()
    for scrape in Recording.open(DATA / name).scrapes():
        if scrape.body is None:
            continue
        kind = frozenset(line.rpartition(" ")[0] for line in scrape.body.splitlines() if line[:1] != "#")
        if kind in kinds:
            continue
        kinds.add(kind)
        reader = TargetReader(Target(name, "http://t/metrics", "s"), known_engines())
        understood = reader.understand(scrape.body, scrape.content_type)
        report = capability(understood, Limits(0.5, 0.05, 5.0), now_s=scrape.done_s)
        found.append(Seen(scrape.body, scrape.done_s, understood, report))
    return tuple(found)


def served(name: str) -> list[Seen]:
    return [p for p in pages(name) if p.report.page_samples > BARE_SERIES]


def codes(page: Seen) -> set[str]:
    return {r.code for r in page.report.remarks}


def version_of(name: str) -> str:
    return name.split("-")[1]


@pytest.mark.parametrize("name", RECORDINGS)
def test_no_page_stops_the_report(name: str) -> None:
    assert pages(name)
    for page in pages(name):
        one = Inspected(name, page.report)
        console = Console(width=140)
        with console.capture() as captured:
            show_capability(console, one, every=True)
        assert captured.get().strip()
        assert as_json(one)["page_samples"] == page.report.page_samples > 0


@pytest.mark.parametrize("name", ENGINES)
def test_the_engine_is_right_on_every_page(name: str) -> None:
    assert {p.report.engine for p in pages(name)} == {name.split("-", maxsplit=1)[0]}
    assert {p.report.models for p in served(name)} == {("tiny",)}


@pytest.mark.parametrize("name", ENGINES)
def test_the_bracket_holds_the_true_version_on_every_page(name: str) -> None:
    true = version_key(version_of(name))
    for page in pages(name):
        version = page.understood.version
        assert version.open_below or not version.first or version_key(version.first) <= true, version
        assert version.open_above or not version.last or true <= version_key(version.last), version


@pytest.mark.parametrize("name", ENGINES)
def test_the_bracket_of_a_served_engine_is_narrow(name: str) -> None:
    last = served(name)[-1].understood.version
    narrow = {"0.8.5": "0.6.6..0.8.5", "0.10.2": "0.10.2", "0.12.0": "0.11.1..0.12.0", "0.32.0": "0.32.0 or newer"}
    assert last.text == narrow.get(version_of(name), f"{version_of(name)} or newer")


def wire(body: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Series of a body, read with a plain expression rather than with our parser."""
    for name, labels, value in SERIES.findall(body):
        yield name.replace(":", "_"), dict(LABEL.findall(labels)), float(value)


def on_page(source: Source, body: list[tuple[str, dict[str, str], float]]) -> bool:
    """Whether a source has a usable series on a page."""
    base = source.metric.replace(":", "_")
    names = {base, f"{base}_total"} if source.type != "histogram" else {f"{base}_bucket", f"{base}_sum"}
    matching = [
        labels
        for name, labels, value in body
        if name in names
        and math.isfinite(value)
        and all(re.fullmatch(pattern, labels.get(label, "")) for label, pattern in source.where.items())
    ]
    if source.read == "label":
        asked = all if source.product else any
        numeric = re.compile(r"[0-9.]*[1-9][0-9.]*")
        return any(asked(numeric.fullmatch(m.get(label, "")) for label in source.labels) for m in matching)
    return bool(matching)


@pytest.mark.parametrize("name", ENGINES)
def test_no_signal_that_is_on_the_page_is_called_absent(name: str) -> None:
    for page in pages(name):
        engine: Engine = known_engines()[page.report.engine]
        body = list(wire(page.body))
        off = {"spec_accept_length"}  # its gauge is there and reads 0: the feature is off
        for one in page.report.signals:
            if one.status is SignalStatus.ABSENT and one.name not in off:
                sources = [s for s in engine.signals.get(one.name, ()) if not s.declared_only]
                assert not [s.metric for s in sources if on_page(s, body)], one.name


@pytest.mark.parametrize("name", ENGINES)
def test_no_signal_is_reported_that_is_not_on_the_page(name: str) -> None:
    for page in pages(name):
        engine = known_engines()[page.report.engine]
        body = list(wire(page.body))
        for one in page.report.signals:
            if one.status is not SignalStatus.ABSENT:
                assert any(on_page(s, body) for s in engine.signals[one.name]), one.name


@pytest.mark.parametrize("name", ENGINES)
def test_reasons_of_absent_signals_fit_the_true_version(name: str) -> None:
    true = version_key(version_of(name))
    for page in served(name):
        for one in page.report.signals:
            told = re.search(r"before (?:SGLang |vLLM )?(\d+\.\d+\.\d+)", one.why)
            if one.status is SignalStatus.ABSENT and told:
                assert true < version_key(told[1]) or " yet" in one.why or " off" in one.why, one.why
            assert "loading" not in one.why


@pytest.mark.parametrize("name", [n for n in ENGINES if n.startswith("vllm")])
def test_what_trips_a_monitor_of_vllm_is_remarked(name: str) -> None:
    last = served(name)[-1]
    assert {"percent_named_ratio", "survivors"} <= codes(last)
    assert not {"tokens_step_at_finish", "finished_counts_aborts"} & codes(last)
    assert {"target_not_a_bound"} <= {r.code for r in capability(last.understood, Limits(ttft_s=0.3)).remarks}


@pytest.mark.parametrize(
    "name", [n for n in ENGINES if "two-api-servers" not in n and "0.8.5" not in n and "vllm" in n]
)
def test_the_start_of_the_process_is_told_where_one_process_answers(name: str) -> None:
    assert all("process_start" in codes(p) and "no_process_start" not in codes(p) for p in pages(name))


@pytest.mark.parametrize("name", ["vllm-0.32.0-two-api-servers", "vllm-0.8.5", "sglang-0.5.23"])
def test_where_no_process_tells_its_start_a_warning_says_so(name: str) -> None:
    assert all("no_process_start" in codes(p) for p in pages(name))


def test_one_engine_behind_two_api_servers_is_one_engine() -> None:
    (last,) = inspect(str(DATA / "vllm-0.32.0-two-api-servers"), How(known_engines(), Limits(), 0.0))
    assert not {"ranks", "repeated_ranks"} & {r.code for r in last.capability.remarks}
    finished = next(s for s in last.capability.signals if s.name == "requests_finished_total")
    assert finished.ranks == ("engine=0",)
    assert finished.number == 87  # of 87 that the clients sent


def test_what_trips_a_monitor_of_sglang_is_remarked() -> None:
    last = served("sglang-0.5.23")[-1]
    assert {"tokens_step_at_finish", "finished_counts_aborts", "nan", "kv_capacity"} <= codes(last)
    assert not {"survivors", "percent_named_ratio", "disaggregated", "repeated_ranks"} & codes(last)


def test_sglang_spelled_both_ways_gives_the_same_signals() -> None:
    spelled = {p.report.page_format: p for p in served("sglang-0.5.23")}
    assert set(spelled) == {"text", "openmetrics"}
    text, openmetrics = (
        {s.name for s in spelled[f].report.signals if s.status is not SignalStatus.ABSENT}
        for f in ("text", "openmetrics")
    )
    late = {"requests_aborted_total", "requests_failed_total"}  # born at their first event
    assert text - late == openmetrics - late


def test_a_feature_that_is_off_is_absent_and_not_0() -> None:
    for page in served("sglang-0.5.23"):
        accepted = next(s for s in page.report.signals if s.name == "spec_accept_length")
        assert accepted.status is SignalStatus.ABSENT
        assert "speculative decoding is off" in accepted.why


def test_zeros_of_the_v1_engine_are_true_zeros_from_its_first_page_on() -> None:
    for name in ("vllm-0.10.2", "vllm-0.12.0", "vllm-0.32.0"):
        first = pages(name)[0].report
        for signal in ("preemptions_total", "requests_finished_total", "output_tokens_total"):
            one = next(s for s in first.signals if s.name == signal)
            assert (one.status, one.number) == (SignalStatus.MEASURED, 0), (name, signal)


def test_the_first_page_of_the_v0_engine_has_hardly_a_series_and_says_so() -> None:
    first = pages("vllm-0.8.5")[0]
    assert first.report.page_samples == 1
    finished = next(s for s in first.report.signals if s.name == "requests_finished_total")
    assert (finished.status, finished.number) == (SignalStatus.ABSENT, None)


def test_llama_cpp_is_read_and_has_no_latency() -> None:
    for page in pages("llama-cpp-11434"):
        assert page.report.engine == "llamacpp"
        statuses = {s.name: s.status for s in page.report.signals}
        assert statuses["output_tokens_total"] is SignalStatus.MEASURED
        assert statuses["ttft_seconds"] is SignalStatus.ABSENT
        assert {r.level for r in page.report.remarks} == {"note"}
