"""What the pages, the API and the exporter show: values only, made by ``goodwatch.app.watch``."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

import polars as pl

from collector.capability import Capability
from goodwatch.core.model import Deployment, Limits, Number
from goodwatch.signals.derive import Derived
from goodwatch.signals.saturation import Saturation, Stall

State = Literal["good", "warning", "bad", "no traffic", "no data"]


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One accelerator now. ``shared`` names who else holds it, or on its exporter's page who holds it."""

    key: str
    exporter: str
    product: str
    host: str
    index: str  # number on its host
    pods: tuple[str, ...]
    shared: str
    basis: str  # how it was found to be this target's
    values: dict[str, float] = field(default_factory=dict)  # by canonical signal, in canonical units


@dataclass(frozen=True, slots=True)
class TargetView:
    """One target now. ``capability`` is None until a page was read."""

    name: str
    url: str
    service: str
    up: bool | None  # None: not scraped yet
    last_scrape_s: float | None
    duration_s: float | None
    error: str  # sentence of the last failed scrape, "" when up
    engine: str
    engine_version: str
    models: tuple[str, ...]
    derived: Derived | None
    capability: Capability | None
    deployment: Deployment | None
    labels: dict[str, str] = field(default_factory=dict)
    price_note: str = ""
    kind: Literal["engine", "accelerator"] = "engine"
    devices: tuple[DeviceView, ...] = ()  # where one target is asked for
    devices_note: str = ""  # why there are none
    device_numbers: dict[str, Number] = field(default_factory=dict)  # of an exporter, over all who hold its devices


@dataclass(frozen=True, slots=True)
class ServiceView:
    """One service now: numbers over the last window, and what is wrong in one line."""

    name: str
    description: str
    state: State
    headline: str
    limits: Limits
    objective: float | None
    derived: Derived
    by_model: dict[str, Derived]
    targets: tuple[TargetView, ...]
    saturations: tuple[Saturation, ...] = ()
    stalls: tuple[Stall, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: a deployment change, a restart, a target that went away."""

    ts: float
    service: str
    target: str
    kind: str  # "deployment", "restart", "down", "up"
    text: str


@dataclass(frozen=True, slots=True)
class StoreView:
    """The store's health in words."""

    ok: bool
    message: str
    lag_s: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Health:
    """Whether goodwatch itself works; ``ready`` once the first round of scrapes is in."""

    ok: bool
    ready: bool
    message: str
    store: StoreView


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Outcome of a configuration reload; the old one stays when ``ok`` is false."""

    ok: bool
    problems: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Views(Protocol):
    """The read side of the running service. Async methods may read the store; none blocks the event loop."""

    @property
    def external_url(self) -> str:
        """URL under which people reach goodwatch, "" when not configured."""
        ...

    @property
    def demo_note(self) -> str:
        """Says plainly that a replay is shown; empty otherwise."""
        ...

    def now_s(self) -> float:
        """The service's clock."""
        ...

    def services(self) -> list[ServiceView]:
        """All services, worst first."""
        ...

    def service(self, name: str) -> ServiceView | None:
        """One service; None when unknown."""
        ...

    def targets(self) -> list[TargetView]:
        """All targets by name."""
        ...

    def target(self, name: str) -> TargetView | None:
        """One target; None when unknown."""
        ...

    async def series(
        self, service: str, start_s: float, end_s: float, *, step_s: float | None = None, target: str | None = None
    ) -> pl.DataFrame:
        """Derived numbers per step of a range, as ``frames.DERIVED`` (every name of ``derive.MEANINGS`` at each step).

        ``ts`` is the step's end; null value, low and high with a note is "no number here". Without ``step_s`` the
        range is cut into about 120 steps of whole minutes.
        """
        ...

    async def events(self, start_s: float, end_s: float, *, service: str | None = None) -> list[Event]:
        """What happened in the interval, oldest first."""
        ...

    def health(self) -> Health:
        """State of goodwatch itself."""
        ...

    async def reload(self) -> Reloaded:
        """Read the configuration again; a bad one is refused and the old one stays."""
        ...
