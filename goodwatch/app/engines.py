"""The tables that goodwatch knows: engines in ``collector.engines``, exporters of accelerators in ``collector.accelerators``.

More come by the entry points ``goodwatch.engines`` and ``goodwatch.accelerators``.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType

import collector.accelerators
import collector.engines
from goodwatch.core.engine import Engine


@cache
def known_engines() -> Mapping[str, Engine]:
    """Every engine table by name. A module whose name starts with ``_`` is a helper, not an engine."""
    found: dict[str, Engine] = {}
    for module in pkgutil.iter_modules(collector.engines.__path__):
        if not module.name.startswith("_"):
            engine = importlib.import_module(f"collector.engines.{module.name}").ENGINE
            found[engine.name] = engine
    for point in entry_points(group="goodwatch.engines"):
        engine = point.load()
        found[engine.name] = engine
    return MappingProxyType(found)


@cache
def known_accelerators() -> Mapping[str, Engine]:
    """Every table of an accelerator exporter by name."""
    found: dict[str, Engine] = {}
    for module in pkgutil.iter_modules(collector.accelerators.__path__):
        if not module.name.startswith("_"):
            table = importlib.import_module(f"collector.accelerators.{module.name}").ACCELERATOR
            found[table.name] = table
    for point in entry_points(group="goodwatch.accelerators"):
        table = point.load()
        found[table.name] = table
    return MappingProxyType(found)


def table_lines(tables: Mapping[str, Engine]) -> list[str]:
    """One line for each table, by name: what it reads, and of which versions where that is known."""
    return [f"  {name}: {tables[name].title}{_versions(tables[name])}" for name in sorted(tables)]


def _versions(table: Engine) -> str:
    return f", {table.versions[0]} to {table.versions[-1]}" if table.versions else ""
