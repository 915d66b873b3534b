"""The tables that goodwatch knows: engines in ``collector.engines``, exporters of accelerators in ``collector.accelerators``.

More come by the entry points ``goodwatch.engines`` and ``goodwatch.accelerators``.
"""

from collections.abc import Mapping
from functools import cache

import collector.accelerators
import collector.engines
from goodwatch.core.engine import Engine
from goodwatch.core.registry import adapters


@cache
def known_engines() -> Mapping[str, Engine]:
    """Every engine table by name."""
    return adapters(collector.engines, "ENGINE", Engine, group="goodwatch.engines")


@cache
def known_accelerators() -> Mapping[str, Engine]:
    """Every table of an accelerator exporter by name."""
    return adapters(collector.accelerators, "ACCELERATOR", Engine, group="goodwatch.accelerators")


def table_lines(tables: Mapping[str, Engine]) -> list[str]:
    """One line for each table, by name: what it reads, and of which versions where that is known."""
    return [f"  {name}: {tables[name].title}{_versions(tables[name])}" for name in sorted(tables)]


def _versions(table: Engine) -> str:
    return f", {table.versions[0]} to {table.versions[-1]}" if table.versions else ""
