"""OpenLLMetry (Traceloop): its own keys beside those of the GenAI conventions, read in 0.4.x and 0.5 of its package."""

from typing import Final

from collector.spans.table import Match, Read, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind, Vantage

_TYPE: Final = "llm.request.type"
#: Its cached and reasoning keys are wanted right after the GenAI conventions', before other vendors'.
_AFTER_GENAI: Final = 31

TABLE: Final = SpanTable(
    name="openllmetry",
    docs="opentelemetry-semantic-conventions-ai 0.4 and 0.5",
    order=33,
    shares=True,
    borrows=True,
    classes=(
        SpanClass(
            Match(one_of=(_TYPE, ("chat", "completion", "embedding", "rerank"))),
            PartKind.CLIENT_CALL,
            Vantage.CLIENT,
            duration="e2e_s",
            zero_tokens_unknown=True,
        ),
        SpanClass(
            Match(one_of=("traceloop.span.kind", ("workflow", "task", "agent", "tool"))), dropped="container", late=True
        ),
    ),
    fields={
        "response_id": keys("llm.response.id"),
        "operation": keys(_TYPE, "traceloop.span.kind"),
        "cached_tokens": (Read("gen_ai.usage.cache_read_input_tokens", order=_AFTER_GENAI),),
        "reasoning_tokens": (
            Read("gen_ai.usage.reasoning_tokens", order=_AFTER_GENAI),
            Read("llm.usage.reasoning_tokens", order=_AFTER_GENAI),
        ),
        "stream": keys("gen_ai.is_streaming", "llm.is_streaming"),
        "finish_reason": keys(
            "gen_ai.response.finish_reason",
            "gen_ai.completion.0.finish_reason",
            "llm.response.finish_reason",
            "llm.response.stop_reason",
        ),
    },
)
