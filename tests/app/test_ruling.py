"""Rules for the command line: configuration and files in, files and findings out."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from goodwatch.app.config import load
from goodwatch.app.engines import known_engines
from goodwatch.app.ruling import (
    build_alerts,
    check_slos,
    export_slos,
    lint_files,
    load_slos,
    options_of,
    slos_of,
    versions_of,
    write_files,
)
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import JointGoodput, Latency

EXAMPLE: Final = Path(__file__).parents[2] / "deploy" / "goodwatch.example.yaml"
DATA: Final = Path(__file__).parents[1] / "alerts" / "data"
OWN: Final = "slos: [{name: a, service: s, objective: 0.995, latency: {ttft: 500ms}, engines: [vllm]}]\n"


def test_the_configuration_s_slos_are_joint_where_they_have_several_targets() -> None:
    chat, batch = slos_of(load(EXAMPLE, engines=known_engines(), environ={}))
    assert isinstance(chat.indicator, JointGoodput)
    assert batch.indicator == Latency("e2e_seconds", 120.0)
    assert batch.engines == ("sglang",)
    assert chat.engines == ()  # one of its targets does not say its engine: all usual names are met


def test_links_lead_to_the_external_url() -> None:
    settings = load(EXAMPLE, engines=known_engines(), environ={"GOODWATCH_EXTERNAL_URL": "https://watch.example/"})
    built = build_alerts(slos_of(settings), options_of(settings), ("prometheus",))
    text = built.files["rules/goodwatch-chat.rules.yaml"]
    assert "https://watch.example/docs/runbooks/error-budget-burn-fast" in text


def test_every_form_is_written_where_it_belongs(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    built = build_alerts(load_slos([tmp_path / "own.yaml"]), options_of(None))
    paths = write_files(built.files, tmp_path / "out")
    assert {path.parent.name for path in paths} == {"rules", "operator", "grafana"}
    assert (tmp_path / "out" / "rules" / "a.test.yaml").exists()
    assert lint_files([tmp_path / "out"]) == []


@pytest.mark.parametrize("name", ["openslo/web_availability.yaml", "sloth/getting_started.yml"])
def test_a_file_s_form_is_recognised_and_can_be_written_in_the_others(name: str, tmp_path: Path) -> None:
    slos = load_slos([DATA / name])
    for form in ("goodwatch", "openslo"):
        path = tmp_path / f"{form}.yaml"
        path.write_text(export_slos(slos, form))  # type: ignore[arg-type]
        assert load_slos([path]) == slos


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("slos: [", "slo.yaml:1: not YAML"),
        ("slos: 3", "slo.yaml:1: slos"),
        ("other: 1", "unknown key"),
        (
            "slos:\n- name: a\n  service: s\n  objective: 99\n  availability: {}",
            "slo.yaml:4: slos[0].objective: is not between",
        ),
        ("slos: []\nslos: []", "slo.yaml:2: written twice"),
        ("version: prometheus/v2", "is not Sloth's prometheus/v1"),
        ("apiVersion: openslo/v1alpha", "is not openslo/v1"),
        ("- 1", "slo.yaml"),
    ],
)
def test_a_file_that_is_none_of_them_is_refused_by_name(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_slos([path])
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_slos([tmp_path / "gone.yaml"])
    with pytest.raises(ConfigError, match="does not exist"):
        lint_files([tmp_path / "gone.yaml"])


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_files({"a/b.yaml": "x"}, tmp_path / "file")


def test_without_any_slo_there_is_nothing_to_build() -> None:
    with pytest.raises(ConfigError, match="no SLO"):
        build_alerts([], options_of(None))


def test_a_pinned_version_names_its_engine() -> None:
    assert versions_of(["vllm=0.8.5"]) == {"vllm": "0.8.5"}
    with pytest.raises(ConfigError, match="ENGINE=VERSION"):
        versions_of(["vlm=1"])


def test_the_example_s_own_slos_are_judged() -> None:
    settings = load(EXAMPLE, engines=known_engines(), environ={})
    chat, batch = check_slos(slos_of(settings), options_of(settings), {"chat": 5.0, "batch": 1.0})
    # SGLang has no bound at 120 s (100, 200), nor at 0.5 s (0.4, 0.6).
    assert any("sglang:e2e_request_latency_seconds; choose one of" in said for said in batch.refused)
    assert any("sglang:time_to_first_token_seconds" in said for said in chat.refused)


def test_exported_yaml_is_plain(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    made = yaml.safe_load(export_slos(load_slos([tmp_path / "own.yaml"])))
    assert made == {
        "slos": [
            {
                "name": "a",
                "service": "s",
                "objective": 0.995,
                "period": "30d",
                "latency": {"ttft": "500ms"},
                "engines": ["vllm"],
            }
        ]
    }
