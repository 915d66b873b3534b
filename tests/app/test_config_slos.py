"""SLOs in the configuration file, beside those of services, and in files that it names."""

from pathlib import Path

import pytest

from goodwatch.app.config import warnings
from goodwatch.app.ruling import slos_of
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import DAY_S, Availability, Latency, Period, Quality
from tests.app.config_files import Read, read_here, wrong

BASE = """
targets: [{url: 'http://gpu1:8000', service: chat, engine: vllm}]
services: [{name: chat, slo: {ttft: 500ms, objective: 0.99}}]
"""
SERVED = "slos: [{name: chat-served, service: chat, objective: 0.999, period: {calendar: month}, availability: {}}]\n"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)
    return read_here


def test_all_slos_of_the_configuration_are_found_with_the_engines_of_their_targets(read: Read) -> None:
    Path("more.yaml").write_text(
        "slos: [{name: chat-quality, service: chat, objective: 0.9, quality: {score: 0.7}}]\n", encoding="utf-8"
    )
    first, second, third = slos_of(read(f"{BASE}{SERVED}slo_files: [more.yaml]\n"))
    assert (first.name, first.indicator) == ("chat", Latency("ttft_seconds", 0.5))
    assert (second.name, second.indicator) == ("chat-served", Availability())
    assert second.period == Period(30 * DAY_S, "month")
    assert (third.name, third.indicator) == ("chat-quality", Quality(0.7))
    assert {slo.engines for slo in (first, second, third)} == {("vllm",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SERVED.replace("chat-served", "chat"),
            "goodwatch.yaml:4: slos[0].name: the name 'chat' is that of the slo of",
        ),
        (SERVED.replace("availability: {}", "x: 1"), "goodwatch.yaml:4: slos[0].x: unknown key"),
        (SERVED.replace("{calendar: month}", "{calendar: moon}"), "slos[0].period.calendar: moon is not one of"),
        (
            SERVED.replace("{calendar: month}", "30x"),
            "goodwatch.yaml:4: slos[0].period: text is not a duration",
        ),
        (SERVED.replace("0.999", "99.9"), "slos[0].objective: 99.9 is not between 0 and 1; write 0.999"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(read: Read, text: str, said: str) -> None:
    assert any(said.replace("'", "") in line.replace("'", "") for line in wrong(read, BASE + text)), wrong(
        read, BASE + text
    )


def test_a_name_that_a_file_uses_again_is_refused(read: Read) -> None:
    Path("more.yaml").write_text(
        "slos: [{name: chat, service: chat, objective: 0.9, quality: {score: 0.7}}]\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match="the name 'chat' is that of 2 SLOs"):
        slos_of(read(f"{BASE}slo_files: [more.yaml]\n"))


def test_an_slo_of_a_service_without_targets_is_advised_about(read: Read) -> None:
    text = SERVED.replace("service: chat", "service: chta")
    assert any("no target belongs to the service 'chta'" in line for line in warnings(read(BASE + text)))
