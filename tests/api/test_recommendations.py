"""Recommendations over HTTP and on their pages: real records, one recommendation of a test's making."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import httpx
import pytest

from collector.stores.sqlite_records import SqliteRecords
from goodwatch.api.routes_recommendations import recommendation_routes
from goodwatch.api.ui.pages import pages
from goodwatch.api.ui.recommendation_pages import recommendation_pages
from goodwatch.app.advising import Advising
from goodwatch.app.evidencing import Evidencing
from planner.recommendations import KIND, Band, ChangeLine, Predicted, Recommendation, to_body
from tests.api.test_app import CLOSED, OPEN, app_of, client_of, problem_of
from tests.planner.test_recommendations import recommendation
from tests.support.request_views import RequestWorld
from tests.support.views import PlainViews

PATH = "/api/v1/recommendations"


def shown() -> Recommendation:
    """One with all that a page shows."""
    one = recommendation(
        "r1", diff=(ChangeLine("max_num_seqs", "128", "8", "--max-num-seqs 128", "--max-num-seqs 8"),),
        risks=("longer waits <before> the first token",), assumes=("traffic stays",), missing=("no price",),
    )  # fmt: skip
    tpot = Predicted(
        "tpot_p99_seconds",
        Band(0.024, 0.023, 0.025),
        Band(0.008, 0.007, 0.009),
        Band(0.33, 0.28, 0.39),
        "ratio",
        0.31,
        True,
        0.0075,
    )
    money = Predicted(
        "usd_per_million_good_tokens", Band(4.0, 3.0, 5.0), Band(1.0, 0.9, 1.2), Band(0.25, 0.2, 0.3), "ratio"
    )
    return replace(one, predicted=(*one.predicted, tpot, money))


@pytest.fixture
async def advising(tmp_path: Path) -> AsyncIterator[Advising]:
    world = await RequestWorld().ready()
    records = SqliteRecords(tmp_path / "records.sqlite")
    await asyncio.to_thread(records.put, KIND, "r1", 1.0, to_body(shown()))
    made = Advising(Evidencing(world.reads, world.watch), records, world.loop.clock)
    await made.recover()
    yield made
    records.close()


async def asked(advising: Advising, method: str, path: str, auth: object = OPEN, **more: object) -> httpx.Response:
    views = PlainViews()
    routers = (pages(views), recommendation_routes(advising), recommendation_pages(advising, views))
    async with client_of(app_of(views, auth, *routers)) as client:  # type: ignore[arg-type]
        return await client.request(method, path, **more)  # type: ignore[arg-type]


async def test_the_list_and_one_are_told(advising: Advising) -> None:
    (one,) = (await asked(advising, "GET", PATH)).json()["recommendations"]
    assert one == (await asked(advising, "GET", f"{PATH}/r1")).json()
    assert (one["state"], one["changes"], one["diff"][0]["flags_after"]) == (
        "proposed",
        {"max_num_seqs": 8},
        "--max-num-seqs 8",
    )
    assert one["predicted"][1]["after"] == 0.0075
    assert (await asked(advising, "GET", f"{PATH}?state=verified")).json() == {"recommendations": []}
    assert (await asked(advising, "GET", f"{PATH}?service=other")).json() == {"recommendations": []}


async def test_a_person_accepts_and_tells_that_it_is_applied(advising: Advising) -> None:
    assert (await asked(advising, "POST", f"{PATH}/r1/accept", json={"by": "ann"})).json()["state"] == "accepted"
    now = int(advising.clock.now_s())
    applied = (await asked(advising, "POST", f"{PATH}/r1/applied", json={"by": "ann", "at": str(now)})).json()
    print(applied)
    assert applied["state"] == "applied"
    assert applied["steps"][-1] == {"at_s": now, "state": "applied", "by": "ann", "note": ""}
    kept = advising.records.get(KIND, "r1")
    assert kept is not None
    assert kept.body["state"] == "applied"


@pytest.mark.parametrize(
    ("call", "body", "status", "says"),
    [
        (("GET", f"{PATH}/none"), None, 404, "no recommendation 'none'"),
        (("GET", f"{PATH}?state=good"), None, 400, "state: 'good' is not one of proposed"),
        (("POST", f"{PATH}/none/accept"), {}, 404, "no recommendation 'none'"),
        (("POST", f"{PATH}/r1/decline"), {}, 409, "say why it is declined"),
        (("POST", f"{PATH}/r1/applied"), {"at": "2100-01-01T00:00:00Z"}, 400, "in the future"),
        (("POST", f"{PATH}/r1/applied"), {"at": "2020-01-01T00:00:00Z"}, 409, "before it was recommended"),
        (("POST", PATH), {"service": "chat", "window": "soon"}, 400, "window: 'soon'"),
        (("POST", PATH), {"service": "chat", "window": "0s"}, 400, "window"),
        (("POST", PATH), {"service": "chat", "mode": "win"}, 400, "mode: 'win'"),
        (("POST", PATH), {"service": "chta"}, 404, "service chta: there is none; known are chat"),
        (("POST", PATH), {"service": "chat"}, 400, "no target of the service tells what it runs"),
    ],
)
async def test_what_cannot_be_done_is_said(
    advising: Advising, call: tuple[str, str], body: object, status: int, says: str
) -> None:
    response = await asked(advising, *call, json=body)
    assert response.status_code == status, response.text
    assert says in problem_of(response).detail


async def test_only_an_admin_may_say_something(advising: Advising) -> None:
    reader = {"authorization": "Bearer read-secret"}
    assert (await asked(advising, "GET", PATH, CLOSED, headers=reader)).status_code == 200
    for path in (f"{PATH}/r1/accept", "/recommendations/r1/accept", PATH):
        assert (await asked(advising, "POST", path, CLOSED, headers=reader, json={})).status_code == 403


async def test_the_page_lists_and_shows_one_with_its_diff_and_bands(advising: Advising) -> None:
    listed = (await asked(advising, "GET", "/recommendations")).text
    assert 'href="/recommendations/r1"' in listed
    assert "max num seqs 128 → 8" in listed
    page = (await asked(advising, "GET", "/recommendations/r1")).text
    assert "--max-num-seqs 128" in page
    assert "--max-num-seqs 8" in page
    assert "longer waits &lt;before&gt; the first token" in page
    text = unescape(page)
    for part in ("7–9 ms", "7.5 ms", "$0.9–1.2", "Decline"):
        assert part in text
    assert (await asked(advising, "GET", "/recommendations/none")).status_code == 404


async def test_a_button_moves_it_and_leads_back(advising: Advising) -> None:
    answer = await asked(
        advising, "POST", "/recommendations/r1/decline", content=b"note=not+now", follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/recommendations/r1")
    declined = advising.one("r1")
    assert declined is not None
    assert declined.steps[-1].note == "not now"
    refused = await asked(advising, "POST", "/recommendations/r1/decline", content=b"note=again")
    assert refused.status_code == 409
    assert "is declined and cannot become declined" in unescape(refused.text)
    assert (await asked(advising, "POST", "/recommendations", content=b"service=chta")).status_code == 400


async def test_an_empty_list_says_when_goodwatch_looks(advising: Advising) -> None:
    advising.known.clear()
    assert "No recommendation yet" in (await asked(advising, "GET", "/recommendations")).text
