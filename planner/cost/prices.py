"""What a GPU-hour costs: the operator's own figure, else what dated price lists say, with their spread as the interval.

No listed price is right for everybody: one H100 stood at 2.2 and at 12.3 USD in the same year. The point is the median over
providers, each with its cheapest host and region, and the interval holds the middle four of five of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from importlib.resources import files
from math import ceil
from statistics import median
from typing import Any, Final

import yaml

from goodwatch.core.errors import ConfigError
from planner.catalogue import accelerators
from planner.cost.interval import product
from planner.cost.owned import Owned, owned_gpu_hour
from planner.estimate import Estimate, exactly
from planner.gpu import find, key

KINDS: Final = ("on-demand", "reserved", "spot", "owned")
#: kinds of a price list that a kind of ours takes, the first that has a row
_LISTED: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "on-demand": (("on_demand",), ("marketplace",)),
    "reserved": (("reserved", "reserved_1y", "reserved_3y"),),
    "spot": (("spot",),),
}
#: where a kind has no row: its share of the on-demand price, median and middle 80 % of the 15 and 10 rows where one seller
#: lists both on one day
_SHARE: Final[Mapping[str, tuple[float, float, float]]] = {"reserved": (0.63, 0.56, 0.82), "spot": (0.41, 0.18, 0.69)}
#: not sellers: averages of a market
_AVERAGES: Final = ("blend", "market")
#: prices that are older than the newest row by more are superseded where younger ones exist
_AGE_DAYS: Final = 365
#: from so many sellers with a verified price on, the others are not needed
_ENOUGH: Final = 3
#: how far other sellers may lie from the few that are listed, either way: on cards with at least three sellers four of five
#: sellers stand within a factor of 1.96 of the median
_FEW: Final = 2.0
#: ... where there are enough: what region, commitment and haggling change at least
_LEAST: Final = 1.1
#: share of paid spot time that gives no tokens: draining, waiting for another card, loading weights again. An assumption
INTERRUPTION: Final = Estimate(0.10, 0.02, 0.25, "assumed, not measured")


@dataclass(frozen=True, slots=True)
class Offer:
    """One row of a price list."""

    gpu: str
    provider: str
    kind: str
    usd_per_gpu_hour: float
    as_of: str
    source: str
    verified: bool = False


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the operator knows better than the lists. None is "not given".

    ``usd_per_gpu_hour``: their own price, with its ``source`` and ``as_of``; ``host_gpus``: cards of a host that is paid
    whole; ``interruption_ratio``: share of spot time that is lost; ``owned``: what bought cards cost; ``offers``: rows of
    their own price list, which come before the shipped ones.
    """

    usd_per_gpu_hour: float | None = None
    source: str = ""
    as_of: str = ""
    host_gpus: int | None = None
    interruption_ratio: float | None = None
    owned: Owned | None = None
    offers: tuple[Offer, ...] = ()


_NOTHING: Final = Overrides()


@dataclass(frozen=True, slots=True)
class GpuPrice:
    """USD of a GPU-hour that can be used, its terms, where it is from, the day on which it held, and what is assumed.

    ``kind`` is one of ``KINDS``, or ``given`` for the operator's own figure; ``as_of`` a date, a month, a year, a range
    of them, or "not dated".
    """

    usd_per_gpu_hour: Estimate
    kind: str
    source: str
    as_of: str
    unknown: tuple[str, ...] = ()


def usd_per_hour(gpu_name: str, count: int, kind: str = "on-demand", overrides: Overrides | None = None) -> Estimate:
    """USD per hour of ``count`` cards; whole hosts where ``overrides.host_gpus`` says that they are paid whole.

    Parameters
    ----------
    gpu_name
        A card of the catalogue, or any name beside a price of the operator's own.
    count
        Cards held, at least 1.
    kind
        ``on-demand``, ``reserved``, ``spot`` (what interruptions lose is in it) or ``owned``.

    Returns
    -------
    Estimate
        USD/h; the basis names terms, source and date.

    Raises
    ------
    ConfigError
        No price is known for this card, or a figure is absurd.
    """
    price = price_of(gpu_name, kind, overrides)
    paid = held(count, overrides)
    whole = f" ({paid} paid: hosts of {overrides.host_gpus})" if overrides and overrides.host_gpus else ""
    return Estimate(
        price.usd_per_gpu_hour.point * paid, price.usd_per_gpu_hour.low * paid, price.usd_per_gpu_hour.high * paid,
        f"{count} x {gpu_name}{whole}, {price.usd_per_gpu_hour.basis}",
    )  # fmt: skip


def held(count: int, overrides: Overrides | None = None) -> int:
    """Cards that are paid when ``count`` are needed. Raises ConfigError for a count below 1."""
    if isinstance(count, bool) or count != int(count) or count < 1:
        raise ConfigError(f"GPUs: {count}: is not a count of at least 1")
    host = overrides.host_gpus if overrides else None
    if host is None:
        return int(count)
    if host < 1:
        raise ConfigError(f"--host-gpus {host}: is below 1")
    return ceil(count / host) * host


def price_of(gpu_name: str, kind: str = "on-demand", overrides: Overrides | None = None) -> GpuPrice:
    """The price of one GPU-hour with everything that is known about it. Arguments and errors as ``usd_per_hour``."""
    return _price(gpu_name, kind, overrides or _NOTHING)


@lru_cache(maxsize=4096)  # a search asks for the same few cards again and again
def _price(gpu_name: str, kind: str, told: Overrides) -> GpuPrice:
    if kind not in KINDS:
        raise ConfigError(f"--price {kind}: unknown; {', '.join(KINDS)}, or USD per GPU-hour as in 2.49")
    if told.usd_per_gpu_hour is not None:
        return _useful(_given(told, kind), told)
    if kind == "owned":
        return _of_owned(gpu_name, told)
    name = card_name(gpu_name)
    found = _from_list(name, kind, told.offers, own=True) or _from_list(name, kind, shipped_offers())
    if found is None:
        raise ConfigError(
            f"--gpu {gpu_name}: no {kind} price is known for it; give yours with --price, in USD per GPU-hour"
        )
    return _useful(found, told)


def card_name(gpu_name: str) -> str:
    """The name under which the lists know a card; the name itself where the catalogue does not know it."""
    found = find(gpu_name, accelerators())
    return found.name if found else gpu_name


@cache
def shipped_offers() -> tuple[Offer, ...]:
    """The price list that comes with goodwatch, rows in USD."""
    text = (files("planner") / "cost" / "prices.yaml").read_text(encoding="utf-8")
    return offers_of(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["prices"])  # noqa: S506  both are safe


def offers_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Offer, ...]:
    """Rows in the form of ``prices.yaml``; those in another currency are left out, for no rate is told."""
    return tuple(
        Offer(
            str(row["gpu"]), str(row["provider"]), str(row["kind"]), float(row["per_gpu_hour"]), str(row["as_of"]),
            str(row["source"]), bool(row.get("verified")),
        )
        for row in rows
        if row.get("currency", "USD") == "USD"
    )  # fmt: skip


def _given(told: Overrides, kind: str) -> GpuPrice:
    usd = told.usd_per_gpu_hour
    if usd is None or not 0 < usd <= 10_000:
        raise ConfigError(f"--price {usd}: is no USD per GPU-hour; write a number above 0, as in 2.49")
    source, as_of = told.source or "given by you", told.as_of or "not dated"
    terms = kind if kind == "spot" else "given"  # on which other terms it is paid was not told
    return GpuPrice(exactly(usd, f"price {source}, {as_of}"), terms, source, as_of)


def _of_owned(gpu_name: str, told: Overrides) -> GpuPrice:
    if told.owned is None:
        raise ConfigError("--price owned: needs --capex-usd, what one GPU with its share of the server cost")
    hour, unknown = owned_gpu_hour(card_name(gpu_name), told.owned)
    return GpuPrice(hour, "owned", told.source or "your own figures", told.as_of or "not dated", unknown)


def _from_list(name: str, kind: str, offers: Sequence[Offer], *, own: bool = False) -> GpuPrice | None:
    """What a list says of this card on these terms; its on-demand price times a share where only that is listed."""
    of_card = [one for one in offers if key(one.gpu) == key(name) and one.provider not in _AVERAGES]
    for kinds in _LISTED[kind]:
        rows = [one for one in of_card if one.kind.replace("-", "_") in kinds]
        if rows:
            return _summed(rows, kind, own=own)
    if own or kind not in _SHARE or (base := _from_list(name, "on-demand", offers)) is None:
        return None
    share = Estimate(*_SHARE[kind])
    why = f"no {kind} price is listed: {share.point:g} of on-demand ({share.low:g} to {share.high:g})"
    usd = product(base.usd_per_gpu_hour, share, basis=f"{why}; {base.usd_per_gpu_hour.basis}")
    return GpuPrice(usd, kind, base.source, base.as_of, (*base.unknown, why))


def _summed(rows: Sequence[Offer], kind: str, *, own: bool) -> GpuPrice:
    """Median over sellers, each with the cheapest of its newest rows; the interval holds the middle 80 % of them.

    The operator's ``own`` list is what they pay: its spread is the sellers', and nothing is added.
    """
    sold = _sellers(rows)
    usd = [one.usd_per_gpu_hour for one in sold]
    point, dates = median(usd), sorted({one.as_of for one in sold})
    wide = 1.0 if own else _FEW if len(usd) < _ENOUGH else _LEAST
    as_of = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    names = ", ".join(f"{one.provider} {one.usd_per_gpu_hour:g} ({one.as_of})" for one in sold)
    many = f"median of {len(usd)} sellers" if len(usd) > 1 else "one seller"
    basis = f"{kind} price, {many} listed {as_of}: {names}"
    unknown = []
    if not own:
        spread = f"{many} from {usd[0]:g} to {usd[-1]:g}" if len(usd) > 1 else f"{many}, {usd[0]:g}"
        unknown.append(f"your own price: {spread} USD a GPU-hour")
        if not all(one.verified for one in sold):
            unknown.append("some of these prices were read in posts and comparison pages")
    estimate = Estimate(point, min(point / wide, _quantile(usd, 0.1)), max(point * wide, _quantile(usd, 0.9)), basis)
    return GpuPrice(estimate, kind, "; ".join(sorted({one.source for one in sold})), as_of, tuple(unknown))


def _sellers(rows: Sequence[Offer]) -> list[Offer]:
    """One offer a seller, cheapest first: rows of the list's last year, verified ones where enough sellers have them."""
    newest = max(_day(one.as_of) for one in rows)
    young = [one for one in rows if (newest - _day(one.as_of)).days <= _AGE_DAYS]
    sure = [one for one in young if one.verified]
    used = sure if len({one.provider for one in sure}) >= _ENOUGH else young
    return sorted(
        (_cheapest(used, seller) for seller in {one.provider for one in used}),
        key=lambda one: (one.usd_per_gpu_hour, one.provider),
    )


def _cheapest(rows: Sequence[Offer], seller: str) -> Offer:
    own = [one for one in rows if one.provider == seller]
    last = max(_day(one.as_of) for one in own)
    return min((one for one in own if _day(one.as_of) == last), key=lambda one: one.usd_per_gpu_hour)


def newest_day(as_of: str) -> date | None:
    """The last day of a ``GpuPrice.as_of``, read as early as it may mean; None for what is not dated."""
    last = as_of.rpartition(" to ")[2]
    return _day(last) if last[:1].isdigit() else None


def _day(as_of: str) -> date:
    """The first day that a date, a month or a year may mean; a price is not taken to be younger than it may be."""
    year, month, day = (*as_of.split("-"), "1", "1")[:3]
    return date(int(year), int(month), int(day))


def _quantile(values: Sequence[float], share: float) -> float:
    """Linear between the sorted ``values``."""
    place = share * (len(values) - 1)
    low = int(place)
    return values[low] + (place - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def _useful(price: GpuPrice, told: Overrides) -> GpuPrice:
    """A spot price per hour that can be used: what interruptions lose is paid too."""
    if price.kind != "spot":
        return price
    lost, unknown = INTERRUPTION, price.unknown
    if told.interruption_ratio is not None:
        if not 0 <= told.interruption_ratio < 1:
            raise ConfigError(f"--spot-loss {told.interruption_ratio}: is not a share of 0 to below 1")
        lost = exactly(told.interruption_ratio, "given by you")
    else:
        unknown = (
            *unknown,
            f"how much of spot time is lost: taken as {lost.point:.0%} ({lost.low:.0%} to {lost.high:.0%})",
        )
    dearer = Estimate(1 / (1 - lost.point), 1 / (1 - lost.low), 1 / (1 - lost.high))
    basis = f"{price.usd_per_gpu_hour.basis}; {lost.point:.0%} of the time lost to interruptions ({lost.basis})"
    return GpuPrice(product(price.usd_per_gpu_hour, dearer, basis=basis), "spot", price.source, price.as_of, unknown)
