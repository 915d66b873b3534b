"""Flags that engines of one family share."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VLLM_FLAGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fraction": "--gpu-memory-utilization",
        "max_model_len": "--max-model-len",
        "max_num_seqs": "--max-num-seqs",
        "batched_tokens": "--max-num-batched-tokens",
        "kv_dtype": "--kv-cache-dtype",
        "tp": "--tensor-parallel-size",
        "prefix": "--enable-prefix-caching",
        "quantisation": "--quantization",
        "eager": "--enforce-eager",
    }
)
