"""The request store as plain frames: what every other one must do, kept for as long as the process lives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from collector.stores._request_terms import (
    BINS_ORDER,
    FACT_KEY,
    FACTS_ORDER,
    PART_KEY,
    REPLACED,
    ROLLUPS_ORDER,
    SCORE_KEY,
    SCORES_ORDER,
    RequestRetention,
    check_sums,
    check_tier,
    check_tiers,
    check_wanted,
    shaped,
)
from collector.stores._terms import StoreHealth
from goodwatch.core.clock import Clock, SystemClock
from goodwatch.core.errors import StoreError
from goodwatch.signals.request_frames import BINS, FACTS, PARTS, ROLLUP_KEYS, ROLLUPS, SCORES

__all__ = ["MemoryRequestStore", "RequestRetention", "StoreHealth"]

DEFAULT_RETENTION: Final = RequestRetention()

_BANDS: Final = ("input_band", "output_band")

#: when a trace was settled last, and up to which commit its facts hold its parts
_SETTLED: Final = {"trace_id": pl.String, "up_to": pl.Int64, "settled_s": pl.Float64}


class MemoryRequestStore:
    """A ``RequestStore`` in memory: for tests and for looking around; nothing survives the process."""

    def __init__(self, *, retention: RequestRetention = DEFAULT_RETENTION, clock: Clock | None = None) -> None:
        self._retention = retention
        self._clock = clock or SystemClock()
        self._closed = False
        self._last_commit_s: float | None = None
        self._commits = 0
        self._read_at: dict[str, int] = {}
        self._parts = pl.DataFrame(schema={**PARTS, "commit": pl.Int64})
        self._settled = pl.DataFrame(schema=_SETTLED)
        self._facts = pl.DataFrame(schema=FACTS)
        self._rollups = pl.DataFrame(schema=ROLLUPS)
        self._bins = pl.DataFrame(schema=BINS)
        self._scores = pl.DataFrame(schema=SCORES)

    def append_parts(self, batches: Sequence[pl.DataFrame]) -> int:
        """Keep parts that are not known yet; returns how many."""
        self._ready()
        frames = [shaped(batch, PARTS, "received_s", "parts") for batch in batches]
        together = pl.concat([pl.DataFrame(schema=PARTS), *frames])
        new = together.unique(subset=PART_KEY, keep="first", maintain_order=True)
        new = new.join(self._parts, on=PART_KEY, how="anti")
        self._committed()
        self._parts = pl.concat([self._parts, new.with_columns(commit=pl.lit(self._commits, pl.Int64))])
        return new.height

    def parts(self, trace_ids: Sequence[str]) -> pl.DataFrame:
        """All parts of these traces as ``PARTS``, in the order of their commits."""
        self._ready()
        self._read_at |= dict.fromkeys(set(trace_ids) & set(self._waiting()["trace_id"]), self._commits)
        return self._parts.filter(pl.col("trace_id").is_in(list(trace_ids))).select(*PARTS)

    def waiting(self) -> int:
        """How many traces wait to be settled."""
        return len(self.unsettled(math.inf, self._parts.height))

    def unsettled(self, before_s: float, limit: int) -> list[str]:
        """Traces with parts that no fact holds and whose last part came before ``before_s``; oldest first."""
        self._ready()
        due = self._waiting().filter(pl.col("received_s") < before_s).sort("received_s", "trace_id")
        return due["trace_id"].head(limit).to_list()

    def settle(self, trace_ids: Sequence[str], facts: pl.DataFrame) -> pl.DataFrame:
        """Replace the facts of these traces; parts that came since ``parts`` read the trace leave it unsettled."""
        self._ready()
        new = shaped(facts, FACTS, "ended_at", "facts").unique(subset=FACT_KEY, keep="last", maintain_order=True)
        ids = list(dict.fromkeys(trace_ids))
        marks = [(one, self._read_at.get(one, self._commits), self._clock.now_s()) for one in ids]
        self._read_at = {one: at for one, at in self._read_at.items() if one not in set(ids)}
        known = self._settled.filter(~pl.col("trace_id").is_in(ids))
        self._settled = pl.concat([known, pl.DataFrame(marks, schema=_SETTLED, orient="row")])
        ours = pl.col("trace_id").is_in(ids)
        replaced = self._facts.filter(ours).select(*REPLACED)
        self._facts = pl.concat([self._facts.filter(~ours), new])
        self._committed()
        return replaced

    def facts(
        self, start_s: float, end_s: float, *, columns: Sequence[str] | None = None, **wanted: object
    ) -> pl.DataFrame:
        """Facts that ended in ``[start_s, end_s)`` as ``FACTS``, or these columns of them, sorted by ended_at."""
        self._ready()
        check_wanted({**wanted, **dict.fromkeys(columns or ())})
        equal = [pl.col(name).eq_missing(pl.lit(value)) for name, value in wanted.items()]
        chosen = _between(self._facts, "ended_at", start_s, end_s).filter(*equal)
        return chosen.sort(FACTS_ORDER, nulls_last=True).select(columns or list(FACTS))

    def replace_rollups(
        self, tier_s: int, starts_s: Sequence[float], rollups: pl.DataFrame, bins: pl.DataFrame
    ) -> None:
        """Put these rows in place of all of the same tier and starts."""
        self._ready()
        new = shaped(rollups, ROLLUPS, "start_s", "rollups")
        new_bins = shaped(bins, BINS, "start_s", "bins")
        check_tiers(tier_s, starts_s, new, new_bins)
        others = (pl.col("tier_s") != tier_s) | ~pl.col("start_s").is_in(list(starts_s))
        self._rollups = pl.concat([self._rollups.filter(others), new])
        self._bins = pl.concat([self._bins.filter(others), new_bins])
        self._committed()

    def rollups(self, tier_s: int, start_s: float, end_s: float, *, service: str | None = None) -> pl.DataFrame:
        """Rollups that start in ``[start_s, end_s)`` as ``ROLLUPS``, sorted by their keys."""
        self._ready()
        check_tier(tier_s)
        chosen = _between(self._rollups, "start_s", start_s, end_s, service).filter(pl.col("tier_s") == tier_s)
        return chosen.sort(ROLLUPS_ORDER, nulls_last=True)

    def bins(
        self, tier_s: int, start_s: float, end_s: float, field: str, *, service: str | None = None
    ) -> pl.DataFrame:
        """Bins of one latency field that start in ``[start_s, end_s)`` as ``BINS``, sorted by their keys."""
        self._ready()
        check_tier(tier_s)
        chosen = _between(self._bins, "start_s", start_s, end_s, service)
        return chosen.filter(pl.col("tier_s") == tier_s, pl.col("field") == field).sort(BINS_ORDER, nulls_last=True)

    def summed_rollups(self, spans: Sequence[tuple[int, float, float]], by: Sequence[str] = ()) -> pl.DataFrame:
        """Rollups of spans (tier_s, start_s, end_s) added up over time and over what is not in ``by``."""
        check_sums(spans, by)
        rows = pl.concat([pl.DataFrame(schema=ROLLUPS), *(self.rollups(*span) for span in spans)])
        sums = [name for name in ROLLUPS if name not in {*ROLLUP_KEYS, "slo"}]
        return _added_up(rows, ROLLUPS, by, [pl.col(sums).sum()])

    def summed_bins(
        self, spans: Sequence[tuple[int, float, float]], field: str, by: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Bins of one latency field added up in the same way."""
        check_sums(spans, by)
        rows = pl.concat([pl.DataFrame(schema=BINS), *(self.bins(*span, field) for span in spans)])
        keys = [*by, *_BANDS]
        long = rows.select(*keys, "bin", "count").explode("bin", "count", empty_as_null=False, keep_nulls=False)
        counts = long.group_by(*keys, "bin").agg(pl.col("count").sum()).sort("bin")
        lists = counts.group_by(keys, maintain_order=True).agg("bin", "count")
        summed = _added_up(rows, BINS, by, [pl.col("zero", "facts", "sum").sum()]).drop("bin", "count")
        whole = summed.join(lists, on=keys, how="left", nulls_equal=True)
        named = whole.with_columns(pl.lit(field).alias("field"), pl.col("bin", "count").fill_null([]))
        return named.select(pl.col(name).cast(dtype) for name, dtype in BINS.items())

    def append_scores(self, scores: pl.DataFrame) -> None:
        """Keep scores; the same identity again replaces."""
        self._ready()
        new = shaped(scores, SCORES, "ts", "scores").unique(subset=SCORE_KEY, keep="last", maintain_order=True)
        self._scores = pl.concat([self._scores.join(new, on=SCORE_KEY, how="anti", nulls_equal=True), new])
        self._committed()

    def scores(self, start_s: float, end_s: float, *, service: str | None = None) -> pl.DataFrame:
        """Scores given in ``[start_s, end_s)`` as ``SCORES``, sorted by ts."""
        self._ready()
        return _between(self._scores, "ts", start_s, end_s, service).sort(SCORES_ORDER, nulls_last=True)

    def compact(self, now_s: float) -> int:
        """Drop what is past its retention; returns rows dropped."""
        self._ready()
        before, keep = self._rows(), self._retention
        gone = self._settled.filter(pl.col("settled_s") < now_s - keep.parts_s)
        self._parts = (
            self._parts.join(gone, on="trace_id", how="left", maintain_order="left")
            .filter(pl.col("up_to").is_null() | (pl.col("commit") > pl.col("up_to")))
            .select(self._parts.columns)
        )
        self._settled = self._settled.join(gone, on="trace_id", how="anti")
        self._facts = self._facts.filter(pl.col("ended_at") >= now_s - keep.facts_s)
        self._rollups = self._rollups.filter(self._kept(now_s))
        self._bins = self._bins.filter(self._kept(now_s))
        self._scores = self._scores.filter(pl.col("ts") >= now_s - keep.scores_s)
        self._committed()
        return before - self._rows()

    def health(self) -> StoreHealth:
        """State and extent (of facts); ``bytes`` is what the frames take in memory."""
        frames = (self._parts, self._facts, self._rollups, self._bins, self._scores)
        ended = self._facts["ended_at"].to_list()
        return StoreHealth(
            ok=not self._closed,
            message="closed" if self._closed else "in memory: gone when the process ends",
            bytes=sum(int(frame.estimated_size()) for frame in frames),
            oldest_s=min(ended, default=None),
            newest_s=max(ended, default=None),
            last_commit_s=self._last_commit_s,
        )

    def close(self) -> None:
        """Refuse further use; safe to call twice."""
        self._closed = True

    def _ready(self) -> None:
        if self._closed:
            raise StoreError("the request store in memory is closed: make a new one")

    def _committed(self) -> None:
        self._commits += 1
        self._last_commit_s = self._clock.now_s()

    def _waiting(self) -> pl.DataFrame:
        """Traces with parts of a later commit than their facts hold: trace_id, received_s and commit of the last one."""
        last = self._parts.group_by("trace_id").agg(pl.col("received_s", "commit").max())
        known = last.join(self._settled, on="trace_id", how="left")
        return known.filter(pl.col("up_to").is_null() | (pl.col("commit") > pl.col("up_to")))

    def _kept(self, now_s: float) -> pl.Expr:
        oldest = {60: now_s - self._retention.minutes_s, 3600: now_s - self._retention.hours_s}
        return pl.col("start_s") >= pl.col("tier_s").replace_strict(oldest, default=float("-inf"))

    def _rows(self) -> int:
        frames = (self._parts, self._facts, self._rollups, self._bins, self._scores)
        return sum(frame.height for frame in frames)


def _added_up(
    rows: pl.DataFrame, schema: Mapping[str, Any], by: Sequence[str], sums: Sequence[pl.Expr]
) -> pl.DataFrame:
    summed = rows.group_by(*by, *_BANDS).agg(pl.col("start_s").min(), *sums)
    gone = {name: pl.lit(None, dtype) for name, dtype in schema.items() if name not in summed.columns}
    return summed.with_columns(**gone).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _between(frame: pl.DataFrame, time: str, start_s: float, end_s: float, service: str | None = None) -> pl.DataFrame:
    chosen = frame.filter(pl.col(time) >= start_s, pl.col(time) < end_s)
    return chosen if service is None else chosen.filter(pl.col("service") == service)
