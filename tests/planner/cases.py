"""The public logs that the ledger is held to: half of them, as figures (tests/planner/data/vram-cases.yaml)."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from planner.catalogue import accelerators, engine_budgets
from planner.ledger import ledger
from planner.vram import Ledger
from planner.vram_cases import evaluate, request_of_case

FILE: Final = Path(__file__).parent / "data" / "vram-cases.yaml"
#: what a prediction may not see
ANSWERS: Final = ("observed", "outcome", "check", "note", "classes")


@cache
def cases() -> Mapping[str, Mapping[str, Any]]:
    """Every case by its id."""
    return {case["id"]: case for case in yaml.safe_load(FILE.read_text())["cases"]}


def question(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case without its answers."""
    return {key: value for key, value in case.items() if key not in ANSWERS}


@cache
def predicted(name: str) -> Mapping[str, Any]:
    """Our row for a case, by the question alone."""
    return evaluate(question(cases()[name]), engine_budgets(), accelerators())


def case_ledger(name: str) -> Ledger:
    """The whole ledger of a case."""
    return ledger(request_of_case(question(cases()[name]), engine_budgets(), accelerators()))
