"""The settings that the planner and its report read: flags of engines, and who is told of a report."""

from pathlib import Path

import pytest

from goodwatch.app import config
from goodwatch.core.errors import ConfigError

SINK = "alerting: {sinks: [{name: ops, type: webhook, url: 'http://127.0.0.1:9/x'}]}\n"


def loaded(folder: Path, text: str) -> config.Settings:
    file = folder / "goodwatch.yaml"
    file.write_text(text)
    return config.load(file, engines=("vllm",), environ={})


def test_a_command_line_over_several_lines_is_one(tmp_path: Path) -> None:
    text = (
        "targets:\n  - url: http://a:8000\n    args: |\n      --max-num-seqs 64\n      --served-model-name 'my model'\n"
    )
    assert loaded(tmp_path, text).targets[0].args == "--max-num-seqs 64 --served-model-name 'my model'"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--api-key s3cret", "--api-key is a secret"),
        ("--hf-token=s3cret", "--hf-token is a secret"),
        ("--served-model-name 'my", "is no command line"),
    ],
)
def test_secrets_and_open_quotes_are_refused_without_being_shown(tmp_path: Path, args: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as told:
        loaded(tmp_path, f'targets: [{{url: http://a:8000, args: "{args}"}}]')
    assert "s3cret" not in str(told.value)


def test_a_report_goes_to_sinks_that_are_there(tmp_path: Path) -> None:
    assert loaded(tmp_path, SINK + "report: {sinks: [ops]}").report.sinks == ("ops",)
    with pytest.raises(
        ConfigError, match=r"report.sinks\[0\].*no sink of alerting.sinks is named 'opss'; there are ops"
    ):
        loaded(tmp_path, SINK + "report: {sinks: [opss]}")
    with pytest.raises(ConfigError, match=r"there is none; write it under alerting\.sinks"):
        loaded(tmp_path, "report: {sinks: [ops]}")


@pytest.mark.parametrize("sinks", ["true", "3", "[1, [2]]", "{a: b}"])
def test_sinks_of_any_shape_are_a_problem_and_no_crash(tmp_path: Path, sinks: str) -> None:
    with pytest.raises(ConfigError):
        loaded(tmp_path, f"alerting: {{sinks: {sinks}}}\nreport: {{sinks: [ops]}}")
