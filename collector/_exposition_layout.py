"""The page of one target again: most bodies differ from the last one in some numbers and in nothing else.

So the last body is kept as lines. A line that is equal says what it said. One that differs only behind the series
has a new value; any other difference makes the body a new one, to be read from its beginning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count, repeat
from operator import ne
from typing import Final, NamedTuple

from collector._exposition_line import Limits
from goodwatch.core.page import Page, RawSample

Series = tuple[str, dict[str, str], int]  # name, labels (shared), serial number: equal for equal series

#: characters of a body that is kept; beyond them every body is read whole
KEPT: Final = 4_000_000
_BYTES_A_CHARACTER: Final = 4  # at most, in UTF-8
_NO_SAMPLE: Final = -1


class Reread(NamedTuple):
    """A page with the series of the one ``before``; only the samples at ``moved`` have been written anew."""

    page: Page
    before: Page
    moved: Sequence[int]


@dataclass(slots=True)
class Layout:
    """The last body that was read without a problem."""

    page: Page
    content_type: str | None
    lines: list[str]
    sample_at: list[int]  # by line: position in ``page.samples``, -1 where there is none
    heads: list[str]  # by line: the series before the space and the value; "" when not known yet, or not so written

    @classmethod
    def of(cls, page: Page, content_type: str | None, text: str, lines_of_samples: list[int]) -> "Layout | None":
        """The layout of a text body, ``lines_of_samples`` counted from 1; None when it is not worth keeping."""
        if page.problems or len(text) > KEPT:
            return None
        lines = text.split("\n")
        sample_at = [_NO_SAMPLE] * len(lines)
        for position, line in enumerate(lines_of_samples):
            sample_at[line - 1] = position
        return cls(page, content_type, lines, sample_at, [""] * len(lines))

    def reread(self, text: str, known: Mapping[str, Series], limits: Limits) -> Reread | None:
        """The page of the next body; None when more than values changed, and then nothing is remembered of it."""
        lines = text.split("\n")
        if len(lines) != len(self.lines):
            return None
        at = [*compress(count(), map(ne, lines, self.lines))]
        values = self._values(at, [lines[i] for i in at], known, limits)
        if values is None:
            return None
        before, moved = self.page, [self.sample_at[i] for i in at]
        self.lines = lines
        if moved:
            samples = before.samples.copy()
            for position, value in zip(moved, values, strict=True):
                sample = samples[position]
                samples[position] = RawSample(sample.name, sample.labels, value)
            self.page = Page(samples, before.types, before.help, before.format, [])
        return Reread(self.page, before, moved)

    def _values(
        self, at: list[int], lines: list[str], known: Mapping[str, Series], limits: Limits
    ) -> list[float] | None:
        """What the changed lines say; None when one has more to it than a new value behind one space.

        Whatever ``number`` does not take, or takes only at length, is refused here: then the body is read whole.
        """
        heads = [self.heads[i] or self._head(i, known) for i in at]
        if not (all(heads) and all(map(str.startswith, lines, heads))):
            return None
        tails = [line[len(head) :] for line, head in zip(lines, heads, strict=True)]
        together = "".join(tails)
        # One space each, and that in front: a second one would begin a timestamp or an exemplar.
        spaced = together.count(" ") == len(tails) and all(map(str.startswith, tails, repeat(" ")))
        longest = max(map(len, lines), default=0) * _BYTES_A_CHARACTER
        if not spaced or "_" in together or not together.isascii() or longest > limits.line_bytes:
            return None
        try:
            return [*map(float, tails)]
        except ValueError:
            return None

    def _head(self, at: int, known: Mapping[str, Series]) -> str:
        """The series on a line that is one, a space and a number; "" for any other line."""
        line, position = self.lines[at], self.sample_at[at]
        head, _, _ = line.rpartition(" ")
        series = known.get(head)
        if position != _NO_SAMPLE and series is not None and series[1] is self.page.samples[position].labels:
            self.heads[at] = head
        return self.heads[at]
