"""vLLM's memory budget: a share of the whole card, less weights, activation peak and what lies outside PyTorch."""

from typing import Final

from planner.budget import EngineBudget, Era, Span, Tier
from planner.engines._common import VLLM_FLAGS

# Logits in 16 bit and fp32 (6), their sort with 64-bit indices (12), probabilities, cumulative sum, mask and scatter of
# the top-p step, exponential noise (20.25 together): bytes per sequence and vocabulary entry of the sampler that sorts.
_SORTING: Final = 38.25
# 16-bit and fp32 logits, probabilities, noise: the Triton kernel that masks in place (vllm pull request 33538)
_MASKING: Final = 14.0
# V1 samples with FlashInfer wherever that is installed (topk_topp_sampler.py of 0.8.3 to 0.11.0), else it sorts; from
# 0.11.1 on only where asked (vllm pull request 26859). 16-bit and fp32 logits, probabilities, and one more copy.
_IF_INSTALLED: Final = 14.0
# FlashInfer samples from logits and keeps no second copy (vllm pull request 40376)
_FUSED: Final = 10.0

# 0.6.3 and 0.6.4 took the driver's context for their own: 0.15, 0.35, 0.47 and 0.73 GiB outside PyTorch on four kinds
# of cards, where later versions report 0.01 to 0.35
_CONTEXT: Final[Span] = (0.05, 0.25, 0.6)
_FRAGMENTED: Final[Span] = (1.0, 1.3, 4.0)
_EAGER_PEAK: Final[Span] = (0.85, 1.0, 1.25)
_LARGE: Final = Tier(70, 1024, 8192, a100=False)
_SMALL: Final = Tier(0, 256, 2048)

ENGINE: Final = EngineBudget(
    name="vllm",
    title="vLLM",
    rule="share_of_total",
    newest=(0, 33),
    block_tokens=16,
    # NCCL and custom all-reduce buffers grow with the ranks; one rank holds cuBLAS workspaces and the context's growth
    outside_gib={
        1: (0.0, 0.13, 0.42), 2: (0.15, 0.5, 1.4), 4: (0.3, 0.8, 2.2), 8: (0.7, 1.8, 4.0), 16: (0.8, 1.5, 4.5),
    },
    eras=(
        # the peak was read from the driver before the cache was emptied: fragments are in it
        Era((0, 0), 0.90, prompt_at_once=True, sampler_bytes=_SORTING, activation_factor=_FRAGMENTED, split_k=8,
            source="worker.py of 0.2 and 0.3"),
        Era((0, 4), 0.90, prompt_at_once=True, activation_factor=_EAGER_PEAK, sampler_bytes=_SORTING, source="worker.py, V0"),
        Era((0, 5, 4), 0.90, prompt_at_once=True, activation_factor=_EAGER_PEAK, chunk_above=32768, chunk_tokens=512, sampler_bytes=_SORTING,
            source="arg_utils.py: chunked prefill turns itself on above 32k"),
        Era((0, 6, 3), 0.90, prompt_at_once=True, activation_factor=_EAGER_PEAK, chunk_above=32768, chunk_tokens=512,
            sampler_bytes=_SORTING, context_gib=_CONTEXT, source="worker.py of 0.6.3: all of the card less PyTorch's part"),
        Era((0, 6, 5), 0.90, prompt_at_once=True, activation_factor=_EAGER_PEAK, chunk_above=32768, chunk_tokens=512,
            sampler_bytes=_SORTING, source="vllm pull request 10511: only what is added after the first reading"),
        Era((0, 7), 0.90, prompt_at_once=True, activation_factor=_EAGER_PEAK, chunk_above=32768, chunk_tokens=2048, sampler_bytes=_SORTING,
            source="config.py of 0.7"),
        Era((0, 8, 3), 0.90, tiers=(Tier(70, 1024, 8192), _SMALL), sampler_bytes=_SORTING, sampler_least=_IF_INSTALLED,
            source="arg_utils.py of 0.8.5, V1: A100 not yet left out"),
        Era((0, 9), 0.90, tiers=(_LARGE, _SMALL), sampler_bytes=_SORTING, sampler_least=_IF_INSTALLED,
            source="vllm pull request 17885"),
        Era((0, 10), 0.90, tiers=(_LARGE, _SMALL), sampler_bytes=_SORTING, sampler_least=_IF_INSTALLED, hybrid=True,
            expert_rows=128, source="hybrid KV cache manager; Triton's Hopper layout of MXFP4 pads both sides"),
        Era((0, 11, 1), 0.90, tiers=(_LARGE, _SMALL), sampler_bytes=_SORTING, hybrid=True, expert_rows=128,
            source="as 0.10; FlashInfer's sampler only where asked (pull request 26859)"),
        Era((0, 12), 0.90, tiers=(_LARGE, _SMALL), sampler_bytes=_SORTING, hybrid=True, source="as 0.10"),
        Era((0, 17), 0.90, tiers=(_LARGE, _SMALL), sampler_bytes=_MASKING, sampler_doubt=0.35, hybrid=True,
            source="vllm pull request 33538: top-k and top-p in place"),
        Era((0, 18), 0.90, tiers=(_LARGE, _SMALL), sampler_bytes=_MASKING, sampler_doubt=0.35, hybrid=True,
            tokens_by_concurrency=True, source="kv_cache_utils.py: tokens from concurrency"),
        Era((0, 21), 0.92, tiers=(_LARGE, _SMALL), sampler_bytes=_FUSED, sampler_doubt=0.5, hybrid=True,
            tokens_by_concurrency=True, graphs_counted=True, source="vllm pull requests 38284 and 40376"),
        Era((0, 32), 0.92, tiers=(Tier(160, 1024, 16384), _LARGE, _SMALL), sampler_bytes=_FUSED, sampler_doubt=0.5,
            hybrid=True, tokens_by_concurrency=True, graphs_counted=True, source="arg_utils.py of 0.32"),
    ),
    flags=VLLM_FLAGS,
    source="vllm/v1/worker/gpu_worker.py, vllm/engine/arg_utils.py, vllm/v1/core/kv_cache_utils.py",
)  # fmt: skip
