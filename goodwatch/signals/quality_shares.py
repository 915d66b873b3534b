"""What scores say of many requests: shares with intervals, by group and over time. Pure.

Weights count a request as 1 / its sampling probability. The intervals are Wilson score intervals at 95 % with an
effective number of requests: traces are the unit, because requests of one trace often share a score, and weights make
the number smaller (Särndal, Swensson and Wretman, "Model Assisted Survey Sampling", 1992, §5.6; L. Kish 1965 where all
pass or all fail). Nothing is said of requests without a score unless it is said with bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from goodwatch.core.model import Absence, Basis, Bounds, Deployment, Number
from goodwatch.core.request import Verdict
from goodwatch.core.slo import wilson

_Z: Final = 1.96  # 95 %
#: two intervals that hold together with 95 % (Bonferroni): 97.5 % each
_Z_BOTH: Final = 2.2414
#: what a target ran, by the names of ``Deployment.facts``
DEPLOYED: Final = ("quantization", "dtype")


@dataclass(frozen=True, slots=True)
class QualityNumbers:
    """What the scores of some requests say.

    ``good_and_passed`` is a share of valid requests and has bounds only: requests without a score are inside them.
    ``good_and_passed_likely`` is what it would be if the scored requests were like the others.
    """

    requests: int
    scored: int
    faulty: int  # of them or of the others: some verdict failed, a built-in check's included
    scored_ratio: Number
    quality_ratio: Number  # passed of scored
    fast_but_wrong: Number  # failed of those that are scored and met every target
    quality_when_slow: Number  # passed of those that are scored and valid and missed a target
    good_and_passed: Number
    good_and_passed_likely: Number


@dataclass(frozen=True, slots=True)
class QualityGroup:
    """The numbers of the requests with one value of a column, in one step of time; None: not told, or not split."""

    key: str | None
    start_s: float | None
    numbers: QualityNumbers


@dataclass(frozen=True, slots=True)
class _Share:
    """A weighted share; ``effective`` requests of a simple random sample would tell it as sharply."""

    part: float
    whole: float
    effective: float
    seen: int

    @property
    def ratio(self) -> float:
        return min(1.0, self.part / self.whole)

    def interval(self, z: float = _Z) -> tuple[float, float]:
        low, high = wilson(self.effective * self.ratio, self.effective, z)
        return min(low, self.ratio), max(high, self.ratio)


def quality(scored: pl.DataFrame) -> QualityNumbers:
    """Numbers of judged requests with ``quality.QUALITY`` (from ``with_quality``).

    Parameters
    ----------
    scored
        ``FACTS`` with ``verdict`` and ``slo``, and the columns of ``QUALITY``. Each request once.
    """
    good, bad = pl.col("verdict") == Verdict.GOOD.value, pl.col("verdict") == Verdict.BAD.value
    has, passed = pl.col("passed").is_not_null(), pl.col("passed").fill_null(value=False)
    every = pl.lit(value=True)
    held = scored.height > 0 and bool((scored["slo"].fill_null("") != "").all())
    told = scored["passed"].drop_nulls().len()
    seen = f"{told} of {scored.height} requests have a score"
    quick = _share(scored, ~passed, good & has)
    if held:
        wrong = _number(quick, "no request that met its targets has a score", seen)
    else:
        wrong = Number.none("ratio", Absence.NOT_MEASURABLE, "no latency target: nobody said what fast is")
    return QualityNumbers(
        scored.height,
        told,
        int(scored["faulty"].sum()),
        _coverage(_share(scored, has, every)),
        _number(_share(scored, passed, has), "no request has a score", seen),
        wrong,
        _number(_share(scored, passed, bad & has), "no request that missed a target has a score", seen),
        _bounded(scored),
        _likely(_share(scored, good, good | bad), quick, sampled=_is_sample(scored)),
    )


def quality_by(scored: pl.DataFrame, by: str | None, step_s: float | None = None) -> list[QualityGroup]:
    """The same for each value of a column, most requests first, and for each step of the time at which they ended.

    ``by`` is a column of ``scored``; a step begins at a multiple of ``step_s`` (Unix seconds).
    """
    step = pl.lit(None, pl.Float64) if step_s is None else (pl.col("ended_at") / step_s).floor() * step_s
    key = pl.lit(None, pl.String) if by is None else pl.col(by).cast(pl.String)
    keyed = scored.with_columns(group_key=key, group_start=step)
    sizes = dict(keyed["group_key"].value_counts().rows())
    found = [
        QualityGroup(name, start, quality(part))
        for (name, start), part in keyed.group_by("group_key", "group_start", maintain_order=True)
    ]
    return sorted(found, key=lambda g: (-sizes[g.key], g.key or "", g.start_s or 0.0))


def evaluators(facts: pl.DataFrame, told: pl.DataFrame) -> dict[str, Number]:
    """What passes of what each evaluator judged, built-in checks included, by its name.

    ``told`` are ``quality.joined`` scores of ``facts``; a request passes an evaluator when all of its scores do.
    """
    key = ["trace_id", "fact_id"]
    verdicts = told.drop_nulls("passed").group_by(*key, "evaluator").agg(pl.col("passed").all())
    weighed = verdicts.join(facts.select(*key, "weight").unique(key), on=key)
    found = {}
    for (name,), part in sorted(weighed.group_by("evaluator")):
        share = _share(part, pl.col("passed"), pl.lit(value=True))
        found[str(name)] = _number(share, "no request has a score", f"{part.height} requests judged")
    return found


def with_deployments(facts: pl.DataFrame, deployments: Sequence[Deployment]) -> pl.DataFrame:
    """``facts`` with engine_version and the columns of ``DEPLOYED``: what their target ran when they arrived.

    Null where nobody told: a target that is not watched, a request before the first look at it, a name that the engine
    does not tell.
    """
    names = ("engine_version", *DEPLOYED)
    rows = [
        (d.target, d.ts, d.engine_version or None, *(d.facts.get(name) or None for name in DEPLOYED))
        for d in sorted(deployments, key=lambda d: d.ts)
    ]
    schema = {"target": pl.String, "since_s": pl.Float64, **dict.fromkeys(names, pl.String)}
    ran = pl.DataFrame(rows, schema=schema, orient="row").sort("since_s")
    asked = facts.drop([n for n in names if n in facts.columns]).with_row_index("nth")
    asked = asked.with_columns(at_s=pl.coalesce("arrived_at", "ended_at")).sort("at_s")
    # the targets are the groups: the frames are in order within each
    found = asked.join_asof(ran, left_on="at_s", right_on="since_s", by="target", check_sortedness=False)
    return found.sort("nth").drop("nth", "at_s", "since_s")


# -- shares -----------------------------------------------------------------------------------------------------------


def _share(facts: pl.DataFrame, part: pl.Expr, whole: pl.Expr) -> _Share | None:
    """The weighted share of ``part`` in ``whole``; None when nothing is in the whole."""
    w = pl.col("weight").fill_null(1.0)
    traces = facts.filter(whole).group_by("trace_id").agg(b=w.sum(), a=w.filter(part).sum(), n=pl.len())
    b, a = traces["b"], traces["a"]
    total, some = float(b.sum()), float(a.sum())
    if total <= 0:
        return None
    ratio = some / total
    kish = total**2 / float((b * b).sum())
    residue = float(((a - b * ratio) ** 2).sum())
    effective = kish
    if residue > 1e-12 * total:
        effective = min(kish, ratio * (1 - ratio) * total**2 / residue)
    return _Share(some, total, effective, int(traces["n"].sum()))


def _number(share: _Share | None, nothing: str, note: str) -> Number:
    if share is None:
        return Number.none("ratio", Absence.NO_DATA, nothing)
    low, high = share.interval()
    return Number("ratio", Basis.ESTIMATED, share.ratio, Bounds(low, high), note=note)


def _coverage(share: _Share | None) -> Number:
    if share is None:
        return Number.none("ratio", Absence.NO_TRAFFIC, "no request in this window")
    return Number("ratio", Basis.ESTIMATED, share.ratio, note=f"of {share.seen} requests")


def _is_sample(facts: pl.DataFrame) -> bool:
    """Whether more requests may have been than there are facts of."""
    return bool((facts["weight"].fill_null(0.0) != 1.0).any())


def _bounded(facts: pl.DataFrame) -> Number:
    """Good and passed of valid requests: unscored ones may be either, and so may undetermined ones.

    The ends are themselves estimates where the requests are a sample; then each is moved outwards by its interval.
    """
    verdict = pl.col("verdict")
    good, open_ = verdict == Verdict.GOOD.value, verdict == Verdict.UNDETERMINED.value
    valid = good | (verdict == Verdict.BAD.value) | open_
    surely = _share(facts, good & pl.col("passed").fill_null(value=False), valid)
    perhaps = _share(facts, (good | open_) & ~pl.col("faulty"), valid)
    if surely is None or perhaps is None:
        return Number.none("ratio", Absence.NO_TRAFFIC, "no valid request in this window")
    low, high = surely.ratio, perhaps.ratio
    note = "requests without a score are inside the bounds"
    if _is_sample(facts):
        low, high = surely.interval()[0], perhaps.interval()[1]
        note += "; widened, because the requests are a sample"
    return Number("ratio", Basis.BOUNDED, bounds=Bounds(low, high), note=note)


def _likely(good: _Share | None, wrong: _Share | None, *, sampled: bool) -> Number:
    """The same if scored requests are like the others: attainment times the share that passes of good ones."""
    if good is None:
        return Number.none("ratio", Absence.NO_TRAFFIC, "no valid request in this window")
    if wrong is None:
        return Number.none("ratio", Absence.NO_DATA, "no request that met its targets has a score")
    right = 1 - wrong.ratio
    lowest, highest = (1 - end for end in reversed(wrong.interval(_Z_BOTH if sampled else _Z)))
    low, high = good.interval(_Z_BOTH) if sampled else (good.ratio, good.ratio)
    note = f"if the {wrong.seen} good requests with a score are like the others"
    return Number("ratio", Basis.ESTIMATED, good.ratio * right, Bounds(low * lowest, high * highest), note=note)
