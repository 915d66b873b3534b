"""Bytes of weights: by the allocator's rules, by scheme, by rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalogue import known_model
from planner.quantisation import SCHEMES, scheme
from planner.tensors import Layout
from planner.weights import MIB, allocated, weights

GIB = 2**30


@given(st.lists(st.integers(1, 64 * MIB), max_size=60))
def test_what_is_allocated_is_never_below_what_was_asked_nor_far_above(sizes: list[int]) -> None:
    found = allocated(sizes)
    assert sum(sizes) <= found <= sum(sizes) + len(sizes) * MIB + 512 * len(sizes)


def test_a_large_tensor_takes_whole_steps_of_two_mib() -> None:
    """Qwen2.5-7B's gate and up projection: 259 MiB come from a segment of 260 MiB, and 1 MiB is not split off."""
    assert allocated([259 * MIB]) == 260 * MIB
    assert allocated([24 * MIB + MIB // 2]) == 24 * MIB + MIB // 2  # 1.5 MiB are split off and stay free


# GiB that vLLM logs after loading ("Model loading took"): 16-bit checkpoints, one card
@pytest.mark.parametrize(
    ("name", "logged"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 14.9888),
        ("meta-llama/Meta-Llama-3-8B", 14.9595),
        ("Qwen/Qwen3-4B", 7.5552),
        ("Qwen/Qwen2.5-Math-1.5B", 2.8797),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 56.9342),
        ("microsoft/Phi-4-mini-instruct", 7.1694),
    ],
)
def test_weights_are_what_the_engine_logs(name: str, logged: float) -> None:
    found = weights(known_model(name), scheme("bf16"), Layout())
    assert found.total.point / GIB == pytest.approx(logged, rel=2e-4)
    assert found.total.low / GIB <= logged <= found.total.high / GIB


def test_embeddings_and_head_stay_at_16_bit_when_the_rest_is_quantised() -> None:
    model = known_model("meta-llama/Llama-3.3-70B-Instruct")
    found = weights(model, scheme("fp8"), Layout()).bytes_by_class
    assert found["embedding"] == found["head"] == 2 * 128256 * 8192
    assert found["dense"] == pytest.approx(80 * 3 * 8192 * 28672, rel=1e-3)


def test_a_k_quant_keeps_half_the_layers_finer() -> None:
    """llama.cpp log of Llama-2-7B Q4_K_M: 3820.94 MiB on the device, 70.31 MiB of embeddings on the host."""
    found = weights(known_model("meta-llama/Llama-2-7b-hf"), scheme("gguf-q4_k_m"), Layout(), pytorch=False)
    assert found.total.point / MIB == pytest.approx(3820.94, abs=0.1)
    assert found.host_bytes / MIB == pytest.approx(70.31, abs=0.01)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-Next-80B-A3B-Instruct"])
@pytest.mark.parametrize("quant", SCHEMES)
def test_more_ranks_never_take_more_memory_each(name: str, quant: str) -> None:
    model = known_model(name)
    by_ranks = [weights(model, scheme(quant), Layout(tp)).total.point for tp in (1, 2, 4, 8)]
    assert by_ranks == sorted(by_ranks, reverse=True)
    assert by_ranks[0] / 8 <= by_ranks[3]


def test_expert_parallel_splits_the_experts_and_nothing_else() -> None:
    model = known_model("deepseek-ai/DeepSeek-R1")
    alone = weights(model, scheme("fp8"), Layout()).bytes_by_class
    spread = weights(model, scheme("fp8"), Layout(ep=8, dp=8)).bytes_by_class
    assert spread["expert"] == pytest.approx(alone["expert"] / 8, rel=1e-6)
    assert spread["latent"] == alone["latent"]


def test_pipeline_stages_share_the_layers() -> None:
    model = known_model("meta-llama/Llama-3.1-70B-Instruct")
    whole, half = (weights(model, scheme("bf16"), Layout(pp=pp)).total.point for pp in (1, 2))
    assert half == pytest.approx(whole / 2, rel=0.02)


def test_a_model_whose_tensors_are_not_known_gets_a_wide_interval_and_says_so() -> None:
    found = weights(known_model("mistralai/Mistral-Small-4-119B-2603"), scheme("fp8"), Layout())
    assert "the model's tensors" in found.unknown
    assert (found.total.high - found.total.low) / found.total.point > 0.1
