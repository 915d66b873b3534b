"""The section of the configuration file for alerts: who pages, who is told and when, what is planned, what comes in."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, WithJsonSchema, field_validator

import alerts.sinks
from alerts.grouping import Level, Pace
from alerts.matchers import Matcher, matcher_of
from alerts.schedule import DAYS, Maintenance, Weekly, minutes_of
from alerts.sinks._port import SinkKind
from goodwatch.app._fields import AnyPath, Headers, HeaderSecret, Text, sentence, sibling
from goodwatch.core.registry import adapters
from goodwatch.core.section import Count, Duration, Section


@cache
def sink_kinds() -> Mapping[str, SinkKind]:
    """Kinds of sinks by name, those of other packages too; loaded only where a sink is configured."""
    return adapters(alerts.sinks, "SINK", SinkKind, group="goodwatch.sinks")


def _kind(name: str) -> str:
    if name not in sink_kinds():
        raise ValueError(f"is no kind of sink; known: {', '.join(sorted(sink_kinds()))}")
    return name


def _matcher(text: str) -> str:
    matcher_of(text)
    return text


def _time_of_day(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1440:
        return f"{value // 60:02}:{value % 60:02}"  # YAML reads 12:30 as a number of minutes
    if not isinstance(value, str):
        raise ValueError("is not a time of day; write 02:30, up to 24:00")
    minutes_of(value)
    return value


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is not a time zone; write one of the IANA data base, as Europe/Berlin or UTC") from None
    return name


KindName = Annotated[Text, AfterValidator(_kind)]
MatcherText = Annotated[str, AfterValidator(_matcher)]
TimeOfDay = Annotated[str, BeforeValidator(_time_of_day), WithJsonSchema({"type": "string", "x-type": "time of day"})]
ZoneName = Annotated[str, AfterValidator(_zone)]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class SinkEntry(Section):
    """One place where people, or an Alertmanager, are told."""

    name: Text = Field(description="Name, for logs and pages. What it was told is kept under it. Unique.")
    type: KindName = Field(
        description="apprise (Slack, PagerDuty, Feishu, DingTalk, WeCom, mail, …), webhook, alertmanager or log."
    )
    url_file: AnyPath | None = Field(default=None, description="File that holds the URL. Instead of url.")
    url: HeaderSecret | None = Field(
        default=None, validate_default=True,
        description="Where to: an apprise URL, the webhook's, or an Alertmanager's root. Kept secret; better ${VARIABLE}.",
    )  # fmt: skip
    headers: Headers = Field(default={}, description="HTTP headers (webhook, alertmanager); values are kept secret.")
    secret_file: AnyPath | None = Field(default=None, description="File that holds the secret. Instead of secret.")
    secret: HeaderSecret | None = Field(default=None, description="Signs bodies of a webhook (HMAC-SHA256).")
    severities: tuple[Level, ...] = Field(
        default=("page", "ticket"), min_length=1, description="What it is told: page, ticket, none (the watchdog)."
    )
    services: tuple[Text, ...] = Field(default=(), description="Of which services; all without it.")
    timeout_s: Duration = Field(default=10.0, description="How long one message may take.")
    per_minute: Count = Field(default=20, description="Most messages a minute; pages go first.")

    @field_validator("url")
    @classmethod
    def _goes_somewhere(cls, url: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        kind, file = sink_kinds().get(str(info.data.get("type"))), info.data.get("url_file")
        if url is not None and file is not None:
            raise sibling("url_file", "written beside url; keep one of them")
        if kind is not None and kind.needs_url and url is None and file is None and "url_file" in info.data:
            raise sibling("url", "missing; write url, or url_file with the path of a file that holds it")
        return url

    @field_validator("secret")
    @classmethod
    def _one_secret(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if secret is not None and info.data.get("secret_file") is not None:
            raise sibling("secret_file", "written beside secret; keep one of them")
        return secret


class MaintenanceEntry(Section):
    """Planned work that comes again every week; nobody is told of alerts meanwhile."""

    name: Text = Field(description="Name, shown beside alerts that it keeps quiet. Unique.")
    days: tuple[Day, ...] = Field(default=DAYS, min_length=1, description="Days on which it begins: mon to sun.")
    starts: TimeOfDay = Field(description="Time of day in its zone: 02:00.")
    ends: TimeOfDay = Field(description="Time of day; not after starts: on the next day.")
    zone: ZoneName = Field(default="UTC", description="Time zone: Europe/Berlin. Clock changes are followed.")
    matchers: tuple[MatcherText, ...] = Field(
        default=(), description='Alerts that it is about, all must fit: service="chat". Without any: all alerts.'
    )

    @property
    def maintenance(self) -> Maintenance:
        """The same as a value."""
        days = frozenset(DAYS.index(day) for day in self.days)
        weekly = Weekly(days, minutes_of(self.starts) % 1440, minutes_of(self.ends), self.zone)
        found: tuple[Matcher, ...] = tuple(matcher_of(text) for text in self.matchers)
        return Maintenance(self.name, weekly, found)


class Incoming(Section):
    """What webhooks tell: whose alerts they are."""

    service_label: Text = Field(default="service", description="Label that names the service.")
    services: dict[Text, Text] = Field(default={}, description="Other names of services → names here (api: chat).")


class Alerting(Section):
    """Alerts of the built-in evaluation: who pages, who is told and when. And alerts of others, kept as history."""

    pages: Literal["auto", "goodwatch", "prometheus"] = Field(
        default="auto",
        description="Who tells people. auto: Prometheus where the configuration names one, else goodwatch.",
    )
    sinks: tuple[SinkEntry, ...] = Field(default=(), description="Who is told while goodwatch pages.")
    group_by: tuple[Text, ...] = Field(
        default=("service",), description="Alerts that share these labels are one message."
    )
    group_wait_s: Duration = Field(default=30.0, description="How long the first message of a group waits for more.")
    group_interval_s: Duration = Field(default=300.0, description="Least time between messages that tell a change.")
    repeat_page_s: Duration = Field(default=4 * 3600.0, description="How often a page is told again while it fires.")
    repeat_ticket_s: Duration = Field(default=86400.0, description="How often a ticket is told again.")
    maintenance: tuple[MaintenanceEntry, ...] = Field(default=(), description="Planned work, every week.")
    incoming: Incoming = Field(default=Incoming(), description="Alerts that come in over the webhook.")

    @field_validator("sinks", "maintenance")
    @classmethod
    def _names_differ(
        cls, entries: tuple[SinkEntry | MaintenanceEntry, ...]
    ) -> tuple[SinkEntry | MaintenanceEntry, ...]:
        if len({one.name for one in entries}) < len(entries):
            raise sentence("a name is there twice; each must be unique")
        return entries

    @property
    def pace(self) -> Pace:
        """Grouping and repeats as a value."""
        return Pace(self.group_by, self.group_wait_s, self.group_interval_s, self.repeat_page_s, self.repeat_ticket_s)

    def pager(self, *, prometheus: bool) -> Literal["goodwatch", "prometheus"]:
        """Who pages; ``prometheus`` says whether the configuration names a Prometheus (a source, or a discovery)."""
        if self.pages == "auto":
            return "prometheus" if prometheus else "goodwatch"
        return self.pages


def advice(alerting: Alerting, *, prometheus: bool) -> list[str]:
    """What an operator may not have meant, one sentence each."""
    pager = alerting.pager(prometheus=prometheus)
    if alerting.sinks and pager == "prometheus" and alerting.pages == "auto":
        return [
            "alerting.sinks: nothing is sent there, because Prometheus pages where there is one; "
            "write alerting.pages: goodwatch to be told by goodwatch instead, or remove the sinks"
        ]
    return []
