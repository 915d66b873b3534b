import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Limits
from planner.experiments.sweep import (
    Client,
    Level,
    Plan,
    Sent,
    client_limits,
    knee,
    levels,
    requests_at,
    scaling_limit,
    shares,
)


def level(
    running: int, tpot_s: float, *, clients: tuple[Client, ...] = (), ttft_s: float = 0.1, cold: bool = False
) -> Level:
    """A closed loop of equal requests: 101 tokens each, four rounds."""
    e2e = ttft_s + 100 * tpot_s
    sent = tuple(Sent(turn * e2e, 0.0, e2e, ttft_s, 101, 101) for turn in range(4) for _ in range(running))
    return Level(running, 0, sent, clients, cold)


def curve(batch: int) -> float:
    """TPOT of a step that costs 10 ms and 0.2 ms for each sequence: elasticity 1/2 where both are equal, at 50."""
    return 0.010 + 0.0002 * batch


def test_the_knee_is_where_tpot_grows_half_as_fast_as_the_batch() -> None:
    found = knee([level(n, curve(n)) for n in levels(1, 512)])
    assert found.running == pytest.approx(50, rel=0.1)
    assert found.level == 32


def test_a_sweep_that_ends_too_early_says_go_higher() -> None:
    found = knee([level(n, curve(n)) for n in (1, 2, 4, 8)])
    assert found.running is None
    assert "go higher" in found.text


def test_a_sweep_that_begins_too_late_says_begin_lower() -> None:
    assert "begin lower" in knee([level(n, curve(n)) for n in (256, 512, 1024)]).text


def test_a_cold_start_is_not_part_of_the_knee() -> None:
    warm = [level(n, curve(n)) for n in levels(1, 512)]
    assert knee([level(1, 5.0, cold=True), *warm]) == knee(warm)


def test_load_that_does_not_grow_is_told() -> None:
    one = level(4, 0.01)
    stuck = [Level(n, 0, one.requests) for n in (4, 8, 16)]
    assert knee(stuck).running is None


def test_two_levels_show_no_knee() -> None:
    assert "three levels" in knee([level(1, 0.01), level(2, 0.01)]).text


def test_requests_at_once_are_time_in_the_system_over_time() -> None:
    assert level(8, 0.01).running == pytest.approx(8)


def test_goodness_is_joint_and_failures_are_not_good() -> None:
    one = Level(1, 0, (Sent(0, 0, 1.1, 0.1, 101), Sent(0, 0, 9.1, 0.1, 101), Sent(0, 0, 1.0, error="HTTP 500"),
                       Sent(0, 0, 0.1, 0.1, 1)))  # fmt: skip
    assert one.attainment_ratio(Limits(ttft_s=0.5, tpot_s=0.05)) == 0.5
    assert Level(1, 0, ()).attainment_ratio(Limits(ttft_s=0.5)) is None


def test_a_target_on_what_was_not_measured_gives_no_share() -> None:
    assert Level(1, 0, (Sent(0, 0, 1.0, None, 5),)).attainment_ratio(Limits(ttft_s=0.5)) is None


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (Client(0.95, 0.0), "level 8: a client process used up to 95% of its core"),
        (Client(0.6, 0.02), "20.0 ms late (P99): use more --processes"),
        (Client(0.1, 0.02), "busy with other work"),
        (Client(None, None), "cannot be ruled out"),
    ],
)
def test_a_client_that_may_have_been_the_limit_is_named(client: Client, says: str) -> None:
    assert any(says in said for said in client_limits([level(8, 0.01, clients=(client,))]))


def test_the_same_sign_at_several_levels_is_told_once() -> None:
    busy = (Client(0.9, 0.0),)
    (said,) = client_limits([level(n, 0.01, clients=busy) for n in (8, 2, 8)])
    assert said.startswith("level 2, 8: ")


def test_a_client_with_time_to_spare_is_not_suspected() -> None:
    assert client_limits([level(8, 0.01, clients=(Client(0.2, 0.0005),) * 2)]) == ()


def test_requests_that_were_sent_late_are_told() -> None:
    late = Level(8, 0, tuple(Sent(0.0, 0.05, 1.1, 0.1, 101) for _ in range(10)), (Client(0.1, 0.0),))
    assert any("sent up to 50.0 ms late" in said for said in client_limits([late]))


def test_more_clients_that_get_more_were_the_limit() -> None:
    slow, quick = level(8, 0.02, clients=(Client(0.5, 0.0),)), level(8, 0.01, clients=(Client(0.5, 0.0),) * 2)
    assert "the client was the limit" in (scaling_limit(slow, quick) or "")
    assert scaling_limit(quick, quick) is None


def test_enough_requests_for_a_p99_and_for_the_loop_to_come_round() -> None:
    assert [requests_at(Plan((1.0,)), n) for n in (1, 64)] == [100, 512]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2, 1), (1, float("inf")), (-1, 1)])
def test_levels_that_make_no_sweep_are_refused(low: float, high: float) -> None:
    with pytest.raises(ConfigError, match="levels"):
        levels(low, high)


@given(st.integers(1, 64), st.integers(1, 2000))
def test_levels_ascend_from_the_first_to_the_last(low: int, more: int) -> None:
    found = levels(low, low + more)
    assert found[0] == low
    assert found[-1] == low + more
    assert list(found) == sorted(set(found))


@given(st.integers(1, 10_000), st.integers(1, 64))
def test_shares_add_up_and_are_even(total: int, processes: int) -> None:
    found = shares(total, processes)
    assert sum(found) == total
    assert min(found) > 0
    assert max(found) - min(found) <= 1
