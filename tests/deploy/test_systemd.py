"""deploy/systemd: systemd itself takes the unit."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY

UNIT = DEPLOY / "systemd" / "goodwatch.service"


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """What it starts is not installed here: a program that is stands in for it."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/goodwatch/bin/goodwatch", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert said == []


def test_the_unit_keeps_data_where_it_says() -> None:
    text = UNIT.read_text()
    assert "GOODWATCH_DATA_DIR=/var/lib/goodwatch" in text
    assert "StateDirectory=goodwatch" in text
    assert "ProtectSystem=strict" in text
