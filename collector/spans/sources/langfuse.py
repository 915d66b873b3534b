"""Langfuse's SDK: usage and the first token's instant are JSON texts, the instant absolute."""

from typing import Final

from collector.spans.table import Match, Parse, Read, SpanClass, SpanTable, keys
from goodwatch.core.request import PartKind, Vantage

_TYPE: Final = "langfuse.observation.type"
_USAGE: Final = "langfuse.observation.usage_details"

TABLE: Final = SpanTable(
    name="langfuse",
    docs="Langfuse SDK 5.0.4",
    order=34,
    shares=True,
    borrows=True,
    classes=(
        SpanClass(
            Match(one_of=(_TYPE, ("generation", "embedding"))),
            PartKind.CLIENT_CALL,
            Vantage.CLIENT,
            duration="e2e_s",
            zero_tokens_unknown=True,
        ),
    ),
    fields={
        "model": keys("langfuse.observation.model.name"),
        "operation": keys(_TYPE),
        "input_tokens": (Read(_USAGE, Parse.JSON_COUNT, path=("input", "prompt_tokens")),),
        "output_tokens": (Read(_USAGE, Parse.JSON_COUNT, path=("output", "completion_tokens")),),
        "ttft_s": (Read("langfuse.observation.completion_start_time", Parse.JSON_SINCE_START),),
    },
)
