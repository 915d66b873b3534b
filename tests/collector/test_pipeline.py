"""One body of one target: what is pinned, what is told, what the names say; and what becomes of it."""

import pytest

from collector.engines.sglang import ENGINE as SGLANG
from collector.engines.trtllm import ENGINE as TRTLLM
from collector.engines.vllm import ENGINE as VLLM
from collector.exposition import PageTooLarge
from collector.pipeline import TargetReader
from goodwatch.core.model import Target
from tests.collector.engines.pages import body

ENGINES = {e.name: e for e in (VLLM, SGLANG, TRTLLM)}


def reader(engine: str | None = None, version: str | None = None, told: str = "") -> TargetReader:
    target = Target("gpu-1", "http://gpu-1:8000/metrics", "chat", engine=engine, engine_version=version)
    return TargetReader(target, ENGINES, told_version=told)


def test_the_configuration_wins_over_the_engine_and_the_engine_over_names() -> None:
    page = body("vllm_0_12_0")
    assert reader(version="0.12", told="0.12.0").understand(page, None).version.text == "0.12"
    assert reader(told="0.40.0").understand(page, None).version.text == "0.40.0"
    assert reader().understand(page, None).version.text == "0.11.1..0.12.0"


def test_a_pinned_engine_is_read_though_the_names_are_another_s() -> None:
    understood = reader("vllm").understand(body("sglang_0_5_23"), None)
    assert understood.engine is VLLM
    assert understood.detected is SGLANG
    assert understood.reading is not None
    assert not understood.reading.resolved


def test_a_pinned_engine_may_claim_names_without_a_prefix() -> None:
    page = body("trtllm_unprefixed_composed")
    assert reader().understand(page, None).engine is None
    pinned = reader("trtllm").understand(page, None).reading
    assert pinned is not None
    assert "ttft_seconds" in pinned.resolved


@pytest.mark.parametrize("page", ["", "<html>not found</html>", "\x00\x01\x02 \x7f", "# only a comment\n"])
def test_a_body_that_is_no_page_has_no_engine_and_no_samples(page: str) -> None:
    one = reader()
    understood = one.understand(page, "text/html")
    assert understood.engine is None
    assert one.scrape(understood, 1.0, 0.1, len(page)).samples == ()
    assert one.deployment(understood, 1.0) is None


def test_a_scrape_carries_the_canonical_samples() -> None:
    one = reader()
    understood = one.understand(body("vllm_0_32_0"), None)
    scrape = one.scrape(understood, 12.0, 0.25, 99)
    assert (scrape.up, scrape.ts, scrape.duration_s, scrape.body_bytes) == (True, 12.0, 0.25, 99)
    assert {"requests_running", "ttft_seconds"} <= {s.signal for s in scrape.samples}
    assert {(s.target, s.service, s.engine) for s in scrape.samples} == {("gpu-1", "chat", "vllm")}


def test_a_deployment_is_what_the_page_says_that_runs() -> None:
    one = reader()
    deployment = one.deployment(one.understand(body("vllm_0_32_0"), None), 12.0)
    assert deployment is not None
    assert (deployment.engine, deployment.engine_version, deployment.model) == ("vllm", "0.32.0 or newer", "tiny")
    assert deployment.facts["kv_cache_capacity_tokens"] == "8192"
    assert "None" not in deployment.facts.values()


def test_a_body_over_the_limits_is_refused() -> None:
    with pytest.raises(PageTooLarge):
        reader().understand(b"#" * 50_000_001, None)
