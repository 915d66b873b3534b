"""The statements of the embedded store. A parameter that is null does not restrict; the order is that of ``_terms``."""

from typing import Final

READ: Final = {
    "samples": """
        select ts, target, service, model, engine, engine_version, rank, signal, part, value, sum, le, count
        from samples join series on series.id = samples.series left join bounds on bounds.id = samples.bounds
        where ts >= $start and ts < $end
            and ($service is null or service = $service) and ($target is null or target = $target)
            and ($signals::varchar[] is null or list_contains($signals::varchar[], signal))
        order by ts, target, signal, part, rank""",
    "scrapes": """
        from scrapes
        where ts >= $start and ts < $end
            and ($service is null or service = $service) and ($target is null or target = $target)
        order by ts, target""",
    "minutes": """
        select minute_s, target, service, model, engine, signal, part, kind, increase, sum, le, count,
            mean, min, max, last
        from minutes join series on series.id = minutes.series left join bounds on bounds.id = minutes.bounds
        where minute_s >= $start and minute_s < $end
            and ($service is null or service = $service) and ($target is null or target = $target)
            and ($signals::varchar[] is null or list_contains($signals::varchar[], signal))
        order by minute_s, target, service, model, engine, signal, part""",
    "derived": """
        from derived
        where ts >= $start and ts < $end
            and ($service is null or service = $service) and ($name is null or name = $name)
        order by ts, window_s, service, target, model, name""",
}

EXTENT: Final = "select min(ts), max(ts) from scrapes"

# The range of time lets DuckDB skip what lies outside; nulls in a key match each other.
REPLACE_MINUTES: Final = """
    delete from minutes
    using (select unnest($minute_s::double[]) as minute_s, unnest($series::integer[]) as series) as new
    where minutes.minute_s = new.minute_s and minutes.series = new.series
        and minutes.minute_s between list_min($minute_s::double[]) and list_max($minute_s::double[])"""

REPLACE_DERIVED: Final = """
    delete from derived
    using (
        select unnest($ts::double[]) as ts, unnest($window_s::double[]) as window_s,
            unnest($service::varchar[]) as service, unnest($target::varchar[]) as target,
            unnest($model::varchar[]) as model, unnest($name::varchar[]) as name
    ) as new
    where derived.ts = new.ts and derived.window_s is not distinct from new.window_s
        and derived.service is not distinct from new.service and derived.target is not distinct from new.target
        and derived.model is not distinct from new.model and derived.name is not distinct from new.name
        and derived.ts between list_min($ts::double[]) and list_max($ts::double[])"""

LAST_DEPLOYMENT: Final = """
    select ts, target, service, engine, engine_version, model, facts
    from deployments where target = $target order by seq desc limit 1"""

ADD_DEPLOYMENT: Final = """
    insert into deployments select coalesce(max(seq), -1) + 1, ?, ?, ?, ?, ?, ?, ? from deployments"""

DEPLOYMENTS: Final = """
    select ts, target, service, engine, engine_version, model, facts
    from deployments
    where ts >= $start and ts < $end and ($service is null or service = $service)
    order by ts, seq"""

#: what to run and the cutoff that it takes
EXPIRE: Final = (
    ("delete from samples where ts < $samples", "samples"),
    ("delete from scrapes where ts < $samples", "samples"),
    ("delete from minutes where minute_s < $minutes", "minutes"),
    ("delete from derived where ts < $derived", "derived"),
)

DROP_UNUSED_SERIES: Final = """
    delete from series where not exists (from samples where samples.series = series.id)
        and not exists (from minutes where minutes.series = series.id)"""

DROP_UNUSED_BOUNDS: Final = """
    delete from bounds where not exists (from samples where samples.bounds = bounds.id)
        and not exists (from minutes where minutes.bounds = bounds.id)"""

#: run after unused series are gone: a series is then a sign that something of its target is kept
EXPIRE_DEPLOYMENTS: Final = """
    delete from deployments as old
    where old.ts < $longest and (
        exists (
            from deployments as later
            where later.target = old.target and later.seq > old.seq and later.ts <= $longest)
        or not (
            exists (from series where series.target = old.target)
            or exists (from scrapes where scrapes.target = old.target)))"""
