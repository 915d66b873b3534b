"""The command line: options, exit codes, and what a person reads."""

import asyncio
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from goodwatch.commands.boards import dashboards
from tests.dashboards.grafana_double import TOKEN, GrafanaDouble, running


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(dashboards, arguments, env={"GRAFANA_TOKEN": "", **environ}, catch_exceptions=False)


def test_build_writes_boards_and_provisioning_and_lint_finds_nothing_in_them(tmp_path: Path) -> None:
    done = run("build", "--engine", "vllm", "--engine", "dcgm", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    boards = {path.stem for path in (tmp_path / "boards").glob("*.json")}
    assert {"goodwatch-engine-vllm", "goodwatch-gpu-dcgm", "goodwatch-fleet"} <= boards
    assert "goodwatch-engine-sglang" not in boards
    assert (tmp_path / "provisioning" / "dashboards" / "goodwatch.yaml").exists()
    assert run("lint", str(tmp_path / "boards")).output == ""


def test_lint_names_file_panel_fault_and_mend_and_exits_with_1(tmp_path: Path) -> None:
    board = {"uid": "x", "title": "x", "schemaVersion": 39, "panels": [], "templating": {"list": []}}
    (tmp_path / "x.json").write_text(json.dumps(board))
    done = run("lint", str(tmp_path))
    assert done.exit_code == 1
    assert (
        "x.json: x: can be edited, and the next build loses the edit; set editable false [uneditable-dashboard-rule]"
        in done.output
    )


def test_lint_of_nothing_is_told(tmp_path: Path) -> None:
    done = run("lint", str(tmp_path))
    assert done.exit_code == 2
    assert "no board in it" in done.output


def test_an_unknown_engine_exits_with_2(tmp_path: Path) -> None:
    done = run("build", "--engine", "vlm", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "--engine vlm: unknown" in done.output


def test_a_token_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = run("diff", "--grafana", "http://127.0.0.1:1", GRAFANA_TOKEN_FILE=str(tmp_path / "none"))
    assert done.exit_code == 2
    assert "GRAFANA_TOKEN_FILE" in done.output


@pytest.mark.integration
async def test_diff_and_push_go_to_grafana_with_the_token_of_a_file(tmp_path: Path) -> None:
    grafana = GrafanaDouble()
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    async with running(grafana) as url:
        common = ("--grafana", url, "--engine", "llamacpp")
        token = {"GRAFANA_TOKEN_FILE": str(tmp_path / "token")}
        before = await asyncio.to_thread(run, "diff", *common, **token)
        pushed = await asyncio.to_thread(run, "push", *common, "--backup", str(tmp_path / "b"), **token)
        after = await asyncio.to_thread(run, "diff", *common, **token)
    assert before.exit_code == 1
    assert "goodwatch-fleet: new" in before.output
    assert pushed.exit_code == 0, pushed.output
    assert "goodwatch-fleet: new; written" in pushed.output
    assert (after.exit_code, after.output) == (0, "")
    assert len(grafana.boards) == 7


@pytest.mark.parametrize("command", ["build", "lint", "diff", "push"])
def test_every_option_has_help(command: str) -> None:
    options = [one for one in dashboards.commands[command].params if isinstance(one, click.Option)]
    assert options
    assert all(one.help for one in options)
