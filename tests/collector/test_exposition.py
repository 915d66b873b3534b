import json
import math
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from collector.exposition import KEPT_PROBLEMS, Limits, PageTooLarge, Parser, parse
from goodwatch.core.errors import GoodwatchError
from goodwatch.core.page import Page

DATA = Path(__file__).parent / "data"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
VLLM = "text/plain; version=1.0.0; charset=utf-8"

Row = tuple[str, tuple[tuple[str, str], ...], str]  # name, sorted labels, repr of the value: NaN equals NaN


def rows(page: Page) -> list[Row]:
    return [(s.name, tuple(sorted(s.labels.items())), repr(s.value)) for s in page.samples]


def reference_rows(text: str, *, openmetrics: bool) -> list[Row]:
    """What prometheus_client reads, with the ``_total`` that it adds to counters of text 0.0.4 taken off again."""
    bare_counters = set(re.findall(r"^# TYPE (\S+) counter", text, re.MULTILINE))
    found = []
    read = openmetrics_families if openmetrics else text_families
    for family in read(text):
        added = not openmetrics and family.type == "counter" and family.name in bare_counters
        for sample in family.samples:
            name = sample.name.removesuffix("_total") if added else sample.name
            found.append((name, tuple(sorted(sample.labels.items())), repr(float(sample.value))))
    return found


def reasons(page: Page) -> list[str]:
    return [problem.reason for problem in page.problems]


def only(body: str) -> tuple[str, dict[str, str], float]:
    page = parse(body)
    assert page.problems == []
    [sample] = page.samples
    return sample.name, sample.labels, sample.value


# --- real pages


def test_a_page_of_vllm_reads_as_the_reference_reads_it() -> None:
    body = (DATA / "vllm_0_32_0.prom").read_bytes()
    page = parse(body, content_type=VLLM)
    assert page.problems == []
    assert page.format == "text"
    assert rows(page) == reference_rows(body.decode(), openmetrics=False)
    assert page.types["vllm:time_to_first_token_seconds"] == "histogram"
    assert page.types["vllm:prompt_tokens_total"] == "counter"
    assert page.help["vllm:num_requests_running"] == "Number of requests in model execution batches."


def test_an_openmetrics_page_of_sglang_reads_as_the_reference_reads_it() -> None:
    body = (DATA / "sglang_0_5_23.openmetrics").read_text()
    page = parse(body, content_type=OPENMETRICS)
    assert page.problems == []
    assert page.format == "openmetrics"
    # SGLang declares sglang:NAME and writes samples of sglang_NAME, which the reference refuses until they agree.
    assert rows(page) == reference_rows(body.replace("sglang:", "sglang_"), openmetrics=True)
    assert page.types["sglang:prompt_tokens"] == "counter"
    assert any(math.isnan(s.value) for s in page.samples if s.name == "sglang_fwd_occupancy")


def test_a_second_page_is_read_from_memory_with_the_same_result() -> None:
    body = (DATA / "vllm_0_32_0.prom").read_bytes()
    parser = Parser()
    first, second = parser.parse(body), parser.parse(body)
    assert repr(first) == repr(second)
    assert first.samples[0].labels is second.samples[0].labels


# --- lines


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("up 1", ("up", {}, 1.0)),
        ("up{} 1", ("up", {}, 1.0)),
        ("up{ } 1", ("up", {}, 1.0)),
        ("up\t1", ("up", {}, 1.0)),
        ("  up \t 1  ", ("up", {}, 1.0)),
        ("up 1 1700000000000", ("up", {}, 1.0)),
        ("up 1 1700000000.123", ("up", {}, 1.0)),
        ('up{a="b"}1', ("up", {"a": "b"}, 1.0)),
        ('up {a="b"} 1', ("up", {"a": "b"}, 1.0)),
        ('up{a="b",} 1', ("up", {"a": "b"}, 1.0)),
        ('up{ a = "b" , c = "d" , } 1', ("up", {"a": "b", "c": "d"}, 1.0)),
        ('up{a=""} 1', ("up", {"a": ""}, 1.0)),
        (r'up{a="\\",b="x\ny",c="\"q\"",d="\t"} 1', ("up", {"a": "\\", "b": "x\ny", "c": '"q"', "d": r"\t"}, 1.0)),
        (r'up{a="\\n"} 1', ("up", {"a": r"\n"}, 1.0)),
        ('up{a="1,2",b="{x}",c="# y",d=" = "} 1', ("up", {"a": "1,2", "b": "{x}", "c": "# y", "d": " = "}, 1.0)),
        ('up{a="x # {y} 2"} 1', ("up", {"a": "x # {y} 2"}, 1.0)),
        ('up{a="\x00\x1f"} 1', ("up", {"a": "\x00\x1f"}, 1.0)),
        ('up{a="ü\u2028🙂"} 1', ("up", {"a": "ü\u2028🙂"}, 1.0)),
        ('{"my.metric", a="b"} 1', ("my.metric", {"a": "b"}, 1.0)),
        ('{"my.metric"} 1', ("my.metric", {}, 1.0)),
        ('{a="b","my.metric",} 1', ("my.metric", {"a": "b"}, 1.0)),
        (r'{"my \"quoted\" metric","a.b"="c"} 1', ('my "quoted" metric', {"a.b": "c"}, 1.0)),
        ('up{"a.b"="c"} 1', ("up", {"a.b": "c"}, 1.0)),
        ('x_total{a="b"} 5 # {trace_id="a b"} 0.5 1.2', ("x_total", {"a": "b"}, 5.0)),
        ('x_total 5 # {trace_id="a"} 0.5', ("x_total", {}, 5.0)),
        ('x_total{a="b"} 5 1.5 # {} 0.5', ("x_total", {"a": "b"}, 5.0)),
        (r'x_total 5 # {trace_id="\"# {"} 0.5', ("x_total", {}, 5.0)),
    ],
)
def test_one_line_is_read(line: str, expected: tuple[str, dict[str, str], float]) -> None:
    assert only(line + "\n") == expected
    assert only(line + "\r\n") == expected
    assert only(line) == expected
    parser = Parser()
    parser.parse(line)
    assert rows(parser.parse(line)) == rows(parse(line))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("inf", math.inf),
        ("1e3", 1000.0),
        ("-0.0", -0.0),
        (".5", 0.5),
        ("5e-324", 5e-324),
        ("9" * 400, math.inf),
    ],
)
def test_a_number_is_read(written: str, value: float) -> None:
    assert only(f"up {written}\n")[2] == value


@pytest.mark.parametrize("written", ["NaN", "-nan", "nan", "NAN"])
def test_not_a_number_is_a_value(written: str) -> None:
    assert math.isnan(only(f"up {written}\n")[2])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("up", "bad_value"),
        ("up ", "bad_value"),
        ("up one", "bad_value"),
        ("up 1_000", "bad_value"),
        ("up ١", "bad_value"),
        ("up 0x10", "bad_value"),
        ("up 1 2 3", "bad_value"),
        ("up {count:1,sum:2}", "bad_labels"),
        ('up{a="b"}', "bad_value"),
        ("up 1 now", "bad_timestamp"),
        ("up 1 # a comment", "bad_exemplar"),
        ("9up 1", "bad_name"),
        ("my.metric 1", "bad_name"),
        ("up}", "bad_name"),
        ('{a="b"} 1', "bad_name"),
        ("{} 1", "bad_name"),
        ('{"",a="b"} 1', "bad_name"),
        ('up{"my.metric"} 1', "bad_name"),
        ("up{ 1", "bad_labels"),
        ('up{a="b 1', "bad_labels"),
        ('up{a="b\\"} 1', "bad_labels"),
        ('up{a="b" c="d"} 1', "bad_labels"),
        ('up{a="b",,} 1', "bad_labels"),
        ('up{,a="b"} 1', "bad_labels"),
        ("up{a=b} 1", "bad_labels"),
        ("up{a} 1", "bad_labels"),
        ('up{a.b="c"} 1', "bad_labels"),
        ('up{a="b",a="c"} 1', "bad_labels"),
        ('up{__name__="b"} 1', "bad_labels"),
        ('{"one","two"} 1', "bad_labels"),
        ("# TYPE up", "bad_type"),
        ("# TYPE up thermometer", "bad_type"),
        ("# TYPE my.metric gauge", "bad_type"),
        ("# HELP 9up words", "bad_help"),
    ],
)
def test_a_bad_line_is_a_problem_and_costs_no_other(line: str, reason: str) -> None:
    for parser in (Parser(), Parser()):
        parser.parse('up 1\nup{a="b"} 1\n')
        page = parser.parse(f"before 1\n{line}\nafter 2\n")
        assert [s.name for s in page.samples] == ["before", "after"]
        [problem] = page.problems
        assert (problem.line, problem.reason) == (2, reason)
        assert len(problem.text) > 20


def test_blank_lines_comments_and_crlf_are_quiet() -> None:
    page = parse("# made by hand\r\n#\r\n\r\n  \t\r\n#TYPE up counter\r\n# EOFX\r\nup 1\r\n")
    assert rows(page) == [("up", (), "1.0")]
    assert (page.problems, page.types, page.help) == ([], {}, {})


def test_the_first_of_equal_series_is_kept() -> None:
    body = 'a{x="1",y="2"} 1\na{y="2",x="1"} 2\na {x="1",y="2",} 3\nb 4\n'
    parser = Parser()
    for page in (parser.parse(body), parser.parse(body)):
        assert [(s.name, s.value) for s in page.samples] == [("a", 1.0), ("b", 4.0)]
        assert [(p.line, p.reason) for p in page.problems] == [(2, "duplicate_series"), (3, "duplicate_series")]


def test_a_known_name_followed_by_braces_is_not_taken_for_the_bare_series() -> None:
    parser = Parser()
    parser.parse("up 1\n")
    assert rows(parser.parse('up {a="b"} 2 3\n')) == [("up", (("a", "b"),), "2.0")]


# --- metadata


def test_help_and_type_are_kept_as_declared() -> None:
    page = parse(
        '# HELP up  Is it \\"up\\"?\\nYes \\\\.\n# TYPE up gauge\n#\tTYPE\t"my.metric"\tcounter\n# HELP down\n'
    )
    assert page.types == {"up": "gauge", "my.metric": "counter"}
    assert page.help == {"up": 'Is it \\"up\\"?\nYes \\.', "down": ""}
    assert page.problems == []


def test_openmetrics_help_unescapes_quotes_too() -> None:
    assert parse('# HELP up Is it \\"up\\"?\n# EOF\n').help == {"up": 'Is it "up"?'}


def test_a_second_type_is_a_problem_only_if_it_differs() -> None:
    page = parse("# TYPE up gauge\n# TYPE up gauge\n# TYPE up counter\nup 1\n")
    assert page.types == {"up": "gauge"}
    assert [(p.line, p.reason) for p in page.problems] == [(3, "duplicate_type")]


# --- formats


@pytest.mark.parametrize("content_type", [None, "", "text/plain", VLLM, "text/html", OPENMETRICS, "nonsense"])
def test_openmetrics_is_recognised_by_its_end(content_type: str | None) -> None:
    body = '# TYPE x counter\n# UNIT x seconds\nx_total{a="b"} 1 1.5 # {t="1"} 0.5 1.2\nx_created{a="b"} 1.7e9\n# EOF\n'
    page = parse(body, content_type=content_type)
    assert page.format == "openmetrics"
    assert page.types == {"x": "counter"}
    assert [(s.name, s.value) for s in page.samples] == [("x_total", 1.0), ("x_created", 1.7e9)]
    assert page.problems == []


@pytest.mark.parametrize("content_type", [None, "text/plain; version=0.0.4", VLLM, "TEXT/PLAIN", "text/html"])
def test_anything_else_is_read_as_text(content_type: str | None) -> None:
    assert parse("up 1\n", content_type=content_type) == parse("up 1\n")
    assert parse("up 1\n", content_type=content_type).format == "text"


def test_openmetrics_without_its_end_loses_the_line_that_may_be_cut() -> None:
    page = parse("a 1\nb 12", content_type=OPENMETRICS)
    assert rows(page) == [("a", (), "1.0")]
    assert [(p.line, p.reason) for p in page.problems] == [(2, "no_eof")]


def test_samples_behind_the_end_are_read_and_told() -> None:
    page = parse("a 1\n# EOF\nb 2\n# EOF\n# TYPE x gauge\nc 3\n# EOF\n")
    assert [s.name for s in page.samples] == ["a", "b", "c"]
    assert reasons(page) == []  # the last end is the one that counts
    page = parse("a 1\n# EOF\nb 2\n", content_type=OPENMETRICS)
    assert [s.name for s in page.samples] == ["a", "b"]
    assert reasons(page) == ["after_eof", "no_eof"]


def test_bytes_that_are_no_utf8_cost_nothing_but_themselves() -> None:
    page = parse(b'a 1\nb{x="\xff\xfe"} 2\nc{x="\xc3"} 3\n')
    assert [(s.name, s.labels) for s in page.samples] == [
        ("a", {}),
        ("b", {"x": "\ufffd\ufffd"}),
        ("c", {"x": "\ufffd"}),
    ]
    assert [(p.line, p.reason) for p in page.problems] == [(2, "bad_utf8")]


@pytest.mark.parametrize(
    "body",
    [
        "<!DOCTYPE html>\n<html><body>\nup 1\n</body></html>\n",
        "\n  <?xml version='1.0'?>\n",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
        b"\x0a\x05up\x00\x01\x02\n",
        bytes(range(1, 256)),
        "Internal Server Error",
        '{"detail": "Not Found"}',
        "[1, 2]",
        '["numActiveRequests"]',
        '"numActiveRequests"',
        "[" * 200_000,
    ],
)
def test_what_is_no_metrics_says_so(body: bytes | str) -> None:
    page = parse(body)
    assert page.samples == []
    assert reasons(page).count("not_metrics") == 1


@pytest.mark.parametrize("body", ["", b"", "\n\n", "# nothing yet\n", "# EOF\n"])
def test_an_empty_page_is_no_problem(body: bytes | str) -> None:
    page = parse(body)
    assert (page.samples, page.problems) == ([], [])


# --- TensorRT-LLM


def test_iteration_statistics_are_read_from_the_newest_element() -> None:
    newest = {
        "iter": 7,
        "timestamp": "01-01-2026 00:00:00.1",
        "numActiveRequests": 3,
        "cpuMemUsage": None,
        "kvCacheStats": {"usedNumBlocks": 12, "cacheHitRate": 0.25, "enabled": True, "perLayer": [1, 2]},
        "flag": False,
    }
    for content_type in ("application/json", None):
        page = parse(json.dumps([{"iter": 6, "old": 1}, newest]), content_type=content_type)
        assert page.format == "json"
        assert {s.name: s.value for s in page.samples} == {
            "trtllm_json:iter": 7.0,
            "trtllm_json:numActiveRequests": 3.0,
            "trtllm_json:kvCacheStats.usedNumBlocks": 12.0,
            "trtllm_json:kvCacheStats.cacheHitRate": 0.25,
            "trtllm_json:kvCacheStats.enabled": 1.0,
            "trtllm_json:flag": 0.0,
        }
        assert set(page.types.values()) == {"gauge"}
        assert page.problems == []


def test_no_iterations_since_the_last_reading_is_an_empty_page() -> None:
    page = parse(" []\n", content_type="application/json")
    assert page == Page(format="json")


def test_text_that_starts_with_a_brace_is_not_taken_for_json() -> None:
    page = parse('{"my.metric"} 1\n', content_type="application/json")
    assert (page.format, [s.name for s in page.samples]) == ("text", ["my.metric"])


def test_odd_json_numbers_and_names_are_read_or_told() -> None:
    body = json.dumps([{"big": 10**400, "a.b": 1, "a": {"b": 2}, "\ud800": 3, "x" * 5000: 4}])
    page = parse(body)
    assert {s.name: s.value for s in page.samples} == {
        "trtllm_json:big": math.inf,
        "trtllm_json:a.b": 1.0,
        "trtllm_json:?": 3.0,
    }
    assert reasons(page) == ["duplicate_series", "too_long"]


# --- limits


def test_a_body_over_the_limit_is_refused() -> None:
    limits = Limits(body_bytes=10)
    assert parse("a{b='é'} 1"[:9], limits=limits)
    with pytest.raises(PageTooLarge, match="body of 11 bytes; allowed are 10"):
        parse("long_name 1", limits=limits)
    with pytest.raises(PageTooLarge):
        parse("éééééé", limits=limits)
    assert issubclass(PageTooLarge, GoodwatchError)


@pytest.mark.parametrize(
    "over",
    [
        "a 1\nb 1\nc 1\nd 1\n",
        "a 1\nb 1\nc 1\nc 1\n",
        "a 1\nb 1\nc 1\nbad\n",
        "# TYPE a gauge\n# TYPE b gauge\n# TYPE c gauge\n# TYPE d gauge\n",
        '[{"a": 1, "b": 2, "c": 3, "d": 4}]',
    ],
)
def test_a_page_of_too_many_samples_is_refused(over: str) -> None:
    with pytest.raises(PageTooLarge, match="over 3 samples"):
        parse(over, limits=Limits(samples=3))
    assert parse(over, limits=Limits(samples=4))


def test_a_page_of_nothing_but_lines_is_refused() -> None:
    assert parse("\n" * 39, limits=Limits(samples=4)).problems == []
    with pytest.raises(PageTooLarge, match="over 40 lines"):
        parse("\n" * 40, limits=Limits(samples=4))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('m{a="1",b="2",c="3"} 1', "too_many_labels"),
        ('m{aaaaa="1"} 1', "too_long"),
        ('m{a="123456789"} 1', "too_long"),
        ('m{a="ééééé"} 1', "too_long"),
        ("mmmmmmmmm 1", "too_long"),
        ("m " + " " * 60 + "1", "too_long"),
        ("m 0." + "1" * 60, "too_long"),
        ("# HELP m " + "é" * 30, "too_long"),
    ],
)
def test_a_line_over_a_limit_is_a_problem(line: str, reason: str) -> None:
    limits = Limits(labels=2, label_name_bytes=4, label_value_bytes=8, line_bytes=60)
    parser = Parser(limits)
    assert [s.name for s in parser.parse('m 1\nfull{aaaa="12345678",b="éééé"} 1\n').samples] == ["m", "full"]
    page = parser.parse(f"a 1\n{line}\nb 2\n")
    assert [s.name for s in page.samples] == ["a", "b"]
    assert [(p.line, p.reason) for p in page.problems] == [(2, reason)]


def test_problems_beyond_the_first_are_counted() -> None:
    bad = KEPT_PROBLEMS + 7
    page = parse("up 1\n" + "bad\n" * bad + "up 2\n")
    assert len(page.problems) == KEPT_PROBLEMS + 1
    assert reasons(page)[:-1] == ["bad_value"] * KEPT_PROBLEMS
    assert (page.problems[-1].reason, page.problems[-1].text) == (
        "more",
        "8 more problems: 7 bad_value, 1 duplicate_series",
    )


def test_many_bad_lines_do_not_hide_what_the_body_is() -> None:
    page = parse("no metrics\n" * 60)
    assert reasons(page) == ["not_metrics", *["bad_value"] * (KEPT_PROBLEMS - 1), "more"]
    assert page.problems[-1].text == "11 more problems: 11 bad_value"


def test_memory_is_bounded_and_forgetting_changes_nothing() -> None:
    parser = Parser(max_series=3)
    for first in range(0, 50, 5):
        body = "# TYPE s gauge\n" + "".join(f's{{n="{n}"}} {n}\n' for n in range(first, first + 5)) * 2
        assert repr(parser.parse(body)) == repr(parse(body))
    assert len(parser._by_text) <= 3
    assert len(parser._by_identity) <= 3 + 5


def test_a_page_is_read_in_pieces_without_losing_its_line_numbers() -> None:
    lines = [f'series_number{{n="{n}"}} {n}' for n in range(20_000)]
    lines[15_000] = "bad"
    page = parse("\n".join(lines))
    assert len(page.samples) == 19_999
    assert [p.line for p in page.problems] == [15_001]
