"""NVIDIA Dynamo's worker process in goodwatch's words: what its runtime counts around one engine.

A worker's system port also passes its engine's own metrics through, with labels added; where those are there the page
is read as the engine's. This table is for a page that has only the runtime's. Names from the released packages.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

# Other endpoints of a component (clear_kv_blocks, load metrics, find_worker) are no inference requests.
_GENERATE: Final = {"dynamo_endpoint": "(generate)?"}
_LEG: Final = "a prefill and a decode worker each count a request"

_SIGNALS: Final = {
    "requests_running": (Source("dynamo_component_inflight_requests", where=_GENERATE, note="waiting ones are in it"),),
    "requests_finished_total": (
        Source("dynamo_component_request_duration_seconds", "histogram", where=_GENERATE, read="count", note=_LEG),
        Source("dynamo_component_requests", "counter", where=_GENERATE, note=_LEG),
    ),
    "requests_failed_total": (Source("dynamo_component_errors", "counter", where=_GENERATE),),
    "e2e_seconds": (
        Source(
            "dynamo_component_request_duration_seconds",
            "histogram",
            where=_GENERATE,
            note=f"inside the worker: without the frontend and the network; {_LEG}",
        ),
    ),
}

_PASSED: Final = Absent(
    why="Dynamo's runtime does not see inside the engine",
    instead="the engine's own metrics, which the worker's system port passes through when the engine serves them",
)
_NO_REQUEST: Final = Absent(why="this component has no generate endpoint, or had no request yet")

_ABSENT: Final = {
    **dict.fromkeys(("requests_running", "requests_finished_total", "e2e_seconds"), _NO_REQUEST),
    "requests_failed_total": Absent(why="no request failed yet"),
    "kv_cache_used_ratio": Absent(
        why="gpu_cache_usage_percent is not read: whether it is a ratio or per cent is not known",
        instead="the engine's own gauge",
    ),
    "http_requests_total": Absent(why="workers are not reached by HTTP", instead="the frontend"),
    "process_start_seconds": Absent(
        why="Dynamo's runtime has an uptime instead", instead="dynamo_component_uptime_seconds"
    ),
}

ENGINE: Final = Engine(
    name="dynamo_worker",
    title="Dynamo worker",
    docs="NVIDIA Dynamo documentation, Metrics; lib/runtime/src/metrics/prometheus_names.rs",
    prefixes=("dynamo_component_",),
    role="worker",
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _PASSED), **_ABSENT},
    model_labels=("model",),
    role_label="dynamo_component",
    hints={
        "off": "A worker's system port is off by default: set DYN_SYSTEM_PORT.",
        "twice": "The engine's own port and the worker's port show the same series: scrape one of them.",
        "legs": "With prefill and decode apart each request is on both: count prompts on prefill, ends on decode.",
    },
)
