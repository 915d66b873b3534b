"""The engines that goodwatch knows: found in ``collector.engines``, more by the entry point ``goodwatch.engines``."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType

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
