"""The exposition parser under mutated pages: it never raises, never hangs, and reads as prometheus_client reads."""

import itertools
import json
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from collector.exposition import KEPT_PROBLEMS, Limits, PageTooLarge, Parser, parse
from goodwatch.core.page import Page
from tests.collector.test_exposition import reference_rows, rows
from tests.fuzz.driver import Wrong

_DATA: Final = Path(__file__).parent.parent / "collector"
_LINES: Final = 40  # of each recorded page: short inputs say more in a second
#: CPU that a page may take: a floor for what is paid once, and so much a byte (a warm parse takes about 0.02 µs)
_FLOOR_S, _PER_BYTE_S = 0.5, 20e-6

#: problems of single lines, which can be left out; others concern the whole page
_BY_LINE: Final = frozenset(
    {"bad_name", "bad_labels", "bad_value", "bad_timestamp", "bad_exemplar", "bad_help", "bad_type", "duplicate_type",
     "duplicate_series", "too_long", "too_many_labels"}
)  # fmt: skip

#: the reference reads -0 as the integer 0, Prometheus and we as the float: equal as numbers
_NO_SIGN: Final = {"-0.0": "0.0"}
#: `a{b="c"}19` of OpenMetrics lacks its space: the reference loses a digit and reads 9; we read what was meant
_GLUED: Final = re.compile(rb"\}[^ \n]")

CONTENT_TYPES: Final = (
    None, "text/plain; version=0.0.4", "text/plain; version=1.0.0; charset=utf-8",
    "application/openmetrics-text; version=1.0.0", "application/json", "text/html", ";;=",
)  # fmt: skip
TOKENS: Final[Sequence[bytes]] = (
    b"{", b"}", b'"', b"\\", b"\\n", b'\\"', b",", b"=", b" ", b"\t", b"\r", b"\n", b"\r\n", b"#", b"# EOF\n", b"# {",
    b"# TYPE a counter\n", b"# TYPE a histogram\n", b"# TYPE a gauge\n", b"# HELP a \\n\\\\\n", b"# UNIT a_seconds seconds\n",
    b"NaN", b"+Inf", b"-Inf", b"inf", b"1e400", b"0x1p3", b"1_000", b"-0", b".5", b"1.", b"\xd9\xa3", b"1700000000000",
    b'a{le="+Inf"} 1\n', b'a_bucket{le="1"} 2\n', b"a_total 3\n", b"a_created 4\n", b' # {trace_id="x"} 1 2',
    b'{"a b","c.d"="e"} 1\n', b'{"a"} 1\n', b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8",
    b"[{", b'{"iter": 1}', b"[1e999]", b"<html>", b"_total", b":", b"a" * 600, b"{" * 50, b'x="y",' * 70,
)  # fmt: skip


class ParserFuzz:
    """Pages for the parser; one parser with a small memory lives through all of them."""

    tokens = TOKENS

    def __init__(self) -> None:
        self.seeds = [*_recorded(), *_written()]
        self.compared = 0
        self.lenient: dict[str, bytes] = {}  # the reference refuses, we read: by its words, the first input
        self._living = Parser(max_series=500)

    def outcome(self, body: bytes, rng: random.Random) -> str:
        """Which format and which kinds of problems."""
        content_type = rng.choice(CONTENT_TYPES)
        began_s = time.process_time()
        page = parse(body, content_type=content_type)
        took_s = time.process_time() - began_s
        if took_s > _FLOOR_S + _PER_BYTE_S * len(body):
            raise Wrong(f"{len(body)} bytes took {took_s:.2f} s")
        _sound(page)
        if repr(self._living.parse(body, content_type=content_type)) != repr(page):
            raise Wrong("a parser that has read other pages reads this one otherwise")
        _limited(body, content_type, rng)
        reasons = sorted({p.reason for p in page.problems})
        compared = self._compare(body, page)
        return f"{page.format} {' '.join(reasons)} {min(len(page.samples), 3)} {compared}"

    def _compare(self, body: bytes, page: Page) -> str:
        """Without the lines that we refuse, both read the same, where the reference reads it at all.

        In text 0.0.4 the reference moves ``_total`` of counters about by its own rules, so names are compared without.
        """
        reasons = sorted({p.reason for p in page.problems})
        openmetrics = page.format == "openmetrics"
        if page.format == "json" or not _BY_LINE.issuperset(reasons) or (openmetrics and _GLUED.search(body)):
            return "not compared"
        refused = {p.line for p in page.problems}
        text = "\n".join(line for n, line in enumerate(body.decode().split("\n"), 1) if n not in refused)
        try:
            reference = reference_rows(text, openmetrics=openmetrics)
        except Exception as error:  # noqa: BLE001 - the reference raises whatever it stumbles over
            self.lenient.setdefault(f"{page.format}: {' '.join(str(error).split()[:2])}", body)
            return "refused by the reference"
        self.compared += 1
        ours, theirs = (
            [(n if openmetrics else n.removesuffix("_total"), labels, _NO_SIGN.get(v, v)) for n, labels, v in found]
            for found in (rows(page), reference)
        )
        if ours != theirs:
            apart = next((a, b) for a, b in itertools.zip_longest(ours, theirs) if a != b)
            raise Wrong(f"read as {apart[0]}, by the reference as {apart[1]}")
        return "alike"


def _sound(page: Page) -> None:
    identities = [(s.name, frozenset(s.labels.items())) for s in page.samples]
    if len(set(identities)) != len(identities):
        raise Wrong("a series is there twice")
    if not all(s.name and isinstance(s.value, float) for s in page.samples):
        raise Wrong("a sample without a name or a number")
    if len(page.problems) > KEPT_PROBLEMS + 1:
        raise Wrong(f"{len(page.problems)} problems are kept")
    json.dumps([[s.name, s.labels] for s in page.samples]).encode()
    for problem in page.problems:
        if len(problem.text) > 2_000:
            raise Wrong(f"a problem of {len(problem.text)} characters")


def _limited(body: bytes, content_type: str | None, rng: random.Random) -> None:
    """Small limits are kept, and are the only reason to raise."""
    limits = Limits(rng.choice((200, 5_000, 10**6)), rng.choice((1, 10, 1_000)), 3, 12, 40, rng.choice((60, 2_000)))
    try:
        page = parse(body, content_type=content_type, limits=limits)
    except PageTooLarge:
        return
    if len(page.samples) > limits.samples or any(len(s.labels) > limits.labels for s in page.samples):
        raise Wrong(f"over the limits {limits}")


def _recorded() -> list[bytes]:
    """Parts of pages of real engines; short ones, so that a damage is not lost among good lines."""
    pages = sorted([*_DATA.glob("data/*"), *_DATA.glob("engines/data/*.prom")])
    found = []
    for page in pages:
        lines = page.read_bytes().splitlines(keepends=True)
        found += [b"".join(lines[i : i + _LINES]) for i in range(0, min(len(lines), 8 * _LINES), _LINES)]
    return found


def _written() -> list[bytes]:
    return [
        b'# HELP a b\\nc\\\\\n# TYPE a counter\na{x="y\\"z",le="+Inf"} 1 1700000000000\na_total 2\n',
        b'# TYPE a histogram\na_bucket{le="1.0"} 1 # {trace_id="x"} 0.5 1.7e9\na_bucket{le="+Inf"} 2\na_count 2\na_sum 3\n# EOF\n',
        b'{"my.metric", "a.b"="c"} 1\nm{} 2\nm { a = "b" , } +Inf\n\tn\t-nan\n',
        b"# TYPE a info\na_info{v=\"1\"} 1\n# TYPE s stateset\ns{s=\"on\"} 1\ns{s=\"off\"} 0\n# EOF\n",
        b'[{"iter": 1, "gpuMemUsage": 2.5, "kvCacheStats": {"usedNumBlocks": 3}}]', b"[]", b"{}", b"", b"\n\n", b"# EOF",
        b"<html><body>404</body></html>", b'a{b="' + b"c" * 5_000 + b'"} 1\n', b"a 1\r\nb 2\r\n",
    ]  # fmt: skip
