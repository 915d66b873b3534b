"""Polling a source: what is new, what is down, what is stale or gone, and what an outage says."""

from typing import Any

import pytest

from collector.pull import (
    Answer,
    Client,
    Poll,
    PrometheusSource,
    PullError,
    PullOptions,
    PullRefusedError,
    TargetFactory,
)
from goodwatch.app.engines import known_engines
from goodwatch.core.errors import ConfigError
from tests.support.prometheus_answers import HandClock, PreparedAsker, pages, series

START_S = 1_700_000_000.0
Rows = list[dict[str, Any]]


class Stored:
    """A source whose Prometheus has ``stored``, cut to what each query asks for, and fails with ``error`` when set."""

    def __init__(self, stored: Rows, **options: Any) -> None:
        self.stored, self.clock = stored, HandClock(START_S)
        self.error: Exception | None = None
        self.more: dict[str, Any] = {}
        self.spans_s: list[float] = []
        made = PullOptions(**{"url": "http://prom:9090", "selector": '{job="vllm"}', "settle_s": 5.0, **options})
        self.asker = PreparedAsker(self.answer)
        client = Client(made, self.clock, asker=self.asker, sleep=self.clock.sleep)
        self.source = PrometheusSource(TargetFactory(made, known_engines()), client, self.clock)

    def answer(self, query: str, at_s: float) -> Answer:
        if self.error is not None:
            raise self.error
        span_s = float(query.rpartition("[")[2].removesuffix("ms]")) / 1000
        self.spans_s.append(span_s)
        cut = [{**s, "values": [v for v in s["values"] if at_s - span_s < v[0] <= at_s]} for s in self.stored]
        return Answer([s for s in cut if s["values"]], **self.more)

    async def poll(self, later_s: float = 0.0) -> Poll:
        self.clock.at_s += later_s
        return await self.source.poll()


def times(poll: Poll) -> list[float]:
    return [r.scrape.ts - START_S for r in poll.readings]


def told(poll: Poll) -> list[tuple[str, bool, str]]:
    return [(r.target.name, r.scrape.up, r.scrape.reason) for r in poll.readings]


def every_15_s(first: int, last: int, **labels: str) -> Rows:
    return pages({START_S + 15.0 * i: (10.0 + i, 1.0) for i in range(first, last)}, **labels)


async def test_each_stored_scrape_is_handed_on_once_and_in_order() -> None:
    prom = Stored(every_15_s(-40, 40))
    first = await prom.poll()
    assert times(first) == [15.0 * i for i in range(-20, 0)], "the whole lookback, without what has not settled"
    assert times(await prom.poll(15.0)) == [0.0]
    assert times(await prom.poll(1.0)) == []
    assert times(await prom.poll(44.0)) == [15.0, 30.0, 45.0]
    assert prom.spans_s == [300.0, 45.0, 45.0, 59.0], "and no more is read than that needs"


async def test_a_page_is_understood_as_if_it_had_been_scraped() -> None:
    prom = Stored(every_15_s(-1, 0), service="chat", gpus=2.0, gpu_hour_usd=2.5, labels={"gpu": "H100"})
    (reading,) = (await prom.poll()).readings
    assert (reading.target.name, reading.target.service, reading.target.gpus) == ("gpu-1:8000", "chat", 2.0)
    assert reading.target.labels == {"job": "vllm", "instance": "gpu-1:8000", "gpu": "H100"}
    assert reading.scrape.duration_s == 0.25
    values = {(s.signal, s.part): s.value for s in reading.scrape.samples}
    assert values["requests_finished_total", "finished_reason=stop"] == 9.0
    assert {s.engine for s in reading.scrape.samples} == {"vllm"}
    assert {s.model for s in reading.scrape.samples} == {"tiny"}
    assert reading.deployment is not None
    assert reading.deployment.engine == "vllm"
    assert "pod" not in reading.deployment.facts


async def test_a_scrape_that_prometheus_could_not_do_is_a_failed_one() -> None:
    stored = [*every_15_s(-4, -2), series("up", [(START_S - 30, 0.0), (START_S - 15, 0.0)])]
    poll = await Stored(stored).poll()
    assert told(poll)[2:] == [("gpu-1:8000", False, "target_down")] * 2
    assert poll.readings[-1].scrape.error == "prom:9090 could not scrape gpu-1:8000"


async def test_a_target_that_was_never_up_is_watched_all_the_same() -> None:
    poll = await Stored([series("up", [(START_S - 15, 0.0)])]).poll()
    assert told(poll) == [("gpu-1:8000", False, "target_down")]


async def test_what_answers_and_is_no_engine_is_no_target() -> None:
    node = [series("up", [(START_S - 15, 1.0)], instance="gpu-1:9100")]
    poll = await Stored([*every_15_s(-2, 0), *node]).poll()
    assert [t.name for t in poll.targets] == ["gpu-1:8000"]


async def test_a_known_target_that_stops_to_be_an_engine_is_told() -> None:
    prom = Stored([*every_15_s(-2, 0), series("up", [(START_S, 1.0)])])
    await prom.poll()
    assert told(await prom.poll(15.0)) == [("gpu-1:8000", False, "not_metrics")]


async def test_a_target_of_which_nothing_new_comes_is_stale_and_then_gone() -> None:
    prom = Stored([*every_15_s(-2, 0), *every_15_s(-2, 40, instance="gpu-2:8000")])
    await prom.poll()
    assert told(await prom.poll(45.0)) == [("gpu-2:8000", True, "")] * 3
    poll = await prom.poll(15.0)
    assert ("gpu-1:8000", False, "stale") in told(poll)
    assert "has no sample of gpu-1:8000 since 22:13:05 UTC" in poll.readings[-1].scrape.error
    poll = await prom.poll(250.0)
    assert [t.name for t in poll.targets] == ["gpu-2:8000"], "Prometheus no longer scrapes it"


@pytest.mark.parametrize(
    "error",
    [
        PullError("unreachable", "prom:9090 cannot be reached: Connection refused"),
        PullRefusedError("unauthorized", "prom:9090 answers 401: no org id; check authorization"),
    ],
)
async def test_an_outage_of_prometheus_is_told_of_every_target(error: PullError | PullRefusedError) -> None:
    prom = Stored([*every_15_s(-2, 40), *every_15_s(-2, 40, instance="gpu-2:8000")])
    await prom.poll()
    prom.error = error
    poll = await prom.poll(15.0)
    assert told(poll) == [(n, False, f"prometheus_{error.reason}") for n in ("gpu-1:8000", "gpu-2:8000")]
    assert poll.readings[0].scrape.error == f"{error}; nothing is known of gpu-1:8000 meanwhile"
    assert poll.error == str(error)
    prom.error = None
    poll = await prom.poll(60.0)
    assert times(poll) == [0.0, 15.0, 30.0, 45.0, 60.0] * 2, "what was stored meanwhile is read then"
    assert poll.error == ""


async def test_an_outage_before_the_first_answer_is_shown_by_a_stand_in() -> None:
    prom = Stored(every_15_s(-2, 40), service="chat")
    prom.error = PullError("timeout", "prom:9090 did not answer within 10 s")
    poll = await prom.poll()
    assert told(poll) == [("prometheus prom:9090", False, "prometheus_timeout")]
    assert prom.source.targets[0].service == "chat"
    prom.error = None
    assert [t.name for t in (await prom.poll(15.0)).targets] == ["gpu-1:8000"]


async def test_a_selector_that_matches_no_engine_is_told() -> None:
    poll = await Stored([]).poll()
    assert told(poll) == [("prometheus prom:9090", False, "no_series")]
    assert poll.readings[0].scrape.error == (
        'prom:9090 answers, and none of its targets under {job="vllm"} has the names of a known engine; check the selector'
    )


async def test_a_partial_answer_is_kept_marked_and_forgets_nobody() -> None:
    prom = Stored([*every_15_s(-2, 0), *every_15_s(-2, 60, instance="gpu-2:8000")])
    await prom.poll()
    prom.more = {"warnings": ("store-3: connection refused",), "partial": True}
    poll = await prom.poll(400.0)
    assert poll.warnings == ("store-3: connection refused",)
    assert {t.name for t in poll.targets} == {"gpu-1:8000", "gpu-2:8000"}
    good = [r for r in poll.readings if r.understood is not None]
    assert good
    assert {p.text for r in good if r.understood for p in r.understood.page.problems} == {
        "prom:9090: store-3: connection refused"
    }


async def test_a_malformed_answer_is_an_outage_and_the_next_poll_goes_on() -> None:
    prom = Stored(every_15_s(-2, 40))
    await prom.poll()
    prom.stored = [{"metric": {"__name__": "up", "instance": "gpu-1:8000"}, "values": [[START_S, None]]}]
    assert told(await prom.poll(15.0)) == [("gpu-1:8000", False, "prometheus_malformed")]
    prom.stored = every_15_s(-2, 40)
    assert times(await prom.poll(15.0)) == [0.0, 15.0]


async def test_two_processes_in_one_target_stay_refused_until_the_whole_lookback_shows_one() -> None:
    other = pages({START_S + 15.0 * i + 7: (500.0 + i, 1.0) for i in range(-20, 4)}, instance="gpu-2:8000")
    prom = Stored([*every_15_s(-20, 60), *other], group_by=("job",))
    for later_s in (0.0, 15.0, 15.0):
        poll = await prom.poll(later_s)
        assert told(poll) == [("vllm", False, "ambiguous")]
        assert "add what tells them apart" in poll.readings[0].scrape.error
    assert all(up for _, up, _ in told(await prom.poll(400.0)))


async def test_the_name_of_a_target_is_made_of_all_its_labels() -> None:
    stored = every_15_s(-2, 0, namespace="prod", pod="chat-0")
    poll = await Stored(stored, group_by=("namespace", "pod")).poll()
    assert [t.name for t in poll.targets] == ["prod/chat-0"]


async def test_a_restart_is_seen_by_the_counters_that_fell() -> None:
    falls = {START_S - 45: (90.0, 1.0), START_S - 30: (95.0, 1.0), START_S - 15: (3.0, 0.0)}
    poll = await Stored(pages(falls)).poll()
    ended = [s.value for r in poll.readings for s in r.scrape.samples if s.signal == "requests_finished_total"]
    assert ended == [90.0, 95.0, 3.0], "counters are handed on as they were read; the tracker tells of restarts"


def test_a_selector_that_cannot_be_used_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="selector: 'up' is not a list of label matchers"):
        Stored([], selector="up")
