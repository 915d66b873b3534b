"""The llm-d endpoint picker (and the Gateway API inference extension before it) in goodwatch's words.

It picks an engine per request and sees the request's bytes pass through the gateway. Read in the router's source
(2026-08) and in the extension 1.5.0, not on a running server; no version is known for a name. The picker emits the old
and the new names together: one is taken, never both.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

_LENGTH_SUM: Final = "the sum of the length histogram"
_ENDED: Final = "requests whose duration was observed; the request counter moves at their arrival"

_REQUESTS: Final = {
    "requests_running": (
        Source("llm_d_epp_request_running", note="in flight at the picker: waiting ones are in it"),
        Source("inference_objective_running_requests", note="the old name"),
    ),
    "requests_waiting": (
        Source(
            "llm_d_epp_flow_control_queue_size", note="held before any engine: the engines have queues of their own"
        ),
        Source("inference_extension_flow_control_queue_size", note="the old name"),
    ),
    "requests_finished_total": (
        Source("llm_d_epp_request_duration_seconds", "histogram", read="count", note=_ENDED),
        Source("inference_objective_request_duration_seconds", "histogram", read="count", note=_ENDED),
    ),
    "requests_failed_total": (
        Source("llm_d_epp_request_error", "counter"),
        Source("inference_objective_request_error", "counter", note="the old name"),
    ),
    "requests_rejected_total": (
        # Outcomes: Dispatched, Rejected..., Evicted...; an eviction because the client left is no refusal.
        Source(
            "llm_d_epp_flow_control_requests",
            "counter",
            where={"outcome": "Rejected.*|EvictedTTL.*|EvictedShed.*|EvictedOther.*"},
            note="by flow control",
        ),
    ),
    "requests_aborted_total": (
        Source(
            "llm_d_epp_flow_control_requests",
            "counter",
            where={"outcome": "EvictedContextCancel.*"},
            note="while they waited in flow control",
        ),
    ),
}

_LATENCY: Final = {
    "ttft_seconds": (
        Source(
            "llm_d_epp_request_ttft_seconds",
            "histogram",
            part="streaming",
            part_as="is_streaming",
            note="to the first body byte; without streaming it is the whole duration",
        ),
        Source("inference_objective_request_ttft_seconds", "histogram", note="the old name"),
    ),
    "tpot_seconds": (
        Source("llm_d_epp_request_streaming_tpot_seconds", "histogram", note="streamed requests only"),
        Source("inference_objective_request_tpot_seconds", "histogram", note="the old name"),
    ),
    "itl_seconds": (
        Source("llm_d_epp_request_streaming_itl_seconds", "histogram", note="the gap between body chunks, not tokens"),
    ),
    "e2e_seconds": (
        Source("llm_d_epp_request_duration_seconds", "histogram", note="the gateway's clock"),
        Source("inference_objective_request_duration_seconds", "histogram", note="the old name"),
    ),
    "queue_seconds": (
        Source(
            "llm_d_epp_flow_control_request_queue_duration_seconds",
            "histogram",
            note="the part before the engine; the engine's own queue is not in it",
        ),
        Source("inference_extension_flow_control_request_queue_duration_seconds", "histogram", note="the old name"),
    ),
}

_TOKENS: Final = {
    "input_tokens_total": (
        Source("llm_d_epp_request_input_tokens", "histogram", read="sum", note=_LENGTH_SUM),
        Source("inference_objective_input_tokens", "histogram", read="sum", note=_LENGTH_SUM),
    ),
    "output_tokens_total": (
        Source("llm_d_epp_request_output_tokens", "histogram", read="sum", note=_LENGTH_SUM),
        Source("inference_objective_output_tokens", "histogram", read="sum", note=_LENGTH_SUM),
    ),
    "cached_input_tokens_total": (
        Source("llm_d_epp_request_cached_tokens", "histogram", read="sum", note=_LENGTH_SUM),
        Source("inference_objective_prompt_cached_tokens", "histogram", read="sum", note=_LENGTH_SUM),
    ),
    "input_length_tokens": (
        Source("llm_d_epp_request_input_tokens", "histogram"),
        Source("inference_objective_input_tokens", "histogram", note="the old name"),
    ),
    "output_length_tokens": (
        Source("llm_d_epp_request_output_tokens", "histogram", note="the top bound is 8192"),
        Source("inference_objective_output_tokens", "histogram", note="the old name"),
    ),
}

_SIGNALS: Final = {
    **_REQUESTS,
    **_LATENCY,
    **_TOKENS,
    "kv_cache_used_ratio": (
        Source("llm_d_epp_average_kv_cache_utilization", note="mean over the pool's endpoints, each weighing the same"),
        Source("inference_pool_average_kv_cache_utilization", note="the old name"),
    ),
    "process_start_seconds": (Source("process_start_time_seconds"),),
}

_ENGINE: Final = Absent(why="the picker does not see inside the engines", instead="the engines' own pages")
_NONE_YET: Final = Absent(why="no such request yet: the picker creates the series at the first event")
_FLOW_CONTROL: Final = Absent(why="flow control is off, or no request met it yet")

_ABSENT: Final = {
    **dict.fromkeys([*_REQUESTS, *_LATENCY, *_TOKENS], _NONE_YET),
    "requests_waiting": _FLOW_CONTROL,
    "requests_rejected_total": _FLOW_CONTROL,
    "requests_aborted_total": _FLOW_CONTROL,
    "queue_seconds": _FLOW_CONTROL,
    "prefix_cache_hit_ratio": Absent(
        why="prefix_indexer_hit_ratio is the picker's estimate", instead="the counters on the engines' own pages"
    ),
    "http_requests_total": Absent(why="requests_failed_total has the errors by code"),
    "process_start_seconds": Absent(why="this page has no process_ series", instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="llmd_epp",
    title="llm-d endpoint picker",
    docs="llm-d router documentation, Metrics; Gateway API Inference Extension, Metrics",
    prefixes=("llm_d_epp_", "inference_objective_", "inference_pool_", "inference_extension_"),
    role="router",
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _ENGINE), **_ABSENT},
    hints={
        "off": "The picker serves metrics on port 9090; some clusters ask for a token there.",
        "other": "Beyond 1000 model names every further one is folded into other.",
        "names": "Old and new names come together: a sum over both counts twice.",
        "pool": "average_queue_size and average_running_requests are means over endpoints, not sums.",
    },
)
