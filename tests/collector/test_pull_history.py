"""Reading the past: the range is covered without a gap, in stretches that the server answers."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from collector.pull import (
    Answer,
    Client,
    PrometheusHistory,
    PullError,
    PullOptions,
    PullRefusedError,
    Stretch,
    TargetFactory,
)
from goodwatch.app.engines import known_engines
from tests.support.prometheus_answers import HandClock, PreparedAsker, pages, series

START_S = 1_700_000_000.0
KEY = ("gpu-1:8000",)


def span_of(query: str) -> float:
    return float(query.rpartition("[")[2].removesuffix("ms]")) / 1000


class Past:
    """A history whose Prometheus has a scrape every ``every_s``, and fails as ``fails`` says; ``bare``: only ``up``."""

    def __init__(
        self, *, every_s: float = 15.0, bare: bool = False,
        fails: Callable[[float, int], Exception | None] = lambda _, __: None,
    ):  # fmt: skip
        self.clock, self.every_s, self.bare, self.fails = HandClock(), every_s, bare, fails
        self.more: dict[str, Any] = {}
        self.closed_left = False
        options = PullOptions("http://prom:9090", '{job="vllm"}', group_by=("instance",))
        self.asker = PreparedAsker(self.answer)
        client = Client(options, self.clock, asker=self.asker, sleep=self.clock.sleep)
        self.history = PrometheusHistory(TargetFactory(options, known_engines()), client)

    def answer(self, query: str, at_s: float) -> Answer:
        error = self.fails(span_of(query), len(self.asker.asked))
        if error is not None:
            raise error
        first, last = (at_s - span_of(query)) // self.every_s, at_s // self.every_s
        times = [self.every_s * i for i in range(int(first), int(last) + 1)]
        low = at_s - span_of(query)
        inside = [t for t in times if (low <= t if self.closed_left else low < t) and t <= at_s]
        stored = pages({t: (t - START_S, 1.0) for t in inside}) if inside else []
        return Answer(stored[:1] if self.bare else stored, **self.more)

    async def read(self, seconds: float, every_s: float | None = None) -> list[Stretch]:
        return [s async for s in self.history.read(KEY, START_S, START_S + seconds, every_s=every_s)]


def covered(found: list[Stretch], seconds: float) -> None:
    assert found[0].start_s == START_S
    assert found[-1].end_s == START_S + seconds
    assert all(a.end_s == b.start_s for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("closed_left", [False, True], ids=["open as in Prometheus 3", "closed as in Prometheus 2"])
async def test_every_scrape_of_a_range_is_read_once(closed_left: bool) -> None:
    past = Past()
    past.closed_left = closed_left
    found = await past.read(86_400.0)
    covered(found, 86_400.0)
    times = [s.ts for stretch in found for s in stretch.scrapes]
    first = START_S // 15 * 15 + 15
    assert times == [first + 15.0 * i for i in range(5760)]
    assert {s.target.name for s in found} == {"gpu-1:8000"}


async def test_a_stretch_holds_no_more_points_than_servers_give() -> None:
    past = Past(every_s=1.0, bare=True)
    found = await past.read(24_000.0)
    covered(found, 24_000.0)
    assert max(s.end_s - s.start_s for s in found) == 11_000.0
    assert all(span_of(query) <= 11_000.0 for query, _ in past.asker.asked)


async def test_one_scrape_a_minute_is_taken_on_request_and_every_failed_one() -> None:
    past = Past()
    down = series("up", [(START_S + 42.0, 0.0), (START_S + 57.0, 0.0)])
    past.asker.answer = lambda query, at_s: Answer([*past.answer(query, at_s).series, down])
    found = await past.read(600.0, 60.0)
    times = [s.ts - START_S for stretch in found for s in stretch.scrapes if s.up]
    assert all(b - a == 60.0 for a, b in itertools.pairwise(times))
    assert len(times) == 10
    assert [s.ts - START_S for stretch in found for s in stretch.scrapes if not s.up] == [42.0, 57.0]


async def test_a_day_is_the_longest_stretch() -> None:
    past = Past(every_s=60.0, bare=True)
    found = await past.read(7 * 86_400.0)
    covered(found, 7 * 86_400.0)
    assert len(found) < 12
    assert max(s.end_s - s.start_s for s in found) == 86_400.0


@pytest.mark.parametrize("reason", ["too_large", "timeout"])
async def test_what_is_too_much_at_once_is_read_in_shorter_stretches(reason: str) -> None:
    past = Past(fails=lambda span_s, _: PullError(reason, "too much") if span_s > 600 else None)
    found = await past.read(3600.0)
    covered(found, 3600.0)
    assert sum(len(s.scrapes) for s in found) == 240
    assert past.clock.at_s == HandClock().at_s, "without a pause: the same would be too much again"


async def test_what_is_too_much_even_for_a_minute_ends_it() -> None:
    past = Past(fails=lambda _, __: PullError("too_large", "too much"))
    with pytest.raises(PullError, match="too much"):
        await past.read(3600.0)
    assert span_of(past.asker.asked[-1][0]) == 60.0


async def test_an_overloaded_server_is_waited_for() -> None:
    past = Past(fails=lambda _, number: PullError("overloaded", "503", 5.0) if number % 2 else None)
    found = await past.read(7200.0)
    covered(found, 7200.0)
    assert past.clock.at_s >= HandClock().at_s + 10.0


async def test_a_server_that_is_gone_ends_it_after_half_a_minute() -> None:
    past = Past(fails=lambda _, __: PullError("unreachable", "prom:9090 cannot be reached: Connection refused"))
    with pytest.raises(PullError, match="cannot be reached"):
        await past.read(3600.0)
    assert 20.0 < past.clock.at_s - HandClock().at_s < 60.0


async def test_a_server_that_refuses_ends_it_at_once() -> None:
    past = Past(fails=lambda _, __: PullRefusedError("unauthorized", "prom:9090 answers 401"))
    with pytest.raises(PullRefusedError):
        await past.read(3600.0)
    assert len(past.asker.asked) == 1


async def test_only_the_target_is_asked_for() -> None:
    past = Past()
    await past.read(60.0)
    assert 'job="vllm",instance="gpu-1:8000"}[60000ms]' in past.asker.asked[0][0]


async def test_a_partial_answer_is_kept_and_says_which_stretch() -> None:
    past = Past()
    past.more = {"warnings": ("store-3: no such host",), "partial": True}
    (stretch,) = await past.read(600.0)
    assert stretch.warnings == ("prom:9090: store-3: no such host",)
    assert len(stretch.scrapes) == 40


async def test_targets_are_found_day_by_day() -> None:
    def answer(_: str, at_s: float) -> Answer:
        name = "gpu-1:8000" if at_s > START_S + 86_400 else "gpu-2:8000"
        return Answer([series("", [(at_s, 3.0)], instance=name), series("", [(at_s, 1.0)], instance="")])

    past = Past()
    past.asker.answer = answer
    assert await past.history.keys(START_S, START_S + 2 * 86_400 + 60) == [("gpu-1:8000",), ("gpu-2:8000",)]
    assert [(at - START_S, span_of(q.removesuffix("))") + "")) for q, at in past.asker.asked] == [
        (2 * 86_400 + 60, 86_400.0), (86_460, 86_400.0), (60, 60.0),
    ]  # fmt: skip
    assert past.asker.asked[0][0].startswith("count by (instance) (last_over_time({__name__=~")
