"""Questions that the tests of the search ask."""

from dataclasses import replace
from typing import Any

from planner.catalogue import known_model
from planner.search.question import Allowed, Arrivals, Question
from planner.simulate.run import Limits


def asked(model: str = "Qwen/Qwen3-32B", *, rate: float = 5.0, tokens: tuple[float, float] = (1200.0, 300.0),
          limits: Limits | None = None, **changed: Any) -> Question:  # fmt: skip
    """A question about one model, on H100 unless told otherwise."""
    base = Question(
        known_model(model), Arrivals(rate, *tokens), limits or Limits(ttft_s=0.5, tpot_s=0.05), allowed=Allowed(gpus=("H100",))
    )  # fmt: skip
    return replace(base, **changed)
