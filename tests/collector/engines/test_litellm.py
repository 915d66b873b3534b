"""The page here is composed from names and labels of LiteLLM's package; no proxy was recorded."""

from collector.detect import engine_of
from collector.engines.litellm import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.normalise import Reading, read
from tests.collector.engines.pages import families, reading

_PAGE = "litellm_composed"


def total(of: Reading, signal: str) -> float:
    """Sum over the models of a signal."""
    return sum(v.histogram.total if v.histogram else v.value or 0.0 for v in of.resolved[signal].values)


def test_a_proxy_is_a_gateway() -> None:
    assert engine_of(families(_PAGE), {ENGINE.name: ENGINE}) is ENGINE
    assert ENGINE.role == "gateway"


def test_series_of_users_and_keys_add_up() -> None:
    found = reading(ENGINE, _PAGE)
    assert total(found, "requests_finished_total") == 150
    assert total(found, "input_tokens_total") == 69_000
    assert total(found, "output_tokens_total") == 18_000
    assert total(found, "cached_input_tokens_total") == 12_000
    assert total(found, "requests_in_flight") == 5


def test_answers_come_by_status_and_a_refusal_is_one() -> None:
    found = reading(ENGINE, _PAGE)
    by_part = {v.part: v.value for v in found.resolved["http_requests_total"].values}
    assert by_part == {"status=200": 150, "status=429": 7, "status=500": 3}
    assert total(found, "requests_rejected_total") == 7
    assert total(found, "requests_failed_total") == 10


def test_labels_may_be_filtered_away() -> None:
    name = "litellm_proxy_total_requests_metric_total"
    found = read(Families(parse(f"# TYPE {name} counter\n{name} 160\n")), ENGINE)
    assert total(found, "requests_finished_total") == 160


def test_streamed_requests_alone_have_a_first_token() -> None:
    found = reading(ENGINE, _PAGE)
    assert total(found, "ttft_seconds") == 90
    assert total(found, "e2e_seconds") == 150
    assert ENGINE.ttft_streamed_only


def test_latency_per_output_token_is_no_tpot_and_the_answer_cache_no_prefix_cache() -> None:
    found = reading(ENGINE, _PAGE)
    assert not {"tpot_seconds", "itl_seconds", "prefix_cache_hits_total"} & set(found.resolved)
    assert "no time per output token" in ENGINE.absent["tpot_seconds"].why
