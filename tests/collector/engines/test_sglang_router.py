"""The pages here are composed from names in the router's binaries and labels in its source; none was recorded."""

from collector.detect import engine_of, version_of
from collector.engines.sglang import ENGINE as SGLANG
from collector.engines.sglang_router import ENGINE
from tests.collector.engines.pages import families, only, reading

_NEW, _OLD = "sglang_router_composed", "sglang_router_old_composed"


def test_both_generations_of_names_are_the_router_s() -> None:
    for page in (_NEW, _OLD):
        assert engine_of(families(page), {e.name: e for e in (ENGINE, SGLANG)}) is ENGINE
    assert version_of(families(_OLD), ENGINE).text == "0.1.9..0.2.4"
    assert version_of(families(_NEW), ENGINE).text == "0.3.0 or newer"
    assert ENGINE.role == "router"


def test_counts_of_the_new_names() -> None:
    found = reading(ENGINE, _NEW)
    # Workers carry no model: the page's only one is theirs.
    assert only(found, "requests_running") == 7 + 5
    assert only(found, "requests_finished_total") == only(found, "e2e_seconds") == 100
    assert only(found, "requests_failed_total") == 3
    assert only(found, "requests_rejected_total") == 5
    assert only(found, "input_tokens_total") == 50_000
    assert only(found, "output_tokens_total") == 11_000


def test_counts_of_the_old_names() -> None:
    found = reading(ENGINE, _OLD)
    assert only(found, "requests_running") == 6
    assert only(found, "requests_finished_total") == only(found, "e2e_seconds") == 44


def test_quantiles_of_a_summary_and_answers_to_health_checks_are_not_read() -> None:
    found = reading(ENGINE, _NEW)
    assert not {"ttft_seconds", "tpot_seconds", "http_requests_total"} & set(found.resolved)
    assert "cannot be merged" in ENGINE.absent["ttft_seconds"].why
