"""A few seconds of fuzzing of both doors; ``python -m tests.fuzz.otlp`` goes on for as long as one likes."""

import pytest

from tests.fuzz.otlp import fuzzed

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_every_mutated_body_is_answered_and_never_with_a_fault(door: str) -> None:
    report = fuzzed(door, seed=1, inputs=600)
    assert {kind: failure.error for kind, failure in report.failures.items()} == {}
    assert len(report.outcomes) >= 3 if door == "http" else 2
