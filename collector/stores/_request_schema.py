"""The tables of the embedded request store, and their versions.

There are no keys: an index slows appending as a table grows. What must be found again is found by ``seq``, the number
of the commit that wrote a row: it ascends through the file, so that DuckDB skips all blocks but a few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from collector.stores._database import Database
from collector.stores._request_terms import TIERS_S
from goodwatch.signals.request_frames import BINS, FACTS, LATENCY_FIELDS, PARTS, ROLLUPS, SCORES

#: open_since: every part of a lower seq belongs to a trace that is settled
_META: Final = "create table request_meta (schema_version integer not null, open_since bigint not null)"

#: One row a settled trace. The key is the MD5 of the trace id: 16 bytes instead of text, which is looked through four
#: times as fast. Its parts have a seq in [first_seq, up_to], its facts have fact_seq.
_SETTLED: Final = """
    create table settled (
        trace_key uuid not null, first_seq bigint not null, up_to bigint not null, fact_seq bigint not null,
        settled_s double not null)"""

_TYPES: Final[Mapping[Any, str]] = {
    pl.String: "varchar",
    pl.Float64: "double",
    pl.Int64: "bigint",
    pl.Int32: "integer",
    pl.Int16: "smallint",
    pl.Boolean: "boolean",
    pl.List(pl.Int32): "integer[]",
    pl.List(pl.Float64): "double[]",
}


def rollups_table(tier_s: int) -> str:
    """Where rollups of a tier are: each tier has its own age at which rows go."""
    return f"rollups_{tier_s}"


def bins_table(tier_s: int, field: str) -> str:
    """Where bins of a tier and a latency field are: a map reads one field, and so one table."""
    return f"bins_{tier_s}_{field}"


#: table → the columns that it keeps; what its name says is no column
TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "parts": {"seq": pl.Int64, **PARTS},
    "facts": {"seq": pl.Int64, **FACTS},
    "scores": SCORES,
    **{rollups_table(tier): {n: t for n, t in ROLLUPS.items() if n != "tier_s"} for tier in TIERS_S},
    **{
        bins_table(tier, field): {n: t for n, t in BINS.items() if n not in {"tier_s", "field"}}
        for tier in TIERS_S
        for field in LATENCY_FIELDS
    },
}


def creation(table: str, columns: Mapping[str, Any]) -> str:
    """The statement that makes a table."""
    return f"create table {table} ({', '.join(f'{name} {_TYPES[dtype]}' for name, dtype in columns.items())})"


#: ``MIGRATIONS[n]`` leads from schema version n to n + 1; a released one is never edited
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (_META, "insert into request_meta values (0, 0)", _SETTLED, *(creation(*table) for table in TABLES.items())),
)

#: 64 MiB of journal is about 150,000 parts and replays within two seconds.
DATABASE: Final = Database(
    meta="request_meta",
    meta_columns=frozenset({"schema_version", "open_since"}),
    migrations=MIGRATIONS,
    settings={"checkpoint_threshold": "64MiB", "storage_compatibility_version": "latest"},
    example="requests.db",
    foreign="is a DuckDB file, but not a store of requests; keep requests in another file",
)
