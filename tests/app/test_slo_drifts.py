"""Slow trends of the running service, hour by hour, over what its books hold; kept over a restart."""

from pathlib import Path

import polars as pl

from collector.stores.memory_requests import MemoryRequestStore
from collector.stores.sqlite_records import SqliteRecords
from goodwatch.app.request_watch import RequestLoop
from goodwatch.app.slo_books import Book
from goodwatch.app.slo_drifts import Drifts
from goodwatch.core.clock import SystemClock
from goodwatch.core.slo import DAY_S, burn_pairs
from goodwatch.signals.budget import SloStatus, slo_status
from goodwatch.signals.drift import HISTORY_S
from goodwatch.signals.request_frames import BINS, ROLLUPS
from goodwatch.signals.slo_events import EVENTS
from tests.alerts.services import first_token

BEGIN_S = 1_800_000_000 // 86_400 * 86_400.0
SLO = first_token(30)
HOURS = 28 * 24


def rows(target: str, part: list[float], total: float = 1000.0) -> pl.DataFrame:
    """Hours from the beginning on, in each of which this much was bad (or spent)."""
    made = [(BEGIN_S + 3600 * n, 3600.0, "", target, total, bad) for n, bad in enumerate(part)]
    return pl.DataFrame(made, schema=EVENTS, orient="row")


def book(beside: pl.DataFrame, events: pl.DataFrame, end_s: float) -> Book:
    made = Book("chat", [SLO], {SLO.name: burn_pairs(0.99, 30 * DAY_S)}, end_s, end_s - HISTORY_S)
    made.beside, made.events[SLO.name] = beside, events
    return made


def status(events: pl.DataFrame, end_s: float) -> SloStatus:
    return slo_status(SLO, events, end_s, burn_pairs(0.99, 30 * DAY_S))


def waves(hours: int, step: float, since: int) -> list[float]:
    """A day's season, a little noise that repeats in no season, and a step."""
    return [
        (100 + 30 * (n % 24 > 12) + 3 * ((n * 7919) % 11 - 5) / 5) * (step if n >= since else 1) for n in range(hours)
    ]


def looked(folder: Path, name: str, step: float) -> list[tuple[str, str, bool]]:
    """Two days of looks after a step: kind, signal, whether it began."""
    drifts = Drifts(SqliteRecords(folder / "r.sqlite"))
    said: list[tuple[str, str, bool]] = []
    for hour in range(HOURS - 12, HOURS + 48, 3):
        now = BEGIN_S + 3600 * hour
        part = waves(hour, step, HOURS)
        events = rows("ttft", part if name == "ttft" else [1.0] * hour, 1e5)
        beside = rows(name, part) if name != "ttft" else rows("spend", [1.0] * hour)
        changes = drifts.look([status(events, now)], {"chat": book(beside, events, now)}, now + 400)
        said += [(one.kind, one.signal, one.ended_s is None) for one in changes if one.kind not in ("burn", "forecast")]
    return said


def test_a_latency_that_rises_by_a_quarter_is_a_drift(tmp_path: Path) -> None:
    assert looked(tmp_path, "ttft_seconds", 1.25) == [("latency", "ttft_mean_seconds", True)]


def test_a_token_that_costs_a_quarter_more_is_a_drift(tmp_path: Path) -> None:
    assert looked(tmp_path, "spend", 1.25) == [("cost", "usd_per_million_output_tokens", True)]


def test_an_attainment_that_falls_by_more_than_half_of_the_budget_is_a_drift(tmp_path: Path) -> None:
    # some 115 of 100 000 are bad, then six times as many: 0.6 points of a budget of one
    assert looked(tmp_path, "ttft", 6.0) == [("attainment", "attainment_ratio", True)]


def test_nothing_that_is_seasonal_is_a_drift(tmp_path: Path) -> None:
    assert looked(tmp_path, "ttft_seconds", 1.0) == []


def test_a_restart_goes_on_with_the_same_drift(tmp_path: Path) -> None:
    looked(tmp_path, "ttft_seconds", 1.25)
    again = Drifts(SqliteRecords(tmp_path / "r.sqlite"))
    again.recover()
    (before,) = again.known.values()
    now = BEGIN_S + 3600 * (HOURS + 60)
    beside = rows("ttft_seconds", waves(HOURS + 60, 1.25, HOURS))
    assert again.look([], {"chat": book(beside, rows("ttft", [1.0]), now)}, now + 400) == ()
    (after,) = again.known.values()
    assert (after.id, after.began_s) == (before.id, before.began_s)


def test_the_p99_of_requests_is_watched_where_there_are_requests(tmp_path: Path) -> None:
    store = MemoryRequestStore(clock=SystemClock())
    loop = RequestLoop(store, SystemClock())
    loop.seen_services.add("chat")
    base = dict.fromkeys(BINS) | {"tier_s": 3600, "service": "chat", "input_band": 8, "output_band": 5, "zero": 0.0}
    bins = [
        # twelve bins up are 30 % more, three are 6.7 %, which is less than what matters
        base | {"start_s": BEGIN_S + 3600 * hour, "field": field, "facts": 200.0, "sum": 1.0, "count": [200.0],
                "bin": [hour % 24 + (up if hour >= HOURS else 0)]}
        for hour in range(HOURS + 30)
        for field, up in (("engine_ttft_s", 12), ("engine_e2e_s", 3))
    ]  # fmt: skip
    starts = [BEGIN_S + 3600 * hour for hour in range(HOURS + 30)]
    store.replace_rollups(3600, starts, pl.DataFrame(schema=ROLLUPS), pl.DataFrame(bins, schema=BINS))
    now = BEGIN_S + 3600 * (HOURS + 30)
    drifts = Drifts(SqliteRecords(tmp_path / "r.sqlite"), loop)
    found = drifts.look([], {"chat": book(pl.DataFrame(schema=EVENTS), pl.DataFrame(schema=EVENTS), now)}, now + 400)
    assert [(one.kind, one.signal) for one in found] == [("latency", "ttft_p99_seconds")]
    (drift,) = found
    assert drift.value is not None
    assert drift.expected is not None
    assert 1.25 < drift.value / drift.expected < 1.35
