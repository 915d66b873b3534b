"""The Vercel AI SDK's key of reasoning tokens, on spans that other conventions recognise."""

from typing import Final

from collector.spans.table import SpanTable, keys

TABLE: Final = SpanTable(
    name="vercel_ai",
    docs="Vercel AI SDK, telemetry",
    order=37,
    shares=True,
    fields={"reasoning_tokens": keys("ai.usage.reasoningTokens")},
)
