"""What pages, the API and reports ask of SLOs; numbers that take long are computed in a thread."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import polars as pl

from alerts.values import FiringAlert
from goodwatch.app.slo_events import facts_to_judge
from goodwatch.app.slo_view import SloView
from goodwatch.core.drift import Drift
from goodwatch.core.errors import StoreError
from goodwatch.core.request import Verdict
from goodwatch.core.slo import Slo
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.attainment_verdicts import judge
from goodwatch.signals.budget import CurvePoint, Eater, SloStatus, budget_curve, eaters
from goodwatch.signals.rollup import MINUTE_S, band_expr
from goodwatch.signals.slo_events import EVENTS, group_values
from goodwatch.signals.slo_events_counted import limits_counted, scoped

if TYPE_CHECKING:
    from goodwatch.app.slo_watch import SloLoop

#: columns of single requests by the word that pages use
_REQUEST_COLUMNS: Final = {
    "cause": "cause", "band": "band", "tenant": "tenant", "route": "route", "model": "model", "replica": "target",
}  # fmt: skip
#: single requests are judged for at most so long, and so many: what ate the budget lately
_LATELY_S: Final = 14 * 86_400.0
_MOST: Final = 500_000


@dataclass(slots=True)
class SloReads:
    """Fulfils ``goodwatch.app.slo_view.SloViews``."""

    loop: "SloLoop"
    _last: tuple[tuple[Slo, float], pl.DataFrame] | None = None
    _reading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def left_out(self) -> tuple[str, ...]:
        """What is not judged without Prometheus, and why."""
        return self.loop.left_out

    @property
    def pages_from(self) -> str:
        """Who pages."""
        return self.loop.pager or self.loop.pages

    def slos(self) -> list[SloView]:
        """All SLOs: those that fire first, then by what is left of their budgets."""
        return sorted((self.loop.view(slo) for slo in self.loop.slos), key=_rank)

    def slo(self, name: str) -> SloView | None:
        """One SLO; None when unknown."""
        return next((self.loop.view(slo) for slo in self.loop.slos if slo.name == name), None)

    def alerts(self) -> list[FiringAlert]:
        """Alerts that fire now, critical ones first."""
        return self.loop.alerts()

    def drifts(self) -> list[Drift]:
        """Drifts that go on now, newest first."""
        return sorted(self.loop.drifts.known.values(), key=lambda one: -one.began_s)

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
        """The budget over a range; () when unknown."""
        view = self.slo(name)
        if view is None or view.status is None or view.status.worst is None:
            return ()
        worst = view.status.worst
        chosen, its_group = (target, group) if target else (worst.target, worst.group)
        events, slo = self._events(view.slo), view.slo
        last = min(end_s, view.status.at_s)
        step = max(float(MINUTE_S), (last - start_s) / max(1, points))
        times = [last - n * step for n in range(points, -1, -1) if last - n * step >= start_s]
        return await asyncio.to_thread(lambda: budget_curve(events, slo, chosen, times, group=its_group))

    async def eaters(self, name: str, by: str) -> tuple[Eater, ...]:
        """What ate the budget of the current period; () where nothing is known. Raises ``StoreError``."""
        view = self.slo(name)
        if view is None or view.status is None:
            return ()
        slo, status = view.slo, view.status
        if by == "target" or (by in slo.scope.by and self.loop.sources.requests is None):
            return await asyncio.to_thread(lambda: self._of_events(slo, status, by))
        if by not in _REQUEST_COLUMNS or self.loop.sources.requests is None:
            return ()
        return await asyncio.to_thread(lambda: eaters(self._judged(slo, status), _REQUEST_COLUMNS[by], slo))

    def _events(self, slo: Slo) -> pl.DataFrame:
        book = self.loop.books.get(slo.service)
        held = None if book is None else book.events.get(slo.name)  # none yet, just after the configuration was read
        return pl.DataFrame(schema=EVENTS) if held is None else held

    def _of_events(self, slo: Slo, status: SloStatus, by: str) -> tuple[Eater, ...]:
        events = self._events(slo).filter(pl.col("minute_s") >= status.starts_s)
        if by == "target":
            return eaters(events, "target", slo)
        place = slo.scope.by.index(by)
        keys = {key: values[place] for key in events["group"].unique() if len(values := group_values(key)) > place}
        return eaters(events.with_columns(key=pl.col("group").replace_strict(keys, default=None)), "key", slo)

    def _judged(self, slo: Slo, status: SloStatus) -> pl.DataFrame:
        """Single requests of the period, lately, as ``eaters`` takes them; kept for the next split of the same SLO."""
        with self._reading:
            key = slo, status.at_s
            if self._last is None or self._last[0] != key:
                self._last = key, self._read(slo, status)
            return self._last[1]

    def _read(self, slo: Slo, status: SloStatus) -> pl.DataFrame:
        loop, limits = self.loop.sources.requests, limits_counted(slo)
        if loop is None or limits is None:
            return pl.DataFrame(
                schema={"total": pl.Float64, "bad": pl.Float64, **dict.fromkeys(_REQUEST_COLUMNS.values(), pl.String)}
            )
        start_s = max(status.starts_s, status.at_s - _LATELY_S)
        count = loop.store.facts(start_s, status.at_s, columns=("ended_at",), service=slo.service).height
        if count > _MOST:
            raise StoreError(
                f"{count:,} requests of {slo.name} are too many to be judged one by one; the heatmap tells its bands"
            )
        facts = facts_to_judge(loop, slo.service, start_s, status.at_s)
        judged = judge(scoped(facts, slo), LimitsTable.of(limits, slo.name), vantage=loop.vantage(slo.service))
        valid = judged.filter(pl.col("verdict").is_in([Verdict.GOOD.value, Verdict.BAD.value]))
        weight = pl.col("weight").fill_null(1.0)
        return valid.select(
            *(name for name in dict.fromkeys(_REQUEST_COLUMNS.values()) if name not in ("cause", "band")),
            total=weight,
            bad=pl.when(pl.col("verdict") == Verdict.BAD.value).then(weight).otherwise(0.0),
            cause=_cause(),
            band=band_expr("input_tokens"),
        )


def _cause() -> pl.Expr:
    """Why a request was bad: what it missed, or how it ended."""
    missed = pl.col("missed").list.join(" and ")
    return pl.when(missed != "").then(missed).otherwise(pl.col("status"))


def _rank(view: SloView) -> tuple[int, float, str]:
    worst = view.status.worst if view.status is not None else None
    left = worst.budget.left_ratio if worst is not None and worst.budget is not None else 2.0
    return (0 if view.firing else 1, left, view.slo.name)
