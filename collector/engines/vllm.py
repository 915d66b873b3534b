"""vLLM's native metrics, in goodwatch's words.

Read in the released packages of the versions in ``ENGINE.versions`` and on the pages of running servers (0.8.5,
0.10.2, 0.12.0, 0.32.0). ``*_perc`` is a ratio 0..1, all times are seconds, ``cache_config_info`` holds text labels.
"""

from typing import Final

from goodwatch.core.engine import Absent, Engine, Source

_VERSIONS: Final = """
0.6.0 0.6.3 0.6.6 0.7.0 0.7.3 0.8.0 0.8.5 0.9.1 0.9.2 0.10.0 0.10.1 0.10.2 0.11.0 0.11.1 0.11.2 0.12.0 0.13.0 0.14.0
0.15.0 0.16.0 0.17.0 0.18.0 0.19.0 0.20.0 0.21.0 0.22.0 0.23.0 0.24.0 0.25.0 0.26.0 0.27.0 0.28.0 0.29.0 0.30.0 0.31.0
0.32.0 0.33.0
"""

# First version, last version ("-": still there), families without "vllm:" and counters without "_total". A family
# first met some versions after the last read without it has that older version as its first: it bounds from below.
# family{label=""} is one without a label: V1 labels its series with the engine; V0 never did, last read in 0.8.5.
_INVENTORY: Final = """
0.6.0   0.6.0   request_params_best_of
0.6.0   0.6.6   avg_generation_throughput_toks_per_s avg_prompt_throughput_toks_per_s
0.6.0   0.8.5   cpu_cache_usage_perc cpu_prefix_cache_hit_rate gpu_prefix_cache_hit_rate num_requests_swapped
0.6.0   0.8.5   cache_config_info{engine=""} e2e_request_latency_seconds{engine=""} num_requests_running{engine=""}
0.6.0   0.8.5   prompt_tokens{engine=""} request_prompt_tokens{engine=""} time_to_first_token_seconds{engine=""}
0.6.0   0.9.2   spec_decode_draft_acceptance_rate spec_decode_efficiency spec_decode_num_emitted_tokens
0.6.0   0.11.2  gpu_cache_usage_perc
0.6.0   0.14.0  time_per_output_token_seconds
0.6.0   -       cache_config_info e2e_request_latency_seconds generation_tokens num_preemptions num_requests_running
0.6.0   -       num_requests_waiting prompt_tokens request_generation_tokens request_params_n request_prompt_tokens
0.6.0   -       request_success spec_decode_num_accepted_tokens spec_decode_num_draft_tokens time_to_first_token_seconds
0.6.6   0.7.3   tokens
0.6.6   0.8.5   model_execute_time_milliseconds model_forward_time_milliseconds time_in_queue_requests
0.6.6   -       iteration_tokens_total lora_requests_info request_decode_time_seconds request_inference_time_seconds
0.6.6   -       request_max_num_generation_tokens request_params_max_tokens request_prefill_time_seconds
0.6.6   -       request_queue_time_seconds
0.7.3   0.11.2  gpu_prefix_cache_hits gpu_prefix_cache_queries
0.8.5   -       spec_decode_num_accepted_tokens_per_pos spec_decode_num_drafts {engine!=""}
0.9.2   -       kv_cache_usage_perc prefix_cache_hits prefix_cache_queries
0.10.2  -       inter_token_latency_seconds
0.11.0  -       request_time_per_output_token_seconds
0.11.1  -       corrupted_requests engine_sleep_state external_prefix_cache_hits external_prefix_cache_queries
0.11.1  -       mm_cache_hits mm_cache_queries nixl_bytes_transferred nixl_num_descriptors nixl_num_failed_notifications
0.11.1  -       nixl_num_failed_transfers nixl_post_time_seconds nixl_xfer_time_seconds
0.12.0  -       kv_block_idle_before_evict_seconds kv_block_lifetime_seconds kv_block_reuse_gap_seconds
0.13.0  -       request_prefill_kv_computed_tokens
0.15.0  -       nixl_num_kv_expired_reqs
0.16.0  0.19.0  prompt_tokens_recomputed
0.16.0  -       kv_offload_size kv_offload_total_bytes kv_offload_total_time prompt_tokens_by_source
0.16.0  -       prompt_tokens_cached
0.17.0  -       estimated_flops_per_gpu estimated_read_bytes_per_gpu estimated_write_bytes_per_gpu
0.18.0  -       websocket_connection_duration_seconds websocket_connections websocket_connections_active
0.20.0  -       hf3fs_load_duration_seconds hf3fs_num_failed_load hf3fs_num_failed_save hf3fs_save_duration_seconds
0.20.0  -       kv_offload_cpu_cache_usage_perc kv_offload_stores_skipped num_requests_waiting_by_reason
0.20.0  -       tool_call_parser_invocations
0.22.0  -       mooncake_store_operation mooncake_store_operation_bytes mooncake_store_operation_failed_keys
0.22.0  -       mooncake_store_operation_keys mooncake_store_operation_time_seconds
0.24.0  -       diffusion_num_canvas_positions diffusion_num_committed_tokens diffusion_num_denoising_steps
0.24.0  -       kv_offload_load_bytes kv_offload_load_size kv_offload_load_time kv_offload_store_bytes
0.24.0  -       kv_offload_store_size kv_offload_store_time
0.25.0  -       kv_offload_cpu_allocation_size kv_offload_cpu_cache_read_usage_perc
0.25.0  -       kv_offload_cpu_cache_write_usage_perc kv_offload_tiering_active_cascade_jobs
0.25.0  -       kv_offload_tiering_active_promotion_jobs kv_offload_tiering_backpressure_blocks_dropped
0.25.0  -       kv_offload_tiering_backpressure_store_latency_ema kv_offload_tiering_backpressure_stores_dropped
0.25.0  -       kv_offload_tiering_cascade_job_failures kv_offload_tiering_chunk_hits kv_offload_tiering_chunk_queries
0.25.0  -       kv_offload_tiering_lookup_async_delay_seconds kv_offload_tiering_lookup_sync_delay_seconds
0.25.0  -       kv_offload_tiering_primary_read_usage_perc kv_offload_tiering_primary_write_usage_perc
0.25.0  -       kv_offload_tiering_promotion_allocation_failures kv_offload_tiering_promotion_job_failures
0.25.0  -       kv_offload_tiering_read_bytes kv_offload_tiering_read_time kv_offload_tiering_write_bytes
0.25.0  -       kv_offload_tiering_write_time rl_weight_update_operation_duration_seconds
0.25.0  -       rl_weight_update_operations_in_flight simple_kv_offload_info simple_kv_offload_load_blocks
0.25.0  -       simple_kv_offload_pending_store_blocks simple_kv_offload_save_outcomes simple_kv_offload_used_blocks
0.25.0  -       sleep_mode_operation_duration_seconds sleep_mode_operations_in_flight
0.26.0  -       kv_offload_allocation_failure kv_offload_lookup_async_delay_seconds kv_offload_lookup_sync_delay_seconds
0.30.0  -       request_num_preemptions
0.32.0  -       admission_rejections hisparse_cache_hits hisparse_cache_misses
0.32.0  -       hisparse_host_block_idle_before_evict_seconds hisparse_host_block_lifetime_seconds
0.32.0  -       hisparse_host_block_reuse_gap_seconds hisparse_host_cache_usage_perc hisparse_host_to_device_bytes
0.32.0  -       hisparse_pending_page_transfers nixl_num_notifications_after_expiry num_requests_kv_fetch_by_stage
0.32.0  -       prompt_tokens_cached_by_source watermark_requests
0.33.0  -       kv_offload_config_info kv_offload_tiering_promotion_latency_seconds mooncake_bytes_transferred
0.33.0  -       mooncake_num_descriptors mooncake_num_failed_recvs mooncake_num_failed_transfers
0.33.0  -       mooncake_num_kv_expired_reqs mooncake_xfer_time_seconds umbp_transfer_bytes umbp_transfer_completed
0.33.0  -       umbp_transfer_failed umbp_transfer_submitted
"""

# One HTTP request, one or more generations. Rendering, token counting and batches of chats are not inference requests.
_HANDLERS: Final = r".*/(v1/(chat/)?completions|v1/responses|v1/messages|inference/v1/generate|invocations)"

_V0_ONLY: Final = "only the V0 engine has it (vLLM 0.8.5 and before)"
_SPECULATION: Final = Absent(
    why="vLLM registers the speculative-decoding counters only while speculative decoding is on",
    instead="nothing to see when it is off",
    flag="--speculative-config",
)
# Measured under KV pressure: 2.9 (0.10.2) and 5.0 (0.12.0) lookups per prompt token, 1.0 in 0.32.0.
_LOOKUPS: Final = "0.10.2 and 0.12.0 look a waiting request up again each time they try to schedule it, and count it"
_PHASES: Final = Absent(why="vLLM has no histogram of this phase before 0.6.6", instead="means, from TTFT and E2E")
_PREFIX_COUNTERS: Final = Absent(
    why="vLLM has prefix-cache counters from 0.7.3 on, and the V0 engine has none",
    instead="prefix_cache_hit_ratio on V0",
)

_REQUESTS: Final = {
    "requests_running": (Source("vllm:num_requests_running"),),
    "requests_waiting": (
        Source(
            "vllm:num_requests_waiting",
            note="the queue only to 0.17, with skipped requests in 0.18 and 0.19, capacity + deferred from 0.20",
        ),
    ),
    "requests_swapped": (Source("vllm:num_requests_swapped", until="0.8.5", note=_V0_ONLY),),
    "requests_waiting_by_reason": (
        Source("vllm:num_requests_waiting_by_reason", since="0.20.0", part="reason", note="capacity or deferred"),
    ),
    "requests_finished_total": (
        Source(
            "vllm:request_success",
            "counter",
            part="finished_reason",
            note="a client that hangs up is in none of the reasons, not even in abort",
        ),
    ),
    "requests_failed_total": (
        Source(
            "vllm:request_success",
            "counter",
            since="0.16.0",
            where={"finished_reason": "error"},
            note="a part of the finished requests; an error before the engine is only in http_requests_total",
        ),
    ),
    "requests_rejected_total": (
        Source("vllm:admission_rejections", "counter", since="0.32.0", note="both queue limits together"),
    ),
}

_LATENCY: Final = {
    "ttft_seconds": (
        Source("vllm:time_to_first_token_seconds", "histogram", note="counts requests that are aborted later, too"),
    ),
    "tpot_seconds": (
        Source(
            "vllm:request_time_per_output_token_seconds",
            "histogram",
            since="0.11.0",
            note="a request with one output token observes 0 and fills the lowest bucket",
        ),
    ),
    "itl_seconds": (
        Source(
            "vllm:inter_token_latency_seconds",
            "histogram",
            since="0.10.2",
            note="one observation per engine output, which carries several tokens with speculative decoding",
        ),
        Source(
            "vllm:time_per_output_token_seconds",
            "histogram",
            until="0.14.0",
            note="an inter-token gap in spite of its name; hidden by default from 0.12.0",
        ),
    ),
    "e2e_seconds": (
        Source("vllm:e2e_request_latency_seconds", "histogram", note="observed at finish: survivors only"),
    ),
    "queue_seconds": (
        Source(
            "vllm:request_queue_time_seconds",
            "histogram",
            since="0.6.6",
            note="the lowest bound is 0.3 s; waiting again after a preemption is not in it",
        ),
        Source("vllm:time_in_queue_requests", "histogram", since="0.6.6", until="0.8.5", note=_V0_ONLY),
    ),
    "prefill_seconds": (Source("vllm:request_prefill_time_seconds", "histogram", since="0.6.6"),),
    "decode_seconds": (Source("vllm:request_decode_time_seconds", "histogram", since="0.6.6"),),
    "inference_seconds": (Source("vllm:request_inference_time_seconds", "histogram", since="0.6.6"),),
}

_TOKENS: Final = {
    "input_tokens_total": (
        # Measured on 0.8.5: 22,700 tokens too many after 37 preemptions; the lengths of finished requests are exact.
        Source(
            "vllm:request_prompt_tokens",
            "histogram",
            where={"engine": ""},
            read="sum",
            note="at finish; the V0 engine's own counter counts a preempted request again",
        ),
        Source("vllm:prompt_tokens", "counter", note="counted when the prefill ends"),
    ),
    "output_tokens_total": (Source("vllm:generation_tokens", "counter", note="counted as they are made"),),
    "cached_input_tokens_total": (
        Source("vllm:prompt_tokens_cached", "counter", since="0.16.0"),
        Source(
            "vllm:prefix_cache_hits",
            "counter",
            since="0.9.2",
            note=f"cache hits stand in; {_LOOKUPS}",
        ),
        Source("vllm:gpu_prefix_cache_hits", "counter", since="0.7.3", until="0.11.2", note="cache hits stand in"),
    ),
    "input_length_tokens": (Source("vllm:request_prompt_tokens", "histogram"),),
    "output_length_tokens": (Source("vllm:request_generation_tokens", "histogram"),),
}

_CACHE: Final = {
    "kv_cache_used_ratio": (
        Source("vllm:kv_cache_usage_perc", since="0.9.2", note="a ratio 0..1 in spite of its name"),
        Source("vllm:gpu_cache_usage_perc", until="0.11.2", note="the old name; hidden by default from 0.11.0"),
    ),
    "kv_cache_capacity_tokens": (
        Source("vllm:cache_config_info", since="0.24.0", read="label", labels=("kv_cache_size_tokens",)),
        Source(
            "vllm:cache_config_info",
            read="label",
            labels=("num_gpu_blocks", "block_size"),
            product=True,
            derived=True,
            note="blocks times block size; wrong on hybrid models, whose real block differs from the label",
        ),
    ),
    "kv_block_size_tokens": (
        Source(
            "vllm:cache_config_info",
            read="label",
            labels=("effective_attention_block_size", "block_size"),
            note="before 0.31 the label may be stale or, on hybrid models, not the real block",
        ),
    ),
    "kv_blocks": (Source("vllm:cache_config_info", read="label", labels=("num_gpu_blocks",)),),
    "prefix_cache_queries_total": (
        Source("vllm:prefix_cache_queries", "counter", since="0.9.2", note=_LOOKUPS),
        Source("vllm:gpu_prefix_cache_queries", "counter", since="0.7.3", until="0.11.2"),
    ),
    "prefix_cache_hits_total": (
        Source("vllm:prefix_cache_hits", "counter", since="0.9.2", note=_LOOKUPS),
        Source("vllm:gpu_prefix_cache_hits", "counter", since="0.7.3", until="0.11.2"),
    ),
    "prefix_cache_hit_ratio": (
        Source("vllm:gpu_prefix_cache_hit_rate", until="0.8.5", note=f"{_V0_ONLY}; -1 is its word for not available"),
    ),
    "preemptions_total": (Source("vllm:num_preemptions", "counter"),),
}

_REST: Final = {
    "spec_drafts_total": (Source("vllm:spec_decode_num_drafts", "counter", since="0.8.5"),),
    "spec_draft_tokens_total": (Source("vllm:spec_decode_num_draft_tokens", "counter"),),
    "spec_accepted_tokens_total": (Source("vllm:spec_decode_num_accepted_tokens", "counter"),),
    "http_requests_total": (
        Source(
            "http_requests",
            "counter",
            where={"handler": _HANDLERS},
            part="status",
            note="status classes, taken when the response starts: an error inside a stream is a 2xx",
        ),
    ),
    "process_start_seconds": (Source("process_start_time_seconds"),),
}

_NOT_YET: Final = Absent(
    why="no event yet (V0, Ray, several API servers), --disable-log-stats, or a page that was cut",
    instead="a page after the first request",
)

_ABSENT: Final = {
    "requests_swapped": Absent(
        why="vLLM recomputes preempted requests and swaps nothing since the V1 engine",
        instead="preemptions_total",
    ),
    "requests_paused": Absent(why="vLLM does not pause requests", instead="preemptions_total"),
    "requests_in_flight": Absent(
        why="vLLM has no gauge of open HTTP requests",
        instead="requests_running plus requests_waiting",
    ),
    "requests_waiting_by_reason": Absent(why="vLLM splits the waiting requests from 0.20.0 on"),
    "requests_aborted_total": Absent(
        why="vLLM counts no client that hangs up: the reason abort stays at 0",
        instead="the gateway, or TTFT count minus finished minus decoding: aborts after the first token",
    ),
    "requests_failed_total": Absent(
        why="vLLM has no finished reason for errors before 0.16.0",
        instead="http_requests_total with status 5xx",
    ),
    "requests_rejected_total": Absent(
        why="vLLM counts refused requests from 0.32.0 on, and its Rust frontend does not",
        instead="http_requests_total with status 4xx, where bad requests and refusals are mixed",
    ),
    "tpot_seconds": Absent(
        why="vLLM has no per-request TPOT histogram before 0.11.0",
        instead="mean only, from decode time and tokens",
    ),
    "itl_seconds": Absent(
        why="the family of this version is hidden, or the page is not complete",
        instead="mean only, from decode time and tokens",
        flag="--show-hidden-metrics-for-version",
    ),
    "queue_seconds": _PHASES,
    "prefill_seconds": _PHASES,
    "decode_seconds": _PHASES,
    "inference_seconds": _PHASES,
    "queue_mean_seconds": Absent(why="vLLM makes no mean of its own", instead="queue_seconds, sum over count"),
    "cached_input_tokens_total": Absent(
        why="vLLM counts cached prompt tokens from 0.7.3 on, and the V0 engine does not",
        instead="prefix_cache_hit_ratio times the rate of input_tokens_total on V0",
    ),
    "realtime_tokens_total": Absent(
        why="vLLM's own token counters move every step",
        instead="input_tokens_total and output_tokens_total",
    ),
    "kv_cache_used_ratio": Absent(
        why="the page has no KV gauge: hidden in this version, or several API servers and nothing set yet",
        flag="--show-hidden-metrics-for-version",
    ),
    "kv_cache_capacity_tokens": Absent(
        why="cache_config_info is not on the page (the Rust frontend has none) or names no number of blocks",
        instead="the start-up log: GPU KV cache size",
    ),
    "kv_block_size_tokens": Absent(why="cache_config_info is not on the page (the Rust frontend has none)"),
    "kv_blocks": Absent(
        why="cache_config_info is not on the page (the Rust frontend has none) or says None",
        instead="the start-up log: number of GPU blocks",
    ),
    "prefix_cache_queries_total": _PREFIX_COUNTERS,
    "prefix_cache_hits_total": _PREFIX_COUNTERS,
    "prefix_cache_hit_ratio": Absent(
        why="the V1 engine counts hits and lookups instead of a ratio",
        instead="prefix_cache_hits_total over prefix_cache_queries_total",
    ),
    "spec_drafts_total": _SPECULATION,
    "spec_draft_tokens_total": _SPECULATION,
    "spec_accepted_tokens_total": _SPECULATION,
    "spec_accept_length": Absent(
        why="vLLM makes no mean of its own",
        instead="1 + spec_accepted_tokens_total over spec_drafts_total, as increases",
    ),
    "max_model_len_tokens": Absent(why="no metric carries it", instead="max_model_len in GET /v1/models"),
    "max_running_requests": Absent(why="no metric carries it", instead="the value of --max-num-seqs"),
    "http_requests_total": Absent(
        why="no inference request was answered yet, or this frontend (0.8.5, Rust) has no HTTP counters",
        instead="the gateway",
    ),
    "process_start_seconds": Absent(
        why="prometheus_client leaves process_* out with several API servers and on old versions",
        instead="counters that fell",
        flag="--api-server-count 1",
    ),
}

_SIGNALS: Final = {**_REQUESTS, **_LATENCY, **_TOKENS, **_CACHE, **_REST}

ENGINE: Final = Engine(
    name="vllm",
    title="vLLM",
    docs="vLLM documentation, Production Metrics",
    prefixes=("vllm:",),
    signals=_SIGNALS,
    absent={**dict.fromkeys(_SIGNALS, _NOT_YET), **_ABSENT},
    names={
        f"vllm:{name}": (since, None if until == "-" else until)
        for since, until, *names in map(str.split, _INVENTORY.strip().splitlines())
        for name in names
    },
    versions=tuple(_VERSIONS.split()),
    # V1 histograms and counters, which have series from the first page on; gauges do not with several API servers.
    # A V0 engine of 0.9.2 to 0.10.2 has no new ones and so reads as an older version, which is how it behaves.
    markers=(
        "vllm:e2e_request_latency_seconds",
        "vllm:prompt_tokens",
        "vllm:prefix_cache_queries",
        "vllm:inter_token_latency_seconds",
        "vllm:request_time_per_output_token_seconds",
        "vllm:external_prefix_cache_queries",
        "vllm:request_prefill_kv_computed_tokens",
        "vllm:prompt_tokens_cached",
        "vllm:request_num_preemptions",
        "vllm:prompt_tokens_cached_by_source",
    ),
    sum_labels=("engine", "ReplicaId"),  # data-parallel rank; Ray Serve's replica
    info=("vllm:cache_config_info",),
    ignore_labels=("pid",),
    version_paths=(("/version", "version"),),
    ttft_repeats_until="0.8.5",  # measured: 315 observations for 278 finished requests and 37 preemptions
    zeros_from_start=True,  # the V1 engine's own counters; V0, Ray and http_requests are born at the first event
    generate_handlers=_HANDLERS,
    hints={
        "off": "--disable-log-stats removes every vllm: series and leaves the http_ ones: metrics off, not no traffic.",
        "hidden": "--show-hidden-metrics-for-version brings back what the previous minor version hid, and no more.",
        "aborts": "A client that hangs up reaches no finished reason and no finish-time histogram: survivors only.",
        "disagg": "With prefill and decode apart each request is on both pages; only gateway or client know its TTFT.",
        "data_parallel": "Behind an external or hybrid load balancer each page shows its own engine: scrape them all.",
        "rust": "The Rust frontend answers OpenMetrics and lacks about a dozen families, cache_config_info among them.",
        "ray": "Under Ray Serve a series appears at its first non-zero value: absent is not zero.",
        "lora": "lora_requests_info has a unix time as value; only the newest series is true.",
        "api_servers": "With several API servers gauges are missing until something sets them, process_* for good.",
        "hybrid": "On hybrid models the block_size label is not the real block: capacity is sure from 0.24.0 on only.",
    },
)
