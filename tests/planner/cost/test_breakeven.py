import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.breakeven import ApiQuote, Comparison, compared
from planner.cost.unit import Traffic
from planner.estimate import Estimate, exactly

TRAFFIC = Traffic(900, 100)


def quote(usd_per_request: float) -> ApiQuote:
    return ApiQuote("acme/model", usd_per_request, None, None, None, "", "a list")


def asked(usd_per_request: float, *, served: float = 1.0, most: float = 10.0, headroom: float = 0.0) -> Comparison:
    return compared(
        quote(usd_per_request), TRAFFIC, usd_per_hour=exactly(3.6), requests_per_s=exactly(served),
        most_requests_per_s=exactly(most), headroom_ratio=headroom,
    )  # fmt: skip


def test_the_meeting_point_is_where_both_bills_are_one() -> None:
    found = asked(0.0002)
    # 3.6 USD/h = 0.001 USD/s: five requests of 0.0002 a second, 432,000 requests of 1,000 tokens a day, half of ten a second
    assert found.tokens_per_day is not None
    assert found.utilisation is not None
    assert found.tokens_per_day.point == pytest.approx(432e6)
    assert found.utilisation.point == pytest.approx(0.5)
    assert found.cheaper == "API"
    assert asked(0.0002, served=6).cheaper == "self-hosting"


def test_an_api_below_the_cost_of_full_gpus_is_never_met() -> None:
    found = asked(0.00005)
    assert found.tokens_per_day is None
    assert found.utilisation is None
    assert found.reason.startswith("never: 0.1 USD per million tokens with every GPU full, the API 0.05")


def test_volume_that_needs_the_headroom_does_not_count() -> None:
    assert asked(0.00012, headroom=0.0).utilisation is not None
    assert asked(0.00012, headroom=0.3).utilisation is None


def test_a_free_api_is_never_met() -> None:
    assert asked(0.0).reason == "never: the API takes nothing for this traffic"
    assert asked(0.0).api_usd_per_month.point == 0.0


def test_overlapping_bills_are_not_certain() -> None:
    near = compared(
        quote(0.001),
        TRAFFIC,
        usd_per_hour=Estimate(3.6, 2, 8),
        requests_per_s=exactly(1),
        most_requests_per_s=exactly(9),
    )
    assert not near.certain
    assert asked(1.0).certain


@given(st.floats(1e-6, 1.0), st.floats(0.01, 10.0), st.floats(1.0, 10.0))
def test_a_dearer_api_is_met_earlier(usd: float, served: float, more: float) -> None:
    cheap, dear = asked(usd, served=served), asked(usd * more, served=served)
    if cheap.tokens_per_day is not None:
        assert dear.tokens_per_day is not None
        assert dear.tokens_per_day.point <= cheap.tokens_per_day.point * (1 + 1e-9)
    above = cheap.utilisation is not None and served / 10 > cheap.utilisation.point * (1 + 1e-9)
    assert above <= (cheap.cheaper == "self-hosting")
