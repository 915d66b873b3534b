"""The OpenTelemetry GenAI conventions, 1.26 to 1.41 and main: an application SDK's call of a model.

Cached and cache-written tokens are inside the input, reasoning tokens inside the output. ``time_to_first_chunk`` is the
client's clock and counts a chunk that may be empty. Both generations of keys are expected for years.
"""

from typing import Final

from collector.spans.sources._http import HTTP_STATUS
from collector.spans.table import Match, Parse, Read, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind, Vantage

_CALLS: Final = ("chat", "text_completion", "generate_content", "embeddings")
_CONTAINERS: Final = (
    "invoke_agent", "create_agent", "execute_tool", "invoke_workflow", "plan", "retrieval",
)  # fmt: skip

TABLE: Final = SpanTable(
    name="otel_genai",
    docs="OpenTelemetry semantic conventions v1.41.0 and semantic-conventions-genai",
    order=31,
    shares=True,
    borrows=True,
    classes=(
        SpanClass(
            Match(one_of=("gen_ai.operation.name", _CALLS)),
            PartKind.CLIENT_CALL,
            Vantage.CLIENT,
            duration="e2e_s",
            zero_tokens_unknown=True,
        ),
        SpanClass(Match(one_of=("gen_ai.operation.name", _CONTAINERS)), dropped="container", late=True),
    ),
    fields={
        "response_id": keys("gen_ai.response.id"),
        "model": keys("gen_ai.response.model", "gen_ai.request.model"),
        "operation": keys("gen_ai.operation.name"),
        "input_tokens": keys("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "cached_tokens": keys("gen_ai.usage.cache_read.input_tokens"),
        "output_tokens": keys("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "reasoning_tokens": keys("gen_ai.usage.reasoning.output_tokens"),
        "max_tokens": keys("gen_ai.request.max_tokens", "gen_ai.request.max_completion_tokens"),
        "choices": keys("gen_ai.request.choice.count", "gen_ai.request.n"),
        "stream": keys("gen_ai.request.stream"),
        "ttft_s": keys("gen_ai.response.time_to_first_chunk"),
        "finish_reason": (Read("gen_ai.response.finish_reasons", Parse.FINISH_LIST),),
        "session_id": keys("gen_ai.conversation.id"),
        "error_type": keys("error.type"),
        "http_status": HTTP_STATUS,
    },
)
