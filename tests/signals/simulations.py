"""Simulated runs for the property tests: what hypothesis draws, and the product's own path from pages to windows."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl
from hypothesis import settings
from hypothesis import strategies as st

from goodwatch.app.engines import known_engines
from goodwatch.core.counter import Step, Tracker
from goodwatch.core.model import Limits
from goodwatch.signals.increments import rows_frame, step_rows
from goodwatch.signals.windows import TargetWindow, target_windows
from tests.support.simulated_engine import Kind, Request, Simulated, Told

#: Each example simulates whole runs, so fewer of them than for plain values.
HEAVY: Final = settings(max_examples=int(os.environ.get("GOODWATCH_EXAMPLES", "60")))
KINDS: Final[tuple[Kind, ...]] = ("vllm", "sglang", "trtllm")
#: On bucket bounds of both tables, between them, and above every finite one.
LIMITS: Final = st.builds(
    Limits,
    st.sampled_from((None, 0.1, 0.3, 1.0, 3.0, 8.0)),
    st.sampled_from((None, 0.01, 0.05, 0.1, 0.5, 3.0)),
    st.sampled_from((None, 0.5, 1.0, 4.0, 10.0, 9000.0)),
)
_SHORT: Final = st.one_of(st.just(0), st.integers(1, 3_000))
REQUEST: Final = st.builds(
    Request,
    arrived_ms=st.integers(0, 40_000),
    queue_ms=_SHORT,
    prefill_ms=st.one_of(st.integers(1, 400), st.integers(1, 12_000)),
    gap_ms=st.one_of(st.integers(1, 60), st.integers(1, 1_500)),
    tokens=st.one_of(st.just(1), st.integers(2, 12)),
    streamed=st.booleans(),
    rank=st.integers(0, 2),
    hangs_up_ms=st.one_of(st.none(), st.integers(1, 15_000)),
    paused_ms=st.one_of(st.just(0), st.integers(1, 8_000)),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One engine, when it was scraped (milliseconds, True when that scrape fails), and the window that is asked for."""

    engine: Simulated
    scrapes: tuple[tuple[int, bool], ...]
    after_ms: int
    until_ms: int

    def steps(self) -> list[tuple[Step, list[dict[str, Any]]]]:
        """Every scrape through the tracker, with its rows."""
        tracker, out = Tracker(), []
        for at_ms, fails in self.scrapes:
            step = tracker.advance(self.engine.scrape(at_ms, fails=fails))
            out.append((step, step_rows(step, tracker, known_engines()[self.engine.kind])))
        return out

    def rows(self) -> pl.DataFrame:
        """The rows of every scrape."""
        return rows_frame([row for _, rows in self.steps() for row in rows])

    def windows(self) -> list[TargetWindow]:
        """The window's counts, as the product makes them."""
        rows, at = self.rows(), pl.col("minute_s")
        start, end = self.after_ms / 1000, self.until_ms / 1000
        return target_windows(rows.filter((at > start) & (at <= end)), rows.filter(at <= start), start, end)

    def ended(self) -> list[Told]:
        """The truth: requests that ended in the window."""
        return self.engine.ended_in(self.after_ms, self.until_ms)

    def judged(self, limits: Limits) -> "Truth":
        """The truth by design §4: how many were good, and at least and at most how many were valid."""
        as_streamed = self.engine.kind != "sglang"  # only SGLang tells which were; the others are judged as if
        ended = self.ended()
        good = sum(t.good(limits, judged_streamed=as_streamed) for t in ended)
        survived = sum(t.fate in ("finished", "error") for t in ended)
        hung_up = [t for t in ended if t.fate == "aborted"]
        if self.engine.kind == "trtllm":  # no arrivals: attainment is of the requests that ended, which its note says
            hung_up = []
        missed = sum(t.missed_before_it_hung_up(limits, judged_streamed=as_streamed) for t in hung_up)
        # Whether a request that was cut short would have missed its TPOT is a matter of taste: both are allowed.
        unsure = len(hung_up) - missed if limits.tpot_s is not None else 0
        free = 0
        if not as_streamed and limits.e2e_s is None:  # undetermined: outside what is counted, inside the bounds
            unstreamed = [t for t in ended if not t.request.streamed]
            free = sum(t.fate == "finished" for t in unstreamed)
            good -= sum(t.good(limits, judged_streamed=False) for t in unstreamed)
            survived -= free
        return Truth(good, survived + missed, survived + missed + unsure, free)


@dataclass(frozen=True, slots=True)
class Truth:
    """Good and valid requests as they were; ``undetermined`` ones may count as either."""

    good: int
    valid_least: int
    valid_most: int
    undetermined: int = 0


@st.composite
def runs(
    draw: st.DrawFn,
    *,
    kinds: Sequence[Kind] = KINDS,
    failing: bool = True,
    restarting: bool = False,
    engine_errors: bool = False,
    retracting: bool = False,
    target: str = "t",
) -> Run:
    """A run with a window between two good scrapes of it."""
    kind = draw(st.sampled_from(kinds))
    requests = draw(st.lists(REQUEST, max_size=25))
    if kind == "sglang" and not retracting:
        requests = [replace(r, paused_ms=0) for r in requests]
    if engine_errors and kind != "sglang":
        requests = [replace(r, fails_ms=draw(st.one_of(st.none(), st.integers(1, 15_000)))) for r in requests]
    instants = sorted(draw(st.sets(st.integers(0, 60_000), min_size=2, max_size=8)))
    lives: tuple[tuple[int, int | None], ...] = ((0, None),)
    if restarting:
        killed = draw(st.integers(1, 50_000))
        lives = ((0, killed), (killed + draw(st.integers(2_000, 20_000)), None))
    one = Simulated(
        kind, tuple(requests), lives, ranks=draw(st.integers(1, 3)), target=target,
        extra_abort_calls=draw(st.integers(0, 2)),
    )  # fmt: skip
    scrapes = [(at, failing and draw(st.integers(0, 3)) == 0) for at in instants]
    good = [at for at, fails in scrapes if not fails and one.life_at(at) is not None]
    if len(good) < 2:
        lives, scrapes, good = ((0, None),), [(at, False) for at in instants], instants
        one = replace(one, lives=lives)
    first = draw(st.integers(0, len(good) - 2))
    last = draw(st.integers(first + 1, len(good) - 1))
    return Run(one, tuple(scrapes), good[first], good[last])


def nth_smallest(values: Sequence[float], q: float) -> float:
    """The q-quantile of n values is the ⌈q·n⌉-th smallest (design §3)."""
    return sorted(values)[max(1, math.ceil(round(q * len(values), 9))) - 1]
