from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.catalogue import accelerators
from planner.cost.owned import Owned
from planner.cost.prices import (
    KINDS,
    Offer,
    Overrides,
    held,
    newest_day,
    offers_of,
    price_of,
    shipped_offers,
    usd_per_hour,
)
from planner.gpu import find

ROW = {"gpu": "L4", "provider": "acme", "kind": "on_demand", "per_gpu_hour": 1.0, "as_of": "2026", "source": "a letter"}


def test_a_listed_price_is_the_median_of_the_sellers_and_names_them_with_their_dates() -> None:
    price = price_of("L40S")
    # Crusoe 1.00 (2026-10), Nebius 1.5484 (2026), AWS 1.861 (g6e.xlarge, 2026-08-26): each read in a dated list
    assert price.usd_per_gpu_hour.point == 1.5484
    assert "Crusoe 1 (2026-10)" in price.usd_per_gpu_hour.basis
    assert "AWS 1.861 (2026-08-26)" in price.usd_per_gpu_hour.basis
    assert price.as_of == "2026 to 2026-10"
    assert "SkyPilot" in price.source


def test_the_same_card_at_a_cheap_and_a_dear_seller_makes_a_wide_interval() -> None:
    price = price_of("H100 80GB").usd_per_gpu_hour  # 2.4 at one seller, 12.29 at another, both 2026
    assert price.low < 3
    assert price.high > 10
    assert price.low < price.point < price.high


def test_a_price_that_was_cut_later_is_not_used() -> None:
    # AWS p5.48xlarge stood at 12.29 until June 2025 and at 6.88 in 2026-08
    assert "AWS 6.88 (2026-08-26)" in price_of("H100").usd_per_gpu_hour.basis


def test_an_average_of_sellers_is_no_seller_and_another_currency_is_not_taken_for_dollars() -> None:
    assert "blend" not in price_of("H100").usd_per_gpu_hour.basis
    # 1.68 CNY, not USD
    assert price_of("RTX 4090").usd_per_gpu_hour.point == 0.34
    assert offers_of([{**ROW, "currency": "CNY"}]) == ()


def test_every_row_of_the_shipped_list_says_where_and_when() -> None:
    for one in shipped_offers():
        assert one.source
        assert newest_day(one.as_of) is not None
        assert 0 < one.usd_per_gpu_hour < 100


def test_terms_that_are_not_listed_are_a_share_of_on_demand_and_say_so() -> None:
    spot = price_of("B200", "spot")
    assert any("no spot price is listed" in text for text in spot.unknown)
    assert spot.usd_per_gpu_hour.high < price_of("B200").usd_per_gpu_hour.high


def test_a_spot_price_pays_for_what_interruptions_lose() -> None:
    told = Overrides(usd_per_gpu_hour=0.9, interruption_ratio=0.1)
    assert price_of("L4", "spot", told).usd_per_gpu_hour.point == pytest.approx(1.0)  # 0.9 / (1 - 0.1)
    assumed = price_of("L4", "spot", replace(told, interruption_ratio=None))
    assert assumed.usd_per_gpu_hour.low < assumed.usd_per_gpu_hour.high
    assert any("how much of spot time is lost" in text for text in assumed.unknown)


def test_the_operators_own_price_comes_first_and_has_no_doubt() -> None:
    price = usd_per_hour("H100", 2, overrides=Overrides(usd_per_gpu_hour=2.3, source="contract", as_of="2026-05"))
    assert (price.low, price.point, price.high) == (4.6, 4.6, 4.6)
    assert "contract, 2026-05" in price.basis


def test_the_operators_own_list_comes_before_the_shipped_one() -> None:
    own = Overrides(offers=(Offer("H100-SXM-80GB", "acme", "on_demand", 2.0, "2026-11-01", "contract"),))
    assert price_of("H100", overrides=own).usd_per_gpu_hour.high == 2.0
    assert price_of("L4", overrides=own) == price_of("L4")


@pytest.mark.parametrize(("count", "host", "paid"), [(2, 8, 8), (8, 8, 8), (9, 8, 16), (3, None, 3)])
def test_hosts_are_paid_whole(count: int, host: int | None, paid: int) -> None:
    assert held(count, Overrides(host_gpus=host)) == paid


def test_owned_cards_cost_purchase_power_and_hosting() -> None:
    owned = Owned(35_064.0, years=4, power_watts=1000, pue=1.5, usd_per_kwh=0.10, hosting_usd_per_month=73.05)
    found = price_of("H100", "owned", Overrides(owned=owned))
    # 35064 / (4 x 8766) = 1.00; 1 kW x 1.5 x 0.10 = 0.15; 73.05 x 12 / 8766 = 0.10
    assert found.usd_per_gpu_hour.point == pytest.approx(1.25)
    assert found.usd_per_gpu_hour.low == found.usd_per_gpu_hour.high
    assert found.unknown == ()


def test_what_is_not_told_of_owned_cards_widens_the_interval_and_is_named() -> None:
    found = price_of("H100", "owned", Overrides(owned=Owned(30_000.0)))
    assert found.usd_per_gpu_hour.low < found.usd_per_gpu_hour.point < found.usd_per_gpu_hour.high
    named = " ".join(found.unknown)
    assert all(word in named for word in ("depreciation", "700 W", "PUE", "kWh", "hosting"))


@pytest.mark.parametrize(
    ("gpu", "kind", "told", "message"),
    [
        ("H20", "on-demand", Overrides(), "no on-demand price is known"),
        ("a toaster", "spot", Overrides(), "--gpu a toaster: no spot price"),
        ("H100", "free", Overrides(), "--price free: unknown"),
        ("H100", "owned", Overrides(), "needs --capex-usd"),
        ("H100", "on-demand", Overrides(usd_per_gpu_hour=-1), "is no USD per GPU-hour"),
        ("H100", "on-demand", Overrides(usd_per_gpu_hour=float("nan")), "is no USD per GPU-hour"),
        ("H100", "spot", Overrides(interruption_ratio=1.0), "--spot-loss"),
        ("H100", "owned", Overrides(owned=Owned(1e4, years=0)), "--depreciation-years"),
        ("H100", "owned", Overrides(owned=Owned(1e4, pue=0.9)), "--pue"),
        ("H100", "owned", Overrides(owned=Owned(-1.0)), "--capex-usd"),
        ("a toaster", "owned", Overrides(owned=Owned(1e4)), "--power-watts"),
    ],
)
def test_what_cannot_be_priced_says_why(gpu: str, kind: str, told: Overrides, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        price_of(gpu, kind, told)


@pytest.mark.parametrize("count", [0, -1, True])
def test_a_count_of_cards_is_at_least_one(count: int) -> None:
    with pytest.raises(ConfigError, match="is not a count"):
        usd_per_hour("H100", count)


def test_names_of_the_list_are_names_of_the_catalogue_but_for_known_ones() -> None:
    strangers = {one.gpu for one in shipped_offers() if find(one.gpu, accelerators()) is None}
    assert strangers <= {"V100-SXM2-16GB", "RTX-A6000-48GB"}


@given(
    st.sampled_from(["H100", "H200", "L4", "L40S", "A100 80GB", "MI300X", "T4"]),
    st.sampled_from(KINDS[:3]),
    st.integers(1, 64),
)
def test_the_point_is_inside_and_cards_add_up(gpu: str, kind: str, count: int) -> None:
    one, many = usd_per_hour(gpu, 1, kind), usd_per_hour(gpu, count, kind)
    assert 0 < one.low <= one.point <= one.high
    assert many.point == pytest.approx(count * one.point)
