"""What a million tokens and a month cost, from a price an hour and a rate. Pure.

USD per million = USD per hour / (tokens per second at full load x utilisation x 3600) x 10^6. Which tokens are counted
is part of every figure: the same box at the same load is twice as dear per output token as per token of both kinds
when a request has as many of one as of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from goodwatch.core.errors import ConfigError
from planner.cost.interval import product, quotient
from planner.estimate import Estimate, exactly

Counted = Literal["output", "total", "good"]
COUNTED_TEXTS: Final = {
    "output": "output tokens", "total": "input and output tokens", "good": "output tokens of good requests",
}  # fmt: skip
HOURS_PER_MONTH: Final = 730.5
SECONDS_PER_DAY: Final = 86_400.0
_PER_MILLION: Final = 1e6
_FULL: Final = exactly(1.0)
_LONGEST: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Traffic:
    """Mean tokens of a request; ``cached_ratio`` of the input comes from the prefix cache.

    ``good_ratio``: share of output tokens that belong to requests which met every target; None is not known.
    """

    input_tokens: float
    output_tokens: float
    cached_ratio: float = 0.0
    good_ratio: float | None = None

    def checked(self) -> Traffic:
        """The same. Raises ConfigError where a figure cannot be."""
        for flag, tokens in (("--input-tokens", self.input_tokens), ("--output-tokens", self.output_tokens)):
            if not 0 < tokens <= _LONGEST:
                raise ConfigError(f"{flag} {tokens:g}: is not above 0 and at most {_LONGEST:,}")
        if not 0 <= self.cached_ratio < 1:
            raise ConfigError(f"--cached-ratio {self.cached_ratio:g}: is not a share of 0 to below 1")
        if self.good_ratio is not None and not 0 < self.good_ratio <= 1:
            raise ConfigError(f"--good-ratio {self.good_ratio:g}: is not a share above 0 and at most 1")
        return self

    @property
    def tokens(self) -> float:
        """Input and output tokens of a request."""
        return self.input_tokens + self.output_tokens


def per_million(
    usd_per_hour: Estimate, tokens_per_s: Estimate, *, utilisation: Estimate = _FULL, counted: Counted = "output"
) -> Estimate:
    """USD for a million tokens.

    Parameters
    ----------
    usd_per_hour
        Of everything that is held, idle time included (``planner.cost.prices.usd_per_hour``).
    tokens_per_s
        What it does at full load, of the ``counted`` kind.
    utilisation
        Tokens served / tokens at full load, above 0 and at most 1; the interval may reach beyond.
    counted
        Which tokens ``tokens_per_s`` are; for the basis.

    Raises
    ------
    ConfigError
        A figure is not above 0, or the utilisation is above 1.

    Notes
    -----
    The three doubts are independent: in logarithms they add as squares.

    Examples
    --------
    >>> round(per_million(exactly(4.60), exactly(4116.4), utilisation=exactly(0.66)).point, 2)
    0.47
    """
    if counted not in get_args(Counted):
        raise ConfigError(f"basis {counted}: unknown; {', '.join(get_args(Counted))}")
    check_utilisation(utilisation.point)
    for name, one in (("USD per hour", usd_per_hour), ("tokens per second", tokens_per_s)):
        if not one.point > 0:
            raise ConfigError(f"{name}: {one.point:g}: is not above 0")
    basis = f"per million {COUNTED_TEXTS[counted]}, {utilisation.point:.0%} of {tokens_per_s.point:,.0f} tokens/s used"
    basis += "".join(f"; {one.basis}" for one in (tokens_per_s, utilisation, usd_per_hour) if one.basis)
    return quotient(usd_per_hour.scaled(_PER_MILLION / 3600), product(tokens_per_s, utilisation), basis)


def check_utilisation(value: float, flag: str = "utilisation") -> None:
    """Raises ConfigError for what is no utilisation."""
    if not 0 < value <= 1:
        more = " Add GPUs, or tell the load with --requests-per-s." if value > 1 else ""
        raise ConfigError(f"{flag} {value:g}: is not above 0 and at most 1.{more}")


def per_month(usd_per_hour: Estimate) -> Estimate:
    """USD for a month of 730.5 hours, paid whether used or not."""
    month = usd_per_hour.scaled(HOURS_PER_MONTH)
    return Estimate(month.point, month.low, month.high, f"{HOURS_PER_MONTH} h, used or not; {usd_per_hour.basis}")


def good_tokens(cost: Estimate, good_ratio: float | None) -> Estimate | None:
    """Per million tokens of good requests, from the cost of all and the share of tokens that were good; None unknown."""
    if good_ratio is None:
        return None
    basis = f"per million {COUNTED_TEXTS['good']}, {good_ratio:.0%} of output tokens are; {cost.basis}"
    return Estimate(cost.point / good_ratio, cost.low / good_ratio, cost.high / good_ratio, basis)


def wasted_per_day(usd_per_hour: float, wasted_ratio: float) -> float:
    """USD a day paid for tokens of failed, cancelled or repeated requests."""
    return usd_per_hour * 24 * wasted_ratio
