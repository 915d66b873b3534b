"""One fact a request out of the parts of its trace. Pure.

What is decided here, where spans leave a choice:

- A request is what its outermost kept span stands for. Tries below a gateway's or client's span are one request, whose
  engine numbers are those of the last try that ended well; without such a span every engine try is a request.
- ``arrived_at`` and ``ended_at`` come from the outermost span that has them. A span that ended before it began has no
  end of its own: its duration gives one, else the time when its last part was received.
- Tokens come from the engine, else the worker around it, the gateway's call, the gateway, the client; each from the
  first that tells, and a zero of an application's SDK is "not told".
- Gateway TTFT counts from the arrival of the gateway's request: where a call or stage inside the same service tells it,
  what went before it there is added.
- Stages and faults without a request's span make no fact: nobody knows whether a request ended. Arrivals count them.
- ``late`` says that a part came after a silence of more than ``SETTLE_S``: the request had settled before it.

Source: otel-traces §0–2 and §8; the OpenTelemetry GenAI semantic conventions v1.41.
"""

from typing import Final

import polars as pl

from goodwatch.signals.assemble_engines import ENGINE_COLUMNS, engine_rows, joined_engines
from goodwatch.signals.assemble_outcome import explicit, of_fault, outcome
from goodwatch.signals.assemble_stages import faults, with_stages
from goodwatch.signals.assemble_tree import REQUEST_LEVELS, rooted
from goodwatch.signals.request_frames import FACTS

#: a trace settles this long after its last part (design §3)
SETTLE_S: Final = 60.0

#: prefix of each kind of part while they lie side by side, outermost first
_CLIENT, _GATEWAY, _CALL, _WORKER, _ENGINE = "k", "g", "c", "w", "e"
_OUTSIDE_IN: Final = (_CLIENT, _GATEWAY, _CALL, _WORKER, _ENGINE)
_INSIDE_OUT: Final = tuple(reversed(_OUTSIDE_IN))
_BY_LEVEL: Final = {_CLIENT: 0, _GATEWAY: 2, _CALL: 4, _WORKER: 6}
_TOKENS_ORDER: Final = (_ENGINE, _WORKER, _CALL, _GATEWAY, _CLIENT)

_INNERMOST: Final = ("service", "model", "adapter", "target", "instance", "request_id", "max_tokens", "span_id")
_OUTERMOST: Final = ("tenant", "route", "form", "session_id", "stream", "operation", "finish_reason", "error_type")
_TOKENS: Final = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def assemble(parts: pl.DataFrame, now_s: float) -> pl.DataFrame:
    """Facts of traces, from all their parts.

    Parameters
    ----------
    parts
        ``request_frames.PARTS``: every part of every trace that is named in it; order does not matter.
    now_s
        When they are counted: becomes ``settled_at``.

    Returns
    -------
    pl.DataFrame
        ``request_frames.FACTS``, one row a request, in no order that means anything. ``deployment`` is null: spans do
        not tell it. No row for traces whose parts hold no request.
    """
    if parts.is_empty():
        return pl.DataFrame(schema=FACTS)
    rows = joined_engines(rooted(parts))
    engines = with_stages(engine_rows(rows), rows)
    wide = (
        _requests(rows)
        .join(_prefixed(engines, _ENGINE), left_on="root", right_on="e_root", how="left", maintain_order="left")
        .join(faults(rows), left_on="root", right_on="f_root", how="left", coalesce=False, maintain_order="left")
    )
    for prefix, level in _BY_LEVEL.items():
        wide = wide.join(
            _prefixed(_one_a_root(rows, level), prefix), left_on="root", right_on=f"{prefix}_root", how="left",
            maintain_order="left",
        )  # fmt: skip
    return _facts(_with_stage_ttft(wide, rows), now_s)


def _requests(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a request: its trace, the span id of its outermost request span, parts, last received, late."""
    tops = (
        rows.filter(pl.col("level").is_in(REQUEST_LEVELS))
        .sort("level", "started_s", "row", nulls_last=True)
        .unique("root", keep="first")
        .select("root", "trace_id", pl.col("span_id").alias("fact_id"))
    )
    silence = pl.col("received_s").sort().diff().max()
    several = rows.filter(pl.len().over("root") > 1).group_by("root").agg(
        pl.len().cast(pl.Int64).alias("parts"), pl.col("received_s").max(), (silence > SETTLE_S).alias("late")
    )  # fmt: skip
    alone = rows.filter(pl.len().over("root") == 1).select(
        "root", pl.lit(1, pl.Int64).alias("parts"), "received_s", pl.lit(value=False).alias("late")
    )
    return tops.join(pl.concat([alone, several]), on="root", maintain_order="left")


def _one_a_root(rows: pl.DataFrame, level: int) -> pl.DataFrame:
    """The part of one level that speaks for each request: its own span, else the last that ended, errors last."""
    found = rows.filter((pl.col("level") == level) & ~pl.col("loose"))
    if found["root"].is_unique().all():
        return found
    mine = pl.col("row") == pl.col("root")
    well = (pl.col("status") != "error").fill_null(value=True)
    return found.sort(mine, well, "ended_s", -pl.col("started_s"), nulls_last=False).unique("root", keep="last")


def _prefixed(frame: pl.DataFrame, prefix: str) -> pl.DataFrame:
    known = ("root", "merged", *ENGINE_COLUMNS)
    return frame.select(pl.col(c).alias(f"{prefix}_{c}") for c in known if c in frame.columns)


def _with_stage_ttft(wide: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """TTFT that only a stage of the gateway tells (llm-d's proxy), as ``s_ttft_s``."""
    stages = (
        rows.filter((pl.col("level") == 5) & pl.col("ttft_s").is_not_null())
        .sort("started_s")
        .unique("root", keep="last")
        .select("root", pl.col("ttft_s").alias("s_ttft_s"), pl.col("started_s").alias("s_started_s"),
                pl.col("origin").alias("s_origin"))
    )  # fmt: skip
    return wide.join(stages, on="root", how="left", maintain_order="left")


def _first(column: str, order: tuple[str, ...]) -> pl.Expr:
    return pl.coalesce(*(pl.col(f"{p}_{column}") for p in order)).alias(column)


def _lasted(prefix: str) -> pl.Expr:
    """A part's own duration, else the distance of its ends."""
    return pl.coalesce(f"{prefix}_e2e_s", pl.col(f"{prefix}_ended_s") - pl.col(f"{prefix}_started_s"))


def _facts(wide: pl.DataFrame, now_s: float) -> pl.DataFrame:
    ended = [pl.coalesce(f"{p}_ended_s", pl.col(f"{p}_started_s") + pl.col(f"{p}_e2e_s")) for p in _OUTSIDE_IN]
    wide = wide.with_columns(
        *(pl.when(pl.col(f"k_{c}") > 0).then(pl.col(f"k_{c}")).alias(f"k_{c}") for c in ("input_tokens", "output_tokens"))
    ).select(
        "fact_id", "trace_id", "parts", "late",
        *(_first(c, _INSIDE_OUT) for c in _INNERMOST),
        *(_first(c, _OUTSIDE_IN) for c in _OUTERMOST),
        *(_first(c, _TOKENS_ORDER) for c in _TOKENS),
        *_gateway_and_client(), *_engine(), *_weight(),
        _first("started_s", _OUTSIDE_IN).alias("arrived_at"),
        pl.coalesce(*ended, "received_s").alias("ended_at"),
        pl.coalesce("c_response_id", "k_response_id", "g_response_id", "w_response_id", "e_response_id").alias("response_id"),
        pl.coalesce("e_source", "w_source").alias("engine"),
        pl.max_horizontal(*(f"{p}_choices" for p in _OUTSIDE_IN), pl.when(pl.col("e_merged") > 1).then("e_merged"))
        .alias("choices"),
        _outcome(),
        pl.lit(None, pl.String).alias("deployment"),
        pl.lit(now_s, pl.Float64).alias("settled_at"),
    )  # fmt: skip
    decoded = pl.col("engine_e2e_s") - pl.col("engine_ttft_s")
    several = (pl.col("choices") > 1).fill_null(value=False)
    return wide.with_columns(
        pl.when((pl.col("_engine_tokens") > 1) & ~several & (decoded >= 0))
        .then(decoded / (pl.col("_engine_tokens") - 1))
        .alias("engine_tpot_s")
    ).select(pl.col(name).cast(kind) for name, kind in FACTS.items())


def _engine() -> list[pl.Expr]:
    """The engine's own numbers, or where it left no span those of the worker around it; never some of each."""
    has = pl.col("e_span_id").is_not_null()

    def of(column: str) -> pl.Expr:
        return pl.when(has).then(pl.col(f"e_{column}")).otherwise(pl.col(f"w_{column}"))

    return [
        of("ttft_s").alias("engine_ttft_s"),
        pl.when(has).then(_lasted(_ENGINE)).otherwise(_lasted(_WORKER)).alias("engine_e2e_s"),
        of("output_tokens").alias("_engine_tokens"),
        *(of(f"{c}_s").alias(f"engine_{c}_s") for c in ("queue", "prefill", "decode", "kv_transfer")),
    ]


def _gateway_and_client() -> list[pl.Expr]:
    def shifted(prefix: str) -> pl.Expr:
        before = pl.col(f"{prefix}_started_s") - pl.col("g_started_s")
        same = (pl.col(f"{prefix}_origin") == pl.col("g_origin")) & (before >= 0)
        return pl.col(f"{prefix}_ttft_s") + pl.when(same).then(before).otherwise(0.0)

    return [
        pl.coalesce("g_ttft_s", shifted(_CALL), shifted("s")).alias("gateway_ttft_s"),
        pl.coalesce(_lasted(_GATEWAY), _lasted(_CALL)).alias("gateway_e2e_s"),
        pl.col("k_ttft_s").alias("client_ttft_s"),
        _lasted(_CLIENT).alias("client_e2e_s"),
    ]


def _weight() -> list[pl.Expr]:
    """1 / sampling probability: a span's own word before the configuration's, the innermost first."""
    told = [pl.when(pl.col(f"{p}_weight_told")).then(pl.col(f"{p}_weight")) for p in _INSIDE_OUT]
    weight = pl.coalesce(*told, *(f"{p}_weight" for p in _INSIDE_OUT))
    any_told = pl.any_horizontal(*(t.is_not_null() for t in told))
    return [weight.alias("weight"), pl.when(weight.is_not_null()).then(any_told).alias("weight_told")]


def _outcome() -> pl.Expr:
    words = [explicit(p) for p in (_CLIENT, _GATEWAY, _CALL, _WORKER)]
    engine = pl.coalesce(of_fault(_ENGINE, "f"), explicit(_ENGINE))
    returned = [pl.col(f"{p}_ended_s").is_not_null() for p in (_CLIENT, _GATEWAY, _CALL)]
    served = [pl.col(f"{p}_output_tokens").is_not_null() for p in (_WORKER, _ENGINE)]
    return outcome([*words, engine], [*returned, *served])
