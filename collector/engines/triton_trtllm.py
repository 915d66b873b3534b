"""Triton's metrics with the TensorRT-LLM backend behind it, in goodwatch's words.

``nv_trt_llm_*`` and ``nv_llm_*`` come from the backend, ``nv_inference_*`` from Triton itself. One family holds many
things, told apart by a label. Read in source files and documentation, not on a running server; no family's first
version is known, so the table has no inventory to tell a version from.
"""

from typing import Final

from goodwatch.core.engine import Absent, Engine, Source

_REQUEST_METRICS: Final = "nv_trt_llm_request_metrics"
_BLOCK_METRICS: Final = "nv_trt_llm_kv_cache_block_metrics"

_NO_LATENCY: Final = "Triton and its TensorRT-LLM backend have no histogram of this time"
_ELSEWHERE: Final = "traces or the gateway"
_NO_SOURCE: Final = "neither Triton nor its TensorRT-LLM backend exports it"
_NO_REASON: Final = Absent(
    why="this Triton puts no reason on its failures", instead="requests_failed_total, all in one"
)
_NO_MODEL: Final = Absent(why="no model is loaded, or Triton runs with --allow-metrics=false")
_NO_BACKEND: Final = Absent(
    why="the TensorRT-LLM backend is older than Triton 23.11, or its metrics are off",
    instead="nothing on this page",
)
_FINISHED_NOTE: Final = "an ensemble and each of its members count: look at one model, not at their sum"
_LENGTH_NOTE: Final = "the highest bound is 1000 tokens"

_SIGNALS: Final = {
    "requests_running": (
        Source(_REQUEST_METRICS, where={"request_type": "scheduled"}, note="scheduled for the batch"),
    ),
    "requests_waiting": (
        Source(_REQUEST_METRICS, where={"request_type": "waiting"}),
        Source("nv_inference_pending_request_count", note="Triton's own queue, before the backend"),
    ),
    "requests_paused": (
        Source("nv_trt_llm_inflight_batcher_metrics", where={"inflight_batcher_specific_metric": "paused_requests"}),
    ),
    "requests_finished_total": (
        Source("nv_inference_request_success", "counter", note=f"no reason; {_FINISHED_NOTE}"),
    ),
    "requests_aborted_total": (
        Source("nv_inference_request_failure", "counter", where={"reason": "CANCELED"}, note=_FINISHED_NOTE),
    ),
    # Older versions have no reason label: their failures are all of one kind.
    "requests_failed_total": (
        Source(
            "nv_inference_request_failure",
            "counter",
            where={"reason": "(BACKEND|OTHER)?"},
            note=f"without cancels and refusals, where the reason tells them; {_FINISHED_NOTE}",
        ),
    ),
    "requests_rejected_total": (
        Source("nv_inference_request_failure", "counter", where={"reason": "REJECTED"}, note=_FINISHED_NOTE),
    ),
    "ttft_seconds": (
        Source(
            "nv_inference_first_response_histogram_ms",
            "histogram",
            scale=0.001,
            note="arrival to the first response, a chunk; the whole request when it is not streamed",
        ),
    ),
    "input_tokens_total": (
        Source("nv_llm_input_token_len", "histogram", read="sum", note="the sum of the length histogram"),
    ),
    "output_tokens_total": (
        Source("nv_llm_output_token_len", "histogram", read="sum", note="the sum of the length histogram"),
    ),
    "input_length_tokens": (Source("nv_llm_input_token_len", "histogram", note=_LENGTH_NOTE),),
    "output_length_tokens": (Source("nv_llm_output_token_len", "histogram", note=_LENGTH_NOTE),),
    "kv_cache_used_ratio": (
        Source(_BLOCK_METRICS, where={"kv_cache_block_type": "fraction"}, note="used over maximum blocks"),
        Source(
            _BLOCK_METRICS,
            where={"kv_cache_block_type": "used"},
            over=(f'{_BLOCK_METRICS}{{kv_cache_block_type="max"}}',),
            derived=True,
        ),
    ),
    "kv_cache_capacity_tokens": (
        Source(
            _BLOCK_METRICS,
            where={"kv_cache_block_type": "max"},
            times=(f'{_BLOCK_METRICS}{{kv_cache_block_type="tokens_per"}}',),
            derived=True,
        ),
    ),
    "kv_block_size_tokens": (Source(_BLOCK_METRICS, where={"kv_cache_block_type": "tokens_per"}),),
    "kv_blocks": (Source(_BLOCK_METRICS, where={"kv_cache_block_type": "max"}),),
    "max_running_requests": (Source(_REQUEST_METRICS, where={"request_type": "max"}),),
}

_ABSENT: Final = {
    "requests_swapped": Absent(why="TensorRT-LLM has no such count", instead="requests_paused"),
    "requests_paused": Absent(why="only the in-flight batcher pauses requests; the static batcher does not"),
    "requests_in_flight": Absent(why=_NO_SOURCE, instead="requests_running plus requests_waiting"),
    "requests_waiting_by_reason": Absent(why=_NO_SOURCE),
    "requests_aborted_total": _NO_REASON,
    "requests_finished_total": _NO_MODEL,
    "requests_failed_total": _NO_MODEL,
    "requests_rejected_total": _NO_REASON,
    "ttft_seconds": Absent(
        why="Triton observes the first response only of decoupled models and only when asked to",
        instead=_ELSEWHERE,
        flag="--metrics-config histogram_latencies=true",
    ),
    "tpot_seconds": Absent(why=_NO_LATENCY, instead=_ELSEWHERE),
    "itl_seconds": Absent(why=_NO_LATENCY, instead=_ELSEWHERE),
    "e2e_seconds": Absent(
        why=_NO_LATENCY,
        instead="mean only: nv_inference_request_duration_us over nv_inference_request_success",
    ),
    "queue_seconds": Absent(
        why=_NO_LATENCY,
        instead="mean only: nv_inference_queue_duration_us over success, without the backend's own queue",
    ),
    "prefill_seconds": Absent(why=_NO_LATENCY),
    "decode_seconds": Absent(why=_NO_LATENCY),
    "inference_seconds": Absent(
        why=_NO_LATENCY,
        instead="mean only: nv_inference_compute_infer_duration_us over nv_inference_request_success",
    ),
    "queue_mean_seconds": Absent(
        why="Triton exports the sum of the queue time, no mean",
        instead="nv_inference_queue_duration_us over nv_inference_request_success, as increases",
    ),
    "cached_input_tokens_total": Absent(
        why=_NO_SOURCE,
        instead="reused blocks as a level: nv_trt_llm_kv_cache_block_metrics, type reused",
    ),
    "realtime_tokens_total": Absent(why=_NO_SOURCE, instead="output_tokens_total, which moves at finish"),
    "prefix_cache_queries_total": Absent(why=_NO_SOURCE),
    "prefix_cache_hits_total": Absent(why=_NO_SOURCE),
    "prefix_cache_hit_ratio": Absent(why=_NO_SOURCE),
    "preemptions_total": Absent(why=_NO_SOURCE, instead="requests_paused above 0"),
    "spec_drafts_total": Absent(why=_NO_SOURCE),
    "spec_draft_tokens_total": Absent(why=_NO_SOURCE),
    "spec_accepted_tokens_total": Absent(why=_NO_SOURCE),
    "spec_accept_length": Absent(why=_NO_SOURCE),
    "max_model_len_tokens": Absent(why=_NO_SOURCE, instead="the model's config.pbtxt"),
    "http_requests_total": Absent(why="Triton counts inferences, not HTTP requests", instead="requests_finished_total"),
    "process_start_seconds": Absent(why=_NO_SOURCE, instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="triton_trtllm",
    title="Triton with TensorRT-LLM",
    docs="Triton Inference Server documentation, Metrics; TensorRT-LLM backend, Triton Metrics",
    # nv_inference_ is on the page of any Triton, whatever the backend: it identifies nothing.
    prefixes=("nv_trt_llm_", "nv_llm_"),
    signals=_SIGNALS,
    absent={**dict.fromkeys(_SIGNALS, _NO_BACKEND), **_ABSENT},
    model_labels=("model",),
    sum_labels=("version",),  # versions of one model that are served together
    tokens_step_at_finish=True,
    hints={
        "off": "Triton serves metrics on port 8002 unless it runs with --allow-metrics=false.",
        "ensemble": "An ensemble and its members each count a request: look at the model tensorrt_llm alone.",
        "tokens_at_finish": "Token sums step when a request ends, so their rate lags and jumps on long outputs.",
        "lengths": "Length histograms end at 1000 tokens: longer prompts are all beyond the last bound.",
        "failures": "A request that fails before it reaches a model counts as no failure.",
        "latency": "Latencies are cumulative microseconds per model: means only.",
    },
)
