"""Was a request good? The words of design §4, applied to facts. Pure.

- A client's own error is not valid. Refusals, errors and time-outs are valid and bad.
- A hang-up is bad when a target was missed before it, else not valid: the wait until the hang-up counts as TTFT where no
  first token came. The mean of TPOT may still recover, so it is not missed before the end.
- A request that was not streamed has an end-to-end target only; without one it is undetermined. Where nobody tells
  (vLLM's spans), it is judged as a streamed one by the clock of the vantage point.
- One output token meets any TPOT target. A missed target makes a request bad whatever else is unknown; without one, an
  unknown value that a target needs makes it undetermined. So does an unknown outcome.
"""

from typing import Final

import polars as pl

from goodwatch.core.request import Outcome, Vantage, Verdict
from goodwatch.signals.attainment_limits import TARGETS, LimitsTable

_FAILED: Final = (Outcome.REFUSED, Outcome.ERROR, Outcome.TIMEOUT)


def judge(facts: pl.DataFrame, limits: LimitsTable, *, vantage: Vantage) -> pl.DataFrame:
    """Facts with a verdict each.

    Parameters
    ----------
    facts
        ``request_frames.FACTS``.
    limits
        Targets; the first row that matches a fact counts.
    vantage
        Whose stopwatch: every target is compared with that vantage point's latencies only.

    Returns
    -------
    pl.DataFrame
        ``facts`` and ``slo`` (name of the targets, "" without any), ``verdict`` (``Verdict``), ``missed`` (list of
        "ttft", "tpot", "e2e": targets that were missed for certain, empty for requests outside the SLO). Without
        targets a request that was served is good.
    """
    seen = facts.with_columns(
        *limits.columns(),
        pl.col(f"{vantage.value}_ttft_s").alias("ttft_seen"),
        pl.col(f"{vantage.value}_e2e_s").alias("e2e_seen"),
        tpot(vantage).alias("tpot_seen"),
    )
    served = pl.col("status") == Outcome.OK.value
    hung_up = pl.col("status") == Outcome.ABORTED.value
    missed = {t: pl.when(hung_up).then(_missed_before(t)).otherwise(_missed(t)) for t in TARGETS}
    unknown = pl.when(hung_up).then(_unknown_before()).otherwise(pl.any_horizontal(*(_unknown(t) for t in TARGETS)))
    unknown = unknown | (served & ~_streamed() & pl.col("e2e_limit").is_null() & _has_target())
    any_missed = pl.any_horizontal(*missed.values())
    counted = served | hung_up
    listed = [pl.when(counted & e).then(pl.lit(t)) for t, e in missed.items()]
    return seen.with_columns(
        _verdict(any_missed, unknown).alias("verdict"),
        pl.concat_list(*listed).list.drop_nulls().alias("missed"),
    ).drop(*(f"{t}_{of}" for t in TARGETS for of in ("limit", "seen")))


def tpot(vantage: Vantage) -> pl.Expr:
    """Time per output token of one vantage point, seconds; null below two output tokens and for merged choices."""
    if vantage is Vantage.ENGINE:
        return pl.col("engine_tpot_s")
    decoded = pl.col(f"{vantage.value}_e2e_s") - pl.col(f"{vantage.value}_ttft_s")
    one = (pl.col("choices").fill_null(1) == 1) & (pl.col("output_tokens") > 1) & (decoded >= 0)
    return pl.when(one).then(decoded / (pl.col("output_tokens") - 1))


def _verdict(any_missed: pl.Expr, unknown: pl.Expr) -> pl.Expr:
    status = pl.col("status")
    by_targets = (
        pl.when(any_missed).then(pl.lit(Verdict.BAD.value)).when(unknown).then(pl.lit(Verdict.UNDETERMINED.value))
    )
    return (
        pl.when(status == Outcome.CLIENT_ERROR.value)
        .then(pl.lit(Verdict.NOT_VALID.value))
        .when(status.is_in([o.value for o in _FAILED]))
        .then(pl.lit(Verdict.BAD.value))
        .when(status == Outcome.ABORTED.value)
        .then(by_targets.otherwise(pl.lit(Verdict.NOT_VALID.value)))
        .when(status == Outcome.OK.value)
        .then(by_targets.otherwise(pl.lit(Verdict.GOOD.value)))
        .otherwise(pl.lit(Verdict.UNDETERMINED.value))
    )


def _streamed() -> pl.Expr:
    return pl.col("stream").fill_null(value=True)


def _has_target() -> pl.Expr:
    return pl.any_horizontal(*(pl.col(f"{t}_limit").is_not_null() for t in TARGETS))


def _applies(target: str) -> pl.Expr:
    """Whether a request has this target at all."""
    limited = pl.col(f"{target}_limit").is_not_null()
    if target == "e2e":
        return limited
    limited = limited & _streamed()
    one_token = (pl.col("output_tokens") <= 1).fill_null(value=False)
    return limited & ~one_token if target == "tpot" else limited


def _missed(target: str) -> pl.Expr:
    return (_applies(target) & (pl.col(f"{target}_seen") > pl.col(f"{target}_limit"))).fill_null(value=False)


def _unknown(target: str) -> pl.Expr:
    return _applies(target) & pl.col(f"{target}_seen").is_null()


def _missed_before(target: str) -> pl.Expr:
    """Whether a request had missed the target when its client hung up, ``e2e_seen`` after it had asked."""
    if target == "tpot":
        return pl.lit(value=False)
    seen = pl.col("e2e_seen") if target == "e2e" else pl.coalesce("ttft_seen", "e2e_seen")
    return (_applies(target) & (seen > pl.col(f"{target}_limit"))).fill_null(value=False)


def _unknown_before() -> pl.Expr:
    """Whether it cannot be told if a target had been missed: the wait until the hang-up is not known."""
    ttft = _applies("ttft") & pl.coalesce("ttft_seen", "e2e_seen").is_null()
    return ttft | (_applies("e2e") & pl.col("e2e_seen").is_null())
