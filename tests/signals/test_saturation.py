"""Which limit binds, and what is a stall."""

from dataclasses import replace

import polars as pl

from goodwatch.app.engines import known_engines
from goodwatch.core.counter import Tracker
from goodwatch.core.model import Scrape
from goodwatch.signals.increments import rows_frame, step_rows
from goodwatch.signals.saturation import Stall, binding_limits, saturation, stalls
from goodwatch.signals.windows import Gauge, TargetWindow
from tests.signals.simulations import Run
from tests.support.simulated_engine import Kind, Request, Simulated


def window(
    *, kv: float | None = 0.5, running: float = 4, slots: float | None = None, waiting: float = 0, preempted: float = 0
) -> TargetWindow:
    values = {
        "kv_cache_used_ratio": kv,
        "requests_running": running,
        "max_running_requests": slots,
        "requests_waiting": waiting,
    }
    gauges = {(n, ""): Gauge(v, v, v, v) for n, v in values.items() if v is not None}
    return TargetWindow("t", "s", "m", "vllm", 0.0, 60.0, {("preemptions_total", ""): preempted}, {}, gauges)


def test_a_calm_target_has_no_binding_limit() -> None:
    found = saturation(window(slots=8))
    assert found.binding is None
    assert {limit.name: limit.used_ratio for limit in found.limits} == {"kv_cache": 0.5, "batch_slots": 0.5}
    assert binding_limits([window()]) == []


def test_preemptions_prove_that_the_cache_binds() -> None:
    found = saturation(window(kv=0.7, waiting=3, preempted=2)).binding
    assert found is not None
    assert (found.name, found.used_ratio) == ("kv_cache", 0.7)
    assert "2 preemptions" in found.reason


def test_requests_that_wait_at_full_slots_are_held_by_the_slots() -> None:
    found = saturation(window(running=8, slots=8, waiting=5)).binding
    assert found is not None
    assert found.name == "batch_slots"


def test_requests_that_wait_with_room_everywhere_are_held_by_compute() -> None:
    found = saturation(window(waiting=5))
    assert found.binding is not None
    assert (found.binding.name, found.binding.used_ratio) == ("compute", None)
    assert found.binding in found.limits


def test_a_full_cache_without_a_queue_binds_nobody() -> None:
    assert saturation(window(kv=0.99)).binding is None


def test_nothing_told_is_nothing_bound() -> None:
    found = saturation(TargetWindow("t", "s", "m", "vllm", 0.0, 60.0))
    assert (found.limits, found.binding) == ((), None)


def rows_of(kind: Kind, request: Request, instants: tuple[int, ...]) -> pl.DataFrame:
    return Run(Simulated(kind, (request,)), tuple((at, False) for at in instants), 0, instants[-1]).rows()


#: Fifty tokens, one a second.
LONG = Request(0, prefill_ms=500, gap_ms=1_000, tokens=50)
EVERY_5_S = (0, 5_000, 10_000, 15_000, 20_000, 25_000)


def frozen(kind: Kind, *, engine_from: int = 10_000) -> pl.DataFrame:
    """A long request, and an engine that hangs from an instant on: its page never changes again."""
    one = Simulated(kind, (LONG,))
    tracker, rows = Tracker(), []
    for at in EVERY_5_S:
        page = one.scrape(min(at, engine_from))
        step = tracker.advance(
            Scrape(at / 1000, "t", "s", True, 0.0, tuple(replace(s, ts=at / 1000) for s in page.samples))
        )
        rows += step_rows(step, tracker, known_engines()[kind])
    return rows_frame(rows)


def test_work_without_progress_is_a_stall_since_the_last_progress() -> None:
    assert stalls(frozen("vllm")) == [Stall("t", 10.0, 3, 1.0, 0.0)]
    assert stalls(frozen("sglang")) == [Stall("t", 10.0, 3, 1.0, 0.0)]


def test_two_still_scrapes_are_not_yet_a_stall() -> None:
    assert stalls(frozen("vllm", engine_from=15_000)) == []


def test_tokens_that_are_made_are_no_stall() -> None:
    assert stalls(rows_of("vllm", LONG, EVERY_5_S)) == []


def test_tokens_counted_at_finish_are_no_stall_while_live_counters_move() -> None:
    rows = rows_of("sglang", LONG, EVERY_5_S)
    assert rows.filter(pl.col("signal") == "output_tokens_total").is_empty()  # not born before the first finish
    assert stalls(rows) == []


def test_a_counter_that_steps_at_finish_is_no_stall_while_live_counters_move() -> None:
    short = Request(0, prefill_ms=10, tokens=1)
    run = Run(Simulated("sglang", (short, replace(LONG, arrived_ms=1_000))), tuple((a, False) for a in EVERY_5_S), 0, 1)
    assert run.rows().filter(pl.col("signal") == "output_tokens_total").height > 3
    assert stalls(run.rows()) == []


def test_an_engine_on_which_nothing_can_move_before_the_finish_is_not_called_stalled() -> None:
    """TensorRT-LLM observes everything at finish: through a long generation its page stands still by nature."""
    short = Request(0, prefill_ms=10, tokens=1)
    run = Run(Simulated("trtllm", (short, replace(LONG, arrived_ms=1_000))), tuple((a, False) for a in EVERY_5_S), 0, 1)
    assert stalls(run.rows()) == []


def test_a_page_without_anything_that_could_move_is_no_stall() -> None:
    assert stalls(rows_of("trtllm", LONG, EVERY_5_S)) == []


def test_an_idle_engine_and_a_failed_scrape_are_no_stall() -> None:
    done = Request(0, prefill_ms=10, tokens=1)
    assert stalls(rows_of("vllm", done, EVERY_5_S)) == []
    hung = frozen("vllm")
    down = hung.filter(pl.col("minute_s") < 25).vstack(
        rows_frame([{"minute_s": 25.0, "target": "t", "service": "s", "model": "", "engine": "vllm", "signal": "up",
                     "part": "", "kind": "gauge", **dict.fromkeys(("mean", "min", "max", "last"), 0.0)}])
    )  # fmt: skip
    assert stalls(down) == []
