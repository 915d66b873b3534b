"""Gathers the facts of a week for the report: money and promises day by day, advice and experiments from the records."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from goodwatch.app.report_records import records_of
from goodwatch.app.request_view import Slice
from goodwatch.app.slo_view import SloView
from goodwatch.core.drift import Drift
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Absence, Number
from goodwatch.core.ports import RecordStore
from goodwatch.core.slo import wilson
from goodwatch.signals.attainment import Attained
from goodwatch.signals.reconcile import Reconciled
from goodwatch.signals.request_cost import CostLine, RequestCost
from planner.report.facts import (
    NONE,
    Figure,
    Missing,
    Note,
    ServiceWeek,
    SloState,
    Spend,
    TenantWeek,
    WeekFacts,
)
from planner.report.weeks import Week
from planner.report.words import Words

_MILLION: Final = 1e6
_WASTED: Final = ("late", "failed", "aborted")


class Costs(Protocol):
    """What is asked of requests; ``goodwatch.app.request_reads.RequestReads`` fulfils it."""

    def services(self) -> list[str]:
        """Services that requests were seen of, or that are configured."""
        ...

    async def cost(self, of: Slice, by: str | None = None) -> RequestCost:
        """What the requests of a service cost in a range."""
        ...

    async def attained(self, of: Slice) -> tuple[Attained, Reconciled]:
        """Attainment of a slice."""
        ...


class Slos(Protocol):
    """What is asked of SLOs; ``goodwatch.app.slo_reads.SloReads`` fulfils it."""

    def slos(self) -> list[SloView]:
        """All SLOs now."""
        ...

    def drifts(self) -> list[Drift]:
        """Drifts that go on now."""
        ...


@dataclass(slots=True)
class _Sum:
    """Days added up; a day that does not tell is not counted, so the sum says how many did."""

    total: float = 0.0
    days: int = 0
    missing: Missing = "no_data"
    basis: str | None = None

    def add(self, value: float | None, basis: str | None = None) -> None:
        if value is not None:
            self.total, self.days, self.basis = self.total + value, self.days + 1, basis or self.basis

    def figure(self) -> Figure:
        if not self.days:
            return Figure(missing=self.missing)
        basis: Any = self.basis if self.basis in ("counted", "measured", "estimated", "bounded") else "estimated"
        return Figure(self.total, basis=basis, days=self.days)


@dataclass(slots=True)
class _Line:
    """One service or tenant over the days of a week."""

    usd: _Sum = field(default_factory=_Sum)
    wasted: _Sum = field(default_factory=_Sum)
    idle: _Sum = field(default_factory=_Sum)
    good_usd: _Sum = field(default_factory=_Sum)  # what the good tokens' rate was made from, idle time in it
    good_tokens: float = 0.0

    def take(self, line: CostLine, usd: Number) -> None:
        """Another day: its money, what was wasted of it, and the tokens that it bought."""
        self.usd.add(usd.value, usd.basis.value if usd.basis else None)
        self.wasted.add(math.fsum(line.usd_by_class.get(c, 0.0) for c in _WASTED) if line.usd_by_class else None)
        rate = line.usd_per_million_good_tokens.value
        if rate is not None:
            self.good_usd.add(rate * line.good_tokens / _MILLION)
            self.good_tokens += line.good_tokens
        elif line.usd.value is not None and usd.value is not None and not line.good_tokens:
            self.good_usd.add(usd.value)  # paid for, and brought no good token

    def spend(self) -> Spend:
        """The week; the rate is of sums, never a mean of rates."""
        paid = self.good_usd.figure()
        per = Figure(missing="no_traffic" if self.good_usd.days else self.good_usd.missing)
        if paid.value is not None and self.good_tokens > 0:
            per = Figure(paid.value / self.good_tokens * _MILLION, basis="estimated", days=paid.days)
        return Spend(self.usd.figure(), per, self.idle.figure(), self.wasted.figure())


@dataclass(slots=True)
class _Money:
    """A service over the days of a week."""

    whole: _Line = field(default_factory=_Line)
    tenants: dict[str | None, _Line] = field(default_factory=dict)
    failed_days: int = 0

    def take(self, cost: RequestCost) -> None:
        self.whole.take(cost.whole, cost.usd)
        self.whole.idle.add(cost.idle_usd.value, "measured")
        if cost.usd.value is None and cost.usd.absence is Absence.NOT_MEASURABLE:
            self.whole.usd.missing = "no_price"
        if not cost.whole.requests:
            self.whole.good_usd.missing = self.whole.wasted.missing = "no_facts"
        if cost.usd.value is not None and cost.idle_usd.value is None:
            self.whole.idle.missing = "not_measurable"
        for line in cost.lines:
            self.tenants.setdefault(line.key, _Line()).take(line, line.usd)


@dataclass(frozen=True, slots=True)
class Gathering:
    """Facts of any week from the stores. Nothing of it blocks the event loop."""

    costs: Costs
    slos: Slos
    records: RecordStore
    objectives: Callable[[], Mapping[str, float]] = dict

    async def facts(self, week: Week, now_s: float) -> WeekFacts:
        """Everything that a report of the week says. Raises ``StoreError`` where records cannot be read."""
        services, notes = [], []
        for name in self.costs.services():
            service, told = await self._service(name, week, now_s)
            services.append(service)
            notes += told
        spent = {one.service: one.now.usd for one in services}
        kept = await asyncio.to_thread(records_of, self.records, week, spent, self.slos.drifts())
        states = _states(self.slos.slos())
        if week.end_s > now_s:
            notes.insert(0, Note("not_over", {"at": _minute(now_s, week)}))
        if kept.bad:
            notes.append(Note("records", {"count": str(kept.bad)}))
        if states:
            notes.append(Note("slo_now"))
        if any(one.now.usd.value is not None for one in services):
            notes.append(Note("price_now"))
        services.sort(key=lambda one: (-(one.now.usd.value or 0.0), one.service))
        return WeekFacts(
            week, now_s, tuple(services), states, kept.advised, kept.verified, kept.anomalies, tuple(notes)
        )

    async def _service(self, name: str, week: Week, now_s: float) -> tuple[ServiceWeek, list[Note]]:
        now, before = await self._money(name, week, now_s), await self._money(name, week.before, now_s)
        told = _tenants(now, before)
        share = await self._attained(name, week, now_s)
        service = ServiceWeek(name, now.whole.spend(), before.whole.spend(), told, share, self.objectives().get(name))
        return service, _notes(service, now)

    async def _money(self, name: str, week: Week, now_s: float) -> _Money:
        """Day by day: a week of requests may be more than is read at once."""
        money = _Money()
        for start_s, end_s in week.days:
            if start_s >= now_s:
                break
            try:
                money.take(await self.costs.cost(Slice(name, start_s, min(end_s, now_s)), "tenant"))
            except StoreError:
                money.failed_days += 1
        return money

    async def _attained(self, name: str, week: Week, now_s: float) -> Figure:
        good = valid = undetermined = squares = 0.0
        days, counted = 0, True
        for start_s, end_s in week.days:
            if start_s >= now_s:
                break
            try:
                found, _ = await self.costs.attained(Slice(name, start_s, min(end_s, now_s)))
            except StoreError:
                continue
            if found.sums.valid or found.sums.undetermined:
                days += 1
                good, valid = good + found.sums.good, valid + found.sums.valid
                undetermined, squares = undetermined + found.sums.undetermined, squares + found.sums.valid_sq
                counted = counted and found.attainment.basis is not None and found.attainment.basis.value == "counted"
        return _share(good, valid, undetermined, squares, days, counted=counted)


def _tenants(now: _Money, before: _Money) -> tuple[TenantWeek, ...]:
    found = []
    for key in dict.fromkeys([*now.tenants, *before.tenants]):
        new, old = now.tenants.get(key, _Line()).spend(), before.tenants.get(key, _Line()).spend()
        found.append(TenantWeek(key, _as_of(new, now.whole), _as_of(old, before.whole)))
    return tuple(found)


def _as_of(spend: Spend, whole: _Line) -> Spend:
    """A tenant that was away for a day spent nothing on it: known on the days on which the service was known."""
    if spend.usd.value is None:
        return spend
    days = whole.usd.days
    per = spend.per_million_good_usd
    return Spend(
        replace(spend.usd, days=days), per if per.value is None else replace(per, days=days), NONE,
        spend.wasted_usd if spend.wasted_usd.value is None else replace(spend.wasted_usd, days=days),
    )  # fmt: skip


def _share(good: float, valid: float, open_: float, squares: float, days: int, *, counted: bool) -> Figure:
    """Attainment with what is undetermined as its bounds; of samples the Wilson interval of the effective number too."""
    if valid <= 0:
        return Figure(missing="no_facts" if not open_ else "not_measurable")
    low = high = good / valid
    if not counted and squares > 0:
        effective = valid * valid / squares
        low, high = wilson(good / valid * effective, effective)
    known = valid / (valid + open_)
    low, high = low * known, high * known + (1 - known)
    sure = high - low <= 1e-9
    ends = (None, None) if sure else (low, high)
    return Figure(good / valid, ends[0], ends[1], basis="counted" if counted else "estimated", days=days)


def _states(views: Sequence[SloView]) -> tuple[SloState, ...]:
    found = []
    for view in views:
        worst = view.status.worst if view.status is not None else None
        budget = worst.budget if worst is not None else None
        left = NONE if budget is None else Figure(budget.left_ratio, basis="counted")
        found.append(SloState(view.slo.service, view.slo.name, view.slo.objective, left, len(view.firing)))
    return tuple(found)


def _notes(one: ServiceWeek, money: _Money) -> list[Note]:
    of, found = {"service": one.service}, []
    usd = one.now.usd
    if money.failed_days:
        found.append(Note("store", of))
    if usd.value is None and usd.missing == "no_price":
        found.append(Note("no_price", of))
    elif usd.days < 7 or usd.value is None:
        found.append(Note("days_missing", of | {"days": str(usd.days if usd.value is not None else 0)}))
    elif one.before.usd.days < 7 or one.before.usd.value is None:
        days = one.before.usd.days if one.before.usd.value is not None else 0
        found.append(Note("days_missing_before", of | {"days": str(days)}))
    if one.now.per_million_good_usd.missing == "no_facts" and one.now.per_million_good_usd.value is None:
        found.append(Note("no_facts", of))
    if one.now.idle_usd.missing == "not_measurable" and one.now.idle_usd.value is None:
        found.append(Note("no_idle", of))
    return found


def _minute(at_s: float, week: Week) -> str:
    return Words(zone=week.zone).moment(at_s)
