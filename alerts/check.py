"""Whether an SLO can work at all: its limits against the buckets, its objective against the traffic, its series."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from alerts.lint import checks_names
from alerts.lint.names import Names
from alerts.lint.tree import parsed
from alerts.lint.values import Query
from alerts.rules import burn
from alerts.rules.fit import fit
from alerts.rules.promql import span
from alerts.rules.sli import engines_of, indicators
from alerts.rules.sources import natives
from alerts.rules.values import Options
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import DAY_S, Custom, JointGoodput, Latency, Slo, burn_pairs

#: fewer bad requests than this in a period's whole budget are no ground to wake someone
LEAST_BUDGET = 10.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check says of one SLO: ``refused`` cannot work, ``warnings`` can and surprise."""

    slo: str
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check(
    slos: Iterable[Slo], options: Options, names: Names, traffic: Mapping[str, float] | None = None
) -> tuple[Verdict, ...]:
    """The verdict over each SLO. ``traffic`` is requests per second by service, as seen; else what the SLO says."""
    return tuple(_verdict(slo, options, names, (traffic or {}).get(slo.service)) for slo in slos)


def _verdict(slo: Slo, options: Options, names: Names, per_s: float | None) -> Verdict:
    refused: list[str] = []
    warnings: list[str] = []
    try:
        found = indicators(slo, options)
        warnings += [note for note in found.notes if "is no bucket bound" not in note]
        refused += _buckets(slo, options)
        warnings += _older(slo, options)
        warnings += burn.notes(slo, options)
    except ConfigError as error:
        refused.append(str(error))
    except ValueError as error:
        refused.append(f"period {error}")
    if isinstance(slo.indicator, Custom):
        refused += _queries(slo.indicator, names)
    rate = per_s if per_s is not None else slo.requests_per_day / DAY_S if slo.requests_per_day is not None else None
    if rate is None:
        warnings.append("the traffic is not known; write requests_per_day to have the objective checked against it")
    elif not refused:
        refused += _traffic(slo, options, rate)
    return Verdict(slo.name, tuple(refused), tuple(warnings))


def _limits(slo: Slo) -> tuple[Latency, ...]:
    kind = slo.indicator
    if isinstance(kind, JointGoodput):
        return tuple(Latency(signal, limit_s) for signal, limit_s in kind.limits.items())
    return (kind,) if isinstance(kind, Latency) else ()


def _buckets(slo: Slo, options: Options) -> Iterator[str]:
    for kind in _limits(slo):
        for native in natives(options, engines_of(slo, options), kind.signal):
            found = fit(native, kind.limit_s, options)
            if native.source.type == "histogram" and not found.exact:
                limit = kind.limit_s / native.source.scale
                yield f"{limit:g} is no bucket bound of {native.source.metric}; choose one of {found.near(limit)}"


def _older(slo: Slo, options: Options) -> Iterator[str]:
    for kind in _limits(slo):
        for native in natives(options, engines_of(slo, options), kind.signal):
            for version in fit(native, kind.limit_s, options).missing_in:
                yield f"{native.source.metric} has no bucket at {kind.limit_s:g} s up to {native.engine.title} {version}: such replicas are not counted"


def _queries(kind: Custom, names: Names) -> Iterator[str]:
    """Names of engines that no version, or not the newest, has."""
    for expr in filter(None, (kind.total, kind.good, kind.bad)):
        try:
            tree = parsed(expr.replace("$window", "5m"))
        except ValueError as error:
            yield f"custom: not PromQL: {str(error).splitlines()[0]}"
            continue
        query = Query("", 0, expr, "record", "custom", tree=tree)
        for rule in (checks_names.missing_total, checks_names.unknown_name, checks_names.dead_name):
            yield from (f"{one.text}; {one.mend}" for one in rule(query, names))


def _traffic(slo: Slo, options: Options, per_s: float) -> Iterator[str]:
    budget = slo.budget_ratio * per_s * slo.period.length_s
    period = span(slo.period.length_s)
    if budget < 1:
        yield f"at {per_s * DAY_S:.3g} requests a day the budget of {period} is {budget:.2g} requests: one failure ends it; lower the objective"
        return
    if slo.pages and budget < LEAST_BUDGET:
        yield (
            f"at {per_s * DAY_S:.3g} requests a day the budget of {period} is {budget:.2g} requests, too few to wake someone; "
            "write page: false, lower the objective, or watch several services together"
        )
    pairs = burn_pairs(slo.objective, slo.period.length_s, scrape_interval_s=options.scrape_interval_s)
    wanted = [pair for pair in pairs if pair.tier != "outage" and (slo.pages or pair.severity == "ticket")]
    smallest = min(wanted, key=lambda pair: pair.long_s)
    holds = per_s * smallest.long_s * smallest.threshold_ratio
    if holds < 1:
        yield (
            f"the {span(smallest.long_s)} window holds {per_s * smallest.long_s:.3g} requests, so one failure is more than its "
            f"{smallest.threshold_ratio:.3%}; lower the objective, write page: false, or watch several services together"
        )
