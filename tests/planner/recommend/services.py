"""Small services for the tests of recommendations: what runs, and what was measured of it by the simulator itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.catalogue import accelerators, engine_budgets, known_model
from planner.estimate import exactly
from planner.evidence import Evidence, Seen
from planner.gpu import find
from planner.quantisation import scheme
from planner.simulate.run import Limits, simulate
from planner.simulate.setup import Fleet, Scheduler, StepCost
from planner.simulate.trace import Trace, drawn
from planner.speed.deployment import Named
from planner.tensors import Layout
from planner.version import parsed
from planner.vram import Request

LIMITS = Limits(2.0, 0.05)
#: 12 ms, 0.6 ms for each running request, 25 µs for each token of a prompt
COST = StepCost(0.012, 0.0006, 0.0, 2.5e-5, 0.002, 0.0, 0.01)


def traffic(
    rate_per_s: float = 4.0, count: int = 600, inputs: float = 800, outputs: float = 150, seed: int = 1
) -> Trace:
    """Poisson arrivals."""
    return drawn(count, rate_per_s=rate_per_s, input_tokens=inputs, output_tokens=outputs, spread=0.4, seed=seed)


def service(
    requests: Trace | None = None,
    *,
    replicas: int = 1,
    limits: Limits = LIMITS,
    objective: float = 0.9,
    sigma: float = 0.05,
    cost: StepCost = COST,
    **changed: Any,
) -> Evidence:
    """A service whose measurements are what the simulator says, without error. ``Scheduler`` and ``Evidence`` fields."""  # fmt: skip
    flags = {name: changed.pop(name) for name in list(changed) if name in Scheduler.__dataclass_fields__}
    came = requests or traffic()
    fleet = Fleet(cost, Scheduler(**{"kv_tokens": 400_000, **flags}), replicas, "least_loaded")
    ran = simulate(came, fleet, limits).summary
    attained = ran.attained_ratio or 0.0
    seen = Seen(len(came), (max(0.0, attained - 0.01), min(1.0, attained + 0.01)), running=20.0, running_peak=90.0,
                waiting=3.0, kv_used_ratio=ran.kv_used_ratio)  # fmt: skip
    told = Evidence("chat", 0.0, 6 * 3600.0, fleet, sigma, came, limits, objective, seen, usd_per_gpu_hour=exactly(2.5))
    return replace(told, **changed)


def on_card(
    evidence: Evidence,
    *,
    model: str = "Llama-3.1-8B-Instruct",
    gpu: str = "H100-SXM-80GB",
    tp: int = 1,
    engine: str = "vllm",
    **start: Any,
) -> Evidence:
    """The same service on a card and with a model that are known."""  # fmt: skip
    card = find(gpu, accelerators())
    assert card is not None
    request = Request(known_model(model), card, engine_budgets()[engine], parsed("0.11.0", (0, 11)), scheme("bf16"),
                      layout=Layout(tp=tp), **{"max_model_len": 8192, **start})  # fmt: skip
    named = Named(model, "bf16", gpu, tp, "vllm", "0.11.0", Layout(tp=tp), "auto")
    return replace(evidence, vram=request, speed=named, gpus_per_replica=tp)
