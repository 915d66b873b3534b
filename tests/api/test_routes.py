"""What each route answers, and what it refuses."""

import csv
import io
import json
import math
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.prometheus import series_name
from goodwatch.api.problem import ProblemError
from goodwatch.api.routes_query import asked_range, instant_s
from goodwatch.api.routes_series import series_shape
from goodwatch.api.routes_targets import capability_shape
from goodwatch.api.shapes import NumberShape, number_shape, rfc3339
from goodwatch.app.view import Event, Reloaded, Views
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Absence, Basis, Bounds, Number
from goodwatch.signals.derive import MEANINGS
from goodwatch.signals.frames import DERIVED
from tests.api.test_app import app_of, client_of, problem_of
from tests.support.views import AT_S, HOSTILE, PlainViews, RecordedViews, hostile_views, no_data_views, silent_service

ROOT = Path(__file__).resolve().parents[2]
NUMBER_KEYS = {"unit", "value", "low", "high", "open", "basis", "absence", "note"}


def no_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


async def answer(views: Views, path: str, **query: str | list[str]) -> Any:
    """The JSON of a good answer, read strictly: NaN and Infinity are refused."""
    async with client_of(app_of(views)) as client:
        response = await client.get(f"/api/v1{path}", params=query or None)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return json.loads(response.text, parse_constant=no_constant)


async def refusal(views: Views, path: str, **query: str) -> tuple[int, str]:
    async with client_of(app_of(views)) as client:
        found = problem_of(await client.get(f"/api/v1{path}", params=query or None))
    return found.status, found.detail


async def test_services_are_listed_with_their_numbers() -> None:
    views = RecordedViews()
    found = await answer(views, "/services")
    (chat,) = found["services"]
    bounds = views.services()[0].derived.numbers["attainment_ratio"].bounds
    assert bounds is not None
    assert chat["numbers"].keys() == MEANINGS.keys()
    assert chat["numbers"]["attainment_ratio"]["low"] == bounds.low
    assert (chat["objective"], chat["limits"]) == (0.99, {"ttft_s": 0.5, "tpot_s": 0.05, "e2e_s": None})
    assert (chat["targets_up"], chat["targets_total"]) == (1, 1)
    assert (found["now_s"], chat["end_s"]) == (AT_S, AT_S)


async def test_no_services_is_an_empty_list() -> None:
    assert (await answer(PlainViews(), "/services"))["services"] == []


async def test_a_service_is_shown_with_models_targets_and_counts() -> None:
    found = await answer(RecordedViews(), "/services/chat")
    assert found["by_model"].keys() == {"tiny"}
    assert [target["name"] for target in found["targets"]] == ["chat-0"]
    assert found["counts"]["valid"]["low"] <= found["counts"]["valid"]["high"]
    assert all(one["binding"] for one in found["saturations"])


async def test_before_the_first_scrape_every_number_is_null_with_its_reason() -> None:
    found = await answer(no_data_views(), "/services/chat")
    for number in found["numbers"].values():
        assert number["value"] is number["low"] is number["high"] is None
        assert number["absence"] == "no data"
    assert found["counts"] is None
    assert found["targets"][0]["up"] is None
    assert found["targets_up"] == 0


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/services/none", "no service 'none'; known: chat"),
        ("/services/none/series", "no service 'none'; known: chat"),
        ("/services/chat/series?target=x", "no target 'x'; known: chat-0"),
        ("/targets/none", "no target 'none'; known: chat-0"),
        ("/targets/none/capability", "no target 'none'; known: chat-0"),
        ("/events?service=none", "no service 'none'; known: chat"),
    ],
)
async def test_an_unknown_name_is_404_and_says_what_there_is(path: str, detail: str) -> None:
    assert await refusal(RecordedViews(), path) == (404, detail)


async def test_many_known_names_are_cut() -> None:
    views = PlainViews([silent_service(f"s{i}") for i in range(12)])
    assert (await refusal(views, "/services/x"))[1].endswith("s8, s9 and 2 more")


@pytest.mark.parametrize("name", ["team/chat", "a b", "ü", "x%2Fy", "10.0.0.1:8000", "series"])
async def test_names_may_hold_any_sign(name: str) -> None:
    views = PlainViews([silent_service(name)])
    escaped = httpx.QueryParams({"": name}).__str__()[1:].replace("+", "%20")
    assert (await answer(views, f"/services/{escaped}"))["name"] == name
    assert (await answer(views, f"/services/{escaped}/series"))["service"] == name
    assert (await answer(views, f"/targets/{escaped}-0"))["service"] == name


async def test_a_target_is_shown_with_what_it_runs() -> None:
    found = await answer(RecordedViews(), "/targets/chat-0")
    assert found["deployment"]["engine"] == "vllm"
    assert found["numbers"]["attainment_ratio"].keys() == NUMBER_KEYS
    assert (await answer(no_data_views(), "/targets/chat-0"))["numbers"] is None
    assert [one["name"] for one in (await answer(RecordedViews(), "/targets"))["targets"]] == ["chat-0"]


async def test_a_capability_report_has_every_signal_with_status_and_reason() -> None:
    found = await answer(RecordedViews(), "/targets/chat-0/capability")
    assert found["engine"] == "vllm"
    assert sum(found["counts"].values()) == len(found["signals"])
    assert all(one["why"] for one in found["signals"] if one["status"] == "absent")
    assert all(one["source"] for one in found["signals"] if one["status"] != "absent")


async def test_without_a_page_there_is_no_capability_and_it_says_why() -> None:
    status, detail = await refusal(no_data_views(), "/targets/chat-0/capability")
    assert (status, detail) == (404, "target 'chat-0': no page of it was read so far: its first scrape is not in yet")


def test_numbers_on_a_page_that_are_not_finite_are_null() -> None:
    report = RecordedViews().targets()[0].capability
    assert report is not None
    odd = replace(report.signals[0], number=math.nan, bounds=(0.1, math.inf))
    shape = capability_shape(replace(report, signals=(odd,)))
    assert (shape.signals[0].number, shape.signals[0].bounds) == (None, [0.1])


async def test_hostile_texts_stay_texts() -> None:
    found = await answer(hostile_views(), "/services/chat")
    assert found["headline"] == HOSTILE
    assert found["targets"][0]["labels"] == {HOSTILE: HOSTILE}


# --- series ---


async def test_series_are_columns_of_equal_length() -> None:
    found = await answer(RecordedViews(), "/services/chat/series", **{"from": "-10m", "step": "1m"})
    assert found["series"].keys() == MEANINGS.keys()
    assert (len(found["at_s"]), found["step_s"], found["end_s"]) == (10, 60.0, AT_S)
    for column in found["series"].values():
        assert {len(values) for key, values in column.items() if key != "unit"} == {10}


async def test_series_of_some_names_keep_their_order() -> None:
    query: dict[str, Any] = {"names": ["goodput_per_s,attainment_ratio", "idle_ratio,goodput_per_s"], "from": "-5m"}
    found = await answer(RecordedViews(), "/services/chat/series", **query)
    assert list(found["series"]) == ["goodput_per_s", "attainment_ratio", "idle_ratio"]


async def test_a_step_without_a_number_is_null_and_says_why() -> None:
    found = await answer(RecordedViews(), "/services/chat/series", **{"from": "-2h", "names": "goodput_per_s"})
    column = found["series"]["goodput_per_s"]
    assert column["low"][0] is column["high"][0] is column["value"][0] is None
    assert (column["absence"][0], column["open"][0], column["basis"][0]) == ("no data", False, None)
    assert column["note"][0]


def frame_of(*rows: dict[str, object]) -> pl.DataFrame:
    common = {"window_s": 60.0, "service": "chat", "target": "", "model": "", "name": "idle_ratio", "basis": "measured"}
    return pl.DataFrame([{**common, **row} for row in rows], schema=DERIVED, orient="row")


def column_of(*rows: dict[str, object], name: str = "idle_ratio") -> dict[str, Any]:
    shape = series_shape(frame_of(*rows), [name], "chat", None, asked_range("1", "2", None, 0.0))
    column: dict[str, Any] = shape.model_dump()["series"][name]
    return column


@pytest.mark.parametrize(
    ("note", "absence", "rest"),
    [
        ("no traffic: nothing was looked up", "no traffic", "nothing was looked up"),
        ("not measurable", "not measurable", ""),
        ("no data", "no data", ""),
        ("no datagrams", "no data", "no datagrams"),
        ("", "no data", ""),
        (None, "no data", ""),
    ],
)
def test_the_absence_is_read_from_the_kept_note(note: str | None, absence: str, rest: str) -> None:
    column = column_of({"ts": 60.0, "note": note})
    assert (column["absence"], column["note"]) == ([absence], [rest])


def test_an_open_end_and_a_number_that_is_not_finite_are_null() -> None:
    column = column_of(
        {"ts": 60.0, "low": 1.0, "high": None},
        {"ts": 120.0, "low": 1.0, "high": math.inf},
        {"ts": 180.0, "value": math.nan},
    )
    assert column["high"] == column["value"] == [None] * 3
    assert column["open"] == [True, True, False]
    assert column["absence"] == [None, None, "no data"]


def test_steps_that_a_name_lacks_are_null_and_models_are_not_mixed_in() -> None:
    rows = frame_of(
        {"ts": 120.0, "value": 0.5},
        {"ts": 60.0, "value": 0.4},
        {"ts": 60.0, "model": "m", "value": 9.0},
        {"ts": 60.0, "name": "goodput_per_s", "low": 1.0, "high": 2.0},
    )
    shape = series_shape(
        rows, ["idle_ratio", "goodput_per_s"], "chat", None, asked_range("1", "2", None, 0.0),
    )  # fmt: skip
    assert shape.at_s == [60.0, 120.0]
    assert shape.series["idle_ratio"].value == [0.4, 0.5]
    assert shape.series["goodput_per_s"].low == [1.0, None]


async def test_series_come_as_csv_when_asked_for() -> None:
    views = RecordedViews()
    query = {"from": "-10m", "step": "60", "names": "attainment_ratio,usd_per_hour"}
    async with client_of(app_of(views), accept="text/csv") as client:
        response = await client.get("/api/v1/services/chat/series", params=query or None)
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.text)))
    columns = (await answer(views, "/services/chat/series", **query))["series"]
    assert len(rows) == 20
    last = rows[-2]
    assert (last["name"], last["unit"], last["at"]) == ("attainment_ratio", "ratio", "2026-03-04T03:12:00Z")
    assert float(last["low"]) == columns["attainment_ratio"]["low"][-1]
    assert (last["value"], last["open"]) == ("", "false")


async def test_the_longest_range_is_answered_in_reasonable_time() -> None:
    steps = 2000
    rows = pl.DataFrame({"ts": [AT_S - i * 60.0 for i in range(steps)]}).join(
        pl.DataFrame({"name": list(MEANINGS)}), how="cross"
    )
    frame = rows.with_columns(
        window_s=pl.lit(60.0), service=pl.lit("chat"), target=pl.lit(""), model=pl.lit(""), value=pl.lit(0.25),
        low=pl.lit(None, pl.Float64), high=pl.lit(None, pl.Float64), basis=pl.lit("measured"), note=pl.lit(""),
    ).select(DERIVED.keys())  # fmt: skip
    views = PlainViews([silent_service()], frame)
    began = time.perf_counter()
    found = await answer(views, "/services/chat/series", **{"from": f"-{steps}m", "step": "1m"})
    assert len(found["at_s"]) == steps
    assert time.perf_counter() - began < 10  # about 1 s on two cores; only a runaway fails here


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"from": "yesterday"}, "from: 'yesterday' is not a time; write Unix seconds, RFC 3339"),
        ({"to": "2026-03-04"}, "to: '2026-03-04' is not a time"),
        ({"to": "2026-03-04T03:12:00"}, "to: '2026-03-04T03:12:00' is not a time; write Unix seconds, RFC 3339 with a"),
        ({"from": "2026-02-30T00:00:00Z"}, "from: '2026-02-30T00:00:00Z' is no such day or time"),
        ({"from": "-1y"}, "from: '-1y': '1y' is not a duration; write for example"),
        ({"from": "1772593920000"}, "from: '1772593920000' is too large for seconds; milliseconds must be divided"),
        ({"from": "nan"}, "from: 'nan' is not a time"),
        ({"from": "now", "to": "-1h"}, "from: is not before to; write an earlier from or a later to"),
        ({"step": "0"}, "step: '0' is shorter than a second"),
        ({"step": "often"}, "step: 'often' is not a duration"),
        ({"from": "-30d", "step": "1m"}, "step: gives more than 2000 steps; write at least 21m36s, or a shorter range"),
        ({"names": "goodput,attainment_ratio"}, "names: unknown: 'goodput'; the known ones are at /api/v1/meanings"),
    ],
)
async def test_a_wrong_question_is_400_and_says_what_would_be_right(query: dict[str, str], detail: str) -> None:
    status, shown = await refusal(RecordedViews(), "/services/chat/series", **query)
    assert status == 400
    assert shown.startswith(detail)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1772593920", AT_S),
        ("1772593920.5", AT_S + 0.5),
        ("2026-03-04T03:12:00Z", AT_S),
        ("2026-03-04t03:12:00.250z", AT_S + 0.25),
        ("2026-03-04T03:12:00.123456789Z", AT_S + 0.123456),
        ("2026-03-04T04:12:00+01:00", AT_S),
        ("2026-03-04T04:12:00 01:00", AT_S),
        ("2026-03-04 03:12:00Z", AT_S),
        ("now", AT_S),
        ("-1h", AT_S - 3600),
        ("now-90s", AT_S - 90),
    ],
)
def test_an_instant_may_be_written_in_several_ways(text: str, expected: float) -> None:
    assert instant_s(text, AT_S, "from") == pytest.approx(expected, abs=1e-6)


@given(st.text(max_size=30))
def test_any_text_is_an_instant_or_a_clear_refusal(text: str) -> None:
    try:
        at_s = instant_s(text, AT_S, "from")
    except ProblemError as error:
        at_s, told = 0.0, (error.status, error.detail[:6])
    else:
        told = (400, "from: ")
    assert math.isfinite(at_s)
    assert told == (400, "from: ")


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
def test_a_printed_time_is_read_back(at: datetime) -> None:
    at_s = at.replace(tzinfo=UTC).timestamp()
    assert instant_s(rfc3339(at_s), 0.0, "from") == pytest.approx(at_s, abs=1e-3)


class BrokenStore(PlainViews):
    async def series(self, *args: object, **more: object) -> pl.DataFrame:
        raise StoreError("goodwatch-data: disk full; free some space")


async def test_a_store_that_cannot_be_read_is_503() -> None:
    status, detail = await refusal(BrokenStore([silent_service()]), "/services/chat/series")
    assert (status, detail) == (503, "goodwatch-data: disk full; free some space")


# --- numbers ---


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (Number("s", Basis.MEASURED, 0.0), {"value": 0.0, "low": None, "open": False, "absence": None}),
        (Number("s", Basis.BOUNDED, bounds=Bounds(1, 2)), {"value": None, "low": 1, "high": 2, "open": False}),
        (Number("s", Basis.BOUNDED, bounds=Bounds(1, None)), {"low": 1, "high": None, "open": True, "absence": None}),
        (Number("s", Basis.BOUNDED, bounds=Bounds(1, math.inf)), {"low": 1, "high": None, "open": True}),
        (Number("s", Basis.ESTIMATED, 1.5, Bounds(1, 2)), {"value": 1.5, "low": 1, "high": 2, "basis": "estimated"}),
        (Number("s", value=math.nan), {"value": None, "absence": "no data"}),
        (Number.none("s", Absence.NO_TRAFFIC, "why"), {"value": None, "absence": "no traffic", "note": "why"}),
    ],
)
def test_a_number_keeps_its_meaning(number: Number, expected: dict[str, object]) -> None:
    shape = number_shape(number).model_dump()
    assert shape.keys() == NUMBER_KEYS
    assert {key: shape[key] for key in expected} == expected


@given(
    st.none() | st.floats(), st.none() | st.builds(Bounds, st.floats(), st.none() | st.floats()),
)  # fmt: skip
def test_a_number_is_strict_json_and_never_zero_for_nothing(value: float | None, bounds: Bounds | None) -> None:
    shape = number_shape(Number("s", value=value, bounds=bounds))
    read = json.loads(shape.model_dump_json(), parse_constant=no_constant)
    assert NumberShape.model_validate(read) == shape
    assert (shape.absence is None) == any(part is not None for part in (shape.value, shape.low, shape.high))


# --- the rest ---


def events_of(count: int) -> PlainViews:
    happened = [Event(AT_S - count + i, "chat", "chat-0", "restart", f"restart {i}") for i in range(count)]
    return PlainViews([silent_service()], happened=happened)


async def test_events_are_of_the_last_hour_unless_asked_otherwise() -> None:
    views = PlainViews([silent_service()], happened=[Event(AT_S - s, "chat", "t", "up", "back") for s in (7200, 60)])
    found = await answer(views, "/events")
    assert [one["at"] for one in found["events"]] == ["2026-03-04T03:11:00Z"]
    assert len((await answer(views, "/events", **{"from": "-1d"}))["events"]) == 2


async def test_of_too_many_events_the_newest_are_kept_and_it_says_so() -> None:
    found = await answer(events_of(1001), "/events", service="chat")
    assert (len(found["events"]), found["truncated"]) == (1000, True)
    assert found["events"][-1]["text"] == "restart 1000"


async def test_every_number_has_a_definition_and_an_exported_name() -> None:
    found = await answer(PlainViews(), "/meanings")
    assert {one["name"]: one["series"] for one in found["numbers"]} == {name: series_name(name) for name in MEANINGS}
    assert set(found["bases"]) == {basis.value for basis in Basis}
    assert set(found["absences"]) == {absence.value for absence in Absence}


async def test_the_version_is_told() -> None:
    assert (await answer(PlainViews(), "/version"))["api"] == "v1"


async def test_a_reload_says_what_changed() -> None:
    async with client_of(app_of(PlainViews(reloaded=Reloaded(True, changed=("targets",))))) as client:
        response = await client.post("/api/v1/reload")
    assert response.json() == {"ok": True, "changed": ["targets"]}


async def test_a_refused_reload_lists_every_problem() -> None:
    problems = ("goodwatch.yaml:2: targets[0].engin: unknown key", "goodwatch.yaml:5: slo: no latency target")
    async with client_of(app_of(PlainViews(reloaded=Reloaded(False, problems)))) as client:
        found = problem_of(await client.post("/api/v1/reload"))
    assert found.status == 422
    assert [fault.what for fault in found.errors] == list(problems)
