"""SLOs and alerts in the running service, put together: what is promised, whether it is kept, and who is told."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import Metric

from alerts.sinks._port import Sink
from exporters.alerting import SinkSeries, alerting_families
from exporters.slo import slo_families
from goodwatch.app.alerting import Alerting, routes_of
from goodwatch.app.config import Settings
from goodwatch.app.intake import Intake
from goodwatch.app.keeper import Keeper
from goodwatch.app.ruling import options_of, slos_of
from goodwatch.app.slo_events import SloSources
from goodwatch.app.slo_view import series_now
from goodwatch.app.slo_watch import SloLoop
from goodwatch.app.watch import Watch
from goodwatch.core.clock import Clock
from goodwatch.core.ports import DriftListener, RecordStore, SampleStore
from goodwatch.core.slo import Slo


@dataclass(frozen=True, slots=True)
class Ground:
    """The parts of the service that promises stand on."""

    samples: SampleStore
    keeper: Keeper
    records: RecordStore
    intake: Intake
    watch: Watch
    clock: Clock


class Promises:
    """The loop over SLOs, and alerting behind it; made by ``promises``."""

    def __init__(self, ground: Ground, settings: Settings, alerting: Alerting, sinks: Mapping[str, Sink]) -> None:
        self.alerting = alerting
        self.sinks = sinks
        self._ground = ground
        self.loop = SloLoop(
            self._sources(settings), ground.keeper, ground.records, ground.clock, self._up, notifier=alerting,
            pager=alerting.pager,
        )  # fmt: skip

    def use(self, settings: Settings, slos: Sequence[Slo]) -> None:
        """Take the SLOs of a configuration, as ``slos_of`` reads them."""
        self.loop.use(slos, self._sources(settings))

    def listen(self, listener: DriftListener) -> None:
        """Tell somebody else of drifts as well."""
        self.loop.listeners = (*self.loop.listeners, listener)

    def families(self, beside: Iterator[Metric]) -> Iterator[Metric]:
        """What is exported of SLOs, joined with the families of requests, and of who was told."""
        yield from slo_families(series_now(self.loop.now()), beside)
        sinks = [SinkSeries(s.name, s.sent, s.failed, s.dropped, s.waiting) for s in self.alerting.sinks()]
        yield from alerting_families(sinks, self.alerting.webhooks)

    def _sources(self, settings: Settings) -> SloSources:
        return SloSources(self._ground.samples, options_of(settings), self._ground.intake.loop)

    def _up(self) -> dict[str, dict[str, bool | None]]:
        """Whether the last scrape of each engine worked, by service and target."""
        found: dict[str, dict[str, bool | None]] = {}
        for name, state in self._ground.watch.states.items():
            target = state.spec.target
            if target.kind == "engine":
                found.setdefault(target.service, {})[name] = None if state.last is None else state.last.up
        return found


@asynccontextmanager
async def promises(settings: Settings, ground: Ground) -> AsyncIterator[Promises]:
    """Everything recovered and delivering, as long as it is entered.

    Raises ``ConfigError`` for an SLO file or a sink that cannot be used.
    """
    slos = await asyncio.to_thread(slos_of, settings)
    routes = await asyncio.to_thread(routes_of, settings.alerting)
    alerting = Alerting(
        settings.alerting, ground.records, ground.clock, routes=routes,
        pager=settings.alerting.pager(prometheus=settings.names_prometheus),
        services=lambda: [service.name for service in ground.watch.services()],
        external_url=ground.watch.external_url,
    )  # fmt: skip
    made = Promises(ground, settings, alerting, {route.name: route.sink for route in routes})
    made.use(settings, slos)
    async with alerting.running():
        await made.loop.recover()
        yield made
