"""OpenInference (Arize Phoenix and its instrumentations), read up to 0.1.34 of its semantic conventions."""

from typing import Final

from collector.spans.table import Match, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind, Vantage

_KIND: Final = "openinference.span.kind"
_CONTAINERS: Final = (
    "CHAIN", "AGENT", "TOOL", "RETRIEVER", "RERANKER", "GUARDRAIL", "EVALUATOR", "PROMPT",
)  # fmt: skip

TABLE: Final = SpanTable(
    name="openinference",
    docs="openinference-semantic-conventions up to 0.1.34",
    order=32,
    shares=True,
    borrows=True,
    classes=(
        SpanClass(
            Match(one_of=(_KIND, ("LLM", "EMBEDDING"))),
            PartKind.CLIENT_CALL,
            Vantage.CLIENT,
            duration="e2e_s",
            zero_tokens_unknown=True,
        ),
        SpanClass(Match(one_of=(_KIND, _CONTAINERS)), dropped="container", late=True),
    ),
    fields={
        "model": keys("llm.response.model_name", "llm.request.model_name", "llm.model_name", "embedding.model_name"),
        "operation": keys(_KIND),
        "input_tokens": keys("llm.token_count.prompt"),
        "cached_tokens": keys("llm.token_count.prompt_details.cache_read"),
        "output_tokens": keys("llm.token_count.completion"),
        "reasoning_tokens": keys("llm.token_count.completion_details.reasoning"),
        "finish_reason": keys("llm.finish_reason"),
        "session_id": keys("session.id"),
    },
)
