"""TensorRT-LLM's native metrics (trtllm-serve), in goodwatch's words.

Three dialects. From about 1.3.0 Prometheus text with the prefix ``trtllm_``; 1.1 and 1.2 serve five families without
any prefix, which are claimed only for a target that is declared as TensorRT-LLM; and all versions answer JSON iteration
statistics on /metrics, which our parser spells ``trtllm_json:path.to.number``. Read in source files of TensorRT-LLM,
not on a running server: the first version of each family is known by era only.
"""

from typing import Final

from goodwatch.core.engine import Absent, Engine, Source

# First version, last version ("-": still there), families without "trtllm_" and counters without "_total".
_INVENTORY: Final = """
1.3.0   -       avg_decoded_tokens_per_iter cpu_memory_usage_bytes e2e_request_latency_seconds generation_perplexity
1.3.0   -       generation_tokens gpu_memory_usage_bytes iteration_latency_seconds kv_cache_config_info
1.3.0   -       kv_cache_disk_prefetch_blocks kv_cache_free_blocks kv_cache_gen_alloc_blocks kv_cache_hit_rate
1.3.0   -       kv_cache_host_utilization kv_cache_intra_device_copy_bytes kv_cache_iter_full_reused_blocks
1.3.0   -       kv_cache_iter_missed_blocks kv_cache_iter_partial_reused_blocks kv_cache_iter_reuse_rate
1.3.0   -       kv_cache_iter_reused_blocks kv_cache_max_blocks kv_cache_missed_blocks kv_cache_offload_bytes
1.3.0   -       kv_cache_onboard_bytes kv_cache_reused_blocks kv_cache_tokens_per_block kv_cache_used_blocks
1.3.0   -       kv_cache_utilization max_batch_size_runtime max_batch_size_static max_num_active_requests
1.3.0   -       max_num_tokens_runtime model_config_info num_context_requests num_generation_requests
1.3.0   -       num_paused_requests num_requests_completed num_requests_running num_requests_waiting
1.3.0   -       num_scheduled_requests parallel_config_info pinned_memory_usage_bytes prefill_batch_occupancy
1.3.0   -       prefill_batch_tokens prefill_perplexity prompt_cache_hit_tokens prompt_cached_tokens
1.3.0   -       prompt_cached_tokens_per_request prompt_tokens request_decode_time_seconds request_error
1.3.0   -       request_inference_time_seconds request_prefill_time_seconds request_queue_time_seconds request_success
1.3.0   -       scheduled_batch_size spec_decode_acceptance_length spec_decode_accepted_tokens
1.3.0   -       spec_decode_draft_overhead spec_decode_drafted_tokens spec_decode_num_accepted_tokens
1.3.0   -       spec_decode_num_draft_tokens speculative_config_info time_per_output_token_seconds
1.3.0   -       time_to_first_token_seconds total_context_tokens
"""

# 1.1 and 1.2 spell these without a prefix.
_UNPREFIXED: Final = (
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_success",
    "time_per_output_token_seconds",
    "time_to_first_token_seconds",
)
_OLD: Final = ("1.1.0", "1.2.0")

_DECLARED: Final = "no prefix in 1.1 and 1.2"
_CONSUMES: Final = "JSON statistics: reading them consumes them, so let one reader only have them"
_PER_REQUEST: Final = "return_perf_metrics"
_ITERATION: Final = "enable_iter_perf_stats with return_perf_metrics"
_TOKENS_PER_BLOCK: Final = ("trtllm_kv_cache_tokens_per_block",)


def _request_histogram(family: str, note: str = "") -> tuple[Source, Source]:
    """A per-request histogram: the prefixed name, then the bare one of 1.1 and 1.2."""
    return (
        Source(f"trtllm_{family}", "histogram", since="1.3.0", note=note),
        Source(family, "histogram", since=_OLD[0], until=_OLD[1], declared_only=True, note=_DECLARED),
    )


_REQUESTS: Final = {
    "requests_running": (
        Source("trtllm_num_requests_running", since="1.3.0", note="as of the last iteration report"),
        Source("trtllm_json:numActiveRequests", note=_CONSUMES),
    ),
    "requests_waiting": (
        Source("trtllm_num_requests_waiting", since="1.3.0", note="as of the last iteration report"),
        Source("trtllm_json:numQueuedRequests", note=_CONSUMES),
    ),
    "requests_paused": (
        Source("trtllm_num_paused_requests", since="1.3.0", note="paused in the last iteration"),
        Source("trtllm_json:inflightBatchingStats.numPausedRequests", note=_CONSUMES),
    ),
    "requests_finished_total": (
        Source("trtllm_request_success", "counter", since="1.3.0", part="finished_reason"),
        Source(
            "request_success",
            "counter",
            since=_OLD[0],
            until=_OLD[1],
            part="finished_reason",
            declared_only=True,
            note=_DECLARED,
        ),
    ),
    "requests_failed_total": (
        Source(
            "trtllm_request_error",
            "counter",
            since="1.3.0",
            where={"http_code": r"50[0-24-9]|5[1-9]\d"},
            note="errors 5xx but 503, which is a refusal",
        ),
    ),
    "requests_rejected_total": (
        Source("trtllm_request_error", "counter", since="1.3.0", where={"http_code": "429|503"}),
    ),
}

_LATENCY: Final = {
    "ttft_seconds": _request_histogram("time_to_first_token_seconds", "observed at finish; a zero is skipped"),
    "tpot_seconds": _request_histogram(
        "time_per_output_token_seconds", "the mean of one request; zeros and requests with n > 1 are skipped"
    ),
    "e2e_seconds": _request_histogram("e2e_request_latency_seconds", "observed at finish; a zero is skipped"),
    "queue_seconds": _request_histogram("request_queue_time_seconds", "zeros are observed here, unlike elsewhere"),
    "prefill_seconds": (Source("trtllm_request_prefill_time_seconds", "histogram", since="1.3.0"),),
    "decode_seconds": (Source("trtllm_request_decode_time_seconds", "histogram", since="1.3.0"),),
    "inference_seconds": (Source("trtllm_request_inference_time_seconds", "histogram", since="1.3.0"),),
}

_TOKENS: Final = {
    "input_tokens_total": (Source("trtllm_prompt_tokens", "counter", since="1.3.0", note="at finish; not for n > 1"),),
    "output_tokens_total": (
        Source("trtllm_generation_tokens", "counter", since="1.3.0", note="at finish; not for n > 1"),
    ),
    "cached_input_tokens_total": (Source("trtllm_prompt_cached_tokens", "counter", since="1.3.0", note="at finish"),),
}

_CACHE: Final = {
    "kv_cache_used_ratio": (
        Source("trtllm_kv_cache_utilization", since="1.3.0", note="used over maximum blocks"),
        Source(
            "trtllm_json:kvCacheStats.usedNumBlocks",
            over=("trtllm_json:kvCacheStats.maxNumBlocks",),
            derived=True,
            note=_CONSUMES,
        ),
    ),
    "kv_cache_capacity_tokens": (
        Source("trtllm_kv_cache_max_blocks", since="1.3.0", times=_TOKENS_PER_BLOCK, derived=True),
        Source(
            "trtllm_json:kvCacheStats.maxNumBlocks",
            times=("trtllm_json:kvCacheStats.tokensPerBlock",),
            derived=True,
            note=_CONSUMES,
        ),
    ),
    "kv_block_size_tokens": (
        Source("trtllm_kv_cache_tokens_per_block", since="1.3.0"),
        Source("trtllm_json:kvCacheStats.tokensPerBlock", note=_CONSUMES),
    ),
    "kv_blocks": (
        Source("trtllm_kv_cache_max_blocks", since="1.3.0"),
        Source("trtllm_json:kvCacheStats.maxNumBlocks", note=_CONSUMES),
    ),
    "prefix_cache_queries_total": (
        Source(
            "trtllm_kv_cache_reused_blocks",
            "counter",
            since="1.3.0",
            plus=("trtllm_kv_cache_missed_blocks",),
            times=_TOKENS_PER_BLOCK,
            derived=True,
            note="reused plus missed blocks, in tokens",
        ),
    ),
    "prefix_cache_hits_total": (
        Source(
            "trtllm_kv_cache_reused_blocks",
            "counter",
            since="1.3.0",
            times=_TOKENS_PER_BLOCK,
            derived=True,
            note="reused blocks, in tokens",
        ),
    ),
    "prefix_cache_hit_ratio": (Source("trtllm_kv_cache_hit_rate", since="1.3.0"),),
}

# spec_decode_accepted_tokens (by position) and spec_decode_num_accepted_tokens (all) are two families.
_REST: Final = {
    "spec_draft_tokens_total": (Source("trtllm_spec_decode_num_draft_tokens", "counter", since="1.3.0"),),
    "spec_accepted_tokens_total": (Source("trtllm_spec_decode_num_accepted_tokens", "counter", since="1.3.0"),),
    "spec_accept_length": (Source("trtllm_spec_decode_acceptance_length", since="1.3.0", note="last iteration"),),
    "max_running_requests": (
        # The limit of the very count that requests_running is; the batch-size limits may differ from it.
        Source("trtllm_max_num_active_requests", since="1.3.0"),
        Source("trtllm_max_batch_size_runtime", since="1.3.0"),
        Source("trtllm_json:maxNumActiveRequests", note=_CONSUMES),
    ),
}


def _iteration(instead: str = "") -> Absent:
    return Absent(
        why="TensorRT-LLM exports it only with iteration statistics on, and with a prefix from about 1.3.0",
        instead=instead,
        flag=_ITERATION,
    )


def _per_request(instead: str = "the gateway or client spans") -> Absent:
    return Absent(
        why="TensorRT-LLM exports it only with per-request metrics on, in this form from about 1.3.0",
        instead=instead,
        flag=_PER_REQUEST,
    )


def _five(instead: str = "the gateway or client spans") -> Absent:
    return Absent(
        why="TensorRT-LLM exports it only with per-request metrics on, without a prefix in 1.1 and 1.2",
        instead=f"{instead}; in 1.1 and 1.2 declare the engine of the target",
        flag=_PER_REQUEST,
    )


_SPECULATION: Final = Absent(
    why="speculative decoding is off, or iteration statistics are",
    flag=f"speculative_config; {_ITERATION}",
)

_ABSENT: Final = {
    "requests_running": _iteration("the JSON statistics on /metrics: numActiveRequests"),
    "requests_waiting": _iteration("the JSON statistics on /metrics: numQueuedRequests"),
    "requests_swapped": Absent(why="TensorRT-LLM has no such count", instead="requests_paused"),
    "requests_paused": _iteration(),
    "requests_in_flight": Absent(
        why="TensorRT-LLM has no gauge of open HTTP requests",
        instead="requests_running plus requests_waiting",
    ),
    "requests_waiting_by_reason": Absent(why="TensorRT-LLM does not split its waiting requests"),
    "requests_finished_total": _five(),
    "requests_aborted_total": Absent(
        why="TensorRT-LLM counts no aborts", instead="the gateway (Dynamo adds a counter)"
    ),
    "requests_failed_total": _per_request("the gateway; the series is also missing before the first error"),
    "requests_rejected_total": _per_request("the gateway; the series is also missing before the first refusal"),
    "ttft_seconds": _five(),
    "tpot_seconds": _five(),
    "itl_seconds": Absent(why="TensorRT-LLM measures no inter-token gap", instead="the gateway or client spans"),
    "e2e_seconds": _five(),
    "queue_seconds": _five(),
    "prefill_seconds": _per_request("mean only, TTFT minus queue"),
    "decode_seconds": _per_request("mean only, E2E minus TTFT"),
    "inference_seconds": _per_request("mean only, E2E minus queue"),
    "queue_mean_seconds": Absent(why="TensorRT-LLM makes no mean of its own", instead="queue_seconds, sum over count"),
    "input_tokens_total": _per_request("the per-request JSON on /perf_metrics"),
    "output_tokens_total": _per_request("the per-request JSON on /perf_metrics"),
    "cached_input_tokens_total": _per_request("prefix_cache_hits_total; missing before the first hit, too"),
    "realtime_tokens_total": Absent(
        why="TensorRT-LLM counts tokens at finish only",
        instead="input_tokens_total and output_tokens_total",
    ),
    "input_length_tokens": Absent(why="no length histogram", instead="mean only, from tokens and finished requests"),
    "output_length_tokens": Absent(why="no length histogram", instead="mean only, from tokens and finished requests"),
    "kv_cache_used_ratio": _iteration("the JSON statistics on /metrics: usedNumBlocks over maxNumBlocks"),
    "kv_cache_capacity_tokens": _iteration("the JSON statistics on /metrics: maxNumBlocks times tokensPerBlock"),
    "kv_block_size_tokens": _iteration(),
    "kv_blocks": _iteration(),
    "prefix_cache_queries_total": _iteration("prefix_cache_hit_ratio; missing before the first hit, too"),
    "prefix_cache_hits_total": _iteration("prefix_cache_hit_ratio; missing before the first hit, too"),
    "prefix_cache_hit_ratio": _iteration(),
    "preemptions_total": Absent(why="TensorRT-LLM counts no preemptions", instead="requests_paused above 0"),
    "spec_drafts_total": Absent(why="TensorRT-LLM does not count verify steps", instead="spec_accept_length"),
    "spec_draft_tokens_total": _SPECULATION,
    "spec_accepted_tokens_total": _SPECULATION,
    "spec_accept_length": _SPECULATION,
    "max_model_len_tokens": Absent(why="no metric carries it", instead="max_seq_len in the server's configuration"),
    "max_running_requests": _iteration("max_batch_size in the server's configuration"),
    "http_requests_total": Absent(why="trtllm-serve counts no HTTP requests", instead="the gateway"),
    "process_start_seconds": Absent(
        why="TensorRT-LLM runs prometheus_client in multiprocess mode, which leaves process_* out",
        instead="counters that fell",
    ),
}

ENGINE: Final = Engine(
    name="trtllm",
    title="TensorRT-LLM",
    docs="TensorRT-LLM documentation, trtllm-serve, metrics endpoint",
    prefixes=("trtllm_", "trtllm_json:"),
    signals={**_REQUESTS, **_LATENCY, **_TOKENS, **_CACHE, **_REST},
    absent=_ABSENT,
    names={
        **{
            f"trtllm_{name}": (since, None if until == "-" else until)
            for since, until, *names in map(str.split, _INVENTORY.strip().splitlines())
            for name in names
        },
        **dict.fromkeys(_UNPREFIXED, _OLD),
    },
    versions=(*_OLD, "1.3.0"),  # eras rather than packages: "about 1.3.0" is a commit
    # No markers: every family needs a flag.
    info=(
        "trtllm_model_config_info",
        "trtllm_parallel_config_info",
        "trtllm_speculative_config_info",
        "trtllm_kv_cache_config_info",
    ),
    ignore_labels=("engine_type", "pid"),  # engine_type is the engine's name here (or "undefined"), not a role
    version_paths=(("/version", "version"),),
    metrics_paths=("/prometheus/metrics",),  # never /metrics unasked: reading the JSON there consumes it
    tokens_step_at_finish=True,
    ttft_at_finish=True,
    tpot_skips_single=True,  # a mean of zero or none is not observed
    hints={
        "off": "Set return_perf_metrics for per-request metrics, and enable_iter_perf_stats too for gauges and KV.",
        "json": "/metrics is JSON and each reading consumes it; one reader only. Scrape /prometheus/metrics instead.",
        "unprefixed": "1.1 and 1.2 name five families without a prefix: set engine: trtllm on the target to read them.",
        "tokens_at_finish": "Token counters step when a request ends, so their rate lags and jumps on long outputs.",
        "populations": "Zero durations are not observed (queue excepted), so histogram counts differ between families.",
        "model_name": "In 1.1 the label model_name is the literal undefined: name the model in the target's config.",
        "crash": "return_perf_metrics crashed the TensorRT backend of 1.2.0rc2: try it on one replica first.",
        "late_series": "Series appear at their first event: absent is not zero.",
        "disagg": "With prefill and decode apart each request is on both pages; only gateway or client know its TTFT.",
    },
)
