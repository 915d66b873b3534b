"""llama.cpp's server: a page of a running one (build 11434), held to what its clients counted."""

from pathlib import Path

import pytest

from collector.detect import engine_of
from collector.engines.llamacpp import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.normalise import read
from goodwatch.app.recording import Recording
from tests.collector.engines.pages import families, only, reading, wire

_PAGE = "llamacpp_11434"
_RECORDING = Path(__file__).parents[2] / "truth/data/llama-cpp-11434"
_RESTARTED_AT_S = 1796038994.0


def test_a_page_is_recognised_by_its_names() -> None:
    assert engine_of(families(_PAGE), {ENGINE.name: ENGINE}) is ENGINE


def test_counts_of_a_real_page() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 8
    assert only(found, "requests_waiting") == 72
    assert only(found, "output_tokens_total") == 2_290
    assert only(found, "input_tokens_total") == 15_367 + 1_038
    assert only(found, "cached_input_tokens_total") == 1_038
    assert only(found, "prefix_cache_queries_total") == 15_367 + 1_038
    assert only(found, "prefix_cache_hits_total") == 1_038
    assert only(found, "spec_drafts_total") == 0


def test_tokens_since_a_restart_are_what_the_clients_counted_exactly() -> None:
    recording = Recording.open(_RECORDING)
    rows = [r for r in recording.client() if r["start"] > _RESTARTED_AT_S]
    assert {r["status"] for r in rows} == {"ok"}
    (*_, last) = (s for s in recording.scrapes() if s.body is not None)
    assert last.body is not None
    found = read(Families(parse(last.body)), ENGINE)
    assert only(found, "output_tokens_total") == sum(r["output_tokens"] for r in rows) == 1_459
    assert only(found, "input_tokens_total") == sum(r["prompt_tokens"] for r in rows) == 7_344
    assert only(found, "cached_input_tokens_total") == sum(r["cached_tokens"] for r in rows) == 18


def test_nothing_is_read_from_what_is_named_like_a_signal_and_is_none() -> None:
    taken = {wire(reading(ENGINE, _PAGE), signal) for signal in reading(ENGINE, _PAGE).resolved}
    # A high-water mark typed as counter, throughputs named as seconds, calls of the decoder.
    assert not taken & {f"llamacpp:{name}" for name in ("n_tokens_max", "prompt_tokens_seconds", "n_decode")}


@pytest.mark.parametrize("signal", ["ttft_seconds", "tpot_seconds", "e2e_seconds", "requests_finished_total"])
def test_without_histograms_there_is_a_reason_and_no_latency(signal: str) -> None:
    assert signal not in reading(ENGINE, _PAGE).resolved
    assert ENGINE.absent[signal].instead


def test_an_old_build_has_a_kv_gauge_and_no_cached_tokens() -> None:
    page = "# TYPE llamacpp:kv_cache_usage_ratio gauge\nllamacpp:kv_cache_usage_ratio 0.5\n"
    page += "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 7\n"
    found = read(Families(parse(page)), ENGINE)
    assert only(found, "kv_cache_used_ratio") == 0.5
    assert only(found, "input_tokens_total") == 7
    assert "prefix_cache_hits_total" not in found.resolved
