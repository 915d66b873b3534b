"""Incidents: an alert from its start to its end, whoever told of it, once. Pure.

The sender's fingerprint names the alert, its start the incident. What is told again changes nothing; a start that is
later than that of the open incident is a new one, and the old one ended unseen before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from alerts.incoming import Seen, Source
from alerts.values import fingerprint

ALERT: Final = "alert"
#: two senders may round the same start differently
_SAME_START_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Incident:
    """One alert from start to end (Unix seconds); ``ends_at_s`` is None while it fires.

    ``start_told`` is False where the start is the time of receipt, ``end_told`` where the end was not told but seen
    by what came or stayed away. ``service`` is None where it is about none that is known, and ``note`` says why.
    ``quiet`` says why nobody was told by goodwatch.
    """

    id: str
    source: Source
    fingerprint: str
    name: str
    severity: str
    service: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at_s: float
    start_told: bool
    ends_at_s: float | None = None
    end_told: bool = False
    receiver: str = ""
    generator_url: str = ""
    note: str = ""
    quiet: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """Whether it fires: ``firing`` or ``resolved``."""
        return "firing" if self.ends_at_s is None else "resolved"

    @property
    def changed_at_s(self) -> float:
        """When its state last changed."""
        return self.starts_at_s if self.ends_at_s is None else self.ends_at_s

    def body(self) -> dict[str, object]:
        """The same as JSON values, for a record of kind ``alert``."""
        return {
            "source": self.source, "fingerprint": self.fingerprint, "name": self.name, "severity": self.severity,
            "service": self.service, "labels": dict(self.labels), "annotations": dict(self.annotations),
            "starts_at_s": self.starts_at_s, "start_told": self.start_told, "ends_at_s": self.ends_at_s,
            "end_told": self.end_told, "receiver": self.receiver, "generator_url": self.generator_url,
            "note": self.note, "quiet": list(self.quiet),
        }  # fmt: skip


def incident_of(id: str, body: Mapping[str, Any]) -> Incident:
    """From a record. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for a body that is none."""
    source: Source = next((one for one in get_args(Source) if one == body["source"]), "prometheus")
    ends_at_s, service = body["ends_at_s"], body["service"]
    return Incident(
        id, source, str(body["fingerprint"]), str(body["name"]), str(body["severity"]),
        None if service is None else str(service), dict(body["labels"]), dict(body["annotations"]),
        float(body["starts_at_s"]), bool(body["start_told"]), None if ends_at_s is None else float(ends_at_s),
        bool(body["end_told"]), str(body["receiver"]), str(body["generator_url"]), str(body["note"]),
        tuple(str(one) for one in body["quiet"]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class About:
    """What is known of an alert beside what its sender tells: whose it is, and why nobody is told."""

    service: str | None
    note: str = ""
    quiet: tuple[str, ...] = ()


@dataclass(slots=True)
class Incidents:
    """Those that are open, by source and fingerprint; what is observed is returned as versions to keep.

    Nothing changes here before ``kept`` is called with what was committed.
    """

    open: dict[tuple[Source, str], Incident] = field(default_factory=dict)

    @classmethod
    def of(cls, incidents: Iterable[Incident]) -> "Incidents":
        """Those of them that are open."""
        found = cls()
        found.kept(list(incidents))
        return found

    def kept(self, versions: Sequence[Incident]) -> None:
        """Take over versions that are committed."""
        for one in versions:
            key = (one.source, one.fingerprint)
            held = self.open.get(key)
            if one.ends_at_s is None:
                self.open[key] = one
            elif held is not None and held.id == one.id:
                del self.open[key]

    def observed(self, seen: Seen, about: About) -> list[Incident]:
        """What one told alert changes: nothing, a new incident, an end, or both."""
        alert, key = seen.alert, (seen.source, seen.alert.fingerprint)
        held = self.open.get(key)
        if held is not None and seen.start_told and alert.starts_at_s > held.starts_at_s + _SAME_START_S:
            if not held.start_told:
                return self._told_now(held, seen, about)
            # It began anew, so the one before is over; nobody told when.
            over = replace(held, ends_at_s=alert.starts_at_s, end_told=False)
            return [over, _begun(seen, about)]
        if held is None:
            # An end of what never began here is kept too where it says when that was.
            return [_begun(seen, about)] if seen.start_told or not alert.resolved else []
        return self._told_now(held, seen, about)

    def _told_now(self, held: Incident, seen: Seen, about: About) -> list[Incident]:
        alert = seen.alert
        if alert.resolved:
            ends_at_s = max(alert.ends_at_s or 0.0, held.starts_at_s)
            return [replace(held, ends_at_s=ends_at_s, end_told=seen.end_told)]
        now = replace(held, quiet=about.quiet, service=about.service, note=about.note, severity=alert.severity)
        return [] if now == held else [now]

    def missing(self, source: Source, firing: Iterable[str], now_s: float) -> list[Incident]:
        """Ends of what a sender that tells all at once no longer tells of."""
        there = set(firing)
        return [
            replace(one, ends_at_s=max(now_s, one.starts_at_s), end_told=False)
            for (of, name), one in self.open.items()
            if of == source and name not in there
        ]


def echo_id(seen: Seen) -> str:
    """The incident that an alert is if goodwatch itself pushed it to the sender and it comes back from there."""
    return incident_id("goodwatch", fingerprint(seen.alert.name, seen.alert.labels), seen.alert.starts_at_s)


def incident_id(source: Source, name: str, starts_at_s: float) -> str:
    """Source, fingerprint and start in whole milliseconds, which is what travels in RFC 3339."""
    return f"{source}-{name}-{round(starts_at_s * 1e6) // 1000}"


def _begun(seen: Seen, about: About) -> Incident:
    alert = seen.alert
    return Incident(
        incident_id(seen.source, alert.fingerprint, alert.starts_at_s), seen.source, alert.fingerprint, alert.name,
        alert.severity, about.service, alert.labels, alert.annotations, alert.starts_at_s, seen.start_told,
        alert.ends_at_s, seen.end_told, seen.receiver, alert.generator_url, about.note, about.quiet,
    )  # fmt: skip
