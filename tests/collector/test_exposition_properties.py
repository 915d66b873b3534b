"""Pages made up by the thousand. ``GOODWATCH_EXAMPLES`` sets how many for each property."""

import json
import os
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as text_page
from prometheus_client.openmetrics.exposition import ALLOWUTF8, UNDERSCORES
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_page
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from collector.exposition import KEPT_PROBLEMS, Limits, PageTooLarge, Parser, parse
from goodwatch.core.page import Page
from tests.collector.test_exposition import reference_rows, rows

thorough = settings(max_examples=int(os.environ.get("GOODWATCH_EXAMPLES", "100")), deadline=None)

CONTENT_TYPES = st.sampled_from(
    [None, "text/plain; version=1.0.0", "application/openmetrics-text", "application/json", "text/html", "?;;"]
)
#: what label values hold in practice and what breaks readers: quotes, escapes, separators, odd line ends
weird_text = st.text(
    st.one_of(st.sampled_from('\\"\n{}#,= \t\r\x0b\x85\u2028nN'), st.characters(codec="utf-8")), max_size=8
)
plain_name = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,6}", fullmatch=True)
label_name = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,5}", fullmatch=True)
labels = st.dictionaries(label_name, weird_text, max_size=4)
finite = st.floats(0, 1e15)
whole = st.integers(0, 2**53).map(float)
# The reference loses count of quotes in exemplars, so theirs have none; ours are dropped unread.
exemplar = st.none() | st.builds(
    Exemplar,
    st.dictionaries(label_name, st.text(st.sampled_from("ab#{},= "), max_size=5), max_size=2),
    finite,
    st.none() | finite,
)


@st.composite
def families(draw: st.DrawFn, *, utf8_names: bool = False, colons: bool = True) -> list[Metric]:
    """Metric families of every type, each with a few label sets, none clashing with another."""
    kinds = ["counter", "gauge", "histogram", "summary", "unknown", "info", "stateset", "gaugehistogram"]
    ending = weird_text.filter(lambda text: "\n" not in text) if utf8_names else st.just("")
    found = []
    for start, kind in zip("a_:De", draw(st.lists(st.sampled_from(kinds), max_size=5)), strict=False):
        # The label of a state set is named as its family, and the name of a label may hold less.
        name = f"s{ord(start)}" if kind == "stateset" else f"{start}{draw(plain_name)}{draw(ending)}x"
        family = Metric(name if colons else name.replace(":", "C"), draw(weird_text), kind)
        for label_set in draw(st.lists(labels, max_size=3, unique_by=lambda found: tuple(sorted(found.items())))):
            for suffix, extra, value, shown in draw(points(kind, family.name)):
                family.add_sample(family.name + suffix, {**label_set, **extra}, value, None, shown)
        found.append(family)
    return found


@st.composite
def points(draw: st.DrawFn, kind: str, name: str) -> list[tuple[str, dict[str, str], float, Exemplar | None]]:
    """The samples of one label set: suffix, own labels, value, exemplar."""
    if kind in ("histogram", "gaugehistogram"):
        total, total_sum = ("_count", "_sum") if kind == "histogram" else ("_gcount", "_gsum")
        counts = sorted(draw(st.lists(whole, min_size=2, max_size=4)))
        bounds = [*[f"{n}.5" for n in range(len(counts) - 1)], "+Inf"]
        buckets = [("_bucket", {"le": le}, n, draw(exemplar)) for le, n in zip(bounds, counts, strict=True)]
        return [*buckets, (total, {}, counts[-1], None), (total_sum, {}, draw(finite), None)]
    if kind == "counter":
        return [("_total", {}, draw(finite), draw(exemplar)), ("_created", {}, draw(finite), None)]
    if kind == "summary":
        return [("", {"quantile": "0.5"}, draw(finite), None), ("_count", {}, draw(whole), None), ("_sum", {}, 1, None)]
    if kind == "info":
        return [("_info", {"version": draw(weird_text)}, 1.0, None)]
    if kind == "stateset":
        return [("", {name: "on"}, 1.0, None), ("", {name: "off"}, 0.0, None)]
    return [("", {}, draw(st.floats()), None)]


class Given(Collector):
    def __init__(self, found: list[Metric]) -> None:
        self.found = found

    def collect(self) -> Iterator[Metric]:
        yield from self.found


def registry_of(found: list[Metric]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Given(found))
    return registry


def openmetrics_text(found: list[Metric], escaping: str) -> str:
    page: bytes = openmetrics_page(registry_of(found), escaping)  # type: ignore[no-untyped-call]
    return page.decode()


@st.composite
def text_lines(draw: st.DrawFn) -> list[str]:
    """Good lines of text 0.0.4 as no library writes them: spaces, tabs, trailing commas, timestamps, odd numbers."""
    space, gap = st.sampled_from(["", "", " ", "\t", "  "]), st.sampled_from([" ", "\t", "  "])
    numbers = st.sampled_from(["NaN", "-nan", "nan", "+Inf", "-Inf", "inf", "0", "1e-9", "-0.0", ".5", "7."])
    lines = []
    for number in range(draw(st.integers(0, 6))):
        name = f"{draw(plain_name)}_{number}"
        pairs = [
            f"{draw(space)}{label}{draw(space)}={draw(space)}{_quoted(value)}{draw(space)}"
            for label, value in draw(labels).items()
        ]
        if draw(st.booleans()):
            pairs, name = [_quoted(f"{name} {draw(st.sampled_from('.-ü{}#,'))}"), *pairs], ""
        inside = ",".join(pairs) + (draw(st.sampled_from(["", ","])) if pairs else "")
        braces = bool(pairs) or draw(st.sampled_from([False, True]))
        series = f"{name}{draw(space) if name else ''}{{{inside}}}" if braces else name
        between = draw(gap)
        value = draw(numbers | st.floats().map(repr))
        stamp = draw(st.sampled_from(["", f"{between}1700000000000"]))
        lines.append(f"{draw(space)}{series}{between}{value}{stamp}{draw(space)}")
        lines.append(draw(st.sampled_from(["", "\t", "# words", f"# TYPE x{number} gauge", f"# HELP x{number} up"])))
    return lines


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'"{escaped}"'


@st.composite
def pages(draw: st.DrawFn) -> str:
    """Both formats on one page, so that every kind of line is there."""
    return openmetrics_text(draw(families(utf8_names=True)), ALLOWUTF8) + "\n".join(draw(text_lines()))


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> str:
    """A page that was good once: pieces cut out, doubled or overwritten."""
    page = draw(whole)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(page)))
        end = draw(st.integers(start, min(len(page), start + 20)))
        page = page[:start] + draw(st.just("") | weird_text | st.just(2 * page[start:end])) + page[end:]
    return page


json_page = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | weird_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(weird_text, inner, max_size=4),
    max_leaves=8,
).map(json.dumps)
bodies = st.one_of(damaged(pages()), st.binary(max_size=200), st.text(max_size=200), json_page)


def assert_sound(page: Page) -> None:
    identities = [(s.name, frozenset(s.labels.items())) for s in page.samples]
    assert len(set(identities)) == len(identities)
    assert all(s.name and isinstance(s.value, float) for s in page.samples)
    assert len(page.problems) <= KEPT_PROBLEMS + 1
    json.dumps([s.name for s in page.samples]).encode()
    assert page.format in ("text", "openmetrics", "json")


@thorough
@given(
    # Colons: this library declares a:b and writes samples of a_b when it escapes, which its own reader refuses.
    families(utf8_names=True, colons=False).map(lambda found: openmetrics_text(found, UNDERSCORES))
    | families(utf8_names=True).map(lambda found: openmetrics_text(found, ALLOWUTF8))
)
def test_openmetrics_of_the_client_library_reads_as_its_own_reader_reads_it(body: str) -> None:
    page = parse(body, content_type="application/openmetrics-text; version=1.0.0")
    assert page.problems == []
    assert page.format == "openmetrics"
    assert rows(page) == reference_rows(body, openmetrics=True)


@thorough
@given(families())
def test_text_of_the_client_library_reads_as_its_own_reader_reads_it(found: list[Metric]) -> None:
    body = text_page(registry_of(found))
    page = parse(body, content_type="text/plain; version=1.0.0")
    assert page.problems == []
    assert page.format == "text"
    assert rows(page) == reference_rows(body.decode(), openmetrics=False)


@thorough
@given(text_lines(), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_text_written_by_hand_reads_as_the_reference_reads_it(lines: list[str], line_end: str, ended: bool) -> None:
    body = line_end.join(lines) + (line_end if ended else "")
    page = parse(body)
    assert page.problems == []
    assert rows(page) == reference_rows(body, openmetrics=False)


@thorough
@given(bodies, CONTENT_TYPES)
def test_no_body_is_too_odd_to_read(body: bytes | str, content_type: str | None) -> None:
    assert_sound(parse(body, content_type=content_type))


@thorough
@given(bodies, st.builds(Limits, st.integers(0, 200), *[st.integers(0, 20)] * 4, st.integers(0, 60)))
def test_limits_refuse_a_page_in_one_way_only(body: bytes | str, limits: Limits) -> None:
    try:
        page = parse(body, limits=limits)
    except PageTooLarge:
        return
    assert_sound(page)
    assert len(page.samples) <= limits.samples
    assert all(len(s.labels) <= limits.labels for s in page.samples)
    assert all(len(v.encode()) <= limits.label_value_bytes for s in page.samples for v in s.labels.values())


@thorough
@given(pages().flatmap(lambda page: st.lists(damaged(st.just(page)), min_size=2, max_size=4)), st.sampled_from([3, 99]))
def test_memory_changes_no_result(alike: list[str], max_series: int) -> None:
    parser = Parser(max_series=max_series)
    for body in [*alike, *alike]:
        assert repr(parser.parse(body)) == repr(parse(body))


@thorough
@given(text_lines(), st.data())
def test_a_cut_costs_no_line_before_it(lines: list[str], data: st.DataObject) -> None:
    body = "\n".join(lines).encode()
    cut = data.draw(st.integers(0, len(body)))
    whole_lines = body[: body.rfind(b"\n", 0, cut) + 1]
    kept = rows(parse(whole_lines))
    samples = [line for line in whole_lines.decode().split("\n") if line.strip(" \t") and not line.startswith("#")]
    assert len(kept) == len(samples)
    for content_type in (None, "application/openmetrics-text"):
        assert rows(parse(body[:cut], content_type=content_type))[: len(kept)] == kept
