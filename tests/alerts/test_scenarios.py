"""What the burn rules do minute by minute, in promtool, against times that were computed by hand.

The objective is 99 % (budget 0.01), 1000 requests a minute, after six clean hours unless a case says otherwise. A
pair fires when error ratio x minutes / long window > factor x 0.01. Thresholds: 30 d 14.4 % in 1 h and 6 % in 6 h,
28 d 13.44 % and 5.6 %, 7 d 13.44 % and 3.5 %. Scrapes are a minute apart: a check is never closer than that.
"""

from pathlib import Path
from typing import Final

import pytest

from alerts.promtool import PAGE, TICKET, Check, Scenario, Traffic, unit_tests
from alerts.rules.build import build
from alerts.rules.files import prometheus_files
from alerts.rules.values import Group, RuleSet
from goodwatch.core.slo import Slo
from tests.alerts.services import OPTIONS, first_token, needs_promtool, promtool, written

HOURS_6: Final = Traffic(360, 1000)
ALL_BAD: Final = 1000


def silent(*minutes: int) -> tuple[Check, ...]:
    return tuple(Check(minute, alert, False) for minute in minutes for alert in (PAGE, TICKET))


def between(last_silent: int, first_firing: int, alert: str = PAGE) -> tuple[Check, ...]:
    return (Check(last_silent, alert, False), Check(first_firing, alert, True))


# Outage of everything: 60 x 0.144 / 1 = 8.64 min (30 d), 60 x 0.1344 = 8.06 min (28 d, 7 d); 6 h: 21.6, 20.2, 12.6 min.
OUTAGE: Final = between(360 + 7, 360 + 10)

SCENARIOS: Final = (
    # 0.1 % bad is a tenth of the budget's pace.
    Scenario("steady good", (Traffic(420, 1000, 1),), silent(60, 180, 300, 410), ((400, 0.9),)),
    # 5 / 60 = 8.3 %, 5 / 360 = 1.4 %: under every threshold of the page, in 7 days too (3.5 %).
    Scenario(
        "five-minute spike",
        (HOURS_6, Traffic(5, 1000, ALL_BAD), Traffic(60, 1000)),
        tuple(Check(minute, PAGE, False) for minute in (364, 366, 370, 400)),
    ),
    Scenario("counter reset", (HOURS_6, Traffic(30, 1000, reset=True)), silent(360, 361, 365, 380)),
    # A reset in the middle of an outage costs the requests of one scrape at most: 60 x 0.144 + 1 minute.
    Scenario(
        "counter reset in an outage",
        (HOURS_6, Traffic(4, 1000, ALL_BAD), Traffic(20, 1000, ALL_BAD, reset=True)),
        between(360 + 7, 360 + 11),
    ),
    Scenario(
        "scrape gaps",
        (HOURS_6, *(Traffic(7, 1000), Traffic(3, 1000, up=None)) * 5, Traffic(10, 1000)),
        silent(365, 369, 375, 385, 395, 415),
    ),
    # The gap of 3 minutes is inside the 5 minutes of the short window; what was missed is in the next increase.
    Scenario(
        "scrape gaps in an outage",
        (HOURS_6, Traffic(3, 1000, ALL_BAD), Traffic(3, 1000, ALL_BAD, up=None), Traffic(20, 1000, ALL_BAD)),
        OUTAGE,
    ),
    # No history: all that there is is bad, so the page comes with the second scrape (minutes 30 and 31).
    Scenario("series appear late", (Traffic(30, 0, up=None), Traffic(20, 1000, ALL_BAD)), between(29, 32)),
    Scenario("series appear late and good", (Traffic(30, 0, up=None), Traffic(60, 1000)), silent(29, 31, 35, 60)),
    Scenario("restart with a new pod label", (HOURS_6, Traffic(60, 1000, pod="b")), silent(361, 363, 370, 410)),
    # A pod's first scrape sets its baseline: the outage of the new pod is seen from its second one on.
    Scenario(
        "restart with a new pod label in an outage",
        (HOURS_6, Traffic(15, 1000, ALL_BAD), Traffic(15, 1000, ALL_BAD, pod="b")),
        (*OUTAGE, *(Check(minute, PAGE, True) for minute in range(371, 389, 2))),
    ),
    Scenario("zero traffic", (Traffic(60, 0),), silent(10, 30, 55), ((10, 1.0), (50, 1.0))),
    # 12 minutes: 20 % of the hour, 3.3 % of six: only the fast pair fires. Its short window lets go after
    # 5 x (1 - 0.144) = 4.3 min (28 d, 7 d: 4.3), and the alert is held for 15 minutes more: 372 + 19.3 = 391.3.
    Scenario(
        "recovery",
        (HOURS_6, Traffic(12, 1000, ALL_BAD), Traffic(40, 1000)),
        (*OUTAGE, Check(389, PAGE, True), Check(394, PAGE, False)),
    ),
    # Ten minutes bad, ten good: 10 / 60 = 16.7 % fires in the first bad ten; the short window empties for five
    # minutes of each twenty, which the held alert bridges: it never resolves, so nobody is paged again.
    Scenario(
        "flapping",
        (HOURS_6, *(Traffic(10, 1000, ALL_BAD), Traffic(10, 1000)) * 4),
        (*OUTAGE, *(Check(minute, PAGE, True) for minute in range(370, 440, 3))),
    ),
)

# 14.4 x burn. 30 d: 14.4 % is not over 14.4 % in the hour; six hours: 360 x 0.06 / 0.144 = 150 min.
# 28 d and 7 d: 60 x 0.1344 / 0.144 = 56 min. (7 d, six hours: 360 x 0.035 / 0.144 = 87.5 min, later.)
BURN_14: Final = {30: between(510 - 3, 510 + 2), 28: between(416 - 3, 416 + 2), 7: between(416 - 3, 416 + 2)}


def rules_of(slo: Slo) -> RuleSet:
    """The SLO's own groups: the alerts beside them are another test's."""
    rules = build([slo], OPTIONS)
    keep = tuple(group for group in rules.groups if group.name.startswith(f"goodwatch-slo-{slo.name}"))
    return RuleSet({"slo": keep})


def assert_passes(folder: Path, slo: Slo, scenarios: tuple[Scenario, ...], *, every: str) -> None:
    rules = rules_of(slo)
    written(folder, prometheus_files(rules, OPTIONS))
    text = unit_tests(slo, OPTIONS, "slo.rules.yaml", scenarios)
    assert text is not None
    written(folder, {"slo.test.yaml": text.replace("evaluation_interval: 1m", f"evaluation_interval: {every}")})
    done = promtool(folder, "test", "rules", "slo.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("days", [30, 28, 7])
def test_the_page_fires_when_it_must_and_only_then(days: int, tmp_path: Path) -> None:
    burn = Scenario("14.4 x burn", (HOURS_6, Traffic(160, 1000, 144)), BURN_14[days])
    assert_passes(tmp_path, first_token(days), (*SCENARIOS, burn), every="1m")


@needs_promtool
@pytest.mark.parametrize("days", [30, 28, 7])
def test_one_failed_request_a_minute_pages_nobody(days: int, tmp_path: Path) -> None:
    """At 99.9 % one of 60 is 1.67 %, over 1.44 %: only the least number of failures (5) holds the page back."""
    traffic = (Traffic(120, 1), Traffic(1, 1, 1), Traffic(80, 1))
    one = Scenario("one failure", traffic, silent(119, 121, 130, 150, 180, 195))
    # Five failures in a row are not an accident any more: the fifth pages.
    five = Scenario("five failures", (Traffic(120, 1), Traffic(8, 1, 1)), between(123, 127))
    assert_passes(tmp_path, first_token(days, 0.999), (one, five), every="1m")


@needs_promtool
@pytest.mark.parametrize(
    ("days", "ticket_min"),
    [
        (30, None),  # factor 1: exactly the budget's pace is not over it
        (28, 4032),  # 3 d x 0.9333 / 1 = 4032 min
        (7, 4233),  # 3 d x 0.98 / 1 = 4233.6 min
    ],
)
def test_a_burn_of_one_pages_nobody_and_tickets_only_where_the_factor_is_below_one(
    days: int, ticket_min: int | None, tmp_path: Path
) -> None:
    clean = 3 * 1440
    checks = [Check(clean + minute, PAGE, False) for minute in (600, 2000, 4400)]
    if ticket_min is None:
        checks += [Check(clean + minute, TICKET, False) for minute in (2000, 4000, 4300, 4400)]
    else:
        checks += between(clean + ticket_min - 15, clean + ticket_min + 15, TICKET)
    traffic = (Traffic(clean, 1000), Traffic(4440, 1000, 10))
    assert_passes(
        tmp_path, first_token(days), (Scenario("1 x burn", traffic, tuple(checks), every_s=300.0),), every="5m"
    )


@needs_promtool
def test_a_five_minute_spike_is_no_ticket_either(tmp_path: Path) -> None:
    """After three clean days: 5 / 1440 = 0.35 % of a day (ticket over 3 %), 5 / 4320 = 0.12 % of three (over 1 %)."""
    traffic = (Traffic(3 * 1440, 1000), Traffic(5, 1000, ALL_BAD), Traffic(300, 1000))
    spike = Scenario("spike", traffic, silent(*range(4320, 4620, 30)), every_s=300.0)
    assert_passes(tmp_path, first_token(30), (spike,), every="5m")


@needs_promtool
@pytest.mark.parametrize(("objective", "fires_min"), [(0.95, 8), (0.9, 8.25), (0.8, 9)])
def test_a_total_outage_pages_within_minutes_where_the_usual_factor_cannot_be_reached(
    objective: float, fires_min: float, tmp_path: Path
) -> None:
    """14.4 x 0.1 = 144 % bad never comes. Half way: 52.5, 55, 60 %; of 15 minutes 7.9, 8.25 and 9 minutes."""
    outage = Scenario(
        "outage",
        (Traffic(120, 1000), Traffic(20, 1000, ALL_BAD)),
        between(120 + int(fires_min) - 2, 120 + int(fires_min) + 3),
    )
    assert_passes(tmp_path, first_token(30, objective), (outage,), every="1m")


def test_a_group_holds_recordings_before_the_alerts_that_read_them() -> None:
    (first, _) = rules_of(first_token(30)).groups
    assert isinstance(first, Group)
    assert first.rules[-2:] == first.alerts
