"""The sections of the configuration file that tell where targets are found: DNS, Kubernetes, Prometheus."""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from goodwatch.app._fields import ExistingFile, PlainUrl, Text, sentence, split_listen
from goodwatch.app._target_sections import Credentials, PerTarget
from goodwatch.core.section import Duration, Section

_DNS_NAME = re.compile(r"(?=.{1,254}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]{1,63})*\.?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")  # RFC 6335, as Kubernetes checks it
DNS_PORT = 53


def _dns_name(name: str) -> str:
    if not _DNS_NAME.fullmatch(name):
        raise ValueError("is not a DNS name; write for example engine.default.svc or _http._tcp.engine.default.svc")
    return name


def _resolver(value: str) -> str:
    """``address:port`` of a DNS server; port 53 where none is written."""
    try:
        alone = ipaddress.ip_address(value.strip("[]"))
        written = f"[{alone}]:{DNS_PORT}" if alone.version == 6 else f"{alone}:{DNS_PORT}"
    except ValueError:
        written = value
    try:
        host, port = split_listen(written)
        ipaddress.ip_address(host)
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("is not the address of a DNS server; write 10.96.0.10, 10.96.0.10:53 or '[::1]:53'")
    return written


def _port(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str) or not re.fullmatch(r"[0-9]{1,5}", str(value)):
        raise ValueError("is not a port; write a number from 1 to 65535")
    if not 1 <= int(value) <= 65535:
        raise ValueError("is not a port; write a number from 1 to 65535")
    return int(value)


def _port_or_name(value: object) -> object:
    if isinstance(value, str) and _PORT_NAME.fullmatch(value):
        return value
    try:
        return str(_port(value))
    except ValueError:
        raise ValueError("is not a port; write its number or its name, for example 8000 or http") from None


def _namespace(name: str) -> str:
    if not _NAMESPACE.fullmatch(name):
        raise ValueError("is not the name of a namespace; use a-z, 0-9 and -")
    return name


def _path(path: str) -> str:
    if not path.startswith("/") or not path.isprintable() or any(c in path for c in " ?#"):
        raise ValueError("is not a path; write for example /metrics")
    return path


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}; write for example vllm-.*") from None
    return pattern


Port = Annotated[int, BeforeValidator(_port), WithJsonSchema({"type": "integer", "x-type": "port"})]
PortOrName = Annotated[
    str,
    BeforeValidator(_port_or_name),
    WithJsonSchema({"type": ["string", "integer"], "x-type": "port, number or name"}),
]
Path = Annotated[str, AfterValidator(_path)]
Pattern = Annotated[str, AfterValidator(_regex), WithJsonSchema({"type": "string", "x-type": "regular expression"})]


class _Dns(Section):
    names: tuple[Annotated[str, AfterValidator(_dns_name)], ...] = Field(
        min_length=1, description="DNS names whose records are the targets."
    )
    type: Literal["A", "AAAA", "SRV"] = Field(
        default="A", description="Kind of record. A and AAAA give addresses, SRV gives hosts with their ports."
    )
    port: Port | None = Field(
        default=None, validate_default=True, description="Port of the targets. Needed for A and AAAA, not for SRV."
    )
    scheme: Literal["http", "https"] = Field(default="http", description="How the targets are read.")
    path: Path = Field(default="/metrics", description="Path of the metrics.")
    resolvers: tuple[Annotated[str, AfterValidator(_resolver)], ...] = Field(
        default=(), description="Addresses of DNS servers, with or without a port. Without any, those of the system."
    )
    refresh_s: Duration = Field(default=30.0, description="How often the names are looked up.")
    lookup_timeout_s: Duration = Field(default=5.0, description="How long one lookup may take, all servers together.")
    keep_s: Duration = Field(
        default=300.0, description="How long targets are kept when a name has no records, or nobody answers."
    )

    @field_validator("port")
    @classmethod
    def _with_addresses_only(cls, port: int | None, info: ValidationInfo) -> int | None:
        kind = info.data.get("type")
        if kind == "SRV" and port is not None:
            raise sentence("written with type SRV, whose records name their ports; remove it")
        if kind in ("A", "AAAA") and port is None:
            raise sentence(f"missing; records of type {kind} have no port: write for example port: 8000")
        return port


class DnsSd(PerTarget, _Dns):
    """Targets that DNS names; the other keys hold for all of them."""


class _Kubernetes(Section):
    role: Literal["pod", "endpoints"] = Field(
        default="pod", description="What is listed: pods, or the endpoints of services (EndpointSlice)."
    )
    namespaces: tuple[Annotated[str, AfterValidator(_namespace)], ...] = Field(
        default=(), description="Namespaces to look in. Without any, all of them, which needs a ClusterRole."
    )
    selector: Text | None = Field(
        default=None, description="Label selector, as of kubectl: app=vllm,tier!=test. For endpoints, of the service."
    )
    port: PortOrName | None = Field(
        default=None,
        description="Port, by number or name. Without it the annotation prometheus.io/port, else the only port.",
    )
    path: Path | None = Field(
        default=None, description="Path of the metrics. Without it the annotation prometheus.io/path, else /metrics."
    )
    scheme: Literal["http", "https"] | None = Field(
        default=None, description="Without it the annotation prometheus.io/scheme, else http."
    )
    annotations: bool = Field(
        default=True, description="Follow the annotations prometheus.io/scrape, port, path and scheme of pods."
    )
    ready_only: bool = Field(
        default=False, description="Leave out what is not ready. An overloaded engine can be not ready."
    )
    pod_labels: tuple[Text, ...] = Field(
        default=(), description="Further labels of the pod (or service) that become labels of the target."
    )
    kubeconfig: ExistingFile | None = Field(
        default=None, description="How to reach the API from outside. Without it, as a pod of the cluster."
    )
    context: Text | None = Field(default=None, description="Context of kubeconfig, if not its current one.")

    @field_validator("context")
    @classmethod
    def _of_a_kubeconfig(cls, context: str | None, info: ValidationInfo) -> str | None:
        if context is not None and "kubeconfig" in info.data and info.data["kubeconfig"] is None:
            raise sentence("written without kubeconfig, of which it is a part; write kubeconfig as well")
        return context


class KubernetesSd(PerTarget, _Kubernetes):
    """Targets that run in Kubernetes; the other keys hold for all of them."""


class ApiAccess(Credentials):
    """How an API that lists targets is asked; the targets have keys of their own."""

    timeout_s: Duration = Field(default=10.0, description="How long one answer may take.")


class _Prometheus(Section):
    url: PlainUrl = Field(description="A Prometheus, VictoriaMetrics or vmagent whose targets are read here as well.")
    api: ApiAccess = Field(default=ApiAccess(), description="How that API is asked.")
    jobs: tuple[Pattern, ...] = Field(default=(), description="Jobs to take, as patterns of the whole name.")
    match: dict[str, Pattern] = Field(default={}, description="Labels that a target must have: name to pattern.")
    refresh_s: Duration = Field(default=30.0, description="How often the API is asked.")


class PrometheusSd(PerTarget, _Prometheus):
    """Targets that a Prometheus scrapes; the other keys hold for all of them."""


#: key of the configuration → its section
DISCOVERIES: dict[str, type[PerTarget]] = {
    "dns_sd": DnsSd,
    "kubernetes_sd": KubernetesSd,
    "prometheus_sd": PrometheusSd,
}
