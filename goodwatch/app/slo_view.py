"""What pages, the API and the exporter show of SLOs: values only, made by ``goodwatch.app.slo_watch``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from alerts.rules.promql import span
from alerts.values import FiringAlert
from exporters.slo import SloSeries, SlosNow, TargetSeries
from goodwatch.core.drift import Drift
from goodwatch.core.slo import Slo
from goodwatch.signals.budget import CurvePoint, Eater, SloStatus


@dataclass(frozen=True, slots=True)
class SloView:
    """One SLO now.

    ``status`` is None while its history is read, or where it cannot be evaluated here: ``note`` then says which, for a
    person. ``note`` beside a status says what its numbers do not hold yet.
    """

    slo: Slo
    status: SloStatus | None
    severities: tuple[str, ...] = ()  # of its burn alerts, as they are labelled
    firing: tuple[FiringAlert, ...] = ()
    drifts: tuple[Drift, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """Events that goodwatch counted of one SLO since it started, each once: for counters on the metrics page."""

    service: str
    slo: str
    valid: float
    good: float


class SloViews(Protocol):
    """The read side of SLOs. Async methods compute in a thread; none blocks the event loop."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """What is not judged without Prometheus, and why."""
        ...

    @property
    def pages_from(self) -> str:
        """Who pages: "goodwatch" or "prometheus"."""
        ...

    def slos(self) -> list[SloView]:
        """All SLOs: those that fire first, then by what is left of their budgets."""
        ...

    def slo(self, name: str) -> SloView | None:
        """One SLO; None when unknown."""
        ...

    def alerts(self) -> list[FiringAlert]:
        """Alerts that fire now, critical ones first."""
        ...

    def drifts(self) -> list[Drift]:
        """Drifts that go on now, newest first."""
        ...

    async def curve(
        self,
        name: str,
        start_s: float,
        end_s: float,
        *,
        target: str = "",
        group: tuple[str, ...] = (),
        points: int = 120,
    ) -> tuple[CurvePoint, ...]:
        """The budget over a range; ``target`` "" is the one with the least left. () when unknown."""
        ...

    async def eaters(self, name: str, by: str) -> tuple[Eater, ...]:
        """What ate the budget of the current period.

        ``by`` is ``target`` (what was missed) or ``model`` from events; ``cause``, ``band``, ``tenant``, ``route`` or
        ``replica`` from single requests of the last days that are kept. Raises ``StoreError``; () where nothing is known.
        """
        ...


@dataclass(frozen=True, slots=True)
class SloNow:
    """Everything that the metrics page shows of SLOs at one moment."""

    slos: Sequence[SloView] = ()
    drifts: Sequence[Drift] = ()
    counted: Sequence[Counted] = ()


def series_now(now: SloNow) -> SlosNow:
    """As the metrics page takes it."""
    return SlosNow(
        [_series(view) for view in now.slos],
        [(one.service, one.kind, one.slo) for one in now.drifts],
        [(one.service, one.slo, one.valid, one.good) for one in now.counted],
    )


def _series(view: SloView) -> SloSeries:
    slo, status = view.slo, view.status
    period = slo.period.calendar or span(slo.period.length_s)
    if status is None:
        return SloSeries(slo.service, slo.name, slo.objective, period)
    worst = status.worst
    ends = worst.forecast if worst is not None else None
    fires = {one.severity for one in view.firing}
    severities = dict.fromkeys([*view.severities, *fires])
    return SloSeries(
        slo.service,
        slo.name,
        slo.objective,
        period,
        [
            TargetSeries(
                target.target,
                None if target.budget is None or target.budget.broken or view.note else target.budget.left_ratio,
                {span(length): target.burn(length, slo.objective) for length in sorted(target.windows)},
                dict(zip(slo.scope.by, target.group, strict=False)),
            )
            for target in status.targets
        ],
        (None, None, None) if ends is None or view.note else (ends.expected_s, ends.soonest_s, ends.latest_s),
        {name: name in fires for name in severities},
    )
