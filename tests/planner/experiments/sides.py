"""Small experiments, built from the mean latency of each run."""

from collections.abc import Sequence
from dataclasses import replace

from planner.experiments.values import Arm, Experiment, Measured, Metric, Run

E2E = Metric("e2e_s", "s", "lower", "mean")


def run(position: int, value: float, block: int | None = None, *, metric: Metric = E2E, reference: bool = False) -> Run:
    return Run(position, {metric.name: Measured((value,))}, block, reference=reference)


def experiment(order: str, values: Sequence[float], design: str = "abba", metric: Metric = E2E) -> Experiment:
    """Runs in this order of arms; blocks of four (abba) or two."""
    size = 4 if design == "abba" else 2
    made: dict[str, list[Run]] = {"A": [], "B": []}
    for position, (arm, value) in enumerate(zip(order, values, strict=True)):
        made[arm].append(run(position, value, None if design == "before_after" else position // size, metric=metric))
    arms = Arm("a", tuple(made["A"])), Arm("b", tuple(made["B"]))
    return Experiment("x1", "is b quicker?", design, *arms, (metric,))  # type: ignore[arg-type]


#: twelve runs whose level wobbles by about a per cent and drifts upwards
WOBBLE = [1.0, 1.01, 1.0, 1.012, 1.018, 1.01, 1.021, 1.02, 1.03, 1.025, 1.031, 1.04]


def changed(factor: float, design: str = "abba") -> Experiment:
    """Three quads (or six pairs, or six and six) in which the candidate takes ``factor`` times as long."""
    order = "A" * 6 + "B" * 6 if design == "before_after" else "ABBA" * 3
    return experiment(order, [w * (factor if arm == "B" else 1) for w, arm in zip(WOBBLE, order, strict=True)], design)


def with_arms(one: Experiment, **changes: object) -> Experiment:
    """The experiment with the same changes to both arms."""
    return replace(one, baseline=replace(one.baseline, **changes), candidate=replace(one.candidate, **changes))  # type: ignore[arg-type]
