"""NVIDIA Dynamo's frontend in goodwatch's words: an HTTP router that sees whole requests, before any worker.

Read in the released packages of the versions in ``ENGINE.versions``; the prefix can be set by environment, and then
the engine must be set on the target. Bounds are log series from 0, set by environment too.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

# First version, last version ("-": still there), families without "dynamo_frontend_" and counters without "_total".
_INVENTORY: Final = """
0.6.1   -   requests inflight_requests queued_requests disconnected_clients request_duration_seconds
0.6.1   -   time_to_first_token_seconds inter_token_latency_seconds input_sequence_tokens output_sequence_tokens
0.6.1   -   model_total_kv_blocks model_kv_cache_block_size model_max_num_seqs model_max_num_batched_tokens
0.6.1   -   model_context_length
0.7.1   -   output_tokens
0.8.1   -   model_migration cached_tokens
1.0.2   -   kv_hit_rate tokenizer_latency_ms worker_last_time_to_first_token_seconds
1.0.2   -   worker_last_inter_token_latency_seconds worker_active_decode_blocks
1.2.1   -   active_requests model_cancellation model_rejection router_queue_pending_requests
1.4.2   -   requests_started
1.6.1   -   model_ready
"""

_LENGTH_SUM: Final = "the sum of the length histogram"
_QUEUED: Final = "dynamo_frontend_queued_requests"

_SIGNALS: Final = {
    "requests_running": (
        Source("dynamo_frontend_active_requests", since="1.2.1", minus=(_QUEUED,), derived=True),
        Source("dynamo_frontend_inflight_requests", minus=(_QUEUED,), derived=True, note="the same under its old name"),
    ),
    "requests_waiting": (Source(_QUEUED, note="until the first token: requests in prefill are in it"),),
    "requests_finished_total": (
        # The parts success and error, under the name that other engines give to the reason of an end.
        Source(
            "dynamo_frontend_requests", "counter", part="status", part_as="finished_reason", note="cancels are errors"
        ),
    ),
    "requests_aborted_total": (
        Source("dynamo_frontend_model_cancellation", "counter", since="1.2.1"),
        Source("dynamo_frontend_disconnected_clients", note="a gauge that holds a total; no model"),
    ),
    "requests_failed_total": (
        Source("dynamo_frontend_requests", "counter", where={"status": "error"}, note="cancels are errors"),
    ),
    "requests_rejected_total": (Source("dynamo_frontend_model_rejection", "counter", since="1.2.1"),),
    "ttft_seconds": (Source("dynamo_frontend_time_to_first_token_seconds", "histogram"),),
    "itl_seconds": (
        Source("dynamo_frontend_inter_token_latency_seconds", "histogram", note="the top bound is 2 s by default"),
    ),
    "e2e_seconds": (
        Source(
            "dynamo_frontend_request_duration_seconds",
            "histogram",
            note="the bounds begin at 1 or 2 s by default: set the environment override",
        ),
    ),
    "input_tokens_total": (Source("dynamo_frontend_input_sequence_tokens", "histogram", read="sum", note=_LENGTH_SUM),),
    "output_tokens_total": (
        Source("dynamo_frontend_output_tokens", "counter", since="0.7.1"),
        Source("dynamo_frontend_output_sequence_tokens", "histogram", read="sum", note=_LENGTH_SUM),
    ),
    "cached_input_tokens_total": (
        Source("dynamo_frontend_cached_tokens", "histogram", since="0.8.1", read="sum", note=_LENGTH_SUM),
    ),
    "input_length_tokens": (Source("dynamo_frontend_input_sequence_tokens", "histogram"),),
    "output_length_tokens": (Source("dynamo_frontend_output_sequence_tokens", "histogram"),),
    "kv_cache_capacity_tokens": (
        Source(
            "dynamo_frontend_model_total_kv_blocks",
            times=("dynamo_frontend_model_kv_cache_block_size",),
            derived=True,
            note="of one worker, as it registered",
        ),
    ),
    "kv_block_size_tokens": (Source("dynamo_frontend_model_kv_cache_block_size"),),
    "kv_blocks": (Source("dynamo_frontend_model_total_kv_blocks", note="of one worker, as it registered"),),
    "max_model_len_tokens": (Source("dynamo_frontend_model_context_length"),),
    "max_running_requests": (Source("dynamo_frontend_model_max_num_seqs", note="of one worker, as it registered"),),
}

_WORKER: Final = Absent(
    why="the frontend does not see inside the engines", instead="the engine's metrics on the worker's system port"
)

_ABSENT: Final = {
    "requests_failed_total": Absent(why="no request failed yet"),
    "requests_rejected_total": Absent(why="Dynamo counts refused requests from 1.2.1 on"),
    "cached_input_tokens_total": Absent(why="Dynamo counts cached prompt tokens from 0.8.1 on"),
    "tpot_seconds": Absent(
        why="Dynamo has no time per output token of a request", instead="mean of itl_seconds; no distribution"
    ),
    "prefix_cache_hit_ratio": Absent(
        why="kv_hit_rate is the router's estimate per request", instead="the engine's counters on the worker's port"
    ),
    "http_requests_total": Absent(why="requests_finished_total has the outcomes"),
    "process_start_seconds": Absent(why="Dynamo's frontend does not export it", instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="dynamo_frontend",
    title="Dynamo frontend",
    docs="NVIDIA Dynamo documentation, Metrics; lib/llm/src/http/service/metrics.rs",
    prefixes=("dynamo_frontend_",),
    role="router",
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _WORKER), **_ABSENT},
    names={
        f"dynamo_frontend_{name}": (since, None if until == "-" else until)
        for since, until, *names in map(str.split, _INVENTORY.strip().splitlines())
        for name in names
    },
    versions=("0.6.1", "0.7.1", "0.8.1", "0.9.1", "1.0.2", "1.2.1", "1.4.2", "1.6.1"),
    model_labels=("model",),
    hints={
        "off": "The frontend serves metrics on its HTTP port; a worker on its system port, when that is enabled.",
        "bounds": "Duration bounds begin above 1 s by default: interactive targets need the environment override.",
        "queued": "queued_requests counts until the first token, so a request in prefill counts as waiting.",
        "twins": "inflight_requests and active_requests are one thing under two names: never add them.",
    },
)
