"""What the API takes and answers about alerts, silences and sinks. Pure."""

from pydantic import BaseModel, ConfigDict, Field

from alerts.history import Incident
from alerts.lane import SinkState
from alerts.silences import Silence
from goodwatch.app.alerting import Taken


class IncidentShape(BaseModel):
    """One alert from its start to its end."""

    id: str
    source: str = Field(description="Who evaluated it: goodwatch, prometheus (its Alertmanager told), grafana.")
    state: str = Field(description="firing or resolved.")
    name: str
    severity: str = Field(description="As labelled: critical, warning, …; empty where it is not.")
    service: str | None = Field(description="null: it is about no service that is known here; note says why.")
    fingerprint: str
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at_s: float = Field(description="Unix time.")
    start_told: bool = Field(description="false: the sender told no start, so it is the time of receipt.")
    ends_at_s: float | None = Field(description="null while it fires.")
    end_told: bool = Field(description="false: the end was seen here, not told.")
    receiver: str
    generator_url: str
    note: str
    quiet: list[str] = Field(description="Why goodwatch told nobody: silence ID, maintenance NAME, inhibited by NAME.")


class IncidentsShape(BaseModel):
    """Alerts, those that fire first."""

    alerts: list[IncidentShape]


class RefusedAlert(BaseModel):
    """An alert of a webhook that was not taken."""

    index: int = Field(description="Place in alerts, from 0.")
    detail: str = Field(description="What is wrong, for a person.")


class TakenAlertsShape(BaseModel):
    """What became of a webhook."""

    accepted: int = Field(description="Alerts that are on the disk now.")
    refused: int
    truncated: int = Field(description="Alerts that the sender left out (its max_alerts).")
    problems: list[RefusedAlert]


class SilenceAsked(BaseModel):
    """A silence to begin."""

    model_config = ConfigDict(extra="forbid")

    matchers: list[str] = Field(description='All must fit: service="chat", alertname=~"Llm.*".', min_length=1)
    start: str | None = Field(None, description="Begin: Unix seconds, RFC 3339 or now (which it is without).")
    end: str | None = Field(None, description="End; or write duration.")
    duration: str | None = Field(None, description="How long: 2h; or write end.")
    author: str = Field(description="Who silences.", min_length=1, max_length=200)
    comment: str = Field(description="Why.", min_length=1, max_length=2000)


class SilenceShape(BaseModel):
    """A silence; ``[starts_at_s, ends_at_s)`` in Unix time."""

    id: str
    state: str = Field(description="pending, active or expired.")
    matchers: list[str]
    starts_at_s: float
    ends_at_s: float
    author: str
    comment: str
    created_at_s: float


class SilencesShape(BaseModel):
    """Silences, the one that ends last first."""

    silences: list[SilenceShape]


class SinkShape(BaseModel):
    """One place where people are told."""

    name: str
    kind: str
    sent: dict[str, int] = Field(description="Messages since the start, by cause: new, changed, repeat, ended.")
    failed: dict[str, int] = Field(description="Tries that failed, by reason: away, busy, timeout, refused, bug.")
    dropped: dict[str, int] = Field(description="Alerts that were over before the sink could be told.")
    waiting: int = Field(description="Messages that are due now.")
    problem: str = Field(description="Why it does not take alerts; empty when it does.")
    failing_since_s: float | None
    last_sent_s: float | None


class SinksShape(BaseModel):
    """All sinks, and who pages."""

    pages: str = Field(description="goodwatch or prometheus: with the second nothing is sent from here.")
    sinks: list[SinkShape]


def incident_shape(one: Incident) -> IncidentShape:
    """One incident."""
    return IncidentShape(
        id=one.id, source=one.source, state=one.state, name=one.name, severity=one.severity, service=one.service,
        fingerprint=one.fingerprint, labels=dict(one.labels), annotations=dict(one.annotations),
        starts_at_s=one.starts_at_s, start_told=one.start_told, ends_at_s=one.ends_at_s, end_told=one.end_told,
        receiver=one.receiver, generator_url=one.generator_url, note=one.note, quiet=list(one.quiet),
    )  # fmt: skip


def taken_shape(taken: Taken) -> TakenAlertsShape:
    """What became of a webhook."""
    problems = [RefusedAlert(index=place, detail=what) for place, what in taken.refused]
    return TakenAlertsShape(accepted=taken.taken, refused=len(problems), truncated=taken.truncated, problems=problems)


def silence_shape(one: Silence, now_s: float) -> SilenceShape:
    """One silence."""
    return SilenceShape(
        id=one.id, state=one.state(now_s), matchers=[str(matcher) for matcher in one.matchers],
        starts_at_s=one.starts_at_s, ends_at_s=one.ends_at_s, author=one.author, comment=one.comment,
        created_at_s=one.created_at_s,
    )  # fmt: skip


def sink_shape(one: SinkState) -> SinkShape:
    """One sink."""
    return SinkShape(
        name=one.name, kind=one.kind, sent=dict(one.sent), failed=dict(one.failed), dropped=dict(one.dropped),
        waiting=one.waiting, problem=one.problem, failing_since_s=one.failing_since_s, last_sent_s=one.last_sent_s,
    )  # fmt: skip
