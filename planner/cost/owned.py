"""What an hour of a bought card costs: its share of the purchase, power through PUE, and hosting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import yaml

from goodwatch.core.errors import ConfigError
from planner.cost.interval import product
from planner.estimate import Estimate, exactly, total

HOURS_PER_YEAR: Final = 8766.0
#: what is taken where the operator did not tell, with the range that data centres lie in
_YEARS: Final = Estimate(4.0, 3.0, 6.0, "years of use assumed")
_PUE: Final = Estimate(1.4, 1.1, 1.8, "PUE assumed")
_USD_PER_KWH: Final = Estimate(0.12, 0.06, 0.30, "price of power assumed")
#: power at the wall over the board's rating: fans, host and network add, a card below its limit takes away
_WALL: Final = Estimate(1.2, 0.7, 1.8, "power from the board's rating")


@dataclass(frozen=True, slots=True)
class Owned:
    """What bought cards cost, per GPU. None is "not told" and widens the interval.

    ``capex_usd``: the card with its share of server and network; ``years``: of depreciation; ``power_watts``: mean draw at
    the wall with its share of the host; ``pue``; ``usd_per_kwh``; ``hosting_usd_per_month``: space, network, hands.
    """

    capex_usd: float
    years: float | None = None
    power_watts: float | None = None
    pue: float | None = None
    usd_per_kwh: float | None = None
    hosting_usd_per_month: float | None = None


def owned_gpu_hour(gpu_name: str, owned: Owned) -> tuple[Estimate, tuple[str, ...]]:
    """USD of an hour of one card, and what was not told.

    Notes
    -----
    capex / (years x 8766 h) + watts / 1000 x PUE x USD/kWh + hosting x 12 / 8766 h. Interest and resale are not in it.

    Raises
    ------
    ConfigError
        A figure is negative or absurd, or the card's power is neither told nor in the catalogue.
    """
    _checked(owned)
    unknown: list[str] = []

    def told(name: str, value: float | None, assumed: Estimate) -> Estimate:
        if value is not None:
            return exactly(value)
        unknown.append(f"{name}: taken as {assumed.point:g} ({assumed.low:g} to {assumed.high:g})")
        return assumed

    years = told("depreciation, years", owned.years, _YEARS)
    buying = product(
        exactly(owned.capex_usd / HOURS_PER_YEAR), Estimate(1 / years.point, 1 / years.high, 1 / years.low)
    )
    watts = exactly(owned.power_watts) if owned.power_watts is not None else _rated(gpu_name, unknown)
    pue, usd = told("PUE", owned.pue, _PUE), told("USD per kWh", owned.usd_per_kwh, _USD_PER_KWH)
    power = product(watts.scaled(1e-3), pue, usd)
    hosting = told("hosting, USD a month", owned.hosting_usd_per_month, Estimate(0.0, 0.0, 100.0))
    rent = hosting.scaled(12 / HOURS_PER_YEAR)
    whole = total([buying, power, rent])
    basis = (
        f"owned: purchase {buying.point:.3g} ({owned.capex_usd:,.0f} USD over {years.point:g} years), power {power.point:.3g} "
        f"({watts.point:,.0f} W x PUE {pue.point:g} x {usd.point:g} USD/kWh), hosting {rent.point:.3g} USD/h; "
        "no interest, no resale"
    )
    return Estimate(whole.point, max(0.0, whole.low), whole.high, basis), tuple(unknown)


def _checked(owned: Owned) -> None:
    limits = (
        ("--capex-usd", owned.capex_usd, 0.0, 1e7), ("--depreciation-years", owned.years, 0.1, 50.0),
        ("--power-watts", owned.power_watts, 0.0, 1e5), ("--pue", owned.pue, 1.0, 10.0),
        ("--usd-per-kwh", owned.usd_per_kwh, 0.0, 100.0), ("--hosting-usd-per-month", owned.hosting_usd_per_month, 0.0, 1e6),
    )  # fmt: skip
    for flag, value, low, high in limits:
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{flag} {value:g}: is outside {low:g} to {high:g}")


def _rated(gpu_name: str, unknown: list[str]) -> Estimate:
    watts = _board_watts().get(gpu_name)
    if watts is None:
        raise ConfigError(f"--gpu {gpu_name}: the catalogue has no board power of it; give --power-watts")
    seen = _WALL.scaled(watts)
    unknown.append(
        f"power: board's {watts:g} W taken as {seen.point:,.0f} W at the wall ({seen.low:,.0f} to {seen.high:,.0f})"
    )
    return seen


@cache
def _board_watts() -> Mapping[str, float]:
    text = (files("planner") / "models" / "accelerators.yaml").read_text(encoding="utf-8")
    found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both loaders are safe
    return {str(row["name"]): float(row["tdp_w"]) for row in found["accelerators"] if row.get("tdp_w")}
