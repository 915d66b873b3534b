"""llama.cpp's server (llama-server) in goodwatch's words.

Read in the server's documentation and on the page of a running server (build 11434). Builds are numbered daily and no
name tells one from another, so the table has no versions. Its series carry no labels at all: model and instance come
from the target.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

_AT_STEPS: Final = "moves when a prompt has been processed"
_AT_FINISH: Final = "moves when a request ends: a long generation shows no tokens until it is done"
_CACHED_NOTE: Final = "builds without prompt_tokens_cached_total count processed tokens only"

_SIGNALS: Final = {
    "requests_running": (Source("llamacpp:requests_processing", note="busy slots"),),
    "requests_waiting": (Source("llamacpp:requests_deferred", note="no slot was free"),),
    "input_tokens_total": (
        # The native counter leaves cached tokens out; ours has them in.
        Source(
            "llamacpp:prompt_tokens",
            "counter",
            plus=("llamacpp:prompt_tokens_cached",),
            note=f"{_AT_STEPS}; {_CACHED_NOTE}",
        ),
    ),
    "output_tokens_total": (Source("llamacpp:tokens_predicted", "counter", note=_AT_FINISH),),
    "cached_input_tokens_total": (Source("llamacpp:prompt_tokens_cached", "counter", note=_AT_STEPS),),
    "kv_cache_used_ratio": (Source("llamacpp:kv_cache_usage_ratio", note="builds before mid 2025"),),
    "prefix_cache_queries_total": (
        Source(
            "llamacpp:prompt_tokens_cached",
            "counter",
            plus=("llamacpp:prompt_tokens",),
            note="every prompt token is looked up",
        ),
    ),
    "prefix_cache_hits_total": (Source("llamacpp:prompt_tokens_cached", "counter", note=_AT_STEPS),),
    "spec_drafts_total": (Source("llamacpp:spec_decode_num_drafts", "counter"),),
    "spec_draft_tokens_total": (
        Source("llamacpp:spec_decode_num_draft_tokens", "counter"),
        Source("llamacpp:spec_decode_num_draft", "counter", note="as the documentation spells it"),
    ),
    "spec_accepted_tokens_total": (
        Source("llamacpp:spec_decode_num_accepted_tokens", "counter"),
        Source("llamacpp:spec_decode_num_accepted", "counter", note="as the documentation spells it"),
    ),
}

_ELSEWHERE: Final = Absent(
    why="llama.cpp's server does not export it", instead="the gateway, or the timings object of each answer"
)
_MEAN_PER_TOKEN: Final = Absent(
    why="llama.cpp's server has no histogram",
    instead="mean only: tokens_predicted_seconds_total over tokens_predicted_total, as increases",
)
_OLD_BUILD: Final = Absent(why="this build does not count cached prompt tokens")
_NO_SPECULATION: Final = Absent(why="this build has no speculative-decoding counters")

_ABSENT: Final = {
    "ttft_seconds": Absent(
        why="llama.cpp's server has no histogram, so no latency quantile",
        instead="the gateway, or prompt_ms in the timings object of each answer",
    ),
    "tpot_seconds": _MEAN_PER_TOKEN,
    "itl_seconds": _MEAN_PER_TOKEN,
    "prefill_seconds": Absent(
        why="llama.cpp's server has no histogram",
        instead="mean per token only: prompt_seconds_total over prompt_tokens_total, as increases",
    ),
    "requests_finished_total": Absent(why="llama.cpp's server counts no requests", instead="the gateway"),
    "cached_input_tokens_total": _OLD_BUILD,
    "prefix_cache_queries_total": _OLD_BUILD,
    "prefix_cache_hits_total": _OLD_BUILD,
    "prefix_cache_hit_ratio": Absent(
        why="llama.cpp's server makes no ratio", instead="prefix_cache_hits_total over prefix_cache_queries_total"
    ),
    "kv_cache_used_ratio": Absent(
        why="llama.cpp's server dropped its KV gauge in mid 2025",
        instead="requests_running over the slots of --parallel, or GET /slots",
    ),
    "max_running_requests": Absent(why="no metric carries it", instead="the value of --parallel, or GET /slots"),
    "max_model_len_tokens": Absent(why="no metric carries it", instead="--ctx-size over --parallel, or GET /props"),
    "realtime_tokens_total": Absent(
        why="n_decode_total counts calls, and a call decodes as many tokens as slots are busy"
    ),
    "spec_drafts_total": _NO_SPECULATION,
    "spec_draft_tokens_total": _NO_SPECULATION,
    "spec_accepted_tokens_total": _NO_SPECULATION,
    "process_start_seconds": Absent(why="llama.cpp's server does not export it", instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="llamacpp",
    title="llama.cpp server",
    docs="llama.cpp, tools/server/README, GET /metrics",
    prefixes=("llamacpp:",),
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _ELSEWHERE), **_ABSENT},
    model_labels=(),
    tokens_step_at_finish=True,
    zeros_from_start=True,
    hints={
        "off": "llama-server serves metrics with --metrics only; without it /metrics answers 501.",
        "loading": "/metrics answers 503 while the model loads.",
        "labels": "Its series have no labels: name the service and the model in the target.",
        "speed": "prompt_tokens_seconds and predicted_tokens_seconds are tokens per second; 0 when idle.",
        "high_water": "n_tokens_max is typed counter but is the longest sequence seen.",
        "restart": "It restarts in a second: a scrape may see no gap, only counters that fell.",
    },
)
