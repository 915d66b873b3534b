"""Prices of commercial APIs from the ``genai-prices`` package, whose data is inside it: nothing is fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from typing import Final

import genai_prices
from genai_prices.data import providers
from genai_prices.types import ConditionalPrice, ModelInfo, ModelPrice, Provider, StartDateConstraint

from goodwatch.core.errors import ConfigError
from planner.cost.breakeven import ApiQuote
from planner.cost.unit import Traffic

#: prices that change on one day, from which on it was not one announcement
_SEVERAL: Final = 3


def api_quote(name: str, traffic: Traffic, at: datetime) -> ApiQuote:
    """What an API takes for one request of this traffic.

    Parameters
    ----------
    name
        ``provider/model`` as the provider names it, as in ``openai/gpt-5-mini``.
    traffic
        Mean tokens of a request, cached input apart; tiers by length are read at the mean.
    at
        For which moment; prices have a day from which they hold.

    Raises
    ------
    ConfigError
        Provider or model are not in the list, or the model has no price by token.
    """
    provider, model = _found(name)
    whole = round(traffic.input_tokens)
    usage = genai_prices.Usage(
        input_tokens=whole,
        cache_read_tokens=round(whole * traffic.cached_ratio),
        output_tokens=round(traffic.output_tokens),
    )
    try:
        told = genai_prices.calc_price(usage, model.id, provider_id=provider.id, genai_request_timestamp=at)
    except (LookupError, ValueError) as error:
        raise ConfigError(f"--compare {name}: genai-prices cannot price this traffic: {error}") from error
    price, notes = told.model_price, []
    if price.input_mtok is None or price.output_mtok is None:
        if ":free" not in model.id:
            raise ConfigError(f"--compare {name}: genai-prices has no price by token of it")
        notes.append("listed as free; such offers have limits of rate")
    if traffic.cached_ratio and price.cache_read_mtok is None:
        notes.append("no price of cached input is listed: taken as other input")
    since = _since(model, price)
    reach = data_date(at.date())
    return ApiQuote(
        f"{provider.id}/{model.id}", float(told.total_price), _plain(price.input_mtok), _plain(price.cache_read_mtok),
        _plain(price.output_mtok), since.isoformat() if since else "",
        f"genai-prices {genai_prices.__version__}, price changes in it up to {reach or 'no date'}", tuple(notes),
    )  # fmt: skip


def _found(name: str) -> tuple[Provider, ModelInfo]:
    """Provider and model, by exact name first, else as the list matches names."""
    first, slash, rest = name.partition("/")
    if not slash or not rest:
        raise ConfigError(f"--compare {name}: write it as provider/model, as in openai/gpt-5-mini")
    provider = next((one for one in providers if one.id == first.casefold()), None)
    if provider is None:
        near = get_close_matches(first.casefold(), [one.id for one in providers], 4, 0.5)
        known = (
            f"near it: {', '.join(near)}"
            if near
            else f"known are {', '.join(sorted(one.id for one in providers)[:12])}, …"
        )
        raise ConfigError(f"--compare {name}: no provider {first}; {known}")
    exact = next((one for one in provider.models if one.id.casefold() == rest.casefold()), None)
    model = exact or provider.find_model(rest)
    if model is None:
        near = get_close_matches(rest, [one.id for one in provider.models], 5, 0.4)
        raise ConfigError(f"--compare {name}: {provider.name} has no such model; near it: {', '.join(near) or 'none'}")
    return provider, model


@cache
def data_date(today: date) -> date | None:
    """About how new the data is, which the package does not say: the newest day up to ``today`` on which prices changed.

    A day with one or two changes may have been announced long before, and does not count.
    """
    changed = Counter(day for one in providers for model in one.models for day in _starts(model) if day <= today)
    return max((day for day, count in changed.items() if count >= _SEVERAL), default=None)


def _starts(model: ModelInfo) -> list[date]:
    prices: Sequence[ConditionalPrice] = model.prices if isinstance(model.prices, list) else ()
    constraints = [*(one.constraint for one in prices), *(one.constraint for one in model.price_variants or ())]
    return [one.start_date for one in constraints if isinstance(one, StartDateConstraint)]


def _since(model: ModelInfo, price: ModelPrice) -> date | None:
    """From when the price that was taken holds; None where the list does not say."""
    if not isinstance(model.prices, list):
        return None
    days = [
        one.constraint.start_date
        for one in model.prices
        if one.prices == price and isinstance(one.constraint, StartDateConstraint)
    ]
    return max(days, default=None)


def _plain(price: object) -> float | None:
    """USD per million; None for none and for tiers."""
    return float(price) if isinstance(price, Decimal) else None
