"""What a sink is told, and when: alerts in groups, each group at its pace, from what it was told last. Pure.

Nothing is queued: what is due is computed from what fires now and what was told. So a sink that was away for an hour
hears how things stand, once, and a restart tells nobody anything twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from alerts.silences import labels_of
from alerts.values import FiringAlert

Level = Literal["page", "ticket", "none"]
Cause = Literal["new", "changed", "repeat", "ended"]

_CLOCKS_DIFFER_S: Final = 60.0

LEVELS: Final[tuple[Level, ...]] = ("page", "ticket", "none")
_LEVEL_OF: Final[Mapping[str, Level]] = {"critical": "page", "page": "page", "warning": "ticket", "ticket": "ticket"}


def level_of(severity: str) -> Level:
    """How urgent the value of a label ``severity`` is; one that is not known is "none"."""
    return _LEVEL_OF.get(severity, "none")


@dataclass(frozen=True, slots=True)
class Pace:
    """How alerts are grouped and how often a group is told, seconds as in Alertmanager.

    ``wait_s`` after the first alert of a group; ``interval_s`` between messages that tell a change; the others between
    messages that only repeat. A page that joins a group of tickets waits no longer than the first. ``steady`` is for
    receivers that group and inhibit themselves: everything again and again, and nothing is left out.
    """

    group_by: tuple[str, ...] = ("service",)
    wait_s: float = 30.0
    interval_s: float = 300.0
    repeat_page_s: float = 4 * 3600.0
    repeat_ticket_s: float = 24 * 3600.0
    steady: bool = False

    def repeat_s(self, level: Level) -> float:
        """How long after a message it is repeated while nothing changes."""
        return self.repeat_page_s if level == "page" else self.repeat_ticket_s


def steady_pace(every_s: float) -> Pace:
    """All alerts in one message, again each ``every_s``."""
    return Pace((), 0.0, 0.0, every_s, every_s, steady=True)


@dataclass(frozen=True, slots=True)
class Told:
    """What a sink was told of a group last: when, and which alerts it believes to fire, by fingerprint."""

    at_s: float
    firing: Mapping[str, FiringAlert] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        """The most urgent of what it believes to fire."""
        return level_over(self.firing.values())

    def body(self) -> dict[str, object]:
        """The same as JSON values, for a record."""
        return {"at_s": self.at_s, "firing": [alert_body(one) for one in self.firing.values()]}


def told_of(body: Mapping[str, Any]) -> Told:
    """From a record. Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``AttributeError`` for a body that is none."""
    alerts = [alert_of(one) for one in body["firing"]]
    return Told(float(body["at_s"]), {one.fingerprint: one for one in alerts})


def alert_body(alert: FiringAlert) -> dict[str, object]:
    """An alert as JSON values."""
    return {
        "name": alert.name, "labels": dict(alert.labels), "annotations": dict(alert.annotations),
        "starts_at_s": alert.starts_at_s, "ends_at_s": alert.ends_at_s, "fingerprint": alert.fingerprint,
        "severity": alert.severity, "generator_url": alert.generator_url,
    }  # fmt: skip


def alert_of(body: Mapping[str, Any]) -> FiringAlert:
    """The alert of ``alert_body``."""
    ends_at_s = body["ends_at_s"]
    return FiringAlert(
        str(body["name"]), dict(body["labels"]), dict(body["annotations"]), float(body["starts_at_s"]),
        None if ends_at_s is None else float(ends_at_s), str(body["fingerprint"]), str(body["severity"]),
        str(body["generator_url"]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one sink: what of a group fires, most urgent first, and what ended since it was told last."""

    sink: str
    key: str
    labels: Mapping[str, str]
    firing: tuple[FiringAlert, ...]
    ended: tuple[FiringAlert, ...]
    at_s: float
    cause: Cause
    external_url: str = ""

    @property
    def resolved(self) -> bool:
        """Whether nothing of the group fires any more."""
        return not self.firing

    @property
    def alerts(self) -> tuple[FiringAlert, ...]:
        """All of it, what fires first."""
        return (*self.firing, *self.ended)

    @property
    def level(self) -> Level:
        """The most urgent of what fires, or of what ended."""
        return level_over(self.firing or self.ended)


@dataclass(slots=True)
class Group:
    """Alerts of one group now: told (``firing``), kept quiet (``quiet``), over (``ended``); by fingerprint."""

    labels: Mapping[str, str]
    firing: dict[str, FiringAlert] = field(default_factory=dict)
    quiet: dict[str, FiringAlert] = field(default_factory=dict)
    ended: dict[str, FiringAlert] = field(default_factory=dict)


def group_labels(alert: FiringAlert, pace: Pace) -> dict[str, str]:
    """The labels that name the group of an alert; those that it lacks are left out."""
    labels = labels_of(alert) if "alertname" in pace.group_by else alert.labels
    return {name: labels[name] for name in pace.group_by if labels.get(name)}


def key_of(labels: Mapping[str, str]) -> str:
    """The name of a group by its labels; the same text over restarts: ``{service="chat"}``."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"


def grouped(alerts: Iterable[FiringAlert], quiet: Iterable[str], pace: Pace) -> dict[str, Group]:
    """Groups by key. ``quiet`` are fingerprints of which nobody is told now."""
    silent = set(quiet)
    groups: dict[str, Group] = {}
    for alert in alerts:
        labels = group_labels(alert, pace)
        group = groups.setdefault(key_of(labels), Group(labels))
        kind = group.ended if alert.resolved else group.quiet if alert.fingerprint in silent else group.firing
        kind[alert.fingerprint] = alert
    return groups


def due(group: Group, told: Told | None, pace: Pace, now_s: float) -> tuple[Cause, tuple[FiringAlert, ...]] | None:
    """Why a group is to be told now, and what ended of what was told before; None while it is not.

    An alert that let go and came back before anyone was told that it ended never ended for the sink: flapping is quiet.
    An alert that was told and is kept quiet since has not ended; when it ends the sink is told, so that no incident
    stays open.
    """
    believed = {} if told is None else told.firing
    ended = tuple(
        group.ended.get(one.fingerprint, one)
        for one in believed.values()
        if one.fingerprint not in group.firing and one.fingerprint not in group.quiet
    )
    new = [one for fingerprint, one in group.firing.items() if fingerprint not in believed]
    if told is None or not believed:
        ready = bool(new) and any(_passed(one.starts_at_s, pace.wait_s, now_s) for one in new)
        return ("new", ()) if ready else None
    if any(_rank(one) < LEVELS.index(told.level) and _passed(one.starts_at_s, pace.wait_s, now_s) for one in new):
        return "new", ended
    if (new or ended) and _passed(told.at_s, pace.interval_s, now_s):
        return ("changed" if group.firing else "ended"), ended
    held = shown(group, told, pace)
    if held and _passed(told.at_s, pace.repeat_s(level_over(held)), now_s):
        return "repeat", ()
    return None


def _passed(since_s: float, length_s: float, now_s: float) -> bool:
    """Whether so long has passed; also where ``since_s`` is yet to come, by more than clocks differ: it was set back."""
    return now_s >= since_s + length_s or since_s > now_s + _CLOCKS_DIFFER_S


def shown(group: Group, told: Told | None, pace: Pace) -> tuple[FiringAlert, ...]:
    """What a message says that fires, most urgent first.

    A steady receiver takes for ended what it hears no more of, so what it was told stays in until it ends.
    """
    believed = {} if told is None or not pace.steady else told.firing
    return by_urgency([*group.firing.values(), *(one for name, one in group.quiet.items() if name in believed)])


def after(group: Group, told: Told | None, now_s: float) -> Told:
    """What a sink believes once it was told of the group as it is."""
    believed = {} if told is None else told.firing
    kept = {fingerprint: one for fingerprint, one in group.quiet.items() if fingerprint in believed}
    return Told(now_s, {**kept, **group.firing})


def by_urgency(alerts: Iterable[FiringAlert]) -> tuple[FiringAlert, ...]:
    """Pages first, the oldest of each first."""
    return tuple(sorted(alerts, key=lambda one: (_rank(one), one.starts_at_s, one.name, one.fingerprint)))


def level_over(alerts: Iterable[FiringAlert]) -> Level:
    """The most urgent level; "none" of nothing."""
    return LEVELS[min((_rank(one) for one in alerts), default=len(LEVELS) - 1)]


def _rank(alert: FiringAlert) -> int:
    return LEVELS.index(level_of(alert.severity))


def in_order(messages: Iterable[Message]) -> list[Message]:
    """The most urgent first: a sink may be told only so many a minute."""
    return sorted(messages, key=lambda one: (one.resolved, LEVELS.index(one.level), one.key))
