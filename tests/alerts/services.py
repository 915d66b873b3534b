"""SLOs and options that tests of rules share, promtool itself, and series that are played to it.

Series are a sample a step (a minute, unless a test says otherwise); ``a+bxn`` are n + 1 of them.
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from alerts.rules.build import build
from alerts.rules.files import dumped, prometheus_files
from alerts.rules.values import Options, RuleSet
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


#: expression → minute, value (None: no result)
Expected = Mapping[str, tuple[int, float | None]]
TTFT: Final = "vllm:time_to_first_token_seconds"


def assert_gives(
    folder: Path, slo: Slo, series: Mapping[str, str], expected: Expected, options: Options = OPTIONS
) -> None:
    """Load the SLO's rules, play the series, and compare what expressions give."""
    assert_rules_give(folder, build([slo], options), series, list(expected.items()), options)


def assert_rules_give(
    folder: Path,
    rules: RuleSet,
    series: Mapping[str, str],
    expected: Iterable[tuple[str, tuple[int, float | None]]],
    options: Options = OPTIONS,
    *,
    step: str = "1m",
) -> None:
    """The same for any rules; ``step`` lies between two samples and between two evaluations."""
    files = prometheus_files(rules, options)
    checks = [
        {
            "expr": expr,
            "eval_time": f"{minute}m",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for expr, (minute, value) in expected
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": step, "input_series": inputs, "promql_expr_test": checks}
    whole = {"rule_files": list(files), "evaluation_interval": step, "tests": [test]}
    written(folder, {**files, "test.yaml": dumped(whole)})
    done = promtool(folder, "test", "rules", "test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def firing(alert: str) -> str:
    """How many of an alert fire; 0 when none does."""
    return f'sum(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'


def ttft(instance: str, count_values: str, good_values: str, le: str = "0.5") -> dict[str, str]:
    """First tokens of one replica, of which ``good_values`` within a bound."""
    labels = f'job="chat",instance="{instance}"'
    return {
        f"{TTFT}_count{{{labels}}}": count_values,
        f'{TTFT}_bucket{{{labels},le="{le}"}}': good_values,
        f'{TTFT}_bucket{{{labels},le="+Inf"}}': count_values,
    }
