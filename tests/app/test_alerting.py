"""Alerting as the service runs it: history, silences, restarts, webhooks, and who pages."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import goodwatch.app.alerting as module
from alerts.lane import Route
from alerts.matchers import matchers_of
from collector.stores.sqlite_records import SqliteRecords
from goodwatch.app._alert_sections import Alerting as Section
from goodwatch.app.alerting import AlertFilter, Alerting, Pager
from goodwatch.core.errors import StoreError, TransientError
from tests.alerts.dispatching import PAGE, START_S, TICKET, Book, Clock, alert

FIRING = {"status": "firing", "labels": {"alertname": "Slow", "service": "chat"}, "startsAt": "2026-03-04T03:00:00Z"}


class Running:
    """An ``Alerting`` on a clock that stands, a sink that keeps, and records on a disk."""

    def __init__(self, folder: Path, pager: Pager = "goodwatch", **section: Any) -> None:
        self.clock, self.book = Clock(), Book()
        self.records = SqliteRecords(folder / "records.sqlite")
        self.pager, self.section = pager, Section.model_validate(section)
        self.start()

    def start(self) -> None:
        self.alerting = Alerting(
            self.section, self.records, self.clock, routes=[Route("book", "book", self.book)], pager=self.pager,
            services=lambda: ("chat", "search"), external_url="http://gw",
        )  # fmt: skip

    async def restart(self) -> None:
        self.start()
        await self.alerting.recover()
        await self.alerting._dispatcher.recover()

    async def at(self, seconds: float, *alerts: Any) -> None:
        self.clock.at_s = START_S + seconds
        self.alerting.tell(alerts, self.clock.at_s)
        await self.alerting._dispatcher.step()

    async def post(self, *alerts: dict[str, Any], **more: Any) -> Any:
        return await self.alerting.receive({"version": "4", "alerts": list(alerts), **more})

    async def states(self, **wanted: Any) -> list[tuple[str, str, str]]:
        found = await self.alerting.incidents(AlertFilter(**wanted))
        return [(one.name, one.source, one.state) for one in found]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.records.close()


async def test_an_alert_is_one_incident_from_start_to_end_over_restarts(running: Running) -> None:
    await running.at(0, alert())
    assert await running.states() == [(PAGE, "goodwatch", "firing")]
    await running.restart()
    await running.at(60, alert())
    await running.at(600, replace(alert(), ends_at_s=START_S + 590))
    (one,) = await running.alerting.incidents(AlertFilter())
    assert (one.state, one.starts_at_s, one.ends_at_s, one.service) == ("resolved", START_S, START_S + 590, "chat")
    assert len(running.records.history("alert", one.id)) == 2  # what changes nothing is not kept again


async def test_a_silenced_alert_is_recorded_and_says_so(running: Running) -> None:
    await running.alerting.recover()
    made = await running.alerting.silence(
        matchers_of(['service="chat"']), START_S, START_S + 3600, author="ann", comment="move"
    )
    await running.at(60, alert())
    (one,) = await running.alerting.incidents(AlertFilter())
    assert one.quiet == (f"silence {made.id}",)
    assert running.book.told == []


async def test_silences_outlive_a_restart_and_end_when_told(running: Running) -> None:
    made = await running.alerting.silence(
        matchers_of(['service="chat"']), START_S, START_S + 3600, author="ann", comment="move"
    )
    await running.restart()
    assert await running.alerting.silences() == [made]
    await running.at(60, alert())
    assert running.book.told == []
    over = await running.alerting.end_silence(made.id)
    assert over is not None
    await running.at(120, alert())
    assert len(running.book.told) == 1
    assert await running.alerting.end_silence(made.id) is None
    await running.restart()
    assert await running.alerting.silences() == []
    assert [one.id for one in await running.alerting.silences(expired=True)] == [made.id]


async def test_maintenance_shows_its_window(tmp_path: Path) -> None:
    running = Running(tmp_path, maintenance=[{"name": "night", "starts": "03:00", "ends": "04:00"}])
    ((planned, window),) = running.alerting.maintenance()
    assert (planned.name, window) == ("night", (START_S - 720, START_S + 2880))
    await running.at(60, alert())
    assert running.alerting.firing()[0].quiet == ("maintenance night",)
    running.records.close()


async def test_while_prometheus_pages_evaluations_are_history_only(tmp_path: Path) -> None:
    running = Running(tmp_path, pager="prometheus")
    await running.at(60, alert())
    assert running.book.told == []
    (one,) = await running.alerting.incidents(AlertFilter())
    assert one.quiet == ("Prometheus pages",)
    running.records.close()


async def test_a_webhook_is_kept_once_however_often_it_is_told(running: Running) -> None:
    for _ in range(3):
        assert (await running.post(FIRING)).taken == 1
    await running.restart()
    await running.post(FIRING)
    await running.post(FIRING | {"status": "resolved", "endsAt": "2026-03-04T03:10:00Z"})
    (one,) = await running.alerting.incidents(AlertFilter())
    assert (one.source, one.state, one.service, one.ends_at_s) == ("prometheus", "resolved", "chat", START_S - 120)
    assert len(running.records.history("alert", one.id)) == 2
    assert running.alerting.webhooks == {"taken": 2, "refused": 0}


async def test_two_replicas_that_tell_at_once_are_one_incident(running: Running) -> None:
    import asyncio

    await asyncio.gather(*(running.post(FIRING) for _ in range(4)))
    assert len(running.records.latest("alert")) == 1
    assert len(running.records.history("alert", running.records.latest("alert")[0].id)) == 1


async def test_what_goodwatch_pushed_to_an_alertmanager_is_not_a_second_incident_when_it_comes_back(
    running: Running,
) -> None:
    await running.at(0, alert())
    labels = {"alertname": PAGE, **alert().labels}
    echo = {"status": "firing", "labels": labels, "startsAt": "2026-03-04T03:12:00.000Z", "fingerprint": "0f0f"}
    await running.post(echo)
    await running.at(60)
    await running.post(echo | {"status": "resolved", "endsAt": "2026-03-04T03:13:00.000Z"})
    assert await running.states() == [(PAGE, "goodwatch", "resolved")]


async def test_a_store_that_fails_asks_the_sender_to_come_again_and_then_takes_it(running: Running) -> None:
    running.records.close()
    with pytest.raises(StoreError):
        await running.post(FIRING)
    assert running.alerting.webhooks == {}
    running.records = running.alerting._records = SqliteRecords(running.records._path)
    await running.post(FIRING)
    assert len(running.records.latest("alert")) == 1


async def test_own_incidents_wait_for_a_store_that_fails(running: Running) -> None:
    running.records.close()
    await running.at(0, alert())
    await running.alerting.keep()
    assert "closed" in running.alerting.problem
    running.alerting._records = running.records = SqliteRecords(running.records._path)
    await running.alerting.keep()
    assert running.alerting.problem == ""
    assert len(running.records.latest("alert")) == 1


async def test_filters_choose_and_what_fires_comes_first(running: Running) -> None:
    await running.at(0, alert(), alert(TICKET, "search"))
    await running.at(60, alert())
    await running.post(FIRING, {"labels": {"alertname": "Disk"}}, orgId=1)
    assert await running.states() == [
        ("Disk", "grafana", "firing"), (PAGE, "goodwatch", "firing"), ("Slow", "grafana", "firing"),
        (TICKET, "goodwatch", "resolved"),
    ]  # fmt: skip
    assert await running.states(service="search") == [(TICKET, "goodwatch", "resolved")]
    assert await running.states(service="") == [("Disk", "grafana", "firing")]
    assert await running.states(source="goodwatch", state="firing") == [(PAGE, "goodwatch", "firing")]
    assert len(await running.states(limit=2)) == 2
    assert len(await running.states(since_s=START_S + 61)) == 3  # what fires is as new as now


async def test_more_open_alerts_than_there_can_be_are_refused_for_now(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 1)
    await running.post(FIRING)
    with pytest.raises(TransientError, match="fire already"):
        await running.post({"labels": {"alertname": "Other"}})


async def test_a_record_that_cannot_be_read_is_left_out(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    running.records.put("alert", "odd", START_S, {"source": 1})
    running.records.put("silence", "odd", START_S, {"matchers": ["("], "starts_at_s": 0})
    await running.restart()
    assert await running.states() == []
    assert "cannot be read" in caplog.text


async def test_entering_and_leaving_keeps_what_was_told(running: Running) -> None:
    async with running.alerting.running():
        running.clock.at_s = START_S + 60
        running.alerting.tell([alert()], running.clock.at_s)
    assert running.book.closed
    assert len(running.records.latest("alert")) == 1


async def test_silences_that_could_not_be_read_at_the_start_are_read_as_soon_as_they_can_be(running: Running) -> None:
    made = await running.alerting.silence(
        matchers_of(['service="chat"']), START_S, START_S + 3600, author="ann", comment="moving racks"
    )
    works = running.records.latest

    def broken(*_: object, **__: object) -> Any:
        raise StoreError("the disk is away")

    running.records.latest = broken  # type: ignore[method-assign]
    running.start()
    await running.alerting.recover()
    assert (running.alerting.problem, await running.alerting.silences()) == ("the disk is away", [])
    await running.at(0, alert())
    running.records.latest = works  # type: ignore[method-assign]
    async with running.alerting.running():
        assert [one.id for one in await running.alerting.silences()] == [made.id]
        await running.at(30, alert())
    assert running.book.told == []
    assert await running.states() == [(PAGE, "goodwatch", "firing")]
