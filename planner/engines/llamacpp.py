"""llama.cpp's memory: the KV cache is as large as the context asks; there is no share to fill."""

from typing import Final

from planner.budget import EngineBudget, Era, Tier

ENGINE: Final = EngineBudget(
    name="llama.cpp",
    title="llama.cpp",
    rule="fixed_context",
    newest=(2026, 1),
    block_tokens=1,
    outside_gib={1: (0.2, 0.35, 0.8)},
    eras=(Era((0, 0), tiers=(Tier(0, 1, 512),), hybrid=True, source="llama-kv-cache.cpp, llama-kv-cache-iswa.cpp"),),
    flags={
        "fraction": "-c", "max_model_len": "-c", "max_num_seqs": "-np", "batched_tokens": "-ub", "kv_dtype": "-ctk/-ctv",
        "tp": "-ts", "prefix": "--cache-prompt (on)", "quantisation": "a smaller GGUF file", "eager": "-nkvo",
    },
    source="ggml-org/llama.cpp",
)  # fmt: skip
