"""Bytes per token and how many tokens a pool holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalogue import known_model
from planner.kv import Cache, cache, context_bytes, grouped, state_bytes, uniform
from planner.tensors import Layout

GIB = 2**30


# bytes of one token per card: pool and tokens as engines print them
@pytest.mark.parametrize(
    ("name", "tp", "element", "per_token"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 2.0, 131_072),
        ("meta-llama/Llama-2-7b-hf", 1, 2.0, 524_288),
        ("meta-llama/Llama-3.3-70B-Instruct", 1, 1.0, 163_840),
        ("Qwen/Qwen3-32B", 1, 2.0, 262_144),
        ("deepseek-ai/DeepSeek-R1", 8, 2.0, 70_272),
        ("moonshotai/Kimi-K2.5", 8, 2.0, 70_272),
        ("zai-org/GLM-5.1-FP8", 8, 2.0, 100_152),
        ("MiniMaxAI/MiniMax-M2.5", 4, 2.0, 63_488),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 4, 2.0, 3_072),
        ("openai/gpt-oss-120b", 1, 2.0, 73_728),
    ],
)
def test_bytes_of_a_token_are_those_of_the_log(name: str, tp: int, element: float, per_token: int) -> None:
    assert cache(known_model(name), Layout(tp), element).bytes_per_token == per_token


def test_llama_cpp_keeps_the_values_of_a_latent_again() -> None:
    """llama.cpp log of DeepSeek-R1: 2074.0 MiB for 16,384 tokens."""
    kept = cache(known_model("deepseek-ai/DeepSeek-R1"), Layout(), 2.0, split_v=True)
    assert context_bytes(kept, context=16384, batch=1024, slots=1) / 2**20 == pytest.approx(2074.0, abs=0.1)


def test_heads_are_repeated_when_ranks_outnumber_them() -> None:
    model = known_model("Qwen/Qwen2.5-0.5B-Instruct")  # two KV heads
    assert cache(model, Layout(2), 2.0).token_bytes == cache(model, Layout(8), 2.0).token_bytes


def test_the_state_of_a_gated_delta_net_is_what_sglang_logs() -> None:
    """Qwen3.8-27B on one card: 360 slots take 51.76 GiB in 48 layers."""
    model = known_model("Qwen/Qwen3.8-27B")
    assert model.state is not None
    assert 360 * 48 * state_bytes(model.state, 1) / GIB == pytest.approx(51.76, rel=0.005)


def test_a_hybrid_prints_concurrency_times_length() -> None:
    """vLLM 0.24, Qwen3.6-35B-A3B with an fp8 cache: 6.01 GiB are 569,878 tokens, 4.35 requests of 131,072."""
    kept = cache(known_model("Qwen/Qwen3.6-35B-A3B"), Layout(), 1.0)
    found = grouped(kept, 6.01 * GIB, length=131072, block_tokens=16, step_tokens=8192, state_slots=2,
                    by_concurrency=True)  # fmt: skip
    assert found.tokens == 569_878
    assert found.concurrency == pytest.approx(4.35, abs=0.005)


def test_an_attention_block_grows_until_it_is_as_large_as_a_state() -> None:
    kept = Cache(10, 0, 30, 1024, 1024, 2_146_304)
    found = grouped(kept, GIB, length=4096, block_tokens=16, step_tokens=1, state_slots=1, by_concurrency=False)
    assert found.block_tokens == 2096


@given(st.floats(0, 1e12), st.integers(1, 200_000), st.sampled_from([1, 16, 64, 128]))
def test_a_pool_never_holds_more_tokens_than_its_bytes(pool: float, length: int, block: int) -> None:
    kept = cache(known_model("Qwen/Qwen3-32B"), Layout(), 2.0)
    found = uniform(kept, pool, length=length, block_tokens=block)
    assert found.tokens * kept.bytes_per_token <= pool
    assert (pool - found.tokens * kept.bytes_per_token) < block * kept.bytes_per_token
    assert found.tokens % block == 0


@given(st.floats(0, 4e11), st.floats(0, 1e11), st.integers(1, 200_000))
def test_a_larger_pool_holds_no_less(pool: float, more: float, length: int) -> None:
    kept = cache(known_model("google/gemma-3-27b-it"), Layout(), 2.0)

    def held(size: float) -> float:
        return grouped(kept, size, length=length, block_tokens=16, step_tokens=2048, state_slots=2,
                       by_concurrency=True).concurrency  # fmt: skip

    assert held(pool) <= held(pool + more)


def test_a_window_is_padded_to_256_cells_and_never_exceeds_the_context() -> None:
    kept = Cache(1, 1, 0, 100, 100, 0, window_tokens=128)
    assert context_bytes(kept, context=4096, batch=512, slots=1) == 100 * (4096 + 768)
    assert context_bytes(kept, context=256, batch=512, slots=1) == 100 * (256 + 256)
