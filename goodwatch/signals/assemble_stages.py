"""What only stages and faults of an engine tell: queue and prefill of SGLang, and how a dropped request ended. Pure.

Stages hang below a scheduler thread's span (an ``ENGINE_LINK``, or an ``ENGINE_FAULT`` when it failed), which hangs
below the request's; every tensor-parallel rank repeats them, so the lowest rank counts. After a preemption a stage
comes again: the first one is from acceptance to first schedule.
"""

from typing import Final

import polars as pl

from goodwatch.core.request import PartKind

_COLUMNS: Final = ("queue_s", "prefill_s", "decode_s", "kv_transfer_s")


def with_stages(engines: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Engine rows (``engine_rows``) with the columns that only their stages tell; the span's own word comes first."""
    stages = rows.filter((pl.col("kind") == PartKind.ENGINE_STAGE) & ~pl.col("loose"))
    if stages.is_empty() or engines.is_empty():
        return engines
    threads = rows.filter(pl.col("kind").is_in([PartKind.ENGINE_LINK, PartKind.ENGINE_FAULT])).select(
        "trace",
        pl.col("span_id").alias("parent_id"),
        pl.col("parent_id").alias("_request"),
        pl.col("rank").alias("_rank"),
    )
    spans = stages.join(threads, on=("trace", "parent_id"), how="left", maintain_order="left").with_columns(
        pl.coalesce("_request", "parent_id").alias("_request"), pl.coalesce("rank", "_rank").alias("_rank")
    )
    several = rows.filter(pl.col("level") == 8).filter(pl.len().over("root") > 1)["root"].unique()
    named = engines.select("root", pl.col("span_id").alias("_request"))
    # With one engine span the request is known whatever the links say; with several only a stage of that very one counts.
    sure = spans.filter(~pl.col("root").is_in(several.implode()))
    linked = spans.join(named, on=("root", "_request"), how="semi").filter(pl.col("root").is_in(several.implode()))
    told = pl.concat([sure, linked]).sort("_rank", "started_s", nulls_last=True)
    first = told.group_by("root").agg(pl.col(c).drop_nulls().first().alias(f"_{c}") for c in _COLUMNS)
    return (
        engines.join(first, on="root", how="left", maintain_order="left")
        .with_columns(pl.coalesce(c, f"_{c}").alias(c) for c in _COLUMNS)
        .drop(*(f"_{c}" for c in _COLUMNS))
    )


def faults(rows: pl.DataFrame) -> pl.DataFrame:
    """One fault a request, one with a status first: ``f_root``, ``f_http_status``, ``f_error_type``, ``f_finish_reason``."""
    return (
        rows.filter(pl.col("kind") == PartKind.ENGINE_FAULT)
        .sort(pl.col("http_status").is_null(), pl.col("error_type").is_null(), "started_s")
        .unique("root", keep="first")
        .select(pl.col(c).alias(f"f_{c}") for c in ("root", "http_status", "error_type", "finish_reason"))
    )
