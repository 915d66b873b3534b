"""The settings about accelerators: exporters, and what a target holds."""

from pathlib import Path

import pytest

from goodwatch.app.config import warnings
from goodwatch.app.wiring import exporter_of, holding_of
from tests.app.config_files import Read, read_here, target, wrong

EXPORTER = "accelerators:\n- {url: 'http://gpu1:9400'}\n"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)
    return read_here


def test_an_exporter_is_read_like_a_target_and_belongs_to_no_service(read: Read) -> None:
    settings = read(target() + "accelerators:\n- {url: 'http://gpu1:9400', interval: 30s, host: gpu1.example}\n")
    (entry,) = settings.accelerators
    spec = exporter_of(settings, entry)
    assert (spec.target.name, spec.target.kind, spec.target.service) == ("gpu1:9400", "accelerator", "")
    assert (spec.target.url, spec.options.interval_s) == ("http://gpu1:9400/metrics", 30.0)
    assert entry.host == "gpu1.example"


def test_a_target_says_what_it_holds(read: Read) -> None:
    settings = read(target(name="one", accelerators={"devices": ["GPU-a", "1"], "host": "gpu1"}) + EXPORTER)
    assert {name: (h.devices, h.host) for name, h in holding_of(settings).items()} == {
        "one": (("GPU-a", "1"), "gpu1")
    }  # fmt: skip
    assert not holding_of(read(target() + EXPORTER))


def test_an_exporter_under_the_name_of_a_target_is_refused(read: Read) -> None:
    lines = wrong(read, "targets:\n- {url: 'http://t:8002'}\naccelerators:\n- {url: 'http://t:8002'}\n")
    assert lines == ["goodwatch.yaml:4: accelerators[0]: the name 't:8002' is that of targets[0] already; write a name"]
    twice = wrong(read, target() + "accelerators:\n- {url: 'http://g:1'}\n- {url: 'http://g:1'}\n")
    assert len(twice) == 1
    assert "accelerators[1]: the name 'g:1' is that of accelerators[0] already" in twice[0]


def test_a_timeout_that_does_not_fit_is_found_for_an_exporter_too(read: Read) -> None:
    lines = wrong(read, target() + "accelerators:\n- {url: 'http://g:1', timeout: 40s}\n")
    assert len(lines) == 1
    assert "accelerators[0].timeout: 40s is longer than the interval" in lines[0]


def test_held_devices_without_an_exporter_are_warned_about(read: Read) -> None:
    held = target(accelerators={"devices": ["GPU-a"]})
    assert any("no exporter tells of any" in text for text in warnings(read(held)))
    assert not any("no exporter tells of any" in text for text in warnings(read(held + EXPORTER)))


def test_credentials_of_an_exporter_are_not_sent_in_the_open_unsaid(read: Read) -> None:
    settings = read(target() + "accelerators:\n- {url: 'http://gpu1:9400', headers: {X-Key: secret}}\n")
    assert any(text.startswith("accelerators[0] (gpu1:9400): credentials") for text in warnings(settings))
