"""From requests in the store to advice, what people say to it, and the verdict: real stores, a simulated engine."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.stores.sqlite_records import SqliteRecords
from exporters.recommendations import recommendation_families
from goodwatch.app.advice_view import advice_now
from goodwatch.app.advising import Advising, Answer, Asked
from goodwatch.app.config import Service
from goodwatch.app.evidencing import Evidencing
from goodwatch.app.view import TargetView
from goodwatch.core.drift import Drift
from goodwatch.core.errors import ConfigError, NoDataError
from goodwatch.core.model import Deployment
from goodwatch.signals.request_frames import FACTS
from planner.experiments.values import KIND as EXPERIMENT
from planner.simulate.run import simulate
from planner.simulate.setup import Fleet, Scheduler, StepCost
from planner.simulate.trace import trace
from tests.support.request_views import NOW_S, RequestWorld, fact

#: 3 ms and 0.4 ms for each running request: 8 at once decode in about 6 ms a token, 48 in about 22 ms
COST = StepCost(0.003, 0.0004, 0.0, 1e-5, 5e-4)
CHAT = Service.model_validate({"name": "chat", "slo": {"ttft": "6s", "tpot": "11ms", "objective": 0.95}})
FLAGS = "--max-num-seqs 128 --max-num-batched-tokens 2048"


#: requests of a burst: a step's parts can be told apart only where the load varies
SIZES = (48, 60, 8, 40, 56, 20, 48, 4)


def requests(first: int, start_s: float, sequences: int, bursts: int = 24) -> list[dict[str, Any]]:
    """Facts of bursts every 3 s on an engine that runs so many at once."""
    arrived = [start_s + 3.0 * n + i * 1e-4 for n in range(bursts) for i in range(SIZES[n % len(SIZES)])]
    lengths = [(20 + (7 * i) % 40, 30 + (11 * i) % 30) for i in range(len(arrived))]
    made = trace(arrived, [a for a, _ in lengths], [b for _, b in lengths])
    found = simulate(made, Fleet(COST, Scheduler(sequences, 2048, 1_000_000))).requests
    rows = []
    for i, (ttft, e2e) in enumerate(zip(found["ttft_s"], found["e2e_s"], strict=True)):
        more = {
            "ended_at": arrived[i] + e2e,
            "engine_ttft_s": ttft,
            "engine_e2e_s": e2e,
            "output_tokens": lengths[i][1],
        }
        rows.append(fact(first + i, **more, input_tokens=lengths[i][0], cached_tokens=0))
    return rows


def deployed(**facts: str) -> Deployment:
    """What vLLM tells of itself: block size and number, not the limit of sequences."""
    told = {"block_size": "16", "num_gpu_blocks": "4096", **facts}
    return Deployment(NOW_S - 3600, "chat-0", "chat", "vllm", "0.11.0", "llama", told)


@dataclass
class Played:
    """Advising over a service with one replica."""

    world: RequestWorld
    advising: Advising
    records: SqliteRecords
    flags: dict[str, str] = field(default_factory=lambda: {"chat-0": FLAGS})

    def now(self, at_s: float) -> None:
        """Set the clock."""
        self.world.loop.clock.at_s = at_s  # type: ignore[attr-defined]
        self.world.watch.clock = self.advising.clock = self.world.loop.clock

    def runs(self, told: Deployment) -> None:
        """What the replica tells from now on."""
        view = TargetView(
            "chat-0", "http://chat-0/metrics", "chat", True, NOW_S, 0.01, "", "vllm", "0.11.0", ("llama",), None, None, told
        )  # fmt: skip
        self.world.watch.shown["chat"] = replace(self.world.watch.shown["chat"], targets=(view,))

    async def add(self, rows: list[dict[str, Any]]) -> None:
        """More requests end."""
        facts = pl.DataFrame(rows, schema=FACTS)
        self.world.store.settle(facts["trace_id"].unique().to_list(), facts)

    async def ask(self, **more: Any) -> Answer:
        """A person asks for the last quarter of an hour."""
        return await self.advising.ask(Asked("chat", "person", 900.0, **more))


@pytest.fixture
async def played(tmp_path: Path) -> "Iterator[Played]":  # type: ignore[misc]
    world = await RequestWorld(requests(1, NOW_S - 80, 128), services=(CHAT,)).ready()
    records = SqliteRecords(tmp_path / "records.sqlite")
    flags = {"chat-0": FLAGS}
    evidencing = Evidencing(world.reads, world.watch, lambda: flags)
    made = Played(world, Advising(evidencing, records, world.loop.clock, warm_s=0.0), records, flags)
    made.runs(deployed())
    yield made
    records.close()


async def test_a_limit_past_the_knee_is_found_applied_and_verified(played: Played) -> None:
    answer = await played.ask()
    first = answer.made[0]
    assert first.strategy == "concurrency"
    (line,) = first.diff
    assert (line.flags_before, line.flags_after.split()[0]) == ("--max-num-seqs 128", "--max-num-seqs")
    value = first.changes["max_num_seqs"]
    assert isinstance(value, int)
    # a step of n requests takes 3 + 0.4 n ms: at most 20 of them leave room for 11 ms a token
    assert 2 <= value <= 20
    await played.advising.move(first.id, "accepted", "ann")
    played.now(NOW_S + 20)
    await played.advising.move(first.id, "applied", "ann")
    assert await played.advising.check(first.id) is None  # no request came since
    await played.add(requests(10_000, NOW_S + 21, value))
    played.now(NOW_S + 300)
    verified = await played.advising.check(first.id)
    assert verified is not None
    assert verified.state == "verified", verified.verdict
    attained = verified.metric("attainment_ratio")
    assert attained is not None
    assert attained.inside
    assert [step.state for step in verified.steps] == ["proposed", "accepted", "applied", "verified"]
    assert played.records.get(EXPERIMENT, f"check-{first.id}") is not None
    series = {m.name: m for m in recommendation_families(advice_now(played.advising))}
    better = [s.value for s in series["goodwatch_experiment_verdicts"].samples if s.labels["verdict"] == "better"]
    assert better == [1.0]


async def test_a_check_that_finds_nothing_is_made_again_with_more_and_not_for_ever(played: Played) -> None:
    first = (await played.ask()).made[0]
    played.now(NOW_S + 20)
    await played.advising.move(first.id, "applied", "ann")
    looked = []
    for n in range(1, 40):  # nothing has changed: the old setting goes on
        await played.add(requests(100_000 * n, NOW_S + 100 * n, 128))
        played.now(NOW_S + 100 * n + 99)
        if await played.advising.check(first.id) is not None:
            looked.append(n * 24 * 45)  # bursts of 45 on average
    after = played.advising.one(first.id)
    assert after is not None
    assert 1 <= len(looked) <= 3
    assert all(b >= 4 * a * 0.9 for a, b in itertools.pairwise(looked))
    assert after.state in ("inconclusive", "refuted")


async def test_the_same_advice_is_not_given_twice_and_a_declined_one_stays_quiet(played: Played) -> None:
    first = await played.ask()
    again = await played.ask()
    assert first.made
    assert not again.made
    assert {one.id for one in again.known} == {one.id for one in first.made}
    for one in first.made:
        with pytest.raises(ConfigError, match="say why"):
            await played.advising.move(one.id, "declined", "ann")
        await played.advising.move(one.id, "declined", "ann", "we are about to move")
    assert not (await played.ask()).made
    played.now(NOW_S + 1)
    assert not any(one.is_open for one in played.advising.all())


async def test_what_is_kept_is_taken_up_again(played: Played) -> None:
    made = (await played.ask()).made
    other = Advising(played.advising.evidencing, played.records, played.advising.clock)
    await other.recover()
    assert set(other.known) == {one.id for one in made}
    assert other.one(made[0].id) == made[0]


async def test_a_service_that_is_new_is_looked_at_when_it_drifts(played: Played) -> None:
    await played.advising.work()  # sees the service for the first time; that is no look at it
    played.advising.drifted(Drift("b", "chat", "burn", "page", "burn_rate", "", NOW_S, NOW_S))
    await played.advising.work()
    assert "chat" in played.advising.answers


async def test_a_drift_asks_for_advice_once_an_hour(played: Played) -> None:
    drift = Drift("d1", "chat", "burn", "page", "burn_rate", "burns", NOW_S, NOW_S)
    played.advising.drifted(drift)
    played.advising.drifted(replace(drift, id="d2"))
    await played.advising.work()
    found = played.advising.all()
    assert found
    assert {one.drift for one in found} == {"d1"}
    assert {one.trigger for one in found} == {"drift"}
    played.advising.drifted(replace(drift, id="d3"))
    await played.advising.work()
    assert len(played.advising.all()) == len(found)


async def test_the_engines_own_deployment_says_that_a_change_was_applied(played: Played) -> None:
    first = (await played.ask()).made[0]
    await played.advising.work()
    value = str(first.changes["max_num_seqs"])
    played.now(NOW_S + 60)
    played.runs(replace(deployed(max_num_seqs=value), ts=NOW_S + 50))
    await played.advising.work()
    applied = played.advising.one(first.id)
    assert applied is not None
    assert (applied.state, applied.applied_s) == ("applied", NOW_S + 50)


async def test_a_flag_that_is_set_and_not_in_effect_is_told(played: Played) -> None:
    played.runs(deployed(max_num_seqs="64"))
    answer = await played.ask()
    assert answer.findings == ("max_num_seqs was set to 128, the engine reports 64: set but not in effect",)


async def test_too_little_traffic_gives_the_reason_and_no_advice(played: Played) -> None:
    played.now(NOW_S + 880)  # the window holds the last bursts only
    answer = await played.ask()
    assert not answer.made
    assert "at least 300 are needed" in answer.advice.reason


async def test_a_service_that_is_not_there_is_said(played: Played) -> None:
    with pytest.raises(NoDataError, match=r"there is none; known are chat"):
        await played.advising.ask(Asked("chta", "person"))
