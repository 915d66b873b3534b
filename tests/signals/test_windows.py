"""Windows: what belongs to whom, and what is not there."""

import pytest

from goodwatch.core.histogram import INF
from goodwatch.core.model import Histogram
from goodwatch.signals.cost import Price, cost
from goodwatch.signals.increments import rows_frame
from goodwatch.signals.windows import TargetWindow, target_windows
from tests.signals.simulations import Run
from tests.support.simulated_engine import Request, Simulated

NOTHING = rows_frame([])


def counter(
    at: float, signal: str, gained: float, *, model: str = "m", target: str = "t", part: str = ""
) -> dict[str, object]:
    return {
        "minute_s": at, "target": target, "service": "s", "model": model, "engine": "vllm", "signal": signal,
        "part": part, "kind": "counter", "increase": gained,
    }  # fmt: skip


def gauge(at: float, signal: str, value: float, *, model: str = "m", target: str = "t") -> dict[str, object]:
    cells = dict.fromkeys(("mean", "min", "max", "last"), value)
    return {
        "minute_s": at, "target": target, "service": "s", "model": model, "engine": "vllm", "signal": signal,
        "part": "", "kind": "gauge", **cells,
    }  # fmt: skip


def test_no_rows_are_no_windows() -> None:
    assert target_windows(NOTHING, NOTHING, 0.0, 60.0) == []


def test_every_target_and_model_has_its_own_window() -> None:
    rows = rows_frame(
        [
            counter(1, "output_tokens_total", 1, model="a"),
            counter(1, "output_tokens_total", 2, model="b"),
            counter(1, "output_tokens_total", 4, target="u"),
            counter(2, "output_tokens_total", 8, target="u"),
        ]
    )
    found = {(w.target, w.model): w.counter("output_tokens_total") for w in target_windows(rows, NOTHING, 0.0, 60.0)}
    assert found == {("t", "a"): 1, ("t", "b"): 2, ("u", "m"): 12}


def test_what_a_target_tells_without_a_model_is_told_by_each_of_its_models() -> None:
    rows = rows_frame(
        [counter(1, "output_tokens_total", 1), counter(1, "restarts_total", 1, model=""), gauge(1, "up", 1, model="")]
    )
    (one,) = target_windows(rows, NOTHING, 0.0, 60.0)
    assert (one.model, one.counter("restarts_total")) == ("m", 1)
    assert one.gauge("up") is not None
    assert one.broken != ""


def test_a_gauge_knows_its_value_ahead_of_the_window() -> None:
    rows = rows_frame([gauge(10, "requests_running", 4), gauge(20, "requests_running", 2)])
    before = rows_frame([gauge(1, "requests_running", 9), gauge(5, "requests_running", 7)])
    (one,) = target_windows(rows, before, 6.0, 60.0)
    found = one.gauge("requests_running")
    assert found is not None
    assert (found.mean, found.min, found.max, found.last, found.before) == (3, 2, 4, 2, 7)


def test_what_the_engine_does_not_tell_is_none_and_not_zero() -> None:
    one = TargetWindow("t", "s", "m", "vllm", 0.0, 60.0)
    assert one.counter("output_tokens_total") is None
    assert one.histogram("ttft_seconds") is None
    assert one.gauge("requests_running") is None


def test_parts_add_up_and_can_be_asked_for_alone() -> None:
    one = TargetWindow(
        "t", "s", "m", "sglang", 0.0, 60.0,
        counters={("http_requests_total", "status=200"): 5, ("http_requests_total", "status=503"): 2},
        histograms={
            ("e2e_seconds", "is_streaming=true"): Histogram((1.0, INF), (1, 2)),
            ("e2e_seconds", "is_streaming=false"): Histogram((1.0, INF), (3, 5)),
        },
    )  # fmt: skip
    assert one.counter("http_requests_total") == 7
    assert one.counter("http_requests_total", "status=5") == 2
    assert one.counter("http_requests_total", "status=4") is None
    assert one.histogram("e2e_seconds") == Histogram((1.0, INF), (4, 7))
    assert one.histogram("e2e_seconds", "is_streaming=true") == Histogram((1.0, INF), (1, 2))


def test_a_silent_end_breaks_a_window_and_a_failed_scrape_inside_does_not() -> None:
    engine = Simulated("vllm", (Request(0),))
    inside = Run(engine, ((0, False), (5_000, True), (10_000, False)), 0, 10_000)
    silent = Run(engine, ((0, False), (5_000, False), (10_000, True)), 0, 10_000)
    assert [w.broken for w in inside.windows()] == [""]
    assert ["could not be read" in w.broken for w in silent.windows()] == [True]


def test_after_a_gap_of_failed_scrapes_the_counts_cover_the_whole_gap() -> None:
    engine = Simulated("vllm", tuple(Request(1_000 * i, tokens=1) for i in range(60)))
    run = Run(engine, ((0, False), *((at, True) for at in range(5_000, 60_000, 5_000)), (60_000, False)), 0, 60_000)
    (one,) = run.windows()
    assert one.seconds == 60.0
    # 60 requests of one token, each done 0.1 s after its arrival at second 0, 1, …, 59
    assert (one.counter("output_tokens_total") or 0.0) / one.seconds == 1.0


def ups(target: str, *minutes: int) -> list[dict[str, object]]:
    return [gauge(60.0 * minute, "up", 1.0, model="", target=target) for minute in minutes]


def test_a_replica_is_held_while_it_is_there() -> None:
    """An hour; by hand: ``a`` all the time, ``b`` from minute 30 on and the minute in which it started, ``c`` minutes 9 to 19
    and again from 50 on, ``d`` with goodwatch away for three minutes."""
    rows = rows_frame([
        *ups("a", *range(60)), *ups("b", *range(30, 60)), *ups("c", *range(10, 20), *range(51, 60)),
        *ups("d", *range(20), *range(23, 60)),
    ])  # fmt: skip
    before = rows_frame(ups("a", -1))
    held = {w.target: w.held_s / 60 for w in target_windows(rows, before, 0.0, 3600.0)}
    assert held == {"a": 60, "b": 31, "c": 11 + 10, "d": 60}


def test_pods_that_follow_each_other_are_not_paid_for_twice() -> None:
    rows = rows_frame([*ups("old", *range(30)), *ups("new", *range(31, 60))])
    windows = target_windows(rows, NOTHING, 0.0, 3600.0)
    found = cost(windows, {name: Price(1.0, 4.0) for name in ("old", "new")}, 3600.0)
    assert found.usd.value == pytest.approx(4.0)  # one GPU at 4 USD an hour for an hour
    assert found.usd_per_hour.value == pytest.approx(4.0)
