"""Which parts of a trace belong to one request: parent links first, then time where a link is missing. Pure.

A trace may hold one request (most do), the steps of an agent, or everything that a broken client sent with one id.
Spans between two kept ones are not kept (HTTP servers, orchestration), so a parent is often unknown: such a part
belongs to the only request of the trace that can hold it, else to the tightest one in time. Where two requests of a
trace ran at the same time and both can hold it, nobody can say whose it is: it is ``loose`` and its numbers are not
used. Everything is joins and sorts: ten thousand requests in one trace cost no more than in ten thousand traces.
"""

from typing import Final

import polars as pl

from goodwatch.core.request import PartKind

#: how far inside a part lies: the outermost decides, the innermost has the engine's numbers
LEVEL: Final[dict[str, int]] = {
    PartKind.CLIENT_CALL: 0,
    PartKind.GATEWAY_REQUEST: 2,
    PartKind.GATEWAY_CALL: 4,
    PartKind.GATEWAY_STAGE: 5,
    PartKind.WORKER_REQUEST: 6,
    PartKind.ENGINE_REQUEST: 8,
    PartKind.ENGINE_STAGE: 10,
    PartKind.ENGINE_FAULT: 10,
    PartKind.ENGINE_LINK: 10,
}
#: levels that stand for a request; a stage or a fault alone is none
REQUEST_LEVELS: Final = (0, 2, 4, 6, 8)

#: Clocks of two hosts agree only so far (otel-traces: never compare them without a tolerance).
SKEW_S: Final = 0.5
#: requests that an engine sends to itself: SGLang's /health may run one of a single token (seen in 0.5.23)
_OWN: Final = "HEALTH_CHECK"
_DOUBLINGS: Final = 6  # chains of up to 64 kept spans; deeper ones and circles stand alone


def rooted(parts: pl.DataFrame) -> pl.DataFrame:
    """Parts with the request that they belong to.

    Parameters
    ----------
    parts
        ``request_frames.PARTS``; a repeated (trace_id, span_id) counts once.

    Returns
    -------
    pl.DataFrame
        ``PARTS`` and ``row`` (u32, position), ``level`` (i8), ``trace`` (u32, one number a trace), ``root`` (u32, row
        of the outermost part of the same request), ``loose`` (bool). One row a part.
    """
    rows = (
        _without_containers(parts.filter(~pl.col("request_id").str.starts_with(_OWN).fill_null(value=False)))
        .unique(("trace_id", "span_id"), keep="first", maintain_order=True)
        .sort("started_s", "span_id")  # the same facts in whatever order parts are given
        .with_columns(
            pl.col("kind").replace_strict(LEVEL, default=None, return_dtype=pl.Int8).alias("level"),
            pl.col("trace_id").rank("dense").cast(pl.UInt32).alias("trace"),
        )
        .filter(pl.col("level").is_not_null())
        .with_row_index("row")
        .with_columns(
            pl.col("row").alias("root"),
            pl.lit(value=False).alias("loose"),
            _ended().alias("_end"),
        )
    )
    many = rows.filter(pl.len().over("trace") > 1)
    if many.is_empty():
        return rows.drop("_end")
    found = _attached(many, _linked(many))
    return (
        rows.drop("root", "loose")
        .join(found, on="row", how="left", maintain_order="left")
        .with_columns(pl.col("root").fill_null(pl.col("row")), pl.col("loose").fill_null(value=False))
        .drop("_end")
    )


def _ended() -> pl.Expr:
    told = pl.col("started_s") + pl.col("e2e_s").fill_null(0.0)
    return pl.coalesce("ended_s", told)


def _without_containers(parts: pl.DataFrame) -> pl.DataFrame:
    """Parts without clients' calls that hold several calls of the model (a tool loop): those are the requests."""
    clients = parts.filter(pl.col("kind") == PartKind.CLIENT_CALL)
    if len(clients) < 3:
        return parts
    held = (
        clients.filter(pl.col("parent_id") != pl.col("span_id"))
        .unique(("trace_id", "span_id"))
        .group_by("trace_id", pl.col("parent_id").alias("span_id"))
        .len()
        .filter((pl.col("len") > 1) & pl.col("span_id").is_not_null())
    )
    containers = clients.select("trace_id", "span_id").join(held, on=("trace_id", "span_id"), how="semi")
    return parts if containers.is_empty() else parts.join(containers, on=("trace_id", "span_id"), how="anti")


def _linked(many: pl.DataFrame) -> pl.DataFrame:
    """Per row its parent's row among the kept parts; columns ``row``, ``up`` (null: no kept parent)."""
    spans = many.select("trace", pl.col("span_id").alias("parent_id"), pl.col("row").alias("up"))
    return (
        many.select("trace", "parent_id", "row")
        .join(spans, on=("trace", "parent_id"), how="left", maintain_order="left")
        .select("row", pl.when(pl.col("up") != pl.col("row")).then(pl.col("up")).alias("up"))
    )


def _tops(count: int, up: pl.DataFrame) -> pl.Series:
    """The topmost row above each row, by pointer doubling; rows in a circle are their own."""
    own = pl.int_range(count, dtype=pl.UInt32, eager=True)
    top = pl.DataFrame({"row": own}).join(up, on="row", how="left", maintain_order="left")
    root = top.select(pl.coalesce("up", "row"))["up"]
    for _ in range(_DOUBLINGS):
        higher = root.gather(root)
        if higher.equals(root):
            return root
        root = higher
    return pl.select(pl.when(root.gather(root) == root).then(root).otherwise(own)).to_series()


def _attached(many: pl.DataFrame, up: pl.DataFrame) -> pl.DataFrame:
    """Root and looseness of every row of ``many``; columns ``row``, ``root``, ``loose``."""
    count = int(many["row"].max()) + 1  # type: ignore[arg-type]
    tops = _tops(count, up)
    own = tops.gather(many["row"]) == many["row"]
    deepest = (
        many.select("level", row=tops.gather(many["row"])).group_by("row").agg(pl.col("level").max().alias("_deepest"))
    )
    hosts = _hosts(many.filter(own).join(deepest, on="row", how="left", maintain_order="left"))
    linked = up.filter(~own & pl.col("up").is_not_null())  # a row in a circle has a parent, and is its own
    joined = pl.concat([linked, hosts.select("row", pl.col("host").alias("up"))])
    root = _tops(count, joined)
    loose = hosts.filter(pl.col("loose"))["row"]
    return many.select(
        "row",
        root.gather(many["row"]).alias("root"),
        tops.gather(many["row"]).is_in(loose.implode()).alias("loose"),
    )


def _hosts(trees: pl.DataFrame) -> pl.DataFrame:
    """For trees without a kept parent the tree that they belong to; columns ``row``, ``host``, ``loose``."""
    trees = trees.filter(pl.len().over("trace") > 1)
    levels = trees["level"].unique().sort().to_list()
    gateways = trees.filter(pl.col("level") == 2)
    behind = _in_time(gateways, gateways, other_source=True)  # a gateway behind another one: llm-d behind LiteLLM
    # The one in front holds whatever the one behind it holds: that leaves no doubt whose it is.
    trees = trees.with_columns(pl.when(~pl.col("row").is_in(behind["host"].implode())).then("_end").alias("_rival_end"))
    found = [f for level in levels[1:] for f in _hosts_of_level(trees, level)]
    return pl.concat([behind.clear(), *found, behind]).unique("row", keep="first")


def _hosts_of_level(trees: pl.DataFrame, level: int) -> list[pl.DataFrame]:
    """Hosts of the trees of one level, surest way first: the same id, the innermost in time, the only ones there."""
    orphans = trees.filter((pl.col("level") == level) & pl.col("parent_id").is_not_null())
    outer = trees.filter(pl.col("level") < level)
    if orphans.is_empty() or outer.is_empty():
        return []
    by_level = outer.sort("level", descending=True).partition_by("level", maintain_order=True)
    return [
        _same_id(orphans, outer, ("response_id", "request_id")),
        _same_id(orphans, outer, ("request_id", "request_id")),
        *(_in_time(orphans, hosts, slack_s=slack_s) for slack_s in (0.0, SKEW_S) for hosts in by_level),
        _only_one(orphans, outer),
    ]


def _only_one(orphans: pl.DataFrame, outer: pl.DataFrame) -> pl.DataFrame:
    """Hosts where clocks disagree: one tree of each level in the trace, long enough to hold all of its orphans.

    One that holds something so deep by a link already has what is its own: the orphan is of a request whose outer span
    is lost or still to come.
    """
    lasted = pl.col("_end") - pl.col("started_s")
    together = pl.col("_end").max().over("trace") - pl.col("started_s").min().over("trace")
    single = (
        outer.filter(pl.len().over("trace") == pl.col("level").n_unique().over("trace"))
        .sort("level")
        .unique("trace", keep="last")
        .select("trace", pl.col("row").alias("host"), lasted.alias("host_s"), pl.col("_deepest").alias("_held"))
    )
    return (
        orphans.join(single, on="trace")
        .filter((together <= pl.col("host_s") + SKEW_S) & (pl.col("_held") < pl.col("level")))
        .select("row", "host", pl.lit(value=False).alias("loose"))
    )


def _same_id(orphans: pl.DataFrame, outer: pl.DataFrame, on: tuple[str, ...]) -> pl.DataFrame:
    """Hosts that name the same request: the gateway's response id is the engine's request id."""
    theirs, ours = on
    named = outer.filter(pl.col(theirs).is_not_null()).unique(("trace", theirs), keep="none")
    return (
        orphans.filter(pl.col(ours).is_not_null())
        .select("trace", "row", pl.col(ours).alias("_id"))
        .join(named.select("trace", pl.col(theirs).alias("_id"), pl.col("row").alias("host")), on=("trace", "_id"))
        .select("row", "host", pl.lit(value=False).alias("loose"))
    )


def _in_time(
    orphans: pl.DataFrame, outer: pl.DataFrame, *, slack_s: float = 0.0, other_source: bool = False
) -> pl.DataFrame:
    """The latest-started tree of one level that holds an orphan in time; loose when an earlier one does too."""
    rival = "_rival_end" if "_rival_end" in outer.columns else "_end"
    hosts = outer.sort("started_s", "row").select(
        "trace",
        "started_s",
        pl.col("row").alias("host"),
        pl.col("_end").alias("host_end"),
        pl.col("source").alias("host_source"),
        pl.col(rival).cum_max().shift(1).over("trace").alias("_ahead"),
    )
    held = (
        orphans.select("trace", "row", "source", "_end", (pl.col("started_s") + slack_s).alias("started_s"))
        .sort("started_s")
        .join_asof(
            hosts,
            on="started_s",
            by="trace",
            strategy="backward",
            check_sortedness=False,
            allow_exact_matches=not other_source,
        )
        .filter(pl.col("host").is_not_null() & (pl.col("_end") <= pl.col("host_end") + slack_s))
    )
    loose = (pl.col("_ahead") >= pl.col("_end")).fill_null(value=False)
    if other_source:
        held, loose = held.filter(pl.col("source") != pl.col("host_source")), pl.lit(value=False)
    return held.select("row", "host", loose.alias("loose"))
