"""The page here is composed from names and labels in the picker's source; no server was recorded."""

import pytest

from collector.detect import engine_of
from collector.engines.llmd_epp import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.normalise import read
from tests.collector.engines.pages import body, families, only, parts, reading

_PAGE = "llmd_epp_composed"


def test_old_and_new_names_together_count_once() -> None:
    assert engine_of(families(_PAGE), {ENGINE.name: ENGINE}) is ENGINE
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 20
    assert only(found, "requests_finished_total") == only(found, "e2e_seconds") == 200
    assert only(found, "requests_failed_total") == 6


def test_the_old_names_alone_are_read() -> None:
    lines = [line for line in body(_PAGE).splitlines() if "llm_d_epp_" not in line]
    found = read(Families(parse("\n".join(lines) + "\n")), ENGINE)
    assert only(found, "requests_running") == 20
    assert only(found, "e2e_seconds") == 200


def test_the_first_token_is_split_by_streaming() -> None:
    found = reading(ENGINE, _PAGE)
    assert parts(found, "ttft_seconds") == {"is_streaming=true": 170, "is_streaming=false": 30}
    assert only(found, "tpot_seconds") == 168


def test_arrivals_are_not_taken_for_ended_requests() -> None:
    assert "llm_d_epp_request_total" in body(_PAGE)
    assert only(reading(ENGINE, _PAGE), "requests_finished_total") != 220


def test_refusals_and_clients_that_left_the_queue_are_two_things() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_waiting") == 3
    assert only(found, "requests_rejected_total") == 4
    assert only(found, "requests_aborted_total") == 2


def test_tokens_are_sums_of_lengths() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "input_tokens_total") == 160_000
    assert only(found, "output_tokens_total") == 22_000
    assert only(found, "cached_input_tokens_total") == 50_000
    assert only(found, "kv_cache_used_ratio") == pytest.approx(0.35)
