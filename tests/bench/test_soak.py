"""The soak's own tools: an engine that goes on counting, intervals that are missed, memory that grows."""

import polars as pl
import pytest

from collector.pipeline import TargetReader
from goodwatch.app.engines import known_engines
from goodwatch.core.counter import Tracker
from goodwatch.core.model import Target
from goodwatch.signals.frames import SCRAPES
from tests.bench.soak import LivingEngine, Soak, missed


def test_a_living_engine_counts_on_over_the_end_of_its_pages_and_never_restarts() -> None:
    engine, reader, tracker = (
        LivingEngine(),
        TargetReader(Target("t", "http://t/metrics", "s"), known_engines()),
        Tracker(),
    )
    finished = []
    for step in range(0, 600, 7):
        understood = reader.understand(engine.body(step), engine.content_type)
        assert understood.page.problems == []
        scrape = reader.scrape(understood, float(step), 0.01, 0)
        finished.append(sum(s.value or 0.0 for s in scrape.samples if s.signal == "requests_finished_total"))
        assert not tracker.advance(scrape).restarted
    assert finished == sorted(finished)
    assert finished[-1] > 2 * finished[20] > 0


def scrapes(*at_s: float, target: str = "t") -> pl.DataFrame:
    row = {"target": target, "service": "s", "up": True, "duration_s": 0.1, "reason": "", "error": ""}
    return pl.DataFrame([{"ts": ts, **row, "body_bytes": 1, "page_samples": 1} for ts in at_s], schema=SCRAPES)


@pytest.mark.parametrize(
    ("at_s", "expected"),
    [
        ((0.0, 5.0, 10.2, 14.9), 0),
        ((0.0, 5.0, 15.0), 1),  # nothing at 10 s
        ((0.0, 15.1, 20.0), 2),  # nothing at 5 s and 10 s
        ((0.0,), 0),
    ],
)
def test_a_missed_interval_is_a_gap_between_two_scrapes(at_s: tuple[float, ...], expected: int) -> None:
    assert missed(scrapes(*at_s), 5.0) == expected


def test_gaps_of_one_target_are_not_filled_by_another() -> None:
    assert missed(pl.concat([scrapes(0.0, 10.0), scrapes(5.0, 10.0, target="u")]), 5.0) == 1


@pytest.mark.parametrize(
    ("rss_bytes", "said"), [([100, 200, 210, 215, 220], []), ([100, 200, 200, 220, 221], ["memory grew by 10.5%"])]
)
def test_memory_that_grows_in_the_second_half_is_a_fault(rss_bytes: list[int], said: list[str]) -> None:
    faults = Soak("simulated", 1, 5.0, 60.0, rss_bytes=rss_bytes).faults
    assert [f.partition(" in the")[0] for f in faults] == said


def test_missed_and_late_intervals_are_faults() -> None:
    soak = Soak("simulated", 1, 5.0, 60.0, missed_intervals=2, late_intervals=1, rss_bytes=[1, 1, 1, 1, 1])
    assert soak.faults == ["2 intervals missed", "1 intervals late"]
