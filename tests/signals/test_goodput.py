"""Good and valid requests, case by case: the words of design §4."""

from goodwatch.app.engines import known_engines
from goodwatch.core.histogram import INF
from goodwatch.core.model import Bounds, Histogram, Limits
from goodwatch.signals.derive import derive
from goodwatch.signals.goodput import Goodput, goodput, service_goodput
from goodwatch.signals.windows import Gauge, TargetWindow
from tests.signals.simulations import Run
from tests.support.simulated_engine import Request, Simulated, histogram

ENGINES = known_engines()
LE = (0.1, 0.5, 1.0, INF)


def window(
    counters: dict[tuple[str, str], float],
    histograms: dict[str, list[float]],
    *,
    engine: str = "vllm",
    model: str = "m",
    decoding: tuple[float, float] | None = (0.0, 0.0),
) -> TargetWindow:
    """A window by its counts; ``decoding`` are the most requests past their first token at its start and end."""
    gauges = {("up", ""): Gauge(1, 1, 1, 1, 1)}
    if decoding is not None:
        before, last = decoding
        gauges[("requests_decoding_max", "")] = Gauge(last, last, last, last, before)
    return TargetWindow(
        "t", "s", model, engine, 0.0, 60.0, {**counters, ("covered_seconds_total", ""): 60.0},
        {(name, ""): histogram(values, LE) for name, values in histograms.items()}, gauges,
    )  # fmt: skip


def found(one: TargetWindow, limits: Limits) -> Goodput:
    answer = goodput(one, ENGINES[one.engine], limits)
    assert answer is not None
    return answer


def finished(count: float, reason: str = "stop") -> dict[tuple[str, str], float]:
    return {("requests_finished_total", f"finished_reason={reason}"): count}


def test_without_anything_in_flight_a_single_target_is_exact() -> None:
    one = window(finished(4), {"ttft_seconds": [0.1, 0.3, 0.5, 0.9], "e2e_seconds": [1, 1, 1, 1]})
    assert found(one, Limits(ttft_s=0.5)).good == Bounds(3, 3)
    assert found(one, Limits(ttft_s=0.5)).seen == Bounds(0.75, 0.75)


def test_two_targets_leave_what_they_share_open() -> None:
    # design §4: max(0, A - R1 - X + B - N) ≤ good ≤ min(A + R0, B, N) with A = 3, B = 2, N = 4 and nobody in flight
    one = window(
        finished(4),
        {
            "ttft_seconds": [0.1, 0.1, 0.1, 0.9],
            "tpot_seconds": [0.05, 0.05, 0.7, 0.7],
            "e2e_seconds": [1, 1, 1, 1],
        },
    )
    assert found(one, Limits(ttft_s=0.5, tpot_s=0.1)).good == Bounds(1, 2)


def test_a_third_target_adds_its_count_less_all_to_the_lower_end() -> None:
    one = window(
        finished(4),
        {"ttft_seconds": [0.1] * 4, "tpot_seconds": [0.05] * 4, "e2e_seconds": [0.4, 0.4, 0.4, 5.0]},
    )
    # A = B = N = 4, C = 3: 4 + 4 + 3 - 2·4 = 3
    assert found(one, Limits(0.5, 0.1, 0.5)).good == Bounds(3, 3)


def test_a_target_inside_a_bucket_takes_both_its_counts() -> None:
    one = window(finished(3), {"ttft_seconds": [0.05, 0.3, 0.9], "e2e_seconds": [1, 1, 1]})
    assert found(one, Limits(ttft_s=0.2)).good == Bounds(1, 2)


def test_what_was_in_flight_at_the_edges_widens_the_bounds() -> None:
    # A = 2 of 2 first tokens, N = 3: of the ended, one had its first token before. R0 = 2, R1 = 1.
    one = window(finished(3), {"ttft_seconds": [0.1, 0.1], "e2e_seconds": [1, 1, 1]}, decoding=(2.0, 1.0))
    assert found(one, Limits(ttft_s=0.5)).good == Bounds(1, 3)


def test_without_a_tpot_histogram_it_lies_between_none_and_all() -> None:
    one = window(finished(3), {"ttft_seconds": [0.1] * 3, "e2e_seconds": [1] * 3})
    answer = found(one, Limits(ttft_s=0.5, tpot_s=0.1))
    assert answer.good == Bounds(0, 3)
    assert "TPOT" in " ".join(answer.notes)


def test_requests_that_left_no_finished_entry_are_valid_at_most() -> None:
    one = window({**finished(8), ("http_requests_total", "status=2xx"): 10.0}, {"e2e_seconds": [0.4] * 8})
    answer = found(one, Limits(e2e_s=0.5))
    assert (answer.unaccounted, answer.valid) == (2.0, Bounds(8, 10))
    assert answer.attainment == Bounds(0.8, 1.0)


def test_overload_and_server_errors_are_valid_and_bad() -> None:
    http = {("http_requests_total", "status=2xx"): 6.0, ("http_requests_total", "status=5xx"): 2.0}
    answer = found(window({**finished(6), **http}, {"e2e_seconds": [0.4] * 6}), Limits(e2e_s=0.5))
    assert answer.attainment == Bounds(6 / 8, 6 / 8)


def test_sglang_answers_429_and_408_are_failures_and_other_4xx_are_not_valid() -> None:
    http = {
        ("http_requests_total", f"status={s}"): n for s, n in (("200", 6.0), ("429", 1.0), ("408", 1.0), ("400", 5.0))
    }
    one = window({("requests_finished_total", ""): 6.0, **http}, {"e2e_seconds": [0.4] * 6}, engine="sglang")
    assert found(one, Limits(e2e_s=0.5)).attainment == Bounds(6 / 8, 6 / 8)


def test_refusals_that_vllm_counts_apart_are_bad_beside_its_server_errors() -> None:
    """vLLM's HTTP counter has classes: a 429 is a 4xx there, so refusals and 5xx are different requests."""
    counters = {
        **finished(5),
        ("http_requests_total", "status=2xx"): 5.0,
        ("http_requests_total", "status=4xx"): 2.0,
        ("http_requests_total", "status=5xx"): 3.0,
        ("requests_rejected_total", ""): 2.0,
    }
    answer = found(window(counters, {"e2e_seconds": [0.4] * 5}), Limits(e2e_s=0.5))
    # 5 good of 5 + 3 + 2 valid requests (design §4: engine errors and overload rejections are valid and bad)
    assert answer.attainment is not None
    assert answer.attainment.low <= 5 / 10


def test_requests_that_tensorrt_llm_failed_are_valid_and_bad() -> None:
    """It counts them in requests_failed_total and nowhere else."""
    one = window(
        {**finished(5), ("requests_failed_total", ""): 5.0, ("requests_rejected_total", ""): 2.0},
        {"e2e_seconds": [0.4] * 5},
        engine="trtllm",
    )
    answer = found(one, Limits(e2e_s=0.5))
    assert answer.valid.high is not None
    assert answer.valid.low <= 12 <= answer.valid.high
    assert answer.attainment is not None
    assert answer.attainment.low <= 5 / 12


def test_an_engine_error_within_its_targets_is_not_good() -> None:
    """vLLM observes the latencies of a request that it failed, too: one failed at 0.4 s, one ended well at 0.9 s."""
    one = window({**finished(1), **finished(1, "error")}, {"e2e_seconds": [0.4, 0.9]})
    assert found(one, Limits(e2e_s=0.5)).good.low == 0


def test_an_engine_error_after_a_quick_first_token_is_not_good() -> None:
    one = window({**finished(1), **finished(1, "error")}, {"ttft_seconds": [0.1, 0.9], "e2e_seconds": [1.0, 1.0]})
    assert found(one, Limits(ttft_s=0.5)).good.low == 0


def test_two_models_on_one_target_share_its_http_answers_once() -> None:
    """An HTTP counter without a model speaks for the whole target: five requests ended and one failed."""
    http = {("http_requests_total", "status=2xx"): 5.0, ("http_requests_total", "status=5xx"): 1.0}
    windows = [
        window({**finished(3), **http}, {"e2e_seconds": [0.4] * 3}, model="a"),
        window({**finished(2), **http}, {"e2e_seconds": [0.4] * 2}, model="b"),
    ]
    answer = service_goodput(windows, ENGINES, Limits(e2e_s=0.5))
    assert answer is not None
    assert answer.valid.low <= 6  # 5 finished, 1 failed
    assert answer.attainment is not None
    assert answer.attainment.low <= 5 / 6 <= (answer.attainment.high or 1.0)
    assert answer.unaccounted == 0.0


def test_first_tokens_of_requests_that_a_crash_took_are_not_good() -> None:
    """Five had quick first tokens and were killed; five of the next process ended, all with a slow one."""
    killed = [Request(0, prefill_ms=100, tokens=12, gap_ms=1_500)] * 5
    slow = [Request(12_000, prefill_ms=5_000, tokens=1)] * 5
    engine = Simulated("vllm", (*killed, *slow), lives=((0, 10_000), (12_000, None)))
    run = Run(engine, ((0, False), (5_000, False), (11_000, False), (20_000, False)), 0, 20_000)
    (one,) = run.windows()
    assert run.judged(Limits(ttft_s=1.0)).good == 0
    assert found(one, Limits(ttft_s=1.0)).good.low == 0


def test_when_nothing_tells_what_was_in_flight_none_to_all_can_be_good() -> None:
    one = window(finished(2), {"ttft_seconds": [], "e2e_seconds": [1.0, 1.0]}, decoding=None)
    assert found(one, Limits(ttft_s=0.5)).good == Bounds(0, 2)


def test_a_restart_leaves_the_rate_of_good_requests_untold_like_the_attainment() -> None:
    """Both stand on the same counts; a rate that may miss requests is no bound."""
    one = window({**finished(2), ("restarts_total", ""): 1.0}, {"e2e_seconds": [0.4, 0.4]})
    numbers = derive([one], ENGINES, Limits(e2e_s=0.5), {}, start_s=0.0, end_s=60.0).numbers
    assert numbers["attainment_ratio"].bounds is None
    rate = numbers["goodput_per_s"]
    assert rate.bounds is None or rate.note != ""


def test_no_counter_of_ended_requests_is_no_goodput() -> None:
    assert goodput(window({}, {"ttft_seconds": [0.1]}), ENGINES["vllm"], Limits(ttft_s=0.5)) is None


def test_nothing_ended_has_no_attainment() -> None:
    assert found(window(finished(0), {"e2e_seconds": []}), Limits(e2e_s=0.5)).attainment is None


def test_a_single_token_meets_any_tpot_on_an_engine_that_does_not_observe_it() -> None:
    one = window(
        {("requests_finished_total", ""): 2.0}, {"tpot_seconds": [0.7], "e2e_seconds": [1, 1]}, engine="sglang"
    )
    assert found(one, Limits(tpot_s=0.1)).good.high == 1


def test_bounds_of_a_plain_histogram_are_cumulative() -> None:
    assert histogram([0.05, 0.3, 2.0], LE) == Histogram(LE, (1, 2, 2, 3), 2.35)
