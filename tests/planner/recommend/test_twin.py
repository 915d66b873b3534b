"""The twin: what runs beside itself gains nothing, a faster step never loses, and what was measured narrows the doubt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.estimate import exactly
from planner.recommend import staying
from planner.simulate.run import Limits
from planner.simulate.setup import Fleet, Scheduler
from planner.twin import Doubt, busiest, differences, draws, effect, kept, ratios, seen_doubt, stretches
from tests.planner.recommend.services import COST, service, traffic

LIMITS = Limits(2.0, 0.05)
#: one seat: a request waits for nobody's step but for those before it, so that a faster step helps each
ALONE = Fleet(COST, Scheduler(max_num_seqs=1, kv_tokens=400_000))


def test_staying_beside_staying_gains_nothing() -> None:
    stay = draws(staying(service(traffic(5.0))), Doubt(0.1), LIMITS)
    again = draws(staying(service(traffic(5.0))), Doubt(0.1), LIMITS)
    gain = differences([one.attained_ratio for one in again], [one.attained_ratio for one in stay])
    cost = ratios([one.usd_per_million_good for one in again], [one.usd_per_million_good for one in stay])
    assert gain is not None
    assert (gain.low, gain.point, gain.high) == (0.0, 0.0, 0.0)
    assert cost is not None
    assert (cost.low, cost.high) == (1.0, 1.0)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 2.0), st.floats(1.01, 3.0), st.integers(0, 50))
def test_a_faster_step_never_lowers_attainment_where_requests_run_alone(rate: float, faster: float, seed: int) -> None:
    world = replace(staying(service()), fleet=ALONE, trace=traffic(rate, 60, outputs=40, seed=seed))
    quick = replace(world, fleet=replace(ALONE, cost=COST.scaled(1 / faster)))
    slow, fast = (draws(one, Doubt(0.0), LIMITS, count=1)[0].attained_ratio for one in (world, quick))
    assert fast >= slow


def test_a_doubt_is_as_wide_as_its_sigma_and_centred() -> None:
    # quantiles of the normal distribution: 0.5 → 0, 0.9 → 1.2816 (any table)
    assert Doubt(0.1).at(0.5) == pytest.approx(0.0, abs=1e-9)
    assert Doubt(0.1).at(0.9) == pytest.approx(0.12816, abs=1e-4)
    assert Doubt(0.1, 1.0, 2.0).at(0.5) == pytest.approx(0.13364, abs=1e-4)  # (0.84134 + 0.97725) / 2 → 1.3364


def test_what_was_measured_is_among_what_is_drawn() -> None:
    evidence = service(traffic(6.5))
    truth = replace(evidence.fleet, cost=evidence.fleet.cost.scaled(1.12))
    seen = service(traffic(6.5), cost=truth.cost).seen  # the service is 12 % slower than its fit, at sigma 0.1
    doubt = seen_doubt(staying(evidence), 0.1, LIMITS, seen)
    assert doubt is not None
    assert doubt.low <= 1.133 <= doubt.high  # ln 1.12 / 0.1
    found = effect(draws(staying(evidence), doubt, LIMITS))
    free = effect(draws(staying(evidence), Doubt(0.1), LIMITS))
    assert seen.attained is not None
    assert abs(found.attainment.point - seen.attained[0]) < abs(free.attainment.point - seen.attained[0])
    assert found.attainment.high - found.attainment.low < free.attainment.high - free.attainment.low


def test_what_the_model_cannot_come_to_has_no_doubt_to_draw_from() -> None:
    evidence = service(traffic(2.0))
    assert seen_doubt(staying(evidence), 0.05, LIMITS, replace(evidence.seen, attained=(0.2, 0.25))) is None


def test_refused_requests_are_not_good_ones() -> None:
    world = replace(staying(service(traffic(1.0))), trace=kept(traffic(1.0), 0.8), turned_away_ratio=0.2)
    assert draws(world, Doubt(0.0), LIMITS, count=1)[0].attained_ratio == pytest.approx(0.8, abs=0.01)


def test_cost_per_good_token_is_the_bill_over_good_tokens() -> None:
    came = traffic(1.0)
    world = replace(staying(service(came)), usd_per_hour=exactly(3.6))
    one = draws(world, Doubt(0.0), LIMITS, count=1)[0]
    tokens_per_s = sum(came.output_tokens) / (came.arrived_s[-1] - came.arrived_s[0])
    # all are good: 3.6 USD per hour are 0.001 per second
    assert one.attained_ratio == 1.0
    assert one.usd_per_million_good == pytest.approx(0.001 / tokens_per_s * 1e6)


def test_requests_answered_elsewhere_count_and_cost() -> None:
    came = traffic(1.0)
    world = replace(staying(service(came)), trace=kept(came, 0.5), served_elsewhere_ratio=0.5,
                    usd_per_hour=exactly(1.8), elsewhere_usd_per_hour=0.9)  # fmt: skip
    whole = replace(staying(service(came)), usd_per_hour=exactly(2.7))
    part, all_here = (draws(one, Doubt(0.0), LIMITS, count=1)[0] for one in (world, whole))
    assert part.attained_ratio == 1.0
    assert part.usd_per_million_good == pytest.approx(all_here.usd_per_million_good, rel=0.1)


def test_a_long_trace_is_run_in_stretches_and_the_busiest_is_found() -> None:
    came = traffic(4.0, 4000)
    parts = stretches(came)
    assert [len(one) for one in parts] == [800, 800, 800]
    assert parts[0].arrived_s[0] < parts[1].arrived_s[0] < parts[2].arrived_s[0]
    dense = busiest(came, 500)
    span = dense.arrived_s[-1] - dense.arrived_s[0]
    assert len(dense) == 500
    assert span <= came.arrived_s[499] - came.arrived_s[0]
