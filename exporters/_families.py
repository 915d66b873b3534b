"""From a snapshot to metric families. Absent numbers give no sample, never 0; the page stays bounded."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric

from exporters._values import STATES, Scope, Snapshot
from goodwatch.core.model import Number
from goodwatch.signals.derive import MEANINGS

LABEL_LIMIT: Final = 256

#: what is there beside the derived numbers: name, labels, meaning
FACTS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "goodwatch_number_absent": (
        ("service", "model", "target", "name", "absence"),
        "1 for every derived number that has no value now; absence says why",
    ),
    "goodwatch_service_state": (("service", "state"), "1 for the state that the service is in, 0 for the others"),
    "goodwatch_objective_ratio": (("service",), "share of valid requests that must be good"),
    "goodwatch_target_up": (("service", "target"), "1 if the last scrape of the target succeeded, 0 if it failed"),
    "goodwatch_store_lag_seconds": ((), "age of the oldest data that the store has not yet committed"),
    "goodwatch_store_bytes": ((), "bytes that the store takes"),
}


def series_name(name: str) -> str:
    """Exported name of a derived number.

    ``_per_s`` is spelt out, because Prometheus' conventions (promtool) refuse abbreviated units.

    Examples
    --------
    >>> series_name("goodput_per_s"), series_name("attainment_ratio")
    ('goodwatch_goodput_per_second', 'goodwatch_attainment_ratio')
    """
    return f"goodwatch_{name.removesuffix('_s')}_second" if name.endswith("_per_s") else f"goodwatch_{name}"


def label_text(value: str) -> str:
    """A label value of at most 256 characters in valid UTF-8; what is cut ends in a digest, so that two stay two."""
    clean = value.encode("utf-8", "replace").decode()
    if len(clean) <= LABEL_LIMIT:
        return clean
    digest = hashlib.sha256(clean.encode()).hexdigest()[:8]
    return f"{clean[: LABEL_LIMIT - 9]}~{digest}"


@dataclass(slots=True)
class Page:
    """Families of one scrape; ``dropped`` counts derived samples beyond the limit."""

    families: list[Metric]
    dropped: int


@dataclass(slots=True)
class _Families:
    """Families by name, in order of first use."""

    found: dict[str, Metric] = field(default_factory=dict)

    def add(self, name: str, help_text: str, labels: dict[str, str], value: float) -> None:
        family = self.found.get(name)
        if family is None:
            family = self.found[name] = Metric(name, help_text, "gauge")
        family.add_sample(name, labels, value)

    def fact(self, name: str, values: Iterable[str], value: float) -> None:
        labels, text = FACTS[name]
        self.add(name, text, dict(zip(labels, map(label_text, values), strict=True)), value)


def page(snapshot: Snapshot, max_series: int) -> Page:
    """All families of a snapshot with at most ``max_series`` derived samples; whole services go first."""
    derived = _Derived(max_series)
    for scope in _in_order(snapshot.scopes):
        derived.scope(scope)
    families = (*derived.families.found.values(), *derived.absent.found.values(), *_facts(snapshot).found.values())
    return Page(list(families), derived.dropped)


@dataclass(slots=True)
class _Derived:
    """Derived numbers while they are written; ``left`` is how many samples there is room for."""

    left: int
    dropped: int = 0
    families: _Families = field(default_factory=_Families)
    absent: _Families = field(default_factory=_Families)

    def scope(self, scope: Scope) -> None:
        labels = {"service": scope.service, "model": scope.model}
        if scope.target:
            labels["target"] = scope.target
        for name, number in scope.numbers.items():
            samples = list(_samples(name, number))
            if not self._fits(max(1, len(samples))):
                continue
            for series, text, value in samples:
                self.families.add(series, text, labels, value)
            if not samples:
                why = number.absence.value if number.absence else "no data"
                self.absent.fact("goodwatch_number_absent", (scope.service, scope.model, scope.target, name, why), 1.0)

    def _fits(self, samples: int) -> bool:
        """Take room for all samples of a number or none: half an interval would read as an open one."""
        if samples > self.left:
            self.dropped += samples
            return False
        self.left -= samples
        return True


def _in_order(scopes: Iterable[Scope]) -> Iterator[Scope]:
    """Services, then models, then targets, each once: labels are cut first, so that no sample is there twice."""
    seen: set[tuple[str, str, str]] = set()
    for scope in sorted(scopes, key=lambda s: (bool(s.target), bool(s.model))):
        key = (label_text(scope.service), label_text(scope.model), label_text(scope.target))
        if key not in seen:
            seen.add(key)
            yield Scope(key[0], scope.numbers, key[1], key[2])


def _samples(name: str, number: Number) -> Iterator[tuple[str, str, float]]:
    """Name, help and value of each sample of a number; an end that is open or not finite gives none."""
    series, text = series_name(name), MEANINGS[name].text if name in MEANINGS else name
    if number.value is not None and math.isfinite(number.value):
        yield series, text, number.value
    if number.bounds is None:
        return
    for end, value in (("low", number.bounds.low), ("high", number.bounds.high)):
        if value is not None and math.isfinite(value):
            yield f"{series}_{end}", f"{text}: {'lower' if end == 'low' else 'upper'} end", value


def _facts(snapshot: Snapshot) -> _Families:
    facts = _Families()
    for service in snapshot.services:
        for state in STATES:
            facts.fact("goodwatch_service_state", (service.name, state), float(service.state == state))
        if service.objective is not None:
            facts.fact("goodwatch_objective_ratio", (service.name,), service.objective)
    for target in snapshot.targets:
        if target.up is not None:
            facts.fact("goodwatch_target_up", (target.service, target.name), float(target.up))
    for name, value in (("lag_seconds", snapshot.store_lag_s), ("bytes", snapshot.store_bytes)):
        if value is not None and math.isfinite(value):
            facts.fact(f"goodwatch_store_{name}", (), float(value))
    return facts
