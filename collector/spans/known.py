"""The span tables that goodwatch knows: ``collector.spans.sources``, and more by the entry point ``goodwatch.spans``."""

from collections.abc import Mapping
from functools import cache

import collector.spans.sources
from collector.spans.table import SpanTable
from goodwatch.core.registry import adapters


@cache
def known_tables() -> Mapping[str, SpanTable]:
    """Every span table by name. A module whose name starts with ``_`` is shared data, not a source."""
    return adapters(collector.spans.sources, "TABLE", SpanTable, group="goodwatch.spans")
