"""Which numbers are watched for slow trends, and their hourly values. Pure: events and bins in, hours out.

Hours are counted and only then divided. An hour that holds too little says nothing and is left out.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from goodwatch.core.slo import Cost, Quality, Slo
from goodwatch.signals.drift import HOUR_S, Hour, Trend
from goodwatch.signals.quantiles import binned, quantiles_of_bins
from goodwatch.signals.slo_events_counted import MEAN_SIGNALS

#: latency fields of requests whose P99 is watched where there are requests
P99_FIELDS: Final = {"engine_ttft_s": "ttft", "engine_tpot_s": "tpot", "engine_e2e_s": "e2e"}
#: events that an hour must hold for a share of them or a mean
_LEAST_EVENTS: Final = 20.0
#: observations that a 99th percentile needs (design §3)
_LEAST_P99: Final = 100.0
#: relative change of a latency or a cost that matters
_LEAST_CHANGE: Final = 0.10
_LEAST_QUALITY: Final = 0.03
#: a shift of attainment matters from half of the budget on
_LEAST_BUDGET: Final = 0.5


def slo_trend(slo: Slo) -> Trend | None:
    """What is watched of an SLO: its share of good events; None for minutes of cost, which have their own trend."""
    if isinstance(slo.indicator, Cost):
        return None
    if isinstance(slo.indicator, Quality):
        return Trend(slo.service, "quality", "quality_ratio", "ratio", "down", _LEAST_QUALITY, slo=slo.name)
    least = _LEAST_BUDGET * slo.budget_ratio
    return Trend(slo.service, "attainment", "attainment_ratio", "ratio", "down", least, slo=slo.name)


def service_trends(
    service: str, beside: pl.DataFrame, p99: Mapping[str, list[Hour]]
) -> Iterator[tuple[Trend, list[Hour]]]:
    """Trends of a service with their hours: cost, and of each latency the P99 of its requests, else its mean.

    ``beside`` are ``spend`` and mean events; ``p99`` are hours by short name of the latency.
    """
    cost = Trend(service, "cost", "usd_per_million_output_tokens", "USD", "up", _LEAST_CHANGE, relative=True)
    yield cost, quotient_hours(beside, "spend", of="bad", scale=1e6)
    for signal in MEAN_SIGNALS:
        short = signal.removesuffix("_seconds")
        hours, name = p99.get(short, []), f"{short}_p99_seconds"
        if not hours:
            hours, name = quotient_hours(beside, signal, of="bad"), f"{short}_mean_seconds"
        yield Trend(service, "latency", name, "s", "up", _LEAST_CHANGE, relative=True), hours


def quotient_hours(events: pl.DataFrame, target: str, *, of: str = "good", scale: float = 1.0) -> list[Hour]:
    """Good (or bad) over total of one target (``EVENTS``), hour by hour, all groups together."""
    rows = events.filter(pl.col("target") == target)
    hourly = rows.group_by(at=(pl.col("minute_s") / HOUR_S).floor() * HOUR_S).agg(
        pl.col("total").sum(), pl.col("bad").sum()
    )
    told = hourly.filter(pl.col("total") >= _LEAST_EVENTS).sort("at")
    part = pl.col("bad") if of == "bad" else pl.col("total") - pl.col("bad")
    return [Hour(at, value) for at, value in told.select("at", part / pl.col("total") * scale).iter_rows()]


def p99_hours(bins: pl.DataFrame) -> list[Hour]:
    """The 99th percentile of one latency field, hour by hour, from ``BINS`` of the hour tier."""
    if bins.is_empty():
        return []
    observed = bins.group_by("start_s").agg(pl.col("facts").sum()).filter(pl.col("facts") >= _LEAST_P99)
    found = quantiles_of_bins(binned(bins, ("start_s",)), observed, ("start_s",), 0.99)
    told = found.filter(pl.col("value").is_not_null()).sort("start_s")
    return [Hour(at, value) for at, value in told.select("start_s", "value").iter_rows()]
