"""Equal arms seldom get a verdict; the full figures come from ``python -m tests.bench.experiments``."""

import random

import pytest

from planner.experiments.designs import judge
from tests.bench.experiments import experiment


@pytest.mark.parametrize(("design", "repeats"), [("before_after", 6), ("interleaved", 6), ("abba", 3), ("canary", 10)])
@pytest.mark.parametrize("noise", ["correlated", "drifting"])
def test_equal_arms_seldom_get_a_verdict(design: str, repeats: int, noise: str) -> None:
    rng = random.Random(11)
    found = [judge(experiment(design, noise, repeats, 0.0, rng)).outcome for _ in range(60)]
    # 60 pairs at 5 % have more than 7 false ones in 1 % of cases
    assert sum(outcome in ("better", "worse") for outcome in found) <= 7


def test_a_tenth_more_time_is_seen_by_three_quads() -> None:
    rng = random.Random(12)
    found = [judge(experiment("abba", "independent", 3, 0.1, rng)).outcome for _ in range(40)]
    assert found.count("worse") >= 30
    assert "better" not in found
