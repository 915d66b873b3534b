import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.cost.levers import Quality, prefix_cache, routed, trimmed
from planner.estimate import Estimate, exactly
from planner.speed.steps import Lengths
from tests.planner.cost.deployments import small_on_h100

SHARE = st.floats(0, 1)
SMALL, BIG = exactly(0.20), exactly(0.82)


@given(st.floats(0, 0.99), st.floats(0, 0.99), st.floats(10, 50_000), st.floats(1, 2000))
def test_no_lever_saves_more_than_the_part_that_it_acts_on(
    hit: float, trim: float, tokens: float, output: float
) -> None:
    one, by = small_on_h100()
    lengths = Lengths(tokens, output)
    for effect in (prefix_cache(one, by, lengths, 16, hit), trimmed(one, by, lengths, 16, trim)):
        assert 0 <= effect.saving.point <= effect.bound.point < 1
        assert effect.saving.low <= effect.saving.point <= effect.saving.high


@given(st.floats(0, 0.9), st.floats(0, 0.09))
def test_more_cache_or_less_context_never_saves_less(hit: float, more: float) -> None:
    one, by = small_on_h100()
    lengths = Lengths(4000, 300)
    assert (
        prefix_cache(one, by, lengths, 16, hit + more).saving.point
        >= prefix_cache(one, by, lengths, 16, hit).saving.point
    )
    assert trimmed(one, by, lengths, 16, hit + more).saving.point >= trimmed(one, by, lengths, 16, hit).saving.point


def test_routing_four_fifths_saves_sixty_per_cent_and_is_not_allowed_without_measured_quality() -> None:
    found = routed(SMALL, BIG, 0.8)
    assert found.blended.point == pytest.approx(0.324)  # 0.8 x 0.20 + 0.2 x 0.82
    assert found.saving.point == pytest.approx(0.6049, abs=1e-4)
    assert not found.allowed
    assert found.reason.startswith("not allowed yet")


@pytest.mark.parametrize(("loss_high", "allowed"), [(0.01, True), (0.02, True), (0.05, False), (-0.01, True)])
def test_only_measured_non_inferiority_allows_routing(loss_high: float, allowed: bool) -> None:
    assert routed(SMALL, BIG, 0.8, quality=Quality(loss_high)).allowed is allowed


@given(SHARE, SHARE)
def test_escalation_and_standing_gpus_never_make_it_cheaper(share: float, escalated: float) -> None:
    plain = routed(SMALL, BIG, share)
    assert routed(SMALL, BIG, share, escalated=escalated).blended.point >= plain.blended.point - 1e-12
    assert routed(SMALL, BIG, share, big_use=(0.66, 0.30)).blended.point >= plain.blended.point - 1e-12
    assert plain.saving.point == pytest.approx(1 - plain.blended.point / BIG.point)


def test_the_doubt_of_both_costs_is_in_the_saving() -> None:
    found = routed(Estimate(0.2, 0.1, 0.4), Estimate(0.8, 0.6, 1.0), 0.8)
    assert found.saving.low < found.saving.point < found.saving.high


@pytest.mark.parametrize(
    ("share", "escalated", "use", "message"),
    [
        (1.2, 0.0, None, "share to the small model 1.2"),
        (0.5, -0.1, None, "escalated share -0.1"),
        (0.5, 0.1, (0.5, 0.0), "utilisation of the big model"),
        (float("nan"), 0.0, None, "share to the small model nan"),
    ],
)
def test_shares_are_shares(share: float, escalated: float, use: tuple[float, float] | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        routed(SMALL, BIG, share, escalated=escalated, big_use=use)


def test_levers_refuse_what_is_no_share() -> None:
    one, by = small_on_h100()
    with pytest.raises(ConfigError, match=r"--what-if-hit-ratio 0\.2: is not from --cached-ratio 0\.5"):
        prefix_cache(one, by, Lengths(1000, 100, 0.5), 8, 0.2)
    with pytest.raises(ConfigError, match="--what-if-trim 1"):
        trimmed(one, by, Lengths(1000, 100), 8, 1.0)
    with pytest.raises(ConfigError, match="--route-quality-loss nan"):
        routed(SMALL, BIG, 0.5, quality=Quality(float("nan")))
