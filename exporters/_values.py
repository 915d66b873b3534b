"""What the exposition is made of: plain values, so that the exporter knows nothing of the running service."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from goodwatch.core.model import Number

#: every state a service can be in, in the order of ``goodwatch_service_state``
STATES: Final = ("good", "warning", "bad", "no traffic", "no data")


@dataclass(frozen=True, slots=True)
class Scope:
    """Derived numbers of one scope, by name. ``model`` "" is all models, ``target`` "" the whole service."""

    service: str
    numbers: Mapping[str, Number]
    model: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class ServiceNow:
    """A service's state (one of ``STATES``) and objective (0..1; None without one)."""

    name: str
    state: str
    objective: float | None


@dataclass(frozen=True, slots=True)
class TargetNow:
    """Whether a target could be read at its last scrape; ``up`` None: not scraped yet."""

    name: str
    service: str
    up: bool | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is exported at one moment. ``store_lag_s`` and ``store_bytes`` are None when unknown."""

    scopes: tuple[Scope, ...] = ()
    services: tuple[ServiceNow, ...] = ()
    targets: tuple[TargetNow, ...] = ()
    store_lag_s: float | None = None
    store_bytes: float | None = None
