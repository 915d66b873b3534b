"""SGLang's memory budget: what is free after the load, less the share that stays for activations and graphs."""

from typing import Final

from planner.budget import EngineBudget, Era, Tier

_GIB: Final = 1024.0


def _by_size(card_mib: float, ranks: int, chunk: int, graph_batch: int) -> float:
    """Reserve of 0.4.8 to 0.5.3, MiB: steps of the card's size."""
    del chunk, graph_batch
    if card_mib < 35 * _GIB:
        return (2.8 + ranks / 10) * _GIB
    if card_mib < 90 * _GIB:
        return (9.5 + ranks / 2) * _GIB
    return (12 + ranks / 2) * _GIB if card_mib < 160 * _GIB else 32 * _GIB


def _by_work(card_mib: float, ranks: int, chunk: int, graph_batch: int) -> float:
    """Reserve from 0.5.4 on, MiB: the prefill chunk and the largest captured batch."""
    reserve = 512 + 1.5 * max(chunk, 2048) + 2 * graph_batch + 128 * ranks
    return max(reserve, 10 * _GIB) if card_mib > 60 * _GIB else reserve


_TIERS: Final = (
    Tier(160, 0, 16384, graph_batch=512, graph_batch_wide=512),
    Tier(60, 0, 8192, graph_batch=256, graph_batch_wide=512),
    Tier(35, 0, 4096, graph_batch=32, graph_batch_wide=160),
    Tier(20, 0, 2048, graph_batch=24, graph_batch_wide=80),
    Tier(0, 0, 2048, graph_batch=8, graph_batch_wide=8),
)
_OLD_TIERS: Final = (Tier(24.9, 0, 8192, graph_batch=160, graph_batch_wide=160), Tier(0, 0, 2048, graph_batch=8))

ENGINE: Final = EngineBudget(
    name="sglang",
    title="SGLang",
    rule="share_after_load",
    newest=(0, 5, 23),
    block_tokens=1,
    # what is gone before the first reading: CUDA context, NCCL
    outside_gib={1: (0.2, 0.45, 1.0), 2: (0.4, 1.0, 2.5), 4: (0.6, 1.5, 3.2), 8: (0.8, 1.5, 4.0)},
    load_gib=(0.03, 0.13, 0.3),
    eras=(
        Era((0, 0), fraction_by_ranks={1: 0.88, 2: 0.87, 4: 0.85, 8: 0.81, 16: 0.79}, tiers=_OLD_TIERS, state_ratio=1,
            vision_share=0.95, source="server_args.py of 0.4; model_runner.py: 5 % less for a multimodal model"),
        Era((0, 4, 5), fraction_by_ranks={1: 0.88, 2: 0.87, 4: 0.85, 8: 0.81, 16: 0.79}, tiers=_OLD_TIERS, state_ratio=1,
            vision_share=0.90, source="model_runner.py: 10 % less for a multimodal model"),
        Era((0, 4, 8), reserve_mib=_by_size, vision_factor=True, tiers=_TIERS, state_ratio=1,
            source="server_args.py of 0.4.10"),
        Era((0, 5, 4), reserve_mib=_by_work, vision_factor=True, tiers=_TIERS, hybrid=True, state_ratio=3,
            source="sglang pull request 10975, server_args.py of 0.5.6"),
        Era((0, 5, 10), reserve_mib=_by_work, vision_factor=True, tiers=_TIERS, hybrid=True, state_ratio=5,
            source="kv_cache_mixin.py: three slots a request and two for the overlap"),
    ),
    flags={
        "fraction": "--mem-fraction-static", "max_model_len": "--context-length",
        "max_num_seqs": "--max-running-requests", "batched_tokens": "--chunked-prefill-size",
        "kv_dtype": "--kv-cache-dtype", "tp": "--tp-size", "prefix": "radix cache (on)",
        "quantisation": "--quantization", "eager": "--disable-cuda-graph",
    },
    source="python/sglang/srt/server_args.py, model_executor/model_runner.py",
)  # fmt: skip
