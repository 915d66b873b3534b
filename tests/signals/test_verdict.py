"""One line for someone awake at 3 am: the worst thing that is true comes first."""

from dataclasses import replace

import pytest

from goodwatch.app.engines import known_engines
from goodwatch.core.model import Absence, Basis, Bounds, Limits, Number
from goodwatch.signals.derive import MEANINGS, Derived, derive
from goodwatch.signals.saturation import Limit, Saturation, Stall
from goodwatch.signals.verdict import Reach, Verdict, verdict

LIMITS = Limits(ttft_s=0.5)
UP = Reach(total=2, up=2, pending=0)
KV = Saturation("t", (), Limit("kv_cache", 1.0, "2 preemptions: requests lost their KV space"))


def derived(**numbers: Number) -> Derived:
    """Numbers of a service; those that are not given are not measurable."""
    rest = {n: Number.none(m.unit, Absence.NOT_MEASURABLE) for n, m in MEANINGS.items()}
    calm = {
        "request_rate_per_s": Number("1/s", Basis.MEASURED, 5.0),
        "requests_running": Number("", Basis.MEASURED, 3.0),
    }
    return Derived(0.0, 300.0, {**rest, **calm, **numbers}, None, ())


def attained(low: float, high: float) -> dict[str, Number]:
    return {"attainment_ratio": Number("ratio", Basis.BOUNDED, bounds=Bounds(low, high))}


def judged(found: Derived, reach: Reach = UP, **more: object) -> Verdict:
    return verdict(found, LIMITS, 0.99, reach, **more)  # type: ignore[arg-type]


def test_no_targets_and_targets_not_scraped_yet_are_no_data() -> None:
    assert judged(derived(), Reach(0, 0, 0)).state == "no data"
    found = judged(derived(), Reach(2, 0, 2))
    assert (found.state, found.headline) == ("no data", "not scraped yet")


def test_when_nothing_answers_that_is_the_headline() -> None:
    found = judged(derived(**attained(0.2, 0.3)), Reach(2, 0, 0, "connection refused"))
    assert (found.state, found.headline) == ("bad", "no target can be read: connection refused")


def test_a_stall_comes_before_a_missed_objective() -> None:
    found = judged(derived(**attained(0.2, 0.3)), stalls=[Stall("t", 0.0, 4, 7.0, 2.0)])
    assert found.state == "bad"
    assert found.headline == "t stands still: 7 running, 2 waiting, and no token for 4 scrapes"


def test_a_missed_objective_says_how_far_and_why() -> None:
    slow = Number("s", Basis.BOUNDED, bounds=Bounds(2.5, 5.0))
    found = judged(derived(**attained(0.5, 0.6), ttft_p90_seconds=slow), saturations=[KV])
    assert found.state == "bad"
    assert "50 to 60 %" in found.headline
    assert "TTFT above 2.5 s against 0.5 s" in found.headline
    assert "2 preemptions" in found.headline


def test_a_missed_objective_comes_before_a_target_that_is_down() -> None:
    assert judged(derived(**attained(0.5, 0.6)), Reach(2, 1, 0, "timeout")).state == "bad"


def test_bounds_that_hold_the_objective_accuse_nobody() -> None:
    found = judged(derived(**attained(0.5, 1.0)))
    assert found.state == "good"
    assert "too wide to prove it" in found.headline


def test_bounds_that_hold_the_objective_warn_when_a_limit_binds() -> None:
    assert judged(derived(**attained(0.5, 1.0)), saturations=[KV]).state == "warning"


def test_a_target_that_is_down_is_a_warning_with_its_error() -> None:
    found = judged(derived(**attained(1.0, 1.0)), Reach(3, 2, 0, "timeout after 3 s"))
    assert (found.state, found.headline) == ("warning", "1 of 3 targets cannot be read: timeout after 3 s")


def test_meeting_the_objective_is_good() -> None:
    assert judged(derived(**attained(0.995, 1.0))) == Verdict("good", "meets its objective")


def test_no_traffic_is_neither_good_nor_bad() -> None:
    none = Number.none("ratio", Absence.NO_TRAFFIC)
    quiet = derived(
        attainment_ratio=none, request_rate_per_s=Number("1/s", Basis.MEASURED, 0.0),
        requests_running=Number("", Basis.MEASURED, 0.0),
    )  # fmt: skip
    assert judged(quiet).state == "no traffic"


def test_requests_that_run_and_did_not_end_are_traffic() -> None:
    none = Number.none("ratio", Absence.NO_TRAFFIC, "no request ended in the window")
    busy = derived(attainment_ratio=none, request_rate_per_s=Number("1/s", Basis.MEASURED, 0.0))
    assert judged(busy).state != "no traffic"


def test_no_data_is_never_called_good() -> None:
    nothing = derive([], known_engines(), LIMITS, {}, start_s=0.0, end_s=300.0)
    assert judged(nothing).state == "no data"
    unknown = derived(attainment_ratio=Number.none("ratio", Absence.NOT_MEASURABLE, "the engine restarted"))
    found = judged(unknown)
    assert (found.state, found.headline) == ("no data", "the engine restarted")


@pytest.mark.parametrize("objective", [None, 0.5, 0.99])
def test_every_state_has_a_headline(objective: float | None) -> None:
    for found in (derived(), derived(**attained(0.1, 0.2)), derived(**attained(0.1, 1.0)), derived(**attained(1, 1))):
        for reach in (UP, replace(UP, up=1, error="x"), replace(UP, up=0, error="x"), Reach(2, 0, 2)):
            assert verdict(found, LIMITS, objective, reach).headline


def test_bounds_from_nothing_to_everything_are_no_praise() -> None:
    found = judged(derived(**attained(0.1, 1.0)))
    assert found.state == "no data"
    assert "too wide to say anything" in found.headline
