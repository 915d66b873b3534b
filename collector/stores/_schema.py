"""The tables of the embedded store, and their versions.

Strings that repeat in every row (what a series is, the bounds of a histogram) are kept once and named by a number:
measured with 100 vLLM-like targets that makes 18 bytes a sample instead of 87. There are no keys on the big tables,
because an index slows appending as the table grows.
"""

from __future__ import annotations

from typing import Final

from collector.stores._database import Database

_CREATION: Final = (
    "create table meta (schema_version integer not null)",
    "insert into meta values (0)",
    """create table series (
        id integer primary key, target varchar, service varchar, model varchar, engine varchar,
        engine_version varchar, rank varchar, signal varchar, part varchar)""",
    "create table bounds (id integer primary key, le double[] not null)",
    """create table samples (
        ts double not null, series integer not null, value double, sum double, bounds integer, count double[])""",
    """create table scrapes (
        ts double not null, target varchar, service varchar, up boolean, duration_s double, reason varchar,
        error varchar, body_bytes bigint, page_samples bigint)""",
    # a series of minutes has "" as engine_version and rank
    """create table minutes (
        minute_s double not null, series integer not null, kind varchar, increase double, sum double,
        bounds integer, count double[], mean double, min double, max double, last double)""",
    """create table derived (
        ts double not null, window_s double, service varchar, target varchar, model varchar, name varchar,
        value double, low double, high double, basis varchar, note varchar)""",
    # seq is the order of recording; facts is a JSON object
    """create table deployments (
        seq integer not null, ts double not null, target varchar, service varchar, engine varchar,
        engine_version varchar, model varchar, facts varchar)""",
)

#: ``MIGRATIONS[n]`` leads from schema version n to n + 1; a released one is never edited
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (_CREATION,)

#: 16 MiB of journal is about six minutes of 100 targets and replays in well under a second.
DATABASE: Final = Database(
    meta="meta",
    meta_columns=frozenset({"schema_version"}),
    migrations=MIGRATIONS,
    settings={"checkpoint_threshold": "16MiB"},
    example="store.db",
    foreign="is a DuckDB file that goodwatch did not write; keep the store in another file",
)
