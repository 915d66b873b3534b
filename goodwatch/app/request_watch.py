"""The requests of the running service: parts settle into facts, facts into rollups; what pages ask of them.

Two loops. ``settle`` makes facts of the traces that got no part for a while. ``roll`` adds up the minutes whose facts
changed, then their hours and days; what is not rolled up yet is in the facts, which answer for it meanwhile.

A trace settles when nothing came for a while. One that goes on and on (an agent at work for hours) is looked for now and
then and settles as it is, again and again: its requests are not held back until its end.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import polars as pl

from goodwatch.app.telemetry import span
from goodwatch.core.clock import Clock
from goodwatch.core.errors import StoreError
from goodwatch.core.ports import RequestStore
from goodwatch.core.quality import QualityRules
from goodwatch.core.request import Vantage
from goodwatch.signals.assemble import assemble
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.attainment_verdicts import judge
from goodwatch.signals.request_frames import FACTS, LATENCY_FIELDS
from goodwatch.signals.rollup import DAY_S, HOUR_S, MINUTE_S, coarser, roll_up

log = logging.getLogger(__name__)
T = TypeVar("T")

#: traces in one round; a round takes well below a second
_TRACES: Final = 5_000
#: how far back a start looks for what was not rolled up: parts come up to a day late (design §3), of requests of hours
_LATE_S: Final = 46 * 3600.0
_LOOKED_AT_S: Final = 6 * 3600.0  # facts of so long at once
_BATCH_MINUTES: Final = 60
#: traces that are still open are looked for each 5 settling times: what goes on settles within twice that
_LOOKS: Final = 5
_OPEN_TRACES: Final = 300_000
#: a trace of more parts is a broken client's id: reading it again and again would take all the time there is
_OPEN_PARTS: Final = 20_000
#: a score may say that it was given so long before it came, and takes so long to be committed
_SCORED_LATER_S: Final = 7200.0
_COMMIT_S: Final = 10.0
_NO_LIMITS: Final = LimitsTable()


@dataclass(frozen=True, slots=True)
class RequestTerms:
    """What the configuration says of requests."""

    settle_s: float = 60.0
    limits: Mapping[str, LimitsTable] = field(default_factory=dict)  # by service
    vantages: Mapping[str, Vantage] = field(default_factory=dict)
    trace_url: str = ""
    # a little less than the store keeps them by default
    minutes_kept_s: float = 47 * 3600.0
    hours_kept_s: float = 89 * 86_400.0
    facts_kept_s: float = 14 * 86_400.0 - 3600.0
    rules: QualityRules = field(default_factory=QualityRules)


@dataclass(slots=True)
class RequestLoop:
    """Settles and rolls up. ``settled`` gets every batch of facts once, when they count; it runs on the event loop.

    ``running`` says what each target runs now; it is asked on the event loop, for facts that settle within a minute.
    """

    store: RequestStore
    clock: Clock
    terms: RequestTerms = field(default_factory=RequestTerms)
    settled: Callable[[pl.DataFrame], None] = lambda _: None
    running: Callable[[], Mapping[str, str]] = dict
    problem: str = ""  # of the store, "" when it works
    facts_total: int = 0
    late_total: int = 0
    last_s: float | None = None  # when facts were last made
    seen_services: set[str] = field(default_factory=set)
    _scored_s: float = 0.0  # up to when scores were looked at
    # tier → period → which touch was its last: what is touched while it is rolled up stays
    _stale: dict[int, dict[float, int]] = field(default_factory=lambda: {MINUTE_S: {}, HOUR_S: {}, DAY_S: {}})
    _touches: int = 0
    _open: set[str] = field(default_factory=set)  # traces that waited at the last look and have not settled since
    _large: set[str] = field(default_factory=set)
    _look_s: float | None = None  # when to look for open traces next

    async def recover(self) -> None:
        """Find what was not rolled up when goodwatch last stopped. Waits for nothing else."""
        now = self.clock.now_s()
        self._scored_s = now - _SCORED_LATER_S  # what came while nothing was rolled up
        await self._guarded(lambda: self._mark_stale(now), "read what was not rolled up")

    def _mark_stale(self, now: float) -> None:
        """Periods that do not add up to what is below them, and minutes of facts that settled after the last one.

        The first finds what moved out of a minute, and a roll-up that was cut off half-way.
        """
        first = (now - min(_LATE_S, self.terms.minutes_kept_s)) // HOUR_S * HOUR_S + HOUR_S
        minutes = self.store.rollups(MINUTE_S, first, now + HOUR_S)
        rolled = minutes["start_s"].max()
        since = float(rolled) - MINUTE_S if isinstance(rolled, int | float) else 0.0
        counted = [pl.DataFrame(schema={"start_s": pl.Float64, "requests": pl.Float64})]
        at = first
        while at < now + HOUR_S:
            facts = self.store.facts(at, at + _LOOKED_AT_S, columns=("ended_at", "settled_at", "service"))
            self.seen_services.update(facts["service"].drop_nulls().unique().to_list())
            self._touch(facts.filter(pl.col("settled_at") >= since)["ended_at"])
            counted.append(_counts(facts.select(start_s="ended_at", requests=pl.lit(1.0)), MINUTE_S))
            at += _LOOKED_AT_S
        hours = self.store.rollups(HOUR_S, first // DAY_S * DAY_S, now + HOUR_S)
        days = self.store.rollups(DAY_S, first // DAY_S * DAY_S, now + HOUR_S)
        inside = hours.filter(pl.col("start_s") >= first)
        for told, of, tier in (
            (pl.concat(counted), minutes, MINUTE_S),
            (minutes, inside, HOUR_S),
            (hours, days, DAY_S),
        ):
            self._touch(_unlike(_counts(told, tier), _counts(of, tier)))

    async def settle(self) -> int:
        """One round; returns facts that were made."""
        made = await self._guarded(partial(self._settle, self.running()), "settle requests")
        if made is None:
            return 0
        facts, moved = made
        self._touch(facts["ended_at"])
        self._touch(moved)
        fresh, late = facts.filter("_fresh").drop("_fresh"), facts.filter(~pl.col("_fresh") & pl.col("late"))
        self.facts_total += fresh.height
        self.late_total += late.height
        if not facts.is_empty():
            self.last_s = self.clock.now_s()
            self.seen_services.update(facts["service"].drop_nulls().unique().to_list())
            self.settled(fresh)
        return facts.height

    def _settle(self, running: Mapping[str, str]) -> tuple[pl.DataFrame, pl.Series]:
        now = self.clock.now_s()
        ids = self.store.unsettled(now - self.terms.settle_s, _TRACES) or self._long_open(now)
        if not ids:
            return pl.DataFrame(schema={**FACTS, "_fresh": pl.Boolean}), pl.Series(dtype=pl.Float64)
        with span("settle", traces=len(ids)):
            parts = self.store.parts(ids)
            told = pl.col("target").replace_strict(running, default=None, return_dtype=pl.String)
            facts = assemble(parts, now).with_columns(deployment=pl.coalesce("deployment", told))
            replaced = self.store.settle(ids, facts)
        self._open.difference_update(ids)
        self._large.update(parts.group_by("trace_id").len().filter(pl.col("len") > _OPEN_PARTS)["trace_id"].to_list())
        return _with_fresh(facts, parts, replaced), replaced["ended_at"]

    def _long_open(self, now: float) -> list[str]:
        """Traces that got parts all the time between two looks; [] most of the time."""
        if self._look_s is not None and now < self._look_s:
            return []
        self._look_s = now + _LOOKS * self.terms.settle_s
        waiting = self.store.unsettled(now + MINUTE_S, _OPEN_TRACES)
        self._large.intersection_update(waiting)
        long = [one for one in waiting if one in self._open and one not in self._large]
        self._open = set(waiting)
        return long[:_TRACES]

    def _touch(self, ended_at: pl.Series) -> None:
        ended = ended_at.drop_nulls()
        self._touches += 1
        for tier, stale in self._stale.items():
            stale.update(dict.fromkeys((ended // tier * tier).unique().to_list(), self._touches))
        # An hour whose minutes are dropped already is made of them anew: all of them, or it would lose the others.
        old = self.clock.now_s() - self.terms.minutes_kept_s
        for hour in (ended.filter(ended < old + HOUR_S) // HOUR_S * HOUR_S).unique():
            minutes = (hour + n * MINUTE_S for n in range(HOUR_S // MINUTE_S))
            self._stale[MINUTE_S].update(dict.fromkeys(minutes, self._touches))

    def _rolled_up(self, tier: int, starts: list[float], touches: int) -> None:
        """Forget the marks of periods that nobody touched since they were read."""
        stale = self._stale[tier]
        for start in starts:
            if stale.get(start, 0) <= touches:
                stale.pop(start, None)

    async def roll(self) -> None:
        """Roll up what changed: minutes that are over and settled, then the hours and days above them."""
        now = self.clock.now_s()
        await self._guarded(partial(self._mark_scored, now), "read which requests were scored")
        over = now - self.terms.settle_s
        minutes = sorted(m for m in self._stale[MINUTE_S] if m + MINUTE_S <= over)
        for first in range(0, len(minutes), _BATCH_MINUTES):
            batch, touches = minutes[first : first + _BATCH_MINUTES], self._touches
            if await self._guarded(partial(self._roll_minutes, batch), "roll up minutes") is None:
                return
            self._rolled_up(MINUTE_S, batch, touches)
        for tier, finer in ((HOUR_S, MINUTE_S), (DAY_S, HOUR_S)):
            waiting = {m // tier * tier for m in self._stale[finer]}
            due = sorted(p for p in self._stale[tier] if p not in waiting)
            for start in due:
                touches = self._touches
                if await self._guarded(partial(self._roll, start, tier, finer), "roll up") is None:
                    return
                self._rolled_up(tier, [start], touches)

    def _mark_scored(self, now: float) -> bool:
        """Mark the minutes of requests that were scored since the last look: scores come after the request."""
        since, self._scored_s = self._scored_s, now
        scores = self.store.scores(since - _SCORED_LATER_S, now + MINUTE_S)
        fresh = scores.filter(pl.col("received_s") >= since - _COMMIT_S)
        if not fresh.is_empty():
            facts = self.store.facts(
                now - self.terms.minutes_kept_s, now + MINUTE_S, columns=("trace_id", "response_id", "ended_at")
            )
            about = [
                pl.col(key).is_in(fresh[key].drop_nulls().unique().implode()) for key in ("trace_id", "response_id")
            ]
            self._touch(facts.filter(pl.any_horizontal(*about))["ended_at"])
        return True

    def _roll_minutes(self, minutes: list[float]) -> bool:
        facts = pl.concat(
            [self.store.facts(first, last + MINUTE_S) for first, last in _runs(minutes)] or [pl.DataFrame(schema=FACTS)]
        )
        scores = self.store.scores(minutes[0], self.clock.now_s() + MINUTE_S)
        self.store.replace_rollups(MINUTE_S, minutes, *roll_up(self.judged(facts), scores, rules=self.terms.rules))
        return True

    def _roll(self, start: float, tier: int, finer: int) -> bool:
        rollups = self.store.rollups(finer, start, start + tier)
        bins = pl.concat([self.store.bins(finer, start, start + tier, name) for name in LATENCY_FIELDS])
        self.store.replace_rollups(tier, [start], *coarser(rollups, bins, tier))
        return True

    def tiers(self, start_s: float, end_s: float) -> list[tuple[int, float, float]]:
        """The fewest ranges (tier, first, last) that cover ``[start_s, end_s)``; tier 0 is what only facts tell.

        Where minutes are dropped already, facts tell the ends of the range. Where facts are dropped as well, it is
        widened to whole hours or days: the first and the last range say to which.
        """
        now, terms = self.clock.now_s(), self.terms
        dropped = now - terms.facts_kept_s
        kept = {DAY_S: -math.inf, HOUR_S: now - terms.hours_kept_s, MINUTE_S: now - terms.minutes_kept_s}
        found: list[tuple[int, float, float]] = []
        at = start_s
        if start_s < dropped:
            at -= at % (HOUR_S if at - at % HOUR_S >= kept[HOUR_S] else DAY_S)
        while at < end_s:
            ready = (t for t, from_s in kept.items() if at % t == 0 and at >= from_s and at not in self._stale[t])
            tier = next((t for t in ready if at + t <= end_s), 0)
            last = at + tier if tier else min(end_s, at + MINUTE_S - at % MINUTE_S)
            if not tier and at < dropped:
                tier = HOUR_S if at >= kept[HOUR_S] else DAY_S
                last = at + tier
            if found and found[-1][0] == tier and found[-1][2] == at:
                found[-1] = (tier, found[-1][1], last)
            else:
                found.append((tier, at, last))
            at = last
        return found

    def judged(self, facts: pl.DataFrame) -> pl.DataFrame:
        """Facts with the verdict of their own service's targets, at its vantage point."""
        parts = [
            judge(part, self.terms.limits.get(str(name), _NO_LIMITS), vantage=self.vantage(str(name)))
            for (name,), part in facts.group_by("service", maintain_order=True)
        ]
        return pl.concat(parts) if parts else judge(facts, _NO_LIMITS, vantage=Vantage.ENGINE)

    def vantage(self, service: str) -> Vantage:
        """Whose stopwatch judges a service."""
        return self.terms.vantages.get(service, Vantage.ENGINE)

    async def _guarded(self, work: Callable[[], T], what: str) -> T | None:
        try:
            found = await asyncio.to_thread(work)
        except StoreError as error:
            if not self.problem:
                log.error("request store failed", extra={"what": what, "problem": str(error)})
            self.problem = str(error)
            return None
        self.problem = ""
        return found


def _runs(minutes: list[float]) -> list[tuple[float, float]]:
    """Runs of adjacent minutes, as (first, last)."""
    runs: list[tuple[float, float]] = []
    for minute in minutes:
        if runs and minute - runs[-1][1] == MINUTE_S:
            runs[-1] = (runs[-1][0], minute)
        else:
            runs.append((minute, minute))
    return runs


def _counts(rows: pl.DataFrame, tier: int) -> pl.DataFrame:
    """Requests per period of a tier; columns start_s, requests."""
    return rows.group_by(pl.col("start_s") // tier * tier).agg(pl.col("requests").sum())


def _unlike(told: pl.DataFrame, rolled: pl.DataFrame) -> pl.Series:
    """Starts of periods whose requests are not the same in both."""
    both = told.join(rolled, on="start_s", how="full", coalesce=True, suffix="_rolled")
    return both.filter(pl.col("requests").ne_missing(pl.col("requests_rolled")))["start_s"]


def _with_fresh(facts: pl.DataFrame, parts: pl.DataFrame, replaced: pl.DataFrame) -> pl.DataFrame:
    """Facts with ``_fresh``: those that were not counted before, when their trace settled earlier.

    A trace that had n facts has counted n requests; what else it holds now is new. Those of which something came first
    are the ones that it had.
    """
    came = parts.group_by("trace_id", "span_id").agg(pl.col("received_s").min())
    had = replaced.group_by("trace_id").agg(pl.len().alias("_had"))
    outer = came.rename({"span_id": "fact_id", "received_s": "_outer"})
    return (
        facts.join(had, on="trace_id", how="left", maintain_order="left")
        .join(outer, on=("trace_id", "fact_id"), how="left", maintain_order="left")
        .join(came, on=("trace_id", "span_id"), how="left", maintain_order="left")
        .with_columns(
            pl.struct(pl.min_horizontal("_outer", "received_s"), "fact_id")
            .rank("ordinal")
            .over("trace_id")
            .alias("_nth")
        )
        .with_columns((pl.col("_nth") > pl.col("_had").fill_null(0)).alias("_fresh"))
        .select(*facts.columns, "_fresh")
    )
