"""Against published prices, rates and costs, and arithmetic done by hand: ``data/cost-cases.yaml``, source in each row."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.cost.cases import FIGURES, kind_of, rows
from planner.cost.reference import references, routings
from planner.speed.efficiency import shipped

FILE = Path(__file__).parent / "data" / "cost-cases.yaml"
CASES: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())["cases"]
#: figures of the file that are answers, by kind of case
ANSWERS = {**FIGURES, "price": ("usd_per_m",)}


def question(case: dict[str, Any]) -> dict[str, Any]:
    """The case without its answers."""
    return {name: value for name, value in case.items() if name not in ANSWERS[kind_of(case)]}


def errors() -> dict[str, list[tuple[str, str, float, float]]]:
    """Kind of case → (id, figure, relative error, tolerance)."""
    found = defaultdict(list)
    for case, row in zip(CASES, rows(map(question, CASES)), strict=True):
        for name in ANSWERS[kind_of(case)]:
            if name in case:
                found[row["kind"]].append((case["id"], name, abs(row[name] / case[name] - 1), case["tol"]))
    return found


@pytest.mark.parametrize("kind", sorted(ANSWERS))
def test_every_kind_of_case_is_right_to_the_tolerance_of_its_source(kind: str) -> None:
    found = errors()[kind]
    worst = max(found, key=lambda one: one[2])
    assert [one for one in found if one[2] > one[3]] == [], f"{kind}: worst {worst[0]} {worst[1]} {worst[2]:.3%}"


def test_answers_of_the_file_are_not_read() -> None:
    absurd = [{**case, **{name: -1 for name in ANSWERS[kind_of(case)] if name in case}} for case in CASES]
    assert rows(absurd) == rows(map(question, CASES))


def test_rates_that_the_speed_model_gives_come_near_the_measured_cost() -> None:
    # TensorRT-LLM 0.14 table, 1000 in / 1000 out (rows that the speed model was fitted on): 785.5 and 4,116.4 output tokens/s
    fp16, fp8, _ = references(shipped())
    assert fp16.by_model.low <= fp16.reproduced.point <= fp16.by_model.high
    assert fp8.by_model.low <= fp8.reproduced.point <= fp8.by_model.high
    assert fp16.by_model.point == pytest.approx(fp16.reproduced.point, rel=0.05)
    assert fp8.by_model.point == pytest.approx(fp8.reproduced.point, rel=0.05)


@pytest.mark.parametrize(("users", "usd"), [(128, 0.0949), (32, 0.34), (8, 0.75), (1, 9.71)])
def test_load_alone_moves_the_cost_of_one_card_a_hundredfold_and_the_model_follows(users: int, usd: float) -> None:
    # caleta.io 2026: Qwen2.5-Coder-32B FP8, vLLM, one H100 NVL at 1.61 USD; its lengths are not told, taken as 500 and 500
    case = {
        "id": "caleta", "kind": "closed_loop", "model": "Qwen/Qwen2.5-32B-Instruct", "precision": "fp8", "gpu": "H100-NVL-94GB",
        "gpu_count": 1, "engine": "vllm", "isl": 500, "osl": 500, "concurrency": users, "gpus_held": 1, "gpu_usd_per_hour": 1.61,
    }  # fmt: skip
    (row,) = rows([case])
    assert usd / 1.6 <= row["usd_per_m"] <= usd * 1.6
    assert row["interval"]["usd_per_m"][0] < row["usd_per_m"] < row["interval"]["usd_per_m"][1]


def test_the_well_known_figures_hold_under_their_assumptions() -> None:
    for one in references(shipped()):
        assert one.reproduced.point == pytest.approx(one.reference.told_usd, rel=0.01)
    savings = {name: one.saving.point for name, one in routings()}
    assert savings["against 0.82 (FP16)"] == pytest.approx(0.60, abs=0.01)
    assert savings["FP8 and routing, against 0.82 (FP16)"] == pytest.approx(0.69, abs=0.01)
    assert savings["against 0.47 (FP8): routing alone"] == pytest.approx(0.46, abs=0.01)
    assert not any(one.allowed for _, one in routings())


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({}, "case without id: gpu_usd_per_hour: None is not a number"),
        ({"gpus_held": 1, "gpu_usd_per_hour": 2}, "tokens_per_s: None is not a number"),
        ({"gpus_held": -1, "gpu_usd_per_hour": 2, "tokens_per_s": 5}, "gpus_held: -1"),
        ({"gpus_held": 1, "gpu_usd_per_hour": 2, "tokens_per_s": 5, "utilisation": 1.5}, "utilisation: 1.5"),
        ({"gpus_held": 1, "gpu_usd_per_hour": 2, "tokens_per_s": 5, "basis": "words"}, "basis words: unknown"),
        ({"gpus_held": 1, "gpu_usd_per_hour": 2, "tokens_per_s": 5, "basis": ["x"]}, "unknown"),
        ({"solve_for": "truth", "usd_per_m": 1}, "solve_for truth: unknown"),
        ({"shares": {"small": 0.5, "big": 0.6}, "usd_per_m": {"small": 1, "big": 2}}, "do not add up"),
        ({"shares": {"small": 0.5}, "usd_per_m": {"small": 1, "big": 2}}, "is no mapping of small and big"),
        ({"shares": {"small": 0.5, "big": 0.5}, "usd_per_m": 3}, "is no mapping of small and big"),
        ({"shares": {"small": "x", "big": 0.5}, "usd_per_m": {"small": 1, "big": 2}}, "do not add up"),
        ({"shares": {"small": 0.5, "big": 0.5}, "usd_per_m": {"small": 1, "big": 2}, "escalate": "x"}, "escalate: 'x'"),
        ({"attainment_tokens": 1.5, "usd_per_m": 1}, "attainment_tokens: 1.5"),
        ({"wasted_share": 0.5}, "usd_per_hour: None"),
        ({"gpus_held": 1, "gpu_usd_per_hour": 2, "model": "nobody", "gpu": "H100"}, "kind None"),
    ],
)
def test_a_case_that_cannot_be_answered_has_nulls_and_says_why(case: dict[str, Any], message: str) -> None:
    (row,) = rows([case])
    assert message in row["reason"]
    assert all(row[name] is None for name in FIGURES[row["kind"]])
