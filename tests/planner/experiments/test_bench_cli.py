import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from goodwatch.app.experimenting import entries, judged, keep, open_ledger
from goodwatch.commands.bench import bench, experiments
from planner.experiments.values import StopRule
from tests.planner.experiments.sides import changed, run
from tests.planner.experiments.test_importing import AIPERF, metric

DATA = Path(__file__).parent / "data"


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of six result files each; the second has a third more throughput."""
    folders = tmp_path / "a", tmp_path / "b"
    for folder, factor in zip(folders, (1.0, 1.33), strict=True):
        folder.mkdir()
        for place in range(6):
            content = AIPERF | {
                "output_token_throughput": metric(factor * (1000 + 7 * (place % 3) + place / 10), "t/s")
            }
            (folder / f"{place}.json").write_text(json.dumps(content))
    return folders


def told(group: object, *args: object, code: int = 0) -> str:
    done = CliRunner().invoke(group, [str(one) for one in args])  # type: ignore[arg-type]
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.output


def test_import_prints_runs_and_their_traps() -> None:
    out = told(bench, "import", DATA / "012-thirteen-requests.json")
    assert "13 ok" in out
    assert "show the maximum (6.57 s) with n = 13 instead" in out
    (found,) = json.loads(told(bench, "import", DATA / "012-thirteen-requests.json", "--json"))
    assert "p99" not in found["statistics"]["e2e_s"]


def test_import_of_two_policies_says_what_a_hit_ratio_means() -> None:
    assert "nothing about time" in told(bench, "import", DATA / "009-routing-policy.csv")


def test_import_of_what_is_not_there_says_so(tmp_path: Path) -> None:
    assert "does not exist; create it or correct the path" in told(bench, "import", tmp_path / "x.json", code=2)
    assert "holds no result file" in told(bench, "import", tmp_path, code=2)


def test_compare_keeps_its_verdict_in_the_ledger(sides: tuple[Path, Path], tmp_path: Path) -> None:
    out = told(bench, "compare", *sides, "--data-dir", tmp_path)
    assert "better: output_tokens_per_s +31.7 % (+29.4 to +34 %)" in out  # made: +33 %
    (listed,) = json.loads(told(experiments, "list", "--data-dir", tmp_path, "--json"))
    assert (listed["outcome"], listed["design"]) == ("better", "imported")
    shown = told(experiments, "show", listed["id"], "--data-dir", tmp_path)
    assert "better: output_tokens_per_s" in shown
    assert listed["id"] in told(experiments, "list", "--data-dir", tmp_path)


def test_an_export_has_all_and_a_redacted_one_has_no_name(sides: tuple[Path, Path], tmp_path: Path) -> None:
    told(bench, "compare", *sides, "--data-dir", tmp_path)
    (listed,) = json.loads(told(experiments, "list", "--data-dir", tmp_path, "--json"))
    whole = told(experiments, "export", listed["id"], "--data-dir", tmp_path)
    assert listed["id"] in whole
    told(experiments, "export", listed["id"], "--redacted", "--out", tmp_path / "copy.json", "--data-dir", tmp_path)
    copy = (tmp_path / "copy.json").read_text()
    assert json.loads(copy)["verdict"]["outcome"] == "better"
    assert listed["id"] not in copy
    assert "0.json" not in copy


def test_a_metric_that_is_unknown_is_refused_with_those_known(sides: tuple[Path, Path]) -> None:
    assert "known are output_tokens_per_s" in told(bench, "compare", *sides, "--metric", "speed", code=2)


def test_no_ledger_is_named_says_how_to_name_one() -> None:
    assert "--data-dir" in told(experiments, "list", code=2)
    assert "is no folder" in told(experiments, "list", "--data-dir", "/nowhere/at/all", code=2)


def test_an_unknown_id_is_told_with_those_known(sides: tuple[Path, Path], tmp_path: Path) -> None:
    told(bench, "compare", *sides, "--data-dir", tmp_path)
    assert "there is none; known are compare-" in told(experiments, "show", "x", "--data-dir", tmp_path, code=2)


def test_odd_flags_of_a_sweep_are_refused() -> None:
    base = ("run", "--url", "http://127.0.0.1:1", "--model", "m")
    assert "levels 8 to 2" in told(bench, *base, "--from", 8, "--to", 2, code=2)
    assert "at least 1" in told(bench, *base, "--repeats", 0, code=2)


def test_an_experiment_that_grows_is_judged_anew_and_every_version_is_kept(tmp_path: Path) -> None:
    ledger = open_ledger(None, tmp_path)
    whole = changed(0.7, "before_after")
    begun = replace(whole, state="running", stop=StopRule(7))
    keep(ledger, begun)
    more = {"a": [run(5, 1.02)], "b": [run(12, 0.71)]}
    grown = judged(ledger, begun, more)
    assert grown.verdict is not None
    assert (grown.state, len(grown.baseline.runs)) == ("done", 7)
    assert len(ledger.history("experiment", whole.id)) == 2
    assert entries(ledger) == [grown]
    ledger.close()


def test_a_trace_of_vllms_profiler_is_no_result(sides: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copy(DATA / "009-routing-policy.csv", sides[0] / "x.pytorch.json")
    told(bench, "compare", *sides)
