"""NVIDIA Dynamo 1.x: the frontend's HTTP request, and the worker around one engine. Bare keys, times in milliseconds.

``engine.generate`` is the framework's clock beside the engine's, so its kind tells the two apart.
"""

from typing import Final

from collector.spans.sources._http import HTTP_STATUS
from collector.spans.table import Match, Read, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind, Vantage

_MS: Final = 1e-3

TABLE: Final = SpanTable(
    name="dynamo",
    docs="Dynamo 1.x, dynamo#9543",
    order=20,
    classes=(
        SpanClass(Match(names=("http-request",)), PartKind.GATEWAY_REQUEST, Vantage.GATEWAY, duration="e2e_s"),
        SpanClass(Match(names=("engine.generate",)), PartKind.WORKER_REQUEST, duration="e2e_s"),
        SpanClass(Match(names=("router.route_request", "handle_payload")), dropped="framework"),
    ),
    fields={
        "request_id": keys("x_request_id"),
        "model": keys("model"),
        "input_tokens": keys("input_tokens"),
        "output_tokens": keys("output_tokens"),
        "ttft_s": (Read("ttft_ms", unit_s=_MS),),
        "finish_reason": keys("finish_reason"),
        "role": keys("disagg_role"),
        "http_status": HTTP_STATUS,
        "error_type": keys("error.type"),
    },
)
