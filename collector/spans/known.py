"""The span tables that goodwatch knows: ``collector.spans.sources``, and more by the entry point ``goodwatch.spans``."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType

import collector.spans.sources
from collector.spans.table import SpanTable


@cache
def known_tables() -> Mapping[str, SpanTable]:
    """Every span table by name. A module whose name starts with ``_`` is shared data, not a source."""
    found: dict[str, SpanTable] = {}
    for module in pkgutil.iter_modules(collector.spans.sources.__path__):
        if not module.name.startswith("_"):
            table = importlib.import_module(f"collector.spans.sources.{module.name}").TABLE
            found[table.name] = table
    for point in entry_points(group="goodwatch.spans"):
        table = point.load()
        found[table.name] = table
    return MappingProxyType(found)
