"""The page here is composed from names and labels of LMDeploy's packages; no server was recorded."""

from collector.detect import engine_of, version_of
from collector.engines.lmdeploy import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.normalise import read
from tests.collector.engines.pages import body, families, only, parts, reading, wire

_PAGE = "lmdeploy_composed"


def test_a_page_is_recognised_and_dated_by_its_names() -> None:
    assert engine_of(families(_PAGE), {ENGINE.name: ENGINE}) is ENGINE
    assert version_of(families(_PAGE), ENGINE).text == "0.15.0 or newer"
    old = Families(parse("# TYPE lmdeploy:num_requests_unfinished gauge\nlmdeploy:num_requests_unfinished 1\n"))
    assert version_of(old, ENGINE).text == "0.12.0 or older"


def test_engines_of_a_page_are_kept_apart_and_those_that_wait_for_a_handle_are_in() -> None:
    found = reading(ENGINE, _PAGE)
    assert {v.rank: v.value for v in found.resolved["requests_running"].values} == {"engine=0": 8, "engine=1": 4}
    assert {v.rank: v.value for v in found.resolved["requests_waiting"].values} == {"engine=0": 5 + 2, "engine=1": 0}


def test_counts_of_a_page() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "input_tokens_total") == 40_000
    assert only(found, "output_tokens_total") == 9_000
    assert only(found, "cached_input_tokens_total") == 10_000
    assert only(found, "kv_cache_used_ratio") == 0.5
    assert found.facts["session_len"] == "8192"


def test_failed_requests_are_counted_apart_from_those_that_finished() -> None:
    found = reading(ENGINE, _PAGE)
    assert wire(found, "requests_finished_total") == "lmdeploy:num_requests_succeeded"
    assert only(found, "requests_finished_total") == 90
    assert only(found, "requests_failed_total") == 3


def test_before_0_15_the_reasons_are_names_of_response_types_and_a_cancel_is_one_of_them() -> None:
    old = "\n".join(line for line in body(_PAGE).splitlines() if "num_requests_succeeded" not in line)
    found = read(Families(parse(old + "\n")), ENGINE)
    assert sum(parts(found, "requests_finished_total").values()) == 90
    assert only(found, "requests_aborted_total") == 7
    assert ENGINE.finished_counts_aborts


def test_the_token_gap_and_the_time_per_output_token_are_two_histograms() -> None:
    found = reading(ENGINE, _PAGE)
    assert (wire(found, "itl_seconds"), only(found, "itl_seconds")) == ("lmdeploy:iter_token_latency", 8_905)
    assert only(found, "tpot_seconds") == 90
    assert only(found, "e2e_seconds") == 90
    assert only(found, "ttft_seconds") == 95
