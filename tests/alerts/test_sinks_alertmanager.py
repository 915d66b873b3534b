"""Against a real Alertmanager: what is pushed appears, resolves, and comes back over its webhook."""

import asyncio
import json
import socket
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from alerts.dispatch import Dispatcher
from alerts.grouping import Message
from alerts.lane import Route
from alerts.sinks._port import SinkOptions
from alerts.sinks.webhook import payload
from alerts.values import FiringAlert
from collector.stores.sqlite_records import SqliteRecords
from goodwatch.api.routes_alerts import alert_routes
from goodwatch.api.server import Server
from goodwatch.app._alert_sections import Alerting as Section
from goodwatch.app._alert_sections import sink_kinds
from goodwatch.app.alerting import AlertFilter, Alerting
from goodwatch.core.clock import SystemClock
from tests.alerts.dispatching import PAGE, TICKET, alert
from tests.api.test_app import OPEN, app_of
from tests.support.alerting_servers import alertmanager, needs_alertmanager, webhook_receiver
from tests.support.views import PlainViews

pytestmark = [pytest.mark.integration, needs_alertmanager]
CLOCK = SystemClock()
WITHIN_S = 20


def routing(webhook: str) -> dict[str, Any]:
    """Everything to one webhook, as fast as Alertmanager can."""
    return {
        "route": {"receiver": "goodwatch", "group_by": ["service"], "group_wait": "0s", "group_interval": "1s"},
        "receivers": [{"name": "goodwatch", "webhook_configs": [{"url": webhook, "send_resolved": True}]}],
    }


@asynccontextmanager
async def goodwatch(folder: Path) -> AsyncIterator[tuple[Alerting, str]]:
    """The routes of alerts behind a real server; the alerting behind them, and the URL of the webhook."""
    records = SqliteRecords(folder / "records.sqlite")
    alerting = Alerting(Section(), records, CLOCK, services=lambda: ("chat",))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(app_of(PlainViews(), OPEN, alert_routes(alerting, CLOCK)))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await server.up.wait()
        try:
            yield alerting, f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/alerts/webhook"
        finally:
            server.should_exit = True
            await serving
            records.close()


def route(name: str, url: str) -> Route:
    kind = sink_kinds()["alertmanager"]
    assert kind.pace is not None
    return Route(name, "alertmanager", kind.make(SinkOptions(name, url)), kind.pace)


async def until(ask: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(WITHIN_S):
        while not (found := await ask()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return found


async def active(url: str) -> list[dict[str, Any]]:
    """What the Alertmanager holds to fire now."""

    def ask() -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{url}/api/v2/alerts?active=true", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found

    return await asyncio.to_thread(ask)


def now_firing(name: str = PAGE) -> FiringAlert:
    return alert(name, at_s=CLOCK.now_s())


async def test_an_alert_appears_in_every_replica_resolves_and_its_webhook_comes_back(tmp_path: Path) -> None:
    async with goodwatch(tmp_path) as (alerting, webhook):
        with (
            alertmanager(tmp_path / "a", routing(webhook)) as first,
            alertmanager(tmp_path / "b", routing(webhook)) as second,
        ):
            routes = [route("a", first.url), route("b", second.url), route("gone", "http://127.0.0.1:9")]
            dispatcher = Dispatcher(routes, alerting._records, CLOCK)
            page, ticket = now_firing(), now_firing(TICKET)
            async with dispatcher.running():
                dispatcher.tell([page, ticket], CLOCK.now_s())
                for replica in (first, second):
                    found = await until(lambda url=replica.url: active(url))
                    # Alertmanager inhibits by its own rules: it gets both.
                    assert {one["labels"]["alertname"] for one in found} == {PAGE, TICKET}
                    assert found[0]["generatorURL"] == "http://gw/slos"

                async def incidents() -> Any:
                    return [one for one in await alerting.incidents(AlertFilter(state="firing")) if one.name == PAGE]

                (one,) = await until(incidents)
                assert (one.source, one.service, one.start_told) == ("prometheus", "chat", True)
                assert one.starts_at_s == pytest.approx(page.starts_at_s, abs=0.002)

                ends_at_s = CLOCK.now_s()
                over = [replace(page, ends_at_s=ends_at_s), replace(ticket, ends_at_s=ends_at_s)]
                dispatcher.tell(over, ends_at_s)

                async def resolved() -> Any:
                    return [one for one in await alerting.incidents(AlertFilter(state="resolved")) if one.name == PAGE]

                (one,) = await until(resolved)
                assert one.ends_at_s == pytest.approx(ends_at_s, abs=0.002)
                for replica in (first, second):
                    assert await active(replica.url) == []
            # One incident for all that both replicas told of it, and the third held up nobody.
            assert len([one for one in await alerting.incidents(AlertFilter()) if one.name == PAGE]) == 1
            assert dispatcher.sinks[2].failed["away"] >= 1
            assert alerting.webhooks["refused"] == 0


async def test_what_is_not_posted_again_ends_by_itself_and_our_own_webhook_has_the_same_keys(tmp_path: Path) -> None:
    with webhook_receiver() as to, alertmanager(tmp_path / "a", routing(to.url)) as server:
        dispatched = now_firing()
        sink = sink_kinds()["alertmanager"].make(SinkOptions("a", server.url))
        at_s = CLOCK.now_s()
        message = Message("a", "{}", {"service": "chat"}, (dispatched,), (), at_s, "new", server.url)
        await sink.deliver(message)
        await sink.close()
        (one,) = await active(server.url)
        ends_at_s = datetime.fromisoformat(one["endsAt"]).timestamp()
        assert ends_at_s == pytest.approx(at_s + 240, abs=2)

        async def told() -> Any:
            return list(to.told)

        theirs = (await until(told))[0].body
    ours = payload(message, "goodwatch")
    assert set(ours) == set(theirs)
    (our_alert,), (their_alert,) = ours["alerts"], theirs["alerts"]  # type: ignore[misc]
    assert set(our_alert) == set(their_alert)
    for key in ("status", "labels", "annotations", "generatorURL"):
        assert our_alert[key] == their_alert[key]
    assert {key: ours[key] for key in ("version", "status", "groupLabels", "commonLabels", "truncatedAlerts")} == {
        key: theirs[key] for key in ("version", "status", "groupLabels", "commonLabels", "truncatedAlerts")
    }
