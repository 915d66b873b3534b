"""Steps of trackers as rows of ``frames.MINUTES``, and those rows folded into minutes. Pure.

A row of a step stands for the time since the previous good scrape and carries the scrape's instant in ``minute_s``;
a folded row stands for one minute. Both have one schema, so that every derivation reads either.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

from goodwatch.core.catalogue import ACCELERATOR_SIGNALS, CATALOGUE
from goodwatch.core.counter import Increase, Step, Tracker
from goodwatch.core.engine import Engine
from goodwatch.core.histogram import merged
from goodwatch.core.model import Histogram, Sample
from goodwatch.signals.frames import MINUTES

_SERIES: Final = ("target", "service", "model", "engine", "signal", "part", "kind")


def step_rows(step: Step, tracker: Tracker, engine: Engine | None) -> list[dict[str, Any]]:
    """One step as rows: ranks folded, and goodwatch's own signals (up, restarts, most requests decoding) added."""
    name = step.engine or (engine.name if engine is not None else "")  # a failed scrape does not tell its engine
    base = {"minute_s": step.ts, "target": step.target, "service": step.service, "engine": name}
    rows = [_gauge_row(base, "", "up", "", 1.0 if step.up else 0.0)]
    if not step.up:
        return rows
    if step.start_s is not None:
        rows.append(_counter_row(base, "", "restarts_total", "", 1.0 if step.restarted else 0.0))
        rows.append(_counter_row(base, "", "covered_seconds_total", "", step.ts - step.start_s))
    running = [g.value for g in step.gauges if g.signal in ("requests_running", "requests_waiting")]
    if running:
        rows.append(_gauge_row(base, "", "idle_ratio", "", 0.0 if any(running) else 1.0))
    moved = progress(step, engine)
    if moved is not None:
        rows.append(_counter_row(base, "", "progress_total", "", moved))
    rows += _increase_rows(base, step.increases)
    rows += _gauge_rows(base, step.gauges)
    for model, counted in _by_model(tracker).items():
        decoding = _decoding_max(counted, step.gauges, model, engine)
        if decoding is not None:
            rows.append(_gauge_row(base, model, "requests_decoding_max", "", decoding))
        top = _top_ttft(counted)
        if top is not None:
            rows.append(_gauge_row(base, model, "ttft_top_seconds", "", top))
    return rows


def rows_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a frame of ``MINUTES``; columns that a row lacks are null."""
    return pl.DataFrame(rows, schema=MINUTES, orient="row") if rows else pl.DataFrame(schema=MINUTES)


def progress(step: Step, engine: Engine | None) -> float | None:
    """How much moved that moves while requests run; None when nothing on this page could move before one ends.

    Token counters of some engines step at a request's end, and some observe everything there: standing still through
    a long generation is their nature.
    """
    if engine is None or step.start_s is None:
        return None
    live = {"itl_seconds", "realtime_tokens_total"}
    if not engine.tokens_step_at_finish:
        live |= {"output_tokens_total", "input_tokens_total"}
    moved = [i.value for i in step.increases if i.signal in live]
    if not moved:
        return None
    ended = {"requests_finished_total", "e2e_seconds", "ttft_seconds"}
    return sum(moved) + sum(i.value for i in step.increases if i.signal in ended)


#: What the counters of one model stand at, by signal: pairs of part and value.
_Counted = dict[str, list[tuple[str, float | Histogram]]]


def _by_model(tracker: Tracker) -> dict[str, _Counted]:
    found: dict[str, _Counted] = {}
    for (model, _, signal, part), value in tracker.values.items():
        found.setdefault(model, {}).setdefault(signal, []).append((part, value))
    return found


def _decoding_max(counted: _Counted, gauges: Iterable[Sample], model: str, engine: Engine | None) -> float | None:
    """At most so many requests are past their first token and not ended (preempted ones included); None: unknown.

    Two upper bounds, the smaller holds. Requests running plus waiting; and, where every ended request has been in
    the TTFT histogram before, first tokens minus ended requests since the process began. Aborts after the first
    token raise the second for good, so it only helps until there were many.
    """
    if engine is not None and engine.ttft_at_finish:
        return 0.0
    load: dict[str, float] = {}
    for g in gauges:
        if g.model == model and g.signal in ("requests_running", "requests_waiting"):
            load[g.signal] = load.get(g.signal, 0.0) + (g.value or 0.0)
    known = [load[name] for name in ("requests_running", "requests_waiting") if name in load]
    bounds = [sum(known)] if len(known) == 2 else []
    if engine is not None and engine.finished_counts_aborts:
        # A waiting request has no first token yet, unless it was retracted.
        retracted = sum(v for _, v in counted.get("preemptions_total", ()) if isinstance(v, float))
        bounds = [known[0] + min(known[1], retracted)] if len(known) == 2 else known[:1]
    else:
        first, ended = (_total(counted, name) for name in ("ttft_seconds", "e2e_seconds"))
        if first is not None and ended is not None:
            # Requests that failed may have ended without a first token: they must not hide others that decode.
            bounds.append(max(0.0, first - max(0.0, ended - _failed(counted))))
    return min(bounds) if bounds else None


def fold(rows: pl.DataFrame, *, every_s: float = 60.0) -> pl.DataFrame:
    """Rows folded into periods of ``every_s``: increases add, gauges keep mean, min, max and last.

    ``minute_s`` becomes the start of the period that holds the row's instant.
    """
    if rows.is_empty():
        return rows
    period = (pl.col("minute_s") / every_s).floor() * every_s
    keyed = rows.sort("minute_s").with_columns(period.alias("minute_s"))
    plain = keyed.filter(pl.col("kind") != "histogram")
    folded = plain.group_by("minute_s", *_SERIES, maintain_order=True).agg(
        pl.col("increase").sum(), pl.col("mean").mean(), pl.col("min").min(), pl.col("max").max(),
        pl.col("last").last(),
    )  # fmt: skip
    folded = folded.with_columns(pl.when(pl.col("kind") == "counter").then(pl.col("increase")).alias("increase"))
    histograms = fold_histograms(keyed.filter(pl.col("kind") == "histogram"), ("minute_s", *_SERIES))
    return pl.concat([_whole(folded), _whole(histograms)]).sort("minute_s", "target", "signal", "part")


def fold_histograms(rows: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Histogram rows with equal ``keys`` summed on their shared bounds."""
    if rows.is_empty():
        return rows
    same = (
        rows.group_by(*keys, "le", maintain_order=True)
        .agg(
            pl.col("increase").sum(),
            pl.when(pl.col("sum").null_count() == 0).then(pl.col("sum").sum()).alias("sum"),
            pl.col("count"),
        )
        .with_row_index("_group")
    )
    counts = (
        same.select("_group", "count")
        .explode("count")
        .with_columns(pl.int_ranges(pl.col("count").list.len()).alias("_at"))
        .explode("count", "_at")
        .group_by("_group", "_at")
        .agg(pl.col("count").sum())
        .sort("_group", "_at")
        .group_by("_group", maintain_order=True)
        .agg(pl.col("count"))
    )
    same = same.drop("count").join(counts, on="_group", how="left", maintain_order="left").drop("_group")
    shared = pl.len().over(*keys)
    once, twice = same.filter(shared == 1), same.filter(shared > 1)
    if twice.is_empty():
        return once
    mixed = [_merged_row(dict(zip(keys, key, strict=True)), group) for key, group in twice.group_by(*keys)]
    return pl.concat([_whole(once), _whole(rows_frame(mixed))])


def _merged_row(key: Mapping[str, Any], group: pl.DataFrame) -> dict[str, Any]:
    whole = merged(Histogram(tuple(r["le"]), tuple(r["count"]), r["sum"]) for r in group.iter_rows(named=True))
    return {**key, **_histogram_cells(whole)} if whole else dict(key)


def _whole(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with all columns of ``MINUTES`` in their order, missing ones null."""
    missing = [pl.lit(None, dtype=t).alias(n) for n, t in MINUTES.items() if n not in frame.columns]
    return frame.with_columns(missing).select(pl.col(n).cast(t) for n, t in MINUTES.items())


def _increase_rows(base: Mapping[str, Any], increases: Iterable[Increase]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[Increase]] = {}
    for one in increases:
        groups.setdefault((one.model, one.signal, _part(one)), []).append(one)
    rows: list[dict[str, Any]] = []
    for (model, signal, part), members in groups.items():
        histograms = [m.histogram for m in members if m.histogram is not None]
        whole = histograms[0] if len(histograms) == 1 else merged(histograms)
        if whole is None:
            rows.append(_counter_row(base, model, signal, part, sum(m.value for m in members)))
        else:
            rows.append(
                {**base, "model": model, "signal": signal, "part": part, "kind": "histogram", **_histogram_cells(whole)}
            )
    return rows


def _part(one: Increase | Sample) -> str:
    """The part of a row. Ranks of an engine fold into one row, devices do not: each stays apart as a part."""
    if one.signal not in ACCELERATOR_SIGNALS:
        return one.part
    return ",".join(filter(None, (one.rank, one.part)))


def _histogram_cells(whole: Histogram) -> dict[str, Any]:
    return {"increase": whole.total, "sum": whole.sum, "le": list(whole.le), "count": list(whole.count)}


def _gauge_rows(base: Mapping[str, Any], gauges: Iterable[Sample]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[Sample]] = {}
    for g in gauges:
        groups.setdefault((g.model, g.signal, _part(g)), []).append(g)
    capacity = {
        (s.model, s.rank): s.value for (_, n, _), m in groups.items() if n == "kv_cache_capacity_tokens" for s in m
    }
    rows: list[dict[str, Any]] = []
    for (model, signal, part), members in groups.items():
        values = [m.value for m in members if m.value is not None]
        if not values:
            continue
        merge = CATALOGUE[signal].merge
        if merge == "sum":
            value = sum(values)
        elif merge == "weighted":
            weights = [capacity.get((m.model, m.rank)) or 1.0 for m in members if m.value is not None]
            value = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
        else:
            value = max(values)
        row = _gauge_row(base, model, signal, part, value)
        if merge == "weighted":  # the fullest rank is the one that preempts
            row["max"] = max(values)
        rows.append(row)
    return rows


def _gauge_row(base: Mapping[str, Any], model: str, signal: str, part: str, value: float) -> dict[str, Any]:
    cells = dict.fromkeys(("mean", "min", "max", "last"), value)
    return {**base, "model": model, "signal": signal, "part": part, "kind": "gauge", **cells}


def _counter_row(base: Mapping[str, Any], model: str, signal: str, part: str, value: float) -> dict[str, Any]:
    return {**base, "model": model, "signal": signal, "part": part, "kind": "counter", "increase": value}


def _failed(counted: _Counted) -> float:
    parts = ("finished_reason=error", "finished_reason=abort")
    values = (v for part, v in counted.get("requests_finished_total", ()) if part in parts)
    return sum(v for v in values if isinstance(v, float))


def _total(counted: _Counted, signal: str) -> float | None:
    totals = [v.total for _, v in counted.get(signal, ()) if isinstance(v, Histogram)]
    return sum(totals) if totals else None


def _top_ttft(counted: _Counted) -> float | None:
    """The upper bound of the highest TTFT bucket that holds anything; infinite when that is +Inf."""
    whole = merged(v for _, v in counted.get("ttft_seconds", ()) if isinstance(v, Histogram))
    return None if whole is None else next(b for b, c in zip(whole.le, whole.count, strict=True) if c >= whole.total)
