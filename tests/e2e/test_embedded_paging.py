"""goodwatch pages by itself: minutes in a DuckDB file, a webhook, a real Alertmanager and an apprise endpoint.

A page is held for 15 minutes and minutes are judged whole, so that an incident of the running service takes longer than a
test may. The loop over SLOs and alerting are therefore driven in this process by a clock that is handed in, over minutes
as the service folds them of its scrapes; stores, sinks, HTTP and Alertmanager are real. A kill is every object left where
it is, nothing stopped or flushed, and new ones made over the same files.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from alerts.sinks.alertmanager import ENDS_AFTER_S
from collector.stores.duckdb import DuckDBStore
from collector.stores.sqlite_records import SqliteRecords
from exporters.slo import slo_families
from goodwatch.api.routes_alerts import alert_routes
from goodwatch.app._alert_sections import Alerting as Section
from goodwatch.app.alerting import Alerting, routes_of
from goodwatch.app.keeper import Keeper
from goodwatch.app.slo_events import SloSources
from goodwatch.app.slo_view import series_now
from goodwatch.app.slo_watch import SloLoop
from goodwatch.core.slo import DAY_S, Latency, Period, Slo
from tests.alerts.scenarios import BEGIN_S, Phase, minutes
from tests.alerts.services import OPTIONS
from tests.api.test_app import OPEN, app_of, client_of
from tests.app.test_slo_watch import Hand
from tests.support import alert_receivers
from tests.support.alerting_servers import alertmanager, needs_alertmanager, webhook_receiver
from tests.support.views import PlainViews

pytestmark = [pytest.mark.integration, needs_alertmanager]

PAGE: Final = "LlmErrorBudgetBurnFast"
SLO: Final = Slo("first-token", "chat", 0.99, Latency("ttft_seconds", 0.5), Period(7 * DAY_S), engines=("vllm",))
#: calm, an outage, calm; a second outage, calm
STORY: Final = (Phase(420, 1000), Phase(15, 1000, 1000), Phase(150, 1000), Phase(15, 1000, 1000), Phase(60, 1000))
#: 60 x 0.1344 = 8.06 minutes of outage, and 3.5 % of six hours is never sooner: the window that ends with minute 9
FIRES_MIN, SECOND_MIN, END_MIN = 420 + 9, 585 + 9, 658


@dataclass
class Place:
    """One goodwatch after another over the same files; ``clock`` is set by hand."""

    folder: Path
    clock: Hand
    section: Section
    samples: DuckDBStore
    alerting: Any = None
    loop: Any = None
    left: list[Any] = field(default_factory=list)  # what closes a dead process's sockets

    async def start(self) -> None:
        """A process that starts: nothing is in memory."""
        records = SqliteRecords(self.folder / "records.sqlite")
        routes = routes_of(self.section)
        self.left += [records, *(route.sink for route in routes)]
        self.alerting = Alerting(self.section, records, self.clock, routes=routes, services=lambda: ["chat"])
        await self.alerting.recover()
        await self.alerting._dispatcher.recover()
        sources, keeper = SloSources(self.samples, OPTIONS, None), Keeper(self.samples, self.clock)
        self.loop = SloLoop(sources, keeper, records, self.clock, lambda: {"chat": {"a": True}}, notifier=self.alerting)
        self.loop.use([SLO])
        await self.loop.recover()

    async def until(self, minute: int) -> None:
        """Rounds each minute, half a minute after it; the sinks are looked at twice in each."""
        while self.clock.now < BEGIN_S + 60 * minute + 30:
            self.clock.now += 60
            await self.loop.evaluate()
            for later_s in (0, 29):
                self.clock.now += later_s
                await self.alerting._dispatcher.step()
                self.clock.now -= later_s
            await self.alerting.keep()

    async def http(self, method: str, path: str, **more: Any) -> Any:
        """An answer of the API."""
        async with client_of(app_of(PlainViews(), OPEN, alert_routes(self.alerting, self.clock))) as client:
            answer = await client.request(method, path, **more)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def metrics(self) -> dict[str, float]:
        """Samples of SLOs by their text, as the metrics page has them."""

        now = series_now(self.loop.now())

        class Page(Collector):
            def collect(self) -> Any:
                return slo_families(now)

        registry = CollectorRegistry()
        registry.register(Page())
        lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@dataclass
class Outside:
    """Who is told."""

    webhook: alert_receivers.Receiver
    apprise: alert_receivers.Receiver
    router: str
    paged: Any

    def told(self) -> list[tuple[str, list[str]]]:
        """Status and pages of each message of the webhook that reached it; it takes pages only."""
        bodies = [json.loads(got.body) for got in self.webhook.got]
        return [(body["status"], [one["labels"]["alertname"] for one in body["alerts"]]) for body in bodies]

    async def held(self) -> list[dict[str, Any]]:
        """Pages that the Alertmanager holds, those that it takes for ended among them."""
        async with httpx.AsyncClient(timeout=10) as client:
            alerts = (await client.get(f"{self.router}/api/v2/alerts")).json()
        return [one for one in alerts if one["labels"]["severity"] == "critical"]


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with AsyncExitStack() as stack:
        webhook = await stack.enter_async_context(alert_receivers.receiver())
        apprise = await stack.enter_async_context(alert_receivers.receiver())
        paged = stack.enter_context(webhook_receiver())
        config = {
            "route": {"receiver": "all", "group_wait": "0s", "group_interval": "1s", "repeat_interval": "4h"},
            "receivers": [{"name": "all", "webhook_configs": [{"url": f"{paged.url}/am"}]}],
        }
        router = stack.enter_context(alertmanager(tmp_path / "alertmanager", config))
        yield Outside(webhook, apprise, router.url, paged)


@pytest.fixture
async def place(tmp_path: Path, outside: Outside) -> AsyncIterator[Place]:
    samples = DuckDBStore(tmp_path / "goodwatch.duckdb")
    samples.append_minutes(minutes("chat", STORY))
    section = Section.model_validate(
        {
            "pages": "goodwatch",
            "sinks": [
                {"name": "hook", "type": "webhook", "url": f"{outside.webhook.url}/hook", "severities": ["page"]},
                {"name": "am", "type": "alertmanager", "url": outside.router},
                {"name": "people", "type": "apprise", "severities": ["page"],
                 "url": outside.apprise.url.replace("http://", "json://") + "/people"},
            ],
        }
    )  # fmt: skip
    made = Place(tmp_path, Hand(BEGIN_S + 60 * 418 + 30), section, samples)
    await made.start()
    await made.until(422)
    yield made
    for one in made.left:
        if (closing := one.close()) is not None:
            await closing
    samples.close()


async def test_an_incident_is_told_once_over_a_kill_and_its_end_once_and_a_silence_keeps_the_next_quiet(
    place: Place, outside: Outside
) -> None:
    await place.until(FIRES_MIN - 1)
    assert outside.told() == []
    await place.until(FIRES_MIN + 1)  # a group waits half a minute for more
    assert outside.told() == [("firing", [PAGE])]
    assert len(outside.apprise.got) == 1
    (held,) = await outside.held()
    assert (held["labels"]["alertname"], held["labels"]["slo"]) == (PAGE, "first-token")
    starts_s = datetime.fromisoformat(held["startsAt"].replace("Z", "+00:00")).timestamp()
    assert starts_s == BEGIN_S + 60 * FIRES_MIN + 30

    await place.start()  # as after kill -9
    await place.until(FIRES_MIN + 4)
    assert outside.told() == [("firing", [PAGE])]
    assert len(outside.apprise.got) == 1
    (again,) = await outside.held()
    assert (again["startsAt"], again["fingerprint"]) == (held["startsAt"], held["fingerprint"])
    series = place.metrics()
    assert series['goodwatch_slo_alert_firing{service="chat",severity="critical",slo="first-token"}'] == 1
    # minutes 421..433 of 374..433: all 13 000 of an hour's 60 000 are bad, over a budget of 1 %
    burn = series['goodwatch_slo_burn_rate{service="chat",slo="first-token",target="ttft",window="1h"}']
    assert burn == pytest.approx(13_000 / 60_000 / 0.01, rel=0.002)

    await place.until(500)  # over since minute 435; the last window lets go, and 15 minutes pass
    assert [status for status, _ in outside.told()] == ["firing", "resolved"]
    assert len(outside.apprise.got) == 2
    listed = (await place.http("GET", "/api/v1/alerts?source=goodwatch"))["alerts"]
    (page,) = [one for one in listed if one["name"] == PAGE]
    assert (page["state"], page["starts_at_s"]) == ("resolved", starts_s)
    # Its own clock is behind ours and it keeps the later of two ends to come: that of the last post while it fired.
    (ended,) = await outside.held()
    ends_s = datetime.fromisoformat(ended["endsAt"].replace("Z", "+00:00")).timestamp()
    assert page["ends_at_s"] < ends_s <= page["ends_at_s"] + ENDS_AFTER_S - 60
    routed = [one for told in outside.paged.told for one in told.body["alerts"] if one["labels"]["alertname"] == PAGE]
    assert {(one["status"], one["startsAt"][:19]) for one in routed} == {("firing", held["startsAt"][:19])}

    silence = {"matchers": ['service="chat"'], "duration": "3h", "author": "ann", "comment": "moving racks"}
    made = await place.http("POST", "/api/v1/silences", json=silence)
    await place.until(SECOND_MIN + 2)
    listed = (await place.http("GET", "/api/v1/alerts?state=firing"))["alerts"]
    (page,) = [one for one in listed if one["name"] == PAGE]
    assert f"silence {made['id']}" in page["quiet"]
    await place.start()  # a silence outlives a kill as well
    await place.until(END_MIN)
    assert [status for status, _ in outside.told()] == ["firing", "resolved"]
    assert len(outside.apprise.got) == 2
