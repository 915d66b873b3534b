"""How engines' signals count an SLO, from the same tables and choices as the rules. Pure."""

from collections.abc import Mapping

from alerts.rules.fit import fit
from alerts.rules.sli import engines_of
from alerts.rules.sources import CLIENT_FAULT, FAILED, natives, served_terms
from alerts.rules.values import Options
from goodwatch.core.slo import Availability, Custom, JointGoodput, Latency, Slo
from goodwatch.signals.slo_events import Counting

FAILED_SIGNAL, REFUSED_SIGNAL = "requests_failed_total", "requests_rejected_total"


def countings(slo: Slo, options: Options) -> dict[str, Counting]:
    """By engine that the SLO meets; raises ``ConfigError`` for an engine that is not known."""
    return {name: _counting(slo, name, options) for name in engines_of(slo, options)}


def why_not(slo: Slo) -> str:
    """Why this SLO has no number without Prometheus, for a person; "" when it has one."""
    if isinstance(slo.indicator, Custom):
        return "its events are a PromQL query: only Prometheus can count them"
    return ""


def _limits(slo: Slo) -> Mapping[str, float]:
    kind = slo.indicator
    if isinstance(kind, Latency):
        return {kind.signal: kind.limit_s}
    return dict(kind.limits.items()) if isinstance(kind, JointGoodput) else {}


def _counting(slo: Slo, engine: str, options: Options) -> Counting:
    bounds: dict[str, tuple[float, ...]] = {}
    for signal, limit_s in _limits(slo).items():
        found = [n for n in natives(options, (engine,), signal) if n.source.type == "histogram"]
        fits = [(fit(native, limit_s, options).bound, native.source.scale) for native in found]
        bounds[signal] = tuple(dict.fromkeys(bound * scale for bound, scale in fits if bound is not None))
    if not isinstance(slo.indicator, Availability | JointGoodput):
        return Counting(bounds)
    by_model = bool(slo.scope.model) or "model" in slo.scope.by  # HTTP series do not name the model
    http = () if by_model else served_terms(options, engine)
    ended = {native.name for native in natives(options, (engine,), "requests_finished_total")}
    counted = ended | {term.name for term in http}
    failed = {native.name for native in natives(options, (engine,), FAILED_SIGNAL)}
    refused = {native.name for native in natives(options, (engine,), REFUSED_SIGNAL)}
    beside = [*([REFUSED_SIGNAL] if refused - counted else [])]
    beside += [FAILED_SIGNAL] if failed - counted and not http else []
    return Counting(
        bounds,
        (CLIENT_FAULT, FAILED) if http else None,
        errors_ended=bool(failed & (counted - {term.name for term in http})),
        beside=tuple(beside),
    )
