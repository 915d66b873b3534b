"""SGLang's native metrics, in goodwatch's words.

Read in the released packages of the versions in ``ENGINE.versions`` and on the page of a running server (0.5.23).
Asked for OpenMetrics SGLang spells its names with an underscore instead of the colon. Scheduler series carry ranks,
tokenizer series (latencies, tokens, requests) do not.
"""

from typing import Final

from goodwatch.core.engine import Absent, Engine, Source

_VERSIONS: Final = """
0.4.2 0.4.3 0.4.4 0.4.5 0.4.6 0.4.7 0.4.8 0.4.9 0.4.10 0.5.1 0.5.2 0.5.3 0.5.4 0.5.5 0.5.6 0.5.7 0.5.8 0.5.9
0.5.10 0.5.11 0.5.12 0.5.13 0.5.14 0.5.15 0.5.16 0.5.17 0.5.18 0.5.19 0.5.20 0.5.21 0.5.22 0.5.23
"""

# First version, last version ("-": still there), families without "sglang:" and counters without "_total".
# family{label=""} is one without a label, {label!=""} any with it: labels came one by one. Bodies of late 2024 call the
# model "name" and have context_len and max_total_num_tokens, which went away and came back with "model_name".
_INVENTORY: Final = """
0.4.2   0.4.2   context_len{name!=""} max_total_num_tokens{name!=""} prompt_tokens{name!=""}
0.4.2   0.4.3   num_running_reqs{engine_type=""} token_usage{engine_type=""}
0.4.2   0.4.9   num_running_reqs{tp_rank=""} token_usage{tp_rank=""}
0.4.2   0.5.7   num_running_reqs{moe_ep_rank=""} token_usage{moe_ep_rank=""} queue_time_seconds{moe_ep_rank=""}
0.4.2   0.5.10  e2e_request_latency_seconds{engine_type=""} time_to_first_token_seconds{engine_type=""}
0.4.2   0.5.16  e2e_request_latency_seconds{is_streaming=""} time_to_first_token_seconds{is_streaming=""}
0.4.2   0.4.4   time_per_output_token_seconds
0.4.2   -       cache_hit_rate e2e_request_latency_seconds func_latency_seconds gen_throughput generation_tokens
0.4.2   -       num_queue_reqs num_requests num_running_reqs num_used_tokens prompt_tokens spec_accept_length
0.4.2   -       time_to_first_token_seconds token_usage context_len max_total_num_tokens
0.4.4   -       cached_tokens inter_token_latency_seconds {engine_type!=""}
0.4.6   0.5.2   avg_request_queue_latency
0.4.7   0.5.1   num_prefill_infight_queue_reqs
0.4.7   0.5.11  num_prefill_prealloc_queue_reqs
0.4.7   -       generation_tokens_histogram num_aborted_requests num_bootstrap_failed_reqs
0.4.7   -       num_decode_prealloc_queue_reqs num_decode_transfer_queue_reqs num_grammar_queue_reqs num_so_requests
0.4.7   -       num_transfer_failed_reqs prompt_tokens_histogram
0.4.10  0.5.2   total_retracted_reqs
0.4.10  -       {tp_rank!=""}
0.5.2   0.5.2   queue_time_s time_to_first_token_seconds_offline_batch
0.5.2   0.5.10  num_running_reqs_offline_batch
0.5.2   0.5.16  engine_load_weights_time engine_startup_time
0.5.2   -       backup_bandwidth backup_pgs backuped_tokens grammar_compilation_time_seconds grammar_ebnf_size
0.5.2   -       grammar_schema_count grammar_tree_traversal_time_avg grammar_tree_traversal_time_max
0.5.2   -       kv_transfer_latency_ms kv_transfer_speed_gb_s max_running_requests_under_SLO num_grammar
0.5.2   -       num_grammar_aborted num_grammar_cache_hit num_paused_reqs num_prefill_inflight_queue_reqs
0.5.2   -       num_retracted_reqs prefetch_bandwidth prefetch_pgs prefetched_tokens
0.5.2   -       startup_latency_breakdown_seconds_max swa_token_usage utilization
0.5.3   -       per_stage_req_latency_seconds queue_time_seconds
0.5.4   -       is_cuda_graph pending_prealloc_token_usage spec_accept_rate
0.5.5   0.5.10  num_retractions
0.5.5   -       eplb_gpu_physical_count kv_transfer_alloc_ms kv_transfer_bootstrap_ms mamba_usage
0.5.6   -       evicted_tokens eviction_duration_seconds load_back_duration_seconds load_back_tokens
0.5.6   -       max_total_num_tokens{model_name!=""} new_token_ratio num_grammar_timeout
0.5.7   0.5.10  dp_cooperation_gpu_execution_seconds gpu_execution_seconds
0.5.7   -       cuda_graph_passes decode_sum_seq_lens dp_cooperation_realtime_tokens eplb_balancedness http_requests
0.5.7   -       http_responses kv_transfer_total_mb lora_pool_slots_total lora_pool_slots_used lora_pool_utilization
0.5.7   -       num_retracted_input_tokens num_retracted_output_tokens num_retracted_requests realtime_tokens
0.5.8   -       http_requests_active num_prefill_retries num_unique_running_routing_keys prefill_delayer_outcomes
0.5.8   -       prefill_delayer_wait_forward_passes prefill_delayer_wait_seconds process_cpu_seconds
0.5.8   -       routing_key_all_req_count routing_key_running_req_count routing_keys_active {moe_ep_rank!=""}
0.5.9   0.5.10  cache_config_info
0.5.10  0.5.10  gpu_overlap_wait_seconds
0.5.10  -       estimated_flops_per_gpu estimated_read_bytes_per_gpu estimated_write_bytes_per_gpu full_token_usage
0.5.10  -       hicache_host_total_tokens hicache_host_used_tokens
0.5.11  -       e2e_request_latency_seconds{engine_type!=""} time_to_first_token_seconds{engine_type!=""}
0.5.11  -       context_len{model_name!=""} dp_cooperation_forward_execution_seconds forward_execution_seconds
0.5.11  -       kv_available_tokens kv_evictable_tokens kv_used_tokens num_pages num_streaming_sessions page_size
0.5.11  -       startup_available_gpu_memory_gb streaming_session_held_tokens
0.5.12  -       fwd_occupancy get_loads_duration_seconds mamba_available_tokens mamba_evictable_tokens
0.5.12  -       mamba_used_tokens num_prefill_bootstrap_queue_reqs swa_available_tokens swa_evictable_tokens
0.5.12  -       swa_used_tokens uncached_prompt_tokens_histogram
0.5.13  -       failed_session_recoveries spec_num_draft_tokens spec_num_steps spec_verify_calls
0.5.13  -       weight_load_duration_seconds
0.5.15  -       encoder_cache_entries encoder_cache_evictions encoder_cache_hit_files encoder_cache_hit_tokens
0.5.15  -       encoder_cache_size_mb encoder_cache_total_files encoder_cache_total_tokens encoder_dp_pending_requests
0.5.15  -       encoder_mm_items_per_batch encoder_mm_items_per_request encoder_model_forward_seconds
0.5.15  -       encoder_preprocess_seconds encoder_queue_wait_seconds encoder_request_e2e_latency_seconds
0.5.15  -       encoder_requests encoder_requests_received encoder_transfer_seconds
0.5.16  -       spec_block_accept_length spec_cap_length
0.5.17  -       graph_memory_usage_gb kv_cache_memory_usage_gb max_total_num_tokens_swa startup_cuda_graph_time_seconds
0.5.17  -       startup_time_seconds weight_memory_usage_gb {is_streaming!=""}
0.5.18  -       hicache_backup_bytes hicache_backup_duration_seconds hicache_backup_tokens hicache_dropped_tokens
0.5.18  -       load_back_bytes prefill_effective_tokens
0.5.19  -       hicache_backup_dropped_tokens hicache_prefetch_aux_alloc_failed_tokens
0.5.20  -       scheduler_idle_seconds scheduler_process_cpu_seconds scheduler_stage_seconds
0.5.20  -       storage_prefetch_deferred_tokens storage_prefetch_hit_tokens storage_prefetch_unfulfilled_tokens
0.5.21  -       num_decode_host_receive_queue_reqs num_decode_host_receive_reqs
0.5.22  -       decode_deferred_kv_release decode_deferred_kv_release_seconds dp_attention_pairs dp_attention_steps
0.5.22  -       dp_attention_sync_wait_seconds dp_attention_token_imbalance_ratio dp_attention_tokens
0.5.22  -       num_decode_deferred_kv_release_reqs request_time_per_output_token_seconds
0.5.23  -       hicache_host_mamba_total_states hicache_host_mamba_used_states prealloc_full_token_usage
0.5.23  -       prealloc_swa_token_usage
"""

_HANDLERS: Final = r".*/(generate|v1/(chat/)?completions|v1/responses|v1/messages|invocations)"

# prefill_prealloc (to 0.5.11) became prefill_bootstrap, the misspelt prefill_infight (to 0.5.1) prefill_inflight.
_QUEUES: Final = """
grammar prefill_bootstrap prefill_prealloc prefill_inflight prefill_infight
decode_prealloc decode_transfer decode_host_receive
"""

_STREAMED: Final = "is_streaming splits it from 0.5.17; without streaming the first output comes late and inflates TTFT"
_AT_FINISH: Final = "moves when a request ends; realtime_tokens_total moves as tokens are processed (0.5.7 on)"
_FROM_100: Final = "the lowest bound is 100 tokens"
_BORN_LATE: Final = "SGLang creates the series at the first event"

_REQUESTS: Final = {
    "requests_running": (Source("sglang:num_running_reqs", note="refreshed on log ticks: it lags"),),
    "requests_waiting": (
        Source(
            "sglang:num_queue_reqs",
            plus=tuple(f"sglang:num_{queue}_queue_reqs" for queue in _QUEUES.split()),
            note="with the grammar and prefill/decode queues: a request sits in one of them",
        ),
    ),
    "requests_paused": (Source("sglang:num_paused_reqs", since="0.5.2"),),
    "requests_in_flight": (Source("sglang:http_requests_active", since="0.5.8", where={"endpoint": _HANDLERS}),),
    "requests_finished_total": (Source("sglang:num_requests", "counter", note="no reason; holds aborted ones"),),
    "requests_aborted_total": (
        Source("sglang:num_aborted_requests", "counter", since="0.4.7", note="counts abort calls, not requests"),
    ),
    "requests_failed_total": (
        Source(
            "sglang:http_responses",
            "counter",
            since="0.5.7",
            where={"endpoint": _HANDLERS, "status_code": r"50[0-24-9]|5[1-9]\d"},
            note="answers 5xx but 503, which is a refusal",
        ),
        Source("sglang:num_transfer_failed_reqs", "counter", since="0.4.7", note="failed KV transfers only"),
    ),
    "requests_rejected_total": (
        Source(
            "sglang:http_responses",
            "counter",
            since="0.5.7",
            where={"endpoint": _HANDLERS, "status_code": "429|503"},
            derived=True,
            note="answers 429 and 503 on inference routes",
        ),
    ),
}

_LATENCY: Final = {
    "ttft_seconds": (Source("sglang:time_to_first_token_seconds", "histogram", part="is_streaming", note=_STREAMED),),
    "tpot_seconds": (
        Source(
            "sglang:request_time_per_output_token_seconds",
            "histogram",
            since="0.5.22",
            part="is_streaming",
            note="only requests that ended by stop or length, with more than one output token",
        ),
    ),
    "itl_seconds": (
        Source(
            "sglang:inter_token_latency_seconds",
            "histogram",
            since="0.4.4",
            note="the gap divided by its tokens, once per token: sum and mean are right, stalls are smoothed",
        ),
    ),
    "e2e_seconds": (Source("sglang:e2e_request_latency_seconds", "histogram", part="is_streaming"),),
    "queue_seconds": (
        Source("sglang:queue_time_seconds", "histogram", since="0.5.3", note="its lowest bound is 0"),
        Source("sglang:queue_time_s", "histogram", since="0.5.2", until="0.5.2"),
    ),
    "prefill_seconds": (
        Source(
            "sglang:per_stage_req_latency_seconds",
            "histogram",
            since="0.5.3",
            where={"stage": "prefill_forward"},
            note="the stage of this name is the same from 0.5.6 on; chunked_prefill overlaps it",
        ),
    ),
    "queue_mean_seconds": (Source("sglang:avg_request_queue_latency", since="0.4.6", until="0.5.2"),),
}

_TOKENS: Final = {
    "input_tokens_total": (Source("sglang:prompt_tokens", "counter", note=_AT_FINISH),),
    "output_tokens_total": (Source("sglang:generation_tokens", "counter", note=_AT_FINISH),),
    # cache_source is "total" or device/host/storage, never both (0.5.9 on): its values add up.
    "cached_input_tokens_total": (Source("sglang:cached_tokens", "counter", since="0.4.4", note=_AT_FINISH),),
    "realtime_tokens_total": (
        Source(
            "sglang:realtime_tokens",
            "counter",
            since="0.5.7",
            part="mode",
            note="prefill_compute, prefill_cache or decode; moves on scheduler ticks",
        ),
    ),
    "input_length_tokens": (Source("sglang:prompt_tokens_histogram", "histogram", since="0.4.7", note=_FROM_100),),
    "output_length_tokens": (Source("sglang:generation_tokens_histogram", "histogram", since="0.4.7", note=_FROM_100),),
}

_CACHE: Final = {
    "kv_cache_used_ratio": (
        Source("sglang:token_usage", note="the busiest pool; tokens that can be evicted do not count as used"),
    ),
    "kv_cache_capacity_tokens": (
        Source("sglang:max_total_num_tokens", since="0.5.6"),
        Source(
            "sglang:cache_config_info",
            since="0.5.9",
            until="0.5.10",
            read="label",
            labels=("page_size", "num_pages"),
            product=True,
            derived=True,
        ),
    ),
    "kv_block_size_tokens": (
        Source("sglang:page_size", since="0.5.11"),
        Source("sglang:cache_config_info", since="0.5.9", until="0.5.10", read="label", labels=("page_size",)),
    ),
    "kv_blocks": (
        Source("sglang:num_pages", since="0.5.11"),
        Source("sglang:cache_config_info", since="0.5.9", until="0.5.10", read="label", labels=("num_pages",)),
    ),
    "prefix_cache_queries_total": (
        Source(
            "sglang:prompt_tokens",
            "counter",
            derived=True,
            note="every prompt token is looked up: prompt tokens are the denominator of the cached ones",
        ),
    ),
    "prefix_cache_hits_total": (Source("sglang:cached_tokens", "counter", since="0.4.4", note=_AT_FINISH),),
    "prefix_cache_hit_ratio": (
        Source("sglang:cache_hit_rate", note="of the last prefill batch; not refreshed while only decoding"),
    ),
    "preemptions_total": (
        Source("sglang:num_retracted_requests", "counter", since="0.5.7"),
        Source("sglang:total_retracted_reqs", since="0.4.10", until="0.5.2", note="a gauge that holds a total"),
    ),
}

_REST: Final = {
    "spec_drafts_total": (
        Source("sglang:spec_verify_calls", "counter", since="0.5.13", note="verify passes of finished requests"),
    ),
    "spec_accept_length": (
        Source("sglang:spec_accept_length", note="reads 0 when the feature is off: then it is no value"),
    ),
    "max_model_len_tokens": (Source("sglang:context_len", since="0.5.11"),),
    "max_running_requests": (
        Source("sglang:max_running_requests", until="0.4.1", note="seen on a body of late 2024 only"),
    ),
    "http_requests_total": (
        Source(
            "sglang:http_responses",
            "counter",
            since="0.5.7",
            where={"endpoint": _HANDLERS},
            part="status_code",
            part_as="status",
        ),
    ),
}

_SERVER_INFO: Final = "GET /server_info (older: /get_server_info)"
_CONFIG: Final = Absent("SGLang exports it from 0.5.9 on", _SERVER_INFO)
_LENGTHS: Final = Absent(
    f"no request ended yet ({_BORN_LATE}), SGLang before 0.4.7, or an old version without the flag",
    "mean only, from tokens and finished requests",
    "--collect-tokens-histogram",
)
_CACHED: Final = Absent(f"no prompt token was served from the cache yet ({_BORN_LATE}), or SGLang before 0.4.4")
_SPEC_FLAG: Final = "--speculative-algorithm"

_NOT_YET: Final = Absent(f"no such event yet ({_BORN_LATE}), or the page was cut", "a page after the first request")

_ABSENT: Final = {
    "requests_swapped": Absent("SGLang swaps nothing: it retracts requests", "preemptions_total"),
    "requests_paused": Absent("SGLang exports it from 0.5.2 on"),
    "requests_in_flight": Absent(
        "SGLang counts open HTTP requests from 0.5.8 on, each route from its first request on",
        "requests_running plus requests_waiting",
    ),
    "requests_waiting_by_reason": Absent("SGLang has a gauge per queue", "the num_*_queue_reqs gauges"),
    "requests_aborted_total": Absent(f"no abort yet ({_BORN_LATE}), or SGLang before 0.4.7"),
    "requests_failed_total": Absent(f"no 5xx answer yet ({_BORN_LATE}), or SGLang before 0.5.7", "the gateway"),
    "requests_rejected_total": Absent(
        f"no 429 or 503 answer yet ({_BORN_LATE}), or SGLang before 0.5.7", "the gateway"
    ),
    "tpot_seconds": Absent(
        "no request with two output tokens ended yet, or SGLang before 0.5.22",
        "mean only, from E2E, TTFT and tokens; the mean of itl_seconds is close",
    ),
    "itl_seconds": Absent(
        "no token followed a first one yet, or SGLang before 0.4.4, or a prefill worker",
        "mean only, from E2E, TTFT and tokens",
    ),
    "queue_seconds": Absent(
        "no request left the queue yet, or SGLang before 0.5.2", "queue_mean_seconds (0.4.6 to 0.5.2)"
    ),
    "prefill_seconds": Absent(
        "no prefill yet, or SGLang before 0.5.3", "mean only, TTFT minus queue, tokenisation included"
    ),
    "decode_seconds": Absent("SGLang observes no decode time", "mean only, E2E minus TTFT"),
    "inference_seconds": Absent("SGLang observes no inference time", "mean only, E2E minus queue"),
    "queue_mean_seconds": Absent(
        "SGLang replaced its mean (0.4.6 to 0.5.2) by a histogram", "queue_seconds, sum over count"
    ),
    "cached_input_tokens_total": _CACHED,
    "realtime_tokens_total": Absent(
        f"no token yet ({_BORN_LATE}), or SGLang before 0.5.7",
        "input_tokens_total and output_tokens_total, which move at finish",
    ),
    "input_length_tokens": _LENGTHS,
    "output_length_tokens": _LENGTHS,
    "kv_cache_capacity_tokens": Absent(
        "SGLang exports the size of its pool from 0.5.6 on",
        "num_used_tokens over token_usage while that is above 0, which is rounded",
    ),
    "kv_block_size_tokens": _CONFIG,
    "kv_blocks": _CONFIG,
    "prefix_cache_hits_total": _CACHED,
    "preemptions_total": Absent(
        f"no request was retracted yet ({_BORN_LATE}), or a version that keeps no total",
        "num_retracted_reqs above 0: retracted in the last step",
    ),
    "spec_drafts_total": Absent(
        "speculative decoding is off, or SGLang before 0.5.13", "spec_accept_length", _SPEC_FLAG
    ),
    "spec_draft_tokens_total": Absent(
        "SGLang does not count proposed tokens",
        "an estimate: spec_drafts_total times the configured number of draft tokens",
        _SPEC_FLAG,
    ),
    "spec_accepted_tokens_total": Absent("SGLang does not count accepted tokens", "spec_accept_length", _SPEC_FLAG),
    "spec_accept_length": Absent("speculative decoding is off, or drafted nothing yet", flag=_SPEC_FLAG),
    "max_model_len_tokens": Absent("SGLang exports it from 0.5.11 on", _SERVER_INFO),
    "max_running_requests": Absent(
        "SGLang no longer exports it; max_running_requests_under_SLO is another thing", _SERVER_INFO
    ),
    "http_requests_total": Absent(
        f"no inference request was answered yet ({_BORN_LATE}), or SGLang before 0.5.7", "the gateway"
    ),
    "process_start_seconds": Absent(
        "SGLang always runs prometheus_client in multiprocess mode, which leaves process_* out", "counters that fell"
    ),
}

_SIGNALS: Final = {**_REQUESTS, **_LATENCY, **_TOKENS, **_CACHE, **_REST}

ENGINE: Final = Engine(
    name="sglang",
    title="SGLang",
    docs="SGLang documentation, Production Metrics",
    prefixes=("sglang:",),
    signals=_SIGNALS,
    absent={**dict.fromkeys(_SIGNALS, _NOT_YET), **_ABSENT},
    names={
        f"sglang:{name}": (since, None if until == "-" else until)
        for since, until, *names in map(str.split, _INVENTORY.strip().splitlines())
        for name in names
    },
    versions=tuple(_VERSIONS.split()),
    # Constants and scheduler totals that are set at start-up: on every page of 0.5.23, the loading
    # ones included; the first two tell a whole page from a cut one.
    markers=(
        "sglang:num_running_reqs",
        "sglang:token_usage",
        'sglang:max_total_num_tokens{model_name!=""}',
        "sglang:page_size",
        "sglang:weight_memory_usage_gb",
        "sglang:scheduler_idle_seconds",
    ),
    model_labels=("model_name", "name"),  # "name" on bodies of late 2024
    sum_labels=("dp_rank",),
    repeat_labels=("tp_rank", "pp_rank", "moe_ep_rank"),  # repeated with --enable-metrics-for-all-schedulers
    total_labels=("priority",),  # with priority scheduling
    info=("sglang:cache_config_info",),
    ignore_labels=("pid",),
    role_label="engine_type",  # unified, prefill or decode
    version_paths=(("/server_info", "version"), ("/get_server_info", "version")),
    tokens_step_at_finish=True,
    finished_counts_aborts=True,
    tpot_skips_single=True,
    generate_handlers=_HANDLERS,
    hints={
        "off": "Metrics are off by default and /metrics answers 404: start SGLang with --enable-metrics.",
        "disagg": "Prefill workers observe neither TTFT nor inter-token latency, and each request is on both pages.",
        "tokens_at_finish": "Token counters step when a request ends, so their rate lags and jumps on long outputs.",
        "streaming": "TTFT of requests without streaming is inflated: use is_streaming=true (0.5.17 on).",
        "early_tpot": "time_per_output_token_seconds (to 0.4.4) mixes running means and prefill: it is not read.",
        "multi_node": "The latency and token series are on the first node only.",
        "slow_scrape": "Scrapes share the API's event loop: no faster than every 5 s on big pages.",
        "late_series": "Series appear at their first event: absent is not zero.",
        "warm_up": "SGLang's own warm-up request is counted: one request before any client came.",
    },
)
