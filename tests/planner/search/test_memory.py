"""The ledger over columns is the ledger."""

import random

import pytest

from planner.catalogue import known_model
from planner.ledger import ledger
from planner.search.memory import memory
from planner.search.question import Allowed
from planner.search.space import Space, enumerated
from tests.planner.search.questions import asked

#: dense, grouped (window), recurrent, latent with experts, MXFP4 experts
MODELS = ("Qwen/Qwen2.5-7B-Instruct", "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct", "deepseek-ai/DeepSeek-V3",
          "openai/gpt-oss-120b")  # fmt: skip
ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_column_is_what_the_ledger_says_of_that_start(name: str, engine: str) -> None:
    model = known_model(name)
    allowed = Allowed(gpus=("H100", "L40S", "A100 80GB", "B200"), engines=(engine,))
    question = asked(name, tokens=(800.0, 200.0), allowed=allowed, acceptance_ratio=0.6)
    instances = enumerated(question, Space()).instances
    frame = memory(model, instances, lengths=(2048, min(model.max_positions, 40_960)), sequences=(16, 256, 1024),
                   tokens=(2048, 8192), context_tokens=900.0)  # fmt: skip
    for place in random.Random(7).sample(range(len(frame)), 60):
        row = frame.row(place, named=True)
        one = instances[row["instance"]]
        found = ledger(
            one.request(model, length=row["max_model_len"], sequences=row["max_num_seqs"], tokens=row["batched_tokens"])
        )
        assert found.pool is not None
        assert found.tokens is not None
        assert found.concurrency is not None
        assert (row["pool_low"], row["pool"], row["pool_high"]) == pytest.approx(
            (found.pool.low, found.pool.point, found.pool.high), rel=1e-9, abs=8.0
        )
        assert row["tokens"] == pytest.approx(found.tokens.point, abs=2048)  # a rounded sum may be a block off
        assert row["concurrency"] == pytest.approx(found.concurrency.point, rel=1e-3, abs=0.02)
        assert (row["outcome"], row["certain"]) == (found.outcome, found.certain)


def test_a_longer_request_never_makes_a_start_succeed() -> None:
    question = asked("Qwen/Qwen2.5-72B-Instruct")
    instances = enumerated(question, Space()).instances
    frame = memory(
        question.model, instances, lengths=(2048, 8192, 32_768), sequences=(64,), tokens=(2048,), context_tokens=1350.0
    )
    for _, part in frame.sort("max_model_len").group_by("instance", maintain_order=True):
        starts = [outcome == "ok" for outcome in part["outcome"]]
        assert starts == sorted(starts, reverse=True)


def test_no_instance_is_no_row() -> None:
    assert memory(
        known_model("Qwen/Qwen3-8B"), (), lengths=(1,), sequences=(1,), tokens=(1,), context_tokens=1.0
    ).is_empty()
