"""Hugging Face Text Generation Inference in goodwatch's words.

Read in its metrics reference, not on a running server. Durations are seconds without a suffix; series have no model
label; no family's first version is known, so the table has no inventory to tell a version from.
"""

from typing import Final

from goodwatch.core.catalogue import CATALOGUE, OWN
from goodwatch.core.engine import Absent, Engine, Source

_ENGINE_SIGNALS: Final = tuple(n for n, s in CATALOGUE.items() if n not in OWN and s.group != "accelerator")

_AT_FINISH: Final = "the sum of the length histogram, which moves when a request ends"

_SIGNALS: Final = {
    "requests_running": (Source("tgi_batch_current_size", note="requests in the running batch"),),
    "requests_waiting": (Source("tgi_queue_size"),),
    "requests_finished_total": (Source("tgi_request_success", "counter", note="no reason"),),
    "requests_aborted_total": (
        Source("tgi_request_failure", "counter", where={"err": "dropped"}, note="the client went away"),
    ),
    "requests_failed_total": (
        # Every label value but dropped (a client's) and validation and overloaded (refusals).
        Source(
            "tgi_request_failure",
            "counter",
            where={"err": "([^dov].*)?"},
            note="without refusals and clients that went away, where the label err tells them",
        ),
    ),
    "requests_rejected_total": (Source("tgi_request_failure", "counter", where={"err": "overloaded"}),),
    "e2e_seconds": (Source("tgi_request_duration", "histogram", note="seconds, though the name has no unit"),),
    "queue_seconds": (Source("tgi_request_queue_duration", "histogram"),),
    "inference_seconds": (Source("tgi_request_inference_duration", "histogram"),),
    "input_tokens_total": (Source("tgi_request_input_length", "histogram", read="sum", note=_AT_FINISH),),
    "output_tokens_total": (Source("tgi_request_generated_tokens", "histogram", read="sum", note=_AT_FINISH),),
    "input_length_tokens": (Source("tgi_request_input_length", "histogram"),),
    "output_length_tokens": (Source("tgi_request_generated_tokens", "histogram"),),
}

_NO_SOURCE: Final = Absent(why="TGI does not export it", instead="the gateway or traces")
_NO_FAILURE: Final = Absent(why="no such failure yet: TGI creates the series at the first event")

_ABSENT: Final = {
    "ttft_seconds": Absent(
        why="TGI has no histogram of the first token",
        instead='mean only: queue + validation + tgi_batch_forward_duration{method="prefill"}',
    ),
    # Inference time over generated tokens: the prefill is in it, so on short outputs it is far above a TPOT.
    "tpot_seconds": Absent(
        why="tgi_request_mean_time_per_token_duration has the prefill in it: another thing than time per output token",
        instead="that family as an upper bound; the gateway",
    ),
    "itl_seconds": Absent(
        why="TGI has no histogram of token gaps",
        instead='tgi_batch_forward_duration{method="decode"}, per batch and not per request',
    ),
    "prefill_seconds": Absent(
        why="TGI times the prefill per batch", instead='tgi_batch_inference_duration{method="prefill"}'
    ),
    "decode_seconds": Absent(why="TGI times the decode per batch step", instead="inference_seconds, with the prefill"),
    "requests_aborted_total": _NO_FAILURE,
    "requests_failed_total": _NO_FAILURE,
    "requests_rejected_total": _NO_FAILURE,
    "kv_cache_used_ratio": Absent(
        why="TGI exports no KV use", instead="tgi_batch_current_max_tokens against the start-up log's token budget"
    ),
    "max_running_requests": Absent(why="no metric carries it", instead="--max-concurrent-requests"),
    "process_start_seconds": Absent(why="TGI does not export it", instead="counters that fell"),
}

ENGINE: Final = Engine(
    name="tgi",
    title="Text Generation Inference",
    docs="Text Generation Inference documentation, Metrics",
    prefixes=("tgi_",),
    signals=_SIGNALS,
    absent={**dict.fromkeys(_ENGINE_SIGNALS, _NO_SOURCE), **_ABSENT},
    model_labels=(),
    tokens_step_at_finish=True,
    hints={
        "off": "TGI serves metrics on its API port, always.",
        "tpot": "mean_time_per_token_duration has the prefill in it: it is no time per output token.",
        "decode": "tgi_batch_decode_duration is the decoding of token ids to text, not the decode phase.",
        "model": "Its series have no model label: name the service and the model in the target.",
    },
)
