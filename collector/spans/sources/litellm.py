"""The LiteLLM proxy: up to three spans of one request, with usage on one of them. Read in 1.74.0 and 1.110.2.

``Received Proxy Server Request`` is the whole request, ``litellm_request`` (or a name of the caller's) the call of the
model, ``raw_gen_ai_request`` repeats it. By its documentation 1.81 and later put the call's attributes on the first
and leave the second out, so both are read: whoever joins them takes the call's usage where there is one. The v2 logger
names the call ``chat <model>``. Booleans may be the texts "True" and "False", finish reasons a JSON text.
"""

from typing import Final

from collector.spans.sources._http import HTTP_STATUS
from collector.spans.table import CLIENT, Match, Parse, Read, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind, Vantage


def _call(match: Match) -> SpanClass:
    return SpanClass(match, PartKind.GATEWAY_CALL, Vantage.GATEWAY, duration="e2e_s")


TABLE: Final = SpanTable(
    name="litellm",
    docs="LiteLLM 1.74.0 and 1.110.2; docs.litellm.ai, OpenTelemetry",
    order=22,
    borrows=True,
    classes=(
        SpanClass(
            Match(names=("Received Proxy Server Request",)),
            PartKind.GATEWAY_REQUEST,
            Vantage.GATEWAY,
            duration="e2e_s",
        ),
        SpanClass(Match(names=("raw_gen_ai_request",)), dropped="raw"),
        _call(Match(names=("litellm_request",))),
        _call(Match(kind=CLIENT, has=("litellm.call_id",))),
        # Named by the caller, or "<operation> <model>": the tracer's name stays.
        _call(Match(scopes=("litellm",), has=("gen_ai.request.model",))),
    ),
    fields={
        "request_id": keys("gen_ai.request.id", "litellm.call_id"),
        "response_id": keys("gen_ai.response.id", "llm.response.id"),
        "tenant": keys("litellm.team.id"),
        "stream": keys("gen_ai.request.stream", "litellm.request.streaming"),
        "error_type": (Read("error.type"), Read("litellm.provider.error.code", Parse.TEXT_OR_INT)),
        "http_status": HTTP_STATUS,
    },
)
