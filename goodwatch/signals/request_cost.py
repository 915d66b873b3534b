"""What single requests cost: the bill of a window split into good, late, failed, aborted and idle, and by who asked. Pure.

Idle time is paid for and is its own line. The rest is shared by the seconds for which requests held a place on the
engine (E2E less queue, at the engine): requests run in one batch, so that no finer share can be observed. What was cheap
to refuse costs next to nothing and leaves no time on the engine; it is counted and has no money.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from goodwatch.core.model import Absence, Basis, Number
from goodwatch.core.request import Outcome, Verdict
from goodwatch.signals.rollup import FAILED

#: what a request's money went to, in the order of a page
CLASSES: Final = ("good", "late", "failed", "aborted", "unjudged")
CLASS_TEXTS: Final = {
    "good": "requests that met every target",
    "late": "requests that finished and missed a target",
    "failed": "requests that ended in an error, a refusal or a time-out",
    "aborted": "requests whose client hung up",
    "unjudged": "requests without an SLO, or that lack a field that it needs",
}

#: the knee is looked for in periods of this length that hold at least so many valid requests
KNEE_PERIOD_S: Final = 300.0
KNEE_REQUESTS: Final = 30

_PER_MILLION: Final = 1e6
_NO_IDLE: Final = "the engines do not tell when nothing ran"
_NO_PRICE: Final = "no price; set gpus and gpu_hour_usd, or prices"


@dataclass(frozen=True, slots=True)
class Bill:
    """What the GPUs of the service cost in a window, USD. ``idle_usd`` is None where the engines do not tell.

    ``absence`` and ``note`` say why ``usd`` is None.
    """

    usd: float | None
    idle_usd: float | None = None
    absence: Absence = Absence.NOT_MEASURABLE
    note: str = _NO_PRICE


@dataclass(frozen=True, slots=True)
class CostLine:
    """One tenant, adapter, route, … (None: not told), or everything. Money without idle time."""

    key: str | None
    requests: float  # weighted
    output_tokens: float
    good_tokens: float  # prompt and generated tokens of good requests
    usd: Number
    usd_by_class: dict[str, float]
    usd_per_million_good_tokens: Number  # idle time in it, in proportion
    usd_per_million_output_tokens: Number


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The bill of a window. ``knee`` is the cost per million good tokens in the busiest period that met the objective."""

    usd: Number
    idle_usd: Number
    usd_by_class: dict[str, float]
    whole: CostLine
    lines: tuple[CostLine, ...]
    knee: Number
    silent: float  # requests that do not tell how long they held a place on the engine


def request_cost(
    judged: pl.DataFrame,
    bill: Bill,
    seconds: float,
    *,
    by: str | None = None,
    objective: float | None = None,
    stands_for: float = 1.0,
) -> RequestCost:
    """The bill of a window, split.

    Parameters
    ----------
    judged
        ``FACTS`` of all requests that the bill served, with ``verdict``.
    bill
        What was paid in the window.
    seconds
        Length of the window.
    by
        A column of facts (tenant, adapter, route, model, …) to split by; most expensive first.
    objective
        Share of valid requests that must be good where the knee is looked for; None looks at no attainment.
    stands_for
        Requests that the engine finished for each weighted one of ``judged``: the bill served those as well.
    """
    told = judged.with_columns(weight=pl.col("weight").fill_null(1.0) * stands_for)
    rows = told.with_columns(
        w=pl.col("weight"),
        # two clocks of one engine: a queue that looks longer than the whole held no place, and gives no money back
        held_s=(pl.col("engine_e2e_s") - pl.col("engine_queue_s").fill_null(0.0)).clip(lower_bound=0.0),
        spent_on=_class(),
    )
    held_s = _total(rows, pl.col("w") * pl.col("held_s"))
    groups: Sequence[tuple[str | None, pl.DataFrame]] = []
    if by is not None:
        groups = [(None if k is None else str(k), part) for (k,), part in rows.group_by(by, maintain_order=True)]
    lines = sorted((_line(key, part, bill, held_s) for key, part in groups), key=lambda one: -(one.usd.value or 0.0))
    whole = _line(None, rows, bill, held_s)
    return RequestCost(
        _usd(bill.usd, bill.absence, bill.note), _usd(bill.idle_usd, Absence.NOT_MEASURABLE, _NO_IDLE), whole.usd_by_class, whole,
        tuple(lines), knee(rows, bill, seconds, objective), _total(rows.filter(pl.col("held_s").is_null()), pl.col("w")),
    )  # fmt: skip


def knee(judged: pl.DataFrame, bill: Bill, seconds: float, objective: float | None) -> Number:
    """Cost per million good tokens in the period with most good tokens among those that met the objective."""
    if bill.usd is None or seconds <= 0:
        return Number.none("USD", bill.absence, bill.note)
    good, bad = pl.col("verdict") == Verdict.GOOD.value, pl.col("verdict") == Verdict.BAD.value
    w = pl.col("weight").fill_null(1.0)
    periods = (
        judged.group_by((pl.col("ended_at") // KNEE_PERIOD_S).alias("period"))
        .agg(
            facts=(good | bad).sum(), valid=w.filter(good | bad).sum(), good=w.filter(good).sum(),
            tokens=(w * _tokens()).filter(good).sum(),
        )
        .filter(pl.col("facts") >= KNEE_REQUESTS, pl.col("good") >= pl.col("valid") * (objective or 0.0))
    )  # fmt: skip
    best = periods["tokens"].max() if not periods.is_empty() else None
    if not isinstance(best, int | float) or best <= 0:
        note = f"no five minutes with {KNEE_REQUESTS} valid requests" + (" met the objective" if objective else "")
        return Number.none("USD", Absence.NO_DATA, note)
    usd = bill.usd / seconds * KNEE_PERIOD_S / float(best) * _PER_MILLION
    return Number("USD", Basis.ESTIMATED, usd, note="at the busiest five minutes of the window that met the objective")


def _class() -> pl.Expr:
    status, verdict = pl.col("status"), pl.col("verdict")
    return (
        pl.when(status.is_in([one.value for one in FAILED]))
        .then(pl.lit("failed"))
        .when(status == Outcome.ABORTED.value)
        .then(pl.lit("aborted"))
        .when(verdict == Verdict.GOOD.value)
        .then(pl.lit("good"))
        .when(verdict == Verdict.BAD.value)
        .then(pl.lit("late"))
        .otherwise(pl.lit("unjudged"))
    )


def _line(key: str | None, rows: pl.DataFrame, bill: Bill, held_s: float) -> CostLine:
    good = rows.filter(pl.col("verdict") == Verdict.GOOD.value)
    w = pl.col("w")
    output_tokens, good_tokens = _total(rows, w * pl.col("output_tokens")), _total(good, w * _tokens())
    requests = _total(rows, w)
    if bill.usd is None or held_s <= 0:
        told = Number.none("USD", Absence.NOT_MEASURABLE, "no engine tells how long requests ran")
        why = Number.none("USD", bill.absence, bill.note) if bill.usd is None else told
        return CostLine(key, requests, output_tokens, good_tokens, why, {}, why, why)
    busy_usd = bill.usd - (bill.idle_usd or 0.0)
    spent = {
        name: busy_usd * _total(rows.filter(pl.col("spent_on") == name), w * pl.col("held_s")) / held_s
        for name in CLASSES
    }
    share = _total(rows, w * pl.col("held_s")) / held_s  # of the idle time as well
    return CostLine(
        key, requests, output_tokens, good_tokens, Number("USD", Basis.ESTIMATED, sum(spent.values())), spent,
        _per_million(bill.usd * share, good_tokens, good, "no good request"),
        _per_million(bill.usd * share, output_tokens, rows, "no output token"),
    )  # fmt: skip


def _per_million(usd: float, tokens: float, rows: pl.DataFrame, why: str) -> Number:
    """USD for a million of the tokens that ``rows`` tell; a token that nobody told makes the cost too high, and is told."""
    untold = rows.filter(pl.col("output_tokens").is_null())["w"].sum()
    note = f"{untold:.0f} requests do not tell their tokens, so it is at most this" if untold else ""
    if tokens <= 0 and untold:
        return Number.none("USD", Absence.NOT_MEASURABLE, f"{untold:.0f} requests do not tell their tokens")
    if tokens <= 0:
        return Number.none("USD", Absence.NO_TRAFFIC, why)
    return Number("USD", Basis.ESTIMATED, usd / tokens * _PER_MILLION, note=note)


def _usd(value: float | None, absence: Absence, why: str) -> Number:
    return Number.none("USD", absence, why) if value is None else Number("USD", Basis.MEASURED, value)


def _tokens() -> pl.Expr:
    return pl.col("input_tokens").fill_null(0) + pl.col("output_tokens").fill_null(0)


def _total(rows: pl.DataFrame, what: pl.Expr) -> float:
    return float(rows.select(what.sum()).item() or 0.0)
