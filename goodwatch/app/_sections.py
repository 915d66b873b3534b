"""The sections of the configuration file: every setting with its type, default and meaning."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from alerts.spec import SloEntry
from goodwatch.app._alert_sections import Alerting
from goodwatch.app._discovery_sections import DnsSd, KubernetesSd, PrometheusSd
from goodwatch.app._fields import (
    NOT_GIVEN,
    AnyPath,
    ExistingFile,
    Headers,
    Listen,
    PlainUrl,
    SecretOrFile,
    Text,
    sentence,
    sibling,
    split_listen,
)
from goodwatch.app._otlp_sections import Otlp
from goodwatch.app._quality_sections import Quality
from goodwatch.app._report_sections import Report
from goodwatch.app._source_sections import PrometheusEntry
from goodwatch.app._target_sections import AcceleratorEntry, FileSd, PerPage, PerTarget, ScrapeSettings, TargetEntry
from goodwatch.core.forms import FORMS, form_of
from goodwatch.core.model import Limits
from goodwatch.core.section import Duration, Positive, Section, Share


class Token(Section):
    """Who may call goodwatch's own API."""

    name: Text = Field(description="Name of the caller; shown in logs. Unique.")
    role: Literal["ingest", "read", "admin"] = Field(
        description="What the caller may do: send data, read, or everything."
    )
    token_file: AnyPath | None = Field(
        default=None, description="File that holds the token; read at start. Instead of token."
    )
    token: SecretOrFile = Field(
        default=NOT_GIVEN, validate_default=True, description="The token. Better: ${VARIABLE} or a file."
    )


class Auth(Section):
    """Access to goodwatch's own API."""

    tokens: tuple[Token, ...] = Field(
        default=(), description="Callers. Without any, everyone who reaches the port may call."
    )


def _form(name: str) -> str:
    form_of(name)
    return name


FormName = Annotated[Text, AfterValidator(_form)]


class _Targets(Section):
    """Latency targets; a request must meet all that are set."""

    form: FormName | None = Field(
        default=None,
        description=f"Preset of an interaction form, for targets that are not written: {', '.join(f.name for f in FORMS)}.",
    )
    ttft_s: Duration | None = Field(default=None, description="Longest time to first token.")
    tpot_s: Duration | None = Field(default=None, description="Longest time per output token after the first.")
    e2e_s: Duration | None = Field(
        default=None, validate_default=True, description="Longest time from arrival to the last token."
    )

    @field_validator("e2e_s")
    @classmethod
    def _at_least_one(cls, e2e_s: float | None, info: ValidationInfo) -> float | None:
        others = ("form", "ttft_s", "tpot_s")
        if e2e_s is None and all(name in info.data and info.data[name] is None for name in others):
            raise sibling("", "no latency target; write at least one of ttft, tpot, e2e, or a form")
        return e2e_s

    @property
    def limits(self) -> Limits:
        """The targets, those of the form where they are not written."""
        preset = form_of(self.form).limits if self.form is not None else Limits()
        return Limits(self.ttft_s or preset.ttft_s, self.tpot_s or preset.tpot_s, self.e2e_s or preset.e2e_s)


class SloOverride(_Targets):
    """Other targets for some of the requests that traces tell of; the first entry that fits counts."""

    tenant: Text | None = Field(default=None, description="Only requests of this tenant.")
    route: Text | None = Field(default=None, description="Only requests that came this way.")
    model: Text | None = Field(default=None, description="Only requests of this model.")
    of_form: Text | None = Field(default=None, description="Only requests whose trace names this interaction form.")


class Slo(_Targets):
    """Latency targets that a request must meet jointly, and how many requests must."""

    objective: Share = Field(default=0.99, description="Share of requests that must meet all targets.")
    period_s: Duration = Field(default=30 * 86400.0, description="Time over which the objective holds.")
    vantage: Literal["engine", "gateway", "client"] = Field(
        default="engine", description="Whose stopwatch judges the requests that traces tell of."
    )
    overrides: tuple[SloOverride, ...] = Field(
        default=(), description="Other targets by tenant, route, model or form; for requests from traces."
    )


class Service(Section):
    """One service: what its users were promised."""

    name: Text = Field(description="Name, as targets use it. Unique.")
    description: str = Field(default="", description="What it is, for a person.")
    slo: Slo | None = Field(default=None, description="Service level objective. Without it no goodput is derived.")


class Prices(Section):
    """What GPUs cost."""

    gpu_hour_usd: dict[Text, Positive] = Field(default={}, description="USD for one hour of one GPU, by GPU type.")
    file: ExistingFile | None = Field(default=None, description="Price list (YAML) for types that are not named here.")

    @field_validator("gpu_hour_usd")
    @classmethod
    def _types_differ(cls, prices: dict[str, float]) -> dict[str, float]:
        if len({gpu.casefold() for gpu in prices}) < len(prices):
            raise sentence("a GPU type is there twice (upper and lower case are the same); keep one")
        return prices


class Retention(Section):
    """How long data is kept."""

    samples_s: Duration = Field(default=48 * 3600.0, description="Samples as they were scraped.")
    minutes_s: Duration = Field(default=92 * 86400.0, description="Increases per minute.")
    derived_s: Duration = Field(default=92 * 86400.0, description="Derived numbers as they were published.")
    facts_s: Duration = Field(default=14 * 86400.0, description="Single requests, from traces.")
    parts_s: Duration = Field(default=48 * 3600.0, description="Spans of requests that were counted already.")
    rollup_minutes_s: Duration = Field(default=48 * 3600.0, description="Heatmap counts per minute, from traces.")
    rollup_hours_s: Duration = Field(
        default=90 * 86400.0, description="The same per hour. Those per day are kept for ever."
    )
    deployments_s: Duration | None = Field(
        default=None, description="What targets ran, and when it changed.", json_schema_extra={"x-default": "unlimited"}
    )


class Derive(Section):
    """How numbers are derived."""

    every_s: Duration = Field(default=30.0, description="How often they are computed.")
    window_s: Duration = Field(default=300.0, description="Time that each covers.")


class Telemetry(Section):
    """Where derived numbers are sent."""

    otlp_endpoint: PlainUrl | None = Field(default=None, description="OTLP/HTTP endpoint; nothing is sent without it.")
    service_name: Text = Field(default="goodwatch", description="Name under which goodwatch itself appears there.")
    headers: Headers = Field(default={}, description="HTTP headers; values are kept secret.")


class Log(Section):
    """goodwatch's own log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level that is shown."
    )
    format: Literal["text", "json"] = Field(default="text", description="For people, or one JSON object a line.")


class Settings(Section):
    """Everything that goodwatch is told."""

    listen: Listen = Field(default="127.0.0.1:9470", description="Address of pages, API and goodwatch's own metrics.")
    insecure: bool = Field(default=False, description="Allow an address that others reach without any token.")
    external_url: PlainUrl | None = Field(
        default=None, description="URL under which people reach goodwatch, for links."
    )
    data_dir: AnyPath = Field(
        default=Path("goodwatch-data"),
        validate_default=True,
        description="Directory of all that is kept.",
        json_schema_extra={"x-default": "`./goodwatch-data`"},
    )
    auth: Auth = Field(default=Auth(), description="Access to goodwatch's own API.")
    scrape: ScrapeSettings = Field(default=ScrapeSettings(), description="How every target is read.")
    targets: tuple[TargetEntry, ...] = Field(default=(), description="Metrics pages to scrape.")
    file_sd: tuple[FileSd, ...] = Field(default=(), description="Metrics pages that are listed in other files.")
    dns_sd: tuple[DnsSd, ...] = Field(default=(), description="Metrics pages that DNS names.")
    kubernetes_sd: tuple[KubernetesSd, ...] = Field(default=(), description="Metrics pages of pods in Kubernetes.")
    prometheus_sd: tuple[PrometheusSd, ...] = Field(default=(), description="Metrics pages that a Prometheus scrapes.")
    prometheus: tuple[PrometheusEntry, ...] = Field(
        default=(), description="Targets that are read from a Prometheus instead of from the engines."
    )
    accelerators: tuple[AcceleratorEntry, ...] = Field(
        default=(), description="Pages of accelerator exporters: power, energy and use of what the targets hold."
    )
    services: tuple[Service, ...] = Field(default=(), description="Services and their objectives.")
    slos: tuple[SloEntry, ...] = Field(default=(), description="Further SLOs, of any kind, beside those of services.")
    slo_files: tuple[ExistingFile, ...] = Field(
        default=(), description="Files of SLOs: goodwatch's form, OpenSLO v1, or Sloth's."
    )
    alerting: Alerting = Field(default=Alerting(), description="Who is told of alerts, when, and who pages.")
    otlp: Otlp | None = Field(
        default=None, description="Where traces of requests arrive; without it nothing listens for them."
    )
    quality: Quality = Field(default=Quality(), description="Quality of answers: scores, built-in checks, a judge.")
    report: Report = Field(
        default=Report(), description="The weekly cost-down report: when, in which language, to whom."
    )
    prices: Prices = Field(default=Prices(), description="What GPUs cost.")
    retention: Retention = Field(default=Retention(), description="How long data is kept.")
    derive: Derive = Field(default=Derive(), description="How numbers are derived.")
    telemetry: Telemetry = Field(default=Telemetry(), description="Where derived numbers are sent.")
    log: Log = Field(default=Log(), description="goodwatch's own log.")

    @property
    def discoveries(self) -> tuple[tuple[str, PerTarget], ...]:
        """Every entry that finds targets, by its place in the file: ``dns_sd[0]``."""
        lists = {"file_sd": self.file_sd, "dns_sd": self.dns_sd, "kubernetes_sd": self.kubernetes_sd,
                 "prometheus_sd": self.prometheus_sd}  # fmt: skip
        return tuple((f"{key}[{i}]", entry) for key, entries in lists.items() for i, entry in enumerate(entries))

    @property
    def names_prometheus(self) -> bool:
        """Whether there is a Prometheus that could page."""
        return bool(self.prometheus or self.prometheus_sd)

    @property
    def listen_host(self) -> str:
        """Host of ``listen``, IPv6 without brackets."""
        return split_listen(self.listen)[0]

    @property
    def listen_port(self) -> int:
        """Port of ``listen``; 0 lets the system choose."""
        return split_listen(self.listen)[1]

    def scrape_of(self, entry: PerPage) -> ScrapeSettings:
        """How one target is read: its own keys, else those of ``scrape``, else the defaults.

        Raises ``pydantic.ValidationError`` where the two do not go together; ``load`` has checked that for
        everything that was in the file.
        """
        own = {name: value for name in ScrapeSettings.model_fields if (value := getattr(entry, name)) is not None}
        shared = {name: getattr(self.scrape, name) for name in self.scrape.model_fields_set}
        return ScrapeSettings.model_validate({**shared, **own}, by_name=True)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON schema of the file, for editors; ``x-type`` and ``x-default`` say more than the standard can."""
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        return {**schema, **cls.model_json_schema(by_alias=True)}
