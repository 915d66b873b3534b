"""What ships beside the product is what the code makes: rules of the example configuration, runbooks, routing."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from alerts.rules.build import build
from alerts.rules.values import Alert
from alerts.runbooks import RUNBOOKS, pages
from goodwatch.app.config import load
from goodwatch.app.engines import known_engines
from goodwatch.app.ruling import build_alerts, lint_files, options_of, slos_of
from goodwatch.core.slo import Cost, Quality, Slo
from tests.alerts.services import CHAT, OPTIONS, needs_promtool, promtool

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
RUNBOOK_FOLDER: Final = ROOT / "docs" / "runbooks"
#: every kind of alert that there is
EVERY_ALERT: Final = build(
    [CHAT, Slo("answers", "chat", 0.95, Quality(0.7)), Slo("cost", "chat", 0.95, Cost(3.0))], OPTIONS
).alerts

needs_amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed (issue 5)")


def same(folder: Path, files: dict[str, str]) -> None:
    """The folder holds just these texts; GOLDEN=update writes them."""
    if os.environ.get("GOLDEN") == "update":
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    assert {name: (folder / name).read_text() for name in files} == files


def test_the_rules_of_the_example_configuration_are_the_generated_ones() -> None:
    settings = load(DEPLOY / "goodwatch.example.yaml", engines=known_engines(), environ={})
    same(DEPLOY / "prometheus", dict(build_alerts(slos_of(settings), options_of(settings)).files))


def test_every_kind_of_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {alert.kind for alert in EVERY_ALERT} == set(RUNBOOKS)


def test_the_runbooks_are_the_generated_ones() -> None:
    made = pages(EVERY_ALERT)
    same(RUNBOOK_FOLDER, made)
    assert {path.name for path in RUNBOOK_FOLDER.iterdir()} == set(made)


def test_a_runbook_never_gives_the_advice_that_makes_it_worse() -> None:
    for book in RUNBOOKS.values():
        assert "memory fraction" not in book.first
        assert "clear the cache" not in book.first


def test_the_shipped_rules_have_no_known_mistake() -> None:
    assert (
        lint_files(
            [DEPLOY / "prometheus" / "rules", DEPLOY / "prometheus" / "operator", DEPLOY / "prometheus" / "grafana"]
        )
        == []
    )


@needs_promtool
def test_promtool_takes_the_shipped_configuration_and_rules() -> None:
    done = promtool(DEPLOY / "prometheus", "check", "config", "prometheus.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("name", ["chat", "batch"])
def test_the_shipped_unit_tests_pass(name: str) -> None:
    done = promtool(DEPLOY / "prometheus" / "rules", "test", "rules", f"{name}.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def amtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["amtool", *arguments], cwd=DEPLOY / "alertmanager", check=False, capture_output=True, text=True, timeout=60
    )


@needs_amtool
def test_amtool_takes_the_shipped_routing() -> None:
    done = amtool("check-config", "alertmanager.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_amtool
@pytest.mark.parametrize("alert", {a.name: a for a in EVERY_ALERT}.values(), ids=lambda alert: str(alert.name))
def test_an_alert_is_routed_by_its_severity(alert: Alert) -> None:
    severity, name = alert.severity, alert.name
    done = amtool(
        "config", "routes", "test", "--config.file=alertmanager.yaml", f"severity={severity}", f"alertname={name}"
    )
    assert done.stdout.strip() == {"critical": "pages", "warning": "tickets", "none": "watchdog"}[severity]
