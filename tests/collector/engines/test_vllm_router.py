"""The page here is composed from names in the router's binary; no server was recorded."""

from collector.detect import engine_of
from collector.engines.vllm import ENGINE as VLLM
from collector.engines.vllm_router import ENGINE
from collector.exposition import parse
from collector.families import Families
from collector.neighbours import ROUTER_FAMILIES, is_only_router
from tests.collector.engines.pages import body, families, only, reading

_PAGE = "vllm_router_composed"
_ENGINES = {e.name: e for e in (ENGINE, VLLM)}


def test_its_names_begin_like_vllm_s_and_are_its_own() -> None:
    assert engine_of(families(_PAGE), _ENGINES) is ENGINE
    assert engine_of(families("vllm_0_32_0"), _ENGINES) is VLLM
    beside = Families(parse(body(_PAGE) + body("vllm_0_32_0")))
    assert engine_of(beside, _ENGINES) is VLLM
    assert ENGINE.role == "router"


def test_counts_of_a_page() -> None:
    found = reading(ENGINE, _PAGE)
    assert only(found, "requests_running") == 6 + 3
    assert only(found, "requests_finished_total") == only(found, "e2e_seconds") == 60
    assert only(found, "requests_failed_total") == 2


def test_the_production_stack_router_is_another_one_and_no_engine() -> None:
    lines = [f'{name}{{server="http://e:8000"}} 2' for name in (*ROUTER_FAMILIES, "vllm:num_requests_running")]
    page = Families(parse("\n".join(lines) + "\n"))
    assert is_only_router(page)
    assert engine_of(page, _ENGINES) is None
