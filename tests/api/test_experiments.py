"""Experiments over HTTP: files and entries in, the ledger and the planner's calibration out."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from goodwatch.api.auth import Auth
from goodwatch.api.routes_experiments import MOST_BYTES, experiment_routes
from planner.experiments.redact import secrets_of
from planner.experiments.values import KIND, from_body
from tests.alerts.dispatching import START_S
from tests.api.experiments_kept import Kept, body_of, entry, foreign_files, not_in_effect
from tests.api.test_app import CLOSED, OPEN, app_of, client_of, problem_of
from tests.support.views import PlainViews

PATH = "/api/v1/experiments"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.records.close()


async def asked(kept: Kept, method: str, path: str, auth: Auth = OPEN, **more: Any) -> httpx.Response:
    async with client_of(app_of(PlainViews(), auth, experiment_routes(kept.ledger, kept.clock))) as client:
        return await client.request(method, path, **more)


async def test_an_entry_is_judged_kept_and_listed_with_its_prediction(kept: Kept) -> None:
    body = body_of(entry()) | {"verdict": {"outcome": "worse", "reason": "I say so"}}
    response = await asked(kept, "POST", PATH, json={"experiment": body})
    assert response.status_code == 201, response.text
    (row,) = (await asked(kept, "GET", PATH)).json()["experiments"]
    assert (row["id"], row["verdict"], row["service"], row["quality"]) == ("seqs-1", "better", "chat", "passed")
    assert row["factor"] == {"name": "max_num_seqs", "baseline": "256", "candidate": "64"}
    assert row["change"]["low"] < 0.8 < row["change"]["high"]  # made: a fifth less
    assert row["prediction"] == {"low": 0.7, "high": 0.9, "level": 0.8, "inside": True}
    assert row["gpu_hours_ratio"] == pytest.approx(1.0)


async def test_one_experiment_has_everything_and_its_redacted_copy_no_name(kept: Kept) -> None:
    one = entry()
    await kept.keep(one)
    whole = (await asked(kept, "GET", f"{PATH}/seqs-1")).json()
    assert whole["redacted"] is False
    assert replace(from_body(whole["experiment"]), verdict=None) == replace(one, created_s=START_S)
    copy = (await asked(kept, "GET", f"{PATH}/seqs-1?redacted=true")).json()
    assert copy["experiment"]["verdict"]["outcome"] == "better"
    text = json.dumps(copy)
    assert [secret for secret in secrets_of(one) if len(secret) > 3 and secret in text] == []
    assert problem_of(await asked(kept, "GET", f"{PATH}/none")).status == 404


async def test_the_list_is_filtered_and_newest_first(kept: Kept) -> None:
    await kept.keep(entry("a"))
    await kept.keep(entry("b", 1.3, service=""), not_in_effect("c"), weeks=1)
    for query, ids in (("", {"a", "b", "c"}), ("?service=chat", {"a", "c"}), ("?service=", {"b"}), ("?verdict=better", {"a"}),
                       ("?verdict=worse", {"b"}), ("?verdict=inconclusive", {"c"}), ("?verdict=none", set()),
                       ("?state=done", {"a", "b", "c"}), ("?state=running", set()), ("?since=-1d", {"b", "c"})):  # fmt: skip
        found = (await asked(kept, "GET", PATH + query)).json()
        assert {one["id"] for one in found["experiments"]} == ids, query
    found = (await asked(kept, "GET", f"{PATH}?limit=1")).json()
    assert (found["fitting"], len(found["experiments"])) == (3, 1)
    assert found["experiments"][0]["id"] != "a"


@pytest.mark.parametrize("query", ["state=odd", "verdict=odd", "since=odd"])
async def test_a_filter_that_is_none_is_a_problem(kept: Kept, query: str) -> None:
    assert problem_of(await asked(kept, "GET", f"{PATH}?{query}")).status == 400


async def test_an_entry_that_cannot_be_read_hides_no_other(kept: Kept) -> None:
    await kept.keep(entry())
    kept.records.put(KIND, "future", START_S, {"id": "future", "colour": 1})
    found = (await asked(kept, "GET", PATH)).json()
    assert [one["id"] for one in found["experiments"]] == ["seqs-1"]
    assert found["unreadable"][0]["id"] == "future"
    assert problem_of(await asked(kept, "GET", f"{PATH}/future")).status == 409


async def test_images_a_second_and_seconds_a_video_go_from_files_to_a_verdict(kept: Kept) -> None:
    sides = {
        "baseline": foreign_files([4.0, 4.02, 3.99, 4.01, 4.03, 4.0], [31.0, 31.2, 30.9, 31.1, 31.05, 31.3], "a"),
        "candidate": foreign_files([5.21, 5.2, 5.19, 5.22, 5.2, 5.23], [24.8, 24.9, 24.7, 25.0, 24.85, 24.75], "b"),
    }
    more = {"question": "Does compiling the UNet pay?", "service": "studio", "metric": "images_per_s"}
    response = await asked(kept, "POST", PATH, json=sides | more)
    assert response.status_code == 201, response.text
    verdict = response.json()["experiment"]["verdict"]
    assert verdict["outcome"] == "better"
    images, video = verdict["effects"]
    assert (images["metric"], images["outcome"]) == ("images_per_s", "better")
    assert images["value"] == pytest.approx(1.30, abs=0.03)  # 5.2 images a second after 4.0
    assert (video["metric"], video["outcome"]) == ("seconds_per_video", "better")
    assert video["value"] == pytest.approx(0.80, abs=0.03)  # 24.8 s after 31 s
    inputs = response.json()["experiment"]["inputs"]
    assert len(inputs) == 12
    assert all(len(one["sha256"]) == 64 for one in inputs)


async def test_one_file_is_kept_without_a_verdict(kept: Kept) -> None:
    files = foreign_files([4.0], [31.0], "only")
    made = (await asked(kept, "POST", PATH, json={"baseline": files})).json()["experiment"]
    assert (made["design"], made["verdict"], made["question"]) == ("sweep", None, "What did only-0.json measure?")
    found = (await asked(kept, "GET", f"{PATH}?verdict=none")).json()["experiments"]
    assert [one["id"] for one in found] == [made["id"]]


async def test_files_of_mixed_units_are_refused(kept: Kept) -> None:
    a, b = foreign_files([4.0] * 3, [31.0] * 3, "a"), foreign_files([240.0] * 3, [31.0] * 3, "b")
    for one in b:
        one["text"] = one["text"].replace("images/s", "images/min")
    found = problem_of(await asked(kept, "POST", PATH, json={"baseline": a, "candidate": b}))
    assert found.status == 400
    assert "images/s" in found.detail
    assert "images/min" in found.detail


ONE = foreign_files([4.0], [31.0], "x")


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"experiment": {"question": NaN}}', 400, "not JSON"),
        (b'{"question": "\\ud800"}', 400, "not JSON"),
        (b"[]", 400, "body"),
        (b"{}", 400, "one of them"),
        (b'{"experiment": {}}', 400, "question: Field required"),
        (b'{"colour": 1}', 400, "colour"),
        (json.dumps({"experiment": {}, "baseline": ONE}).encode(), 400, "one of them"),
        (json.dumps({"baseline": ONE + ONE}).encode(), 400, "two files are named"),
        (json.dumps({"baseline": [{"name": "a.json", "text": "hello"}]}).encode(), 400, "a.json: is neither JSON nor"),
        (json.dumps({"baseline": ONE, "metric": "ttft_s"}).encode(), 400, "ttft_s is not in the files"),
        (b" " * (MOST_BYTES + 1), 413, "16 MiB"),
    ],
)  # fmt: skip
async def test_what_cannot_be_kept_is_a_problem_that_says_why(kept: Kept, body: bytes, status: int, says: str) -> None:
    found = problem_of(await asked(kept, "POST", PATH, content=body))
    assert found.status == status
    assert says in found.detail
    assert kept.records.latest(KIND) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metrics": []}, "one at least is needed"),
        ({"metrics": [{"name": "e2e_s", "unit": "s", "better": "lower", "summary": "p0"}]}, "write mean, median"),
        ({"metrics": [{"name": "e2e_s", "unit": "s", "better": "faster"}]}, "'lower' or 'higher'"),
        ({"predictions": [{"metric": "e2e_s", "low": 2, "high": 1}]}, "low: is above high"),
        ({"id": "../etc"}, "experiment.id"),
        ({"id": "calibration"}, "experiment.id"),
        ({"baseline": {"name": "a", "quality_passed": 3, "quality_judged": 2}}, "quality_passed"),
    ],
)
async def test_a_body_that_means_nothing_is_refused(kept: Kept, change: dict[str, Any], says: str) -> None:
    found = problem_of(await asked(kept, "POST", PATH, json={"experiment": body_of(entry()) | change}))
    assert found.status == 400
    assert says in found.detail


async def test_an_id_is_used_once_unless_an_update_is_meant(kept: Kept) -> None:
    asking = {"experiment": body_of(entry())}
    assert (await asked(kept, "POST", PATH, json=asking)).status_code == 201
    assert problem_of(await asked(kept, "POST", PATH, json=asking)).status == 409
    assert (await asked(kept, "POST", f"{PATH}?update=true", json=asking)).status_code == 201
    assert len(kept.records.history(KIND, "seqs-1")) == 2


async def test_only_an_admin_may_post(kept: Kept) -> None:
    for secret, status in (("read-secret", 403), ("admin-secret", 201)):
        headers = {"authorization": f"Bearer {secret}"}
        got = await asked(kept, "POST", PATH, CLOSED, json={"experiment": body_of(entry())}, headers=headers)
        assert got.status_code == status
    got = await asked(kept, "GET", PATH, CLOSED, headers={"authorization": "Bearer read-secret"})
    assert got.status_code == 200


async def test_a_store_that_cannot_be_read_is_told(kept: Kept) -> None:
    kept.records.close()
    assert problem_of(await asked(kept, "GET", PATH)).status == 503
    assert problem_of(await asked(kept, "GET", "/api/v1/planner/calibration")).status == 503


async def test_calibration_is_told_in_all_by_metric_and_by_week(kept: Kept) -> None:
    empty = (await asked(kept, "GET", "/api/v1/planner/calibration")).json()
    assert (empty["whole"]["predictions"], empty["whole"]["coverage_ratio"]) == (0, None)
    for week, low in enumerate((0.7, 0.7, 0.4, 0.7)):  # the third predicts 0.4 to 0.5 of what is 0.8
        await kept.keep(entry(f"w{week}", 0.8, low, 0.9 if low == 0.7 else 0.5), weeks=week)
    await kept.keep(not_in_effect(), weeks=4)  # nothing can be concluded from it
    found = (await asked(kept, "GET", "/api/v1/planner/calibration")).json()
    whole = found["whole"]
    assert (whole["predictions"], whole["inside"], whole["level"]) == (4, 3, 0.8)
    # Wilson's 95 % interval of 3 of 4, as R's binom::binom.wilson gives it
    assert (whole["low"], whole["high"]) == (pytest.approx(0.3006, abs=1e-3), pytest.approx(0.9544, abs=1e-3))
    assert [step["inside"] for step in found["steps"]] == [1, 1, 0, 1]
    assert found["by_metric"]["e2e_s"]["predictions"] == 4
    assert [one["inside"] for one in found["checked"]] == [True, False, True, True]
    other = (await asked(kept, "GET", "/api/v1/planner/calibration?service=other")).json()
    assert other["whole"]["predictions"] == 0
