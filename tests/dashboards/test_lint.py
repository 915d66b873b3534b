"""The lint finds each fault, and nothing in our own boards."""

import copy
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from dashboards.build import boards, documents
from dashboards.lint import lint_board
from dashboards.texts import text_of
from goodwatch.app import boarding
from tests.dashboards.stage import OPTIONS

DOCUMENTS: Final = documents(boards(OPTIONS))
#: findings that are right by their rule and wanted, and why
WANTED: Final = {
    (
        "goodwatch-engine-sglang_router",
        "dead-name",
    ): "one panel serves both generations of the router: 0.2 counts by its own name",
}


@pytest.mark.parametrize("uid", DOCUMENTS)
def test_our_own_boards_have_no_fault(uid: str) -> None:
    found = boarding.lint_boards({f"{uid}.json": text_of(DOCUMENTS[uid])})
    assert [one for one in found if not any(uid == board and f"[{code}]" in one for board, code in WANTED)] == []


def of(board: dict[str, Any], kind: str = "timeseries") -> dict[str, Any]:
    """The first panel of a kind."""
    found: dict[str, Any] = next(panel for panel in board["panels"] if panel["type"] == kind)
    return found


def ask(expr: str) -> Callable[[dict[str, Any]], None]:
    def changed(board: dict[str, Any]) -> None:
        of(board)["targets"][0]["expr"] = expr

    return changed


def variable(name: str, **more: Any) -> Callable[[dict[str, Any]], None]:
    def changed(board: dict[str, Any]) -> None:
        next(one for one in board["templating"]["list"] if one["name"] == name).update(more)

    return changed


PICKED: Final = 'job=~"$job",instance=~"$instance"'


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("template-datasource-rule", variable("datasource", query="loki")),
        ("template-job-rule", variable("job", multi=False)),
        ("template-instance-rule", variable("instance", allValue=".*")),
        ("template-on-time-change-reload-rule", variable("job", refresh=1)),
        ("uneditable-dashboard-rule", lambda board: board.update(editable=True)),
        ("classic-form", lambda board: board.update(schemaVersion=12)),
        ("stable-uid", lambda board: board.update(uid="a b")),
        ("unique-ids", lambda board: of(board).update(id=of(board, "stat")["id"])),
        ("no-overlap", lambda board: of(board).update(gridPos=of(board, "stat")["gridPos"])),
        ("panel-title-description-rule", lambda board: of(board).update(description="")),
        ("panel-no-targets-rule", lambda board: of(board).update(targets=[])),
        ("panel-units-rule", lambda board: of(board)["fieldConfig"]["defaults"].update(unit="")),
        ("no-value", lambda board: of(board)["fieldConfig"]["defaults"].pop("noValue")),
        ("panel-datasource-rule", lambda board: of(board)["targets"][0].update(datasource={"uid": "abc"})),
        ("link-variables", lambda board: of(board)["fieldConfig"]["defaults"].update(links=[{"title": "x", "url": "/d/x?var-a=${nope}"}])),
        ("target-variables", ask(f'up{{{PICKED},pod="$pod"}}')),
        ("target-promql-rule", ask("sum(")),
        ("target-job-rule", ask('up{instance=~"$instance"}')),
        ("target-instance-rule", ask('up{job=~"$job"}')),
        ("target-rate-interval-rule", ask(f"rate(vllm:prompt_tokens_total{{{PICKED}}}[5m])")),
        ("target-counter-agg-rule", ask(f"sum(vllm:prompt_tokens_total{{{PICKED}}})")),
        ("guarded-division", ask(f"up{{{PICKED}}} / up{{{PICKED}}}")),
        ("guarded-division", ask(f"up{{{PICKED}}} / (up{{{PICKED}}} or scrape_samples_scraped{{{PICKED}}} > 0)")),
        ("guarded-division", ask(f"up{{{PICKED}}} / (up{{{PICKED}}} > bool 0)")),
        ("known-series", ask(f"goodwatch_atainment_ratio{{{PICKED}}}")),
    ],
)  # fmt: skip
def test_a_fault_is_found(rule: str, fault: Callable[[dict[str, Any]], None]) -> None:
    board = copy.deepcopy(DOCUMENTS["goodwatch-engine-vllm"])
    fault(board)
    assert rule in {one.rule for one in lint_board(board, boarding.known_series())}


def test_the_field_s_known_mistakes_are_found_in_boards_too() -> None:
    board = copy.deepcopy(DOCUMENTS["goodwatch-engine-vllm"])
    ask(
        f"avg(histogram_quantile(0.9, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket{{{PICKED}}}[$__rate_interval]))))"
    )(board)
    assert any("[averaged-quantile]" in one for one in boarding.lint_boards({"x.json": json.dumps(board)}))


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_what_is_no_board_is_told_and_breaks_nothing(text: str) -> None:
    assert boarding.lint_boards({"x.json": text})
