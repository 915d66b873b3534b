"""Metrics bodies into pages: Prometheus text 0.0.4, OpenMetrics 1.0, TensorRT-LLM's JSON.

A page of one target hardly changes between scrapes but for its numbers. So the text before a value is read once
and remembered, and a line costs one dictionary look-up afterwards; where nothing but numbers changed since the last
body, only the lines that differ cost anything at all (see ``_exposition_layout``).

A bad line never costs the rest of the body: it becomes a ``Problem``. Reasons: bad_name, bad_labels, bad_value,
bad_timestamp, bad_exemplar, bad_help, bad_type, duplicate_type, duplicate_series, too_long, too_many_labels;
of a whole body: bad_utf8, not_metrics, no_eof, after_eof. The last one may be "more": those beyond the first 50.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from collector._exposition_json import NOTHING, decoded, newest, numbers
from collector._exposition_layout import Layout, Reread, Series
from collector._exposition_line import (
    BadLineError,
    Comment,
    Limits,
    byte_length,
    number,
    scan_comment,
    scan_series,
    scan_value,
    shown,
    unescaped,
)
from goodwatch.core.errors import GoodwatchError
from goodwatch.core.page import Page, Problem, RawSample

__all__ = ["DEFAULT_LIMITS", "KEPT_PROBLEMS", "Limits", "PageTooLarge", "Parser", "Reread", "parse"]

DEFAULT_LIMITS: Final = Limits()
KEPT_PROBLEMS: Final = 50
_CHUNK: Final = 200_000  # characters split into lines at once, so that a huge body is never a huge list
_LINES_A_SAMPLE: Final = 10  # a family with one sample has three or four lines
_FIRST: Final = re.compile(r"\s*+(\S)")
_EOF_LAST: Final = re.compile(r"(?:\A|\n)# EOF\s*+\Z")
_TAIL: Final = 64  # characters in which the closing # EOF is looked for


class PageTooLarge(GoodwatchError):  # noqa: N818 - reads as what it is
    """A body over ``Limits.body_bytes`` or ``Limits.samples``: the scrape fails, as it does in Prometheus."""


class Parser:
    """Reads bodies and remembers series between them. For one thread at a time.

    ``max_series`` bounds the memory: about 1 kB for each series of a dozen labels, and the last body, up to 4 MB. One
    parser may serve any number of targets as long as their series together stay below it; it is fastest with one.
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, *, max_series: int = 100_000) -> None:
        self._limits = limits
        self._max_series = max_series
        self._by_text: dict[str, Series] = {}
        self._by_identity: dict[tuple[str, frozenset[tuple[str, str]]], Series] = {}
        self._comments: dict[str, Comment] = {}
        self._serial = 0
        self._layout: Layout | None = None

    def parse(self, body: bytes | str, *, content_type: str | None = None) -> Page:
        """Read one body; what a page holds is shared between pages and must not be changed.

        Parameters
        ----------
        body
            As received, content encoding already undone.
        content_type
            The header's value. Its media type chooses the format, its version is ignored (vLLM says 1.0.0); a body
            that shows another format wins.

        Raises
        ------
        PageTooLarge
            Over ``Limits.body_bytes`` or ``Limits.samples``, or over ten lines for each allowed sample.
        """
        again = self.reread(body, content_type=content_type)
        return self.parse_whole(body, content_type=content_type) if again is None else again.page

    def reread(self, body: bytes | str, *, content_type: str | None = None) -> Reread | None:
        """The page of a body that differs from the last one in values only; None when it has to be parsed whole.

        The page is the one that ``parse_whole`` would make. The work grows with the lines that differ. Raises as
        ``parse``.
        """
        raw, layout = self._raw(body), self._layout
        if layout is None or content_type != layout.content_type:
            return None
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            return None
        return layout.reread(text, self._by_text, self._limits)

    def parse_whole(self, body: bytes | str, *, content_type: str | None = None) -> Page:
        """Read one body from its beginning; the same page as ``parse`` gives."""
        raw = self._raw(body)
        self._forget()
        self._layout = None
        reading = _Reading(self._limits)
        text = reading.text_of(raw)
        first = _FIRST.match(text)
        if first is not None and first[1] == "<":
            reading.refuse("the body is HTML or XML")
        elif first is None or first[1] not in "[{" or not reading.take_json(text):
            self._read_text(reading, text, content_type)
        page = reading.page()
        if page.format != "json":
            self._layout = Layout.of(page, content_type, text, reading.lines)
        return page

    def _raw(self, body: bytes | str) -> bytes:
        raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
        if len(raw) > self._limits.body_bytes:
            raise PageTooLarge(f"body of {len(raw)} bytes; allowed are {self._limits.body_bytes}")
        return raw

    def _forget(self) -> None:
        """Empty the memory when it is full; only between pages, so that equal series stay equal within one."""
        if max(len(self._by_text), len(self._by_identity), len(self._comments)) >= self._max_series:
            self._by_text.clear()
            self._by_identity.clear()
            self._comments.clear()

    def _read_text(self, reading: "_Reading", text: str, content_type: str | None) -> None:
        ended = _EOF_LAST.search(text[-_TAIL:]) is not None
        if ended or _media_type(content_type) == "application/openmetrics-text":
            reading.format = "openmetrics"
            text = text if ended else reading.without_cut_line(text)
        line_number = 0
        for chunk in _chunks(text):
            may_be_long = 4 * len(chunk) > self._limits.line_bytes  # a character is at most 4 bytes
            for line in chunk.split("\n"):
                line_number += 1
                head, _, tail = line.rpartition(" ")
                series = self._by_text.get(head)
                value = None if series is None else number(tail)
                if may_be_long and reading.is_too_long(line_number, line):
                    continue
                if series is None or value is None:
                    self._read_line(reading, line_number, line.strip(" \t\r"))
                else:
                    reading.add(line_number, series, value)
            reading.check_size(line_number)
        reading.close_text()

    def _read_line(self, reading: "_Reading", line_number: int, line: str) -> None:
        """Any line, at length."""
        try:
            if line.startswith("#"):
                self._read_comment(reading, line_number, line)
            elif line:
                series, rest = self._series(line)
                reading.add(line_number, series, scan_value(rest))
        except BadLineError as bad:
            reading.reject(line_number, bad.reason, str(bad))

    def _series(self, line: str) -> tuple[Series, str]:
        """The series that a line starts with and the rest of the line; raises ``BadLineError``."""
        head = line.partition(" # {")[0]
        for _ in range(2):  # value; value and timestamp
            head = head.rpartition(" ")[0]
            series = self._by_text.get(head)
            # A bare name may go on with braces behind a space, so only a closed one is known to be whole.
            if series is not None and head.endswith("}"):
                return series, line[len(head) :]
        name, labels, end = scan_series(line, self._limits)
        return self._remembered(line[:end], name, labels), line[end:]

    def _remembered(self, text: str, name: str, labels: dict[str, str]) -> Series:
        identity = (name, frozenset(labels.items()))
        series = self._by_identity.get(identity)
        if series is None:
            self._serial += 1
            series = self._by_identity[identity] = (name, labels, self._serial)
        if len(self._by_text) < self._max_series:
            self._by_text[text] = series
        return series

    def _read_comment(self, reading: "_Reading", line_number: int, line: str) -> None:
        if line == "# EOF":
            reading.samples_at_eof = (line_number, len(reading.samples))
            return
        comment = self._comments.get(line) or scan_comment(line)
        if comment is None:
            return
        if len(self._comments) < self._max_series:
            self._comments[line] = comment
        reading.declare(line_number, comment)


class _Reading:
    """One page while it is being read."""

    def __init__(self, limits: Limits) -> None:
        self.format = "text"
        self.samples: list[RawSample] = []
        self.lines: list[int] = []  # of a text body: the line of each sample
        self.samples_at_eof: tuple[int, int] | None = None  # line of # EOF, samples above it
        self._limits = limits
        self._seen: set[int] = set()
        self._types: dict[str, str] = {}
        self._help: dict[str, str] = {}
        self._problems: list[Problem] = []
        self._more: Counter[str] = Counter()
        self._rejected = 0

    def text_of(self, raw: bytes) -> str:
        """The body as text; bytes that are no UTF-8 become U+FFFD and one problem."""
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            self._note(line, "bad_utf8", f"byte {error.start} is no UTF-8; bad bytes were replaced by U+FFFD")
            return raw.decode("utf-8", "replace")

    def add(self, line: int, series: Series, value: float) -> None:
        name, labels, serial = series
        if serial in self._seen:
            self.reject(line, "duplicate_series", f"{name} with the same labels was given before; the first is kept")
            return
        self._seen.add(serial)
        self.samples.append(RawSample(name, labels, value))
        self.lines.append(line)

    def declare(self, line: int, comment: Comment) -> None:
        kind, family, says = comment
        if kind == "HELP":
            self._help.setdefault(family, unescaped(says) if self.format == "openmetrics" else _help_unescaped(says))
        elif self._types.setdefault(family, says) != says:
            text = f"{family} is a {says} here and was a {self._types[family]} before; the first is kept"
            self._note(line, "duplicate_type", text)

    def is_too_long(self, line: int, text: str) -> bool:
        """Whether a line is over the limit; it then is a problem already."""
        if byte_length(text) <= self._limits.line_bytes:
            return False
        self.reject(line, "too_long", f"line starting {shown(text)} is over {self._limits.line_bytes} bytes")
        return True

    def reject(self, line: int, reason: str, text: str) -> None:
        """A line that should have been a sample and is left out."""
        self._rejected += 1
        self._note(line, reason, text)

    def refuse(self, what: str) -> None:
        """The whole body is something else."""
        self._note_first(1, "not_metrics", f"{what}; expected Prometheus text, OpenMetrics or JSON: is the path right?")

    def check_size(self, lines: int = 1) -> None:
        """Raise ``PageTooLarge`` over ``Limits.samples``. Bad lines count: junk must not keep the reader busy."""
        if lines > _LINES_A_SAMPLE * self._limits.samples:
            raise PageTooLarge(f"over {_LINES_A_SAMPLE * self._limits.samples} lines on one page, empty ones included")
        held = max(len(self.samples) + self._rejected, len(self._types), len(self._help))
        if held > self._limits.samples:
            raise PageTooLarge(f"over {self._limits.samples} samples on one page; raise sample_limit if it is right")

    def without_cut_line(self, text: str) -> str:
        """OpenMetrics that ends early: its last line may be cut within the number, so it is not believed."""
        kept = text[: text.rfind("\n") + 1]
        self._note(text.count("\n") + 1, "no_eof", "the body does not end with # EOF; it may have been cut short")
        return kept

    def close_text(self) -> None:
        """What can only be said at the end of a text body."""
        if self.format == "openmetrics" and self.samples_at_eof is not None:
            line, above = self.samples_at_eof
            if len(self.samples) > above:
                text = f"{len(self.samples) - above} samples follow # EOF and were read; expected none behind it"
                self._note_first(line + 1, "after_eof", text)
        if self._rejected and not (self.samples or self._types or self._help):
            self.refuse("no line of the body could be read")

    def take_json(self, text: str) -> bool:
        """Read a JSON body; False when it is none."""
        statistics = decoded(text)
        if statistics is NOTHING:
            return False
        self.format = "json"
        element = newest(statistics)
        for name, value in numbers(element or {}):
            if byte_length(name) > self._limits.label_value_bytes:
                self.reject(1, "too_long", f"path {shown(name)} is over {self._limits.label_value_bytes} bytes")
            elif name in self._types:
                self.reject(1, "duplicate_series", f"path {shown(name)} was given before; the first is kept")
            else:
                self._types[name] = "gauge"
                self.samples.append(RawSample(name, {}, value))
        if statistics != [] and not self.samples:
            self.refuse("the JSON holds no iteration statistics")
        self.check_size()
        return True

    def page(self) -> Page:
        problems = self._problems
        if self._more:
            kinds = ", ".join(f"{count} {reason}" for reason, count in sorted(self._more.items()))
            problems = [*problems, Problem(0, "more", f"{self._more.total()} more problems: {kinds}")]
        return Page(self.samples, self._types, self._help, self.format, problems)

    def _note(self, line: int, reason: str, text: str) -> None:
        if len(self._problems) < KEPT_PROBLEMS:
            self._problems.append(Problem(line, reason, text))
        else:
            self._more[reason] += 1

    def _note_first(self, line: int, reason: str, text: str) -> None:
        """What concerns the whole body must not get lost behind its lines."""
        self._problems.insert(0, Problem(line, reason, text))
        if len(self._problems) > KEPT_PROBLEMS:
            self._more[self._problems.pop().reason] += 1


def parse(body: bytes | str, *, content_type: str | None = None, limits: Limits = DEFAULT_LIMITS) -> Page:
    """Read one body without memory of others; see ``Parser.parse``."""
    return Parser(limits).parse(body, content_type=content_type)


def _media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _chunks(text: str) -> Iterator[str]:
    """The text in pieces of whole lines, without the line feed that ends each piece."""
    start = 0
    while start <= len(text):
        end = text.find("\n", start + _CHUNK)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def _help_unescaped(text: str) -> str:
    r"""HELP of text 0.0.4 escapes ``\\`` and ``\n`` only."""
    return re.sub(r"\\([\\n])", lambda match: "\n" if match[1] == "n" else match[1], text)
