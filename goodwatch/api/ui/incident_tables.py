"""Alerts as rows: what fires, what fired, and where each leads. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from alerts.history import Incident
from alerts.runbooks import RUNBOOKS
from alerts.values import FiringAlert
from goodwatch.api.ui.format import span


@dataclass(frozen=True, slots=True)
class AlertRow:
    """One alert, firing or over. ``runbook`` is a kind of our own, ``link`` a page elsewhere; "" is none."""

    name: str
    state: str
    severity: str
    tone: str
    service: str
    slo: str
    summary: str
    starts_at_s: float
    ends_at_s: float | None
    lasted: str
    times_note: str
    runbook: str
    link: str
    quiet: tuple[str, ...]
    source: str
    note: str
    labels: tuple[tuple[str, str], ...]


def firing_rows(alerts: Iterable[FiringAlert]) -> tuple[AlertRow, ...]:
    """Alerts of our own that fire."""
    return tuple(
        AlertRow(
            one.name, "firing", one.severity, tone_of(one.severity), one.labels.get("service", ""),
            one.labels.get("slo", ""), summary_of(one.annotations), one.starts_at_s, None, "", "",
            runbook_of(one.annotations), "", (), "goodwatch", "", tuple(sorted(one.labels.items())),
        )
        for one in alerts
    )  # fmt: skip


def incident_rows(
    incidents: Iterable[Incident], now_s: float, current: Iterable[FiringAlert] = ()
) -> tuple[AlertRow, ...]:
    """Incidents, whoever told of them. ``current`` are our own that fire: the text of an incident is that of its start."""
    texts = {one.fingerprint: one.annotations for one in current}
    return tuple(_incident_row(one, now_s, texts) for one in incidents)


def _incident_row(one: Incident, now_s: float, texts: Mapping[str, Mapping[str, str]]) -> AlertRow:
    fires = one.ends_at_s is None
    said = texts.get(one.fingerprint, one.annotations) if fires and one.source == "goodwatch" else one.annotations
    runbook = runbook_of(one.annotations)
    return AlertRow(
        one.name, one.state, one.severity, tone_of(one.severity) if fires else "", one.service or "",
        one.labels.get("slo", ""), summary_of(said), one.starts_at_s, one.ends_at_s,
        span((now_s if one.ends_at_s is None else one.ends_at_s) - one.starts_at_s), _times_note(one), runbook,
        "" if runbook else _elsewhere(one.annotations.get("runbook_url", "")), one.quiet, one.source, one.note,
        tuple(sorted(one.labels.items())),
    )  # fmt: skip


def tone_of(severity: str) -> str:
    """How urgent a severity is: pages are bad, tickets warn."""
    return "bad" if severity in ("critical", "page") else "warning" if severity in ("warning", "ticket") else ""


def summary_of(annotations: Mapping[str, str]) -> str:
    """What an alert says first."""
    return annotations.get("summary") or annotations.get("description") or ""


def runbook_of(annotations: Mapping[str, str]) -> str:
    """The kind of a runbook of our own, "" for any other.

    Examples
    --------
    >>> runbook_of({"runbook_url": "https://gw.example/docs/runbooks/target-down"})
    'target-down'
    >>> runbook_of({"runbook_url": "https://wiki.example/target-down"})
    ''
    """
    path, _, kind = annotations.get("runbook_url", "").rpartition("/")
    return kind if path.endswith("/docs/runbooks") and kind in RUNBOOKS else ""


def _elsewhere(url: str) -> str:
    """A link of somebody else's alert: to a page, never to a script."""
    return url if url.startswith(("https://", "http://")) else ""


def _times_note(one: Incident) -> str:
    parts = [] if one.start_told else ["the sender told no start: it is the time of receipt"]
    if one.ends_at_s is not None and not one.end_told:
        parts.append("the end was not told, only seen")
    return "; ".join(parts)
