"""Result files: practice cases with the conclusions of their authors, each tool's form, and broken files."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.experiments.benchmark import Benchmark
from planner.experiments.designs import judge
from planner.experiments.importing import compared, importers, read_benchmarks, share_change

DATA = Path(__file__).parent / "data"


def case(name: str) -> tuple[Benchmark, ...]:
    return read_benchmarks(name, (DATA / name).read_text())


def read(content: object) -> Benchmark:
    (found,) = read_benchmarks("result.json", json.dumps(content))
    return found


def says(run: Benchmark, *words: str) -> bool:
    return any(all(word in said for word in words) for said in run.findings)


# ── practice cases: what a careful reader concludes, as their authors wrote it down ──


def test_a_routing_policy_is_told_in_points_and_in_prefill_work_and_not_as_speed() -> None:
    first, second = case("009-routing-policy.csv")
    round_robin, hashed = second.statistics[0], first.statistics[0]
    told = share_change(round_robin, hashed)
    assert told is not None
    # +19.2 points, 30 % relative; (36.6-17.4)/36.6 = 0.525: uncached prefill work falls by 52 %
    assert "+19.2 points (+30 % of it; what is left over changes by −52 %)" in told
    assert "says nothing about time" in told
    assert hashed.n == 103


def test_lock_step_waves_are_seen_where_e2e_is_steady_and_ttft_is_not() -> None:
    (run,) = case("010-aiperf-table.csv")
    assert says(run, "lock-step", "P50 2.767 s, P90 2.777 s", "0.082 to 2.270 s")
    assert says(run, "second token takes 375 ms", "15 ms", "prefill of other requests")
    assert says(run, "mean of each request", "TPOT")
    tpot, ttft, e2e = (run.statistic(name) for name in ("tpot_s", "ttft_s", "e2e_s"))
    assert tpot is not None
    assert ttft is not None
    assert e2e is not None
    # (2808.01-912.29)/126.98 = 14.93 ms: what the file says agrees, so no finding says otherwise
    assert tpot.mean == pytest.approx((2.80801 - 0.91229) / 126.98, rel=1e-3)
    assert not says(run, "chunks are not tokens")


def test_an_unknown_tool_is_mapped_by_meaning_and_keeps_what_has_no_place() -> None:
    (run,) = case("011-unknown-names.json")
    assert run.ok == 100  # 1.13843 x 87.8403
    assert says(run, "ttft_s", "4.9 times the median", "queued")
    assert says(run, "itl_s", "19.9 s", "stall", "preempted")
    assert says(run, "per-token latency", "no TPOT")
    assert run.statistic("tpot_s") is None
    assert run.unmapped["total_input_tokens"] == 27306


def test_thirteen_requests_have_a_maximum_and_no_p99() -> None:
    (run,) = case("012-thirteen-requests.json")
    e2e = run.statistic("e2e_s")
    assert e2e is not None
    assert e2e.at(0.99) is None
    assert e2e.at(0.999) is None
    assert says(run, "P99, P99.9 of 13 values", "maximum (6.57 s) with n = 13")
    assert says(run, "includes the first token and is no TPOT")
    assert says(run, "negative sending delay is clock jitter")
    assert run.statistic("tpot_s") is None


# ── each tool's form ──

VLLM: dict[str, Any] = {
    "date": "20261101-101010", "backend": "vllm", "model_id": "m", "num_prompts": 200, "request_rate": "inf",
    "max_concurrency": 16, "duration": 10.0, "completed": 198, "failed": 2, "total_input_tokens": 1000,
    "total_output_tokens": 19800, "request_throughput": 19.8, "request_goodput": None, "output_throughput": 1980.0,
    "total_token_throughput": 2080.0, "mean_ttft_ms": 50.0, "median_ttft_ms": 45.0, "std_ttft_ms": 5.0,
    "p99_ttft_ms": 90.0, "p99.9_ttft_ms": 99.0, "mean_tpot_ms": 8.0, "p99_tpot_ms": 9.0, "mean_itl_ms": 8.1,
    "p99_itl_ms": 40.0,
}  # fmt: skip


def test_vllms_milliseconds_are_seconds_and_its_gaps_are_no_tpot() -> None:
    run = read(VLLM)
    ttft, tpot, itl = (run.statistic(name) for name in ("ttft_s", "tpot_s", "itl_s"))
    assert ttft is not None
    assert tpot is not None
    assert itl is not None
    assert (ttft.mean, ttft.median, ttft.at(0.99)) == pytest.approx((0.05, 0.045, 0.09))
    assert ttft.at(0.999) is None  # of 198
    assert (tpot.pool, itl.pool) == ("request", "gap")
    assert (run.ok, run.failed, run.unlimited, run.request_rate) == (198, 2, True, None)
    assert says(run, "2 of 200 requests failed", "survivors")
    assert run.unmapped["num_prompts"] == 200


def test_a_detailed_vllm_file_is_read_from_its_requests() -> None:
    arrays = {
        "input_lens": [5] * 3, "output_lens": [3, 1, 0], "ttfts": [0.1, 0.2, 0.0], "itls": [[0.1, 0.1], [], []],
        "errors": ["", "", "refused"], "start_times": [1.0, 2.0, 3.0], "queue_times": [0.0, 0.0, 0.0],
    }  # fmt: skip
    run = read({key: value for key, value in VLLM.items() if key != "failed"} | arrays)
    assert run.failed == 1
    tpot, ttft = run.statistic("tpot_s"), run.statistic("ttft_s")
    assert tpot is not None
    assert ttft is not None
    assert tpot.values == pytest.approx((0.1,))  # one token has no TPOT
    assert ttft.values == (0.1, 0.2)
    assert says(run, "monotonic clock")


def test_an_old_vllm_file_has_no_denominator_and_may_hide_client_wait() -> None:
    run = read({key: value for key, value in VLLM.items() if key != "failed"})
    assert run.failed is None
    assert says(run, "no denominator")
    assert says(run, "concurrency cap without client wait")


def test_several_tokens_in_a_chunk_are_told() -> None:
    gaps = {"itls": [[0.1] * 50] * 198, "ttfts": [0.1] * 198, "output_lens": [100] * 198, "errors": [""] * 198}
    assert says(read(VLLM | gaps), "chunks a token", "not gaps between tokens")


def test_an_open_loop_above_capacity_is_no_steady_state() -> None:
    assert says(read(VLLM | {"request_rate": 40.0}), "40 requests a second were asked for", "no steady state")
    assert says(read(VLLM | {"max_concurrency": None}), "all requests were sent at once")


def test_one_client_process_at_a_high_rate_is_suspected() -> None:
    assert says(read(VLLM | {"output_throughput": 15000.0}), "one process", "client may have been the limit")


def test_lines_of_appended_runs_are_all_read() -> None:
    text = "\n".join(json.dumps(VLLM | {"max_concurrency": n}) for n in (1, 2, 4))
    assert [run.concurrency for run in read_benchmarks("r.jsonl", text)] == [1, 2, 4]


SGLANG: dict[str, Any] = {
    "backend": "sglang", "dataset_name": "random", "request_rate": 4.0, "max_concurrency": None, "random_output_len": 128,
    "random_range_ratio": 1.0, "duration": 25.0, "completed": 100, "total_input_tokens": 100, "total_output_tokens": 12800,
    "total_output_tokens_retokenized": 0, "request_throughput": 4.0, "input_throughput": 4.0, "output_throughput": 512.0,
    "total_throughput": 516.0, "mean_e2e_latency_ms": 900.0, "median_e2e_latency_ms": 800.0, "mean_ttft_ms": 100.0,
    "p99_ttft_ms": 300.0, "mean_tpot_ms": 6.0, "mean_itl_ms": 6.5, "server_info": {"model_path": "m"},
}  # fmt: skip


def test_sglang_without_details_has_no_failed_count_and_empty_answers_are_found() -> None:
    run = read(SGLANG)
    e2e = run.statistic("e2e_s")
    assert run.tool == "sglang"
    assert e2e is not None
    assert (e2e.mean, e2e.median) == pytest.approx((0.9, 0.8))
    assert run.failed is None
    assert says(run, "0 of 12800 output tokens are there when counted again")
    assert run.model == "m"


def metric(avg: float, unit: str, **more: float) -> dict[str, object]:
    return {"unit": unit, "avg": avg, **more}


AIPERF: dict[str, Any] = {
    "request_count": metric(200, "requests"), "error_request_count": metric(3, "requests"),
    "time_to_first_token": metric(5e7, "ns", p50=4e7, p99=9e7, min=1e7, max=1e8, std=1e7),
    "inter_token_latency": metric(8, "ms", p50=8, p99=9), "request_latency": metric(1.066, "s", p50=1.0, p90=1.2),
    "inter_chunk_latency": metric(16, "ms", p99=40), "output_sequence_length": metric(128, "tokens", std=0.0),
    "output_token_throughput": metric(900, "tokens/sec"), "request_throughput": metric(9, "requests/sec"),
    "input_config": {"phases": [{"type": "warmup", "concurrency": 1}, {"type": "profiling", "concurrency": 16}]},
    "nvidia_total_gpu_energy": metric(5, "J"),
}  # fmt: skip


def test_aiperfs_units_are_read_and_not_assumed() -> None:
    run = read(AIPERF)
    ttft, e2e, gaps = (run.statistic(name) for name in ("ttft_s", "e2e_s", "itl_s"))
    assert ttft is not None
    assert e2e is not None
    assert gaps is not None
    assert (ttft.mean, ttft.at(0.99), e2e.mean, gaps.mean) == pytest.approx((0.05, 0.09, 1.066, 0.016))
    assert gaps.pool == "gap"
    assert (run.ok, run.failed, run.concurrency) == (200, 3, 16)
    assert "nvidia_total_gpu_energy" in run.unmapped


def test_a_latency_in_a_unit_that_nobody_knows_is_not_taken() -> None:
    assert read(AIPERF | {"request_latency": metric(3, "fortnights")}).statistic("e2e_s") is None


def test_without_streaming_there_is_no_ttft_and_that_is_told() -> None:
    run = read({key: value for key, value in AIPERF.items() if key != "time_to_first_token"})
    assert says(run, "without --streaming")


def test_a_tpot_that_does_not_fit_ttft_and_e2e_is_told() -> None:
    assert not says(read(AIPERF), "chunks are not tokens")  # (1.066-0.05)/127 = 8 ms
    assert says(
        read(AIPERF | {"inter_token_latency": metric(16, "ms")}), "16.00 ms", "8.00 ms", "chunks are not tokens"
    )


def guide(status: str = "successful") -> dict[str, Any]:
    def summary(value: float, **percentiles: float) -> dict[str, Any]:
        return {
            status: {"mean": value, "median": value, "count": 500, "min": 0.1, "max": 9.0, "percentiles": percentiles}
        }

    return {
        "config": {"strategy": {"type_": "concurrent", "streams": 8}}, "start_time": 100.0, "end_time": 160.0,
        "metrics": {
            "request_totals": {"successful": 500, "errored": 4, "incomplete": 7},
            "time_to_first_token_ms": summary(50.0, p99=90.0, p999=99.0), "request_latency": summary(1.5),
            "inter_token_latency_ms": summary(8.0), "time_per_output_token_ms": summary(8.4),
            "output_tokens_per_second": summary(900.0), "requests_per_second": summary(8.0),
        },
    }  # fmt: skip


def test_every_benchmark_of_a_guidellm_sweep_is_read() -> None:
    runs = read_benchmarks("b.json", json.dumps({"metadata": {"version": 2}, "benchmarks": [guide(), guide()]}))
    assert [run.label for run in runs] == ["1 of 2: concurrent", "2 of 2: concurrent"]
    ttft, tpot, e2e = (runs[0].statistic(name) for name in ("ttft_s", "tpot_s", "e2e_s"))
    assert ttft is not None
    assert tpot is not None
    assert e2e is not None
    assert (ttft.at(0.99), tpot.mean, e2e.mean) == pytest.approx((0.09, 0.008, 1.5))
    assert ttft.at(0.999) is None
    assert (runs[0].ok, runs[0].failed, runs[0].cut_off, runs[0].duration_s) == (500, 4, 7, 60)
    assert says(runs[0], "includes the first token", "inter_token_latency_ms")
    assert says(runs[0], "7 requests were cut off", "neither good nor bad")


LLMPERF: dict[str, Any] = {
    "version": "2023-08-31", "model": "m", "num_concurrent_requests": 2, "mean_output_tokens": 100,
    "results_ttft_s_mean": 0.5, "results_ttft_s_quantiles_p99": 0.9, "results_inter_token_latency_s_mean": 0.02,
    "results_number_output_tokens_mean": 101.0, "results_end_to_end_latency_s_mean": 2.02,
    "results_num_requests_started": 60, "results_number_errors": 3, "results_num_completed_requests": 50,
    "results_num_completed_requests_per_min": 120.0, "results_mean_output_throughput_token_per_s": 99.0,
}  # fmt: skip


def test_llmperfs_inter_token_latency_is_no_tpot_and_tpot_is_derived() -> None:
    run = read(LLMPERF)
    tpot, ttft = run.statistic("tpot_s"), run.statistic("ttft_s")
    assert tpot is not None
    assert ttft is not None
    assert tpot.mean == pytest.approx((0.02 * 101 - 0.5) / 100)  # trap: (x * n - TTFT)/(n - 1)
    assert ttft.at(0.99) is None  # of 50
    assert (run.rates["requests_per_s"], run.cut_off) == (2.0, 7)
    assert says(run, "includes the first token")


def test_llmperfs_single_responses_give_a_tpot_each() -> None:
    row = {"error_code": None, "ttft_s": 0.5, "end_to_end_latency_s": 2.5, "number_output_tokens": 101}
    run = read([row, row, row | {"error_code": 500}])
    tpot = run.statistic("tpot_s")
    assert tpot is not None
    assert tpot.values == pytest.approx((0.02, 0.02))
    assert (run.ok, run.failed) == (2, 1)


# ── broken files ──


@pytest.mark.parametrize(
    ("text", "says_so"),
    [
        ("", "is empty"),
        ("{", "cannot be read as JSON"),
        ('{"a": 1}', "no known tool wrote it; known are .*AIPerf"),
        ("[1, 2]", "no known tool"),
        ("just words", "neither JSON nor a table"),
        ("a,b\n1,2\n", "no known tool"),
        ('{"benchmarks": [{"metrics": 5}]}', "no known tool|is not"),
    ],
)
def test_a_broken_file_is_refused_with_its_reason(text: str, says_so: str) -> None:
    with pytest.raises(ConfigError, match=says_so):
        read_benchmarks("r.json", text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([VLLM, SGLANG, AIPERF, guide(), LLMPERF]), st.data())
def test_no_value_in_any_field_breaks_the_reader(base: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(base)))
    changed = base | {key: data.draw(JSON)}
    whole = {"benchmarks": [changed]} if "metrics" in base else changed
    with contextlib.suppress(ConfigError):  # a refusal is an answer as well
        for run in read_benchmarks("r.json", json.dumps(whole)):
            for one in run.statistics:
                assert all(map(math.isfinite, (value for _, value in one.quantiles)))


def test_every_importer_has_the_name_of_what_it_reads() -> None:
    assert {"aiperf", "vllm", "sglang", "guidellm", "llmperf", "inference-perf"} <= set(importers())


# ── files against files ──


def runs(factor: float, start_s: float) -> list[Benchmark]:
    found = []
    for place in range(6):
        rate = factor * (1000 + 7 * (place % 3) + place / 10)
        found.append(
            read(
                AIPERF
                | {
                    "output_token_throughput": metric(rate, "t/s"),
                    "start_time": f"2026-11-01T10:{int(start_s) + 2 * place:02d}:00+00:00",
                }
            )
        )
    return found


def test_files_of_two_sides_are_compared() -> None:
    made = compared("c", runs(1.0, 0), runs(1.3, 1))
    assert made.primary.name == "output_tokens_per_s"
    assert judge(made).outcome == "better"
    assert [run.position for run in made.baseline.runs] == [0, 2, 4, 6, 8, 10]  # by start time


def test_runs_at_different_load_are_not_compared() -> None:
    with pytest.raises(ConfigError, match=r"concurrency is 16\.0 and 32\.0"):
        compared("c", [read(VLLM)], [read(VLLM | {"max_concurrency": 32})])


def test_one_file_each_is_no_verdict() -> None:
    assert judge(compared("c", [read(VLLM)], [read(VLLM)])).outcome == "inconclusive"


@pytest.mark.parametrize(
    "text",
    [
        '{"backend": "vllm", "completed": 10, "mean_ttft_ms": 3',  # cut off
        "[" * 100_000,
        '{"x": ' + "9" * 5000 + "}",  # Python reads no integer of so many digits
        "\x00\x01",
        'a,b\n"' + "x" * 200_000 + '",1\n',  # a field that is longer than a table may hold
        "{}",
        "[1, 2, 3]",
    ],
)
def test_a_file_that_is_no_result_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match=r"odd\.json"):
        read_benchmarks("odd.json", text)


def test_a_mark_of_byte_order_before_json_is_no_part_of_it() -> None:
    (run,) = read_benchmarks(
        "r.json", "\ufeff" + json.dumps({"completed": 1000, "mean_ttft_ms": 30.0, "duration": 3.0})
    )
    ttft = run.statistic("ttft_s")
    assert ttft is not None
    assert ttft.mean == pytest.approx(0.03)  # 30 ms


def test_what_cannot_be_is_left_out_and_said() -> None:
    run = read(
        {"completed": -10, "duration": -1.0, "mean_ttft_ms": -5.0, "mean_tpot_ms": 1.0, "request_throughput": -5.0}
    )
    assert (run.ok, run.duration_s, run.statistic("ttft_s"), dict(run.rates)) == (None, None, None, {})
    assert says(run, "ok, duration_s, ttft_s, requests_per_s: below 0")


def test_what_is_no_number_is_not_measured() -> None:
    run = read(
        {
            "completed": 1000,
            "failed": 0,
            "mean_ttft_ms": math.nan,
            "p99_ttft_ms": 12.0,
            "median_tpot_ms": math.inf,
            "mean_tpot_ms": 1.0,
        }
    )
    ttft, tpot = run.statistic("ttft_s"), run.statistic("tpot_s")
    assert ttft is not None
    assert tpot is not None
    assert ttft.mean is None
    assert ttft.at(0.99) == pytest.approx(0.012)
    assert tpot.median is None
    assert tpot.mean == pytest.approx(0.001)
