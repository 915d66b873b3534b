"""Why a family of configurations is not the answer, from what the ledger and the closed form said of all its members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import polars as pl

from planner.search.answer import Option
from planner.search.question import Question
from planner.search.screen import SLACK
from planner.search.space import FOUR_BIT, Enumerated, Instance, Lost
from planner.speed.calibrate import CARRIED
from planner.vram import GIB


def cut(one: Instance) -> str:
    """A layout in words, as in "tp 4, pp 2"."""
    layout = one.layout
    told = [("tp", layout.tp), ("pp", layout.pp), ("ep", layout.ep), ("dp", layout.dp)]
    return ", ".join(f"{name} {size}" for name, size in told if size > 1 or name == "tp")


_FAMILIES: Final[Mapping[str, Callable[[Instance], str]]] = {
    "card": lambda one: one.gpu.name,
    "engine": lambda one: one.engine.name,
    "weights": lambda one: one.scheme.name,
    "cache": lambda one: f"KV cache {'16 bit' if one.kv_dtype == 'auto' else one.kv_dtype}",
    "layout": cut,
}


def losers(question: Question, found: Enumerated, starts: pl.DataFrame, rows: pl.DataFrame, best: Option | None) -> tuple[Lost, ...]:  # fmt: skip
    """Every family that the best does not belong to, and why; what was left out before comes last."""
    names = pl.DataFrame(
        [{"instance": i, **{kind: name(one) for kind, name in _FAMILIES.items()}} for i, one in enumerate(found.instances)],
        schema_overrides={"instance": pl.UInt32},
    )  # fmt: skip
    told: list[Lost] = []
    for kind in _FAMILIES:
        own = None if best is None else _FAMILIES[kind](best.setup.instance)
        frames = (starts.join(names, on="instance"), rows.join(names, on="instance"))
        told += [one for one in _of_kind(question, kind, frames, best) if one.name != own]
    told += _workers(question, rows, best)
    return (*told, *found.lost)


def _of_kind(
    question: Question, kind: str, frames: tuple[pl.DataFrame, pl.DataFrame], best: Option | None
) -> Iterator[Lost]:
    starts, rows = frames
    sure = (pl.col("outcome") == "ok") & pl.col("certain")
    held = starts.group_by(kind).agg(tried=pl.len(), starts=sure.sum(), lacks=pl.col("missing_bytes").min()).sort(kind)
    carried = {row[kind]: row for row in _summed(rows, kind).iter_rows(named=True)}
    for row in held.iter_rows(named=True):
        name = row[kind]
        yield Lost(kind, name, _why(question, kind, name, {**row, **carried.get(name, {})}, best), row["tried"])


def _summed(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    able = pl.col("replicas").is_not_null()
    return rows.group_by(kind).agg(
        meets=able.sum(), usd=pl.col("usd_per_month").filter(able).min(), cards=pl.col("cards").filter(able).min(),
        ttft=pl.col("ttft_alone_s").min(), tpot=pl.col("tpot_alone_s").min(), e2e=pl.col("e2e_alone_s").min(),
    )  # fmt: skip


def _why(question: Question, kind: str, name: str, row: Mapping[str, Any], best: Option | None) -> str:
    if not row["starts"]:
        lacks = row["lacks"] / GIB
        return f"does not fit: {lacks:,.1f} GiB a card are missing at least" if lacks > 0 else "no start of it is sure"
    if not row.get("meets"):
        return _too_slow(question, row)
    usd = float(row["usd"])
    judged = question.allowed.four_bit or bool(question.allowed.schemes)
    cheaper = best is None or usd < best.usd_per_month.point
    if kind == "weights" and name in FOUR_BIT and not judged and cheaper:
        return (
            f"about ${usd:,.0f} a month, but 4-bit weights lose quality: judge answers first, then ask with --four-bit"
        )
    most = question.allowed.most_gpus
    if most is not None and row["cards"] > most:
        return f"takes {row['cards']:,} cards at least; {most} are allowed"
    if best is None:
        return f"about ${usd:,.0f} a month in closed form, but it does not hold when simulated"
    return _compared(kind, usd, best.usd_per_month.point)


def _compared(kind: str, usd: float, best: float) -> str:
    ratio = usd / best - 1
    if kind == "engine" and abs(ratio) <= CARRIED["engine"][1]:
        return (
            f"about ${usd:,.0f} a month ({ratio:+.0%}), inside the {CARRIED['engine'][1]:.0%} by which a model is off between "
            "engines: try both on one replica"
        )
    if kind == "engine" and ratio > 0:
        return (
            f"about ${usd:,.0f} a month ({ratio:+.0%}) by its slow end, which is widest in what was measured least. Which of two engines "
            "is faster was told right in 57 % of measured swaps: try both on one replica"
        )
    if ratio > 0.005:
        return f"dearer: about ${usd:,.0f} a month ({ratio:+.0%})"
    if ratio >= -0.005:
        return "no cheaper, and further from the usual"
    return f"about ${usd:,.0f} a month in closed form ({ratio:+.0%}), but too little gained, or it does not hold when simulated"


def _too_slow(question: Question, row: Mapping[str, Any]) -> str:
    """Which target a request misses even when it is alone."""
    if row.get("ttft") is None:
        return "fits only with fewer tokens than one mean request needs"
    limits, missed = question.limits, []
    for name, limit in (("ttft", limits.ttft_s), ("tpot", limits.tpot_s), ("e2e", limits.e2e_s)):
        if limit is not None and row[name] > limit * SLACK:
            missed.append(
                f"{name.upper()} of a long request that is alone may be {row[name] * 1e3:,.0f} ms; {limit * 1e3:,.0f} ms are asked"
            )
    return "too slow: " + (
        "; ".join(missed) if missed else "its cache or its queue holds too few requests within the targets"
    )


def _workers(question: Question, rows: pl.DataFrame, best: Option | None) -> Iterator[Lost]:
    """Prefill and decode apart, or together."""
    for apart, name in ((True, "prefill and decode apart"), (False, "prefill and decode together")):
        part = rows.filter(pl.col("apart") == apart)
        if part.is_empty() or (best is not None and bool(best.setup.prefill_replicas) == apart):
            continue
        row = _summed(part.with_columns(family=pl.lit(name)), "family").row(0, named=True)
        yield Lost("workers", name, _why(question, "workers", name, {**row, "starts": len(part)}, best), len(part))


def nothing_fits(question: Question, starts: pl.DataFrame, rows: pl.DataFrame) -> str:
    """Why no configuration is left, in one sentence."""
    sure = starts.filter((pl.col("outcome") == "ok") & pl.col("certain"))
    if sure.is_empty():
        lacks = float(starts["missing_bytes"].min() or 0.0) / GIB  # type: ignore[arg-type]
        return (
            f"nothing starts for sure: the nearest lacks {lacks:,.1f} GiB a card"
            if lacks > 0
            else "no start is sure: each interval holds a refusal too"
        )
    row = (
        _summed(rows.with_columns(family=pl.lit("all")), "family").row(0, named=True)
        if len(rows)
        else {"meets": 0, "ttft": None}
    )
    if not row["meets"]:
        return _too_slow(question, row)
    most = question.allowed.most_gpus or question.allowed.gpu_count
    if most is not None and row["cards"] is not None and row["cards"] > most:
        return f"the load takes {row['cards']:,} cards at least; {most} are allowed"
    return "what meets the targets in closed form does not hold when simulated at the slow end, or its weights are not allowed (--four-bit)"
