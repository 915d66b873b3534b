"""States of recommendations under what happens in practice: restarts, rollouts, clocks, storms, people at once."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from collector.stores.memory_requests import MemoryRequestStore
from collector.stores.sqlite_records import SqliteRecords
from goodwatch.app.advising import RUN_KIND, Advising, Asked
from goodwatch.app.evidencing import Evidencing, Gathered
from goodwatch.app.view import TargetView
from goodwatch.core.drift import Drift
from goodwatch.core.errors import ConfigError, NoDataError
from goodwatch.core.model import Deployment
from planner.experiments.values import KIND as EXPERIMENT
from planner.recommendations import Recommendation, State
from tests.app.test_advising import CHAT, FLAGS, Played, deployed, requests
from tests.support.request_views import NOW_S, RequestWorld


@dataclass(slots=True)
class Counting(Evidencing):
    """Tells how often it was asked."""

    looked: list[float] = field(default_factory=list)

    async def gather(self, service: str, start_s: float, end_s: float, drift: Drift | None = None) -> Gathered:
        self.looked.append(end_s)
        return await Evidencing.gather(self, service, start_s, end_s, drift)


DRIFT = Drift("d1", "chat", "burn", "page", "burn_rate", "burns", NOW_S, NOW_S)


@pytest.fixture
async def played(tmp_path: Path) -> "Iterator[Played]":  # type: ignore[misc]
    world = await RequestWorld(requests(1, NOW_S - 80, 128), services=(CHAT,)).ready()
    records = SqliteRecords(tmp_path / "records.sqlite")
    flags = {"chat-0": FLAGS}
    made = Played(
        world,
        Advising(Evidencing(world.reads, world.watch, lambda: flags), records, world.loop.clock, warm_s=0.0),
        records,
        flags,
    )
    made.runs(deployed())
    yield made
    records.close()


def run_by(played: Played, *told: Deployment | None) -> None:
    """The replicas of the service from now on; None is one that is up and tells nothing yet."""
    views = tuple(
        TargetView(
            one.target if one else f"chat-{place}", "http://chat/metrics", "chat", True, NOW_S, 0.01, "", "vllm", "0.11.0", ("llama",),
            None, None, one,
        )
        for place, one in enumerate(told)
    )  # fmt: skip
    played.world.watch.shown["chat"] = replace(played.world.watch.shown["chat"], targets=views)


async def restarted(played: Played) -> Advising:
    """A new process over the same records."""
    again = Advising(played.advising.evidencing, played.records, played.advising.clock, warm_s=0.0)
    await again.recover()
    return again


async def first_of(played: Played) -> tuple[Recommendation, str]:
    """The first advice, and the limit that it recommends."""
    first = (await played.ask()).made[0]
    return first, str(first.changes["max_num_seqs"])


def state(advising: Advising, id: str) -> State:
    found = advising.one(id)
    assert found is not None
    return found.state


async def test_a_change_that_was_made_while_goodwatch_was_down_is_seen(played: Played) -> None:
    first, value = await first_of(played)
    again = await restarted(played)
    played.now(NOW_S + 60)
    run_by(played, replace(deployed(max_num_seqs=value), ts=NOW_S + 50))
    await again.work()
    assert state(again, first.id) == "applied"


async def test_a_change_that_comes_with_new_pods_is_seen(played: Played) -> None:
    first, value = await first_of(played)
    await played.advising.work()
    played.now(NOW_S + 60)
    run_by(played, replace(deployed(max_num_seqs=value), target="chat-7f9c", ts=NOW_S + 50))
    await played.advising.work()
    assert state(played.advising, first.id) == "applied"


async def test_a_change_of_some_replicas_is_not_applied_yet(played: Played) -> None:
    first, value = await first_of(played)
    new = replace(deployed(max_num_seqs=value), ts=NOW_S + 50)
    played.now(NOW_S + 60)
    for others in ([deployed(max_num_seqs="128")], [None]):  # one runs the old value, one tells nothing yet
        run_by(played, new, *(one and replace(one, target="chat-1") for one in others))
        await played.advising.work()
        assert state(played.advising, first.id) == "proposed"
    run_by(played, new, replace(new, target="chat-1", ts=NOW_S + 58))
    await played.advising.work()
    applied = played.advising.one(first.id)
    assert applied is not None
    assert applied.applied_s == NOW_S + 58  # with the last replica


async def test_a_service_that_shares_its_target_sees_the_change_as_well(played: Played) -> None:
    first, value = await first_of(played)
    twin = replace(first, id="twin", service="copy")
    await played.advising._keep(twin, NOW_S)
    await played.advising.work()
    played.now(NOW_S + 60)
    run_by(played, replace(deployed(max_num_seqs=value), ts=NOW_S + 50))
    played.world.watch.shown["copy"] = replace(played.world.watch.shown["chat"], name="copy")
    await played.advising.work()
    assert [state(played.advising, id) for id in (first.id, "twin")] == ["applied", "applied"]


async def test_one_restart_is_not_two_savings(played: Played) -> None:
    first, value = await first_of(played)
    less = replace(first, id="less", strategy="max_model_len", rank=2)
    await played.advising._keep(less, NOW_S)
    played.now(NOW_S + 60)
    run_by(played, replace(deployed(max_num_seqs=value), ts=NOW_S + 50))
    await played.advising.work()
    assert [state(played.advising, id) for id in (first.id, "less")] == ["applied", "declined"]


async def test_what_was_so_before_is_no_change(played: Played) -> None:
    first, value = await first_of(played)
    known = replace(first, id="known", before={"max_num_seqs": value})
    await played.advising._keep(known, NOW_S)
    await played.advising.move(first.id, "declined", "ann", "no")
    run_by(played, replace(deployed(max_num_seqs=value), engine_version="0.12.0", ts=NOW_S + 1))
    await played.advising.work()
    assert state(played.advising, "known") == "proposed"


async def test_one_who_is_late_is_told_what_another_said(played: Played) -> None:
    first, _ = await first_of(played)
    found = await asyncio.gather(
        played.advising.move(first.id, "applied", "ann"), played.advising.move(first.id, "declined", "bob", "no"),
        return_exceptions=True,
    )  # fmt: skip
    assert isinstance(found[1], ConfigError)
    assert state(played.advising, first.id) == "applied"
    assert [r.body["state"] for r in played.records.history("recommendation", first.id)] == ["proposed", "applied"]


async def test_of_two_checks_at_once_one_is_kept(played: Played) -> None:
    first, value = await first_of(played)
    played.now(NOW_S + 20)
    await played.advising.move(first.id, "applied", "ann")
    await played.add(requests(10_000, NOW_S + 21, int(value)))
    played.now(NOW_S + 300)
    found = await asyncio.gather(played.advising.check(first.id), played.advising.check(first.id))
    assert [one is None for one in found].count(True) == 1
    assert [step.state for step in played.advising.known[first.id].steps] == ["proposed", "applied", "verified"]


async def test_nothing_is_applied_before_it_was_recommended(played: Played) -> None:
    first, _ = await first_of(played)
    with pytest.raises(ConfigError, match="before it was recommended"):
        await played.advising.move(first.id, "applied", "ann", at_s=NOW_S - 86_400)


async def test_the_weeks_look_at_a_silent_service_is_not_made_every_few_seconds(played: Played) -> None:
    await played.advising.work()
    played.runs(deployed())
    run_by(played)  # no target tells what it runs: there is nothing to say
    counting = Counting(played.world.reads, played.world.watch)
    played.advising.evidencing = counting
    for second in range(0, 7200, 15):
        played.now(NOW_S + 8 * 86_400 + second)
        await played.advising.work()
    looks = counting.looked
    assert 1 <= len(looks) <= 2  # once an hour


async def test_a_storm_of_drifts_is_one_look_an_hour_and_none_is_lost(played: Played) -> None:
    for n in range(100):
        played.advising.drifted(replace(DRIFT, id=f"d{n}"))
    await played.advising.work()
    assert {one.drift for one in played.advising.all()} == {"d0"}
    played.advising.drifted(replace(DRIFT, id="later"))
    await played.advising.work()
    assert [(a.drift.id, a.due_s) for a in played.advising._asked if a.drift] == [("later", NOW_S + 3600)]


async def test_a_drift_is_not_silenced_by_a_deployment_that_waits(played: Played) -> None:
    await played.advising.work()
    run_by(played, replace(deployed(), engine_version="0.12.0"))
    await played.advising.work()
    assert [one.trigger for one in played.advising._asked] == ["deployment"]
    played.advising.drifted(DRIFT)
    await played.advising.work()
    assert {one.trigger for one in played.advising.all()} == {"drift"}


async def test_a_store_that_was_away_is_asked_again(played: Played) -> None:
    played.advising.drifted(DRIFT)
    whole = played.world.loop.store
    played.world.loop.store = MemoryRequestStore(clock=played.world.loop.clock)
    played.world.loop.store.close()
    await played.advising.work()
    assert played.advising.problem
    played.world.loop.store = whole
    played.now(NOW_S + 301)
    await played.advising.work()
    assert played.advising.all()


async def test_a_clock_that_was_set_back_stops_nothing(played: Played) -> None:
    played.records.put(RUN_KIND, "chat", NOW_S + 30 * 86_400, {})
    again = await restarted(played)
    again.drifted(DRIFT)
    await again.work()
    assert again.all()


async def test_a_record_that_cannot_be_read_does_not_keep_the_service_from_starting(played: Played) -> None:
    made = (await played.ask()).made
    played.records.put(EXPERIMENT, "odd", NOW_S, {"question": 7})
    played.records.put("recommendation", "odd", NOW_S, {"service": 7})
    again = await restarted(played)
    assert set(again.known) == {one.id for one in made}
    await again.count()
    assert again.experiments == ()


async def test_to_abstain_withdraws_nothing(played: Played) -> None:
    made = (await played.ask()).made
    assert made
    played.now(NOW_S + 880)  # the window holds the last bursts only
    assert "at least 300 are needed" in (await played.ask()).advice.reason
    with pytest.raises(NoDataError, match="no request ended"):
        await played.advising.ask(Asked("chat", "person", 5.0))
    assert {one.state for one in played.advising.all()} == {"proposed"}


async def test_a_question_about_money_withdraws_no_advice_about_the_promise(played: Played) -> None:
    made = (await played.ask()).made
    await played.ask(mode="save")
    assert {state(played.advising, one.id) for one in made} == {"proposed"}


async def test_why_there_is_no_verdict_yet_is_told(played: Played) -> None:
    first, value = await first_of(played)
    played.now(NOW_S + 20)
    await played.advising.move(first.id, "applied", "ann")
    await played.add(requests(10_000, NOW_S + 21, int(value), bursts=2))
    played.now(NOW_S + 80)
    await played.advising.work()
    assert "requests that a check needs came since the change" in played.advising.waiting[first.id]


async def test_a_change_that_is_taken_back_ends_its_check(played: Played) -> None:
    first, value = await first_of(played)
    store = played.world.watch.store
    store.record_deployment(replace(deployed(), ts=NOW_S - 3600))
    made = replace(deployed(max_num_seqs=value), ts=NOW_S + 20)
    store.record_deployment(made)
    played.now(NOW_S + 25)
    run_by(played, made)
    await played.advising.work()
    await played.add(requests(10_000, NOW_S + 26, int(value), bursts=2))
    store.record_deployment(replace(deployed(max_num_seqs="128"), ts=NOW_S + 33))
    run_by(played, replace(deployed(max_num_seqs="128"), ts=NOW_S + 33))
    await played.add(requests(20_000, NOW_S + 34, 128))
    played.now(NOW_S + 300)
    told = await played.advising.check(first.id)
    assert told is not None
    assert told.state == "inconclusive"
    assert "what runs was changed again" in told.steps[-1].note
