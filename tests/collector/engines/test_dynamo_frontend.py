"""The page here is composed from names and labels of Dynamo's packages; no server was recorded."""

from collector.detect import engine_of, version_of
from collector.engines.dynamo_frontend import ENGINE
from collector.engines.dynamo_worker import ENGINE as WORKER
from tests.collector.engines.pages import families, only, parts, reading, wire

_PAGE = "dynamo_frontend_composed"


def test_a_frontend_is_a_router_and_no_worker() -> None:
    assert engine_of(families(_PAGE), {e.name: e for e in (ENGINE, WORKER)}) is ENGINE
    assert ENGINE.role == "router"
    assert version_of(families(_PAGE), ENGINE).text == "1.4.2 or newer"


def test_requests_past_the_queue_are_running_and_twin_gauges_are_not_added() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 18 - 5
    assert wire(found, "requests_running") == "dynamo_frontend_active_requests"
    assert only(found, "requests_waiting") == 5


def test_errors_are_told_apart_from_the_requests_that_were_served() -> None:
    found = reading(ENGINE, _PAGE)
    assert parts(found, "requests_finished_total") == {"finished_reason=success": 200, "finished_reason=error": 12}
    assert only(found, "requests_failed_total") == 12
    assert only(found, "requests_aborted_total") == 11
    assert only(found, "requests_rejected_total") == 4


def test_tokens_and_latencies_of_a_page() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "input_tokens_total") == 120_000
    assert only(found, "output_tokens_total") == 20_212
    assert wire(found, "output_tokens_total") == "dynamo_frontend_output_tokens"
    assert only(found, "cached_input_tokens_total") == 30_000
    assert only(found, "ttft_seconds") == 215
    assert only(found, "e2e_seconds") == 212
    assert "tpot_seconds" not in found.resolved


def test_what_a_worker_registered() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "kv_cache_capacity_tokens") == 2_048 * 16
    assert only(found, "max_model_len_tokens") == 32_768
    assert only(found, "max_running_requests") == 256
