"""What pages and the API ask of requests: from rollups where their keys can answer, else from single requests."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from goodwatch.app.request_view import GroupView, IntakeView, MapView, RequestsView, Slice, TraceView
from goodwatch.app.request_watch import RequestLoop
from goodwatch.app.watch import Watch
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Absence
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment import Attained, Sums, attainment, sums, sums_of_rollups
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.cost import cost, covered_s
from goodwatch.signals.heatmap import Ask, heatmap, heatmap_of_facts
from goodwatch.signals.reconcile import EngineCounts, Reconciled, engine_counts, reconcile
from goodwatch.signals.request_cost import Bill, RequestCost, request_cost
from goodwatch.signals.request_frames import BINS, FACTS, ROLLUP_KEYS, ROLLUPS
from goodwatch.signals.rollup import HOUR_S, MINUTE_S, roll_up

#: columns that pages filter by
CHOICES: Final = ("model", "tenant", "adapter", "route", "form", "target", "deployment")
#: up to here single requests answer: their cells are exact, and a page is as fast
_RAW_S: Final = 6 * 3600.0
_RAW_REQUESTS: Final = 200_000
#: about 2 GB while they are judged
MOST_REQUESTS: Final = 2_000_000
_SCORES_LATER_S: Final = 14 * 86_400.0
_VERDICTS: Final = ("verdict", "slo")


@dataclass(frozen=True, slots=True)
class _Counted:
    """What the engines counted in ``[start_s, end_s)``, the whole minutes inside a slice; what its GPUs cost.

    ``covered_s``: seconds of the slice in which a target was there.
    """

    counts: EngineCounts | None
    bill: Bill
    start_s: float
    end_s: float
    covered_s: float

    def within(self, facts: pl.DataFrame) -> pl.DataFrame:
        """The facts that the counters are about."""
        return facts.filter(pl.col("ended_at") >= self.start_s, pl.col("ended_at") < self.end_s)


@dataclass(slots=True)
class RequestReads:
    """``RequestViews`` over a store, the loop that fills it, and the watch over the same services' metrics."""

    loop: RequestLoop
    watch: Watch
    enabled: bool
    told: Callable[[], IntakeView]  # what arrives

    @property
    def trace_url(self) -> str:
        """Link to a trace in the operator's tool, "" when not configured."""
        return self.loop.terms.trace_url

    def vantage(self, service: str) -> Vantage:
        """The vantage point that the SLO of a service is judged at."""
        return self.loop.vantage(service)

    def limits(self, service: str) -> LimitsTable:
        """What the requests of a service are held to."""
        return self.loop.terms.limits.get(service, LimitsTable())

    def intake(self) -> IntakeView:
        """What arrives, and how the store fares."""
        return self.told()

    def services(self) -> list[str]:
        """Services that requests were seen of, or that are configured."""
        return sorted({*self.loop.seen_services, *(s.name for s in self.watch.services())})

    async def choices(self, service: str, start_s: float, end_s: float) -> Mapping[str, Sequence[str | None]]:
        """Values that occur, by column, most requests first."""

        def read() -> dict[str, list[str | None]]:
            found = self.loop.store.facts(start_s, end_s, columns=CHOICES, service=service)
            return {c: found[c].value_counts(sort=True)[c].to_list() for c in CHOICES if found.height}

        return await asyncio.to_thread(read)

    async def heatmap(self, of: Slice, ask: Ask) -> MapView:
        """The map; from rollups where their keys can answer, else from single requests."""
        (found,) = await self.heatmaps(of, [ask])
        return found

    async def heatmaps(self, of: Slice, asks: Sequence[Ask]) -> list[MapView]:
        """Several maps of the same requests, which are read once."""
        by_one = of.end_s - of.start_s <= _RAW_S
        whole = of if by_one else self._covered(of)
        counted = await self._counted(whole)
        asked = [replace(ask, filters={**of.equal}, window_usd=counted.bill.usd) for ask in asks]

        def build() -> list[MapView]:
            few = by_one and self.count(of) <= _RAW_REQUESTS
            if few or not _in_rollups(of):
                return self._maps_of_requests(of, whole, asked, counted)
            return self._maps_of_rollups(of, whole, asked, counted)

        return await asyncio.to_thread(build)

    def _maps_of_requests(self, of: Slice, whole: Slice, asks: Sequence[Ask], counted: _Counted) -> list[MapView]:
        facts = _inside(self._judged(whole, everything=True), of)
        scores, rules = self._scores_of(whole), self.loop.terms.rules
        kept = facts.filter(*_equal(of.equal))
        told = self._attained(kept, whole, counted, sums(kept))
        made = (heatmap_of_facts(facts, ask, scores=scores, rules=rules) for ask in asks)
        return [MapView(one, "requests", *told) for one in made]

    def _maps_of_rollups(self, of: Slice, whole: Slice, asks: Sequence[Ask], counted: _Counted) -> list[MapView]:
        rollups, bins = self._rolled(whole, list(dict.fromkeys(name for ask in asks for name in ask.fields)))
        told = self._attained(None, whole, counted, sums_of_rollups(rollups.filter(*_equal(of.equal))))
        return [MapView(heatmap(rollups, bins, ask), "rollups", *told) for ask in asks]

    async def requests(self, of: Slice, *, order: str, descending: bool, limit: int, offset: int = 0) -> RequestsView:
        """Requests of a slice, ordered by a column; those without it last."""

        def read() -> RequestsView:
            rows = self._judged(of).sort(
                [order, "trace_id", "fact_id"], descending=[descending, False, False], nulls_last=True
            )
            return RequestsView(rows.slice(offset, limit), rows.height)

        return await asyncio.to_thread(read)

    async def trace(self, trace_id: str) -> TraceView | None:
        """One trace; None when there is none."""

        def read() -> TraceView | None:
            parts = self.loop.store.parts([trace_id])
            # A fact belongs to the minute in which it ended, and its parts tell when that was.
            facts = self.loop.store.facts(0.0, self.loop.clock.now_s() + HOUR_S, trace_id=trace_id)
            if parts.is_empty() and facts.is_empty():
                return None
            scores = self.loop.store.scores(0.0, self.loop.clock.now_s() + HOUR_S)
            told = scores.filter(
                (pl.col("trace_id") == trace_id)
                | pl.col("response_id").is_in(facts["response_id"].drop_nulls().unique().to_list())
            )
            service = str(facts["service"][0]) if facts.height and facts["service"][0] else ""
            link = self.trace_url.replace("{trace_id}", trace_id)
            return TraceView(self.loop.judged(facts), parts, told, self.limits(service), link)

        return await asyncio.to_thread(read)

    async def attained(self, of: Slice) -> tuple[Attained, Reconciled]:
        """Attainment and goodput of a slice."""
        counted = await self._counted(of)

        def read() -> tuple[Attained, Reconciled]:
            facts = self._judged(of)
            return self._attained(facts, of, counted, sums(facts))

        return await asyncio.to_thread(read)

    async def groups(self, of: Slice, by: str) -> list[GroupView]:
        """The same for each value of a column, most requests first."""
        counted = await self._counted(of)
        seconds = of.end_s - of.start_s

        def read() -> list[GroupView]:
            facts = self._judged(of)
            against = reconcile(counted.within(facts), counted.counts)
            found = [
                GroupView(
                    None if key is None else str(key), part.height, attainment(sums(part), seconds, reconciled=against)
                )
                for (key,), part in facts.group_by(by, maintain_order=True)
            ]
            return sorted(found, key=lambda g: (-g.requests, g.key or ""))

        return await asyncio.to_thread(read)

    async def cost(self, of: Slice, by: str | None = None) -> RequestCost:
        """What the requests of a service cost in a range."""
        counted = await self._counted(of)
        service = self.watch.service(of.service)
        whole = Slice(of.service, of.start_s, of.end_s)

        def read() -> RequestCost:
            facts = self._judged(whole)
            scale = reconcile(counted.within(facts), counted.counts).scale
            return request_cost(
                facts, counted.bill, counted.covered_s, by=by,
                objective=service.objective if service is not None else None, stands_for=max(1.0, scale or 1.0),
            )  # fmt: skip

        return await asyncio.to_thread(read)

    async def usd_per_hour(self, of: Slice) -> float | None:
        """What an hour of a service's GPUs cost in a range; None where nothing was there, or nobody tells a price."""
        counted = await self._counted(of)
        usd = counted.bill.usd
        return None if usd is None or counted.covered_s <= 0 else usd / counted.covered_s * HOUR_S

    async def scores(self, of: Slice) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Judged facts of a slice, and the scores given to any of them, however late."""
        return await asyncio.to_thread(lambda: (self._judged(of), self._scores_of(of)))

    # -- reading, in a thread ---------------------------------------------------------------------------------------

    def _judged(self, of: Slice, *, everything: bool = False) -> pl.DataFrame:
        """Facts of a slice with verdicts; with ``everything`` only its service and times count. Raises ``StoreError``."""
        count = self.count(of)
        if count > MOST_REQUESTS:
            raise StoreError(
                f"{count:,.0f} requests ended in this range, and at most {MOST_REQUESTS:,} are read one by one; choose a "
                "shorter range"
            )
        columns = {} if everything else {k: v for k, v in of.equal.items() if k in FACTS}
        facts = self.loop.store.facts(of.start_s, of.end_s, service=of.service, **columns)
        judged = self.loop.judged(facts)
        if everything:
            return judged
        verdicts = {k: v for k, v in of.equal.items() if k in _VERDICTS}
        return _inside(judged.filter(*_equal(verdicts)), of)

    def count(self, of: Slice) -> float:
        """Requests of a slice's service and times, by rollups where they are ready. Blocking. Raises ``StoreError``."""
        ranges = self.loop.tiers(of.start_s, of.end_s)
        rolled = self.loop.store.summed_rollups([one for one in ranges if one[0]], ("service",))
        count = float(rolled.filter(pl.col("service") == of.service)["requests"].sum())
        fresh = [(first, last) for tier, first, last in ranges if not tier]
        return count + sum(
            self.loop.store.facts(first, last, columns=("ended_at",), service=of.service).height
            for first, last in fresh
        )

    def _scores_of(self, of: Slice) -> pl.DataFrame:
        return self.loop.store.scores(of.start_s, min(self.loop.clock.now_s() + MINUTE_S, of.end_s + _SCORES_LATER_S))

    def _rolled(self, of: Slice, fields: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rollups of a range: days where whole ones are ready, then hours, minutes, and facts for what is not rolled up.

        The store adds them up but for what the slice filters by, so that a month is a row a cell.
        """
        store, ranges = self.loop.store, self.loop.tiers(of.start_s, of.end_s)
        kept, ours = [one for one in ranges if one[0]], pl.col("service") == of.service
        by = ("service", *(name for name in ("model", "tenant") if name in of.equal))
        if "slo" in of.equal:  # sums do not tell it
            rollups = [store.rollups(*one, service=of.service) for one in kept]
        else:
            rollups = [store.summed_rollups(kept, by).filter(ours)]
        bins = [store.summed_bins(kept, name, by).filter(ours) for name in fields]
        for _, first, last in (one for one in ranges if not one[0]):
            facts = self.loop.judged(store.facts(first, last, service=of.service))
            made = roll_up(facts, self._scores_of(of), rules=self.loop.terms.rules)
            rollups.append(made[0])
            bins.append(made[1].filter(pl.col("field").is_in(list(fields))))
        return (
            pl.concat([pl.DataFrame(schema=ROLLUPS), *rollups]), pl.concat([pl.DataFrame(schema=BINS), *bins]),
        )  # fmt: skip

    def _attained(
        self, facts: pl.DataFrame | None, of: Slice, counted: _Counted, found: Sums
    ) -> tuple[Attained, Reconciled]:
        """Only what is about all requests of a service can be held against the engines' counters."""
        whole = not of.equal and of.slower_than is None and (*of.input_tokens, *of.output_tokens) == (None,) * 4
        counts = counted.counts if whole else None
        seconds, minutes_s = of.end_s - of.start_s, counted.end_s - counted.start_s
        share = minutes_s / seconds if seconds > 0 else 0.0
        inside = counted.within(facts) if facts is not None else _as_one(found, share)
        against = reconcile(inside, counts)
        longer = 1 / share if share else 0.0  # the counters' minutes stand for the seconds before and after them
        return (
            attainment(
                found, seconds, reconciled=against,
                unaccounted=None if counts is None or counts.unaccounted is None else counts.unaccounted * longer,
                finished_tokens=None if counts is None or counts.output_tokens is None else counts.output_tokens * longer,
            ),
            against,
        )  # fmt: skip

    def _covered(self, of: Slice) -> Slice:
        """The range that rollups have an answer for: wider than asked where only hours or days are kept."""
        ranges = self.loop.tiers(of.start_s, of.end_s)
        return replace(of, start_s=ranges[0][1], end_s=ranges[-1][2]) if ranges else of

    async def _counted(self, of: Slice) -> _Counted:
        """Counters are kept by the minute: those that begin before the slice or end after it are left out."""
        start_s, end_s = math.ceil(of.start_s / MINUTE_S) * MINUTE_S, of.end_s // MINUTE_S * MINUTE_S
        whole = start_s < end_s
        first = of.start_s // MINUTE_S * MINUTE_S
        layers = await self.watch.windows(of.service, start_s if whole else first, end_s if whole else of.end_s)
        prices = {name: priced.price for name, priced in self.watch.terms.prices.items()}
        spent = cost(layers.windows, layers.prices(prices), of.end_s - of.start_s)
        counts = engine_counts(layers.windows, self.watch.engines) if whole else None
        bill = Bill(spent.usd.value, spent.idle_usd.value)
        view = self.watch.service(of.service)
        priced = view is not None and any(t.name in prices and prices[t.name].usd_per_hour for t in view.targets)
        if priced and spent.usd.absence is Absence.NO_DATA:
            bill = replace(bill, absence=Absence.NO_DATA, note="no target was there")
        return _Counted(counts, bill, start_s, max(start_s, end_s), covered_s(layers.windows, of.end_s - of.start_s))


def _as_one(found: Sums, share: float) -> pl.DataFrame:
    """A fact that weighs as much as this share of all that were added up: rollups do not tell which an engine saw."""
    row = {
        "engine": "",
        "engine_e2e_s": 0.0,
        "engine_ttft_s": 0.0,
        "weight": found.weighted * share,
        "choices": 1,
        "status": "",
    }
    return pl.DataFrame([dict.fromkeys(FACTS) | row] if found.facts else [], schema=FACTS)


def _in_rollups(of: Slice) -> bool:
    """Whether rollups can answer: they know nothing of single requests, and little of where they ran."""
    keys = {*ROLLUP_KEYS, "slo"}
    bands = (*of.input_tokens, *of.output_tokens)
    return set(of.equal) <= keys and of.slower_than is None and bands == (None,) * 4


def _equal(equal: Mapping[str, str | None]) -> list[pl.Expr]:
    return [pl.col(name).eq_missing(pl.lit(value, pl.String)) for name, value in equal.items()]


def _inside(facts: pl.DataFrame, of: Slice) -> pl.DataFrame:
    """Facts within the slice's token bounds and latency."""
    conditions = []
    for column, (low, high) in (("input_tokens", of.input_tokens), ("output_tokens", of.output_tokens)):
        if low is not None:
            conditions.append(pl.col(column) >= low)
        if high is not None:
            conditions.append(pl.col(column) <= high)
    if of.slower_than is not None:
        conditions.append(pl.col(of.slower_than[0]) > of.slower_than[1])
    return facts.filter(*conditions) if conditions else facts
