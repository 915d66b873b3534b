import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.experiments.values import (
    Arm,
    Experiment,
    Factor,
    Measured,
    Metric,
    Prediction,
    Run,
    from_body,
    not_in_effect,
    to_body,
)
from tests.planner.experiments.sides import changed

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.text(), st.lists(FLOATS, max_size=5), st.dictionaries(st.text(), st.text(), max_size=3))
def test_an_experiment_comes_back_from_json_as_it_was(text: str, values: list[float], flags: dict[str, str]) -> None:
    run = Run(0, {"m": Measured(tuple(values))}, gpus=2.0)
    one = Experiment(
        "id", text, "abba", Arm("a", (run,), intended=flags), Arm("b", effective=flags),
        (Metric("m", "s", "lower"),), Factor("f", text, ""), predictions=(Prediction("m", 0.5, 0.9),), notes=(text,),
    )  # fmt: skip
    assert from_body(json.loads(json.dumps(to_body(one)))) == one


def test_a_body_of_a_newer_version_is_refused_with_the_place() -> None:
    with pytest.raises(ConfigError, match=r"colour: .*newer version"):
        from_body({**to_body(changed(1.0)), "colour": "red"})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_was_not_measured_cannot_be_kept_as_a_number(value: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        Measured((1.0, value))


def test_a_rate_over_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Measured(numerator=1.0, denominator=0.0)


def test_engines_that_write_true_and_one_for_the_same_flag_are_understood() -> None:
    arm = Arm("a", intended={"x": "True", "y": "64"}, effective={"x": "true", "y": "64.0", "z": "1"})
    assert not_in_effect(arm) == ()


def test_an_engine_that_does_not_tell_is_not_accused() -> None:
    assert not_in_effect(Arm("a", intended={"x": "1"})) == ()
