"""Error budgets, burn rates and windows against numbers of the SRE Workbook and sums done by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.slo import (
    DAY_S,
    Budget,
    BurnPair,
    Events,
    budget_left,
    budget_ratio,
    burn_pairs,
    burn_rate,
    exhaustion,
    failures_that_trip,
    wilson,
)

HOUR_S = 3600.0


def by_tier(objective: float, days: float) -> dict[str, BurnPair]:
    return {pair.tier: pair for pair in burn_pairs(objective, days * DAY_S)}


def test_no_traffic_is_neither_good_nor_bad() -> None:
    assert Events(0, 0).error_ratio is None
    assert burn_rate(Events(0, 0), 0.99) is None


def test_a_budget_without_traffic_is_whole_and_without_data_is_unknown() -> None:
    assert budget_left(Events(0, 0), 0.99) == Budget(1.0)
    assert budget_left(None, 0.99) is None


def test_a_budget_can_be_overdrawn() -> None:
    # 4 % bad of a budget of 1 %: four budgets are gone.
    assert budget_left(Events(960, 1000), 0.99) == Budget(-3.0)


def test_more_good_than_events_is_broken_data_and_not_104_per_cent() -> None:
    assert budget_left(Events(1001, 1000), 0.99) == Budget(1.1, broken=True)


@pytest.mark.parametrize(("objective", "budget"), [(0.999, 0.001), (0.9995, 0.0005), (0.93, 0.07), (0.9999, 0.0001)])
def test_a_budget_has_no_binary_noise(objective: float, budget: float) -> None:
    assert budget_ratio(objective) == budget


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        # SRE Workbook, table 5-8, 30 days: 2, 5, 10, 10 % of the budget in 1 h, 6 h, 1 d, 3 d.
        (30, {"fast": (14.4, 1), "medium": (6, 6), "slow": (3, 24), "long": (1, 72)}),
        # The same shares of 28 days: 0.02 x 672 / 1, 0.05 x 672 / 6, 0.1 x 672 / 24, 0.1 x 672 / 72.
        (28, {"fast": (13.44, 1), "medium": (5.6, 6), "slow": (2.8, 24), "long": (0.933333333333, 72)}),
        # A week: 8, 12.5, 20 and 42 % of 168 hours.
        (7, {"fast": (13.44, 1), "medium": (3.5, 6), "slow": (1.4, 24), "long": (0.98, 72)}),
        # A quarter: pages as in a month, tickets three times as long.
        (90, {"fast": (14.4, 1), "medium": (6, 6), "slow": (3, 72), "long": (1, 216)}),
    ],
)
def test_windows_and_factors(days: int, expected: dict[str, tuple[float, float]]) -> None:
    found = {tier: (pair.factor, pair.long_s / HOUR_S) for tier, pair in by_tier(0.999, days).items()}
    assert found == expected


@pytest.mark.parametrize(("tier", "share"), [("fast", 0.02), ("medium", 0.05), ("slow", 0.10), ("long", 0.10)])
def test_the_share_of_the_budget_that_is_gone_at_the_alert(tier: str, share: float) -> None:
    assert by_tier(0.999, 30)[tier].budget_share(30 * DAY_S) == pytest.approx(share)


@pytest.mark.parametrize(
    ("objective", "threshold", "outage_min"),
    [
        (0.999, 0.0144, 0.864),  # 60 x 0.0144
        (0.99, 0.144, 8.64),
        (0.95, 0.525, 7.875),  # 14.4 x 0.05 = 72 % would take 43 min; half way of 15 min: 15 x 0.525
        (0.90, 0.55, 8.25),  # 14.4 x 0.1 = 144 % could never fire
        (0.80, 0.6, 9.0),
        (0.50, 0.75, 11.25),
    ],
)
def test_a_total_outage_pages_within_a_quarter_of_an_hour(
    objective: float, threshold: float, outage_min: float
) -> None:
    pages = [pair for pair in burn_pairs(objective, 30 * DAY_S) if pair.severity == "page"]
    assert pages[0].threshold_ratio == threshold
    assert min(after for pair in pages if (after := pair.fires_after_s(1.0)) is not None) / 60 == pytest.approx(
        outage_min
    )


def test_a_burn_of_just_the_threshold_never_fires() -> None:
    fast = by_tier(0.99, 30)["fast"]
    assert fast.fires_after_s(0.144) is None
    assert fast.fires_after_s(0.288) == pytest.approx(1800.0)  # half of the hour


def test_the_short_window_lets_go() -> None:
    assert by_tier(0.99, 30)["fast"].lets_go_after_s(1.0) == pytest.approx(300 * (1 - 0.144))


@pytest.mark.parametrize("objective", [0.0, 1.0, 99.0])
def test_an_objective_is_a_share(objective: float) -> None:
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        burn_pairs(objective, 30 * DAY_S)


def test_a_window_that_holds_no_two_scrapes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fewer than two scrapes of 15 s.*longer period"):
        burn_pairs(0.99, 3600.0)


@given(st.floats(0.01, 0.9999), st.floats(1, 365))
def test_every_pair_can_fire_and_pages_come_before_tickets(objective: float, days: float) -> None:
    pairs = burn_pairs(objective, days * DAY_S)
    assert all(pair.threshold_ratio < 1 for pair in pairs)
    assert all(pair.factor >= 0.9 for pair in pairs)
    assert all(pair.short_s * 12 == pytest.approx(pair.long_s) or pair.tier == "outage" for pair in pairs)
    assert all(pair.long_s == int(pair.long_s) and pair.short_s == int(pair.short_s) for pair in pairs)
    page = min(pair.fires_after_s(1.0) or math.inf for pair in pairs if pair.severity == "page")
    ticket = min(pair.fires_after_s(1.0) or math.inf for pair in pairs if pair.severity == "ticket")
    assert page <= 15 * 60
    assert page <= ticket


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=9), st.floats(0.5, 0.999))
def test_ratios_come_from_summed_counts(windows: list[tuple[int, int]], objective: float) -> None:
    events = [Events(good, good + bad) for good, bad in windows]
    summed = sum(events, Events(0, 0))
    bad, total = sum(bad for _, bad in windows), sum(good + bad for good, bad in windows)
    expected = None if total == 0 else bad / total / budget_ratio(objective)
    found = burn_rate(summed, objective)
    assert found is expected or found == pytest.approx(expected, abs=1e-9)


def test_a_quiet_bad_night_counts_by_its_requests() -> None:
    """A mean of ratios would say (0.001 + 0.5) / 2 = 25 % bad; by requests it is 1500 of 1,001,000."""
    assert (Events(999_000, 1_000_000) + Events(500, 1_000)).error_ratio == pytest.approx(1500 / 1_001_000)


def test_the_budget_of_half_a_month_at_burn_two_lasts_a_week_and_a_half() -> None:
    """Half of the budget, burn 2: 0.5 x 30 d / 2 = 7.5 d."""
    found = exhaustion(0.5, Events(9_800, 10_000), 0.99, 30 * DAY_S)
    assert found is not None
    assert found.expected_s == pytest.approx(7.5 * DAY_S)
    assert found.soonest_s is not None
    assert found.latest_s is not None
    # Wilson, 200 of 10,000, z = 1.96: centre (0.02 + z²/20000) / (1 + z²/10000) = 2.01843 %, half
    # 1.96 / (1 + z²/10000) * sqrt(0.02 * 0.98 / 10000 + z² / (4 * 10000²)) = 0.27497 %: 1.7435 to 2.2934 %.
    assert found.soonest_s == pytest.approx(0.5 * 30 * DAY_S * 0.01 / 0.02293, rel=2e-3)
    assert found.latest_s == pytest.approx(0.5 * 30 * DAY_S * 0.01 / 0.01744, rel=2e-3)


def test_without_errors_the_end_is_out_of_sight_but_not_excluded() -> None:
    found = exhaustion(0.5, Events(100, 100), 0.99, 30 * DAY_S)
    assert found is not None
    assert (found.expected_s, found.latest_s) == (None, None)
    assert found.soonest_s is not None  # no error in a hundred may still be 3.7 %


def test_no_events_give_no_forecast_and_an_overdrawn_budget_is_over_now() -> None:
    assert exhaustion(0.5, Events(0, 0), 0.99, DAY_S) is None
    over = exhaustion(-1.0, Events(90, 100), 0.99, DAY_S)
    assert over is not None
    assert over.expected_s == 0


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_the_interval_holds_the_observed_share(bad: int, total: int) -> None:
    share = min(bad, total) / total
    low, high = wilson(min(bad, total), total)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


@pytest.mark.parametrize(
    ("objective", "requests", "failures"),
    [
        # One failure trips the hour at most at 6 requests (99 %), 69 (99.9 %), 138 (99.95 %): 1 / 6 > 0.144 > 1 / 7.
        (0.99, 6, 1), (0.99, 7, 2), (0.999, 69, 1), (0.999, 70, 2), (0.9995, 138, 1), (0.9995, 139, 2),
    ],
)  # fmt: skip
def test_the_failures_that_trip_the_hour(objective: float, requests: int, failures: int) -> None:
    assert failures_that_trip(by_tier(objective, 30)["fast"], requests / HOUR_S) == failures
