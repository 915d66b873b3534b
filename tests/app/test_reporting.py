"""Weekly reports in the service: made when due, made up after downtime, once in a fleet, told to sinks until told."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from alerts.grouping import Message
from alerts.sinks._text import text, title
from collector.stores.sqlite_records import SqliteRecords
from goodwatch.app._report_sections import Report
from goodwatch.app.report_records import advised_of
from goodwatch.app.reporting import LEASE_S, Archive, Reporting, claimed, released
from goodwatch.core.errors import NoDataError, StoreError, TransientError
from goodwatch.core.record import Record
from planner.report.facts import WeekFacts
from planner.report.weeks import Week
from tests.planner.report.worlds import FULL

SINCE_S = datetime(2026, 11, 10, tzinfo=UTC).timestamp()
MONDAY_S = datetime(2026, 11, 30, 8, tzinfo=UTC).timestamp()


@dataclass
class Clock:
    at_s: float

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


@dataclass
class Gathered:
    """Facts that were asked for."""

    asked: list[str] = field(default_factory=list)

    async def facts(self, week: Week, now_s: float) -> WeekFacts:
        self.asked.append(week.id)
        await asyncio.sleep(0)
        return WeekFacts(week, now_s, FULL.services)


@dataclass
class Sink:
    failures: int = 0
    told: list[Message] = field(default_factory=list)

    async def deliver(self, message: Message) -> None:
        if self.failures:
            self.failures -= 1
            raise TransientError("away")
        self.told.append(message)

    async def close(self) -> None:
        """Nothing is held."""


def made(folder: Path, clock: Clock, gathered: Gathered, records: SqliteRecords, sink: Sink | None = None) -> Reporting:
    sinks = {} if sink is None else {"team": sink}
    archive = Archive(records, folder)
    return Reporting(Report(), gathered, archive, clock, sinks=sinks, since_s=SINCE_S, external_url="http://gw")  # type: ignore[arg-type]


@pytest.fixture
def records(tmp_path: Path) -> SqliteRecords:
    return SqliteRecords(tmp_path / "records.sqlite")


async def test_missed_weeks_are_made_up_once(tmp_path: Path, records: SqliteRecords) -> None:
    gathered, clock = Gathered(), Clock(MONDAY_S)
    reporting = made(tmp_path, clock, gathered, records)
    await reporting.look()
    await reporting.look()
    assert gathered.asked == ["2026-W46", "2026-W47", "2026-W48"]
    clock.at_s += 7 * 86_400 - 1
    await reporting.look()
    assert len(gathered.asked) == 3
    clock.at_s += 1
    await made(tmp_path, clock, gathered, records).look()  # after a restart
    assert gathered.asked[3:] == ["2026-W49"]
    assert "2026-W49" in reporting.archive.text("2026-W49", "md")
    records.close()


async def test_two_processes_make_one_report(tmp_path: Path, records: SqliteRecords) -> None:
    gathered, clock, sink = Gathered(), Clock(MONDAY_S), Sink()
    both = [made(tmp_path, clock, gathered, records, sink) for _ in range(2)]
    await asyncio.gather(*(one.look() for one in both))
    for one in both:
        await one.look()
    assert sorted(gathered.asked) == ["2026-W46", "2026-W47", "2026-W48"]
    assert sorted(one.labels["week"] for one in sink.told) == ["2026-W46", "2026-W47", "2026-W48"]
    records.close()


async def test_a_sink_that_was_away_is_told_later_and_once(tmp_path: Path, records: SqliteRecords) -> None:
    sink = Sink(failures=3)
    reporting = made(tmp_path, Clock(MONDAY_S), Gathered(), records, sink)
    for _ in range(3):
        await reporting.look()
    assert len(sink.told) == 3
    message = next(one for one in sink.told if one.labels["week"] == "2026-W48")
    assert "GoodwatchWeeklyReport" in title(message)
    assert "Spend" in text(message)
    assert "http://gw/reports/2026-W48" in text(message)
    records.close()


def test_a_lease_has_one_holder_until_it_ends_or_is_given_back(records: SqliteRecords) -> None:
    assert claimed(records, "x", "a", 100.0)
    assert not claimed(records, "x", "b", 101.0)
    assert claimed(records, "x", "a", 102.0)
    assert claimed(records, "x", "b", 102.0 + LEASE_S)
    released(records, "x", "a", 103.0 + LEASE_S)  # not its own
    assert not claimed(records, "x", "a", 104.0 + LEASE_S)
    released(records, "x", "b", 105.0 + LEASE_S)
    assert claimed(records, "x", "a", 106.0 + LEASE_S)
    records.close()


async def test_a_file_that_was_changed_is_not_shown(tmp_path: Path, records: SqliteRecords) -> None:
    reporting = made(tmp_path, Clock(MONDAY_S), Gathered(), records)
    await reporting.look()
    (tmp_path / "reports" / "weekly-2026-W48.html").write_text("other")
    with pytest.raises(StoreError, match="changed"):
        reporting.archive.text("2026-W48", "html")
    for week in ("2026-W01", "../../etc/passwd"):
        with pytest.raises(NoDataError):
            reporting.archive.text(week, "html")
    records.close()


def test_a_recommendation_that_cannot_be_read_is_none() -> None:
    body = {
        "service": "chat",
        "strategy": "replicas",
        "state": "proposed",
        "saving_usd_per_week": {"point": 3.0, "low": 1.0, "high": 5.0},
    }
    one = advised_of(Record("recommendation", "r", 0.0, body))
    assert one is not None
    assert (one.saving_usd.low, one.restart, one.confidence) == (1.0, None, "")
    assert advised_of(Record("recommendation", "r", 0.0, body | {"saving_usd_per_week": {"point": "x"}})) is None
    assert advised_of(Record("recommendation", "r", 0.0, {})) is None


def test_a_lease_of_a_clock_that_was_set_back_holds_nobody_up(records: SqliteRecords) -> None:
    assert claimed(records, "x", "fast", MONDAY_S + 30 * 86_400)
    assert claimed(records, "x", "right", MONDAY_S)


async def test_a_file_that_is_gone_keeps_no_other_report_from_being_sent(
    tmp_path: Path, records: SqliteRecords
) -> None:
    sink, clock = Sink(), Clock(MONDAY_S)
    reporting = made(tmp_path, clock, Gathered(), records, sink)
    sink.failures = 1_000
    await reporting.look()
    (newest, *others) = reporting.archive.all()
    assert others
    for name in newest.files:
        (tmp_path / "reports" / name).unlink()
    sink.failures = 0
    clock.at_s += LEASE_S + 1
    await reporting.look()
    assert {one.week for one in reporting.archive.all() if one.sent} == {one.week for one in others}
