"""vLLM on Ascend NPUs (the vllm-ascend plugin) in goodwatch's words.

The plugin exports no names of its own: its page is vLLM's, and without a word from the operator it is read as vLLM's.
Set ``engine: vllm_ascend`` on a target to have the deployment named as what it is. Read are the names of vLLM's V1
engine, which the plugin follows; vLLM's own table has more of them, and those of the V0 engine.
"""

from functools import partial
from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

# Claimed only where the operator set this engine.
_named: Final = partial(Source, declared_only=True)

_SIGNALS: Final = {
    "requests_running": (_named("vllm:num_requests_running"),),
    "requests_waiting": (_named("vllm:num_requests_waiting"),),
    "requests_finished_total": (_named("vllm:request_success", "counter", part="finished_reason"),),
    "requests_failed_total": (_named("vllm:request_success", "counter", where={"finished_reason": "error"}),),
    "ttft_seconds": (_named("vllm:time_to_first_token_seconds", "histogram"),),
    "tpot_seconds": (_named("vllm:request_time_per_output_token_seconds", "histogram"),),
    "itl_seconds": (
        _named("vllm:inter_token_latency_seconds", "histogram"),
        _named("vllm:time_per_output_token_seconds", "histogram", note="an inter-token gap in spite of its name"),
    ),
    "e2e_seconds": (
        _named("vllm:e2e_request_latency_seconds", "histogram", note="observed at finish: survivors only"),
    ),
    "queue_seconds": (_named("vllm:request_queue_time_seconds", "histogram", note="the lowest bound is 0.3 s"),),
    "prefill_seconds": (_named("vllm:request_prefill_time_seconds", "histogram"),),
    "decode_seconds": (_named("vllm:request_decode_time_seconds", "histogram"),),
    "inference_seconds": (_named("vllm:request_inference_time_seconds", "histogram"),),
    "input_tokens_total": (_named("vllm:prompt_tokens", "counter"),),
    "output_tokens_total": (_named("vllm:generation_tokens", "counter"),),
    "cached_input_tokens_total": (
        _named("vllm:prompt_tokens_cached", "counter"),
        _named("vllm:prefix_cache_hits", "counter", note="cache hits stand in"),
    ),
    "input_length_tokens": (_named("vllm:request_prompt_tokens", "histogram"),),
    "output_length_tokens": (_named("vllm:request_generation_tokens", "histogram"),),
    "kv_cache_used_ratio": (
        _named("vllm:kv_cache_usage_perc", note="a ratio 0..1 in spite of its name"),
        _named("vllm:gpu_cache_usage_perc", note="the old name; an NPU's pool all the same"),
    ),
    "kv_cache_capacity_tokens": (
        Source(
            "vllm:cache_config_info",
            read="label",
            labels=("num_gpu_blocks", "block_size"),
            product=True,
            derived=True,
            declared_only=True,
        ),
    ),
    "kv_block_size_tokens": (
        Source("vllm:cache_config_info", read="label", labels=("block_size",), declared_only=True),
    ),
    "kv_blocks": (Source("vllm:cache_config_info", read="label", labels=("num_gpu_blocks",), declared_only=True),),
    "prefix_cache_queries_total": (_named("vllm:prefix_cache_queries", "counter"),),
    "prefix_cache_hits_total": (_named("vllm:prefix_cache_hits", "counter"),),
    "preemptions_total": (_named("vllm:num_preemptions", "counter"),),
    "spec_drafts_total": (_named("vllm:spec_decode_num_drafts", "counter"),),
    "spec_draft_tokens_total": (_named("vllm:spec_decode_num_draft_tokens", "counter"),),
    "spec_accepted_tokens_total": (_named("vllm:spec_decode_num_accepted_tokens", "counter"),),
    "http_requests_total": (
        Source(
            "http_requests",
            "counter",
            where={"handler": r".*/(v1/(chat/)?completions|v1/responses|v1/messages|invocations)"},
            part="status",
            note="status classes, taken when the response starts",
        ),
    ),
    "process_start_seconds": (Source("process_start_time_seconds"),),
}

_NO_SOURCE: Final = Absent(why="vLLM does not export it")
_NOT_HERE: Final = Absent(why="this version of vLLM has no such family, or --disable-log-stats is set")

_ABSENT: Final = {
    **dict.fromkeys(_SIGNALS, _NOT_HERE),
    "requests_aborted_total": Absent(why="vLLM counts no client that hangs up", instead="the gateway"),
    "tpot_seconds": Absent(why="vLLM has no per-request TPOT histogram before 0.11", instead="mean only"),
    "max_model_len_tokens": Absent(why="no metric carries it", instead="max_model_len in GET /v1/models"),
    "max_running_requests": Absent(why="no metric carries it", instead="the value of --max-num-seqs"),
}

ENGINE: Final = Engine(
    name="vllm_ascend",
    title="vLLM on Ascend",
    docs="vLLM Ascend documentation; vLLM documentation, Production Metrics",
    prefixes=("vllm_ascend:",),  # on no page: only the configuration tells this engine from vLLM
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _NO_SOURCE), **_ABSENT},
    sum_labels=("engine",),
    info=("vllm:cache_config_info",),
    ignore_labels=("pid",),
    zeros_from_start=True,
    version_paths=(("/version", "version"),),
    hints={
        "off": "--disable-log-stats removes every vllm: series and leaves the http_ ones: metrics off, not no traffic.",
        "npu": "NPU use and memory are on the Ascend NPU exporter's page, not on this one.",
        "version": "The version that it tells is vLLM's, not the plugin's.",
        "aborts": "A client that hangs up reaches no finished reason and no finish-time histogram: survivors only.",
    },
)
