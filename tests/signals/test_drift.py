"""Drift: what begins one, what ends it, and how often nothing at all looks like one."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodwatch.core.drift import Drift
from goodwatch.core.slo import DAY_S, Budget, Events, Forecast, Latency, Period, Slo, burn_pairs, exhaustion
from goodwatch.signals.budget import SloStatus, TargetStatus
from goodwatch.signals.drift import Hour, Trend, budget_drifts, ends_early, follow, key_of, look, shift

P99 = Trend("chat", "latency", "ttft_p99_seconds", "s", "up", 0.10, relative=True)
SLO = Slo("chat", "chat", 0.99, Latency("ttft_seconds", 0.5))


def series(seed: int, hours: int, *, noise: float = 0.1, memory: float = 0.7) -> list[float]:
    """A number with a day's and a week's season, and noise that lasts for hours (an autoregression)."""
    rng, wave, found = random.Random(seed), 0.0, []
    for hour in range(hours):
        wave = memory * wave + math.sqrt(1 - memory * memory) * rng.gauss(0, noise)
        season = 1 + 0.3 * math.sin(2 * math.pi * hour / 24) - 0.3 * (hour // 24 % 7 >= 5)
        found.append(season * math.exp(wave))
    return found


def looked(values: Sequence[float], since: int, every: int = 1) -> list[tuple[int, bool]]:
    """What is said at each hour from ``since`` on."""
    hours = [Hour(hour * 3600.0, value) for hour, value in enumerate(values)]
    said, on = [], False
    for now in range(since, len(values) + 1, every):
        found, _ = look(P99, hours[max(0, now - 840) : now], now * 3600.0, already=on)
        on = bool(found)
        said.append((now, on))
    return said


def begins(said: Sequence[tuple[int, bool]]) -> list[int]:
    return [now for place, (now, on) in enumerate(said) if on and (place == 0 or not said[place - 1][1])]


def test_a_steady_series_with_seasons_hardly_ever_drifts() -> None:
    """Six service-months (36 days each after the first nine), noise of 10 % that lasts for hours: at most two alarms.

    Over 14 months at five kinds of noise (5 to 20 %, memory 0 to 0.9) 0 to 0.28 alarms a month and trend were measured.
    """
    alarms = [begin for seed in range(6) for begin in begins(looked(series(seed, 45 * 24), 9 * 24, every=6))]
    assert len(alarms) <= 2


def test_a_step_of_20_per_cent_is_seen_within_a_day_where_the_noise_is_small() -> None:
    """5 % of noise without memory: half of the last 24 hours are after the step at 12 h; measured 12 to 15 h."""
    delays = []
    for seed in range(4):
        values = series(seed, 31 * 24, noise=0.05, memory=0.0)
        stepped = [value * (1.2 if hour >= 28 * 24 else 1) for hour, value in enumerate(values)]
        delays.append(begins(looked(stepped, 28 * 24))[0] - 28 * 24)
    assert max(delays) <= 24
    assert min(delays) >= 6


def test_a_step_that_goes_away_ends_the_drift() -> None:
    values = series(3, 36 * 24, noise=0.03, memory=0.0)
    stepped = [value * (1.3 if 28 * 24 <= hour < 31 * 24 else 1) for hour, value in enumerate(values)]
    said = dict(looked(stepped, 28 * 24))
    assert said[30 * 24]
    assert not said[34 * 24]


def test_weekends_are_no_drift_and_an_improvement_is_none() -> None:
    values = series(5, 42 * 24, noise=0.02, memory=0.0)
    assert begins(looked(values, 21 * 24, every=3)) == []
    better = [value * (0.7 if hour >= 28 * 24 else 1) for hour, value in enumerate(values)]
    assert begins(looked(better, 28 * 24, every=3)) == []


def test_a_week_says_nothing_yet() -> None:
    hours = [Hour(hour * 3600.0, 1.0) for hour in range(7 * 24)]
    assert shift(hours, 7 * DAY_S) is None
    assert look(P99, hours, 7 * DAY_S, already=False) == (None, None)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 50), st.floats(0.01, 100.0), st.integers(0, 23))
def test_a_shift_has_no_unit_and_no_clock(seed: int, scale: float, move: int) -> None:
    values = series(seed, 20 * 24)
    plain = shift([Hour(h * 3600.0, v) for h, v in enumerate(values)], 20 * DAY_S, relative=True)
    other = shift(
        [Hour((h + move) * 3600.0, v * scale) for h, v in enumerate(values)], (480 + move) * 3600.0, relative=True
    )
    assert plain is not None
    assert other is not None
    assert other.shift == pytest.approx(plain.shift, abs=1e-9)
    assert other.value == pytest.approx(plain.value * scale)
    assert plain.low <= plain.shift <= plain.high


# --- budgets ----------------------------------------------------------------------------------------------------------


def status(left: float, recent: Events, period: Period = SLO.period, *, gone_s: float = 0.0) -> SloStatus:
    slo = Slo("chat", "chat", 0.99, SLO.indicator, period)
    ends: Forecast | None = exhaustion(left, recent, 0.99, period.length_s)
    pairs = burn_pairs(0.99, period.length_s)
    lengths = {DAY_S, *(s for pair in pairs for s in (pair.long_s, pair.short_s))}
    target = TargetStatus("ttft", (), dict.fromkeys(lengths, recent), recent, Budget(left), ends)
    starts = 1e9
    at_s = starts + (gone_s if period.calendar else period.length_s)
    return SloStatus(slo, at_s, starts, starts + period.length_s, starts, pairs, (target,))


def test_a_rolling_budget_ends_only_while_it_burns_faster_than_it_refills() -> None:
    assert ends_early(status(0.1, Events(99_100, 100_000)), already=False) is None  # burn 0.9 of 1
    assert ends_early(status(0.5, Events(98_500, 100_000)), already=False) is not None  # burn 1.5 for sure
    assert ends_early(status(0.5, Events(985, 1_000)), already=False) is None  # 15 of 1000 may be a burn of 0.9


def test_a_calendar_budget_ends_early_when_even_the_latest_end_is() -> None:
    month = Period(30 * DAY_S, "month")
    # half left after 27 days, burn 1.5: 10 days more, and only three are left
    assert ends_early(status(0.5, Events(98_500, 100_000), month, gone_s=27 * DAY_S), already=False) is None
    assert ends_early(status(0.5, Events(98_500, 100_000), month, gone_s=15 * DAY_S), already=False) is not None


def test_a_burn_is_a_drift_with_its_factor_as_limit() -> None:
    (burn, forecast) = budget_drifts(status(0.5, Events(80_000, 100_000)), {})
    assert (burn.kind, burn.severity, burn.value, burn.expected) == ("burn", "page", 20.0, 14.4)
    assert (forecast.kind, forecast.severity) == ("forecast", "ticket")
    assert budget_drifts(status(1.0, Events(100_000, 100_000)), {}) == ()


def drift(now_s: float, signal: str = "x") -> Drift:
    return Drift(f"chat/latency//{signal}/{now_s:.0f}", "chat", "latency", "ticket", signal, "", now_s, now_s)


def test_a_drift_keeps_its_id_and_its_beginning_until_it_ends() -> None:
    first = follow({}, [drift(100.0)], ["chat/latency//x"], 100.0)
    assert [d.id for d in first.began] == ["chat/latency//x/100"]
    second = follow(first.known, [drift(200.0)], ["chat/latency//x"], 200.0)
    (going,) = second.known.values()
    assert (going.id, going.began_s, going.seen_s) == ("chat/latency//x/100", 100.0, 200.0)
    assert second.began == second.ended == ()
    over = follow(second.known, [], ["chat/latency//x"], 300.0)
    assert [(d.id, d.ended_s) for d in over.ended] == [("chat/latency//x/100", 300.0)]
    assert over.known == {}


@given(st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc"))), max_size=20))
def test_every_drift_begins_once_and_ends_at_most_once(looks: list[tuple[set[str], set[str]]]) -> None:
    known: dict[str, Drift] = {}
    open_ids: set[str] = set()
    seen: set[str] = set()
    for number, (found, told) in enumerate(looks):
        now_s = float(number)
        looked_at = [f"chat/latency//{name}" for name in found | told]
        followed = follow(known, [drift(now_s, name) for name in sorted(found)], looked_at, now_s)
        for one in followed.began:
            assert one.id not in seen
            seen.add(one.id)
            open_ids.add(one.id)
        for one in followed.ended:
            open_ids.remove(one.id)
        known = dict(followed.known)
        assert {d.id for d in known.values()} == open_ids
        assert all(key == key_of(d) for key, d in known.items())
