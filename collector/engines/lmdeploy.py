"""LMDeploy's metrics in goodwatch's words. They follow vLLM's names closely and differ where it matters.

Read in the released packages of the versions in ``ENGINE.versions`` (0.9 has no metrics); no server was recorded.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

# First version, last version ("-": still there), families without "lmdeploy:" and counters without "_total".
_INVENTORY: Final = """
0.10.0  0.12.0  num_requests_finished num_requests_unfinished
0.10.0  -       num_requests_running num_requests_waiting gpu_cache_usage_perc prompt_tokens generation_tokens
0.10.0  -       request_success iteration_tokens request_prompt_tokens request_generation_tokens
0.10.0  -       time_to_first_token_seconds time_per_output_token_seconds iter_token_latency
0.10.0  -       e2e_request_latency_seconds request_queue_time_seconds request_inference_time_seconds
0.10.0  -       request_prefill_time_seconds request_decode_time_seconds backend_config_info
0.15.0  -       num_requests_succeeded num_requests_failed num_api_requests_routed num_api_requests_waiting
0.15.0  -       prefix_cache_hit_rate cached_tokens request_cached_tokens request_cache_hit_ratio
0.15.0  -       spec_decode_num_drafts spec_decode_num_draft_tokens spec_decode_num_accepted_tokens
0.15.0  -       spec_decode_num_accepted_tokens_per_pos spec_decode_mean_accept_rate spec_decode_mean_accept_length
0.15.0  -       spec_decode_per_position_accept_rate
"""

_HELD_TOTAL: Final = "a gauge that holds a total"
_REASONS: Final = "the reasons are LMDeploy's own names of response types"

_SIGNALS: Final = {
    "requests_running": (Source("lmdeploy:num_requests_running"),),
    "requests_waiting": (
        Source(
            "lmdeploy:num_requests_waiting",
            plus=("lmdeploy:num_api_requests_waiting",),
            note="with those that wait for a free request handle in the API server, from 0.15.0",
        ),
    ),
    "requests_finished_total": (
        # First, since failed requests are counted apart from it: request_success holds those too, under its own names.
        Source("lmdeploy:num_requests_succeeded", since="0.15.0", note=_HELD_TOTAL),
        Source("lmdeploy:request_success", "counter", part="finished_reason", note=_REASONS),
        Source("lmdeploy:num_requests_finished", until="0.12.0", note=_HELD_TOTAL),
    ),
    "requests_aborted_total": (
        Source(
            "lmdeploy:request_success", "counter", where={"finished_reason": "(?i).*(cancel|abort).*"}, note=_REASONS
        ),
    ),
    "requests_failed_total": (Source("lmdeploy:num_requests_failed", since="0.15.0", note=_HELD_TOTAL),),
    "ttft_seconds": (Source("lmdeploy:time_to_first_token_seconds", "histogram"),),
    "tpot_seconds": (Source("lmdeploy:time_per_output_token_seconds", "histogram"),),
    "itl_seconds": (Source("lmdeploy:iter_token_latency", "histogram", note="seconds, though the name has no unit"),),
    "e2e_seconds": (Source("lmdeploy:e2e_request_latency_seconds", "histogram"),),
    "queue_seconds": (Source("lmdeploy:request_queue_time_seconds", "histogram", note="the lowest bound is 0.3 s"),),
    "prefill_seconds": (Source("lmdeploy:request_prefill_time_seconds", "histogram"),),
    "decode_seconds": (Source("lmdeploy:request_decode_time_seconds", "histogram"),),
    "inference_seconds": (Source("lmdeploy:request_inference_time_seconds", "histogram"),),
    "input_tokens_total": (Source("lmdeploy:prompt_tokens", "counter"),),
    "output_tokens_total": (Source("lmdeploy:generation_tokens", "counter"),),
    "cached_input_tokens_total": (Source("lmdeploy:cached_tokens", "counter", since="0.15.0"),),
    "input_length_tokens": (Source("lmdeploy:request_prompt_tokens", "histogram"),),
    "output_length_tokens": (Source("lmdeploy:request_generation_tokens", "histogram"),),
    "kv_cache_used_ratio": (Source("lmdeploy:gpu_cache_usage_perc", note="a ratio 0..1 in spite of its name"),),
    "prefix_cache_queries_total": (
        Source(
            "lmdeploy:prompt_tokens",
            "counter",
            derived=True,
            note="every prompt token is looked up: prompt tokens are the denominator of the cached ones",
        ),
    ),
    "prefix_cache_hits_total": (Source("lmdeploy:cached_tokens", "counter", since="0.15.0"),),
    "prefix_cache_hit_ratio": (Source("lmdeploy:prefix_cache_hit_rate", since="0.15.0"),),
    "spec_drafts_total": (Source("lmdeploy:spec_decode_num_drafts", "counter", since="0.15.0"),),
    "spec_draft_tokens_total": (Source("lmdeploy:spec_decode_num_draft_tokens", "counter", since="0.15.0"),),
    "spec_accepted_tokens_total": (Source("lmdeploy:spec_decode_num_accepted_tokens", "counter", since="0.15.0"),),
    "spec_accept_length": (
        Source("lmdeploy:spec_decode_mean_accept_length", since="0.15.0", note="0 when the feature is off"),
    ),
    "process_start_seconds": (Source("process_start_time_seconds"),),
}

_NO_SOURCE: Final = Absent(why="LMDeploy does not export it")
_SINCE_0_15: Final = Absent(why="LMDeploy counts it from 0.15.0 on")
_SPECULATION: Final = Absent(why="LMDeploy has speculative-decoding series from 0.15.0 on, while the feature is on")

_ABSENT: Final = {
    "requests_aborted_total": Absent(why="no request was cancelled yet, or the reasons have other names"),
    "requests_failed_total": _SINCE_0_15,
    "requests_rejected_total": Absent(why="LMDeploy does not export it", instead="the gateway"),
    "cached_input_tokens_total": _SINCE_0_15,
    "prefix_cache_hits_total": _SINCE_0_15,
    "prefix_cache_hit_ratio": _SINCE_0_15,
    "preemptions_total": Absent(why="LMDeploy counts no evictions", instead="requests_waiting and kv_cache_used_ratio"),
    "kv_cache_capacity_tokens": Absent(why="LMDeploy exports no size of its pool", instead="the start-up log"),
    "spec_drafts_total": _SPECULATION,
    "spec_draft_tokens_total": _SPECULATION,
    "spec_accepted_tokens_total": _SPECULATION,
    "spec_accept_length": _SPECULATION,
    "http_requests_total": Absent(why="LMDeploy has no HTTP counters", instead="the gateway"),
    "process_start_seconds": Absent(why="this page has no process_ series", instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="lmdeploy",
    title="LMDeploy",
    docs="LMDeploy documentation, Production Metrics; lmdeploy/metrics/loggers.py",
    prefixes=("lmdeploy:",),
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _NO_SOURCE), **_ABSENT},
    names={
        f"lmdeploy:{name}": (since, None if until == "-" else until)
        for since, until, *names in map(str.split, _INVENTORY.strip().splitlines())
        for name in names
    },
    versions=("0.10.0", "0.12.0", "0.15.0", "0.18.0"),
    markers=("lmdeploy:time_to_first_token_seconds", "lmdeploy:num_api_requests_waiting"),
    sum_labels=("engine",),
    info=("lmdeploy:backend_config_info",),
    finished_counts_aborts=True,  # its reasons hold the cancelled ones; whether E2E does was not read: the wider bound
    hints={
        "off": "Metrics are on with --enable-metrics; the default differs by version.",
        "reasons": "Finish reasons are names of response types, not stop or length.",
        "gauges": "num_requests_succeeded and num_requests_failed are gauges that hold totals.",
        "iteration": "iteration_tokens_total is a histogram in spite of its name.",
        "double": "Some early builds count each generated token twice: compare with the output lengths.",
    },
)
