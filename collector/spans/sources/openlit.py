"""OpenLIT: the GenAI conventions with a key of its own, wanted least; its scopes tell it from other SDKs."""

from typing import Final

from collector.spans.table import Match, Read, SpanClass, SpanTable
from goodwatch.core.request import PartKind, Vantage

TABLE: Final = SpanTable(
    name="openlit",
    docs="OpenLIT 1.45.0",
    order=30,
    shares=True,
    borrows=True,
    classes=(
        SpanClass(
            Match(
                scope_prefix="openlit",
                one_of=("gen_ai.operation.name", ("chat", "text_completion", "generate_content", "embeddings")),
            ),
            PartKind.CLIENT_CALL,
            Vantage.CLIENT,
            duration="e2e_s",
            zero_tokens_unknown=True,
        ),
    ),
    fields={"cached_tokens": (Read("gen_ai.usage.prompt_tokens_details.cached_tokens", order=35),)},
)
