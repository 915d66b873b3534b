"""Discoveries as the service runs them: replaced at a reload, left alone when nothing about them changed."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from collector.discovery.port import OnChange
from collector.targets import TargetSpec
from goodwatch.app.discovering import Discovering, DiscoveryView
from goodwatch.core.model import Target


@dataclass
class Scripted:
    """A discovery whose targets a test sets."""

    name: str = "fake_sd[0]"
    targets: tuple[TargetSpec, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)
    looks: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    breaks: bool = False
    on_change: OnChange | None = None

    async def refresh(self) -> bool:
        self.looks += 1
        return False

    async def run(self, on_change: OnChange) -> None:
        self.on_change = on_change
        self.begun.set()
        if self.breaks:
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True

    def find(self, name: str) -> None:
        self.targets = (TargetSpec(Target(name, f"http://{name}/metrics", "s")),)
        assert self.on_change is not None
        self.on_change(self.targets)


@pytest.fixture
def told() -> list[str]:
    return []


def tells(told: list[str]) -> Callable[[], None]:
    return lambda: told.append("changed")


async def test_targets_of_all_are_one_list_and_changes_are_told(told: list[str]) -> None:
    first, second = Scripted(), Scripted("fake_sd[1]")
    discovering = Discovering(tells(told))
    await discovering.follow([first, second], 1)
    assert (first.looks, second.looks, told) == (1, 1, [])
    await asyncio.gather(first.begun.wait(), second.begun.wait())
    second.find("b")
    first.find("a")
    assert [s.target.name for s in discovering.targets] == ["a", "b"]
    assert told == ["changed", "changed"]
    await discovering.stop()
    assert first.ended
    assert second.ended


async def test_what_was_made_from_the_same_settings_goes_on_and_looks_once_more(told: list[str]) -> None:
    first, again = Scripted(), Scripted()
    discovering = Discovering(tells(told))
    await discovering.follow([first], ("same",))
    await first.begun.wait()
    await discovering.follow([again], ("same",))
    assert (first.looks, again.looks, first.ended) == (2, 0, False)
    await discovering.stop()


async def test_other_settings_end_what_ran_before(told: list[str]) -> None:
    first, other = Scripted(), Scripted()
    discovering = Discovering(tells(told))
    await discovering.follow([first], 1)
    await first.begun.wait()
    first.find("a")
    await discovering.follow([other], 2)
    assert first.ended
    assert discovering.targets == []
    await discovering.follow([], 3)
    await discovering.stop()


async def test_a_discovery_that_breaks_is_told_and_the_others_go_on(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = Scripted("broken_sd[0]", breaks=True), Scripted()
    discovering = Discovering(tells(told))
    with caplog.at_level(logging.ERROR):
        await discovering.follow([broken, sound], 1)
        await sound.begun.wait()
        await asyncio.sleep(0)
        sound.find("a")
        assert [r.message for r in caplog.records] == ["a discovery broke; this is a bug"], "told at once"
    await discovering.stop()
    assert told == ["changed"]


async def test_each_is_shown_with_its_targets_and_what_is_wrong_with_it_now(told: list[str]) -> None:
    first, second = Scripted(problems={"a.json": "empty"}), Scripted("fake_sd[1]")
    discovering = Discovering(tells(told))
    await discovering.follow([first, second], 1)
    await second.begun.wait()
    second.find("b")
    assert discovering.views() == (
        DiscoveryView("fake_sd[0]", 0, (("a.json", "empty"),)), DiscoveryView("fake_sd[1]", 1),
    )  # fmt: skip
    first.problems.clear()
    assert discovering.views()[0].problems == ()
    await discovering.stop()


async def test_one_that_broke_is_shown_as_broken_until_others_take_its_place(
    told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    discovering = Discovering(tells(told))
    await discovering.follow([Scripted(breaks=True)], 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (view,) = discovering.views()
    ((_, text),) = view.problems
    assert not view.running
    assert "bug" in text
    assert "restart" in text
    await discovering.follow([Scripted()], 2)
    assert discovering.views()[0].problems == ()
    await discovering.stop()
    assert [r.message for r in caplog.records] == ["a discovery broke; this is a bug"]
