"""LMDeploy's memory budget (TurboMind): a share of what is free once the weights are loaded."""

from typing import Final

from planner.budget import EngineBudget, Era, Tier

ENGINE: Final = EngineBudget(
    name="lmdeploy",
    title="LMDeploy",
    rule="share_of_free",
    newest=(0, 18),
    block_tokens=64,
    outside_gib={1: (0.3, 0.6, 1.5), 2: (0.5, 1.2, 3.0), 4: (0.7, 1.8, 4.0), 8: (1.0, 2.5, 5.0)},
    # the cache is sized before the buffers of a step are, so no activation peak is taken from it; no case holds a log
    eras=(Era((0, 0), 0.8, tiers=(Tier(0, 256, 8192),), activation_factor=(0.0, 0.0, 1.0),
              source="messages.py: cache_max_entry_count"),),
    flags={
        "fraction": "--cache-max-entry-count", "max_model_len": "--session-len", "max_num_seqs": "--max-batch-size",
        "batched_tokens": "--max-prefill-token-num", "kv_dtype": "--quant-policy", "tp": "--tp",
        "prefix": "--enable-prefix-caching", "quantisation": "--model-format", "eager": "--eager-mode",
    },
    source="lmdeploy/messages.py",
)  # fmt: skip
