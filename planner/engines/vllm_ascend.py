"""vLLM on Ascend: vLLM's budget; the sampler keeps no sorted copies and rotary angles are held three times."""

from typing import Final

from planner.budget import EngineBudget, Era, Tier
from planner.engines._common import VLLM_FLAGS

_TIERS: Final = (Tier(0, 256, 2048),)

ENGINE: Final = EngineBudget(
    name="vllm-ascend",
    title="vLLM Ascend",
    rule="share_of_total",
    newest=(0, 21),
    block_tokens=128,
    outside_gib={1: (0.0, 0.03, 0.5), 2: (0.2, 0.6, 2.0), 4: (0.3, 0.9, 2.5), 8: (0.5, 1.5, 4.0)},
    eras=(
        Era((0, 7), 0.90, tiers=_TIERS, sampler_bytes=6, sampler_doubt=0.5, rotary_copies=3, hybrid=True),
        Era((0, 21), 0.92, tiers=_TIERS, sampler_bytes=6, sampler_doubt=0.5, rotary_copies=3, hybrid=True,
            tokens_by_concurrency=True),
    ),
    flags=VLLM_FLAGS,
    source="vllm_ascend/worker/worker.py",
)  # fmt: skip
