"""Series of SLOs: what is left of budgets, how fast they burn, when they end, what fires and what drifts.

What has no data gives no sample, never 0. Labels that split an SLO are on its samples under their own names.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric

from exporters._families import label_text

#: values of the labels that split an SLO that get series, those with the least budget first
MAX_GROUPS: Final = 20

#: name, type, labels, meaning
SLO_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("goodwatch_slo_objective_ratio", "gauge", "service, slo", "share of events that must be good"),
    ("goodwatch_slo_budget_remaining_ratio", "gauge", "service, slo, period, target", "share of the error budget that is left: 1 untouched, below 0 overdrawn"),
    ("goodwatch_slo_burn_rate", "gauge", "service, slo, window, target", "how many times faster than sustainable the budget is spent; no sample without traffic"),
    ("goodwatch_slo_budget_exhaustion_seconds", "gauge", "service, slo, bound", "seconds until the budget is used up if the last day goes on; no sample when it is not"),
    ("goodwatch_slo_alert_firing", "gauge", "service, slo, severity", "1 while goodwatch finds that an alert of the SLO fires, 0 while not"),
    ("goodwatch_drift_active", "gauge", "service, kind, slo", "1 while a drift goes on; no sample otherwise"),
)  # fmt: skip
_VALID: Final = ("goodwatch_slo_valid_events", "goodwatch_slo_good_events")
_COUNTED_TEXTS: Final = ("valid events of this SLO, each once", "those of them that were good")
_BOUNDS: Final = ("expected", "soonest", "latest")


@dataclass(frozen=True, slots=True)
class TargetSeries:
    """One count of events: budget left (None: no data), and burn rates by window as Prometheus writes it ("5m")."""

    target: str
    budget_left_ratio: float | None
    burn: Mapping[str, float | None]
    group: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SloSeries:
    """One SLO. ``exhaustion_s`` are expected, soonest and latest; ``firing`` by severity, {} while it is not known."""

    service: str
    slo: str
    objective: float
    period: str
    targets: Sequence[TargetSeries] = ()
    exhaustion_s: tuple[float | None, float | None, float | None] = (None, None, None)
    firing: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlosNow:
    """Everything of SLOs at one moment. ``drifts`` are (service, kind, slo); ``counted`` (service, slo, valid, good)."""

    slos: Sequence[SloSeries] = ()
    drifts: Sequence[tuple[str, str, str]] = ()
    counted: Sequence[tuple[str, str, float, float]] = ()


def slo_families(now: SlosNow, beside: Iterable[Metric] = ()) -> Iterator[Metric]:
    """All families of SLOs, and those of ``beside``.

    Requests have families of counted events of their own: what was counted here joins them, so that no name is on a
    page twice; an SLO that they have already is left to them.
    """
    made = _Families()
    for slo in now.slos:
        _one(made, slo)
    for service, kind, name in sorted(set(now.drifts)):
        made.add("goodwatch_drift_active", {"service": service, "kind": kind, "slo": name}, 1.0)
    yield from _with_counted(beside, now.counted)
    yield from made.found.values()


@dataclass(slots=True)
class _Families:
    found: dict[str, Metric] = field(default_factory=dict)

    def add(self, name: str, labels: Mapping[str, str], value: float | None) -> None:
        """A sample, if there is a number."""
        if value is None or not math.isfinite(value):
            return
        family = self.found.get(name)
        if family is None:
            text = next(meaning for known, _, _, meaning in SLO_SERIES if known == name)
            family = self.found[name] = Metric(name, text, "gauge")
        family.add_sample(name, {key: label_text(text) for key, text in labels.items()}, value)


def _one(made: _Families, slo: SloSeries) -> None:
    names = {"service": slo.service, "slo": slo.slo}
    made.add("goodwatch_slo_objective_ratio", names, slo.objective)
    for target in _shown(slo.targets):
        of = names | {"target": target.target} | _own(target.group)
        made.add("goodwatch_slo_budget_remaining_ratio", of | {"period": slo.period}, target.budget_left_ratio)
        for window, burn in target.burn.items():
            made.add("goodwatch_slo_burn_rate", of | {"window": window}, burn)
    for bound, seconds in zip(_BOUNDS, slo.exhaustion_s, strict=True):
        made.add("goodwatch_slo_budget_exhaustion_seconds", names | {"bound": bound}, seconds)
    for severity, firing in slo.firing.items():
        made.add("goodwatch_slo_alert_firing", names | {"severity": severity}, float(firing))


def _own(group: Mapping[str, str]) -> dict[str, str]:
    """Labels of a group; one that is called like one of these series' own gets another name."""
    taken = {"service", "slo", "target", "period", "window"}
    return {f"by_{key}" if key in taken else key: value for key, value in group.items()}


def _shown(targets: Sequence[TargetSeries]) -> list[TargetSeries]:
    """Targets of the groups with the least budget: a tenant that somebody makes up must not fill the page."""
    worst: dict[tuple[tuple[str, str], ...], float] = {}
    for target in targets:
        key = tuple(sorted(target.group.items()))
        left = math.inf if target.budget_left_ratio is None else target.budget_left_ratio
        worst[key] = min(left, worst.get(key, math.inf))
    kept = set(sorted(worst, key=lambda key: (worst[key], key))[:MAX_GROUPS])
    return [target for target in targets if tuple(sorted(target.group.items())) in kept]


def _with_counted(families: Iterable[Metric], counted: Sequence[tuple[str, str, float, float]]) -> Iterator[Metric]:
    seen: set[str] = set()
    for family in families:
        if family.name in _VALID:
            seen.add(family.name)
            place = _VALID.index(family.name)
            there = {(sample.labels.get("service"), sample.labels.get("slo")) for sample in family.samples}
            _count(family, place, [one for one in counted if (one[0], one[1]) not in there])
        yield family
    for place, name in enumerate(_VALID):
        if name not in seen and counted:
            family = Metric(name, _COUNTED_TEXTS[place], "counter")
            _count(family, place, counted)
            yield family


def _count(family: Metric, place: int, counted: Iterable[tuple[str, str, float, float]]) -> None:
    for service, slo, *values in counted:
        labels = {"service": label_text(service), "slo": label_text(slo)}
        family.add_sample(f"{family.name}_total", labels, values[place])
