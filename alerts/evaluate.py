"""Which alerts fire now, without Prometheus: the rules' own alerts, met by goodwatch's own numbers. Pure.

Names, labels, texts and links come from the very rules that ``alerts.rules.build`` makes, so that both ways of paging
emit the same alerts. What only a number can say is put into the texts here, where Prometheus asks its templates.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from alerts.evaluate_symptoms import SYMPTOMS, ServiceNow
from alerts.rules.promql import span
from alerts.rules.sli import group_labels, indicators
from alerts.rules.text import annotations, labels
from alerts.rules.values import Alert, Options
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import DAY_S, BurnPair, Custom, Severity, Slo
from goodwatch.signals.budget import TILE_S, SloStatus, TargetStatus

#: windows that alerts look at beside those of burn rates, by indicator
QUALITY_WINDOWS_S: Final = (6 * 3_600.0, 7 * DAY_S)
_BURN: Final[Mapping[str, Severity]] = {"error-budget-burn-fast": "page", "error-budget-burn-slow": "ticket"}
_OF_PROMETHEUS: Final[Mapping[str, str]] = {
    "gpu-fault": "exporters' error codes are judged by Prometheus only",
    "gpu-throttled": "clocks over a day are kept by Prometheus only",
    "watchdog": "a switch that must not stop belongs outside of what it watches; ping the service from outside",
    "goodwatch-down": "what is down cannot say so",
}
_TEMPLATE: Final = re.compile(r"\{\{ \$value(?: \| (humanizePercentage|humanize))? \}\}")
_ENOUGH_SCORES: Final = 100.0


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known at one moment, by name. An SLO that is not there is not known yet: its alerts stay as they are."""

    at_s: float
    slos: Mapping[str, SloStatus] = field(default_factory=dict)
    services: Mapping[str, ServiceNow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Met:
    """An alert whose condition holds. ``rule`` tells how long it must hold, and how long it is held afterwards."""

    rule: Alert
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Alerts that hold, and rules that could not be judged (by ``rule_key``): they neither begin nor end."""

    met: tuple[Met, ...]
    blind: frozenset[str]


#: value, further labels, further sentence; None: cannot be judged
_Found = tuple[float, Mapping[str, str], str]


def rule_key(name: str, found: Mapping[str, str]) -> str:
    """What names a rule: an alert and what it is about.

    Examples
    --------
    >>> rule_key("LlmTargetDown", {"service": "chat", "severity": "warning"})
    'LlmTargetDown/chat/'
    """
    return f"{name}/{found.get('service', '')}/{found.get('slo', '')}"


def left_out(rules: Iterable[Alert], slos: Iterable[Slo]) -> tuple[str, ...]:
    """What is not judged without Prometheus, and why, for a person."""
    found = [f"{rule.name}: {_OF_PROMETHEUS[rule.kind]}" for rule in rules if rule.kind in _OF_PROMETHEUS]
    queries = [slo.name for slo in slos if isinstance(slo.indicator, Custom)]
    return (*dict.fromkeys(found), *(f"{name}: counted by PromQL, which only Prometheus answers" for name in queries))


def evaluate(rules: Sequence[Alert], situation: Situation, options: Options) -> Evaluation:
    """Judge every rule that goodwatch can judge.

    Parameters
    ----------
    rules
        Alerts of ``alerts.rules.build``; those that only Prometheus can judge are passed over (``left_out``).
    """
    met: list[Met] = []
    blind: set[str] = set()
    for rule in rules:
        found = _judged(rule, situation, options)
        if found is None:
            blind.add(rule_key(rule.name, rule.labels))
            continue
        met += [_met(rule, one, options) for one in found]
    return Evaluation(tuple(met), frozenset(blind))


def _judged(rule: Alert, situation: Situation, options: Options) -> Sequence[_Found] | None:
    if rule.kind in _OF_PROMETHEUS:
        return ()
    if rule.kind in _OF_SLO:
        status = situation.slos.get(rule.labels.get("slo", ""))
        if status is None:
            return None
        return _OF_SLO[rule.kind](rule, status, situation, options)
    service = situation.services.get(rule.labels.get("service", ""))
    if service is None or rule.kind not in SYMPTOMS:
        return None
    value = SYMPTOMS[rule.kind](service)
    return None if value is None else () if value is False else ((float(value), {}, ""),)


# --- of an SLO --------------------------------------------------------------------------------------------------------


def _burn(rule: Alert, status: SloStatus, _: Situation, options: Options) -> Sequence[_Found]:
    """One alert for each value of the labels that split the SLO: all of its windows and targets together."""
    worst: dict[tuple[str, ...], tuple[float, TargetStatus, BurnPair]] = {}
    seen: set[tuple[tuple[str, ...], str]] = set()
    for target, pair in status.firing(_BURN[rule.kind]):
        events = target.windows[pair.long_s]
        ratio = None if events is None else events.error_ratio
        if ratio is None or (target.group, target.target) in seen:  # the fastest pair of a target tells its number
            continue
        seen.add((target.group, target.target))
        if target.group not in worst or ratio > worst[target.group][0]:
            worst[target.group] = (ratio, target, pair)
    names = _by_labels(status.slo, options)
    return [
        (ratio, {n: v for n, v in zip(names, group, strict=False) if v}, _numbers(status, target, pair, ratio))
        for group, (ratio, target, pair) in worst.items()
    ]


def _by_labels(slo: Slo, options: Options) -> tuple[str, ...]:
    try:
        return group_labels(slo, options)
    except ConfigError:  # the engines do not agree on a name: the canonical one is understood everywhere
        return slo.scope.by


def _numbers(status: SloStatus, target: TargetStatus, pair: BurnPair, ratio: float) -> str:
    """Burn, window, budget and its end."""
    text = f"Burn {ratio / status.slo.budget_ratio:.1f}x in {span(pair.long_s)} ({target.target})."
    worst = _worst_of(status, target.group)
    if worst is not None and worst.budget is not None and not worst.budget.broken:
        text += f" Budget left: {worst.budget.left_ratio * 100:.1f} %."
        ends = worst.forecast
        if ends is not None and ends.expected_s is not None and worst.budget.left_ratio > 0:
            soonest, latest = _rough(ends.soonest_s), _rough(ends.latest_s)
            text += f" It ends in {_rough(ends.expected_s)} ({soonest} to {latest}) if this goes on."
    return text


def _worst_of(status: SloStatus, group: tuple[str, ...]) -> TargetStatus | None:
    """The count of a group with the least budget left; None while a part of the period only is known."""
    return None if status.note else replace(status, targets=tuple(t for t in status.targets if t.group == group)).worst


def _rough(seconds: float | None) -> str:
    """A time that a person grasps."""
    if seconds is None:
        return "never"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:.0f} d"


def _no_data(_: Alert, status: SloStatus, situation: Situation, options: Options) -> Sequence[_Found] | None:
    """Its targets answer and work, and yet what the SLO counts is gone."""
    slo = status.slo
    service = situation.services.get(slo.service)
    try:
        native = [sli.target for sli in indicators(slo, options).slis if sli.native]
    except ConfigError:
        return ()
    if service is None or isinstance(slo.indicator, Custom):
        return None
    told = {t.target for t in status.targets if t.windows.get(TILE_S) is not None}
    gone = [target for target in native if target not in told]
    if not gone or not any(up for up in service.up.values()) or not (service.zeros_from_start or service.busy):
        return ()
    return ((1.0, {}, f"Gone: {', '.join(gone)}."),)


def _quality_drop(_: Alert, status: SloStatus, situation: Situation, options: Options) -> Sequence[_Found]:
    short_s, long_s = QUALITY_WINDOWS_S
    found: list[_Found] = []
    for target in status.targets:
        short, long = target.windows.get(short_s), target.windows.get(long_s)
        if short is None or long is None or min(short.total, long.total) <= _ENOUGH_SCORES:
            continue
        if short.good / short.total < long.good / long.total - 0.05:
            found.append((short.good / short.total, {}, f"The week: {long.good / long.total * 100:.1f} %."))
    return found[:1]


_OF_SLO: Final[Mapping[str, Callable[[Alert, SloStatus, Situation, Options], Sequence[_Found] | None]]] = {
    **dict.fromkeys(_BURN, _burn),
    "slo-no-data": _no_data,
    "quality-drop": _quality_drop,
}


# --- texts ------------------------------------------------------------------------------------------------------------


def _met(rule: Alert, found: _Found, options: Options) -> Met:
    value, more, sentence = found
    texts = annotations(rule, options, plain=True)
    summary = filled(texts["summary"], value)
    texts["summary"] = f"{summary} {sentence}" if sentence else summary
    return Met(rule, {**labels(rule, options), **more}, texts, value)


def filled(text: str, value: float) -> str:
    """A text of a rule with its value in it, written as Prometheus writes it.

    Examples
    --------
    >>> filled("{{ $value | humanizePercentage }} of {{ $value }}, {{ $value | humanize }}", 0.1234567)
    '12.35% of 0.1234567, 123.5m'
    """
    forms = {"humanizePercentage": _percentage(value), "humanize": _humanized(value)}
    return _TEMPLATE.sub(lambda hit: forms.get(hit[1] or "", f"{value:.12g}"), text)


def _percentage(value: float) -> str:
    return f"{value * 100:.4g}%"


def _humanized(value: float) -> str:
    """Four digits with an SI prefix."""
    if value == 0 or 1 <= abs(value) < 1000:
        return f"{value:.4g}"
    prefixes = ("k", "M", "G", "T", "P") if abs(value) >= 1000 else ("m", "u", "n", "p")
    step = 1 / 1000 if abs(value) >= 1000 else 1000.0
    for prefix in prefixes:
        value *= step
        if 1 <= abs(value) < 1000:
            return f"{value:.4g}{prefix}"
    return f"{value:.4g}{prefixes[-1]}"
