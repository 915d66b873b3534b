"""The page here is composed from names and labels of TGI's documentation; no server was recorded."""

from collector.detect import engine_of
from collector.engines.tgi import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.normalise import read
from tests.collector.engines.pages import families, only, reading

_PAGE = "tgi_composed"


def test_counts_of_a_page() -> None:
    assert engine_of(families(_PAGE), {ENGINE.name: ENGINE}) is ENGINE
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 16
    assert only(found, "requests_waiting") == 4
    assert only(found, "requests_finished_total") == 100
    assert only(found, "e2e_seconds") == only(found, "queue_seconds") == only(found, "inference_seconds") == 100


def test_the_sum_of_a_length_histogram_counts_tokens() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "input_tokens_total") == 30_000
    assert only(found, "output_tokens_total") == 12_000
    assert only(found, "output_length_tokens") == 100


def test_failures_refusals_and_dropped_clients_are_three_things_and_bad_requests_none() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_failed_total") == 2
    assert only(found, "requests_rejected_total") == 6
    assert only(found, "requests_aborted_total") == 5


def test_failures_without_the_label_are_failures() -> None:
    found = read(Families(parse("# TYPE tgi_request_failure counter\ntgi_request_failure 6\n")), ENGINE)
    assert only(found, "requests_failed_total") == 6
    assert set(found.resolved) == {"requests_failed_total"}


def test_a_mean_with_the_prefill_in_it_is_no_tpot() -> None:
    found = reading(ENGINE, _PAGE)
    assert not {"tpot_seconds", "itl_seconds", "ttft_seconds", "decode_seconds"} & set(found.resolved)
    assert "prefill" in ENGINE.absent["tpot_seconds"].why
