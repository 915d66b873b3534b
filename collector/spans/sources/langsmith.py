"""LangSmith's session key, on spans that other conventions recognise."""

from typing import Final

from collector.spans.table import SpanTable, keys

TABLE: Final = SpanTable(
    name="langsmith",
    docs="LangSmith SDK, OpenTelemetry export",
    order=36,
    shares=True,
    fields={"session_id": keys("langsmith.trace.session_id")},
)
