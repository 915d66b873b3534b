"""The running watch: takes pages in, keeps them, derives, and answers what the pages, the API and the exporter ask."""

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from collector.pipeline import Understood
from collector.scrape import Fetched
from collector.targets import TargetSpec
from goodwatch.app import history
from goodwatch.app.build import ServiceInputs, TargetFacts, service_view, target_view
from goodwatch.app.config import Service
from goodwatch.app.fleet import KEPT_S, Read, TargetState, minute_of
from goodwatch.app.keeper import Keeper
from goodwatch.app.recovery import recovered
from goodwatch.app.view import Event, Health, Reloaded, ServiceView, StoreView, TargetView
from goodwatch.app.wiring import Priced, limits_of
from goodwatch.core.clock import Clock
from goodwatch.core.engine import Engine
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Deployment, Scrape, Target
from goodwatch.core.ports import SampleStore
from goodwatch.signals.increments import fold, rows_frame

log = logging.getLogger(__name__)

#: A minute is folded this long after its end, so that a scrape that began in it has arrived.
_SETTLE_S = 15.0
#: So much more history is read ahead of a range: what was in flight, and up, when it began.
_LEAD_S = 900.0
#: A target that discovery loses for a moment (a resolver that hiccups, a list that is rewritten) and finds again goes
#: on counting from where it was.
_ABSENCE_S = 600.0
_RANK = {"bad": 0, "warning": 1, "no data": 2, "no traffic": 3, "good": 4}


@dataclass(slots=True)
class Terms:
    """What the configuration says of services, prices and windows; replaced whole at a reload."""

    services: Mapping[str, Service]
    prices: Mapping[str, Priced]  # by target
    window_s: float = 300.0
    external_url: str = ""


class Reloader(Protocol):
    """Reads the configuration again and applies it."""

    async def reload(self) -> Reloaded:
        """Outcome of reading it again."""
        ...


@dataclass(slots=True)
class Watch:
    """Implements ``goodwatch.app.view.Views``. Lives on the event loop; heavy work goes to threads."""

    engines: Mapping[str, Engine]
    store: SampleStore
    keeper: Keeper
    clock: Clock
    terms: Terms
    demo_note: str = ""
    states: dict[str, TargetState] = field(default_factory=dict)
    absent: dict[str, tuple[TargetState, float]] = field(default_factory=dict)  # gone, and since when (monotonic)
    shown: dict[str, ServiceView] = field(default_factory=dict)
    reloader: Reloader | None = None

    @property
    def external_url(self) -> str:
        """URL under which people reach goodwatch, "" when not configured."""
        return self.terms.external_url

    def now_s(self) -> float:
        """The service's clock."""
        return self.clock.now_s()

    # -- in ---------------------------------------------------------------------------------------------------------

    def update(self, specs: Sequence[TargetSpec]) -> None:
        """Watch exactly these targets; one that stays the same keeps its state, also over a short absence."""
        wanted = {s.target.name: s for s in specs}
        now = self.clock.monotonic_s()
        for name in set(self.states) - set(wanted):
            self.absent[name] = (self.states.pop(name), now)
        self.absent = {n: (s, since) for n, (s, since) in self.absent.items() if now - since <= _ABSENCE_S}
        for name, spec in wanted.items():
            known = self.states.get(name) or self.absent.pop(name, (None, now))[0]
            if known is None or known.spec.target != spec.target:
                known = TargetState.of(spec, self.engines)
            known.follow(spec)
            self.states[name] = known

    async def take(self, spec: TargetSpec, fetched: Fetched) -> None:
        """One scrape's answer: digested in a thread, then queued for the store."""
        state = self.states.get(spec.target.name)
        if state is None:
            return
        read = await asyncio.to_thread(state.read, fetched)
        state.accept(read)
        # Until the engine has told its version, a bracket by names would be recorded and soon corrected: two events.
        self.keeper.keep(read.scrape, read.deployment if state.version_settled else None)

    def take_scrape(
        self, target: Target, scrape: Scrape, understood: Understood | None, deployment: Deployment | None
    ) -> bool:
        """One scrape that was read elsewhere; False when it is not new, or of no target that is watched."""
        state = self.states.get(target.name)
        if state is None or state.spec.target != target:
            return False
        if scrape.up and state.tracker.last_s is not None and scrape.ts <= state.tracker.last_s:
            return False
        state.version_settled = True  # there is no engine to ask
        state.accept(Read(scrape, understood, deployment))
        self.keeper.keep(scrape, deployment)
        return True

    async def recover(self, names: Collection[str] | None = None) -> None:
        """Counters' last values and recent steps from the store, so that a restart of goodwatch loses nothing.

        ``names`` are the targets to recover, all without it; only those that have no scrape yet.
        """
        now = self.clock.now_s()
        try:
            scrapes = await self.keeper.call(lambda: recovered(self.store, now, KEPT_S))
        except StoreError as error:
            log.error("cannot recover from the store", extra={"problem": str(error)})
            return
        for name, found in scrapes.items():
            state = self.states.get(name)
            if state is not None and state.last is None and (names is None or name in names):
                for scrape in found.scrapes:
                    state.take(scrape)
                state.unfolded = {m for m in state.unfolded if m > found.folded_s}

    # -- derive -----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Derive every service anew, publish, and keep what was published."""
        now = self.clock.now_s()
        names = sorted({s.spec.target.service for s in self.states.values()} | set(self.terms.services))
        views = [await asyncio.to_thread(service_view, self._inputs(name, now), self.engines) for name in names]
        self.shown = {v.name: v for v in views}
        rows = [row for v in views for row in _published(v)]
        if rows:
            await self.keeper.append_derived(history.derived_frame(rows))

    async def fold_minutes(self) -> None:
        """Fold the steps of finished minutes and keep them; a minute that could not be written is tried again."""
        until = minute_of(self.clock.now_s() - _SETTLE_S)
        everyone = [*self.states.values(), *(state for state, _ in self.absent.values())]
        due = [(state, {m for m in state.unfolded if m < until}) for state in everyone]
        rows = [row for state, minutes in due for row in state.minute_rows(minutes)]
        if not rows:
            return
        folded = await asyncio.to_thread(lambda: fold(rows_frame(rows)))
        if await self.keeper.append_minutes(folded):
            for state, minutes in due:
                state.unfolded -= minutes

    def _inputs(self, name: str, now: float) -> ServiceInputs:
        """What a service's view is made of, gathered on the event loop; values only, so a thread can take it."""
        start = now - self.terms.window_s
        members = [s for s in self._states() if s.spec.target.service == name]
        return ServiceInputs(
            name,
            self.terms.services.get(name),
            tuple(
                TargetFacts(
                    s.spec.target, s.last, s.understood, s.deployment, self.terms.prices.get(s.spec.target.name)
                )
                for s in members
            ),
            [r for s in members for r in s.rows(start, now)],
            [r for s in members for r in s.before(start)],
            start,
            now,
        )

    def _states(self) -> list[TargetState]:
        return [self.states[name] for name in sorted(self.states)]

    # -- out --------------------------------------------------------------------------------------------------------

    def services(self) -> list[ServiceView]:
        """All services, worst first."""
        return sorted(self.shown.values(), key=lambda v: (_RANK[v.state], v.name))

    def service(self, name: str) -> ServiceView | None:
        """One service; None when unknown."""
        return self.shown.get(name)

    def targets(self) -> list[TargetView]:
        """All targets by name."""
        return sorted((t for v in self.shown.values() for t in v.targets), key=lambda t: t.name)

    def target(self, name: str) -> TargetView | None:
        """One target with its capability report; None when unknown."""
        state = self.states.get(name)
        if state is None:
            return None
        known = next((t for t in self.targets() if t.name == name), None)
        facts = TargetFacts(
            state.spec.target, state.last, state.understood, state.deployment, self.terms.prices.get(name)
        )
        view = target_view(facts, known.derived if known else None)
        limits = limits_of(self.terms.services.get(state.spec.target.service))
        return dataclasses.replace(view, capability=state.report(limits, self.clock.now_s()))

    async def series(
        self, service: str, start_s: float, end_s: float, *, step_s: float | None = None, target: str | None = None
    ) -> pl.DataFrame:
        """Derived numbers per step of a range, as ``frames.DERIVED``. Raises ``StoreError``."""
        step = step_s or history.step_for(end_s - start_s)
        first = start_s // step * step - max(step, _LEAD_S)
        kept = await self.keeper.call(lambda: self.store.minutes(first, end_s, service=service, target=target))
        members = [
            s for s in self._states() if s.spec.target.service == service and target in (None, s.spec.target.name)
        ]
        fresh = [row for s in members for row in s.minute_rows({m for m in s.unfolded if first <= m < end_s})]
        again = [(s.spec.target.name, m) for s in members for m in s.unfolded]
        limits = limits_of(self.terms.services.get(service))
        prices = {name: priced.price for name, priced in self.terms.prices.items()}

        def build() -> pl.DataFrame:
            minutes = _replaced(kept, again, fold(rows_frame(fresh))) if fresh else kept
            return history.series(
                minutes, self.engines, limits, prices, start_s=start_s, end_s=end_s, step_s=step
            ).with_columns(pl.lit(service).alias("service"), pl.lit(target or "").alias("target"))

        return await asyncio.to_thread(build)

    async def events(self, start_s: float, end_s: float, *, service: str | None = None) -> list[Event]:
        """What happened in the interval, oldest first. Raises ``StoreError``."""
        changes = await self.keeper.call(lambda: self.store.deployments(start_s, end_s, service=service))
        marks = await self.keeper.call(
            lambda: self.store.minutes(start_s - _LEAD_S, end_s, service=service, signals=["restarts_total", "up"])
        )
        found = [
            Event(
                d.ts, d.service, d.target, "deployment", f"{d.target} runs {d.engine} {d.engine_version} with {d.model}"
            )
            for d in changes
        ]
        marked = [e for e in _mark_events(marks) if e.ts >= start_s]
        return sorted([*found, *marked], key=lambda e: (e.ts, e.target))

    def health(self) -> Health:
        """State of goodwatch itself."""
        keeper = self.keeper
        lost = f"; {keeper.dropped_total} scrapes were dropped" if keeper.dropped_total else ""
        store = StoreView(not keeper.message, keeper.message + lost, keeper.lag_s, self.store_bytes)
        pending = sum(s.last is None for s in self.states.values())
        ready = bool(self.shown) or not self.states
        message = store.message or (f"{pending} targets not scraped yet" if pending else "")
        return Health(store.ok, ready, message, store)

    @property
    def store_bytes(self) -> int:
        """Size of the store's files, as last seen."""
        return self.keeper.store_bytes

    async def reload(self) -> Reloaded:
        """Read the configuration again; a bad one is refused and the old one stays."""
        if self.reloader is None:
            return Reloaded(False, ("this service has no configuration file to read again",))
        return await self.reloader.reload()


def _published(view: ServiceView) -> list[tuple[Any, ...]]:
    rows = history.derived_rows(view.derived, view.name, "", "")
    for model, derived in view.by_model.items():
        if len(view.by_model) > 1:
            rows += history.derived_rows(derived, view.name, "", model)
    for target in view.targets:
        if target.derived is not None and len(view.targets) > 1:
            rows += history.derived_rows(target.derived, view.name, target.name, "")
    return rows


def _replaced(kept: pl.DataFrame, again: list[tuple[str, float]], fresh: pl.DataFrame) -> pl.DataFrame:
    """Kept minutes, those of ``again`` (target, minute) taken from ``fresh`` instead."""
    keys = pl.DataFrame(again, schema={"target": pl.String, "minute_s": pl.Float64}, orient="row")
    return pl.concat([kept.join(keys, on=["target", "minute_s"], how="anti"), fresh])


def _mark_events(marks: pl.DataFrame) -> list[Event]:
    """Restarts, and the edges of outages, from the minutes that tell of them."""
    found: list[Event] = []
    for row in marks.filter((pl.col("signal") == "restarts_total") & (pl.col("increase") > 0)).iter_rows(named=True):
        found.append(Event(row["minute_s"], row["service"], row["target"], "restart", f"{row['target']} restarted"))
    ups = marks.filter(pl.col("signal") == "up").sort("minute_s")
    for (target,), one in ups.partition_by("target", as_dict=True).items():
        was = True  # one that was down before all that was read gets its event there, ahead of the range
        for row in one.iter_rows(named=True):
            now_up = row["max"] > 0
            if now_up != was:
                kind, text = ("up", "can be read again") if now_up else ("down", "cannot be read")
                found.append(Event(row["minute_s"], row["service"], str(target), kind, f"{target} {text}"))
            was = now_up
    return found
