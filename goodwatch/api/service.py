"""The service: every part put together, run until told to stop, stopped in order."""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from fastapi import FastAPI
from prometheus_client import Metric

from collector.discovery.port import Discovery
from collector.scrape import Scraper, Session
from collector.stores.duckdb import DuckDBStore
from collector.stores.sqlite_records import SqliteRecords
from collector.targets import merge
from exporters.prometheus import Exporter, SelfMetrics
from goodwatch import __version__
from goodwatch.api.app import create_app
from goodwatch.api.auth import Auth
from goodwatch.api.jobs import Work, scheduled
from goodwatch.api.routers import Parts, routers
from goodwatch.api.server import Server, is_loopback, listener, url_of
from goodwatch.app import config, logs, wiring
from goodwatch.app.answering import Answering
from goodwatch.app.discovering import Discovering
from goodwatch.app.engines import known_engines
from goodwatch.app.guard import check_packages
from goodwatch.app.improving import COUNT_EVERY_S, WORK_EVERY_S, Improvement, improvement
from goodwatch.app.intake import Intake
from goodwatch.app.keeper import Keeper
from goodwatch.app.prices import load_prices
from goodwatch.app.promises import Ground, Promises, promises
from goodwatch.app.pulling import Pulling, source_options
from goodwatch.app.rating import Rating
from goodwatch.app.request_wiring import open_request_store
from goodwatch.app.ruling import slos_of
from goodwatch.app.telemetry import Telemetry, snapshot, span
from goodwatch.app.view import Reloaded
from goodwatch.app.watch import Terms, Watch
from goodwatch.core.clock import Clock, SystemClock
from goodwatch.core.errors import ConfigError, StoreError
from goodwatch.core.model import Deployment
from goodwatch.core.ports import RecordStore, RequestStore

log = logging.getLogger(__name__)

#: Settings that are read once; a change of them is told, and waits for a restart.
_AT_START: Final = (
    "listen",
    "insecure",
    "data_dir",
    "auth",
    "retention",
    "telemetry",
    "otlp",
    "quality",
    "alerting",
    "report",
    "log",
)
_GC_THRESHOLDS: Final = (100_000, 50, 50)
_SETTLE_EVERY_S: Final = 2.0
_ROLL_EVERY_S: Final = 30.0
_LAG_EVERY_S: Final = 0.05

Prepare = Callable[["Service"], Awaitable[None]]
#: runs as long as the service does
Beside = Callable[["Service"], Coroutine[Any, Any, None]]


async def serve(
    file: Path,
    *,
    prepare: Prepare | None = None,
    beside: Beside | None = None,
    note: str = "",
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run the service on a configuration file until SIGTERM or SIGINT.

    Raises ``ConfigError`` or ``StoreError`` when it cannot start, with what to do about it. ``prepare`` runs after
    recovery and before the first scrape, ``beside`` as long as the service; ``ready`` is called with the URL once the
    port answers.
    """
    check_packages()
    # Pages are short-lived trees beside long-lived rows; the default thresholds walk the rows after every few pages.
    gc.set_threshold(*_GC_THRESHOLDS)
    settings = config.load(file, engines=known_engines(), environ=os.environ)
    logs.set_up(settings.log.level, settings.log.format)
    for warning in config.warnings(settings):
        log.warning("configuration", extra={"advice": warning})
    clock = SystemClock()
    with listener("listen", settings.listen) as listening, ExitStack() as opened:
        store = await asyncio.to_thread(wiring.open_store, settings, clock)
        opened.callback(store.close)
        requests = await asyncio.to_thread(open_request_store, settings, clock)
        opened.callback(requests.close)
        records = SqliteRecords(Path(settings.data_dir) / "records.sqlite")
        opened.callback(records.close)
        service = Service(file, settings, Stores(store, requests, records), listening, clock)
        service.watch.demo_note = note
        await service.run(prepare=prepare, beside=beside, ready=ready)


@dataclass(frozen=True, slots=True)
class Stores:
    """What is kept: samples of engines, requests from traces, and records of what happens seldom."""

    samples: DuckDBStore
    requests: RequestStore
    records: RecordStore


class Service:
    """All parts of the running service."""

    promises: Promises
    improvement: Improvement

    def __init__(
        self, file: Path, settings: config.Settings, stores: Stores, listener: socket.socket, clock: Clock
    ) -> None:
        store = stores.samples
        self.file = file
        self.listener = listener
        self.settings = settings
        self.engines = known_engines()
        self.store = store
        self.records = stores.records
        self.clock = clock
        self.own = SelfMetrics(__version__)
        self.keeper = Keeper(store, clock, on_error=self.own.store_error)
        self.book = load_prices(settings.prices)
        self.watch = Watch(self.engines, store, self.keeper, clock, Terms({}, {}), reloader=self)
        self.answering = Answering(self.watch, self.own, clock, background=self._background, retarget=self._retarget)
        self.scraper = Scraper(self.answering.on_page)
        self.pulling = Pulling(self.watch, retarget=self._retarget, scraped=self.answering.on_pulled)
        self.discovering = Discovering(self._retarget)
        self.rating = Rating(settings.quality, Path(settings.data_dir), stores.requests, clock, self._deployments)
        self.intake = Intake(settings, stores.requests, self.watch, clock, self.rating)
        self.auth = Auth.of(
            [(t.name, t.role, t.token.get_secret_value()) for t in settings.auth.tokens],
            loopback=is_loopback(settings.listen_host), insecure=settings.insecure,
        )  # fmt: skip
        self._beside: set[asyncio.Task[None]] = set()
        self._reloading = asyncio.Lock()
        self._stop = asyncio.Event()

    async def run(
        self,
        *,
        prepare: Prepare | None = None,
        beside: Beside | None = None,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Run until ``stop``."""
        telemetry = Telemetry.start(self.settings.telemetry, version=__version__)
        self.own.reloaded(True, self.clock.now_s())
        async with AsyncExitStack() as stack:
            self._session = self.answering.session = await stack.enter_async_context(Session())
            self.pulling.use(await asyncio.to_thread(source_options, self.settings))
            await self._apply(self.settings, self._discoveries_of(self.settings))
            await self.watch.recover()
            if prepare is not None:
                await prepare(self)
            await self.watch.refresh()
            authorised = None if self.auth.open else self.auth.may_send
            await stack.enter_async_context(self.rating.running())
            await stack.enter_async_context(self.intake.listening(authorised))
            ground = Ground(self.store, self.keeper, self.records, self.intake, self.watch, self.clock)
            self.promises = await stack.enter_async_context(promises(self.settings, ground))
            self.improvement = await stack.enter_async_context(improvement(self.settings, ground, self.promises))
            server = Server(self.app())
            tasks = [
                asyncio.create_task(work, name=name)
                for name, work in (
                    ("web", server.serve(sockets=[self.listener])), ("scraper", self.scraper.run()), ("keeper", self.keeper.run()),
                    ("prometheus", self.pulling.run()), ("watchdog", self._watch_loop()),
                )
            ]  # fmt: skip
            if beside is not None:
                tasks.append(asyncio.create_task(beside(self), name="beside"))
            self._handle_signals()
            scheduler = self._scheduler()
            try:
                await self._until_stopped(tasks, server, ready)
            finally:
                scheduler.shutdown(wait=False)
                await self._wind_down(tasks, server)
                await asyncio.to_thread(telemetry.shutdown)

    def stop(self) -> None:
        """Ask for a graceful stop."""
        self._stop.set()

    # -- parts ------------------------------------------------------------------------------------------------------

    def app(self) -> FastAPI:
        """The web application."""
        exporter = Exporter(lambda: snapshot(self.watch), self.own, more=self._families)
        parts = Parts(
            self.watch, self.discovering.views, self.intake, self.rating, self.promises, self.improvement, self.clock
        )
        return create_app(self.watch, auth=self.auth, exporter=exporter, routers=routers(parts))

    def _families(self) -> Iterator[Metric]:
        """What is exported beside services and targets."""
        yield from self.promises.families(self.intake.families())
        yield from self.improvement.families()

    def _scheduler(self) -> AsyncIOScheduler:
        judge = self.settings.quality.judge
        jobs: list[tuple[Work, float]] = [
            (self._refresh, self.settings.derive.every_s), (self.promises.loop.evaluate, self.settings.derive.every_s),
            (self.watch.fold_minutes, 10.0), (self._measure, 30.0),
            (self.improvement.advising.work, WORK_EVERY_S), (self.improvement.count, COUNT_EVERY_S),
            (self.intake.settle, _SETTLE_EVERY_S), (self.intake.roll, _ROLL_EVERY_S), (self._compact, 3600.0),
        ]  # fmt: skip
        if judge is not None:
            jobs.append((self.rating.judge, judge.every_s))
        scheduler = scheduled(jobs, self._stop.is_set)
        self.improvement.reporting.schedule(scheduler)
        return scheduler

    async def _refresh(self) -> None:
        with span("derive", services=len(self.watch.shown)):
            await self.watch.refresh()

    async def _measure(self) -> None:
        with suppress(StoreError):  # the keeper has noted it
            await self.keeper.measure()

    async def _compact(self) -> None:
        try:
            dropped = await self.keeper.call(lambda: self.store.compact(self.clock.now_s()))
            dropped += await asyncio.to_thread(self.intake.store.compact, self.clock.now_s())
            dropped += await asyncio.to_thread(self.rating.compact, self.clock.now_s())
        except StoreError as error:
            log.error("compaction failed", extra={"problem": str(error)})
            return
        log.info("compacted", extra={"rows_dropped": dropped})

    async def _deployments(self, service: str, start_s: float, end_s: float) -> list[Deployment]:
        return await self.keeper.call(lambda: self.store.deployments(start_s, end_s, service=service))

    async def _watch_loop(self) -> None:
        """How late the loop wakes, all the time: blocking work of any length cannot hide between two looks."""
        while True:
            before = self.clock.monotonic_s()
            await asyncio.sleep(_LAG_EVERY_S)
            self.own.loop_lag(max(0.0, self.clock.monotonic_s() - before - _LAG_EVERY_S))

    # -- configuration ----------------------------------------------------------------------------------------------

    async def reload(self) -> Reloaded:
        """Read the configuration file again; a bad one is refused and the old one stays."""
        async with self._reloading:  # two at once would tell of the wrong one last
            return await self._reload()

    async def _reload(self) -> Reloaded:
        try:
            settings = await asyncio.to_thread(config.load, self.file, engines=self.engines, environ=os.environ)
            book = await asyncio.to_thread(load_prices, settings.prices)
            found = await asyncio.to_thread(self._discoveries_of, settings)
            sources = await asyncio.to_thread(source_options, settings)
            slos = await asyncio.to_thread(slos_of, settings)
        except ConfigError as error:
            self.own.reloaded(False, self.clock.now_s())
            log.error("configuration refused; the old one stays", extra={"problems": str(error)})
            return Reloaded(False, tuple(str(error).splitlines()))
        old = self.settings
        changed = [n for n in type(settings).model_fields if getattr(settings, n) != getattr(old, n)]
        later = [f"{n} (after a restart)" if n in _AT_START else n for n in changed]
        self.settings, self.book = settings, book
        self.answering.read_all_again()
        self.pulling.use(sources)
        self.intake.use(settings)
        self.promises.use(settings, slos)
        await self._apply(settings, found)
        await self.watch.refresh()
        self.own.reloaded(True, self.clock.now_s())
        log.info("configuration read again", extra={"changed": ", ".join(later) or "nothing"})
        return Reloaded(True, changed=tuple(later))

    def _discoveries_of(self, settings: config.Settings) -> list[Discovery]:
        made = wiring.discoveries_of
        return made(settings, self.engines, self._session, on_failure=self.own.discovery_failed)

    async def _apply(self, settings: config.Settings, found: list[Discovery]) -> None:
        await self.discovering.follow(found, wiring.made_from(settings))
        self._retarget()

    def _retarget(self) -> None:
        """Targets of the file and of discovery, with their prices."""
        settings = self.settings
        static = [wiring.spec_of(settings, entry) for entry in settings.targets]
        specs = merge(static, self.discovering.targets)
        exporters = [wiring.exporter_of(settings, entry) for entry in settings.accelerators]
        specs = merge([*specs, *exporters], [])  # by name only: a page of Triton is an engine's and an exporter's
        pulled = self.pulling.beside(specs)
        self.watch.terms = Terms(
            services=wiring.services_by_name(settings),
            prices={s.target.name: wiring.price_of(s.target, self.book, self.clock) for s in [*specs, *pulled]},
            window_s=settings.derive.window_s,
            external_url=str(settings.external_url or ""),
            holding=wiring.holding_of(settings),
            device_hosts={entry.name: entry.host for entry in settings.accelerators if entry.host},
        )
        self.watch.update([*specs, *pulled])
        self.answering.follow(self.watch.states)
        withheld = self.answering.withheld
        self.scraper.update([s for s in specs if s.target.name not in withheld])

    # -- running and stopping ---------------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._background(self.reload()))

    def _background(self, work: Awaitable[object]) -> None:
        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _until_stopped(
        self, tasks: list[asyncio.Task[None]], server: Server, ready: Callable[[str], None] | None
    ) -> None:
        stopping = asyncio.create_task(self._stop.wait())
        announced = asyncio.create_task(self._announce(server, ready))
        try:
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            announced.cancel()
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _announce(self, server: Server, ready: Callable[[str], None] | None) -> None:
        await server.up.wait()
        url = url_of(self.listener)
        log.info("ready", extra={"url": url})
        if ready is not None:
            ready(url)

    async def _wind_down(self, tasks: list[asyncio.Task[None]], server: Server) -> None:
        """Stop intake, drain, flush: what was scraped is kept."""
        server.should_exit = True
        await self.discovering.stop()
        await self.scraper.stop()
        for task in tasks[3:]:
            task.cancel()
        await asyncio.gather(*tasks[3:], return_exceptions=True)
        with suppress(StoreError):
            await self.watch.fold_minutes()
        await self.keeper.flush()
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        log.info("stopped")
