"""Self-hosting beside an API for the same traffic, and the volume from which the one is cheaper than the other. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from planner.cost.interval import quotient
from planner.cost.unit import HOURS_PER_MONTH, SECONDS_PER_DAY, Traffic
from planner.estimate import Estimate

#: another tokenizer cuts the same text into more or fewer tokens. An assumption, wide enough for English text and code
_TOKENIZER: Final = Estimate(1.0, 0.85, 1.2)
_PER_MILLION: Final = 1e6
#: not in the GPU's price; said beside every comparison
LEFT_OUT: Final = (
    "work of people, network, storage and the gateway are not in the GPU's price",
    "your tokens are taken as the API's; its tokenizer may count 15 % fewer or 20 % more (in the interval)",
)


@dataclass(frozen=True, slots=True)
class ApiQuote:
    """What an API takes for one request of a traffic. Prices per million are None where the list has none or tiers.

    ``as_of``: from when this price holds, "" where its list does not say; ``source``: the list, with its version and date.
    """

    name: str
    usd_per_request: float
    input_usd: float | None
    cached_usd: float | None
    output_usd: float | None
    as_of: str
    source: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """USD a month of both, and where they meet.

    ``tokens_per_day``: input and output, at the traffic's mix, from which the fleet as it stands is cheaper than the API;
    ``utilisation``: of that fleet there; both None for "never". ``certain``: the intervals of the bills do not overlap.
    """

    quote: ApiQuote
    own_usd_per_month: Estimate
    api_usd_per_month: Estimate
    api_usd_per_million_tokens: Estimate
    cheaper: Literal["self-hosting", "API"]
    certain: bool
    tokens_per_day: Estimate | None
    utilisation: Estimate | None
    reason: str


def compared(
    quote: ApiQuote, traffic: Traffic, *, usd_per_hour: Estimate, requests_per_s: Estimate, most_requests_per_s: Estimate,
    headroom_ratio: float = 0.0, instances: float = 1.0, standing_usd_per_hour: Estimate | None = None,
) -> Comparison:  # fmt: skip
    """The fleet's bill beside the API's for the requests that it serves.

    Parameters
    ----------
    quote
        The API's price of one such request; 0 is free.
    traffic
        Mean tokens of a request.
    usd_per_hour
        Of the whole fleet.
    requests_per_s, most_requests_per_s
        Served, and what the fleet could do.
    headroom_ratio
        Share of its rate that is kept free: volume that would need it is no volume to count on.
    instances
        Engine instances of the fleet: one of them alone breaks even at its share of the volume.
    standing_usd_per_hour
        Of the fleet as it stands, where the doubt of ``usd_per_hour`` holds how many GPUs it takes.
    """
    api_hour = _api(quote.usd_per_request * 3600, requests_per_s)
    own, api = usd_per_hour.scaled(HOURS_PER_MONTH), api_hour.scaled(HOURS_PER_MONTH)
    each = quote.usd_per_request / traffic.tokens * _PER_MILLION
    unit = Estimate(
        each, each * _TOKENIZER.low, each * _TOKENIZER.high, f"per million input and output tokens, {quote.source}"
    )
    cheaper: Literal["self-hosting", "API"] = "self-hosting" if own.point < api.point else "API"
    certain = own.high < api.low if cheaper == "self-hosting" else api.high < own.low
    tokens, use, reason = _meeting(
        unit, traffic, standing_usd_per_hour or usd_per_hour, most_requests_per_s, headroom_ratio
    )
    if tokens is not None and instances > 1:
        reason += f"; one instance of the {instances:g} alone from {tokens.point / instances:,.0f} tokens a day on"
    return Comparison(quote, own, api, unit, cheaper, certain, tokens, use, reason)


def _api(usd_per_hour: float, requests_per_s: Estimate) -> Estimate:
    low, high = requests_per_s.low * _TOKENIZER.low, requests_per_s.high * _TOKENIZER.high
    basis = "the API's price of a request, times the requests served"
    return Estimate(usd_per_hour * requests_per_s.point, usd_per_hour * low, usd_per_hour * high, basis)


def _meeting(
    unit: Estimate, traffic: Traffic, usd_per_hour: Estimate, most: Estimate, headroom_ratio: float
) -> tuple[Estimate | None, Estimate | None, str]:
    if unit.point <= 0:
        return None, None, "never: the API takes nothing for this traffic"
    day = quotient(usd_per_hour.scaled(24 * _PER_MILLION), unit, "input and output tokens a day at this mix")
    most_day = most.scaled(traffic.tokens * SECONDS_PER_DAY)
    use = quotient(day, most_day, "of what the fleet as it stands can do")
    limit = 1 - headroom_ratio
    full = quotient(usd_per_hour.scaled(24 * _PER_MILLION), most_day.scaled(limit))
    kept = f" with {headroom_ratio:.0%} kept free" if headroom_ratio else ""
    both = f"{full.point:.3g} USD per million tokens with every GPU full{kept}, the API {unit.point:.3g}"
    if use.point <= limit:
        doubt = "; at the dear and slow ends of the intervals never" if use.high > limit else ""
        return day, use, f"{both}{doubt}"
    doubt = ""
    if use.low <= limit:
        doubt = f"; at the cheap and fast ends it would be from {day.low:,.0f} tokens a day on"
    return None, None, f"never: {both}; more volume needs more GPUs at the same price{doubt}"
