"""Alerts, silences and sinks over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from goodwatch.api.routes_alerts import MOST_BYTES, alert_routes
from tests.alerts.dispatching import PAGE, START_S, alert
from tests.api.test_app import OPEN, app_of, client_of, problem_of
from tests.app.test_alerting import FIRING, Running
from tests.support.views import PlainViews

HOOK = "/api/v1/alerts/webhook"
SILENCE = {"matchers": ['service="chat"'], "duration": "2h", "author": "ann", "comment": "moving racks"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.records.close()


def app(running: Running) -> FastAPI:
    return app_of(PlainViews(), OPEN, alert_routes(running.alerting, running.clock))


async def asked(running: Running, method: str, path: str, **more: Any) -> httpx.Response:
    async with client_of(app(running)) as client:
        return await client.request(method, path, **more)


async def test_a_webhook_is_taken_and_listed(running: Running) -> None:
    response = await asked(running, "POST", HOOK, json={"receiver": "r", "alerts": [FIRING, 7], "truncatedAlerts": 3})
    assert response.status_code == 200
    assert response.json() == {
        "accepted": 1, "refused": 1, "truncated": 3,
        "problems": [{"index": 1, "detail": "is no object; each alert has labels, annotations and a status"}],
    }  # fmt: skip
    (one,) = (await asked(running, "GET", "/api/v1/alerts")).json()["alerts"]
    assert (one["name"], one["state"], one["source"], one["service"]) == ("Slow", "firing", "prometheus", "chat")
    assert (one["start_told"], one["ends_at_s"], one["receiver"]) == (True, None, "r")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b'{"alerts": NaN}', 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"[]", 400, "no JSON object"),
        (b"{}", 400, "alerts: is no list"),
        (b'{"alerts": [1, {"startsAt": "x"}]}', 400, "alerts[1]: startsAt: is no time"),
        (b" " * (MOST_BYTES + 1), 413, "4 MiB"),
    ],
)
async def test_what_cannot_be_used_is_a_problem_and_counted(
    running: Running, body: bytes, status: int, says: str
) -> None:
    found = problem_of(await asked(running, "POST", HOOK, content=body))
    assert found.status == status
    assert says in found.detail
    assert sum(running.alerting.webhooks.values()) >= 1
    assert running.records.latest("alert") == []


async def test_a_webhook_without_alerts_is_fine(running: Running) -> None:
    assert (await asked(running, "POST", HOOK, json={"alerts": []})).json()["accepted"] == 0


async def test_a_store_that_cannot_keep_it_makes_the_sender_try_again(running: Running) -> None:
    running.records.close()
    response = await asked(running, "POST", HOOK, json={"alerts": [FIRING]})
    assert problem_of(response).status == 503
    assert response.headers["retry-after"]


async def test_alerts_are_filtered(running: Running) -> None:
    await running.at(0, alert())
    await running.at(60)
    running.clock.at_s += 1
    for query, count in (("state=firing", 0), ("state=resolved", 1), ("service=chat", 1), ("service=x", 0),
                         ("source=grafana", 0), ("since=now", 0), ("since=-1h", 1), ("limit=1", 1)):  # fmt: skip
        found = (await asked(running, "GET", f"/api/v1/alerts?{query}")).json()["alerts"]
        assert len(found) == count, query


@pytest.mark.parametrize("query", ["state=odd", "source=odd", "since=odd"])
async def test_a_filter_that_is_none_is_a_problem(running: Running, query: str) -> None:
    assert problem_of(await asked(running, "GET", f"/api/v1/alerts?{query}")).status == 400


async def test_a_silence_is_begun_listed_and_ended(running: Running) -> None:
    response = await asked(running, "POST", "/api/v1/silences", json=SILENCE)
    assert response.status_code == 201
    made = response.json()
    assert (made["state"], made["starts_at_s"], made["ends_at_s"]) == ("active", START_S, START_S + 7200)
    assert made["matchers"] == ['service="chat"']
    assert (await asked(running, "GET", "/api/v1/silences")).json() == {"silences": [made]}
    running.clock.at_s += 60
    over = await asked(running, "DELETE", f"/api/v1/silences/{made['id']}")
    assert (over.json()["state"], over.json()["ends_at_s"]) == ("expired", START_S + 60)
    assert (await asked(running, "GET", "/api/v1/silences")).json() == {"silences": []}
    assert len((await asked(running, "GET", "/api/v1/silences?expired=true")).json()["silences"]) == 1
    assert problem_of(await asked(running, "DELETE", f"/api/v1/silences/{made['id']}")).status == 404


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        ({"matchers": ["chat"]}, 400, "is not a matcher"),
        ({"matchers": ['service=~".*"']}, 400, "silence everything"),
        ({"duration": None}, 400, "write end or duration"),
        ({"end": "2026-03-05T00:00:00Z"}, 400, "write end or duration"),
        ({"duration": "soon"}, 400, "is not a duration"),
        ({"duration": None, "end": "2026-03-04T03:12:00Z"}, 400, "is over already"),
        ({"duration": "400d"}, 400, "more than a year"),
        ({"start": "odd"}, 400, "start"),
        ({"author": ""}, 422, "author"),
        ({"matcher": []}, 422, "matcher"),
    ],
)
async def test_a_silence_that_cannot_be_is_a_problem(
    running: Running, more: dict[str, Any], status: int, says: str
) -> None:
    found = problem_of(await asked(running, "POST", "/api/v1/silences", json=SILENCE | more))
    assert found.status == status
    assert says in found.detail


async def test_sinks_tell_how_they_fare_and_who_pages(running: Running) -> None:
    await running.at(30, alert())
    found = (await asked(running, "GET", "/api/v1/alerts/sinks")).json()
    assert found["pages"] == "goodwatch"
    (one,) = found["sinks"]
    assert (one["name"], one["sent"], one["problem"], one["last_sent_s"]) == ("book", {"new": 1}, "", START_S + 30)
    assert PAGE not in json.dumps(found)
