"""Adapters found by themselves: one module of a package each, and more by an entry point."""

import importlib
import pkgutil
from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType
from typing import Protocol, TypeVar


class Named(Protocol):
    """What a registry holds."""

    @property
    def name(self) -> str:
        """Its key."""
        ...


T = TypeVar("T", bound=Named)


def adapters(package: ModuleType, attribute: str, kind: type[T], *, group: str = "") -> Mapping[str, T]:
    """Adapters by name.

    Parameters
    ----------
    package
        Every module of it whose name does not start with ``_`` holds one adapter.
    attribute
        Under which name.
    kind
        What each is. Raises TypeError for one that is something else, since that is a bug of whoever wrote it.
    group
        Entry points of other distributions; one of a known name takes its place. "" takes none.
    """
    names = [one.name for one in pkgutil.iter_modules(package.__path__) if not one.name.startswith("_")]
    told = [getattr(importlib.import_module(f"{package.__name__}.{name}"), attribute) for name in names]
    told += [point.load() for point in entry_points(group=group)] if group else []
    found: dict[str, T] = {}
    for adapter in told:
        if not isinstance(adapter, kind):
            raise TypeError(f"{package.__name__}: {adapter!r} is no {kind.__name__}")
        found[adapter.name] = adapter
    return MappingProxyType(found)
