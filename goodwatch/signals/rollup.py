"""Judged requests added up per minute, hour and day. Pure; everything in a rollup adds, so periods and replicas merge.

A fact belongs to the minute in which it ended: ``[start_s, start_s + tier_s)``.
"""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from goodwatch.core.quality import QualityRules
from goodwatch.core.request import EMPTY_BAND, UNKNOWN_BAND, Outcome, Verdict
from goodwatch.signals.quality import with_quality
from goodwatch.signals.quantiles import ZERO_BIN, bin_indexes
from goodwatch.signals.request_frames import BINS, LATENCY_FIELDS, ROLLUP_KEYS, ROLLUPS

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400
TIERS_S: Final = (MINUTE_S, HOUR_S, DAY_S)

#: valid, and the service's own doing
FAILED: Final = (Outcome.REFUSED, Outcome.ERROR, Outcome.TIMEOUT)

_SUMS: Final = tuple(name for name in ROLLUPS if name not in ROLLUP_KEYS and name != "slo")
_BIN_KEYS: Final = (*ROLLUP_KEYS, "field")


def band_expr(tokens: str) -> pl.Expr:
    """The base band of a column of token counts, as ``goodwatch.core.request.band_of`` gives it."""
    column = pl.col(tokens)
    return (
        pl.when(column > 0)
        .then(63 - column.bitwise_leading_zeros().cast(pl.Int16))
        .when(column == 0)
        .then(pl.lit(EMPTY_BAND, pl.Int16))
        .otherwise(pl.lit(UNKNOWN_BAND, pl.Int16))
        .cast(pl.Int16)
    )


def roll_up(
    facts: pl.DataFrame, scores: pl.DataFrame | None = None, *, rules: QualityRules | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Counts, sums and bins of judged requests per minute.

    Parameters
    ----------
    facts
        ``FACTS`` and the columns ``verdict`` (a ``Verdict``) and ``slo`` (what judged it). The same fact must not be
        there twice. A minute must be there with all of its facts, because what is stored is replaced.
    scores
        ``SCORES`` given to these requests; None is none.
    rules
        What passes, by evaluator; None: the plain rules. A request passes when all of its scores do.

    Returns
    -------
    tuple[polars.DataFrame, polars.DataFrame]
        ``ROLLUPS`` and ``BINS`` with a ``tier_s`` of 60, sorted by their keys.
    """
    rated = facts.with_columns(passed=pl.lit(None, pl.Boolean))
    if scores is not None and not scores.is_empty():
        rated = with_quality(facts, scores, rules or QualityRules())
    judged = rated.with_columns(
        tier_s=pl.lit(MINUTE_S, pl.Int32),
        start_s=_floored("ended_at", MINUTE_S),
        input_band=band_expr("input_tokens"),
        output_band=band_expr("output_tokens"),
        w=pl.col("weight").fill_null(1.0),
    )
    rollups = judged.group_by(*ROLLUP_KEYS, "slo").agg(**_sums_of_facts())
    return _shaped(rollups, ROLLUPS), _bins_of_facts(judged)


def coarser(rollups: pl.DataFrame, bins: pl.DataFrame, tier_s: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``ROLLUPS`` and ``BINS`` of the coarser tier that these rows of a finer one add up to.

    Each period of the coarser tier must be there with all rows of the finer one.
    """
    tier = {"tier_s": pl.lit(tier_s, pl.Int32), "start_s": _floored("start_s", tier_s)}
    summed = rollups.with_columns(**tier).group_by(*ROLLUP_KEYS, "slo").agg(pl.col(_SUMS).sum())
    scopes, scoped = _numbered(bins.with_columns(**tier), _BIN_KEYS)
    totals = scoped.group_by("scope").agg(pl.col("zero", "facts", "sum").sum())
    counts = scoped.select("scope", "bin", "count").explode("bin", "count", empty_as_null=False, keep_nulls=False)
    return _shaped(summed, ROLLUPS), _with_lists(scopes, totals, counts)


def _floored(time: str, tier_s: int) -> pl.Expr:
    return (pl.col(time) / tier_s).floor() * tier_s


def _sums_of_facts() -> dict[str, pl.Expr]:
    """Every column of ``ROLLUPS`` that adds."""
    w, verdict, status = pl.col("w"), pl.col("verdict"), pl.col("status")
    good = verdict == Verdict.GOOD
    valid = good | (verdict == Verdict.BAD)
    failed, aborted = status.is_in([*FAILED]), status == Outcome.ABORTED
    output = pl.col("output_tokens").cast(pl.Float64)
    tokens = pl.sum_horizontal(pl.col("input_tokens").cast(pl.Float64), output)  # an unknown count adds nothing
    return {
        "requests": pl.len().cast(pl.Float64),
        "weighted": w.sum(),
        "weighted_sq": (w * w).sum(),
        "unweighted": pl.col("weight").null_count().cast(pl.Float64),
        "valid": w.filter(valid).sum(),
        "good": w.filter(good).sum(),
        "undetermined": w.filter(verdict == Verdict.UNDETERMINED).sum(),
        "failed": w.filter(failed).sum(),
        "aborted": w.filter(aborted).sum(),
        "good_sq": (w * w).filter(good).sum(),
        "valid_sq": (w * w).filter(valid).sum(),
        "input_tokens": (w * pl.col("input_tokens")).sum(),
        "cached_tokens": (w * pl.col("cached_tokens")).sum(),
        "output_tokens": (w * output).sum(),
        "good_output_tokens": (w * output).filter(good).sum(),
        "good_tokens": (w * tokens).filter(good).sum(),
        "lost_output_tokens": (w * output).filter(failed | aborted).sum(),
        "scored": w.filter(pl.col("passed").is_not_null()).sum(),
        "passed": w.filter(pl.col("passed")).sum(),
        "passed_good": w.filter(pl.col("passed") & good).sum(),
    }


def _bins_of_facts(judged: pl.DataFrame) -> pl.DataFrame:
    scopes, scoped = _numbered(judged, tuple(ROLLUP_KEYS))
    fields = pl.DataFrame({"field": LATENCY_FIELDS}).with_row_index("nth")
    named = scopes.join(fields, how="cross").with_columns(scope=_of_field(pl.col("nth"))).drop("nth")
    long = pl.concat(
        scoped.select("w", scope=_of_field(pl.lit(nth)), value=field).drop_nulls("value")
        for nth, field in enumerate(LATENCY_FIELDS)
    )
    seen = long.with_columns(bin=bin_indexes(long["value"])).drop_nulls("bin")
    totals = seen.group_by("scope").agg(
        zero=pl.col("w").filter(pl.col("bin") == ZERO_BIN).sum(),
        facts=pl.len().cast(pl.Float64),
        sum=(pl.col("w") * pl.col("value")).sum(),
    )
    counts = seen.filter(pl.col("bin") != ZERO_BIN).select("scope", "bin", count="w")
    return _with_lists(named, totals, counts)


def _of_field(nth: pl.Expr) -> pl.Expr:
    """One number for a scope and a latency field."""
    return (pl.col("scope") * len(LATENCY_FIELDS) + nth).cast(pl.UInt32)


def _numbered(frame: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The distinct keys with a number, ``scope``, and the frame with that number: grouping by a number is cheap."""
    scopes = frame.select(keys).unique().with_row_index("scope")
    return scopes, frame.join(scopes, on=list(keys), nulls_equal=True)


def _with_lists(scopes: pl.DataFrame, totals: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """``BINS`` from keys, totals (zero, facts, sum) and counts (bin, count) by ``scope``."""
    lists = (
        counts.group_by("scope", "bin")
        .agg(pl.col("count").sum())
        .sort("scope", "bin")
        .group_by("scope", maintain_order=True)
        .agg("bin", "count")
    )
    whole = scopes.join(totals, on="scope").join(lists, on="scope", how="left")
    return _shaped(whole.with_columns(pl.col("bin", "count").fill_null([])), BINS)


def _shaped(frame: pl.DataFrame, schema: dict[str, Any]) -> pl.DataFrame:
    keys = [name for name in (*ROLLUP_KEYS, "field", "slo") if name in schema]
    return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items()).sort(keys)
