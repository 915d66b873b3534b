"""What one GPU costs for one hour: from the target, from the configuration, or from a price list with dates.

A price list is YAML: ``prices: [{gpu, provider, gpu_hour_usd, as_of, source, kind}, …]``.
"""

from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from goodwatch.app._fields import Context, Text
from goodwatch.app._validate import read_sources, settle, validated
from goodwatch.app.config import PerTarget, Prices
from goodwatch.core.section import Positive, Section

#: GPU rental prices move within months; after half a year a listed one is a guess
STALE_AFTER_DAYS: Final = 180


def _date(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("is not a date; write year-month-day, as in 2026-01-31") from None


class PriceRow(Section):
    """One line of a price list."""

    gpu: Text = Field(description="GPU type; upper and lower case are the same.")
    provider: Text = Field(description="Who sells it.")
    gpu_hour_usd: Positive = Field(description="USD for one hour of one GPU.")
    as_of: Annotated[date, BeforeValidator(_date), WithJsonSchema({"type": "string", "format": "date"})] = Field(
        description="Day on which the price was read."
    )
    source: Text = Field(description="Where it was read: a URL or a sentence.")
    kind: Text = Field(default="on_demand", description="On what terms, for example on_demand, reserved, spot.")


class PriceList(Section):
    """A whole price list."""

    prices: tuple[PriceRow, ...] = Field(description="The rows.")


@dataclass(frozen=True, slots=True)
class Price:
    """One price and where it comes from. ``as_of`` is None where the operator wrote it without a date."""

    gpu_hour_usd: float
    origin: str
    as_of: date | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Everything that is known of prices; ``rows`` go with the place where each was written."""

    prices: Prices
    rows: tuple[tuple[str, PriceRow], ...] = ()

    def price_of(self, entry: PerTarget, *, today: date) -> Price | None:
        """Price of one GPU-hour of a target, in USD; None when it is not known.

        The target's own price comes first, then ``prices.gpu_hour_usd``, then the newest row of the price list.
        ``today`` (UTC) decides whether a row is too old to be taken without a warning.
        """
        if entry.gpu_hour_usd is not None:
            return Price(entry.gpu_hour_usd, "gpu_hour_usd of the target")
        if entry.gpu is None:
            return None
        wanted = entry.gpu.casefold()
        for gpu, usd in self.prices.gpu_hour_usd.items():
            if gpu.casefold() == wanted:
                return Price(usd, f"prices.gpu_hour_usd of {gpu}")
        return self._listed(wanted, today)

    def _listed(self, wanted: str, today: date) -> Price | None:
        matching = [(where, row) for where, row in self.rows if row.gpu.casefold() == wanted]
        if not matching:
            return None
        newest = max(row.as_of for _, row in matching)
        where, row = next((where, row) for where, row in matching if row.as_of == newest)
        rivals = {other.gpu_hour_usd for _, other in matching if other.as_of == newest}
        origin = f"{where}: {row.provider}, {row.kind}, {row.source}"
        return Price(row.gpu_hour_usd, origin, row.as_of, _doubt(row, rivals, today))


def _doubt(row: PriceRow, rivals: set[float], today: date) -> str | None:
    """Why a listed price may be wrong, None when nothing speaks against it."""
    age_days = (today - row.as_of).days
    doubts = []
    if age_days > STALE_AFTER_DAYS:
        doubts.append(f"the price of {row.gpu} is {age_days} days old")
    if age_days < 0:
        doubts.append(f"the price of {row.gpu} is dated {row.as_of}, in the future")
    if len(rivals) > 1:
        low, high = min(rivals), max(rivals)
        doubts.append(f"rows of the same day say {low:g} to {high:g} USD for {row.gpu}; the first was taken")
    return "; ".join(doubts) or None


def load_prices(prices: Prices) -> PriceBook:
    """The price book of a configuration; reads ``prices.file`` where there is one.

    Raises ``SettingsError`` (a ``ConfigError``) with everything that is wrong with the file.
    """
    if prices.file is None:
        return PriceBook(prices)
    return PriceBook(prices, _rows(prices.file))


def _rows(path: Path) -> tuple[tuple[str, PriceRow], ...]:
    schema = PriceList.model_json_schema()
    sources = read_sources(path, None, schema)
    listed, faults = validated(PriceList, sources.data, Context((), path.parent))
    settle(sources, schema, faults)
    assert listed is not None  # settle has raised otherwise
    return tuple((f"{path.name}:{sources.file.line(('prices', i))}", row) for i, row in enumerate(listed.prices))
