"""SLOs and options that tests of rules share, and promtool itself."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from alerts.rules.values import Options
from goodwatch.app.engines import known_accelerators, known_engines
from goodwatch.core.model import Limits
from goodwatch.core.slo import DAY_S, Availability, JointGoodput, Latency, Period, Slo

OPTIONS: Final = Options(engines=known_engines(), accelerators=known_accelerators())
CHAT: Final = Slo("chat", "chat", 0.99, JointGoodput(Limits(0.5, 0.05)), engines=("vllm",))
BATCH: Final = Slo("batch", "batch", 0.9, Latency("e2e_seconds", 120.0), engines=("vllm",), owner="search")
SERVED: Final = Slo("served", "chat", 0.999, Availability(), engines=("vllm",))

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (issue 5)")


def first_token(days: float, objective: float = 0.99) -> Slo:
    """An SLO of one latency target over so many days."""
    name = f"ttft-{objective:g}"
    return Slo(name, "chat", objective, Latency("ttft_seconds", 0.5), Period(days * DAY_S), engines=("vllm",))


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool in a folder."""
    return subprocess.run(
        ["promtool", *arguments], cwd=folder, check=False, capture_output=True, text=True, timeout=300
    )


def written(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder."""
    for name, text in files.items():
        (folder / name).write_text(text)
