import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import NoDataError
from planner.speed.calibrate import Terms, calibrate, carried

PRIOR = Terms(0.004, 2e-4, 1e-5)


def minutes(real: Terms, *, noise: float = 0.0, loads: tuple[float, float] = (2, 60), seed: int = 1) -> pl.DataFrame:
    dice = random.Random(seed)
    rows = []
    for _ in range(60):
        running = dice.uniform(*loads)
        tokens = running + dice.uniform(0, 1000)
        step = real.tpot_s(running, tokens)
        rows.append((running, tokens, step * (1 + dice.gauss(0, noise)), 0.02 + 6 * step))
    return pl.DataFrame(rows, schema=["running", "step_tokens", "tpot_s", "ttft_s"], orient="row")


def test_the_terms_of_an_engine_are_found_again() -> None:
    real = Terms(0.008, 1e-4, 3e-5)  # the truth that made the rows
    found = calibrate(minutes(real), PRIOR)
    for running, tokens in ((2, 2), (30, 500), (60, 1000)):
        assert found.terms.tpot_s(running, tokens) == pytest.approx(real.tpot_s(running, tokens), rel=0.08)
    assert found.lag_steps == pytest.approx(6, rel=0.1)


def test_a_fifth_of_wild_minutes_changes_little() -> None:
    real = Terms(0.008, 1e-4, 3e-5)
    frame = minutes(real, noise=0.03)
    wild = frame.with_row_index().with_columns(
        tpot_s=pl.when(pl.col("index") % 5 == 0).then(pl.col("tpot_s") * 8).otherwise(pl.col("tpot_s"))
    )
    found = calibrate(wild, PRIOR)
    assert found.terms.tpot_s(30, 500) == pytest.approx(real.tpot_s(30, 500), rel=0.12)


def test_loads_that_were_never_seen_have_a_wider_band() -> None:
    found = calibrate(minutes(Terms(0.008, 1e-4, 3e-5), noise=0.03, loads=(4, 16)), PRIOR)
    inside, outside = found.tpot_s(10, 100), found.tpot_s(128, 300)
    assert outside.high / outside.point > inside.high / inside.point
    assert "outside" in outside.basis


def test_old_minutes_fade() -> None:
    old = minutes(Terms(0.016, 2e-4, 6e-5)).with_columns(ts=pl.lit(0.0))
    new = minutes(Terms(0.008, 1e-4, 3e-5), seed=2).with_columns(ts=pl.lit(86_400.0))
    found = calibrate(pl.concat([old, new]), PRIOR, half_life_s=3600)
    assert found.terms.tpot_s(30, 500) == pytest.approx(Terms(0.008, 1e-4, 3e-5).tpot_s(30, 500), rel=0.1)


def test_one_minute_moves_the_level_and_says_how_little_it_knows() -> None:
    frame = pl.DataFrame({"running": [10.0], "step_tokens": [10.0], "tpot_s": [PRIOR.tpot_s(10, 10) * 2]})
    found = calibrate(frame, PRIOR)
    assert found.ratio == pytest.approx(2)
    assert found.sigma >= 0.1
    assert found.lag_steps is None


def test_minutes_without_requests_are_no_data() -> None:
    frame = pl.DataFrame({"running": [0.0, None], "step_tokens": [0.0, 1.0], "tpot_s": [None, 0.01]})
    with pytest.raises(NoDataError, match="nothing to calibrate on"):
        calibrate(frame, PRIOR)


@given(st.floats(0.2, 5), st.floats(0, 5), st.floats(0, 5))
def test_no_term_is_ever_negative(fixed: float, running: float, prefill: float) -> None:
    real = Terms(0.004 * fixed, 2e-4 * running, 1e-5 * prefill)
    found = calibrate(minutes(real, noise=0.2), PRIOR).terms
    assert min(found.fixed_s, found.running_s, found.prefill_token_s) >= 0


def test_an_engine_swap_is_carried_over_by_half_and_widely() -> None:
    found = carried(0.020, 1.44, ["engine"])
    assert found.point == pytest.approx(0.024)
    assert found.high / found.point == pytest.approx(1.28)
