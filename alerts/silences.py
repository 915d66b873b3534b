"""Who need not be told: silences with an end, and what keeps an alert quiet now. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from alerts.matchers import Matcher, matcher_of
from alerts.schedule import Maintenance
from alerts.values import FiringAlert


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts that all ``matchers`` fit are told to nobody in ``[starts_at_s, ends_at_s)`` (Unix seconds)."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_at_s: float
    ends_at_s: float
    author: str
    comment: str
    created_at_s: float

    def state(self, now_s: float) -> Literal["pending", "active", "expired"]:
        """What it is at one time."""
        if now_s >= self.ends_at_s:
            return "expired"
        return "active" if now_s >= self.starts_at_s else "pending"

    def ended(self, now_s: float) -> "Silence":
        """The same, over at ``now_s`` if it was not over before; one that never began ends where it starts."""
        return replace(self, ends_at_s=min(self.ends_at_s, now_s), starts_at_s=min(self.starts_at_s, now_s))

    def body(self) -> dict[str, object]:
        """The same as JSON values, for a record of kind ``silence``."""
        return {
            "matchers": [str(one) for one in self.matchers], "starts_at_s": self.starts_at_s,
            "ends_at_s": self.ends_at_s, "author": self.author, "comment": self.comment,
            "created_at_s": self.created_at_s,
        }  # fmt: skip


def silence_of(id: str, body: Mapping[str, Any]) -> Silence:
    """A silence from its record. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for a body that is none."""
    return Silence(
        id, tuple(matcher_of(text) for text in body["matchers"]), float(body["starts_at_s"]),
        float(body["ends_at_s"]), str(body["author"]), str(body["comment"]), float(body["created_at_s"]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quiet:
    """All that keeps alerts quiet: silences, and maintenance that comes again every week."""

    silences: tuple[Silence, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()

    def reasons(self, alert: FiringAlert, now_s: float) -> tuple[str, ...]:
        """Why nobody is told of an alert now: ``silence ID``, ``maintenance NAME``; empty when nothing keeps it quiet."""
        if not self.silences and not self.maintenance:
            return ()
        labels = labels_of(alert)
        found = [
            f"silence {one.id}"
            for one in self.silences
            if one.state(now_s) == "active" and all(matcher.fits(labels) for matcher in one.matchers)
        ]
        return (*found, *(f"maintenance {one.name}" for one in self.maintenance if one.quiets(labels, now_s)))


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an alert that ``source`` fits fires, those that ``target`` fits are quiet if their ``equal`` labels agree."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...] = ("service",)


def _inhibition(source: str, target: str) -> Inhibition:
    return Inhibition((matcher_of(source),), (matcher_of(target),))


#: a service that is down says it all; then a page says it for the tickets and causes of its service
INHIBITIONS: Final = (
    _inhibition(
        'alertname="LlmServiceDown"',
        'alertname=~"LlmErrorBudget.*|LlmTargetDown|LlmSloNoData|LlmEngineStalled"',
    ),
    _inhibition('severity=~"critical|page"', 'severity=~"warning|ticket"'),
)


def inhibited(alerts: Iterable[FiringAlert], rules: Sequence[Inhibition] = INHIBITIONS) -> dict[str, str]:
    """Fingerprint of each firing alert that another one speaks for → name of that one. None speaks for itself.

    An alert without the labels that must be equal is never quiet.
    """
    firing = [(alert, labels_of(alert)) for alert in alerts if not alert.resolved]
    found: dict[str, str] = {}
    for rule in rules:
        speaking: dict[tuple[str, ...], FiringAlert] = {}
        for alert, labels in firing:
            if all(one.fits(labels) for one in rule.source):
                speaking.setdefault(_equal(rule, labels), alert)
        for alert, labels in firing:
            by = speaking.get(_equal(rule, labels))
            if by is None or by.fingerprint == alert.fingerprint or not all(_equal(rule, labels)):
                continue
            if all(one.fits(labels) for one in rule.target):
                found.setdefault(alert.fingerprint, by.name)
    return found


def _equal(rule: Inhibition, labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in rule.equal)


def labels_of(alert: FiringAlert) -> Mapping[str, str]:
    """Labels with the name among them, as Alertmanager sees them."""
    return {**alert.labels, "alertname": alert.name}
