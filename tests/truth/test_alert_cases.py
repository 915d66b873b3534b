"""Webhooks that people posted in public (cases 017 and 018): what a good receiver makes of them, and does not say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goodwatch.api.routes_alerts import alert_routes
from tests.alerts.dispatching import START_S
from tests.api.test_app import OPEN, app_of, client_of
from tests.app.test_alerting import Running
from tests.support.views import PlainViews
from tests.truth.test_cases import CASES


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.records.close()


async def post(running: Running, body: Any) -> list[dict[str, Any]]:
    """Post a body as its sender would, and read the alerts; a minute goes by."""
    app = app_of(PlainViews(), OPEN, alert_routes(running.alerting, running.clock))
    async with client_of(app) as client:
        response = await client.post("/api/v1/alerts/webhook", json=body)
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = (await client.get("/api/v1/alerts?since=0")).json()["alerts"]
    running.clock.at_s += 60
    return found


def case(name: str) -> Any:
    return json.loads((CASES / name / "webhook.json").read_text())


async def test_017_a_minimal_webhook_opens_one_incident_and_resolved_closes_it(running: Running) -> None:
    body = case("017-alertmanager-webhook-minimal")
    (first,) = await post(running, body)
    assert (first["fingerprint"], first["state"], first["source"]) == ("abc123", "firing", "prometheus")
    # There is no startsAt: the time of receipt stands in, and is marked as that.
    assert (first["starts_at_s"], first["start_told"]) == (START_S, False)
    # The label service is not a service of ours.
    assert first["service"] is None
    assert "map it" in first["note"]
    (again,) = await post(running, body)
    assert again == first
    body["status"] = body["alerts"][0]["status"] = "resolved"
    (over,) = await post(running, body)
    assert (over["id"], over["state"], over["ends_at_s"]) == (first["id"], "resolved", START_S + 120)


async def test_017_the_label_is_mapped_where_the_configuration_says_so(tmp_path: Path) -> None:
    running = Running(tmp_path, incoming={"services": {"api": "chat"}})
    (one,) = await post(running, case("017-alertmanager-webhook-minimal"))
    running.records.close()
    assert (one["service"], one["note"]) == ("chat", "")


async def test_018_grafanas_variant_is_met_with_its_times(running: Running) -> None:
    (one,) = await post(running, case("018-grafana-webhook-variant"))
    assert one["source"] == "grafana"
    # 2021-10-12T09:51:03.157076+02:00 is 07:51:03 UTC: date -u -d 2021-10-12T07:51:03Z +%s
    assert one["starts_at_s"] == pytest.approx(1634025063.157076, abs=1e-6)
    # The year 1 is "not ended", not minus 2020 years.
    assert (one["state"], one["ends_at_s"]) == ("firing", None)
    assert one["service"] is None
    assert one["note"].startswith("no inference mapping")
    assert one["labels"] == {"team": "blue", "zone": "us-1"}
