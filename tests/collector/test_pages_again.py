"""Page after page of one target: what is remembered between them changes no number, only what reading them costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as text_page

from collector.exposition import Limits, PageTooLarge, Parser, parse
from collector.families import Families
from collector.pipeline import TargetReader
from goodwatch.app.engines import known_engines
from goodwatch.app.recording import Recording
from goodwatch.core.model import Target
from tests.collector.test_exposition import reference_rows, rows
from tests.collector.test_exposition_properties import CONTENT_TYPES, pages, registry_of, text_lines, thorough
from tests.collector.test_exposition_properties import families as families_of_the_library
from tests.support.views import DATA

RECORDINGS = sorted(p.name for p in DATA.iterdir() if p.is_dir())
#: what stands behind a series: numbers, odd spellings of them, what is none, timestamps and exemplars
_VALUES = st.one_of(
    st.floats().map(repr),
    st.integers(0, 10**20).map(str),
    st.sampled_from(
        ["NaN", "-nan", "+Inf", "1_000", "١", "", " ", "7\r", "\t7", "7 ", " 7", "1 2", "7 1700000000000",
         '7 # {trace_id="a"} 1', "0x10", "infinity", "# EOF", "1e400", "-0.0", "7" * 70]
    ),
)  # fmt: skip


@st.composite
def sequences(draw: st.DrawFn) -> list[str]:
    """Pages of one target: values move, now and then a line comes, goes, trades places or is another."""
    lines = draw(pages() | text_lines().map("\n".join)).split("\n")
    found = ["\n".join(lines)]
    for _ in range(draw(st.integers(1, 4))):
        for at in draw(st.lists(st.integers(0, len(lines) - 1), max_size=4)):
            head, space, _ = lines[at].rpartition(" ")
            lines[at] = head + space + draw(_VALUES) if space and not head.startswith("#") else lines[at]
        odd = draw(st.sampled_from(["", "", "", "", "cut", "double", "swap", "comment", "end", "space"]))
        at, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        if odd == "cut" and len(lines) > 1:
            del lines[at]
        elif odd == "double":
            lines.insert(at, lines[other])
        elif odd == "swap":
            lines[at], lines[other] = lines[other], lines[at]
        elif odd == "comment":
            lines[at] = draw(
                st.sampled_from(["# words", "# TYPE a_x gauge", "# TYPE a_x histogram", "# HELP a_x b", ""])
            )
        elif odd == "end":
            lines.append("# EOF")
        elif odd == "space":
            lines[at] = f" {lines[at]}"
        found.append("\n".join(lines))
    return found


def told(families: Families) -> object:
    """Everything that a page's families say, as text: NaN is unlike itself."""
    series = [(f.name, f.type, [repr(s) for s in f.series]) for f in families]
    return series, families.created_count, families.nan_count


@thorough
@given(sequences(), CONTENT_TYPES)
def test_a_page_reads_the_same_whatever_was_read_before(bodies: list[str], content_type: str | None) -> None:
    parser = Parser()
    for body in [*bodies, *bodies[::-1], bodies[0]]:
        assert repr(parser.parse(body, content_type=content_type)) == repr(parse(body, content_type=content_type))


@thorough
@given(sequences(), st.builds(Limits, st.integers(0, 400), st.integers(0, 20), st.just(64), *[st.integers(0, 60)] * 3))
def test_limits_hold_on_every_page(bodies: list[str], limits: Limits) -> None:
    parser = Parser(limits)
    for body in [*bodies, *bodies]:
        found = []
        for one in (parser, Parser(limits)):
            try:
                found.append(repr(one.parse(body)))
            except PageTooLarge as error:
                found.append(str(error))
        assert found[0] == found[1]


@thorough
@given(families_of_the_library(), st.lists(st.floats(), min_size=1, max_size=8))
def test_moved_values_read_as_the_reference_reads_them(found: list[Metric], values: list[float]) -> None:
    parser = Parser()
    for step in range(3):
        for metric in found:
            moved = enumerate(metric.samples, step)
            metric.samples = [s._replace(value=values[i % len(values)]) if i % 3 else s for i, s in moved]
        body = text_page(registry_of(found)).decode()
        assert rows(parser.parse(body)) == reference_rows(body, openmetrics=False)


@thorough
@given(sequences())
def test_families_that_are_taken_over_say_what_new_ones_would(bodies: list[str]) -> None:
    parser, families = Parser(), None
    for body in bodies:
        again = parser.reread(body)
        if again is None or families is None:
            families = Families(parser.parse_whole(body))
        else:
            before = {(f.name, f.type): f for f in families}
            families, keys = families.after(again.page, again.moved)
            kept = [f for f in families if before.get((f.name, f.type)) is f]
            assert len(kept) + len(keys) >= len(before)
        assert told(families) == told(Families(parse(body)))


@thorough
@given(sequences())
def test_families_that_nobody_asked_for_meanwhile_are_up_to_date_when_somebody_does(bodies: list[str]) -> None:
    parser = Parser()
    families = Families(parser.parse_whole(bodies[0]))
    for body in bodies[1:]:
        again = parser.reread(body)
        families = Families(parser.parse_whole(body)) if again is None else families.after(again.page, again.moved)[0]
    assert told(families) == told(Families(parse(bodies[-1])))


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_page_of_a_recording_is_understood_as_if_it_were_the_first(name: str) -> None:
    target = Target("t", "http://t/metrics", "s")
    reader, quick = TargetReader(target, known_engines()), 0
    answers = [s for s in Recording.open(DATA / name).scrapes() if s.body is not None]
    for at, answer in enumerate(answers[-60:]):
        body, content_type = answer.body or "", answer.content_type
        again = reader.understand_again(body, content_type)
        quick += again is not None
        one = again or reader.understand(body, content_type)
        if at % 4 and again is not None:
            continue  # a fresh reader costs much more; those in between move the state on
        other_reader = TargetReader(target, known_engines())
        other = other_reader.understand(body, content_type)
        assert repr(one.page) == repr(other.page)
        assert told(one.families) == told(other.families)
        assert (one.engine, one.detected, one.version) == (other.engine, other.detected, other.version)
        assert repr(one.reading) == repr(other.reading)
        assert reader.deployment(one, 1.0) == other_reader.deployment(other, 1.0)
        assert repr(reader.scrape(one, 1.0, 0.1, 5)) == repr(other_reader.scrape(other, 1.0, 0.1, 5))
    assert quick or all(a.body and a.body.lstrip().startswith("[") for a in answers[-60:])
