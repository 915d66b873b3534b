"""The simulator against recorded engines: fitted on calm, prefix and the first half of the overload, it predicts the rest."""

from dataclasses import dataclass
from functools import cache
from statistics import median

import pytest

from planner.simulate.fit import Calibrated, calibrated
from planner.simulate.run import simulate
from planner.simulate.setup import Fleet, StepCost
from tests.planner.simulate.recordings import PATIENCE_S, Recorded, recorded

ALL = ("vllm-0.8.5", "vllm-0.10.2", "vllm-0.12.0", "vllm-0.32.0", "vllm-0.32.0-noisy-host", "sglang-0.5.23")
#: the host changed its speed between the halves: a median token took 18 ms in the first and 13 ms in the second; on the
#: noisy host the second half got less than half of the capacity of the first. No model of the engine can know.
CHANGED = ("vllm-0.32.0", "vllm-0.32.0-noisy-host")


@dataclass(frozen=True, slots=True)
class Half:
    """Second half: output tokens/s from its start to the last end, TPOT, TTFT (quantiles, seconds; None: no request)."""

    tokens_per_s: float
    tpot_p50_s: float | None
    ttft_p50_s: float
    ttft_p90_s: float


@cache
def fitted(name: str) -> tuple[Recorded, Calibrated]:
    one = recorded(name)
    requests, seen = one.known()
    return one, calibrated(requests, seen, one.rules)


def half(one: Recorded, ttft: list[float | None], tpot: list[float | None], e2e: list[float | None]) -> Half:
    """A client that left without a token waited as long as it had patience."""
    asked = [
        i
        for i, later in enumerate(one.later)
        if later and (one.seen.ttft_s[i] is not None or one.rows[i]["status"] != "ok")
    ]
    waits = sorted(min(PATIENCE_S, PATIENCE_S if ttft[i] is None else ttft[i] or 0.0) for i in asked)
    steps = [tpot[i] for i, later in enumerate(one.later) if later and tpot[i] is not None]
    ends = [(one.requests.arrived_s[i] + e, one.requests.output_tokens[i]) for i, e in enumerate(e2e) if e is not None]
    ends = [pair for pair in ends if pair[0] > one.middle_s]
    rate = sum(tokens for _, tokens in ends) / (max(end for end, _ in ends) - one.middle_s)
    return Half(rate, median(steps) if steps else None, median(waits), waits[int(0.9 * len(waits))])  # type: ignore[type-var]


def real(one: Recorded) -> Half:
    e2e = [float(r["e2e_s"]) if r["status"] == "ok" else None for r in one.rows]
    return half(one, list(one.seen.ttft_s), list(one.seen.tpot_s), e2e)


def simulated(one: Recorded, cost: StepCost) -> Half:
    frame = simulate(one.requests, Fleet(cost, one.rules)).requests
    return half(one, frame["ttft_s"].to_list(), frame["tpot_s"].to_list(), frame["e2e_s"].to_list())


@pytest.mark.parametrize("name", [name for name in ALL if name not in CHANGED])
def test_the_capacity_of_an_overload_is_predicted(name: str) -> None:
    one, cost = fitted(name)
    assert simulated(one, cost.cost).tokens_per_s == pytest.approx(real(one).tokens_per_s, rel=0.15)


@pytest.mark.parametrize("name", [name for name in ALL if name != "vllm-0.32.0"])
def test_the_time_per_token_of_an_overload_is_predicted(name: str) -> None:
    one, cost = fitted(name)
    truth = real(one).tpot_p50_s
    if truth is None:  # sglang: every client of the second half had gone before its answer ended
        assert name == "sglang-0.5.23"
        return
    assert simulated(one, cost.cost).tpot_p50_s == pytest.approx(truth, rel=0.30)


@pytest.mark.parametrize("name", ALL)
def test_the_wait_for_the_first_token_is_inside_the_band(name: str) -> None:
    one, cost = fitted(name)
    fast, slow = (simulated(one, end) for end in cost.band())
    truth = real(one)
    assert fast.ttft_p50_s <= truth.ttft_p50_s <= slow.ttft_p50_s
    assert fast.ttft_p90_s <= truth.ttft_p90_s <= slow.ttft_p90_s


@pytest.mark.parametrize("name", CHANGED)
def test_a_host_that_changes_its_speed_is_not_predicted(name: str) -> None:
    """Kept so that the limit is known: the error is outside what is promised."""
    one, cost = fitted(name)
    assert abs(simulated(one, cost.cost).tokens_per_s / real(one).tokens_per_s - 1) > 0.15
