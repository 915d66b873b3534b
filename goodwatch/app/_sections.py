"""The sections of the configuration file: every setting with its type, default and meaning."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from goodwatch.app._fields import (
    NOT_GIVEN,
    AnyPath,
    EngineName,
    ExistingFile,
    Glob,
    Headers,
    Labels,
    Listen,
    MetricsUrl,
    PlainUrl,
    SecretOrFile,
    Text,
    host_port,
    sentence,
    sibling,
    split_listen,
)
from goodwatch.core.duration import duration_text
from goodwatch.core.section import Count, Duration, Positive, Section, Share, Size

DEFAULT_TIMEOUT_S = 10.0


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


def _default_timeout_s(fields: dict[str, Any]) -> float:
    return min(DEFAULT_TIMEOUT_S, float(fields.get("interval_s", DEFAULT_TIMEOUT_S)))


class ScrapeSettings(Section):
    """How a target is read."""

    interval_s: Duration = Field(default=15.0, description="How often a target is read.")
    timeout_s: Duration = Field(
        default_factory=_default_timeout_s,
        description="How long one read may take; at most the interval.",
        json_schema_extra={"x-default": f"`{duration_text(DEFAULT_TIMEOUT_S)}`, or the interval if shorter"},
    )
    body_limit_bytes: Size = Field(default=50_000_000, description="Largest page that is read, after decompression.")
    sample_limit: Count = Field(default=200_000, description="Most series on one page; a page with more is refused.")
    label_limit: Count = Field(default=64, description="Most labels on one series.")
    follow_redirects: bool = Field(default=False, description="Whether an HTTP redirect is followed.")
    jitter: bool = Field(default=True, description="Whether reads of different targets are spread over the interval.")

    @field_validator("timeout_s")
    @classmethod
    def _fits_the_interval(cls, timeout_s: float, info: ValidationInfo) -> float:
        interval_s = info.data.get("interval_s")
        if interval_s is not None and timeout_s > interval_s:
            text = duration_text(interval_s)
            raise ValueError(f"is longer than the interval of {text}; write at most {text}, or raise the interval")
        return timeout_s


class Authorization(Section):
    """An ``Authorization`` header."""

    type: Text = Field(default="Bearer", description="First word of the header.")
    credentials_file: AnyPath | None = Field(default=None, description="File that holds them; read at start.")
    credentials: SecretOrFile = Field(
        default=NOT_GIVEN, validate_default=True, description="What follows the first word."
    )


class BasicAuth(Section):
    """HTTP basic authentication."""

    username: Text = Field(description="User name, without ':'.")
    password_file: AnyPath | None = Field(default=None, description="File that holds the password; read at start.")
    password: SecretOrFile = Field(default=NOT_GIVEN, validate_default=True, description="Password.")

    @field_validator("username")
    @classmethod
    def _without_colon(cls, username: str) -> str:
        if ":" in username:
            raise ValueError("has a ':' in it, where basic authentication ends the user name; write the name only")
        return username


class Tls(Section):
    """TLS towards a target."""

    ca_file: ExistingFile | None = Field(
        default=None, description="Authorities to trust instead of the system's (PEM)."
    )
    cert_file: ExistingFile | None = Field(default=None, description="Client certificate (PEM).")
    key_file: ExistingFile | None = Field(
        default=None, validate_default=True, description="Key of the client certificate (PEM)."
    )
    server_name: Text | None = Field(
        default=None, description="Name to expect in the certificate, if not the URL's host."
    )
    insecure_skip_verify: bool = Field(default=False, description="Accept any certificate. For tests only.")

    @field_validator("key_file")
    @classmethod
    def _with_its_certificate(cls, key_file: object, info: ValidationInfo) -> object:
        if "cert_file" in info.data and (info.data["cert_file"] is None) != (key_file is None):
            raise sentence("without the other half; write cert_file and key_file together")
        return key_file


class PerTarget(Section):
    """What can be said of one target, or of all targets of one ``file_sd`` entry."""

    service: Text = Field(default="default", description="Service that the target belongs to; replicas share one.")
    engine: EngineName | None = Field(default=None, description="Engine, where it must not be detected from the page.")
    engine_version: Text | None = Field(default=None, description="Engine version, where the engine does not tell.")
    json_stats: bool = Field(
        default=False,
        description="Read TensorRT-LLM's iteration statistics. Reading empties them for every other reader.",
    )
    gpus: Positive | None = Field(default=None, description="GPUs that the target holds. Needed for cost.")
    gpu: Text | None = Field(default=None, description="GPU type, as in the price list.")
    gpu_hour_usd: Positive | None = Field(default=None, description="Price of one GPU for one hour, in USD.")
    labels: Labels = Field(default={}, description="Labels put on everything that comes from the target.")
    interval_s: Duration | None = Field(default=None, description="Instead of scrape.interval.")
    timeout_s: Duration | None = Field(default=None, description="Instead of scrape.timeout.")
    body_limit_bytes: Size | None = Field(default=None, description="Instead of scrape.body_limit.")
    sample_limit: Count | None = Field(default=None, description="Instead of scrape.sample_limit.")
    label_limit: Count | None = Field(default=None, description="Instead of scrape.label_limit.")
    follow_redirects: bool | None = Field(default=None, description="Instead of scrape.follow_redirects.")
    jitter: bool | None = Field(default=None, description="Instead of scrape.jitter.")
    authorization: Authorization | None = Field(
        default=None, description="Authorization header, for example a bearer token."
    )
    basic_auth: BasicAuth | None = Field(
        default=None, description="HTTP basic authentication. Not beside authorization."
    )
    headers: Headers = Field(default={}, description="Further HTTP headers; values are kept secret.")
    tls: Tls = Field(default=Tls(), description="TLS towards the target.")

    @field_validator("basic_auth")
    @classmethod
    def _one_scheme(cls, basic_auth: BasicAuth | None, info: ValidationInfo) -> BasicAuth | None:
        if basic_auth is not None and info.data.get("authorization") is not None:
            raise sentence("written beside authorization; keep one of them")
        return basic_auth

    @field_validator("headers")
    @classmethod
    def _no_second_authorization(cls, headers: dict[str, SecretStr], info: ValidationInfo) -> dict[str, SecretStr]:
        other = next((key for key in ("authorization", "basic_auth") if info.data.get(key) is not None), None)
        if other is not None and "authorization" in {name.lower() for name in headers}:
            raise ValueError(f"has an Authorization header beside {other}; keep one of them")
        return headers


class _Address(Section):
    url: MetricsUrl = Field(description="Where the metrics are, http or https. Without a path /metrics is taken.")
    name: Text = Field(
        default_factory=lambda fields: host_port(fields["url"]) if "url" in fields else "",
        description="Name of the target, its identity in all that is kept. Unique.",
        json_schema_extra={"x-default": "host:port of the URL"},
    )


class TargetEntry(PerTarget, _Address):
    """One metrics page that is scraped."""


class _Files(Section):
    files: tuple[Glob, ...] = Field(min_length=1, description="Patterns of files that list targets.")
    refresh_s: Duration = Field(default=30.0, description="How often the files are read again.")


class FileSd(PerTarget, _Files):
    """Targets that are listed in files; the other keys hold for all of them."""

    def target(self, url: str, **more: object) -> TargetEntry:
        """One target of these files. ``more`` (field names) takes precedence; labels are joined.

        Raises ``pydantic.ValidationError``, which hides inputs, when the URL or ``more`` does not fit.
        """
        shared = {name: getattr(self, name) for name in PerTarget.model_fields if name in self.model_fields_set}
        labels = more.pop("labels", None)
        joined = {**self.labels, **labels} if isinstance(labels, dict) else self.labels
        return TargetEntry.model_validate({**shared, **more, "url": url, "labels": joined}, by_name=True)


class Slo(Section):
    """Latency targets that a request must meet jointly, and how many requests must."""

    ttft_s: Duration | None = Field(default=None, description="Longest time to first token.")
    tpot_s: Duration | None = Field(default=None, description="Longest time per output token after the first.")
    e2e_s: Duration | None = Field(
        default=None, validate_default=True, description="Longest time from arrival to the last token."
    )
    objective: Share = Field(default=0.99, description="Share of requests that must meet all targets.")
    period_s: Duration = Field(default=30 * 86400.0, description="Time over which the objective holds.")

    @field_validator("e2e_s")
    @classmethod
    def _at_least_one(cls, e2e_s: float | None, info: ValidationInfo) -> float | None:
        others = ("ttft_s", "tpot_s")
        if e2e_s is None and all(name in info.data and info.data[name] is None for name in others):
            raise sibling("", "no latency target; write at least one of ttft, tpot, e2e")
        return e2e_s


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
    services: tuple[Service, ...] = Field(default=(), description="Services and their objectives.")
    prices: Prices = Field(default=Prices(), description="What GPUs cost.")
    retention: Retention = Field(default=Retention(), description="How long data is kept.")
    derive: Derive = Field(default=Derive(), description="How numbers are derived.")
    telemetry: Telemetry = Field(default=Telemetry(), description="Where derived numbers are sent.")
    log: Log = Field(default=Log(), description="goodwatch's own log.")

    @property
    def listen_host(self) -> str:
        """Host of ``listen``, IPv6 without brackets."""
        return split_listen(self.listen)[0]

    @property
    def listen_port(self) -> int:
        """Port of ``listen``; 0 lets the system choose."""
        return split_listen(self.listen)[1]

    def scrape_of(self, entry: PerTarget) -> ScrapeSettings:
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
        return cls.model_json_schema(by_alias=True)
