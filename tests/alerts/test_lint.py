"""The field's known mistakes, each in a faulty file, and silence on what is right."""

import json
import re
from pathlib import Path
from typing import Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alerts.lint.names import names
from alerts.lint.run import lint
from alerts.lint.tree import constant, parsed, plain
from alerts.lint.values import Finding
from alerts.rules.build import build
from alerts.rules.files import grafana_file, operator_files, prometheus_files
from tests.alerts.services import BATCH, CHAT, OPTIONS, SERVED

DATA: Final = Path(__file__).parent / "data"
NAMES: Final = names([*OPTIONS.engines.values(), *OPTIONS.accelerators.values()])
#: a line of a faulty file that says which mistake it makes
MARK: Final = re.compile(r'FAULT"?:? "?([a-z-]+)')

#: key words of every line of data/known-mistakes.md → the files that make the mistake
MISTAKES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("without its _total",): ("counter_without_total.rules.yaml", "object.prometheusrule.yaml"),
    ("Burn rate", "pages at 1x"): ("burn_rate_of_one.rules.yaml",),
    ("KV above 95%", "OOM", "restart"): ("full_cache_taken_for_oom.rules.yaml", "provisioned.grafana.yaml"),
    ("lower the memory fraction", "raise it"): ("memory_advice.rules.yaml",),
    ("Since-start averages",): ("since_start_average.json",),
    ("rate of a seconds sum",): ("rate_of_a_seconds_sum.json",),
    ("titled queue time", "TPOT"): ("title_and_query_differ.json",),
    ("mismatched labels",): ("mismatched_labels.rules.yaml",),
    ("Sum of fractions",): ("sum_of_fractions.json",),
    ("Quantile at a bucket edge",): ("quantile_at_a_bucket_edge.rules.yaml",),
    ("GPU-busy", "efficiency"): ("busy_taken_for_efficiency.json",),
    ("Lifetime counters",): ("lifetime_counter.rules.yaml",),
    ("Fraction against percent",): ("fraction_and_percent.rules.yaml", "fraction_shown_as_percent.json"),
    ("dead engine version",): ("dead_version.rules.yaml",),
    ("KV pool by model length",): ("pool_over_model_length.json",),
    ("up == 0 without absent()",): ("up_without_absent.rules.yaml",),
    ("Sparse-traffic hit-rate",): ("sparse_hit_rate.rules.yaml",),
    ("Absent read as zero",): ("absent_read_as_zero.rules.yaml",),
}
#: gauge rates, averaged quantiles, quantiles without le, short windows, top buckets, what does not parse
BESIDE: Final = ("more.rules.yaml",)
FAULTY: Final = sorted(path.name for path in (DATA / "faulty").iterdir())


def marks(text: str) -> set[tuple[int, str]]:
    return {(line, found[1]) for line, part in enumerate(text.splitlines(), 1) if (found := MARK.search(part))}


def linted(path: Path) -> list[Finding]:
    return lint({path.name: path.read_text()}, NAMES)


@pytest.mark.parametrize("name", FAULTY)
def test_a_known_mistake_is_found_on_its_line_with_a_mend(name: str) -> None:
    path = DATA / "faulty" / name
    found = linted(path)
    assert marks(path.read_text()), "the file says on no line which fault it has"
    assert {(one.line, one.code) for one in found} == marks(path.read_text())
    assert all(one.mend and one.path == path.name for one in found)


def test_every_line_of_the_known_mistakes_has_a_faulty_file() -> None:
    lines = [line for line in (DATA / "known-mistakes.md").read_text().splitlines() if line.startswith("- ")]
    rows = {line: [words for words in MISTAKES if all(word in line for word in words)] for line in lines}
    assert {line: len(words) for line, words in rows.items() if len(words) != 1} == {}
    assert len(lines) == len(MISTAKES)
    assert {name for files in MISTAKES.values() for name in files} | set(BESIDE) == set(FAULTY)


@pytest.mark.parametrize("path", sorted((DATA / "clean").iterdir()), ids=lambda path: str(path.name))
def test_a_clean_hand_written_file_is_silent(path: Path) -> None:
    assert linted(path) == []


def test_our_own_rules_are_silent_in_every_form() -> None:
    rules = build([CHAT, BATCH, SERVED], OPTIONS)
    for files in (
        prometheus_files(rules, OPTIONS),
        operator_files(rules, OPTIONS),
        {"grafana.yaml": grafana_file(rules, OPTIONS)},
    ):
        assert lint(files, NAMES) == []


def test_a_name_of_a_later_version_is_found_when_the_version_is_pinned() -> None:
    rule = "groups: [{name: a, rules: [{alert: A, expr: 'max(vllm:kv_cache_usage_perc) > 0.9'}]}]"
    old = names(OPTIONS.engines.values(), {"vllm": "0.8.5"})
    (found,) = lint({"a.yaml": rule}, old)
    assert (found.code, found.mend) == ("dead-name", "write vllm:gpu_cache_usage_perc")


def test_an_absent_up_in_another_file_is_enough() -> None:
    down = "groups: [{name: a, rules: [{alert: Down, expr: 'up{job=\"x\"} == 0'}]}]"
    gone = "groups: [{name: a, rules: [{alert: Gone, expr: 'absent(up{job=\"x\"})'}]}]"
    assert [one.code for one in lint({"a.yaml": down}, NAMES)] == ["up-without-absent"]
    assert lint({"a.yaml": down, "b.yaml": gone}, NAMES) == []


@pytest.mark.parametrize(
    ("name", "text", "line"), [("a.json", '{"panels":\n [}', 2), ("a.yaml", "a: 1\nb: [", 2), ("b.yaml", "a: \x00", 1)]
)
def test_a_file_that_cannot_be_read_is_a_finding(name: str, text: str, line: int) -> None:
    (found,) = lint({name: text}, NAMES)
    assert (found.code, found.line) == ("unreadable", line)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "just text",
        "groups:",
        "groups: [{rules: [{alert: A}]}]",
        "- expr: up",
        "groups: [{rules: [{alert: {a: 1}, expr: [1]}]}]",
    ],
)
def test_yaml_that_holds_no_rules_breaks_nothing(text: str) -> None:
    assert {one.code for one in lint({"a.yaml": text}, NAMES)} <= {"unparsable"}


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("rate(x[$__rate_interval])", "rate(x[5m])"),
        ("rate(x[${window:raw}])", "rate(x[5m])"),
        ('x{job=~"$job"}', 'x{job=~"$job"}'),
        ("sum by (a, $by) (x)", "sum by (a, by) (x)"),
        ("topk([[n]], x)", "topk(1, x)"),
        ("max_over_time(x[1h:$__interval])", "max_over_time(x[1h:5m])"),
        ("x offset $shift", "x offset 5m"),
    ],
)
def test_grafana_variables_stand_for_something_that_parses(expr: str, expected: str) -> None:
    assert plain(expr) == expected
    parsed(expr)


@pytest.mark.parametrize(
    "expr", ["(" * 50_000 + "1" + ")" * 50_000, "-" * 5_000 + "1", "+".join(["a"] * 9_000), "a" * 30_000]
)
def test_an_expression_that_would_end_the_parser_is_refused(expr: str) -> None:
    with pytest.raises(ValueError, match="too long or nested too deeply"):
        parsed(expr)


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_a_file_that_is_nested_too_deeply_is_a_finding(name: str) -> None:
    assert [one.code for one in lint({name: "[" * 3_000}, NAMES)] == ["unreadable"]


@given(st.text(max_size=80))
def test_any_text_in_a_rule_is_a_finding_or_none_and_never_a_crash(expr: str) -> None:
    rule = {"groups": [{"name": "a", "rules": [{"alert": "A", "expr": expr, "annotations": {"summary": expr}}]}]}
    board = {"panels": [{"title": expr, "targets": [{"expr": expr}]}]}
    lint({"a.yaml": yaml.safe_dump(rule), "a.json": json.dumps(board)}, NAMES)


def test_constants_are_computed() -> None:
    assert constant(parsed("14.4 * (1 - 0.99)")) == pytest.approx(0.144)
    assert constant(parsed("x * 2")) is None


def test_a_finding_reads_as_place_fault_and_mend() -> None:
    (found,) = linted(DATA / "faulty" / "lifetime_counter.rules.yaml")
    assert str(found) == (
        "lifetime_counter.rules.yaml:5: Preempting: 'vllm:num_preemptions_total' counts since the process began; its value "
        "says nothing of now; use increase(vllm:num_preemptions_total[5m]) or rate() [lifetime-counter]"
    )
