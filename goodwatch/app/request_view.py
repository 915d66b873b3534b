"""What pages, the API and the exporter show of single requests: values only, made by ``goodwatch.app.request_watch``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from goodwatch.core.request import Vantage
from goodwatch.signals.attainment import Attained
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.heatmap import Ask, Heatmap
from goodwatch.signals.reconcile import Reconciled
from goodwatch.signals.request_cost import RequestCost


@dataclass(frozen=True, slots=True)
class Slice:
    """Which requests: those of a service that ended in ``[start_s, end_s)``; what is None does not matter.

    ``equal`` are columns of facts (model, tenant, adapter, route, form, target, deployment, status) and of verdicts
    (verdict, slo); a value None there is "not told". Token bounds are inclusive; ``slower_than`` is (latency column, seconds).
    """

    service: str
    start_s: float
    end_s: float
    equal: Mapping[str, str | None] = field(default_factory=dict)
    input_tokens: tuple[int | None, int | None] = (None, None)
    output_tokens: tuple[int | None, int | None] = (None, None)
    slower_than: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class MapView:
    """A heatmap, what it was made of ("rollups" or "requests"), and the attainment of the same requests."""

    map: Heatmap
    made_of: str
    attained: Attained
    reconciled: Reconciled


@dataclass(frozen=True, slots=True)
class RequestsView:
    """Some requests of a slice: ``FACTS`` with ``verdict``, ``missed`` (list of targets) and ``slo``; how many there are."""

    rows: pl.DataFrame
    total: int


@dataclass(frozen=True, slots=True)
class TraceView:
    """One trace: its requests (as in ``RequestsView``), the spans they were made of (``PARTS``), their scores."""

    facts: pl.DataFrame
    parts: pl.DataFrame
    scores: pl.DataFrame
    limits: LimitsTable
    link: str  # to the operator's own trace tool; "" when not configured


@dataclass(frozen=True, slots=True)
class GroupView:
    """The attainment of the requests with one value of a column; None: not told."""

    key: str | None
    requests: int
    attained: Attained


@dataclass(frozen=True, slots=True)
class IntakeView:
    """What arrives: ``listening`` are addresses; counts are since the start of goodwatch."""

    listening: tuple[str, ...]
    spans: int
    kept: int
    refused: Mapping[str, int]
    dropped: Mapping[str, int]
    waiting: int  # traces that are not settled yet, at least
    last_s: float | None  # when something was last kept
    problem: str  # of the store; "" when it works


class RequestViews(Protocol):
    """The read side of requests. Async methods read the store in a thread and raise ``StoreError`` when it cannot."""

    @property
    def enabled(self) -> bool:
        """Whether anything listens for traces."""
        ...

    @property
    def trace_url(self) -> str:
        """Link to a trace in the operator's tool with {trace_id} in it, "" when not configured."""
        ...

    def vantage(self, service: str) -> Vantage:
        """The vantage point that the SLO of a service is judged at."""
        ...

    def limits(self, service: str) -> LimitsTable:
        """What the requests of a service are held to."""
        ...

    def intake(self) -> IntakeView:
        """What arrives, and how the store fares."""
        ...

    def services(self) -> list[str]:
        """Services that requests were seen of, or that are configured."""
        ...

    async def choices(self, service: str, start_s: float, end_s: float) -> Mapping[str, Sequence[str | None]]:
        """Values that occur, by column (model, tenant, adapter, route, form, target, deployment), most requests first."""
        ...

    async def heatmap(self, of: Slice, ask: Ask) -> MapView:
        """The map; from rollups where their keys can answer, else from single requests."""
        ...

    async def requests(self, of: Slice, *, order: str, descending: bool, limit: int, offset: int = 0) -> RequestsView:
        """Requests of a slice, ordered by a column; those without it last."""
        ...

    async def trace(self, trace_id: str) -> TraceView | None:
        """One trace; None when there is none."""
        ...

    async def attained(self, of: Slice) -> tuple[Attained, Reconciled]:
        """Attainment and goodput of a slice."""
        ...

    async def groups(self, of: Slice, by: str) -> list[GroupView]:
        """The same for each value of a column, most requests first."""
        ...

    async def cost(self, of: Slice, by: str | None = None) -> RequestCost:
        """What the requests of a slice's service and times cost; ``equal`` and the other filters of the slice are not used."""
        ...

    async def scores(self, of: Slice) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Judged facts of a slice, and the scores (``SCORES``) given to any of them, however late."""
        ...
