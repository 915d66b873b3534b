"""One engine row a request: choices of n > 1, prompts of one call, disaggregated legs and tries put together. Pure.

Sources: otel-traces §0 and §8. vLLM V1 emits one span a choice, with one request id or ``<i>_`` children of it, each
with the whole prompt; SGLang emits a usage-less warm-up and then one span a choice with ids of their own. Of a
disaggregated pair the decode leg is the request and the prefill leg (one output token) a component: tokens are never
summed over legs. Of several tries the last one that ended well is the request.
"""

from typing import Any, Final

import polars as pl

#: engines whose choices have ids of their own: they are told by a shared parent and the n that was asked for
CHOICES_BY_PARENT: Final = ("sglang",)
#: how long after the prefill leg its decode leg may begin (the hop between, retries of the transfer)
_HOP_S: Final = 1.0
_CHILD: Final = r"^\d+_"  # vLLM 0.10.2–0.13: "<index>_<request id>"
_PROMPT: Final = r"^(cmpl-.+)-\d+$"  # one of several prompts of one completions call

#: what facts take from the engine
ENGINE_COLUMNS: Final = (
    "span_id", "source", "started_s", "ended_s", "origin", "instance", "service", "target", "request_id",
    "response_id", "model", "operation", "adapter", "tenant", "route", "form", "session_id", "input_tokens",
    "cached_tokens", "output_tokens", "reasoning_tokens", "max_tokens", "choices", "stream", "ttft_s", "e2e_s",
    "queue_s", "prefill_s", "decode_s", "kv_transfer_s", "finish_reason", "status", "error_type", "http_status",
    "weight", "weight_told",
)  # fmt: skip

_SINGLE: Final = pl.len().over("root") == 1


def joined_engines(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with engine spans of one request brought under one root where no outer span does so.

    Choices of one request, and the two legs of a disaggregated one. ``rows`` as ``assemble_tree.rooted`` gives them.
    """
    alone = (pl.col("level") == 8) & (pl.col("root") == pl.col("row"))
    engines = rows.filter(alone & (pl.len().over("trace") > 1)).filter(pl.len().over("trace") > 1)
    if engines.is_empty():
        return rows
    engines = _with_bundle(engines.with_columns(_base(prompts=False).alias("_base")), "trace")
    moved = engines.select(
        "row", pl.col("row").first().over("trace", "_base", "_bundle", order_by=("started_s", "row")).alias("_to")
    )
    legs = _legs(engines).select("row", pl.col("leg_of").alias("_to"))
    moved = pl.concat([legs, moved]).unique("row", keep="first").filter(pl.col("row") != pl.col("_to"))
    # A leg goes to a decode span that may itself be one of several choices.
    further = moved.rename({"row": "_to", "_to": "_further"})
    final = moved.join(further, on="_to", how="left").select("row", pl.coalesce("_further", "_to").alias("_to"))
    return (
        rows.join(final, left_on="root", right_on="row", how="left", maintain_order="left")
        .with_columns(pl.coalesce("_to", "root").alias("root"))
        .drop("_to")
    )


def _base(*, prompts: bool) -> pl.Expr:
    """What spans of one request share: its id without the index of the choice, or SGLang's parent and n."""
    named = pl.col("request_id").str.replace(_CHILD, "")
    if prompts:
        named = named.str.replace(_PROMPT, "${1}")
    by_parent = pl.col("source").is_in(CHOICES_BY_PARENT) & (pl.col("choices") > 1) & pl.col("parent_id").is_not_null()
    return pl.when(by_parent).then("n of " + pl.col("parent_id")).otherwise(pl.coalesce(named, "span_id"))


def _with_bundle(engines: pl.DataFrame, scope: str) -> pl.DataFrame:
    """``_bundle``: spans of one base that ran together; a later one with the same base is another try.

    SGLang's warm-up (no usage) begins a bundle, since it has ended before its choices begin.
    """
    over = {"partition_by": (scope, "_base"), "order_by": ("started_s", "row")}
    apart = (pl.col("started_s") > pl.col("_end").cum_max().shift(1)).fill_null(value=True)
    warm = pl.col("output_tokens").is_null()
    by_parent = pl.col("_base").str.starts_with("n of ")
    return (
        engines.with_columns(pl.coalesce("ended_s", "started_s").alias("_end"))
        .with_columns(apart.cast(pl.Int32).cum_sum().over(**over).alias("_apart"))  # type: ignore[arg-type]
        .with_columns(
            pl.when(by_parent)
            .then(warm.cast(pl.Int32).cum_sum().over(**over))  # type: ignore[arg-type]
            .otherwise("_apart")
            .alias("_bundle")
        )
    )


def _legs(engines: pl.DataFrame) -> pl.DataFrame:
    """Prefill legs and the decode span that each belongs to; columns ``row``, ``leg_of``.

    One output token and a later span with the same prompt may also be two requests of an agent: so the legs must have
    told their role, share the caller's id, or have run in two processes.
    """
    one = (pl.col("max_tokens") == 1) & (pl.col("output_tokens").fill_null(1) <= 1)
    prefill = (pl.col("role") == "prefill").fill_null(one) | (pl.col("finish_reason") == "partial").fill_null(
        value=False
    )
    engines = engines.with_columns(prefill.fill_null(value=False).alias("_prefill"))
    decode = engines.filter(~pl.col("_prefill")).select(
        "trace", "input_tokens", pl.col("started_s"), pl.col("row").alias("leg_of"), pl.col("_base").alias("d_base"),
        pl.col("instance").alias("d_instance"), pl.col("role").alias("d_role"),
    )  # fmt: skip
    told = (pl.col("role") == "prefill").fill_null(value=False) | (pl.col("d_role") == "decode").fill_null(value=False)
    apart = (pl.col("instance") != pl.col("d_instance")).fill_null(value=False)
    return (
        engines.filter("_prefill")
        .sort("started_s")
        .join_asof(
            decode.sort("started_s").with_columns(pl.col("started_s").alias("d_start")),
            on="started_s",
            by=("trace", "input_tokens"),
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("leg_of").is_not_null() & (pl.col("d_start") <= pl.col("_end") + _HOP_S))
        .filter(told | apart | (pl.col("_base") == pl.col("d_base")))
        .unique("leg_of", keep="last")
        .select("row", "leg_of")
    )


def engine_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a root with engine spans that are not loose.

    Returns
    -------
    pl.DataFrame
        ``root``, ``ENGINE_COLUMNS``, ``merged`` (spans that are choices of the request, 1 for most). Latencies of
        merged choices run from the first arrival to the last end and to the first token of any.
    """
    engines = rows.filter((pl.col("level") == 8) & ~pl.col("loose")).select(
        "row", "root", "parent_id", "role", *ENGINE_COLUMNS
    )
    single = engines.filter(_SINGLE).select("root", *ENGINE_COLUMNS, pl.lit(1, pl.Int64).alias("merged"))
    several = engines.filter(~_SINGLE)
    return single if several.is_empty() else pl.concat([single, _one_of_several(several)])


def _one_of_several(several: pl.DataFrame) -> pl.DataFrame:
    one, wider = pl.col("max_tokens") == 1, pl.col("max_tokens").fill_null(2).max().over("root") > 1
    prefill = (pl.col("role") == "prefill") | (pl.col("finish_reason") == "partial") | (one & wider)
    several = several.with_columns(prefill.fill_null(value=False).alias("_leg"), _base(prompts=True).alias("_base"))
    several = several.with_columns(pl.col("_leg") & ~pl.col("_leg").all().over("root"))
    tries = _with_bundle(several.filter(~pl.col("_leg")), "root")
    well = ((pl.col("status") != "error").fill_null(value=True)) & pl.col("output_tokens").is_not_null()
    bundles = (
        tries.group_by("root", "_base", "_bundle")
        .agg(well.any().alias("_well"), pl.col("_end").max().alias("_last"), pl.col("row").min().alias("_first"))
        .sort("_well", "_last", "_first")
        .unique("root", keep="last", maintain_order=True)
        .select("root", "_base", "_bundle")
    )
    chosen = tries.join(bundles, on=("root", "_base", "_bundle"), how="semi").sort("root", "started_s", "row")
    return _with_legs(chosen.group_by("root", maintain_order=True).agg(*_merged()), several.filter("_leg"))


def _merged() -> list[pl.Expr]:
    """How the columns of the choices of one request become one."""
    start = pl.col("started_s").min()
    many = pl.len() > 1
    answered = pl.max_horizontal(pl.col("output_tokens").count().cast(pl.Int64), pl.lit(1, pl.Int64))
    prompts = pl.struct("request_id", "input_tokens").filter(pl.col("input_tokens").is_not_null())
    by_id = prompts.unique().struct.field("input_tokens").sum()
    usable = pl.col("input_tokens").is_not_null().any()
    of_prompts = pl.when(~usable).then(None).when(_many_prompts()).then(by_id).otherwise(pl.col("input_tokens").max())
    special: dict[str, pl.Expr] = {
        "started_s": start,
        "ended_s": pl.col("ended_s").max(),
        "request_id": pl.col("request_id").first().str.replace(_CHILD, ""),
        "input_tokens": of_prompts,
        "cached_tokens": pl.col("cached_tokens").max(),
        "output_tokens": _sum("output_tokens"),
        "reasoning_tokens": _sum("reasoning_tokens"),
        "ttft_s": _span(many, (pl.col("started_s") + pl.col("ttft_s")).min() - start, "ttft_s"),
        "e2e_s": _span(many, (pl.col("started_s") + pl.col("e2e_s")).max() - start, "e2e_s"),
        "queue_s": pl.col("queue_s").min(),
        "prefill_s": pl.col("prefill_s").min(),
        "decode_s": pl.col("decode_s").max(),
        "kv_transfer_s": pl.col("kv_transfer_s").max(),
        "choices": pl.max_horizontal(pl.col("choices").max(), answered),
    }
    plain = [pl.col(c).drop_nulls().first().alias(c) for c in ENGINE_COLUMNS if c not in special]
    return [*plain, *(e.alias(c) for c, e in special.items()), answered.alias("merged")]


def _many_prompts() -> pl.Expr:
    """Whether the spans are several prompts of one completions call: ids that differ in their last index only."""
    return pl.col("request_id").str.replace(_CHILD, "").str.contains(_PROMPT).all() & (
        pl.col("request_id").str.replace(_CHILD, "").n_unique() > 1
    )


def _sum(column: str) -> pl.Expr:
    return pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum())


def _span(many: pl.Expr, over_all: pl.Expr, column: str) -> pl.Expr:
    return pl.when(many).then(over_all).otherwise(pl.col(column).first())


def _with_legs(merged: pl.DataFrame, legs: pl.DataFrame) -> pl.DataFrame:
    """Prefill legs added as components.

    A leg that ended before the decode leg began held the request first: its whole time comes before the decode leg's
    TTFT and E2E (each a duration of one process; the hop between them is no engine's time). Legs that ran together
    wait for each other inside, so the decode leg's own values hold all. Half of the leg is the line between the two:
    the legs' hosts have clocks of their own. TPOT stays the decode leg's: both ends of its difference shift alike.
    """
    order: dict[str, Any] = {"maintain_order": True}
    leg = legs.group_by("root", **order).agg(
        pl.col("started_s").min().alias("l_start"),
        pl.coalesce("ended_s", "started_s").max().alias("l_end"),
        *(pl.col(c).max().alias(f"l_{c}") for c in ("e2e_s", "queue_s", "prefill_s", "kv_transfer_s", "cached_tokens")),
    )
    before = (pl.col("started_s") > (pl.col("l_start") + pl.col("l_end")) / 2).fill_null(value=False)

    def after_leg(column: str, plus: str) -> pl.Expr:
        own = pl.col(column)
        return pl.when(pl.col("l_end").is_null()).then(own).when(before).then(own + pl.col(plus)).otherwise(own)

    return (
        merged.join(leg, on="root", how="left", maintain_order="left")
        .with_columns(
            after_leg("ttft_s", "l_e2e_s").alias("_ttft"),
            after_leg("e2e_s", "l_e2e_s").alias("_e2e"),
            after_leg("queue_s", "l_queue_s").alias("queue_s"),
            pl.coalesce("l_prefill_s", "prefill_s").alias("prefill_s"),
            pl.max_horizontal("kv_transfer_s", "l_kv_transfer_s").alias("kv_transfer_s"),
            pl.max_horizontal("cached_tokens", "l_cached_tokens").alias("cached_tokens"),
            pl.min_horizontal("started_s", "l_start").alias("started_s"),
        )
        .with_columns(pl.col("_ttft").alias("ttft_s"), pl.col("_e2e").alias("e2e_s"))
        .select("root", *ENGINE_COLUMNS, "merged")
    )
