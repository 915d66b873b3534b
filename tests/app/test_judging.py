"""The judge job against real servers on loopback: what is kept, what it costs, when it stops."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from collector.judge import JudgeEndpoint, OpenAiJudge
from collector.quality.redact import Redactor
from collector.quality.texts import Spent, TextStore
from collector.spans.texts import SpanText
from collector.stores.memory_requests import MemoryRequestStore
from goodwatch.app.judging import JudgeTerms, Judging
from goodwatch.core.model import Absence, Basis
from goodwatch.core.quality import Price
from tests.support.judge_server import Answer, JudgeServer, fails, grades, hangs, judge_server, says

pytestmark = pytest.mark.integration

#: 2026-12-01 00:00:10 UTC
NOW_S = 1_796_083_210.0
DAY = "2026-12-01"
PRICE = Price(2.0, 10.0)  # a call of 400 and 40 tokens is 0.0012 USD


class StillClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at_s = NOW_S

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[TextStore]:
    store = TextStore(tmp_path / "texts.duckdb", Redactor(), keep_s=7 * 86_400.0, keep_bytes=10**8)
    yield store
    store.close()


def keep(texts: TextStore, count: int, **more: Any) -> None:
    for n in range(1, count + 1):
        one = {"input": "where is it?", "output": f"it is at place {n}", "context": ("it is at place 1",)} | more
        texts.append([SpanText(f"{n:032x}", f"{n:016x}", **one)], NOW_S - 60)


class Bench:
    """A job with what a test looks at."""

    def __init__(self, texts: TextStore, server: JudgeServer, judge: OpenAiJudge, **terms: Any) -> None:
        self.texts, self.server, self.clock = texts, server, StillClock()
        self.scores = MemoryRequestStore()
        self.waits: list[float] = []
        self.job = Judging(
            judge, texts, self.scores, self.clock, JudgeTerms("judge-1", **terms), wait=self._wait, random=Random(1)
        )  # fmt: skip

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    def kept(self) -> list[dict[str, Any]]:
        return self.scores.scores(0, NOW_S * 2).sort("trace_id", "evaluator").rows(named=True)


@asynccontextmanager
async def bench(texts: TextStore, *answers: Answer, timeout_s: float = 5.0, **terms: Any) -> AsyncIterator[Bench]:
    async with judge_server(*answers) as server:
        endpoint = JudgeEndpoint(server.url, "judge-1", timeout_s=timeout_s)
        async with OpenAiJudge(endpoint) as judge:
            yield Bench(texts, server, judge, **terms)


async def test_grades_are_kept_as_scores_of_the_span(texts: TextStore) -> None:
    keep(texts, 1)
    async with bench(texts, grades()) as at:
        assert await at.job.run_once() == 1
        found = [(r["evaluator"], r["score"], r["annotator"], r["identifier"]) for r in at.kept()]
        assert found == [("factuality", 0.75, "llm", "judge-1-2026#1"), ("faithfulness", 1.0, "llm", "judge-1-2026#1")]
        assert {(r["trace_id"], r["span_id"], r["ts"]) for r in at.kept()} == {(f"{1:032x}", f"{1:016x}", NOW_S)}
        assert await at.job.run_once() == 0  # nothing is judged twice
        material = json.loads(at.server.asked[0]["messages"][1]["content"])
        assert material == {"question": "where is it?", "answer": "it is at place 1", "documents": ["it is at place 1"]}


async def test_without_documents_only_factuality_is_kept(texts: TextStore) -> None:
    keep(texts, 1, context=())
    async with bench(texts, grades()) as at:
        await at.job.run_once()
        assert [row["evaluator"] for row in at.kept()] == ["factuality"]


async def test_an_unreadable_answer_gets_one_more_try(texts: TextStore) -> None:
    keep(texts, 1)
    async with bench(texts, says("Sure! It is fine."), grades()) as at:
        assert await at.job.run_once() == 1
        assert len(at.kept()) == 2
        assert len(at.server.asked) == 2
        assert [m["role"] for m in at.server.asked[1]["messages"]] == ["system", "user", "assistant", "user"]


async def test_two_unreadable_answers_are_no_score_and_no_third_try(texts: TextStore) -> None:
    keep(texts, 1)
    async with bench(texts, says("no"), price=PRICE) as at:
        await at.job.run_once()
        assert at.kept() == []
        assert at.job.outcomes == {"unreadable": 1}
        assert await at.job.run_once() == 0
        assert (await at.job.state()).usd.value == pytest.approx(2 * 0.0012)  # it was paid for


async def test_a_judge_that_will_not_say_gives_no_score(texts: TextStore) -> None:
    keep(texts, 1)
    async with bench(texts, grades(faithfulness=None, factuality=None)) as at:
        await at.job.run_once()
        assert at.kept() == []
        assert at.job.outcomes == {"nothing to judge": 1}


async def test_a_busy_judge_is_asked_again_after_the_wait_that_it_asks_for(texts: TextStore) -> None:
    keep(texts, 1)
    async with bench(texts, fails(429, Retry_After="7"), fails(500), fails(503), grades()) as at:
        assert await at.job.run_once() == 1
        assert len(at.kept()) == 2
        first, second, third = at.waits
        assert 7 <= first <= 10.5
        assert 2 <= second <= 3
        assert 4 <= third <= 6
        assert (await at.job.state()).calls == 4


async def test_a_judge_that_stays_busy_ends_the_run_and_loses_nothing(texts: TextStore) -> None:
    keep(texts, 3)
    async with bench(texts, fails(500)) as at:
        assert await at.job.run_once() == 0
        assert len(at.server.asked) == 4
        assert "status 500; it is asked again" in at.job.problem
        at.server.answers = [grades()]
        assert await at.job.run_once() == 3
        assert at.job.problem == ""


async def test_a_wait_of_minutes_is_left_to_the_next_run(texts: TextStore) -> None:
    keep(texts, 1)
    async with bench(texts, fails(429, Retry_After="600")) as at:
        await at.job.run_once()
        assert at.waits == []
        assert len(at.server.asked) == 1


async def test_a_wrong_key_ends_the_run_at_once(texts: TextStore) -> None:
    keep(texts, 3)
    async with bench(texts, fails(401)) as at:
        assert await at.job.run_once() == 0
        assert len(at.server.asked) == 1
        assert "quality.judge.key" in at.job.problem
        assert len(texts.waiting(0, NOW_S, 10)) == 3


async def test_a_refused_text_is_left_out_and_many_in_a_row_are_not_the_texts(texts: TextStore) -> None:
    keep(texts, 6)
    async with bench(texts, fails(400), grades()) as at:
        assert await at.job.run_once() == 6
        assert at.job.outcomes == {"refused": 1, "scored": 5}
        assert at.job.problem == ""
    keep(texts, 6, input="other words", output="another answer")
    async with bench(texts, fails(400)) as at:
        texts.append([SpanText("a" * 32, f"{n:016x}", "q", f"a{n}", ()) for n in range(1, 6)], NOW_S - 60)
        await at.job.run_once()
        assert len(at.server.asked) == 3
        assert "json_mode: false" in at.job.problem


async def test_the_calls_of_a_day_are_not_gone_over(texts: TextStore) -> None:
    keep(texts, 5)
    async with bench(texts, grades(), calls_per_day=3, look_back_s=2 * 86_400.0) as at:
        assert await at.job.run_once() == 3
        assert "3 calls today" in at.job.problem
        at.clock.at_s += 86_400
        assert await at.job.run_once() == 2  # another day
        assert (await at.job.state()).calls == 2


async def test_the_dollars_of_a_day_are_never_gone_over(texts: TextStore) -> None:
    keep(texts, 60)
    async with bench(texts, grades(), usd_per_day=0.02, price=PRICE, batch=60) as at:
        done = await at.job.run_once()
        state = await at.job.state()
        assert state.usd.basis is Basis.MEASURED
        assert state.usd.value == pytest.approx(done * 0.0012)
        assert 0 < done < 60
        assert state.usd.value is not None
        assert 0.01 < state.usd.value <= 0.02
        assert "usd_per_day" in state.problem
        # a restart gives nothing back
        assert texts.spent(DAY).usd == pytest.approx(state.usd.value)
        again = Judging(at.job.judge, texts, at.scores, at.clock, at.job.terms)
        assert await again.run_once() == 0


async def test_a_call_that_does_not_tell_its_usage_makes_the_cost_a_lower_bound(texts: TextStore) -> None:
    keep(texts, 2)
    untold = says(json.dumps({"faithfulness": 1, "factuality": 1}), usage={})
    async with bench(texts, grades(), untold, price=PRICE) as at:
        await at.job.run_once()
        usd = (await at.job.state()).usd
        assert usd.value is None
        assert usd.bounds is not None
        assert (usd.bounds.low, usd.bounds.high) == (pytest.approx(0.0012), None)


async def test_a_call_that_ran_out_of_time_may_have_cost_something(texts: TextStore) -> None:
    keep(texts, 1)
    async with bench(texts, hangs, timeout_s=0.1, tries=1, price=PRICE) as at:
        await at.job.run_once()
        assert texts.spent(DAY) == Spent(calls=1, untold_calls=1)


async def test_without_a_price_the_cost_is_not_known(texts: TextStore) -> None:
    async with bench(texts, grades()) as at:
        assert (await at.job.state()).usd.absence is Absence.NOT_MEASURABLE


async def test_a_call_that_is_cut_short_by_a_stop_is_not_given_back(texts: TextStore) -> None:
    keep(texts, 1)
    async with bench(texts, hangs, price=PRICE) as at:
        running = asyncio.create_task(at.job.run_once())
        await asyncio.wait_for(at.server.came.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert texts.spent(DAY) == Spent(calls=1, untold_calls=1)


async def test_a_store_that_cannot_be_used_ends_the_run_and_says_so(texts: TextStore) -> None:
    keep(texts, 2)
    async with bench(texts, grades()) as at:
        at.scores.close()
        assert await at.job.run_once() == 0
        assert "closed" in at.job.problem
        texts.close()
        assert await at.job.run_once() == 0
        assert "texts.duckdb" in at.job.problem
