"""TensorRT-LLM's memory budget: a share of what is free once weights and buffers are loaded."""

from typing import Final

from planner.budget import EngineBudget, Era, Tier

_TIERS: Final = (Tier(0, 2048, 8192),)

ENGINE: Final = EngineBudget(
    name="tensorrt-llm",
    title="TensorRT-LLM",
    rule="share_of_free",
    newest=(1, 4),
    block_tokens=64,
    outside_gib={1: (0.4, 0.7, 1.6), 2: (0.6, 1.3, 3.0), 4: (0.8, 1.8, 4.0), 8: (1.0, 2.5, 5.0)},
    eras=(
        # a compiled engine plans its buffers; the case logs show less than one GiB for 7B models
        Era((0, 0), 0.9, tiers=(Tier(0, 256, 2048),), activation_factor=(0.0, 0.3, 1.5), source="C++ runtime"),
        Era((0, 17), 0.9, tiers=_TIERS, sampler_bytes=6, sampler_doubt=0.8, activation_factor=(0.5, 1.0, 2.5),
            source="PyTorch flow: profile run, then free_gpu_memory_fraction"),
    ),
    flags={
        "fraction": "kv_cache_config.free_gpu_memory_fraction", "max_model_len": "max_seq_len",
        "max_num_seqs": "max_batch_size", "batched_tokens": "max_num_tokens", "kv_dtype": "kv_cache_config.dtype",
        "tp": "tensor_parallel_size", "prefix": "kv_cache_config.enable_block_reuse",
        "quantisation": "a ModelOpt checkpoint", "eager": "cuda_graph_config",
    },
    source="tensorrt_llm/llmapi/llm_args.py, _torch/pyexecutor/_util.py",
)  # fmt: skip
