"""SGLang's router (model gateway) in goodwatch's words: a proxy before SGLang servers, with its own metrics port.

Names from strings of the released binaries, labels from the source of a later commit. Version 0.3.0 renamed
``sgl_router_*`` to ``smg_*``.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

# First version, last version ("-": still there), families; counters without "_total".
_INVENTORY: Final = """
0.1.5   0.2.4   sgl_router_requests sgl_router_request_duration_seconds sgl_router_request_errors
0.1.5   0.2.4   sgl_router_running_requests sgl_router_worker_health sgl_router_pd_requests
0.1.5   0.2.4   sgl_router_pd_prefill_errors sgl_router_pd_decode_errors
0.1.9   0.2.4   sgl_router_retries sgl_router_cb_state
0.3.0   -       smg_http_requests smg_http_responses smg_http_request_duration_seconds smg_http_connections_active
0.3.0   -       smg_http_rate_limit smg_router_requests smg_router_request_duration_seconds
0.3.0   -       smg_router_request_errors smg_router_upstream_responses smg_router_stage_duration_seconds
0.3.0   -       smg_router_ttft_seconds smg_router_tpot_seconds smg_router_generation_duration_seconds
0.3.0   -       smg_router_tokens smg_worker_health smg_worker_requests_active smg_worker_cb_state
0.3.0   -       smg_worker_retries smg_worker_errors
0.3.1   -       smg_http_inflight_request_age_count
"""

_ENDED: Final = "requests whose duration was observed; the requests counter moves at their arrival"

_SIGNALS: Final = {
    "requests_running": (
        Source("smg_worker_requests_active", since="0.3.0", note="requests that workers hold, waiting ones among them"),
        Source("sgl_router_running_requests", until="0.2.4"),
    ),
    "requests_finished_total": (
        Source("smg_router_request_duration_seconds", "histogram", since="0.3.0", read="count", note=_ENDED),
        Source("sgl_router_request_duration_seconds", "histogram", until="0.2.4", read="count", note=_ENDED),
    ),
    "requests_failed_total": (
        Source("smg_router_request_errors", "counter", since="0.3.0"),
        Source("sgl_router_request_errors", "counter", until="0.2.4"),
    ),
    "requests_rejected_total": (
        Source("smg_http_rate_limit", "counter", since="0.3.0", where={"result": "rejected"}),
        Source("smg_http_rate_limit", "counter", since="0.3.0", where={"decision": "rejected"}, note="the later label"),
    ),
    "e2e_seconds": (
        Source("smg_router_request_duration_seconds", "histogram", since="0.3.0", note="the router's clock"),
        Source("sgl_router_request_duration_seconds", "histogram", until="0.2.4", note="the router's clock"),
    ),
    "input_tokens_total": (
        Source("smg_router_tokens", "counter", since="0.3.0", where={"token_type": "input"}, note="gRPC mode only"),
    ),
    "output_tokens_total": (
        Source("smg_router_tokens", "counter", since="0.3.0", where={"token_type": "output"}, note="gRPC mode only"),
    ),
}

_ENGINE: Final = Absent(why="the router does not see inside the engines", instead="the engines' own pages")
_SUMMARY: Final = Absent(
    why="the router exports it as quantiles, which cannot be merged or held against a target, and in gRPC mode only",
    instead="the engines' own pages",
)
_GRPC: Final = Absent(why="the router counts tokens in gRPC mode only", instead="the engines' own pages")
_NONE_YET: Final = Absent(why="no such request yet: the router creates the series at the first event")

_ABSENT: Final = {
    **dict.fromkeys(
        (
            "requests_running",
            "requests_finished_total",
            "requests_failed_total",
            "requests_rejected_total",
            "e2e_seconds",
        ),
        _NONE_YET,
    ),
    "ttft_seconds": _SUMMARY,
    "tpot_seconds": _SUMMARY,
    "input_tokens_total": _GRPC,
    "output_tokens_total": _GRPC,
    "http_requests_total": Absent(
        why="smg_http_responses_total names no path, so health checks are among the answers",
        instead="requests_finished_total and requests_failed_total",
    ),
    "process_start_seconds": Absent(why="the router does not export it", instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="sglang_router",
    title="SGLang router",
    docs="SGLang documentation, Model Gateway, Metrics",
    prefixes=("smg_", "sgl_router_"),
    role="router",
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _ENGINE), **_ABSENT},
    names={
        name: (since, None if until == "-" else until)
        for since, until, *names in map(str.split, _INVENTORY.strip().splitlines())
        for name in names
    },
    versions=("0.1.5", "0.1.9", "0.2.0", "0.2.1", "0.2.2", "0.2.3", "0.2.4", "0.3.0", "0.3.1", "0.3.2"),
    model_labels=("model",),
    hints={
        "off": "The router serves metrics on a port of its own, 29000 by default (--prometheus-port).",
        "rename": "0.3.0 renamed sgl_router_ to smg_: boards and rules on the old names show nothing.",
        "grpc": "TTFT, TPOT and tokens are there in gRPC mode only.",
        "twice": "The router and the engines behind it each count a request: sum one of them.",
    },
)
