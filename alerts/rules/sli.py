"""What is counted: the good and bad events of an SLO as PromQL, from engines' own series wherever they have them.

``$window`` stands for the range, ``$total`` for the recorded total of the same range.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from alerts.rules import own
from alerts.rules.fit import fit
from alerts.rules.promql import (
    TARGET,
    bound_pattern,
    labelled,
    matchers_of,
    number,
    one_of,
    quoted,
    selector,
    span,
    summed,
)
from alerts.rules.sources import Native, finished_matchers, latency_matchers, natives, served_terms
from alerts.rules.values import Options
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import Availability, Cost, Custom, JointGoodput, Latency, Quality, Slo

#: engines that are met when neither the SLO nor its targets say which ones they are
USUAL_ENGINES: Final = ("vllm", "sglang", "trtllm")
SHORT_NAMES: Final = {"ttft_seconds": "ttft", "tpot_seconds": "tpot", "e2e_seconds": "e2e"}


@dataclass(frozen=True, slots=True)
class Sli:
    """One count of events: expressions with ``$window``; ``bad`` may use ``$total``. ``native``: without goodwatch."""

    target: str
    total: str
    bad: str
    native: bool = True


@dataclass(frozen=True, slots=True)
class Indicators:
    """All counts of an SLO, and what could not be counted."""

    slis: tuple[Sli, ...]
    notes: tuple[str, ...] = ()


def indicators(slo: Slo, options: Options) -> Indicators:
    """What the rules of one SLO count.

    Raises ``ConfigError`` when nothing that the engines have counts it.
    """
    kind = slo.indicator
    if isinstance(kind, Custom):
        return Indicators((_custom(slo, kind),))
    if isinstance(kind, Cost):
        return Indicators((_cost(slo, kind),))
    if isinstance(kind, Quality) or slo.scope.needs_facts:
        return Indicators((_counted(slo),), (f"{slo.name}: only goodwatch counts it; it pages while goodwatch runs",))
    if isinstance(kind, JointGoodput):
        return _joint(slo, kind, options)
    found = _availability(slo, options) if isinstance(kind, Availability) else _latency(slo, kind, options)
    if found is None:
        raise ConfigError(_unknown(slo, "served requests" if isinstance(kind, Availability) else kind.signal))
    return Indicators((found,), () if isinstance(kind, Availability) else tuple(unfit(slo, kind, options)))


def unfit(slo: Slo, kind: Latency, options: Options) -> Iterator[str]:
    """A sentence for each histogram that has no bucket at the limit."""
    for native in natives(options, engines_of(slo, options), kind.signal):
        found = fit(native, kind.limit_s, options)
        if native.source.type != "histogram" or found.exact:
            continue
        limit = kind.limit_s / native.source.scale
        where = (
            "no bound above it; it is left out"
            if found.bound is None
            else f"counted at {found.bound:g}, so it never pages falsely"
        )
        yield f"{slo.name}: {limit:g} is no bucket bound of {native.source.metric} (near ones: {found.near(limit)}): {where}"


def _unknown(slo: Slo, signal: str) -> str:
    engines = ", ".join(slo.engines or USUAL_ENGINES)
    return f"slo '{slo.name}': {engines} has no series of {signal} in this version; choose another signal or name the engines"


def engines_of(slo: Slo, options: Options) -> tuple[str, ...]:
    """Engines whose names are met; raises ``ConfigError`` for one that is not known."""
    for name in slo.engines:
        if name not in options.engines:
            raise ConfigError(f"slo '{slo.name}': unknown engine '{name}'; known: {', '.join(sorted(options.engines))}")
    return slo.engines or tuple(name for name in USUAL_ENGINES if name in options.engines)


def base_matchers(slo: Slo, options: Options) -> tuple[str, ...]:
    """Matchers that find the series of the SLO's service."""
    labels = slo.select or {label: text.replace("{service}", slo.service) for label, text in options.select.items()}
    return matchers_of(labels)


def matchers(slo: Slo, options: Options) -> tuple[str, ...]:
    """Matchers of the requests that the SLO is about."""
    model = (f"{model_label(slo, options)}={quoted(slo.scope.model)}",) if slo.scope.model else ()
    return (*base_matchers(slo, options), *model)


def group_labels(slo: Slo, options: Options) -> tuple[str, ...]:
    """Labels that the recorded series keep."""
    if slo.scope.needs_facts:
        return slo.scope.by
    return tuple(model_label(slo, options) for name in slo.scope.by if name == "model")


def model_label(slo: Slo, options: Options) -> str:
    """The label that names the model; raises ``ConfigError`` when the engines do not agree on one."""
    labels = {options.engines[name].model_labels[:1] for name in engines_of(slo, options)}
    if len(labels) == 1 and (only := labels.pop()):
        return only[0]
    raise ConfigError(
        f"slo '{slo.name}': its engines do not name the model in one label; name one engine under engines"
    )


def _joint(slo: Slo, kind: JointGoodput, options: Options) -> Indicators:
    """A request that missed one target missed them all: each target's own share of bad is a lower bound."""
    slis: list[Sli] = []
    notes: list[str] = []
    for signal, limit_s in kind.limits.items():
        sli = _latency(slo, Latency(signal, limit_s), options)
        if sli is None:
            notes.append(
                f"{slo.name}: no series of {signal} in this engine and version; that target pages by facts only"
            )
        else:
            slis.append(sli)
            notes += unfit(slo, Latency(signal, limit_s), options)
    served = _availability(slo, options)
    slis += [served] if served else []
    if not slis:
        raise ConfigError(_unknown(slo, "any of its targets"))
    return Indicators((*slis, _counted(slo)), tuple(notes))


def _latency(slo: Slo, kind: Latency, options: Options) -> Sli | None:
    found = natives(options, engines_of(slo, options), kind.signal)
    found = tuple(native for native in found if native.source.type == "histogram" and native.source.read == "value")
    bounds = [(native, bound) for native in found if (bound := fit(native, kind.limit_s, options).bound) is not None]
    if not bounds:
        return None
    by = group_labels(slo, options)
    select = matchers(slo, options)
    total = summed(by, one_of(f"({_count(native, select, kind.signal, bound)})" for native, bound in bounds))
    within = summed(by, one_of(_bucket(native, select, kind.signal, bound) for native, bound in bounds))
    bad = f"clamp_min($total - on ({', '.join(by)}) {within}, 0)"
    return Sli(SHORT_NAMES.get(kind.signal, kind.signal.removesuffix("_seconds")), total, bad)


def _count(native: Native, select: Iterable[str], signal: str, bound: float) -> str:
    """Observations of targets that have the bucket: one without it would count as all bad."""
    labels = (*select, *latency_matchers(native, signal))
    count = f"increase({selector(native.histogram('_count'), labels)}[$window])"
    return f"{count} and on ({TARGET}) {_bucket(native, select, signal, bound)}"


def _bucket(native: Native, select: Iterable[str], signal: str, bound: float) -> str:
    labels = (*select, *latency_matchers(native, signal), f'le=~"{bound_pattern(bound)}"')
    return f"increase({selector(native.histogram('_bucket'), labels)}[$window])"


def _availability(slo: Slo, options: Options) -> Sli | None:
    select, by = matchers(slo, options), group_labels(slo, options)
    valid, bad, beside = [], [], []
    for name in engines_of(slo, options):
        http = () if slo.scope.model or by else served_terms(options, name)  # HTTP series do not name the model
        finished = natives(options, (name,), "requests_finished_total")
        failed = natives(options, (name,), "requests_failed_total")
        refused = natives(options, (name,), "requests_rejected_total")
        counted = {term.name for term in http} | {native.name for native in finished}
        valid += [_increase(term.name, (*select, *term.valid)) for term in http]
        valid += [_increase(n.name, (*select, *finished_matchers(n))) for n in finished]
        bad += [_increase(term.name, (*select, *term.failed)) for term in http]
        bad += [_increase(n.name, (*select, *n.matchers)) for n in failed if n.name in counted - {t.name for t in http}]
        beside += [("refused", n) for n in refused if n.name not in counted]
        beside += [("failed", n) for n in failed if n.name not in counted and not http]
    if not valid or not (bad or beside):
        return None
    extra = [labelled(_increase(n.name, (*select, *n.matchers)), f"{n.name} {how}") for how, n in beside]
    total = summed(by, " or ".join([one_of(valid), *extra]))
    errors = summed(by, " or ".join([*([one_of(bad)] if bad else []), *extra]))
    return Sli("served", total, f"{errors} or on ({', '.join(by)}) 0 * $total")


def _increase(name: str, labels: Iterable[str]) -> str:
    return f"increase({selector(name, labels)}[$window])"


def _counted(slo: Slo) -> Sli:
    """What goodwatch counted request by request; stale series add nothing, so it joins in while it is fresh."""
    by = slo.scope.by if slo.scope.needs_facts else ()
    labels = (f"slo={quoted(slo.name)}", f"service={quoted(slo.service)}")
    total = summed(by, _increase(own.VALID_EVENTS, labels))
    good = summed(by, _increase(own.GOOD_EVENTS, labels))
    return Sli("counted", total, f"clamp_min($total - on ({', '.join(by)}) {good}, 0)", native=False)


def _cost(slo: Slo, kind: Cost) -> Sli:
    name = own.COST[kind.tokens]
    labels = (f"service={quoted(slo.service)}", f"model={quoted(slo.scope.model)}", 'target=""')
    usd = f"({selector(name, labels)} or {selector(name + '_low', labels)})"
    total = f"sum(count_over_time({usd}[$window:1m]))"
    bad = f"sum(sum_over_time(({usd} > bool {number(kind.usd_per_million)})[$window:1m]))"
    return Sli("cost", total, bad, native=False)


def _custom(slo: Slo, kind: Custom) -> Sli:
    by = slo.scope.by
    if kind.slice_s is not None:
        return _slices(by, kind, kind.slice_s)
    total, on = summed(by, _ranged(kind.total)), ", ".join(by)
    if kind.bad:
        return Sli("custom", total, f"{summed(by, _ranged(kind.bad))} or on ({on}) 0 * $total")
    return Sli("custom", total, f"clamp_min($total - on ({on}) {summed(by, _ranged(kind.good))}, 0)")


def _slices(by: tuple[str, ...], kind: Custom, slice_s: float) -> Sli:
    """Slices of time as events: each is good or bad as a whole."""
    one = span(slice_s)
    held = f"({summed(by, _ranged(kind.total))} > 0)".replace("$window", one)
    side = summed(by, _ranged(kind.bad or kind.good)).replace("$window", one)
    bad = f"({side} or on ({', '.join(by)}) 0 * {held}) / {held}" if kind.bad else f"1 - {side} / {held}"
    fails = f"({bad} > bool {number(float(f'{1 - kind.slice_target:.12g}'))})"
    return Sli("slices", f"count_over_time({held}[$window:{one}])", f"sum_over_time({fails}[$window:{one}])")


def _ranged(expr: str) -> str:
    """A query as written, or the increase of a plain selector."""
    return expr.strip() if "$window" in expr else f"increase({expr.strip()}[$window])"
