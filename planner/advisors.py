"""Every strategy of ``planner.strategies``, found by itself."""

from __future__ import annotations

from functools import cache

import planner.strategies
from goodwatch.core.registry import adapters
from planner.candidate import Strategy


@cache
def known_strategies() -> tuple[Strategy, ...]:
    """All of them, by name; other distributions may add some by the entry point ``goodwatch.strategies``."""
    found = adapters(planner.strategies, "STRATEGY", Strategy, group="goodwatch.strategies")  # type: ignore[type-abstract]
    return tuple(found[name] for name in sorted(found))
