import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.duration import LONGEST_S, duration_s, duration_text


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("15s", 15.0),
        ("500ms", 0.5),
        ("250us", 0.00025),
        ("30d", 30 * 86400.0),
        ("2w", 14 * 86400.0),
        ("1h30m", 5400.0),
        ("1d2h3m4s5ms", 93784.005),
        ("1.5h", 5400.0),
        ("0s", 0.0),
        (" 15s ", 15.0),
        ("15", 15.0),
        (15, 15.0),
        (0.3, 0.3),
        ("0.3s", 0.3),
    ],
)
def test_a_duration_is_read_as_seconds(written: object, seconds: float) -> None:
    assert duration_s(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "", " ", "s", "15 s", "15sec", "1h 30m", "30m1h", "1h1h", "-5s", -1, "1e3s", "٣s", "5M", ".5s", "5.s",
        True, None, [], {}, b"15s", math.nan, "nan", "9" * 65,
    ],
)  # fmt: skip
def test_what_is_no_duration_says_what_would_be(written: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write for example"):
        duration_s(written)


@pytest.mark.parametrize("written", ["36501d", "1" + "0" * 40 + "d", math.inf, 10**400, 1e300])
def test_a_duration_that_would_overflow_timers_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="longer than 36500d"):
        duration_s(written)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (15.0, "15s"),
        (0.5, "500ms"),
        (0.00025, "250us"),
        (1.5, "1.5s"),
        (5400.0, "1h30m"),
        (90.0, "1m30s"),
        (92 * 86400.0, "92d"),
        (0.0, "0s"),
        (100.0, "1m40s"),
        (10.0, "10s"),
        (1e-7, "0.0000001s"),
    ],
)
def test_seconds_are_written_short(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(min_value=0, max_value=LONGEST_S).filter(lambda s: s == 0 or s > 1e-9))
def test_what_is_written_reads_back_as_the_same_float(seconds: float) -> None:
    assert duration_s(duration_text(seconds)) == seconds
