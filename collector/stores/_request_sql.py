"""The statements of the embedded request store. ``arriving`` is the frame that a call brings.

Values are parameters; what is put into the text are names of tables and columns that this package wrote itself.
"""

from collections.abc import Sequence
from typing import Final

from collector.stores._request_schema import bins_table, rollups_table
from goodwatch.signals.request_frames import BINS, FACTS, LATENCY_FIELDS, PARTS, ROLLUP_KEYS, ROLLUPS, SCORES

_BANDS: Final = ("input_band", "output_band")
_SUMS: Final = ("zero", "facts", "sum")
_LISTS: Final = ("bin", "count")

#: what a file is opened with: the last commit, the last ids, what waits to be settled
LAST_SEQ: Final = """
    select greatest(
        (select open_since from request_meta), (select coalesce(max(seq), 0) from parts),
        (select coalesce(max(seq), 0) from facts), (select coalesce(max(fact_seq), 0) from settled))"""

OPEN_SINCE: Final = "select open_since from request_meta"

RECENT_IDS: Final = "select trace_id || span_id from parts where rowid > (select max(rowid) from parts) - $limit"

#: only traces with parts of a later commit than their facts hold; by when they were seen first
OPEN_TRACES: Final = """
    select trace_id, seen.first_seq, last_seq, last_s
    from (
        select trace_id, min(seq) as first_seq, max(seq) as last_seq, max(received_s) as last_s
        from parts where seq >= $since group by trace_id
    ) as seen left join settled on settled.trace_key = md5(trace_id)::uuid
    where settled.up_to is null or last_seq > settled.up_to
    order by seen.first_seq limit $limit"""

#: of these traces those that were settled before
EARLIER: Final = """
    select trace_id, first_seq, fact_seq
    from (select unnest($ids::varchar[]) as trace_id) as asked
        join settled on settled.trace_key = md5(trace_id)::uuid"""

PARTS_OF: Final = f"""
    select {", ".join(PARTS)} from parts
    where seq >= $since and trace_id in (select unnest($ids::varchar[])) order by seq"""  # noqa: S608

DROP_FACTS: Final = """
    delete from facts where seq between $first and $last and trace_id in (select unnest($ids::varchar[]))
    returning trace_id, ended_at"""

DROP_SETTLED: Final = """
    delete from settled where trace_key in (select md5(unnest($ids::varchar[]))::uuid)"""

ADD_SETTLED: Final = """
    insert into settled select md5(trace_id)::uuid, first_seq, up_to, fact_seq, settled_s from arriving"""

SET_OPEN_SINCE: Final = "update request_meta set open_since = $since where open_since <> $since"

#: nulls in a key match each other
DROP_SCORES: Final = """
    delete from scores using arriving
    where scores.trace_id is not distinct from arriving.trace_id
        and scores.span_id is not distinct from arriving.span_id
        and scores.response_id is not distinct from arriving.response_id
        and scores.evaluator is not distinct from arriving.evaluator
        and scores.annotator is not distinct from arriving.annotator
        and scores.identifier is not distinct from arriving.identifier"""

SCORES_IN: Final = f"""
    select {", ".join(SCORES)} from scores
    where ts >= $start and ts < $end and ($service is null or service = $service)
    order by ts, trace_id, span_id, response_id, evaluator, annotator, identifier"""  # noqa: S608

EXTENT: Final = "select min(ended_at), max(ended_at) from facts"

#: parts up to the commit that the facts of a trace hold; what came later still waits
EXPIRE_PARTS: Final = """
    delete from parts using (select trace_key, up_to from settled where settled_s < $cutoff) as old
    where md5(parts.trace_id)::uuid = old.trace_key and parts.seq <= old.up_to
        and parts.seq <= (select max(up_to) from settled where settled_s < $cutoff)"""

EXPIRE_SETTLED: Final = "delete from settled where settled_s < $cutoff"


def facts_in(columns: list[str], equal: list[str]) -> str:
    """Facts of an interval; ``equal`` names columns whose values are parameters of the same name."""
    where = "".join(f" and {name} is not distinct from ${name}" for name in equal)
    order = "order by ended_at, trace_id, fact_id" if columns == list(FACTS) else ""
    return f"select {', '.join(columns)} from facts where ended_at >= $start and ended_at < $end{where} {order}"  # noqa: S608


def rollups_in(tier_s: int) -> str:
    """Rollups of a tier."""
    return _periods(rollups_table(tier_s), {**dict.fromkeys(ROLLUPS), "tier_s": f"{tier_s}"}, "slo")


def bins_in(tier_s: int, field: str) -> str:
    """Bins of a tier and a field."""
    return _periods(bins_table(tier_s, field), {**dict.fromkeys(BINS), "tier_s": f"{tier_s}", "field": f"'{field}'"})


def summed_rollups(tiers_s: Sequence[int], by: Sequence[str]) -> str:
    """Rollups of spans added up over time and over what is not in ``by``; the n-th span is of the n-th tier."""
    sums = [name for name in ROLLUPS if name not in {*ROLLUP_KEYS, "slo"}]
    rows = _rows_of([rollups_table(tier_s) for tier_s in tiers_s], (*by, *_BANDS, "start_s", *sums))
    chosen = {**_summed_keys(by), **{name: f"sum({name}) as {name}" for name in sums}}
    return f"select {', '.join(chosen[name] for name in ROLLUPS)} from ({rows}) group by {', '.join((*by, *_BANDS))}"  # noqa: S608


def summed_bins(tiers_s: Sequence[int], field: str, by: Sequence[str]) -> str:
    """Bins of a field added up in the same way."""
    keys = ", ".join((*by, *_BANDS))
    tables = [bins_table(tier_s, field) for tier_s in tiers_s]
    lists = {name: f"coalesce(list({name} order by bin) filter (bin is not null), []) as {name}" for name in _LISTS}
    chosen = {
        **_summed_keys(by),
        "field": f"'{field}' as field",
        **{name: f"any_value({name}) as {name}" for name in _SUMS},
        **lists,
    }
    same = " and ".join(f"totals.{name} is not distinct from counts.{name}" for name in (*by, *_BANDS))
    return f"""
        with counts as (
            select {keys}, bin, sum(count) as count from (
                select {keys}, unnest(bin) as bin, unnest(count) as count
                from ({_rows_of(tables, (*by, *_BANDS, *_LISTS))})
            ) group by {keys}, bin
        ), totals as (
            select {keys}, min(start_s) as start_s, {", ".join(f"sum({name}) as {name}" for name in _SUMS)}
            from ({_rows_of(tables, (*by, *_BANDS, "start_s", *_SUMS))}) group by {keys}
        )
        select {", ".join(chosen[name] for name in BINS)}
        from (select totals.*, bin, count from totals left join counts on {same}) group by {keys}"""  # noqa: S608


def drop_periods(tier_s: int) -> tuple[str, ...]:
    """What is replaced when periods of a tier are."""
    tables = [rollups_table(tier_s), *(bins_table(tier_s, field) for field in LATENCY_FIELDS)]
    return tuple(
        f"""delete from {table} where start_s in (select unnest($starts::double[]))
            and start_s between list_min($starts::double[]) and list_max($starts::double[])"""  # noqa: S608
        for table in tables
    )


def expire_periods(tier_s: int) -> tuple[str, ...]:
    """Drop the old periods of a tier."""
    tables = [rollups_table(tier_s), *(bins_table(tier_s, field) for field in LATENCY_FIELDS)]
    return tuple(
        f"delete from {table} where start_s < $cutoff"  # noqa: S608
        for table in tables
    )


def _rows_of(tables: Sequence[str], columns: Sequence[str]) -> str:
    """The rows of the n-th table whose period starts in [$start_n, $end_n)."""
    chosen = ", ".join(columns)
    return " union all ".join(
        f"select {chosen} from {table} where start_s >= $start_{n} and start_s < $end_{n}"  # noqa: S608
        for n, table in enumerate(tables)
    )


def _summed_keys(by: Sequence[str]) -> dict[str, str]:
    """The columns of keys: what is added up over is null, ``start_s`` is the first one."""
    gone = {name: f"null as {name}" for name in ("tier_s", "service", "model", "tenant", "slo") if name not in by}
    return gone | {name: name for name in (*by, *_BANDS)} | {"start_s": "min(start_s) as start_s"}


def _periods(table: str, columns: dict[str, str | None], *more_order: str) -> str:
    chosen = ", ".join(name if value is None else f"{value} as {name}" for name, value in columns.items())
    order = ", ".join(("start_s", "service", "model", "tenant", "input_band", "output_band", *more_order))
    return f"""
        select {chosen} from {table}
        where start_s >= $start and start_s < $end and ($service is null or service = $service) order by {order}"""  # noqa: S608
