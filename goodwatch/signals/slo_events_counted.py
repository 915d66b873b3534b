"""Events of SLOs from single requests, rollups, scores and published costs, minute by minute. Pure.

What engines do not count goodwatch counts itself: joint goodput, tenants, routes and bands, quality, cost. A request
belongs to the minute in which it ended, a score to the one in which it came.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from goodwatch.core.model import Limits
from goodwatch.core.request import Verdict
from goodwatch.core.slo import Availability, Cost, JointGoodput, Latency, Quality, Slo
from goodwatch.signals.slo_events import EVENTS, MINUTE_S, group_key, summed

#: published costs by tokens, as derived numbers
COST_NAMES: Final = {
    "good": "usd_per_million_good_tokens",
    "output": "usd_per_million_output_tokens",
    "total": "usd_per_million_tokens",
}
SPEND_NAMES: Final = ("usd_per_hour", "output_tokens_per_s")
PREFIX_SIGNALS: Final = ("prefix_cache_queries_total", "prefix_cache_hits_total")
#: histograms whose mean is watched: an exact number where a quantile of buckets is not
MEAN_SIGNALS: Final = ("ttft_seconds", "tpot_seconds", "e2e_seconds")
_LIMITED: Final = {"ttft_seconds": "ttft_s", "tpot_seconds": "tpot_s", "e2e_seconds": "e2e_s"}
_VALID: Final = (Verdict.GOOD.value, Verdict.BAD.value)


def limits_counted(slo: Slo) -> Limits | None:
    """The limits that requests are judged by for this SLO; None when requests do not tell what it counts."""
    kind = slo.indicator
    if isinstance(kind, JointGoodput):
        return kind.limits
    if isinstance(kind, Latency) and kind.signal in _LIMITED:
        return Limits(**{_LIMITED[kind.signal]: kind.limit_s})
    return Limits() if isinstance(kind, Availability) else None


def band_condition(text: str) -> pl.Expr:
    """Whether a prompt is in a band: ``256-1023`` (both ends in it), ``65536+``, ``0``, or ``unknown``.

    Raises
    ------
    ValueError
        For any other text.
    """
    tokens = pl.col("input_tokens")
    if text == "unknown":
        return tokens.is_null()
    low, dash, high = text.removesuffix("+").partition("-")
    if not low.isdigit() or (dash and not high.isdigit()):
        raise ValueError(f"'{text}' is no band; write for example 256-1023, 65536+ or unknown")
    if text.endswith("+"):
        return tokens >= int(low)
    return tokens.is_between(int(low), int(high if dash else low))


def scoped(facts: pl.DataFrame, slo: Slo) -> pl.DataFrame:
    """The requests that an SLO is about."""
    scope = slo.scope
    wanted = [(name, getattr(scope, name)) for name in ("model", "tenant", "route") if getattr(scope, name)]
    kept = facts.filter(*(pl.col(name) == value for name, value in wanted)) if wanted else facts
    return kept.filter(band_condition(scope.input_band)) if scope.input_band else kept


def fact_events(judged: pl.DataFrame, slo: Slo) -> pl.DataFrame:
    """``EVENTS`` of judged requests (``FACTS`` with ``verdict``) in the scope of an SLO; target ``counted``."""
    valid = scoped(judged, slo).filter(pl.col("verdict").is_in(_VALID))
    weight = pl.col("weight").fill_null(1.0)
    rows = valid.with_columns(
        minute_s=_minute("ended_at"), group=_group(slo.scope.by), total=weight,
        bad=pl.when(pl.col("verdict") == Verdict.BAD.value).then(weight).otherwise(0.0),
    )  # fmt: skip
    return _named(rows, "counted")


def rollup_events(rollups: pl.DataFrame, slo: Slo, length_s: float) -> pl.DataFrame:
    """The same from rollups (``ROLLUPS``) of one tier, for the SLO that judged them; overrides are part of it."""
    name = pl.col("slo").fill_null("")
    mine = rollups.filter((name == slo.name) | name.str.starts_with(f"{slo.name}#"))
    if slo.scope.model:
        mine = mine.filter(pl.col("model") == slo.scope.model)
    rows = mine.with_columns(
        minute_s=pl.col("start_s"), group=pl.lit(""), total=pl.col("valid"), bad=pl.col("valid") - pl.col("good")
    )
    return _named(rows, "counted", length_s)


def score_events(scores: pl.DataFrame, slo: Slo, facts: pl.DataFrame | None = None) -> pl.DataFrame:
    """``EVENTS`` of quality scores (``SCORES``): bad is under the least score; target ``counted``.

    ``facts`` (trace_id, and what the scope asks for) narrow them to requests in scope; scores of other traces, and
    those that only know a response, are then left out.
    """
    kind = slo.indicator
    if not isinstance(kind, Quality):
        return pl.DataFrame(schema=EVENTS)
    told = scores.filter(pl.col("score").is_not_null())
    if kind.evaluator:
        told = told.filter(pl.col("evaluator") == kind.evaluator)
    if facts is not None:
        kept = ["trace_id", *(name for name in slo.scope.by if name in facts.columns)]
        about = scoped(facts, slo).select(kept).unique("trace_id", keep="first", maintain_order=True)
        told = told.drop([name for name in kept[1:] if name in told.columns]).join(about, on="trace_id")
    elif slo.scope.model:
        told = told.filter(pl.col("model") == slo.scope.model)
    rows = told.with_columns(
        minute_s=_minute("received_s"), group=_group(slo.scope.by), total=pl.lit(1.0),
        bad=(pl.col("score") < kind.min_score).cast(pl.Float64),
    )  # fmt: skip
    return _named(rows, "counted")


def cost_events(derived: pl.DataFrame, slo: Slo) -> pl.DataFrame:
    """``EVENTS`` of minutes from a published cost (``DERIVED``): one event a minute that has a number; target ``cost``.

    The last number of a minute is its number; of an interval the low end counts, as in the rules.
    """
    kind = slo.indicator
    if not isinstance(kind, Cost):
        return pl.DataFrame(schema=EVENTS)
    ours = derived.filter(
        pl.col("name") == COST_NAMES[kind.tokens], pl.col("target") == "", pl.col("model") == slo.scope.model
    )
    usd = pl.coalesce("value", "low")
    last = (
        ours.filter(usd.is_not_null())
        .sort("ts")
        .group_by(minute_s=_minute("ts"))
        .agg(usd.last().alias("usd"))
        .with_columns(
            group=pl.lit(""),
            total=pl.lit(1.0),
            bad=(pl.col("usd") > kind.usd_per_million).cast(pl.Float64),
        )
    )
    return _named(last, "cost")


def spend_events(derived: pl.DataFrame) -> pl.DataFrame:
    """Money over tokens of a service, minute by minute: ``total`` output tokens, ``bad`` USD; target ``spend``.

    Both are there only in minutes in which both were published: idle time is paid for and is in.
    """
    whole = derived.filter(pl.col("target") == "", pl.col("model") == "", pl.col("name").is_in(SPEND_NAMES))
    minutes = whole.group_by("name", minute_s=_minute("ts")).agg(pl.col("value").mean())
    hourly, tokens = (minutes.filter(pl.col("name") == name).drop_nulls("value") for name in SPEND_NAMES)
    both = hourly.join(tokens, on="minute_s", suffix="_tokens").with_columns(
        group=pl.lit(""), total=pl.col("value_tokens") * MINUTE_S, bad=pl.col("value") / 60
    )
    return _named(both, "spend")


def prefix_events(minutes: pl.DataFrame) -> pl.DataFrame:
    """Prompt tokens looked up in the prefix cache (``total``) and not found (``bad``); target ``prefix``."""
    looked, found = (pl.col("increase").filter(pl.col("signal") == name).sum() for name in PREFIX_SIGNALS)
    told = minutes.filter(pl.col("signal").is_in(PREFIX_SIGNALS))
    rows = told.group_by("minute_s").agg(total=looked, bad=(looked - found).clip(0.0))
    return _named(rows.with_columns(group=pl.lit("")), "prefix")


def mean_events(minutes: pl.DataFrame) -> pl.DataFrame:
    """Observations of latencies (``total``) and their seconds (``bad``): their quotient is the mean; targets by signal."""
    rows = minutes.filter(pl.col("signal").is_in(MEAN_SIGNALS), pl.col("kind") == "histogram").drop_nulls("sum")
    return summed(
        _named(part.with_columns(group=pl.lit(""), total=pl.col("increase"), bad=pl.col("sum")), str(signal))
        for (signal,), part in rows.group_by("signal")
    )


def _minute(column: str) -> pl.Expr:
    return (pl.col(column) / MINUTE_S).floor() * MINUTE_S


def _group(by: Sequence[str]) -> pl.Expr:
    if not by:
        return pl.lit("")
    return pl.concat_str([pl.col(name).cast(pl.String).fill_null("") for name in by], separator=group_key(["", ""]))


def _named(rows: pl.DataFrame, target: str, length_s: float = MINUTE_S) -> pl.DataFrame:
    return summed([rows.with_columns(target=pl.lit(target), length_s=pl.lit(length_s))])
