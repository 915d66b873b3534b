"""Files of cost cases: what is told to the figure that follows. Answers that a file holds beside it are never read.

What a case asks is seen from what it tells: a price and a rate (a million tokens), ``solve_for`` (the fact that is
missing), ``shares`` (a mix of models), ``attainment_tokens`` (good tokens), ``wasted_share`` (money for nothing).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isclose
from typing import Any, Final

from goodwatch.core.errors import ConfigError
from planner.cost.interval import product
from planner.cost.levers import Routed, routed
from planner.cost.unit import COUNTED_TEXTS, good_tokens, per_million, wasted_per_day
from planner.estimate import Estimate, exactly
from planner.speed.cases import predict_case
from planner.speed.efficiency import Fitted, shipped

#: facts of usd_per_m = price x GPUs / (tokens/s x utilisation x 3600) x 10^6 that can be solved for, with their exponent
_SOLVED: Final = {"gpu_usd_per_hour": 1, "gpus_held": 1, "tokens_per_s": -1, "utilisation": -1}
_MOST: Final = 1e12
#: figures of a row, by the kind of case
FIGURES: Final = {
    "price": ("usd_per_m",), "solved": ("answer",), "good": ("usd_per_m_good",), "wasted": ("usd_wasted_per_day",),
    "mix": ("blended", "saving_vs_all_big", "saving_vs_unoptimised_big"),
}  # fmt: skip


def kind_of(case: Mapping[str, Any]) -> str:
    """What a case asks: a key of ``FIGURES``."""
    if "shares" in case:
        return "mix"
    if "attainment_tokens" in case:
        return "good"
    if "wasted_share" in case:
        return "wasted"
    return "solved" if case.get("solve_for") not in (None, "usd_per_m") else "price"


def rows(cases: Iterable[Mapping[str, Any]], fitted: Fitted | None = None) -> list[dict[str, Any]]:
    """One row a case: ``id``, ``kind``, the figures of its kind, ``interval`` of each, and ``basis``.

    A case that cannot be answered has nulls and says why in ``reason``.
    """
    listed = [*cases]
    by = fitted or shipped()
    return [_row(case, listed, by) for case in listed]


def _row(case: Mapping[str, Any], listed: list[Mapping[str, Any]], fitted: Fitted) -> dict[str, Any]:
    kind = kind_of(case)
    names = FIGURES[kind]
    try:
        found = _mix(case, listed) if kind == "mix" else {names[0]: _ASKED[kind](case, fitted)}
    except ConfigError as error:
        nothing = dict.fromkeys(names)
        return {"id": case.get("id"), "kind": kind, **nothing, "interval": nothing, "basis": None, "reason": str(error)}
    more = found.pop("quality", None)
    figures = {name: one for name, one in found.items() if one is not None}
    row: dict[str, Any] = {
        "id": case.get("id"), "kind": kind,
        **{name: _short(figures[name].point) if name in figures else None for name in found},
        "interval": {name: [_short(one.low), _short(one.high)] for name, one in figures.items()},
        "basis": next(one.basis for one in figures.values()),
    }  # fmt: skip
    return {**row, "quality": more} if more else row


def _number(case: Mapping[str, Any], name: str, *, most: float = _MOST) -> float:
    """A figure above 0. Raises ConfigError where it is missing or none."""
    value = case.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise ConfigError(
            f"{case.get('id', 'case without id')}: {name}: {value!r} is not a number above 0 and at most {most:g}"
        )
    return float(value)


def _counted(case: Mapping[str, Any]) -> Any:
    counted = case.get("basis", "output")
    if not isinstance(counted, str) or counted not in COUNTED_TEXTS:
        raise ConfigError(f"{case.get('id')}: basis {counted}: unknown; {', '.join(COUNTED_TEXTS)}")
    return counted


def _use(case: Mapping[str, Any]) -> float:
    return _number(case, "utilisation", most=1.0) if "utilisation" in case else 1.0


def _price(case: Mapping[str, Any], fitted: Fitted) -> Estimate:
    """USD per million; the rate is the case's, else the speed model's for a case that names model, card and lengths."""
    usd = exactly(_number(case, "gpu_usd_per_hour") * _number(case, "gpus_held"), _source(case))
    if "tokens_per_s" in case or "model" not in case:
        rate = exactly(_number(case, "tokens_per_s"))
    else:
        rate = predict_case(case, fitted).output_tokens_per_s
        if _counted(case) == "total":
            rate = rate.scaled((_number(case, "isl") + _number(case, "osl")) / _number(case, "osl"))
    return per_million(usd, rate, utilisation=exactly(_use(case)), counted=_counted(case))


def _source(case: Mapping[str, Any]) -> str:
    return f"{_number(case, 'gpus_held'):g} GPUs paid at {_number(case, 'gpu_usd_per_hour'):g} USD/h, as the case tells"


def _solved(case: Mapping[str, Any], fitted: Fitted) -> Estimate:
    wanted = str(case["solve_for"])
    if wanted not in _SOLVED:
        raise ConfigError(f"{case.get('id')}: solve_for {wanted}: unknown; {', '.join(_SOLVED)}, usd_per_m")
    value = _number(case, "usd_per_m") * 3600 / 1e6
    for name, power in _SOLVED.items():
        if name == wanted:
            continue
        known = _use(case) if name == "utilisation" else _number(case, name)
        value = value / known if power == 1 else value * known
    found = value if _SOLVED[wanted] == 1 else 1 / value
    return exactly(
        found, f"{wanted} at which a million {COUNTED_TEXTS[_counted(case)]} cost {case['usd_per_m']:g} USD as told"
    )


def _good(case: Mapping[str, Any], fitted: Fitted) -> Estimate:
    cost = exactly(_number(case, "usd_per_m"), f"{case['usd_per_m']:g} USD per million of all, as the case tells")
    found = good_tokens(cost, _number(case, "attainment_tokens", most=1.0))
    assert found is not None  # a ratio was given
    return found


def _wasted(case: Mapping[str, Any], fitted: Fitted) -> Estimate:
    share = _number(case, "wasted_share", most=1.0)
    usd = wasted_per_day(_number(case, "usd_per_hour"), share)
    return exactly(usd, f"USD a day for the {share:.0%} of output tokens of failed, cancelled or repeated requests")


_ASKED: Final = {"price": _price, "solved": _solved, "good": _good, "wasted": _wasted}


def _mix(case: Mapping[str, Any], listed: list[Mapping[str, Any]]) -> dict[str, Any]:
    found = _routed(case)
    dearest = _unoptimised(case, listed)
    against = None
    if dearest is not None:
        ratio = product(found.blended, exactly(1 / dearest))
        basis = f"against all on the dearest big model of this file's same mix, {dearest:g} USD per million"
        against = Estimate(1 - ratio.point, 1 - ratio.high, 1 - ratio.low, basis)
    return {
        "blended": found.blended, "saving_vs_all_big": found.saving, "saving_vs_unoptimised_big": against,
        "quality": found.reason,
    }  # fmt: skip


def _routed(case: Mapping[str, Any]) -> Routed:
    place, shares, usd = case.get("id"), case["shares"], case.get("usd_per_m")
    for name, table in (("shares", shares), ("usd_per_m", usd)):
        if not isinstance(table, Mapping) or set(table) != {"small", "big"}:
            raise ConfigError(f"{place}: {name}: is no mapping of small and big")
    assert isinstance(usd, Mapping)
    prices = {name: _number({"id": f"{place}: usd_per_m", **usd}, name) for name in usd}
    share = shares["small"]
    if not all(isinstance(one, int | float) for one in shares.values()) or not isclose(
        sum(shares.values()), 1, abs_tol=1e-6
    ):
        raise ConfigError(f"{place}: shares: do not add up to 1")
    use = None
    if "big_utilisation_before" in case:
        use = (_number(case, "big_utilisation_before", most=1.0), _number(case, "big_utilisation_after", most=1.0))
    return routed(
        exactly(prices["small"]),
        exactly(prices["big"]),
        share,
        escalated=_number(case, "escalate", most=1.0) if case.get("escalate") else 0.0,
        big_use=use,
    )


def _unoptimised(case: Mapping[str, Any], listed: list[Mapping[str, Any]]) -> float | None:
    """The dearest big model in cases of the same shares and the same small model, where it is dearer than this one's."""
    same = [
        one["usd_per_m"]
        for one in listed
        if one.get("shares") == case["shares"] and isinstance(one.get("usd_per_m"), Mapping)
        and one["usd_per_m"].get("small") == case["usd_per_m"]["small"]
    ]  # fmt: skip
    prices = [one["big"] for one in same if isinstance(one.get("big"), int | float)]
    dearest = max(prices, default=0.0)
    return float(dearest) if dearest > case["usd_per_m"]["big"] else None


def _short(value: float) -> float:
    return float(f"{value:.6g}")
