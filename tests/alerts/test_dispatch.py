"""Who is told what and when: groups, pace, inhibition, silences, the end."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.grouping import Pace
from alerts.matchers import matchers_of
from alerts.schedule import Maintenance, Weekly
from alerts.silences import Quiet, Silence
from tests.alerts.dispatching import PAGE, START_S, TICKET, World, alert

HOUR = 3600


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


async def test_the_first_message_waits_for_the_group_and_comes_once(world: World) -> None:
    await world.each(15, 0, 30, alert())
    assert world.book.told == []
    await world.each(15, 30, 4 * HOUR, alert())
    assert world.book.said() == [("new", [PAGE], [])]


async def test_alerts_of_one_service_are_one_message_and_of_two_services_two(world: World) -> None:
    down = alert("LlmServiceDown", "search")
    await world.at(30, alert(), alert("LlmEngineStalled", severity="critical"), down)
    assert [(one.key, len(one.firing)) for one in world.book.told] == [
        ('{service="chat"}', 2),
        ('{service="search"}', 1),
    ]


async def test_a_repeat_comes_after_its_time_and_not_before(world: World) -> None:
    await world.each(60, 30, 30 + 4 * HOUR, alert())
    assert len(world.book.told) == 1
    await world.at(30 + 4 * HOUR, alert())
    assert [one.cause for one in world.book.told] == ["new", "repeat"]


async def test_a_ticket_is_repeated_once_a_day(world: World) -> None:
    await world.each(600, 30, 30 + 25 * HOUR, alert(TICKET))
    assert [one.cause for one in world.book.told] == ["new", "repeat"]


async def test_the_end_is_told_with_what_ended(world: World) -> None:
    await world.at(30, alert())
    over = replace(alert(), ends_at_s=START_S + 600)
    await world.at(600, over)
    assert world.book.said()[-1] == ("ended", [], [PAGE])
    assert world.book.told[-1].ended[0].ends_at_s == START_S + 600
    await world.each(60, 660, 8 * HOUR)
    assert len(world.book.told) == 2


async def test_an_alert_that_is_missing_without_a_word_is_over_then(world: World) -> None:
    await world.at(30, alert())
    await world.at(600)
    assert world.book.told[-1].ended[0].ends_at_s == START_S + 600


async def test_an_alert_that_is_over_within_the_wait_is_told_to_nobody(world: World) -> None:
    await world.at(0, alert())
    await world.each(15, 15, 600)
    assert world.book.told == []


async def test_a_change_waits_for_the_interval(world: World) -> None:
    down = alert("LlmServiceDown", at_s=START_S + 60, slo="x")
    stalled = alert("LlmEngineStalled", at_s=START_S + 60, severity="critical")
    await world.at(30, alert())
    await world.each(15, 60, 330, alert(), stalled)
    assert len(world.book.told) == 1
    await world.at(330, alert(), stalled)
    assert world.book.said()[1] == ("changed", [PAGE, "LlmEngineStalled"], [])
    assert down.fingerprint not in {one.fingerprint for one in world.book.told[1].alerts}


async def test_a_page_does_not_wait_behind_a_ticket_that_was_just_told(world: World) -> None:
    await world.at(30, alert(TICKET))
    page = alert(at_s=START_S + 40)
    await world.at(69, alert(TICKET), page)
    assert len(world.book.told) == 1
    await world.at(70, alert(TICKET), page)
    assert world.book.said()[1] == ("new", [PAGE], [])


async def test_a_page_silences_tickets_and_causes_of_its_service_only(world: World) -> None:
    cause, other = alert("LlmKvCacheThrash"), alert(TICKET, "search")
    await world.at(30, alert(), alert(TICKET), cause, other)
    assert world.book.said() == [("new", [PAGE], []), ("new", [TICKET], [])]
    assert world.book.told[1].labels == {"service": "search"}
    states = {one.alert.name: one.quiet for one in world.dispatcher.alerts if one.alert.labels["service"] == "chat"}
    assert states == {PAGE: (), TICKET: (f"inhibited by {PAGE}",), "LlmKvCacheThrash": (f"inhibited by {PAGE}",)}


async def test_a_ticket_that_a_page_silenced_is_told_once_the_page_is_over(world: World) -> None:
    await world.at(30, alert(), alert(TICKET))
    await world.at(600, alert(TICKET))
    assert world.book.said()[-1] == ("changed", [TICKET], [PAGE])


async def test_a_service_that_is_down_says_it_for_its_pages(world: World) -> None:
    await world.at(30, alert(), alert("LlmServiceDown"))
    assert world.book.said() == [("new", ["LlmServiceDown"], [])]


async def test_alerts_without_a_service_silence_nothing(world: World) -> None:
    await world.at(30, alert("LlmGoodwatchDown", "", severity="critical"), alert(TICKET, ""))
    assert [len(one.firing) for one in world.book.told] == [2]


def silence(**more: float) -> Silence:
    times = {"starts_at_s": START_S, "ends_at_s": START_S + HOUR, **more}
    return Silence("s1", matchers_of(['service="chat"']), author="ann", comment="move", created_at_s=START_S, **times)


async def test_a_silenced_alert_is_told_when_the_silence_ends(world: World) -> None:
    world.dispatcher.quiet = Quiet((silence(),))
    await world.each(60, 0, HOUR, alert())
    assert world.book.told == []
    assert world.dispatcher.alerts[0].quiet == ("silence s1",)
    await world.at(HOUR, alert())
    assert world.book.said() == [("new", [PAGE], [])]


async def test_what_was_told_before_it_was_silenced_is_told_to_be_over(world: World) -> None:
    await world.at(30, alert())
    world.dispatcher.quiet = Quiet((silence(),))
    await world.each(60, 60, 1800, alert())
    assert len(world.book.told) == 1  # neither a false end nor a repeat
    await world.at(1800)
    assert world.book.said()[-1] == ("ended", [], [PAGE])


async def test_nobody_is_told_during_planned_maintenance(world: World) -> None:
    # START_S is a Wednesday, 03:12 UTC.
    nightly = Maintenance("nightly", Weekly(frozenset({2}), 3 * 60, 4 * 60))
    world.dispatcher.quiet = Quiet((), (nightly,))
    await world.each(60, 0, 48 * 60, alert())
    assert world.book.told == []
    await world.at(48 * 60, alert())  # 04:00
    assert world.book.said() == [("new", [PAGE], [])]


async def test_an_alert_that_comes_and_goes_is_at_most_one_message_an_interval(world: World) -> None:
    for minute in range(120):
        on = [alert(at_s=START_S + minute * 60)] if minute % 2 == 0 else []
        await world.each(15, minute * 60, minute * 60 + 60, *on)
    assert len(world.book.told) <= 2 + 2 * 120 * 60 / 300
    for before, later in zip(world.book.told, world.book.told[1:], strict=False):
        assert (before.resolved, later.resolved) != (False, False)  # never paged again without an end between


async def test_flapping_faster_than_the_interval_is_not_a_second_page(world: World) -> None:
    await world.at(30, alert())
    for second in range(45, 330, 30):
        await world.at(second)
        await world.at(second + 15, alert(at_s=START_S + second + 15))
    await world.at(345, alert(at_s=START_S + 330))
    assert world.book.said() == [("new", [PAGE], [])]


async def test_levels_and_services_choose_the_sink(tmp_path: Path) -> None:
    world = World(tmp_path, route={"levels": frozenset({"page"}), "services": frozenset({"chat"})})
    await world.at(30, alert(), alert(TICKET, "search"), alert("LlmServiceDown", "search"))
    world.close()
    assert [one.labels for one in world.book.told] == [{"service": "chat"}]


async def test_the_watchdog_goes_nowhere_by_itself(world: World) -> None:
    await world.at(60, alert("LlmWatchdog", severity="none"))
    assert world.book.told == []


async def test_a_storm_of_services_is_told_at_the_pace_of_the_sink_pages_first(tmp_path: Path) -> None:
    world = World(tmp_path, route={"per_minute": 3})
    many = [alert(TICKET, f"s{number}") for number in range(5)] + [alert(PAGE, "z")]
    await world.each(1, 30, 89, *many)
    assert [one.labels["service"] for one in world.book.told] == ["z", "s0", "s1"]
    assert world.dispatcher.sinks[0].waiting == 3
    await world.each(1, 89, 100, *many)
    world.close()
    assert len(world.book.told) == 6


async def test_the_steady_get_everything_again_and_again(tmp_path: Path) -> None:
    world = World(tmp_path, pace=Pace((), 0, 0, 60, 60, steady=True))
    both = [alert(), alert(TICKET)]
    await world.each(15, 0, 300, *both)
    assert [(one.at_s - START_S, len(one.firing)) for one in world.book.told] == [(n * 60, 2) for n in range(5)]
    await world.at(300, both[0])
    assert (len(world.book.told[-1].firing), [one.name for one in world.book.told[-1].ended]) == (1, [TICKET])
    # What repeats each minute for weeks must not be kept each time.
    assert len(world.records.history("notification", "book {}")) == 2
    world.close()


async def test_a_silence_makes_the_steady_believe_no_end(tmp_path: Path) -> None:
    world = World(tmp_path, pace=Pace((), 0, 0, 60, 60, steady=True))
    await world.at(0, alert())
    world.dispatcher.quiet = Quiet((silence(),))
    await world.at(60, alert(), alert(PAGE, "chat", slo="other"))
    assert world.book.said()[-1] == ("repeat", [PAGE], [])
    world.close()


async def test_states_tell_what_happened(world: World) -> None:
    await world.at(30, alert())
    (state,) = world.dispatcher.sinks
    assert (state.name, dict(state.sent), state.waiting, state.problem) == ("book", {"new": 1}, 0, "")
    assert state.last_sent_s == START_S + 30
    assert world.dispatcher.alerts[0].told == ("book",)


async def test_a_clock_that_is_set_back_holds_up_nobody(world: World) -> None:
    day = 24 * HOUR
    await world.each(15, day, day + 60, alert(at_s=START_S + day))
    assert world.book.said() == [("new", [PAGE], [])]
    await world.at(0, alert(at_s=START_S + day))  # a day back: once more, rather than a day of silence
    await world.each(15, 15, 900, alert(at_s=START_S + day))
    await world.at(900)
    assert world.book.said()[1:] == [("repeat", [PAGE], []), ("ended", [], [PAGE])]


async def test_the_steady_go_on_hearing_of_what_was_silenced_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path, pace=Pace((), 0.0, 0.0, 60.0, 60.0, steady=True))
    await world.each(60, 0, HOUR, alert())
    world.quiet = Quiet(
        (Silence("a", matchers_of(['service="chat"']), START_S, START_S + 9 * HOUR, "ann", "x", START_S),)
    )
    await world.restart()
    await world.at(HOUR, alert())
    assert [one.name for one in world.book.told[-1].firing] == [PAGE]
    assert world.book.told[-1].at_s == START_S + HOUR
    world.close()
