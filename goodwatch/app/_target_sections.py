"""The sections of the configuration file that tell of targets and how they are read."""

from typing import Any

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from goodwatch.app._fields import (
    NOT_GIVEN,
    AnyPath,
    EngineArgs,
    EngineName,
    ExistingFile,
    Glob,
    Headers,
    Labels,
    MetricsUrl,
    SecretOrFile,
    Text,
    host_port,
    sentence,
)
from goodwatch.core.duration import duration_text
from goodwatch.core.section import Count, Duration, Positive, Section, Size

DEFAULT_TIMEOUT_S = 10.0


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


class Credentials(Section):
    """What is shown to a server to be let in."""

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


class Held(Section):
    """The accelerators of a target, where neither its pod nor its host tells."""

    devices: tuple[Text, ...] = Field(
        default=(), description="UUIDs or serial numbers as the exporter tells them; with host, numbers on it too."
    )
    host: Text | None = Field(
        default=None, description="Host whose devices these are. Without devices, all that it has."
    )


class _Described(Section):
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
    args: EngineArgs = Field(
        default="",
        description="Command line of the engine, where it does not tell its flags itself; for recommendations.",
    )
    labels: Labels = Field(default={}, description="Labels put on everything that comes from the target.")


class _Read(Section):
    interval_s: Duration | None = Field(default=None, description="Instead of scrape.interval.")
    timeout_s: Duration | None = Field(default=None, description="Instead of scrape.timeout.")
    body_limit_bytes: Size | None = Field(default=None, description="Instead of scrape.body_limit.")
    sample_limit: Count | None = Field(default=None, description="Instead of scrape.sample_limit.")
    label_limit: Count | None = Field(default=None, description="Instead of scrape.label_limit.")
    follow_redirects: bool | None = Field(default=None, description="Instead of scrape.follow_redirects.")
    jitter: bool | None = Field(default=None, description="Instead of scrape.jitter.")


class PerPage(Credentials, _Read):
    """How one page is read, whatever wrote it."""


class PerTarget(PerPage, _Described):
    """What can be said of one target, or of all targets of one entry of a discovery."""


class _Address(Section):
    url: MetricsUrl = Field(description="Where the metrics are, http or https. Without a path /metrics is taken.")
    name: Text = Field(
        default_factory=lambda fields: host_port(fields["url"]) if "url" in fields else "",
        description="Name of the target, its identity in all that is kept. Unique.",
        json_schema_extra={"x-default": "host:port of the URL"},
    )


class _Holder(_Address):
    accelerators: Held = Field(default=Held(), description="Which accelerators the target holds, for its energy.")


class TargetEntry(PerTarget, _Holder):
    """One metrics page that is scraped."""


class _Exporter(_Address):
    host: Text | None = Field(
        default=None, description="Host whose devices it tells of, where its page and its URL do not say."
    )


class AcceleratorEntry(PerPage, _Exporter):
    """One page of an exporter of accelerators, or of kube-state-metrics, which knows the pods that hold them."""


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
