"""The vLLM router (the Rust proxy) in goodwatch's words.

Names from strings of the released binary 0.1.17, labels not verified: only what needs no label is read. It is another
program than the production-stack router, which re-exports engine names under ``vllm:``.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

_SIGNALS: Final = {
    "requests_running": (Source("vllm_router_running_requests", note="requests that workers hold"),),
    "requests_finished_total": (
        Source(
            "vllm_router_request_duration_seconds",
            "histogram",
            read="count",
            note="requests whose duration was observed",
        ),
    ),
    "requests_failed_total": (Source("vllm_router_request_errors", "counter"),),
    "e2e_seconds": (Source("vllm_router_request_duration_seconds", "histogram", note="the router's clock"),),
    "queue_seconds": (
        Source(
            "vllm_router_agent_aware_queue_wait_seconds", "histogram", note="the router's own queue, not the engine's"
        ),
    ),
}

_ENGINE: Final = Absent(why="the router does not see inside the engines", instead="the engines' own pages")
_NONE_YET: Final = Absent(why="no such request yet: the router creates the series at the first event")

_ABSENT: Final = {
    **dict.fromkeys(("requests_running", "requests_finished_total", "requests_failed_total", "e2e_seconds"), _NONE_YET),
    "queue_seconds": Absent(why="only the agent-aware policy queues in the router", instead="the engines' own pages"),
    "process_start_seconds": Absent(why="the router does not export it", instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="vllm_router",
    title="vLLM router",
    docs="vLLM router, README, Metrics",
    prefixes=("vllm_router_",),
    role="router",
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _ENGINE), **_ABSENT},
    model_labels=("model",),
    hints={
        "off": "The router serves metrics on a port of its own, 29000 by default (--prometheus-port).",
        "twice": "The router and the engines behind it each count a request: sum one of them.",
    },
)
