"""The LiteLLM proxy in goodwatch's words: a gateway before any number of engines and providers.

Read in the released package 1.110.2, not on a running server. Any label can be filtered away in its settings, so
nothing relies on one being there; bounds can be set too. Users, keys and teams are labels: their series add up.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

_REQUESTS_FAMILY: Final = "litellm_proxy_total_requests_metric"

_SIGNALS: Final = {
    "requests_in_flight": (Source("litellm_in_flight_requests", note="newer versions"),),
    "requests_finished_total": (
        Source(
            _REQUESTS_FAMILY,
            "counter",
            where={"status_code": r"(2\d\d)?"},
            note="answered 2xx; all requests where the label status_code is filtered away",
        ),
    ),
    "requests_failed_total": (
        Source("litellm_proxy_failed_requests_metric", "counter", note="by exception; bad requests are among them"),
    ),
    "requests_rejected_total": (
        Source("litellm_proxy_failed_requests_metric", "counter", where={"exception_status": "429"}),
    ),
    "ttft_seconds": (
        Source(
            "litellm_llm_api_time_to_first_token_metric",
            "histogram",
            note="streamed requests only; its clock starts at the call of the provider",
        ),
    ),
    "e2e_seconds": (
        Source("litellm_request_total_latency_metric", "histogram", note="the proxy's clock, its overhead included"),
    ),
    "queue_seconds": (
        Source("litellm_request_queue_time_seconds", "histogram", note="inside the proxy, not the engine's queue"),
    ),
    "input_tokens_total": (Source("litellm_input_tokens_metric", "counter"),),
    "output_tokens_total": (Source("litellm_output_tokens_metric", "counter"),),
    "cached_input_tokens_total": (
        Source("litellm_input_cached_tokens_metric", "counter", note="where the backend reports it"),
    ),
    "http_requests_total": (Source(_REQUESTS_FAMILY, "counter", part="status_code", part_as="status"),),
    "process_start_seconds": (Source("process_start_time_seconds"),),
}

_ENGINE: Final = Absent(why="the proxy does not see inside the engines", instead="the engines' own pages")
_NONE_YET: Final = Absent(why="no such request yet, or the metric is switched off in prometheus_metrics_config")

_ABSENT: Final = {
    **dict.fromkeys(_SIGNALS, _NONE_YET),
    "requests_in_flight": Absent(why="this version has no gauge of open requests"),
    "tpot_seconds": Absent(
        why="litellm_deployment_latency_per_output_token is TTFT over tokens when streaming: no time per output token",
        instead="the engines' own pages",
    ),
    "prefix_cache_hit_ratio": Absent(
        why="litellm_cache_hits_metric counts the proxy's cache of whole answers", instead="the engines' own pages"
    ),
    "process_start_seconds": Absent(why="several worker processes leave process_ out", instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="litellm",
    title="LiteLLM proxy",
    docs="LiteLLM documentation, Prometheus metrics",
    prefixes=("litellm_",),
    role="gateway",
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _ENGINE), **_ABSENT},
    model_labels=("model", "requested_model", "model_group"),
    ttft_streamed_only=True,
    metrics_paths=("/metrics", "/metrics/"),
    tokens_step_at_finish=True,
    hints={
        "off": "The proxy serves metrics with callbacks: [prometheus]; /metrics redirects to /metrics/.",
        "tpot": "latency_per_output_token is TTFT over tokens when streaming: it is no TPOT.",
        "cache": "cache_hits_metric counts the proxy's cache of whole answers, not the prefix cache.",
        "labels": "Series carry users, keys and teams: keep the labels few in prometheus_metrics_config.",
    },
)
