"""The running watch: takes pages in, keeps them, derives, and answers what the pages, the API and the exporter ask."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from collector.pipeline import Understood
from collector.scrape import Fetched
from collector.targets import TargetSpec
from goodwatch.app import history
from goodwatch.app.accelerators import Holding, Holdings
from goodwatch.app.build import ServiceInputs, TargetFacts, place_of, service_view, target_view
from goodwatch.app.config import Service
from goodwatch.app.engines import known_accelerators
from goodwatch.app.fleet import KEPT_S, Read, TargetState, minute_of
from goodwatch.app.keeper import Keeper
from goodwatch.app.recovery import recovered
from goodwatch.app.view import Event, Health, Reloaded, ServiceView, StoreView, TargetView
from goodwatch.app.wiring import Priced, limits_of
from goodwatch.core.clock import Clock
from goodwatch.core.engine import Engine
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Deployment, Number, Scrape, Target
from goodwatch.core.ports import SampleStore
from goodwatch.signals.frames import MINUTES
from goodwatch.signals.increments import fold, rows_frame
from goodwatch.signals.layers import Layered, Place, layered
from goodwatch.signals.windows import target_windows

log = logging.getLogger(__name__)

#: A minute is folded this long after its end, so that a scrape that began in it has arrived.
_SETTLE_S = 15.0
#: So much more history is read ahead of a range: what was in flight, and up, when it began.
_LEAD_S = 900.0
#: A window shorter than this is made of single steps: whole minutes would be too coarse for it.
_SHORT_WINDOW_S = 120.0
#: So many last scrapes of a target are looked at one by one, for work without progress.
_RECENT_STEPS = 6
#: What those scrapes are looked at for.
_TELL_STALLS = frozenset({"up", "requests_running", "requests_waiting", "progress_total"})
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
    holding: Mapping[str, Holding] = field(default_factory=dict)  # by target
    device_hosts: Mapping[str, str] = field(default_factory=dict)  # by exporter: whose devices it has


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
    folded: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MINUTES))  # the last minutes, as kept
    reloader: Reloader | None = None
    from_requests: Callable[[str], Mapping[str, Number]] = lambda _: {}  # numbers that only single requests tell
    accelerators: Mapping[str, Engine] = field(default_factory=known_accelerators)
    holdings: Holdings = field(default_factory=Holdings)

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
                tables = self.accelerators if spec.target.kind == "accelerator" else self.engines
                known = TargetState.of(spec, tables)
            known.follow(spec)
            self.states[name] = known
        self.holdings.follow(self.states, self.terms.holding)

    async def take(self, spec: TargetSpec, fetched: Fetched) -> None:
        """One scrape's answer: digested, in a thread when that takes long, then queued for the store."""
        state = self.states.get(spec.target.name)
        if state is None:
            return
        read = state.read_again(fetched)
        if read is None:
            read = await asyncio.to_thread(state.read, fetched)
        state.accept(read)
        if spec.target.kind == "accelerator":
            await self.holdings.take(state, self.states, self.terms.device_hosts.get(spec.target.name))
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
        self.folded = await self.keeper.call(lambda: self.store.minutes(now - self._reach_s, now))
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
        engines = [s.spec.target for s in self.states.values() if s.spec.target.kind == "engine"]
        names = sorted({t.service for t in engines} | set(self.terms.services))
        views = [await asyncio.to_thread(service_view, self._inputs(name, now), self.engines) for name in names]
        views = [_with_numbers(v, self.from_requests(v.name)) for v in views]
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
            again = [(state.spec.target.name, m) for state, minutes in due for m in minutes]
            self.folded = _replaced(self.folded, again, folded).filter(pl.col("minute_s") >= until - self._reach_s)
            for state, minutes in due:
                state.unfolded -= minutes

    @property
    def _reach_s(self) -> float:
        """How much of the folded past is held in memory: the window, and what was in flight when it began."""
        return self.terms.window_s + _LEAD_S

    def _inputs(self, name: str, now: float) -> ServiceInputs:
        """What a service's view is made of, gathered on the event loop; values only, so a thread can take it.

        A long window begins with a minute and is made of folded minutes and the steps since, so that what a window
        costs does not grow with the number of scrapes in it.
        """
        members = [s for s in self._states() if s.spec.target.service == name and s.spec.target.kind == "engine"]
        facts = tuple(_facts(s, self.terms.prices.get(s.spec.target.name)) for s in members)
        bare = {s.spec.target.name: self.holdings.why_none(s.spec.target.name) for s in members}
        service = self.terms.services.get(name)
        start = now - self.terms.window_s
        if self.terms.window_s < _SHORT_WINDOW_S:
            rows = [r for s in members for r in s.rows(start, now)]
            before = [r for s in members for r in s.before(start)]
            held = [r for s in members for r in s.device_rows(start, now)]
            return ServiceInputs(
                name, service, facts, [*rows, *held], before, start, now, recent=rows, no_devices=bare
            )  # fmt: skip
        start = minute_of(start)
        names = [s.spec.target.name for s in members]
        mine = self.folded.filter(pl.col("target").is_in(names))
        rows = [r for s in members for r in s.minute_rows({m for m in s.unfolded if m >= start})]
        again = [(s.spec.target.name, m) for s in members for m in s.unfolded]
        inside = _replaced(mine.filter(pl.col("minute_s") >= start), again, mine.clear())
        recent = [r for s in members for r in s.last_rows(_RECENT_STEPS) if r["signal"] in _TELL_STALLS]
        return ServiceInputs(
            name, service, facts, rows, [], start, now, minutes=inside,
            minutes_before=mine.filter(pl.col("minute_s") < start), recent=recent, no_devices=bare,
        )  # fmt: skip

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
        exporters = [target_view(_facts(s), None) for s in self._states() if s.spec.target.kind == "accelerator"]
        return sorted([*(t for v in self.shown.values() for t in v.targets), *exporters], key=lambda t: t.name)

    def target(self, name: str) -> TargetView | None:
        """One target with its capability report; None when unknown."""
        state = self.states.get(name)
        if state is None:
            return None
        known = next((t for t in self.targets() if t.name == name), None)
        view = target_view(_facts(state, self.terms.prices.get(name)), known.derived if known else None)
        limits, now = limits_of(self.terms.services.get(state.spec.target.service)), self.clock.now_s()
        devices = self.holdings.views(name, self.states)
        return dataclasses.replace(
            view,
            capability=state.report(limits, now),
            devices=devices,
            devices_note="" if devices else self.holdings.why_none(name),
            device_numbers=self.holdings.numbers(name, self.states, now - self.terms.window_s, now),
        )

    async def series(
        self, service: str, start_s: float, end_s: float, *, step_s: float | None = None, target: str | None = None
    ) -> pl.DataFrame:
        """Derived numbers per step of a range, as ``frames.DERIVED``. Raises ``StoreError``."""
        step = step_s or history.step_for(end_s - start_s)
        minutes = await self._minutes(service, start_s // step * step - max(step, _LEAD_S), end_s, target)
        limits = limits_of(self.terms.services.get(service))
        prices = {name: priced.price for name, priced in self.terms.prices.items()}
        # A target's own numbers are its own: only a whole service leaves some out.
        places = dict if target else self._places(service)

        def build() -> pl.DataFrame:
            return history.series(
                minutes(), self.engines, limits, prices, start_s=start_s, end_s=end_s, step_s=step, places=places()
            ).with_columns(pl.lit(service).alias("service"), pl.lit(target or "").alias("target"))

        return await asyncio.to_thread(build)

    async def windows(self, service: str, start_s: float, end_s: float) -> Layered:
        """All that was counted of a service in a range of whole minutes, nothing twice. Raises ``StoreError``."""
        minutes = await self._minutes(service, start_s - _LEAD_S, end_s, None)
        prices = {name: priced.price for name, priced in self.terms.prices.items()}
        places = self._places(service)

        def build() -> Layered:
            rows, at = minutes(), pl.col("minute_s")
            inside, before = rows.filter(at >= start_s, at < end_s), rows.filter(at < start_s)
            return layered(target_windows(inside, before, start_s, end_s), self.engines, places(), prices=prices)

        return await asyncio.to_thread(build)

    async def _minutes(
        self, service: str, first_s: float, end_s: float, target: str | None
    ) -> Callable[[], pl.DataFrame]:
        """Minutes of a range, those that are not folded yet included: to be called in a thread."""
        kept = await self.keeper.call(lambda: self.store.minutes(first_s, end_s, service=service, target=target))
        members = [
            s for s in self._states() if s.spec.target.service == service and target in (None, s.spec.target.name)
        ]
        fresh = [row for s in members for row in s.minute_rows({m for m in s.unfolded if first_s <= m < end_s})]
        again = [(s.spec.target.name, m) for s in members for m in s.unfolded]
        return lambda: _replaced(kept, again, fold(rows_frame(fresh))) if fresh else kept

    def _places(self, service: str) -> Callable[[], dict[str, Place]]:
        """Where the targets of a service stand, when more is known than their engines' roles: to be called in a thread."""
        stands = [(s.spec.target, s.understood) for s in self._states() if s.spec.target.service == service]
        return lambda: {t.name: place for t, page in stands if (place := place_of(t, page)) is not None}

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


def _facts(state: TargetState, priced: Priced | None = None) -> TargetFacts:
    return TargetFacts(state.spec.target, state.last, state.understood, state.deployment, priced)


def _with_numbers(view: ServiceView, numbers: Mapping[str, Number]) -> ServiceView:
    derived = dataclasses.replace(view.derived, numbers={**view.derived.numbers, **numbers})
    return dataclasses.replace(view, derived=derived) if numbers else view


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
