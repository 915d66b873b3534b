"""A running loop over SLOs with an outage in its history, alerting beside it, and the pages over both."""

from pathlib import Path

from fastapi import APIRouter

from alerts.lane import Route
from collector.stores.sqlite_records import SqliteRecords
from goodwatch.api.routes_slos import slo_routes
from goodwatch.api.ui.slo_pages import slo_pages
from goodwatch.app._alert_sections import Alerting as Section
from goodwatch.app.alerting import Alerting, Pager
from goodwatch.core.slo import Slo
from tests.alerts.dispatching import Book
from tests.alerts.services import first_token
from tests.app.test_slo_watch import OUTAGE, World, history
from tests.support.views import PlainViews, RecordedViews


class Site:
    """``world`` is the loop, ``views`` what the other pages show; times are the loop's."""

    def __init__(self, folder: Path, *slos: Slo, pager: Pager = "goodwatch", services: bool = True) -> None:
        self.world = World(folder, slos or (first_token(30),), OUTAGE)
        self.records = SqliteRecords(folder / "alerts.sqlite")
        self.alerting = Alerting(
            Section(), self.records, self.world.clock, routes=[Route("book", "book", Book())], pager=pager,
            services=lambda: ("chat",), external_url="http://gw",
        )  # fmt: skip
        self.world.loop.notifier = self.alerting
        self.views = _Now(self.world, services)

    async def until(self, minute: int, *, start: int = 355) -> "Site":
        """Read the history up to ``start`` minutes, then run on."""
        await history(self.world, start)
        await self.world.until(minute)
        return self

    def routers(self, *, requests: bool = True) -> tuple[APIRouter, APIRouter]:
        """The API and the pages."""
        reads = self.world.loop.reads
        made = slo_pages(reads, self.alerting, self.views, rules=lambda: self.world.loop.rules, requests=requests)
        return slo_routes(reads), made


class _Now(PlainViews):
    """Recorded numbers, shown at the time of the loop."""

    def __init__(self, world: World, services: bool) -> None:
        super().__init__(RecordedViews().services() if services else [])
        self.world = world

    def now_s(self) -> float:
        return self.world.clock.now
