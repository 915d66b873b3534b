"""What the clients of a recording saw, cut to a window the way an engine counts, for comparison with a replay.

An engine's page is only known when it was scraped, so a window's edge is an interval: from the scrape before it to
the end of the scrape after it. What happened inside those intervals is what two honest counts may differ by.
All times are Unix seconds.
"""

import bisect
import gzip
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CLUMP_S: Final = 0.001  # the tiny model takes over 2 ms a step: events closer than this were not made apart
ROUNDING_S: Final = 0.002  # of the times in a recording


@dataclass(frozen=True, slots=True)
class Row:
    """One request as the client saw it; None is what it did not see."""

    phase: str
    stream: bool
    status: str
    start_s: float
    end_s: float
    headers_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    output_tokens: int | None
    chunks_s: tuple[float, ...]  # when each token event came

    @property
    def e2e_s(self) -> float:
        """Send to last byte."""
        return self.end_s - self.start_s

    @property
    def events_with_the_first(self) -> int:
        """Token events that came in one go with the first: it had waited for them somewhere on the way."""
        together = 0
        for before_s, after_s in itertools.pairwise(self.chunks_s):
            if after_s - before_s >= CLUMP_S:
                break
            together += 1
        return together


def read_rows(path: Path) -> list[Row]:
    """The rows of a client_truth.jsonl."""
    return [_row(json.loads(line)) for line in path.read_text().splitlines()]


def _row(said: dict[str, Any]) -> Row:
    start_s = said["start"]
    return Row(
        phase=said["phase"],
        stream=said["stream"],
        status=said["status"],
        start_s=start_s,
        end_s=start_s + said["e2e_s"],
        headers_s=said.get("headers_s"),
        ttft_s=said.get("ttft_s"),
        tpot_s=said.get("tpot_s"),
        output_tokens=said.get("output_tokens"),
        chunks_s=tuple(start_s + arrival_ms / 1000 for arrival_ms in said.get("chunk_ms", ())),
    )


@dataclass(frozen=True, slots=True)
class Page:
    """One good scrape in the text format."""

    ts: float
    elapsed_s: float
    body: str

    def total(self, name: str) -> float | None:
        """Sum of the series called ``name``; None when there is none."""
        lines = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", self.body, re.MULTILINE)
        return sum(map(float, lines)) if lines else None


def read_pages(path: Path) -> list[Page]:
    """The good text scrapes of a metrics.jsonl.gz, oldest first."""
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    good = [row for row in rows if row["status"] == 200 and row["accept"].startswith("text/plain")]
    return [Page(row["ts"], row["elapsed_s"], row["body"]) for row in good]


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of a window, and the stretch around it that no scrape can tell apart."""

    at_s: float
    before_s: float
    after_s: float

    def near(self, moment_s: float) -> bool:
        """Whether the moment may be counted on either side."""
        return self.before_s <= moment_s <= self.after_s


@dataclass(frozen=True, slots=True)
class Window:
    """``[start, end)`` with what is known of both ends."""

    start: Edge
    end: Edge

    def holds(self, moment_s: float) -> bool:
        """Whether the moment is inside by the clock."""
        return self.start.at_s <= moment_s < self.end.at_s

    def near(self, moment_s: float) -> bool:
        """Whether the moment may be counted inside or outside."""
        return self.start.near(moment_s) or self.end.near(moment_s)


def window(start_s: float, end_s: float, pages: Sequence[Page]) -> Window:
    """The window with edges widened to the scrapes around them."""
    return Window(_edge(start_s, pages), _edge(end_s, pages))


def _edge(at_s: float, pages: Sequence[Page]) -> Edge:
    times = [page.ts for page in pages]
    # An edge on a scrape reaches to the next one as well: the client hears of an end later than the engine counts it.
    after = min(bisect.bisect_right(times, at_s), len(pages) - 1)
    before = max(bisect.bisect_right(times, at_s) - 1, 0)
    return Edge(at_s, times[before], times[after] + pages[after].elapsed_s)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of things in a window, and how many of them are too near an edge to be sure of."""

    inside: float
    near: float


def count(moments_s: Iterable[float], cut: Window) -> Count:
    """Events of the given moments that fall into the window."""
    moments = list(moments_s)
    return Count(sum(map(cut.holds, moments)), sum(map(cut.near, moments)))


def output_tokens(rows: Iterable[Row], cut: Window) -> Count:
    """Output tokens by the moment they came.

    A token event may carry several tokens, so each event counts for its share of the request's tokens. A request
    that was not streamed shows no moments: its tokens are taken to come at its end, and are all unsure when it
    spans an edge.
    """
    inside = near = 0.0
    for row in rows:
        if row.output_tokens is None:
            continue
        moments = row.chunks_s or (row.end_s,)
        share = row.output_tokens / len(moments)
        inside += share * sum(map(cut.holds, moments))
        if row.chunks_s:
            near += share * sum(map(cut.near, moments))
        elif any(row.start_s <= edge.after_s and row.end_s >= edge.before_s for edge in (cut.start, cut.end)):
            near += row.output_tokens
    return Count(inside, near)


def quantile(values: Sequence[float], q: float, *, shift: float = 0) -> float:
    """The ⌈q·n⌉-th smallest value, or the one ``shift`` ranks further, kept within the values."""
    ordered = sorted(values)
    rank = math.ceil(q * len(ordered)) + math.floor(shift)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def engine_mean_s(pages: Sequence[Page], histogram: str, cut: Window) -> float | None:
    """Mean of a latency histogram's observations in the window, in seconds; None without observations."""
    first = [page for page in pages if page.ts <= cut.start.at_s][-1:] or list(pages[:1])
    # An edge may be the moment at which a scrape was done, rounded: that scrape is the one to read.
    last = [page for page in pages if page.ts + page.elapsed_s >= cut.end.at_s - ROUNDING_S][:1] or list(pages[-1:])
    increases = []
    for part in ("_sum", "_count"):
        old, new = first[0].total(histogram + part), last[0].total(histogram + part)
        if new is None:
            return None
        increases.append(new - (old or 0.0))  # a histogram that was not on the page yet had observed nothing
    return increases[0] / increases[1] if increases[1] > 0 else None
