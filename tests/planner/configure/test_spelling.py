"""What an engine's version cannot do is refused by name; what it can is said with its own flags."""

from typing import Any

import pytest

from goodwatch.core.errors import ConfigError
from planner.configure.spelling import spelled
from planner.configure.values import Configuration


def made(engine: str, version: str = "", **told: Any) -> Configuration:
    return Configuration(engine=engine, engine_version=version, model="Qwen/Qwen3-32B", **told)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (made("vllm", "0.7.3", dp=2), r"dp: vllm 0\.7\.3 has no --data-parallel-size; it was first read in 0\.8\.4"),
        (
            made("vllm", "0.13.0", max_queued_requests=9),
            r"max_queued_requests: vllm 0\.13\.0 has no --max-num-queued-reqs",
        ),
        (
            made("vllm", "0.13.0", kv_dtype="nvfp4"),
            r"kv_dtype nvfp4: vllm 0\.13\.0 cannot \(--kv-cache-dtype\); known are auto",
        ),
        (made("vllm", "0.13.0", tp=4, ep=2), "ep 2: vllm shares the experts over all tp x dp = 4 ranks"),
        (made("vllm", "0.13.0", scheduling_policy="lpm"), "scheduling_policy lpm: vllm"),
        (made("vllm", "0.32.0", quantisation="gguf-q4_k_m"), r"quantisation gguf-q4_k_m: vllm 0\.32\.0 cannot"),
        (made("sglang", "0.4.6", pp=2), r"pp: sglang 0\.4\.6 has no --pipeline-parallel-size"),
        (made("sglang", "0.5.6", chunked_prefill=False, max_num_batched_tokens=1), "both set --chunked-prefill-size"),
        (made("sglang", "0.5.6", speculative_tokens=3), "say how they are drafted"),
        (made("sglang", "0.5.6", speculative_tokens=3, draft_model="d"), "takes it with speculative_method eagle or"),
        (made("tensorrt-llm", "1.2.0", tp=2, dp=2), "repeats attention on every rank or on none"),
        (made("tensorrt-llm", "0.18.0"), r"known from 1\.0\.0 on"),
        (made("tensorrt-llm", "1.2.0", lora_adapters=("a=b",)), "lora_adapters: tensorrt-llm has no such setting"),
        (made("llama.cpp", tp=2, pp=2), "not both"),
        (made("llama.cpp", memory_fraction=0.9), "memory_fraction: llama.cpp has no such setting"),
        (made("llama.cpp", quantisation="fp8"), r"quantisation fp8: llama\.cpp 2026\.1 cannot"),
        (made("lmdeploy", dp=2), "dp 2: not written for lmdeploy"),
        (made("vllm-ascend", "0.13.0", quantisation="fp8"), r"quantisation fp8: vllm-ascend 0\.13\.0 cannot"),
        (made("vllm", "0.13.0", extra=(("--spec-method", "ngram"),)), None),  # of no row: not checked, kept
        (
            made("vllm", "0.13.0", extra=(("--speculative-model", "x"),)),
            r"--speculative-model: vllm 0\.13\.0 does not have it",
        ),
        (made("vllm", "0.13.0", tp=2, extra=(("--tensor-parallel-size", "4"),)), "is set by tp already"),
    ],
)
def test_what_cannot_be_done_is_refused_with_version_and_flag(one: Configuration, said: str | None) -> None:
    if said is None:
        assert spelled(one).lines[-1].why.endswith("not checked")
        return
    with pytest.raises(ConfigError, match=said):
        spelled(one)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"tp": 0}, "tp: 0 is outside"),
        ({"memory_fraction": 1.5}, r"memory_fraction: 1\.5 is outside"),
        ({"max_model_len": 10**12}, "max_model_len"),
        ({"model": "--host"}, "reads like a flag"),
        ({"model": " "}, "model: is empty"),
        ({"prefill_replicas": 1}, "give both"),
        ({"tp": 4, "gpu_count": 2}, "below tp"),
    ],
)
def test_values_that_mean_nothing_are_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Configuration(**({"engine": "vllm", "model": "m"} | told))


# docs.sglang.ai, DP attention: --tp 8 --dp 8 --enable-dp-attention runs 8 attention groups on 8 GPUs
def test_sglang_counts_attention_ranks_inside_its_tensor_parallel_group() -> None:
    old = spelled(made("sglang", "0.5.6", dp=8, ep=8)).argv
    assert old[:3] == ("--tensor-parallel-size", "8", "--data-parallel-size")
    assert "--enable-dp-attention" in old
    new = spelled(made("sglang", "0.5.23", dp=8, ep=8)).argv
    assert new[:4] == ("--tensor-parallel-size", "8", "--attn-dp-size", "8")


# llama.cpp, tools/server/README.md: the context is shared by the slots
def test_llama_cpp_context_is_that_of_all_slots() -> None:
    argv = spelled(made("llama.cpp", max_model_len=8192, max_num_seqs=4)).argv
    assert argv[:4] == ("--ctx-size", "32768", "--parallel", "4")


def test_the_engine_is_watched_by_what_is_written() -> None:
    assert "--enable-metrics" in spelled(made("sglang")).argv
    assert "--metrics" in spelled(made("llama.cpp")).argv
    assert spelled(made("tensorrt-llm")).keys == {"enable_iter_perf_stats": True}


def test_a_version_that_nobody_read_is_said() -> None:
    assert "newer than 0.32.0" in spelled(made("vllm", "0.40.0")).notes[0]


def test_roles_of_a_disaggregated_engine_differ() -> None:
    one = made("sglang", "0.5.6", prefill_replicas=1, decode_replicas=2)
    assert "prefill" in spelled(one, "prefill").argv
    assert "decode" in spelled(one, "decode").argv
    with pytest.raises(ConfigError, match=r"not written for llama\.cpp"):
        spelled(made("llama.cpp", prefill_replicas=1, decode_replicas=2), "prefill")
