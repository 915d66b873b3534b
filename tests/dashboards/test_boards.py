"""Boards as a whole: what ships is what the code makes, it fits Grafana's own schemas, and it says what it shows."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from alerts.rules import burn
from dashboards.boards import _tables, budget
from dashboards.build import boards, documents
from dashboards.lint import panels_of
from dashboards.texts import digest, text_of
from dashboards.values import Options
from goodwatch.app import boarding
from goodwatch.app.config import load
from goodwatch.app.engines import known_accelerators, known_engines
from goodwatch.core.errors import ConfigError
from goodwatch.signals._bands import DEFAULT_EDGES, page_bands
from tests.dashboards.stage import OPTIONS

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy" / "grafana"
DATA: Final = Path(__file__).parent / "data"
BOARDS: Final = boards(OPTIONS)
DOCUMENTS: Final = documents(BOARDS)
#: boards of goodwatch's own series
OWN: Final = [board.uid for board in BOARDS if not {"engine", "gpu"} & set(board.tags)]
#: an annotation's query: @grafana/schema says of its own type that it should be any data source's query
ANNOTATION_QUERY: Final = frozenset({"expr", "step", "textFormat", "titleFormat"})


def shipped() -> dict[str, str]:
    settings = load(ROOT / "deploy" / "goodwatch.example.yaml", engines=known_engines(), environ={})
    every = (*boarding.DEFAULT_ENGINES, *boarding.DEFAULT_ACCELERATORS)
    return boarding.files_of(boarding.build_boards(boarding.options_of(settings, every)), ("files",))


def same(path: Path, text: str) -> None:
    """The file holds just this text; GOLDEN=update writes it."""
    if os.environ.get("GOLDEN") == "update":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} is not what the code makes; run with GOLDEN=update and read the diff"


@pytest.mark.parametrize("name", shipped())
def test_what_ships_is_what_the_code_makes_of_the_example_configuration(name: str) -> None:
    same(DEPLOY / name, shipped()[name])


def test_no_board_ships_that_the_code_does_not_make() -> None:
    there = {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file()}
    assert there == set(shipped())


def test_every_panel_and_query_of_every_board_is_as_it_was() -> None:
    lines = [
        f"{board.uid} | {panel.title} | {panel.unit} | {query.legend} | {query.expr}"
        for board in BOARDS for panel in board.panels for query in panel.queries
    ]  # fmt: skip
    same(DATA / "queries.txt", "\n".join([*lines, ""]))


def test_all_boards_are_made_within_a_second() -> None:
    began = time.process_time()
    made = {uid: text_of(board) for uid, board in documents(boards(OPTIONS)).items()}
    assert len(made) == 6 + len(known_engines()) + len(known_accelerators())
    assert time.process_time() - began < 1.0


def test_the_same_options_give_the_same_bytes() -> None:
    assert {uid: text_of(board) for uid, board in documents(boards(OPTIONS)).items()} == {
        uid: text_of(board) for uid, board in DOCUMENTS.items()
    }


def schema(name: str) -> Any:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    return jsonschema.Draft7Validator(json.loads((DATA / "schemas" / f"{name}.json").read_text()))


def complaints(validator: Any, value: Any, where: str) -> Iterator[str]:
    for error in validator.iter_errors(value):
        yield f"{where}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"


def without_annotation_queries(board: Mapping[str, Any]) -> dict[str, Any]:
    notes = [{k: v for k, v in one.items() if k not in ANNOTATION_QUERY} for one in board["annotations"]["list"]]
    return {**board, "annotations": {"list": notes}}


def test_every_board_fits_grafana_s_schema_of_a_dashboard() -> None:
    validator = schema("dashboard")
    found = [
        text for uid, board in DOCUMENTS.items() for text in complaints(validator, without_annotation_queries(board), uid)
    ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize("kind", ["stat", "timeseries", "table", "bargauge", "heatmap", "state-timeline"])
def test_options_and_fields_of_every_panel_fit_grafana_s_schema_of_its_type(kind: str) -> None:
    options, fields = (schema(f"{kind.replace('-', '')}.{part}") for part in ("options", "fieldconfig"))
    panels = [(uid, panel) for uid, board in DOCUMENTS.items() for panel in panels_of(board) if panel["type"] == kind]
    assert panels
    found = [
        text for uid, panel in panels for text in complaints(options, panel["options"], f"{uid}: {panel['title']}")
    ]
    customs = [(uid, panel, panel["fieldConfig"]["defaults"].get("custom")) for uid, panel in panels]
    found += [
        text for uid, panel, own in customs if own for text in complaints(fields, own, f"{uid}: {panel['title']}")
    ]
    assert found == []


@pytest.mark.parametrize("uid", [board.uid for board in BOARDS if {"engine", "gpu"} & set(board.tags)])
def test_a_board_of_native_series_needs_nothing_of_goodwatch(uid: str) -> None:
    assert "goodwatch_" not in json.dumps([panel.get("targets") for panel in panels_of(DOCUMENTS[uid])])


@pytest.mark.parametrize("uid", OWN)
def test_every_panel_of_goodwatch_s_own_numbers_leads_on(uid: str) -> None:
    """From a number to goodwatch's page or the next board; from there each request leads to its trace."""
    without = []
    for panel in panels_of(DOCUMENTS[uid]):
        config = panel["fieldConfig"]
        looks = [p for one in config["overrides"] for p in one["properties"] if p["id"] == "links"]
        if not config["defaults"].get("links") and not looks:
            without.append(panel["title"])
    assert without == []


@pytest.mark.parametrize("uid", OWN)
def test_the_first_row_of_a_board_asks_its_question_and_has_the_panels_that_answer(uid: str) -> None:
    (board,) = [one for one in BOARDS if one.uid == uid]
    assert board.rows[0].title.endswith("?")
    assert board.rows[0].panels
    assert not board.rows[0].collapsed


def test_pickers_of_the_service_board_take_several_values() -> None:
    found = {one["name"]: one for one in DOCUMENTS["goodwatch-service"]["templating"]["list"] if one["type"] == "query"}
    assert set(found) == {"service", "model", "tenant", "target"}
    assert all(one["multi"] and one["includeAll"] for one in found.values())


@pytest.mark.parametrize(("engine", "label"), [("vllm", "engine"), ("sglang", "dp_rank"), ("llamacpp", "")])
def test_an_engine_board_picks_the_rank_where_the_engine_tells_ranks_apart(engine: str, label: str) -> None:
    board = DOCUMENTS[f"goodwatch-engine-{engine}"]
    found = {one["name"]: one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"}
    texts = [target["expr"] for panel in panels_of(board) for target in panel.get("targets", ())]
    if label:
        assert found["engine"].endswith(f", {label})")
        assert any(f'{label}=~"$engine"' in text for text in texts)
    else:
        assert "engine" not in found
        assert not any("$engine" in text for text in texts)


def test_a_dot_on_a_panel_leads_to_the_trace_in_goodwatch() -> None:
    (source,) = yaml.safe_load(shipped()["provisioning/datasources/goodwatch.yaml"])["datasources"]
    (way,) = source["jsonData"]["exemplarTraceIdDestinations"]
    assert (way["name"], way["url"]) == ("trace_id", "http://127.0.0.1:9470/requests/$${__value.raw}")


def test_names_of_rules_are_those_that_the_rules_record() -> None:
    assert (budget.RATIO, budget.TOTAL, budget.BAD) == (burn.RATIO, burn.TOTAL, burn.BAD)
    assert (budget.BUDGET, budget.BUDGET_LEFT, budget.INFO) == (burn.BUDGET, burn.BUDGET_LEFT, burn.INFO)
    assert budget.OBJECTIVE == burn.OBJECTIVE


def test_the_map_knows_the_bands_that_are_exported() -> None:
    made = [band.text.replace("–", "-").replace(" and more", "+") for band in page_bands(DEFAULT_EDGES)]
    assert [*_tables.BANDS[1:], "unknown"] == made


def test_a_new_panel_moves_no_other_panel_s_id() -> None:
    """Links lead to panels by id."""
    few = documents(boards(Options(engines={"vllm": known_engines()["vllm"]}, versions={"vllm": "0.10.2"})))
    ids = {p["title"]: p["id"] for p in panels_of(few["goodwatch-engine-vllm"])}
    every = {p["title"]: p["id"] for p in panels_of(DOCUMENTS["goodwatch-engine-vllm"])}
    assert len(every) > len(ids)
    assert {title: every[title] for title in ids} == ids


def test_a_pinned_version_has_only_the_names_that_it_has() -> None:
    new = documents(boards(Options(engines={"vllm": known_engines()["vllm"]}, versions={"vllm": "0.33.0"})))
    old = documents(boards(Options(engines={"vllm": known_engines()["vllm"]}, versions={"vllm": "0.8.5"})))
    assert "vllm:gpu_cache_usage_perc" not in json.dumps(new)
    assert "vllm:kv_cache_usage_perc" not in json.dumps(old)
    assert "vllm:num_requests_swapped" in json.dumps(old)


def test_the_digest_sees_an_edit_and_not_what_grafana_adds() -> None:
    board = DOCUMENTS["goodwatch-fleet"]
    assert digest({**board, "id": 7, "version": 3}) == digest(board)
    assert digest({**board, "title": "mine"}) != digest(board)


def test_promises_of_the_configuration_become_target_lines() -> None:
    texts = shipped()["boards/goodwatch-service.json"]
    assert 'service=\\"chat\\"}) + 0.5' in texts
    assert 'service=\\"batch\\"}) + 120' in texts


def test_kubernetes_objects_hold_the_boards_whole() -> None:
    made = {uid: DOCUMENTS[uid] for uid in ("goodwatch-fleet", "goodwatch-engine-triton_trtllm")}
    files = boarding.files_of(made, ("configmap", "operator"))
    maps = list(yaml.safe_load_all(files["kubernetes/configmaps.yaml"]))
    objects = list(yaml.safe_load_all(files["kubernetes/grafanadashboards.yaml"]))
    assert [one["metadata"]["name"] for one in maps] == ["goodwatch-engine-triton-trtllm", "goodwatch-fleet"]
    assert json.loads(maps[1]["data"]["goodwatch-fleet.json"]) == made["goodwatch-fleet"]
    assert json.loads(objects[1]["spec"]["json"]) == made["goodwatch-fleet"]


def test_an_engine_that_is_not_known_is_told_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"--engine vlm: unknown; engines: .*vllm.*; accelerators: .*dcgm"):
        boarding.options_of(None, ("vlm",))
