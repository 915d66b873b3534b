"""Events of SLOs, minute by minute, from what engines count themselves. Pure; the rules for Prometheus count the same.

An event belongs to the minute ``[minute_s, minute_s + 60)`` whose scrape told of it. A target (``ttft``, ``served``, …)
is one count of events; a minute in which nothing of it was told has no row, one in which nothing happened has zeros.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from goodwatch.core.slo import Availability, JointGoodput, Latency, Slo

#: one row for each tile, value of the labels that split the SLO, and target. ``length_s`` is 60, or more where thinned.
EVENTS: Final[dict[str, Any]] = {
    "minute_s": pl.Float64,
    "length_s": pl.Float64,
    "group": pl.String,  # values of Scope.by, see group_key; "" when nothing splits it
    "target": pl.String,
    "total": pl.Float64,
    "bad": pl.Float64,
}
MINUTE_S: Final = 60.0
SHORT_NAMES: Final = {"ttft_seconds": "ttft", "tpot_seconds": "tpot", "e2e_seconds": "e2e"}
_SEPARATOR: Final = "\x1f"
#: what the served requests of a target are read from
SERVED_SIGNALS: Final = (
    "http_requests_total", "requests_finished_total", "requests_failed_total", "requests_rejected_total",
)  # fmt: skip
_STREAMED_ONLY: Final = ("ttft_seconds", "tpot_seconds")
_NOT_STREAMED: Final = r"(?i)^(is_)?streaming=(false|0)$"
_CANCELLED: Final = r"^finished_reason=(abort|cancel.*)$"


@dataclass(frozen=True, slots=True)
class Counting:
    """How the signals of one engine count an SLO; made from its table, so that rules and evaluator agree.

    ``bounds`` are the bucket bounds (seconds) by signal at which requests within the limit are counted; a replica
    counts at the first that it has. ``http`` are two patterns of HTTP statuses, of the client's own faults and of
    failures; None where HTTP answers do not count. ``errors_ended``: the failed requests are among the finished ones.
    ``beside`` are signals of requests that are in no other count: refused or failed ones.
    """

    bounds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    http: tuple[str, str] | None = None
    errors_ended: bool = False
    beside: tuple[str, ...] = ()


def signals_of(slo: Slo) -> tuple[str, ...]:
    """Canonical signals that ``native_events`` reads for an SLO; () when engines cannot count it."""
    kind = slo.indicator
    if slo.scope.needs_facts:
        return ()
    if isinstance(kind, Latency):
        return (kind.signal,)
    if isinstance(kind, JointGoodput):
        return (*(signal for signal, _ in kind.limits.items()), *SERVED_SIGNALS)
    return SERVED_SIGNALS if isinstance(kind, Availability) else ()


def native_events(minutes: pl.DataFrame, slo: Slo, countings: Mapping[str, Counting]) -> pl.DataFrame:
    """Events that the engines' own series tell of an SLO.

    Parameters
    ----------
    minutes
        ``frames.MINUTES`` of the service, with the signals of ``signals_of``.
    slo
        Availability, latency or joint goodput; of a joint one each target is counted by itself.
    countings
        By engine; engines that are not there are not counted.

    Returns
    -------
    pl.DataFrame
        ``EVENTS`` sorted by minute, group and target.
    """
    kind = slo.indicator
    found: list[pl.DataFrame] = []
    ours = minutes.filter(pl.col("engine").is_in(list(countings)))
    if slo.scope.model:
        ours = ours.filter(pl.col("model") == slo.scope.model)
    ours = ours.with_columns(group=pl.col("model") if "model" in slo.scope.by else pl.lit(""))
    wanted = signals_of(slo)
    for signal in wanted:
        if signal not in SERVED_SIGNALS:
            found.append(_latency(ours.filter(pl.col("signal") == signal), signal, countings))
    if isinstance(kind, Availability | JointGoodput) and wanted:
        found.append(_served(ours.filter(pl.col("signal").is_in(SERVED_SIGNALS)), countings))
    return summed(found)


def summed(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Frames with (at least) the columns of ``EVENTS`` as one, rows of one tile, group and target added."""
    shaped = [frame.select(pl.col(n).cast(t) for n, t in EVENTS.items()) for frame in frames]
    keys = ("minute_s", "length_s", "group", "target")
    whole = pl.concat([pl.DataFrame(schema=EVENTS), *shaped])
    return whole.group_by(*keys).agg(pl.col("total").sum(), pl.col("bad").sum()).sort(*keys)


def group_key(values: Iterable[str]) -> str:
    """Values of the labels that split an SLO, in their order, as one text.

    Examples
    --------
    >>> group_values(group_key(["m", "a"])), group_values(group_key([]))
    (('m', 'a'), ())
    """
    return _SEPARATOR.join(values)


def group_values(key: str) -> tuple[str, ...]:
    """The values again; () where nothing splits."""
    return tuple(key.split(_SEPARATOR)) if key else ()


def _latency(rows: pl.DataFrame, signal: str, countings: Mapping[str, Counting]) -> pl.DataFrame:
    rows = rows.filter(pl.col("kind") == "histogram")
    if signal in _STREAMED_ONLY:
        rows = rows.filter(~pl.col("part").str.contains(_NOT_STREAMED))
    parts: list[pl.DataFrame] = []
    for (engine, le), part in rows.group_by("engine", "le"):
        place = _place(le, countings[str(engine)].bounds.get(signal, ()))
        if place is not None:  # a replica without the bucket would count as all bad
            within = pl.col("count").list.get(place)
            parts.append(part.with_columns(total=pl.col("increase"), bad=(pl.col("increase") - within).clip(0.0)))
    target = SHORT_NAMES.get(signal, signal.removesuffix("_seconds"))
    told = [part.with_columns(target=pl.lit(target), length_s=pl.lit(MINUTE_S)) for part in parts]
    return summed(told)


def _place(le: object, bounds: Iterable[float]) -> int | None:
    """Where a histogram counts: the place of the first of these bounds that it has."""
    has = [float(bound) for bound in le] if isinstance(le, list | pl.Series) else []
    for bound in bounds:
        for place, own in enumerate(has):
            if abs(own - bound) <= 1e-9 * bound:
                return place
    return None


def _served(rows: pl.DataFrame, countings: Mapping[str, Counting]) -> pl.DataFrame:
    """Valid requests and failed ones: of each replica its HTTP answers where it counts them, else what it finished."""
    found = [_served_by(rows.filter(pl.col("engine") == engine), one) for engine, one in countings.items()]
    told = [part.with_columns(target=pl.lit("served"), length_s=pl.lit(MINUTE_S)) for part in found]
    return summed(told)


def _served_by(rows: pl.DataFrame, counting: Counting) -> pl.DataFrame:
    signal, part, increase = pl.col("signal"), pl.col("part"), pl.col("increase")
    no = pl.lit(value=False)
    http = valid_http = failed_http = no
    if counting.http is not None:
        client, failed = counting.http
        http = signal == "http_requests_total"
        valid_http = http & ~part.str.contains(f"^status=({client})$")
        failed_http = http & part.str.contains(f"^status=({failed})$")
    ended = (signal == "requests_finished_total") & ~part.str.contains(_CANCELLED)
    errors = (signal == "requests_failed_total") if counting.errors_ended else no
    beside = signal.is_in(list(counting.beside))

    def of(which: pl.Expr) -> pl.Expr:
        return increase.filter(which).sum()

    # One name for each replica, never two added: the first that it has.
    by_replica = rows.group_by("minute_s", "group", pl.col("target").alias("replica")).agg(
        told=(valid_http | ended | beside).any(),
        valid=pl.when(valid_http.any()).then(of(valid_http)).otherwise(of(ended)),
        failed=pl.when(failed_http.any()).then(of(failed_http)).otherwise(of(errors)),
        beside=of(beside),
    )
    return by_replica.filter("told").select(
        "minute_s", "group", total=pl.col("valid") + pl.col("beside"), bad=pl.col("failed") + pl.col("beside")
    )
