"""Sinks that are away, say no, hang or have bugs; and restarts in the middle of things."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from alerts.dispatch import Dispatcher
from alerts.grouping import Message, Pace
from alerts.lane import Route
from alerts.sinks._port import BusyError
from collector.stores.sqlite_records import SqliteRecords
from goodwatch.core.errors import ConfigError, TransientError
from tests.alerts.dispatching import PAGE, START_S, TICKET, Book, World, alert

HOUR = 3600


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


async def test_a_sink_that_is_away_for_an_hour_hears_once_how_things_stand(world: World) -> None:
    world.book.error = TransientError("cannot be reached")
    short = alert(TICKET, "search")
    await world.each(15, 0, 600, alert(), short)
    await world.each(15, 600, HOUR, alert())
    # waits of 5, 10, 20, 40, 80, 160 s, then of 300 s: 7 tries in the first six minutes, 10 or 11 in the rest of the hour
    assert 16 <= world.book.tries <= 18
    (state,) = world.dispatcher.sinks
    assert state.problem == "cannot be reached"
    assert state.failing_since_s == START_S + 30
    assert state.dropped == {"over_before_told": 1}
    world.book.error = None
    await world.each(15, HOUR, HOUR + 330, alert())
    assert world.book.said() == [("new", [PAGE], [])]
    (state,) = world.dispatcher.sinks
    assert (state.problem, state.failing_since_s) == ("", None)
    assert state.failed["away"] == world.book.tries - 1


async def test_an_end_that_could_not_be_told_is_told_later(world: World) -> None:
    await world.at(30, alert())
    world.book.error = TransientError("away")
    await world.each(15, 600, 900)
    world.book.error = None
    await world.each(15, 900, 1500)
    assert world.book.said() == [("new", [PAGE], []), ("ended", [], [PAGE])]
    assert world.book.told[1].ended[0].ends_at_s == START_S + 600


async def test_waits_grow_and_have_chance_in_them(tmp_path: Path) -> None:
    chances: list[tuple[float, float]] = []

    def half(low: float, high: float) -> float:
        chances.append((low, high))
        return low

    book, records = Book(error=TransientError("away")), SqliteRecords(tmp_path / "records.sqlite")
    world = World(tmp_path)
    world.dispatcher = Dispatcher([Route("book", "book", book)], records, world.clock, jitter=half)
    tries = []
    for second in range(30, 300):
        before = book.tries
        await world.at(second, alert())
        tries += [second] if book.tries > before else []
    assert tries[:6] == [30, 33, 38, 48, 68, 108]  # waits of 2.5, 5, 10, 20, 40 s
    assert set(chances) == {(0.5, 1.0)}
    world.close()
    records.close()


async def test_a_sink_that_asks_to_wait_is_left_alone_so_long(world: World) -> None:
    world.book.error = BusyError("answered 429", 120.0)
    await world.each(1, 30, 150, alert())
    assert world.book.tries == 1
    await world.at(150, alert())
    assert world.book.tries == 2


async def test_a_group_that_is_refused_does_not_hold_up_the_others(world: World) -> None:
    class Picky(Book):
        async def deliver(self, message: Message) -> None:
            if message.labels["service"] == "chat":
                self.tries += 1
                raise ConfigError("answered 400: too long")
            await super().deliver(message)

    world.book = Picky()
    world.start()
    await world.each(15, 30, 600, alert(), alert(PAGE, "search"))
    assert [one.labels["service"] for one in world.book.told] == ["search"]
    assert world.dispatcher.sinks[0].failed == {"refused": 1}
    await world.each(15, 600, 1000, alert(), alert(PAGE, "search"))
    assert (
        world.book.tries == 3
    )  # one for search, two for chat: what is refused is tried again after a quarter of an hour


async def test_nothing_is_told_twice_over_a_restart(world: World) -> None:
    await world.at(30, alert(), alert(TICKET, "search"))
    for restart in range(5):
        await world.restart()
        await world.each(15, 60 + restart * 60, 120 + restart * 60, alert(), alert(TICKET, "search"))
    assert len(world.book.told) == 2
    await world.at(30 + 4 * HOUR, alert(), alert(TICKET, "search"))
    assert [one.cause for one in world.book.told] == ["new", "new", "repeat"]  # the clock of repeats goes on


async def test_a_restart_judges_nothing_before_the_first_evaluation(world: World) -> None:
    await world.at(30, alert())
    await world.restart()
    world.clock.at_s = START_S + 600
    await world.dispatcher.step()
    assert len(world.book.told) == 1


async def test_what_ended_while_goodwatch_was_away_is_told_to_be_over_once(world: World) -> None:
    await world.at(30, alert())
    await world.restart()
    await world.each(15, 600, 1200)
    assert world.book.said() == [("new", [PAGE], []), ("ended", [], [PAGE])]
    await world.restart()
    await world.each(15, 1200, 1800)
    assert len(world.book.told) == 2


async def test_what_was_not_told_before_a_restart_is_told_after_it(world: World) -> None:
    world.book.error = TransientError("away")
    await world.at(30, alert())
    world.book.error = None
    await world.restart()
    await world.at(60, alert())
    assert world.book.said() == [("new", [PAGE], [])]


async def test_other_groups_after_a_restart_tell_nothing_again_and_end_nothing(world: World) -> None:
    both = [alert(), alert("LlmEngineStalled", severity="critical")]
    await world.at(30, *both)
    for by in ((), ("service", "alertname"), ("service",)):
        world.pace = Pace(by)
        await world.restart()
        await world.each(15, 60, 1200, *both)
        world.clock.at_s = START_S
    assert len(world.book.told) == 1


async def test_what_a_sink_was_told_long_ago_is_forgotten(world: World) -> None:
    await world.at(30, alert())
    await world.restart()
    world.clock.at_s += 60 * 86_400
    await world.restart()
    await world.at(60 * 86_400)
    assert len(world.book.told) == 1


async def test_a_record_that_cannot_be_read_is_logged_and_does_not_stop_the_rest(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.at(30, alert())
    world.records.put("notification", "book odd", START_S, {"sink": "book", "group": "x", "at_s": "?", "firing": [1]})
    await world.restart()
    await world.each(15, 60, 300, alert())
    assert len(world.book.told) == 1
    assert "cannot be read" in caplog.text


async def test_a_store_that_fails_stops_no_message_and_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.records.close()
    await world.each(15, 30, 600, alert())
    assert len(world.book.told) == 1
    assert sum("cannot be kept" in one.message for one in caplog.records) == 1


async def until(expected: object, ask: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while ask() != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_sink_that_hangs_and_one_with_a_bug_hold_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hanging, broken = Book(hangs=True), Book(error=ZeroDivisionError())
    others = (Route("hanging", "book", hanging, deadline_s=0.05), Route("broken", "book", broken))
    world = World(tmp_path, more=others)
    world.clock.at_s = START_S + 30
    with caplog.at_level(logging.ERROR):
        async with world.dispatcher.running():
            world.dispatcher.tell([alert()], world.clock.at_s)
            await until((1, True, True), lambda: (
                len(world.book.told), hanging.tries > 0, bool(world.dispatcher.sinks[2].failed)
            ))  # fmt: skip
            await until({"timeout": 1}, lambda: world.dispatcher.sinks[1].failed)
            await until({"bug": 1}, lambda: world.dispatcher.sinks[2].failed)
            broken.error = None
            world.clock.at_s += 60
            await until(1, lambda: len(broken.told))  # the bug ended one try, not the sink
    assert (world.book.closed, hanging.closed, broken.closed) == (True, True, True)
    assert "ZeroDivisionError" in caplog.text
    assert "a bug: ZeroDivisionError" not in [one.problem for one in world.dispatcher.sinks]
    world.close()


async def test_a_stop_waits_for_a_message_that_is_on_its_way(tmp_path: Path) -> None:
    class Slow(Book):
        async def deliver(self, message: Message) -> None:
            self.tries += 1
            await asyncio.sleep(0.2)
            await super().deliver(message)

    world = World(tmp_path, book=Slow())
    world.clock.at_s = START_S + 30
    async with world.dispatcher.running():
        world.dispatcher.tell([alert()], world.clock.at_s)
        await until(True, lambda: world.book.tries > 0)
    assert len(world.book.told) == 1
    assert len(world.records.latest("notification")) == 1
    world.close()
