import pytest

from planner.simulate.fit import Seen, calibrated, least
from planner.simulate.run import simulate
from planner.simulate.setup import Fleet, Scheduler, StepCost, cost_of
from planner.simulate.trace import drawn
from planner.speed.deployment import Named, deployment
from planner.speed.efficiency import factors, shipped
from planner.speed.steps import decode_s
from planner.tensors import Layout


def test_the_simplex_finds_the_bottom_of_rosenbrocks_valley() -> None:
    def valley(place: list[float]) -> float:
        return (1 - place[0]) ** 2 + 100 * (place[1] - place[0] ** 2) ** 2  # least at (1, 1): Rosenbrock 1960

    assert least(valley, [-1.2, 1.0], rounds=600) == pytest.approx([1, 1], abs=1e-3)  # type: ignore[arg-type]


def test_the_cost_that_made_a_trace_is_found_again() -> None:
    rules = Scheduler(max_num_seqs=16, max_num_batched_tokens=2048, kv_tokens=50_000)
    real = StepCost(0.012, 4e-4, 0.0, 3e-5, 1e-3, 0.0, 0.01)
    requests = drawn(250, 6.0, input_tokens=300, output_tokens=60, seed=8)
    made = simulate(requests, Fleet(real, rules)).requests
    found = calibrated(requests, Seen(made["ttft_s"].to_list(), made["tpot_s"].to_list()), rules)
    for running in (1, 8, 16):
        step = found.cost.fixed_s + found.cost.running_s * running
        assert step == pytest.approx(real.fixed_s + real.running_s * running, rel=0.15)
    assert found.sigma < 0.2


def test_the_simulated_step_is_the_models_step_near_its_working_point() -> None:
    one = deployment(Named("Qwen/Qwen3-32B", "bf16", "H100-SXM-80GB", 2, "vllm", "0.12.0", Layout(2)))
    by = factors(shipped(), one)
    cost = cost_of(one, by, running=64, input_tokens=1000, context_tokens=1200)
    for running in (1, 32, 64):
        step = cost.fixed_s + cost.running_s * running + cost.context_s * running * 1200
        assert step == pytest.approx(decode_s(one, by, running, 1200), rel=0.03)
