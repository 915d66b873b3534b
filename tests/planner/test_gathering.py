"""Facts and deployments to evidence: what is played again, what runs, what is not told."""

from array import array
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.model import Deployment
from goodwatch.core.request import Vantage
from goodwatch.signals.request_frames import FACTS
from planner import gathering
from planner.simulate.run import simulate
from planner.simulate.setup import Fleet, Scheduler, StepCost
from planner.simulate.trace import drawn


def facts(*rows: dict[str, Any]) -> pl.DataFrame:
    plain: dict[str, Any] = {"status": "ok", "input_tokens": 10, "output_tokens": 5, "weight": 1.0, "target": "a"}
    return pl.DataFrame([{**dict.fromkeys(FACTS), **plain, **row} for row in rows], schema=FACTS)


def told(engine: str = "vllm", version: str = "0.11.0", target: str = "a", **labels: str) -> Deployment:
    return Deployment(0.0, target, "chat", engine, version, "m", labels)


def test_requests_without_lengths_are_left_out_and_told() -> None:
    made, missing = gathering.trace_of(
        facts({"arrived_at": 2.0}, {"arrived_at": 1.0, "cached_tokens": 10}, {"arrived_at": 3.0, "output_tokens": None})
    )
    assert made.arrived_s == array("d", [1.0, 2.0])
    assert list(made.cached_tokens) == [9, 0]  # one token of a prompt is always computed
    assert missing == ("1 requests tell no lengths and are left out of the traffic",)


@given(st.integers(2, 40), st.integers(2, 6))
def test_a_sample_is_thickened_to_what_it_stands_for(count: int, weight: int) -> None:
    made, missing = gathering.trace_of(
        facts(*({"arrived_at": float(i), "weight": float(weight)} for i in range(count)))
    )
    assert len(made) == count * weight
    assert any("was kept" in one for one in missing)


def test_the_step_of_a_known_engine_is_found_again() -> None:
    truth = StepCost(0.004, 0.0005, 0.0, 2e-5)
    asked = drawn(400, 12.0, input_tokens=60, output_tokens=40, seed=3)
    ran = simulate(asked, Fleet(truth, Scheduler(64))).requests
    rows = [
        {"arrived_at": at, "ended_at": at + e2e, "input_tokens": i, "output_tokens": o, "engine_ttft_s": ttft, "engine_tpot_s": tpot}
        for at, i, o, ttft, tpot, e2e in zip(
            asked.arrived_s, asked.input_tokens, asked.output_tokens, ran["ttft_s"], ran["tpot_s"], ran["e2e_s"], strict=True
        )
    ]  # fmt: skip
    found = gathering.fitted(facts(*rows), Scheduler(64), 1, Vantage.ENGINE)
    assert found is not None
    # a step of ten requests: 4 ms and ten times 0.5 ms
    assert found.cost.fixed_s + 10 * found.cost.running_s == pytest.approx(0.009, rel=0.1)
    assert found.sigma < 0.15


def test_too_few_latencies_fit_nothing() -> None:
    assert gathering.fitted(facts({"arrived_at": 1.0, "engine_ttft_s": 0.1}), Scheduler(), 1, Vantage.ENGINE) is None


def test_what_the_engine_reports_wins_over_what_was_set_and_the_difference_is_told() -> None:
    args = {"a": "vllm serve m --max-num-seqs 64 --block-size 32"}
    found = gathering.running([told(block_size="16", num_gpu_blocks="100")], args, None, None)
    assert (found.scheduler.max_num_seqs, found.scheduler.block_tokens) == (64, 16)
    assert found.scheduler.kv_tokens == 1600
    assert found.findings == ("block_tokens was set to 32, the engine reports 16: set but not in effect",)


def test_flags_alone_are_a_configuration_too() -> None:
    assert gathering.intended_of("--max-num-seqs 8 --enforce-eager", told()).told()["max_num_seqs"] == 8


def test_a_limit_that_nobody_tells_is_assumed_and_said() -> None:
    found = gathering.running([told()], {}, None, 300.0)
    assert found.scheduler.max_num_seqs == 300  # so many were seen at once
    assert any("write targets[].args" in one for one in found.missing)
    assert any("KV cache" in one for one in found.missing)


def test_replicas_that_run_differently_are_a_finding() -> None:
    found = gathering.running([told(), told(target="b", block_size="32")], {}, None, None)
    assert found.findings == ("replicas run differently: b is not like a",)


def test_requests_that_ran_at_once_are_counted_from_their_first_step() -> None:
    rows = [
        {"arrived_at": 0.0, "ended_at": 4.0, "engine_e2e_s": 4.0},
        {"arrived_at": 0.0, "ended_at": 4.0, "engine_e2e_s": 4.0, "engine_queue_s": 2.0},
    ]
    # one for two seconds, two for two seconds
    assert gathering.concurrency(facts(*rows)) == pytest.approx((1.5, 2.0))
    assert gathering.concurrency(facts({"arrived_at": 0.0})) is None
