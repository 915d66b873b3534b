"""Exponential bins and quantiles over polars columns. Pure; the bins are those of ``goodwatch.core.exponential``.

``BINNED`` is the long form of bins: one row a bin of a group, zeros in the bin ``ZERO_BIN`` that lies below all others.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import polars as pl

from goodwatch.core.exponential import BINS_PER_DOUBLING, LARGEST_WITHIN_53_BITS, interval_ranks, reached, told_value

#: The bin of zero; every other bin has a higher index.
ZERO_BIN: Final = -(2**16)

#: columns besides those that name the group
BINNED: Final[dict[str, Any]] = {"bin": pl.Int32, "count": pl.Float64}

_STORED_BITS: Final = 52  # of a double's mantissa; the first bit is always 1 and not stored
_SLOT_BITS: Final = 10  # 1,024 slots of a mantissa: narrower than a bin, so that a slot holds at most one bound
#: rows of a group from which on it is cheaper to look at its tail only
_LARGE: Final = 1000

_SMALLEST_NORMAL: Final = 2.0**-1022


def _slots() -> tuple[pl.Series, pl.Series]:
    """By slot: the bin of the slot's lowest mantissa, and the mantissa above which the next bin begins."""
    bounds = [n - 2**_STORED_BITS for n in LARGEST_WITHIN_53_BITS] + [2**_STORED_BITS]
    width = 2 ** (_STORED_BITS - _SLOT_BITS)
    first = [bisect_left(bounds, slot * width) for slot in range(2**_SLOT_BITS)]
    return (
        pl.Series([at - 1 for at in first], dtype=pl.Int32),
        pl.Series([bounds[at] for at in first], dtype=pl.UInt64),
    )


_FIRST_BIN, _NEXT_ABOVE = _slots()


def bin_indexes(values: pl.Series) -> pl.Series:
    """The bin of each value as Int32: ``ZERO_BIN`` for 0, null for what is negative or not finite.

    Equal to ``exponential.bin_of`` for every double: it compares the bits of the mantissa with the bounds.
    """
    usable = values.cast(pl.Float64)
    usable = usable.set(~(usable >= 0) | ~usable.is_finite(), None)
    lowest = usable.filter(usable > 0).min()
    if isinstance(lowest, float) and lowest < _SMALLEST_NORMAL:
        lifted = _normal_bins(usable * 2.0**64) - 64 * BINS_PER_DOUBLING
        found = _normal_bins(usable).zip_with(usable >= _SMALLEST_NORMAL, lifted)
    else:
        found = _normal_bins(usable)
    return found.set(usable == 0, ZERO_BIN).alias(values.name)


def _normal_bins(values: pl.Series) -> pl.Series:
    bits = values.reinterpret(dtype=pl.UInt64)
    top = bits // 2 ** (_STORED_BITS - _SLOT_BITS)
    slot = (top & (2**_SLOT_BITS - 1)).cast(pl.UInt32)
    exponent = (top // 2**_SLOT_BITS).cast(pl.Int32) - 1023
    above = (bits & (2**_STORED_BITS - 1)) > _NEXT_ABOVE.gather(slot)
    found: pl.Series = exponent * BINS_PER_DOUBLING + _FIRST_BIN.gather(slot) + above.cast(pl.Int32)
    return found


def binned(bins: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The bins of a frame of ``BINS`` (its columns ``zero``, ``bin``, ``count``) added up by group, in the long form."""
    zeros = bins.filter(pl.col("zero") != 0).select(*by, bin=pl.lit(ZERO_BIN, pl.Int32), count="zero")
    rest = bins.select(*by, "bin", "count").explode("bin", "count", empty_as_null=False, keep_nulls=False)
    return pl.concat([zeros, rest]).group_by(*by, "bin").agg(pl.col("count").sum())


def quantiles_of_bins(long: pl.DataFrame, observations: pl.DataFrame, by: Sequence[str], q: float) -> pl.DataFrame:
    """The q-quantile of each group and the values that enclose it.

    Parameters
    ----------
    long
        ``by`` and ``BINNED``, one row a bin.
    observations
        ``by`` and ``facts``: how many observations a group is made of, whatever their weight.
    by
        One column or more.
    q
        In (0, 1).

    Returns
    -------
    polars.DataFrame
        columns: ``by``, facts f64, value f64, low f64, high f64; one row a group. ``low`` and ``high`` are the outer
        ends of the bins that hold the interval's order statistics, null where the interval is open.
    """
    whole = pl.col("count").sum().over(by)
    running = (
        long.filter(pl.col("count") > 0)
        .sort(*by, "bin")
        .with_columns(seen=pl.col("count").cum_sum().over(by), whole=whole)
        .join(_with_ranks(observations, q), on=list(by), nulls_equal=True)
    )
    facts = pl.col("facts")
    ends = {"value": pl.lit(q), "low": pl.col("low_rank") / facts, "high": pl.col("high_rank") / facts}
    found = running.group_by(*by, maintain_order=True).agg(
        facts.first(), **{name: _bin_that_reaches(position) for name, position in ends.items()}
    )
    half = math.log2(told_value(0)) * BINS_PER_DOUBLING  # where in its bin the told value lies, in bins
    return found.with_columns(_value_at("value", half), _value_at("low", 0), _value_at("high", 1))


def quantiles_of_values(values: pl.DataFrame, by: str, q: float) -> pl.DataFrame:
    """The exact q-quantile of each group and its interval's order statistics, of ``value`` weighted by ``weight``.

    ``values`` has ``by``, small whole numbers from 0 on; ``value`` f64 without nulls; and where weights are not all 1 a
    column ``weight`` f64. Returns what ``quantiles_of_bins`` returns, sorted by ``by``.
    """
    weighted = "weight" in values.columns
    floor = pl.col("value").quantile(_below(q), "lower") if not weighted else pl.lit(-math.inf)
    seen = values.group_by(by).agg(pl.len(), floor=floor).rows()
    sizes = {group: size for group, size, _ in seen}
    wanted = {group: _ranks(size, q) for group, size in sizes.items()}
    floors = {group: floor for group, size, floor in seen if _lies_below(_below(q), wanted[group], size)}
    tail = values if weighted else _tail(values, by, sizes, floors)
    rows = []
    for (group,), part in tail.partition_by(by, as_dict=True, include_key=False).items():
        size, ranks = sizes[group], wanted[group]
        told = _weighted(part, q, ranks[1:]) if weighted else _ranked(part["value"], ranks, size)
        rows.append((group, float(size), *told))
    schema: dict[str, Any] = {by: values.schema[by], **dict.fromkeys(("facts", "value", "low", "high"), pl.Float64)}
    return pl.DataFrame(rows, schema=schema, orient="row").sort(by)


def _ranks(size: int, q: float) -> list[int | None]:
    """The rank of the quantile and those that enclose it."""
    ends = interval_ranks(size, q)
    return [max(1, math.ceil(Fraction(str(q)) * size)), ends.low, ends.high]


def _below(q: float) -> float:
    """A share a little below the lowest rank that a group of ``_LARGE`` values or more needs for its q-quantile."""
    return max(0.0, q - 1.65 * math.sqrt(q * (1 - q) / _LARGE) - 3 / _LARGE)


def _lies_below(share: float, ranks: Sequence[int | None], size: int) -> bool:
    """Whether the order statistic at ``share`` (rounded down) is none above those wanted."""
    return share * (size - 1) + 1 <= min(rank for rank in ranks if rank is not None)


def _tail(values: pl.DataFrame, by: str, groups: Iterable[int], floors: Mapping[int, float]) -> pl.DataFrame:
    """The rows that are not below the floor of their group; all rows of a group without one.

    Selecting one order statistic of each group and comparing with it costs a third of putting the groups apart.
    """
    if not floors:
        return values
    floor_of = [floors.get(group, -math.inf) for group in range(max(groups) + 1)]
    floor = pl.Series(floor_of, dtype=pl.Float64).gather(values[by].cast(pl.UInt32))
    return values.filter(values["value"] >= floor)


def _ranked(top: pl.Series, ranks: Sequence[int | None], size: int) -> list[float | None]:
    """Values by their rank in a group of ``size``, of which ``top`` are the largest."""
    ordered, below = top.sort(), size - top.len()
    return [None if rank is None else ordered[rank - below - 1] for rank in ranks]


def _weighted(part: pl.DataFrame, q: float, ranks: Sequence[int | None]) -> list[float | None]:
    """The smallest values up to which the weights reach ``q`` of their total, and the share that a rank has of the rows."""
    ordered = part.sort("value")
    running = ordered["weight"].cum_sum()
    whole = float(running[-1])
    found: list[float | None] = []
    for share in (q, *(None if rank is None else rank / part.height for rank in ranks)):
        at = 0 if share is None else int(running.search_sorted(reached(share * whole, whole), side="left"))
        found.append(None if share is None else ordered["value"][min(at, part.height - 1)])
    return found


def _with_ranks(observations: pl.DataFrame, q: float) -> pl.DataFrame:
    ranks = [interval_ranks(round(count), q) for count in observations["facts"]]
    return observations.with_columns(
        pl.Series("low_rank", [one.low for one in ranks], dtype=pl.Float64),
        pl.Series("high_rank", [one.high for one in ranks], dtype=pl.Float64),
    )


def _bin_that_reaches(share: pl.Expr) -> pl.Expr:
    """The first bin up to which the counts of the group reach ``share`` of them; null when that is null."""
    whole = pl.col("whole")
    wanted = share * whole - 1e-9 - 1e-12 * whole  # as exponential.reached
    return pl.when(share.is_not_null()).then(pl.col("bin")).filter(pl.col("seen") >= wanted).first()


def _value_at(column: str, bins_up: float) -> pl.Expr:
    """The value that lies ``bins_up`` bins above the lower end of the bin in ``column``."""
    index = pl.col(column)
    value = ((index + bins_up) * (math.log(2) / BINS_PER_DOUBLING)).exp()
    return pl.when(index == ZERO_BIN).then(0.0).otherwise(value).alias(column)
