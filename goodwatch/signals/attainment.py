"""Attainment, goodput and token goodput from judged facts, each with its basis (design §4). Pure.

- ``counted``: the facts reconcile with the engine's finished counter within 0.5 % and none was sampled. Exact; the
  bounds then hold the undetermined ones only.
- ``estimated``: the facts are a sample, by the weights that spans tell, or because the counter counted more than there
  are facts. The bounds are a 95 % interval, widened by the undetermined ones. Totals come from the counters.
- Without counters and without weights nobody knows what share of the requests the facts are: the attainment is that of
  a sample, and a rate only bounded from below.

Requests that never ended leave no engine span. Where arrivals count them they are a line of their own, and attainment is
given without and with them, as valid and bad.

The interval: Horvitz–Thompson, requests of one trace are kept or dropped together (Särndal, Swensson and Wretman,
"Model Assisted Survey Sampling", 1992, §2.8 and §5.6). With π = 1 / weight the variance of a total is Σ (w² - w) y² over
traces, of a ratio the same with residuals y - R·x. For a share this gives an effective number of requests, which
enters the Wilson score interval, so that 20 good of 20 is not 100 % ± 0.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from goodwatch.core.model import Absence, Basis, Bounds, Number
from goodwatch.core.request import Verdict
from goodwatch.core.slo import wilson
from goodwatch.signals.reconcile import Reconciled

_Z: Final = 1.96  # 95 %
_SEEN_ALL: Final = 1e-9  # a variance below this is the rounding of none


@dataclass(frozen=True, slots=True)
class Sums:
    """Weighted sums over judged requests; every field but the effects adds.

    ``*_sq`` are sums of squared weights. Tokens are output tokens. ``design_effect``: how much larger the variance of a
    share is because requests of one trace are sampled together, ``total_effect`` that of a total; 1 where traces have
    one request.
    """

    facts: float = 0.0
    weighted: float = 0.0
    unweighted: float = 0.0  # facts whose sampling probability nobody told; they weigh 1
    valid: float = 0.0
    good: float = 0.0
    undetermined: float = 0.0
    not_valid: float = 0.0
    valid_sq: float = 0.0
    good_sq: float = 0.0
    good_tokens: float = 0.0
    tokens: float = 0.0
    undetermined_tokens: float | None = None  # None: not kept (rollups)
    good_tokens_sq: float | None = None  # Σ (weight · tokens)², None: not kept
    tokens_sq: float | None = None
    design_effect: float = 1.0
    total_effect: float = 1.0


@dataclass(frozen=True, slots=True)
class Attained:
    """What judged facts say of one window. ``unaccounted`` are requests that arrived and have no fact and no end."""

    attainment: Number
    with_unaccounted: Number
    goodput_per_s: Number
    good_tokens_per_s: Number
    valid: Number
    unaccounted: Number
    sums: Sums


def sums(judged: pl.DataFrame) -> Sums:
    """Sums over facts with verdicts (``attainment_verdicts.judge``)."""
    if judged.is_empty():
        return Sums()
    w, verdict = pl.col("weight").fill_null(1.0), pl.col("verdict")
    good, bad = verdict == Verdict.GOOD.value, verdict == Verdict.BAD.value
    open_ = verdict == Verdict.UNDETERMINED.value
    tokens = pl.col("output_tokens").fill_null(0)
    row = judged.select(
        pl.len().alias("facts"),
        w.sum().alias("weighted"),
        pl.col("weight").is_null().sum().alias("unweighted"),
        w.filter(good | bad).sum().alias("valid"),
        w.filter(good).sum().alias("good"),
        w.filter(open_).sum().alias("undetermined"),
        w.filter(verdict == Verdict.NOT_VALID.value).sum().alias("not_valid"),
        (w * w).filter(good | bad).sum().alias("valid_sq"),
        (w * w).filter(good).sum().alias("good_sq"),
        (w * tokens).filter(good).sum().alias("good_tokens"),
        (w * tokens).filter(open_).sum().alias("undetermined_tokens"),
        (w * tokens).sum().alias("tokens"),
        ((w * tokens) ** 2).filter(good).sum().alias("good_tokens_sq"),
        ((w * tokens) ** 2).sum().alias("tokens_sq"),
    ).row(0, named=True)
    found = Sums(**{k: float(v) for k, v in row.items()})
    return replace(found, design_effect=_design_effect(judged, found), total_effect=_total_effect(judged))


def sums_of_rollups(rollups: pl.DataFrame) -> Sums:
    """The same sums from ``request_frames.ROLLUPS``, which keep no squares of tokens and no traces."""
    if rollups.is_empty():
        return Sums()
    valid = ("valid", "good", "undetermined", "valid_sq", "good_sq", "weighted", "unweighted")
    row = rollups.select(
        pl.col("requests").sum().alias("facts"),
        *(pl.col(c).sum() for c in valid),
        (pl.col("weighted") - pl.col("valid") - pl.col("undetermined")).sum().alias("not_valid"),
        pl.col("good_output_tokens").sum().alias("good_tokens"),
        pl.col("output_tokens").sum().alias("tokens"),
    ).row(0, named=True)
    return Sums(**{k: float(v) for k, v in row.items()})


def _design_effect(judged: pl.DataFrame, found: Sums) -> float:
    """Variance with requests of one trace kept together, over the variance without; 1 where it cannot be told."""
    if found.valid == 0 or not 0 < found.good < found.valid or judged["trace_id"].is_unique().all():
        return 1.0
    share = found.good / found.valid
    w = pl.col("weight").fill_null(1.0)
    residual = (pl.col("verdict") == Verdict.GOOD.value).cast(pl.Float64) - share
    valid = judged.filter(pl.col("verdict").is_in([Verdict.GOOD.value, Verdict.BAD.value]))
    together = valid.group_by("trace_id").agg((w * residual).sum().alias("e"))["e"]
    apart = valid.select(w * residual).to_series()
    return max(1.0, float((together**2).sum()) / float((apart**2).sum()))


def _total_effect(judged: pl.DataFrame) -> float:
    """The same of a total: a trace of many requests brings all of them or none, however alike they are."""
    if judged["trace_id"].is_unique().all():
        return 1.0
    w = pl.col("weight").fill_null(1.0)
    counted = judged.filter(pl.col("verdict") != Verdict.NOT_VALID.value).select("trace_id", w.alias("w"))
    together = counted.group_by("trace_id").agg(pl.col("w").sum())["w"]
    apart = float((counted["w"] ** 2).sum())
    return max(1.0, float((together**2).sum()) / apart) if apart else 1.0


def attainment(
    found: Sums,
    seconds: float,
    *,
    reconciled: Reconciled | None = None,
    unaccounted: float | None = None,
    finished_tokens: float | None = None,
) -> Attained:
    """The numbers of one window.

    Parameters
    ----------
    found
        Sums over the window's judged facts.
    seconds
        Length of the window.
    reconciled
        The facts against the engine's finished counter; None where there are no metrics.
    unaccounted
        Requests that arrived, by engine or HTTP counters, and did not end; None where arrivals are not counted. Those
        that a client's or gateway's span tells of are facts already, and are taken off.
    finished_tokens
        Output tokens by the engine's counter; None where there are no metrics.
    """
    if unaccounted is not None and reconciled is not None:
        unaccounted = max(0.0, unaccounted - reconciled.unfinished)
    if not found.facts:
        return _nothing(found, unaccounted)
    scale, basis, notes = _scale(found, reconciled)
    share = _share(found, basis, scale, notes)
    trusted = reconciled is not None and reconciled.gap_ratio is not None
    valid = _scaled(found.valid + found.undetermined, found, scale, basis)
    return Attained(
        share,
        _with_unaccounted(share, found, scale, unaccounted),
        _goodput(share, found, scale, seconds),
        _good_tokens(share, found, seconds, finished_tokens if trusted else None, scale),
        valid,
        _unaccounted(unaccounted),
        found,
    )


def _nothing(found: Sums, unaccounted: float | None) -> Attained:
    def none(unit: str) -> Number:
        return Number.none(unit, Absence.NO_DATA, "no request facts in this window")

    return Attained(
        none("ratio"), none("ratio"), none("per second"), none("tokens per second"), none("requests"),
        _unaccounted(unaccounted), found,
    )  # fmt: skip


def _scale(found: Sums, reconciled: Reconciled | None) -> tuple[float | None, Basis, str]:
    """How many requests one weighted fact stands for (None: nobody knows), the basis, and why."""
    sampled = found.valid_sq > found.valid * (1 + 1e-9)
    if reconciled is None or reconciled.gap_ratio is None:
        if found.unweighted:
            return None, Basis.ESTIMATED, "no counter to compare with: how many requests left no fact is not known"
        return 1.0, Basis.ESTIMATED, "from the sampling probability that the spans tell; not checked against a counter"
    if reconciled.basis is Basis.COUNTED:
        if sampled:
            return 1.0, Basis.ESTIMATED, "from the sampling probability; agrees with the engine's counter within 0.5 %"
        return 1.0, Basis.COUNTED, ""
    if reconciled.scale is None or reconciled.scale < 1:
        return None, Basis.ESTIMATED, "more facts than the engine counted: is every engine of this service scraped?"
    share = f"{1 / reconciled.scale:.1%}"
    return reconciled.scale, Basis.ESTIMATED, f"facts are {share} of the requests that the engine finished"


def _effective(found: Sums, scale: float | None) -> float | None:
    """Requests of a simple random sample that would tell a share as sharply; None: all were seen."""
    k = 1.0 if scale is None else scale
    spread = k * k * found.valid_sq - (k * found.valid if scale is not None else 0.0)
    spread *= found.design_effect
    return None if spread <= _SEEN_ALL * found.valid else (k * found.valid) ** 2 / spread


def _share(found: Sums, basis: Basis, scale: float | None, note: str) -> Number:
    whole = found.valid + found.undetermined
    if whole == 0:
        return Number.none("ratio", Absence.NO_TRAFFIC, "no valid request in this window")
    low = high = found.good / found.valid if found.valid else None
    if basis is not Basis.COUNTED and found.valid:
        low, high = _interval(found, scale)
    known = found.valid / whole
    bounds = Bounds((low or 0.0) * known, (high or 0.0) * known + (1 - known))
    if found.undetermined:
        note = "; ".join(filter(None, (note, f"{found.undetermined:g} requests cannot be judged")))
    value = found.good / found.valid if found.valid else None
    return Number("ratio", basis, value, bounds, note=note)


def _interval(found: Sums, scale: float | None) -> tuple[float, float]:
    effective = _effective(found, scale)
    share = found.good / found.valid
    if effective is None:
        return share, share  # every request was seen
    if 0 < found.good < found.valid:  # the weights may go with the verdict (a tail sampler that keeps errors)
        k = 1.0 if scale is None else scale
        squares = found.good_sq * (1 - share) ** 2 + (found.valid_sq - found.good_sq) * share**2
        plain = found.good * (1 - share) ** 2 + (found.valid - found.good) * share**2
        spread = (k * k * squares - (k * plain if scale is not None else 0.0)) * found.design_effect
        if spread > _SEEN_ALL * found.valid:
            effective = min(effective, share * (1 - share) * (k * found.valid) ** 2 / spread)
    low, high = wilson(effective * share, effective, _Z)
    return min(low, share), max(high, share)  # at 0 and 1 rounding would leave the share outside


def _scaled(total: float, found: Sums, scale: float | None, basis: Basis) -> Number:
    """A weighted count of facts as a count of requests."""
    if scale is None:
        return Number("requests", Basis.BOUNDED, bounds=Bounds(total, None))
    spread = math.sqrt(max(0.0, found.valid_sq - found.valid) * found.total_effect) if scale == 1 else 0.0
    value = total * scale
    if basis is Basis.COUNTED or not spread:
        return Number("requests", basis, value)
    return Number("requests", basis, value, Bounds(max(found.facts, value - _Z * spread), value + _Z * spread))


def _with_unaccounted(share: Number, found: Sums, scale: float | None, unaccounted: float | None) -> Number:
    """Attainment with the unaccounted as valid and bad; its bounds shrink with it."""
    if unaccounted is None:
        return Number.none("ratio", Absence.NOT_MEASURABLE, "arrivals are not counted here")
    if share.value is None or share.bounds is None or scale is None:
        return Number.none(
            "ratio", share.absence or Absence.NOT_MEASURABLE, share.note or "nobody knows how many ended"
        )
    valid = found.valid * scale
    whole = (found.valid + found.undetermined) * scale
    high = None if share.bounds.high is None else share.bounds.high * whole / (whole + unaccounted)
    return replace(
        share,
        value=share.value * valid / (valid + unaccounted),
        bounds=Bounds(share.bounds.low * whole / (whole + unaccounted), high),
    )


def _goodput(share: Number, found: Sums, scale: float | None, seconds: float) -> Number:
    if seconds <= 0 or share.bounds is None:
        return Number.none("per second", share.absence or Absence.NO_DATA, share.note)
    if scale is None:
        return Number("per second", Basis.BOUNDED, bounds=Bounds(found.good / seconds, None), note=share.note)
    whole = (found.valid + found.undetermined) * scale / seconds
    high = None if share.bounds.high is None else share.bounds.high * whole
    if scale == 1 and share.basis is not Basis.COUNTED:  # the total is an estimate as well
        spread = _Z * math.sqrt(max(0.0, found.good_sq - found.good) * found.total_effect) / seconds
        good = found.good / seconds
        high = good + spread + found.undetermined / seconds
        bounds = Bounds(max(0.0, good - spread), high)
    else:
        bounds = Bounds(share.bounds.low * whole, high)
    return Number("per second", share.basis, found.good * scale / seconds, bounds, note=share.note)


def _good_tokens(
    share: Number, found: Sums, seconds: float, finished_tokens: float | None, scale: float | None
) -> Number:
    """Token goodput; a share of the engine's token counter where there is one, since totals come from metrics."""
    unit = "tokens per second"
    if seconds <= 0 or share.bounds is None:
        return Number.none(unit, share.absence or Absence.NO_DATA, share.note)
    good = found.good_tokens
    if share.basis is Basis.COUNTED:
        high = None if found.undetermined_tokens is None else (good + found.undetermined_tokens) / seconds
        return Number(unit, share.basis, good / seconds, Bounds(good / seconds, high))
    if finished_tokens is not None and found.tokens:
        ratio, per_s = good / found.tokens, finished_tokens / seconds
        spread = _token_spread(found, ratio)
        bounds = None if spread is None else _around(ratio, spread / found.tokens, per_s)
        if not 0 < found.good < found.valid and share.bounds.high is not None:  # all alike: no spread to see
            bounds = Bounds(share.bounds.low * per_s, share.bounds.high * per_s)
        return Number(unit, Basis.ESTIMATED, ratio * per_s, bounds, note=share.note)
    if scale is None:
        return Number(unit, Basis.BOUNDED, bounds=Bounds(good / seconds, None), note=share.note)
    spread = _token_spread(replace(found, design_effect=found.total_effect), 0.0)
    bounds = None if spread is None else _around(good, spread, scale / seconds)
    return Number(unit, Basis.ESTIMATED, good * scale / seconds, bounds, note=share.note)


def _token_spread(found: Sums, ratio: float) -> float | None:
    """Half the 95 % interval of good tokens less ``ratio`` times all tokens; as if the sample were a small one."""
    if found.good_tokens_sq is None or found.tokens_sq is None:
        return None
    bad_sq = found.tokens_sq - found.good_tokens_sq
    return _Z * math.sqrt((found.good_tokens_sq * (1 - ratio) ** 2 + bad_sq * ratio**2) * found.design_effect)


def _around(value: float, spread: float, scale: float) -> Bounds:
    return Bounds(max(0.0, value - spread) * scale, (value + spread) * scale)


def _unaccounted(unaccounted: float | None) -> Number:
    if unaccounted is None:
        return Number.none("requests", Absence.NOT_MEASURABLE, "arrivals are not counted here")
    return Number("requests", Basis.COUNTED, unaccounted, note="arrived, and left no trace of an end")
