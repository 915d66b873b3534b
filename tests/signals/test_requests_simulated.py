"""Facts beside the pages of a simulated engine: what is called counted is the truth, whatever range is asked for.

The engine (``tests.support.simulated_engine``) is a table of requests; it knows when each came, and how it ended.
"""

from typing import Any

import polars as pl
import pytest

from goodwatch.app.engines import known_engines
from goodwatch.app.request_view import Slice
from goodwatch.core.counter import Tracker
from goodwatch.core.model import Basis, Limits
from goodwatch.signals.heatmap import Ask, Measure
from goodwatch.signals.increments import fold, rows_frame, step_rows
from tests.support.request_views import NOW_S, RequestWorld, fact
from tests.support.simulated_engine import Request, Simulated, Told

MINUTES = 16
START = NOW_S - MINUTES * 60  # a whole minute
LIMITS = Limits(ttft_s=0.5, tpot_s=0.05)  # those of the service of RequestWorld


def engine(*, kind: Any = "vllm", hang_up: bool = False) -> Simulated:
    """Two requests a second; every fifth is late, and in the last third ever more; every tenth client hangs up."""
    requests = tuple(
        Request(
            arrived_ms=n * 500, queue_ms=700 if n % 5 == 0 or (n > 1300 and n % 2) else 20, prefill_ms=100,
            tokens=2 + n % 7, hangs_up_ms=60 if hang_up and n % 10 == 3 else None,
        )
        for n in range(MINUTES * 120)
    )  # fmt: skip
    return Simulated(kind, requests)


def minutes_of(one: Simulated) -> pl.DataFrame:
    """Its pages, read every fifteen seconds, as the sample store keeps them."""
    tracker, rows = Tracker(), []
    for at_ms in range(0, MINUTES * 60_000 + 1, 15_000):
        rows += step_rows(tracker.advance(one.scrape(at_ms)), tracker, known_engines()[one.kind])
    frame = rows_frame(rows)
    named = frame.with_columns(
        pl.lit("chat-0").alias("target"), pl.lit("chat").alias("service"), pl.col("minute_s") + START
    )
    return fold(named)


def fact_of(number: int, told: Told) -> dict[str, Any]:
    assert told.ended_s is not None
    return fact(
        number + 1, ended_at=START + told.ended_s, output_tokens=told.request.tokens, input_tokens=10,
        engine_ttft_s=told.ttft_s, engine_e2e_s=told.e2e_s, weight=None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain() -> tuple[Simulated, pl.DataFrame]:
    one = engine()
    return one, minutes_of(one)


def truth(one: Simulated, start_s: float, end_s: float) -> tuple[int, int, int]:
    """Good requests, valid ones, and output tokens of good ones that ended in ``[start_s, end_s)``."""
    every = [t for t in one.told((0, None)) if t.fate == "finished" and t.ended_s is not None]
    ended = [t for t in every if start_s <= START + (t.ended_s or 0.0) < end_s]
    good = [t for t in ended if t.good(LIMITS, judged_streamed=True)]
    return len(good), len(ended), sum(t.request.tokens for t in good)


@pytest.mark.parametrize("shift_s", [0.0, 17.0, 59.5])
@pytest.mark.parametrize("length_s", [300.0, 720.0])
async def test_a_range_of_any_beginning_is_counted_and_right(
    plain: tuple[Simulated, pl.DataFrame], shift_s: float, length_s: float
) -> None:
    one, minutes = plain
    rows = [fact_of(n, t) for n, t in enumerate(one.told((0, None))) if t.fate == "finished"]
    world = await RequestWorld(rows, minutes=minutes).ready()
    start, end = START + 120 + shift_s, START + 120 + shift_s + length_s
    found, against = await world.reads.attained(Slice("chat", start, end))
    good, valid, tokens = truth(one, start, end)
    assert found.attainment.basis is Basis.COUNTED, against
    assert found.attainment.value == pytest.approx(good / valid)
    assert found.goodput_per_s.value == pytest.approx(good / length_s)
    assert found.good_tokens_per_s.value == pytest.approx(tokens / length_s)
    view = await world.reads.heatmap(Slice("chat", start, end), Ask(Measure.ATTAINMENT))
    assert view.attained.attainment.value == found.attainment.value


@pytest.mark.parametrize("shift_s", [0.0, 29.0])
async def test_totals_of_a_sample_come_from_the_counters_of_the_same_range(
    plain: tuple[Simulated, pl.DataFrame], shift_s: float
) -> None:
    one, minutes = plain
    told = [t for t in one.told((0, None)) if t.fate == "finished"]
    rows = [fact_of(n, t) for n, t in enumerate(told) if n % 7 == 3]  # of late ones as of others
    world = await RequestWorld(rows, minutes=minutes).ready()
    start, end = START + 120 + shift_s, START + 420 + shift_s
    found, _ = await world.reads.attained(Slice("chat", start, end))
    good, _, _ = truth(one, start, end)
    assert found.attainment.basis is Basis.ESTIMATED
    assert found.goodput_per_s.bounds is not None
    assert found.goodput_per_s.bounds.high is not None
    assert found.goodput_per_s.bounds.low <= good / 300 <= found.goodput_per_s.bounds.high
    assert found.valid.value == pytest.approx(600, rel=0.02)  # two a second


async def test_clients_that_hung_up_are_a_line_of_their_own_and_counted_once() -> None:
    one = engine(hang_up=True)
    rows = [fact_of(n, t) for n, t in enumerate(one.told((0, None))) if t.fate == "finished"]
    gone = [t for t in one.told((0, None)) if t.fate == "aborted"]
    minutes = minutes_of(one)
    world = await RequestWorld(rows, minutes=minutes).ready()
    of = Slice("chat", START + 120, START + 840)
    without, _ = await world.reads.attained(of)
    hung_up = sum(START + 120 <= START + (t.ended_s or 0.0) < START + 840 for t in gone)
    assert without.attainment.basis is Basis.COUNTED
    assert without.unaccounted.value == pytest.approx(hung_up, abs=1)  # one may be under way at an end of the range
    clients = [
        fact(
            900_000 + n, ended_at=START + (t.ended_s or 0.0), engine=None, status="aborted", engine_ttft_s=None,
            engine_e2e_s=None, output_tokens=None, client_e2e_s=t.e2e_s,
        )
        for n, t in enumerate(gone)
    ]  # fmt: skip
    world = await RequestWorld([*rows, *clients], minutes=minutes).ready()
    known, _ = await world.reads.attained(of)
    assert known.attainment.value == without.attainment.value  # hung up before a target was missed, as far as told
    assert known.unaccounted.value == pytest.approx(0, abs=1)
