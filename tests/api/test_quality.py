"""Scores in and shares out over HTTP."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from collector.quality.posted import MOST_SCORES
from collector.quality.redact import Redactor
from collector.quality.texts import TextStore
from goodwatch.api.routes_quality import MOST_BYTES, quality_routes
from goodwatch.app.judging import JudgeTerms, Judging
from goodwatch.app.quality_reads import QualityReads
from goodwatch.core.errors import StoreError
from goodwatch.core.quality import JudgeReply, QualityRules
from tests.api.test_app import OPEN, app_of, client_of, problem_of
from tests.support.request_views import NOW_S, Clock, RequestWorld, fact, score_of
from tests.support.views import PlainViews

PATH = "/api/v1/quality"
TRACE = f"{1:032x}"
GOOD = {"trace_id": TRACE, "evaluator": "faithfulness", "score": 0.5}


def app_of_world(world: RequestWorld, judging: Judging | None = None) -> FastAPI:
    reads = QualityReads(world.reads, QualityRules(), judging)
    return app_of(PlainViews(), OPEN, quality_routes(world.store, reads, PlainViews()))


async def sent(world: RequestWorld, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"content-type": "application/json"} | headers
    async with client_of(app_of_world(world)) as client:
        return await client.post(PATH, content=content, headers=named)


async def asked(world: RequestWorld, path: str = PATH, judging: Judging | None = None, **query: str) -> httpx.Response:
    async with client_of(app_of_world(world, judging)) as client:
        return await client.get(path, params=query)


def kept(world: RequestWorld) -> list[dict[str, Any]]:
    return world.store.scores(0, NOW_S * 2).rows(named=True)


async def test_one_score_is_kept_when_the_answer_comes() -> None:
    world = RequestWorld()
    response = await sent(world, GOOD | {"annotator": "human", "identifier": "ann"})
    assert response.status_code == 200
    assert response.json() == {"accepted": 1, "refused": 0, "problems": []}
    (row,) = kept(world)
    assert (row["trace_id"], row["score"], row["annotator"], row["ts"]) == (TRACE, 0.5, "human", NOW_S)


async def test_sending_again_replaces_and_does_not_add() -> None:
    world = RequestWorld()
    for score in (0.1, 0.9, 0.9):
        assert (await sent(world, GOOD | {"score": score})).status_code == 200
    assert [row["score"] for row in kept(world)] == [0.9]


async def test_a_batch_keeps_what_can_be_kept_and_names_the_rest_by_place() -> None:
    world = RequestWorld()
    response = await sent(world, [GOOD, GOOD | {"score": 7}, "x", GOOD | {"identifier": "b"}])
    assert response.status_code == 200
    found = response.json()
    assert (found["accepted"], found["refused"]) == (2, 2)
    assert [(one["index"], one["status"], one["type"]) for one in found["problems"]] == [
        (1, 422, "about:blank"), (2, 422, "about:blank"),
    ]  # fmt: skip
    assert found["problems"][0]["detail"].startswith("score: ")
    assert len(kept(world)) == 2


async def test_a_batch_without_a_usable_score_is_a_problem() -> None:
    world = RequestWorld()
    found = problem_of(await sent(world, [GOOD | {"score": 7}, {}]))
    assert found.status == 422
    assert [fault.where for fault in found.errors] == ["[0].score", "[1].evaluator"]
    assert kept(world) == []


async def test_an_empty_batch_is_fine() -> None:
    assert (await sent(RequestWorld(), [])).json()["accepted"] == 0


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not JSON"),
        (b'{"score": NaN}', 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[" * 200_000, 400, "not JSON"),
        (b"[" + b"1," * MOST_SCORES + b"1]", 413, "at most 10,000"),
        (b" " * (MOST_BYTES + 1), 413, "16 MiB"),
    ],
)
async def test_what_cannot_be_read_is_a_problem(body: bytes, status: int, says: str) -> None:
    found = problem_of(await sent(RequestWorld(), body))
    assert found.status == status
    assert says in found.detail


async def test_other_content_types_are_refused() -> None:
    assert problem_of(await sent(RequestWorld(), GOOD, **{"content-type": "text/csv"})).status == 415


async def test_a_store_that_cannot_keep_it_says_so_and_asks_for_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RequestWorld()
    world.store.close()
    response = await sent(world, GOOD)
    if response.status_code == 200:
        pytest.fail("the closed store took a score")
    assert problem_of(response).status == 503
    assert response.headers["retry-after"]


def rated(*scores: float | None, **more: Any) -> RequestWorld:
    rows = [fact(n, **more) for n in range(1, len(scores) + 1)]
    told = [score_of(row, score) for row, score in zip(rows, scores, strict=True) if score is not None]
    return RequestWorld(rows, scores=told)


async def test_shares_come_with_intervals_and_what_has_no_score_is_inside_the_bounds() -> None:
    found = (await asked(rated(1.0, 1.0, 0.0, None))).json()
    whole = found["whole"]
    assert (whole["requests"], whole["scored"], whole["faulty"]) == (4, 3, 1)
    assert whole["quality_ratio"]["value"] == pytest.approx(2 / 3)
    assert whole["fast_but_wrong"]["value"] == pytest.approx(1 / 3)
    assert whole["good_and_passed"]["value"] is None
    assert (whole["good_and_passed"]["low"], whole["good_and_passed"]["high"]) == (0.5, 0.75)
    assert found["evaluators"]["faithfulness"]["value"] == pytest.approx(2 / 3)


async def test_a_split_by_model_and_time_has_a_group_for_each() -> None:
    rows = [fact(1, model="a"), fact(2, model="a"), fact(3, model="b", ended_at=NOW_S - 3000)]
    world = RequestWorld(rows, scores=[score_of(row, 1.0) for row in rows])
    found = (await asked(world, by="model", step="30m")).json()
    assert [(g["key"], g["requests"]) for g in found["groups"]] == [("a", 2), ("b", 1)]
    assert all(g["start_s"] % 1800 == 0 for g in found["groups"])


async def test_filters_do_not_make_a_request_the_only_one_of_its_trace() -> None:
    rows = [fact(1, model="a"), fact(2, model="b", trace_id=TRACE)]
    chain = score_of(rows[0], 0.0, span_id="f" * 16)
    found = (await asked(RequestWorld(rows, scores=[chain]), model="a")).json()
    assert (found["whole"]["requests"], found["whole"]["scored"], found["unjoined"]) == (1, 0, 1)


async def test_judge_and_people_are_compared() -> None:
    rows = [fact(n) for n in range(1, 5)]
    told = [score_of(row, float(n % 2)) for n, row in enumerate(rows)]
    told += [score_of(row, float(n % 2), annotator="human") for n, row in enumerate(rows)]
    found = (await asked(RequestWorld(rows, scores=told))).json()
    assert found["agreement"]["faithfulness"]["kappa"] == 1.0


async def test_wrong_questions_are_problems() -> None:
    world = rated(1.0)
    assert "by: 'colour'" in problem_of(await asked(world, by="colour")).detail
    assert "step" in problem_of(await asked(world, step="0.1s")).detail
    assert problem_of(await asked(world, service="none")).status == 404


class StillJudge:
    """Never asked here."""

    async def ask(self, messages: Any) -> JudgeReply:
        raise AssertionError(messages)


async def test_the_judge_tells_what_it_spent(tmp_path: Path) -> None:
    world = rated(1.0)
    assert problem_of(await asked(world, f"{PATH}/judge")).status == 404
    texts = TextStore(tmp_path / "texts.duckdb", Redactor(), keep_s=1e6, keep_bytes=10**6)
    judging = Judging(StillJudge(), texts, world.store, Clock(), JudgeTerms("judge-1", calls_per_day=5))
    found = (await asked(world, f"{PATH}/judge", judging)).json()
    texts.close()
    assert (found["model"], found["calls"], found["calls_per_day"], found["day"]) == ("judge-1", 0, 5, "2026-03-04")
    assert found["usd"]["absence"] == "not measurable"


def test_a_store_error_is_raised_by_a_closed_store() -> None:
    world = RequestWorld()
    world.store.close()
    with pytest.raises(StoreError):
        world.store.scores(0, 1)
