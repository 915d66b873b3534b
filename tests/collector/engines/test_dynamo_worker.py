"""The page here is composed from names and labels of Dynamo's packages; no server was recorded."""

from collector.detect import engine_of
from collector.engines.dynamo_worker import ENGINE
from collector.engines.vllm import ENGINE as VLLM
from collector.exposition import parse
from collector.families import Families
from tests.collector.engines.pages import body, families, only, reading

_PAGE = "dynamo_worker_composed"
_ENGINES = {e.name: e for e in (ENGINE, VLLM)}


def test_only_the_generate_endpoint_serves_inference() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 9
    assert only(found, "requests_finished_total") == 196
    assert only(found, "e2e_seconds") == 196
    assert only(found, "requests_failed_total") == 2


def test_a_gauge_of_unknown_scale_is_not_read() -> None:
    assert "kv_cache_used_ratio" not in reading(ENGINE, _PAGE).resolved


def test_a_page_that_passes_the_engine_s_metrics_through_is_the_engine_s() -> None:
    assert engine_of(families(_PAGE), _ENGINES) is ENGINE
    both = body(_PAGE) + body("vllm_0_12_0").replace('engine="0"', 'engine="0",dynamo_component="decode"')
    assert engine_of(Families(parse(both)), _ENGINES) is VLLM
