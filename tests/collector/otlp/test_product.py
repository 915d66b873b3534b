"""The receiver with the mapper and the store of the product: what real engines sent, into a file."""

from pathlib import Path

import pytest

from collector.spans.known import known_tables
from collector.spans.mapper import Mapper
from collector.stores.duckdb_requests import DuckDBRequestStore
from tests.collector.otlp.bodies import RECORDED, recorded
from tests.support.otlp_receiver import calling, posting, receiving
from tests.support.otlp_spans import REAL, numbered

pytestmark = pytest.mark.integration

#: request spans in each body, by its decoded recording: llm_request of vLLM; of SGLang the request and its stages
REQUESTS = {"vllm-0.32.0": 3, "vllm-0.8.5": 3}


@pytest.fixture
def store(tmp_path: Path) -> DuckDBRequestStore:
    return DuckDBRequestStore(tmp_path / "requests.duckdb")


@pytest.mark.parametrize("name", RECORDED)
async def test_every_span_of_a_real_body_is_kept_dropped_or_refused(name: str, store: DuckDBRequestStore) -> None:
    async with receiving(store, mapper=Mapper(known_tables().values())) as receiver:
        for _ in range(2):
            async with posting(receiver, recorded(name)) as response:
                assert response.status == 200
        counts = receiver.counts
    store.close()
    assert counts.accepted_spans == 2 * RECORDED[name][0]
    assert counts.accepted_spans == counts.rows + sum(counts.dropped.values()) + sum(counts.refused.values())
    assert counts.repeated_rows == counts.rows / 2
    assert counts.rows / 2 == REQUESTS.get(name, counts.rows / 2)


async def test_a_prompt_of_megabytes_is_taken_and_not_kept(tmp_path: Path, store: DuckDBRequestStore) -> None:
    prompt = "a secret that nobody should find again " * 60_000
    sent = numbered(0, 2, {**REAL, "gen_ai.prompt": prompt, "gen_ai.input.messages": prompt})
    async with receiving(store, mapper=Mapper(known_tables().values())) as receiver, calling(receiver) as export:
        await export(sent.SerializeToString(), timeout=30)
        assert receiver.counts.rows == 2
    assert store.parts([f"{1:032x}"])["input_tokens"].to_list() == [426]
    store.close()
    assert b"nobody should find" not in files_of(tmp_path)


def files_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())
