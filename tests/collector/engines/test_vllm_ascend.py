"""vLLM's page read as vLLM on Ascend: the plugin has no names of its own, so pages recorded of vLLM do."""

import pytest

from collector.detect import engine_of
from collector.engines.vllm import ENGINE as VLLM
from collector.engines.vllm_ascend import ENGINE
from tests.collector.engines.pages import families, reading

_PAGES = ("vllm_0_10_2", "vllm_0_12_0", "vllm_0_32_0")


@pytest.mark.parametrize("page", _PAGES)
def test_without_a_word_from_the_operator_it_is_vllm(page: str) -> None:
    assert engine_of(families(page), {e.name: e for e in (ENGINE, VLLM)}) is VLLM
    unasked = reading(ENGINE, page)
    assert set(unasked.resolved) <= {"http_requests_total", "process_start_seconds"}


@pytest.mark.parametrize("page", _PAGES)
def test_where_it_is_set_it_reads_what_vllm_s_own_table_reads(page: str) -> None:
    asked, own = reading(ENGINE, page, pinned=True), reading(VLLM, page)
    both = set(asked.resolved) & set(own.resolved)
    assert len(both) > 20
    assert {s: asked.resolved[s].values for s in both} == {s: own.resolved[s].values for s in both}
