"""Pods and EndpointSlices as targets. Pure: what the Kubernetes API says in, targets and notes out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from collector.discovery._common import Found, spec_of
from collector.targets import Defaults, TargetSpec

#: labels of pods and services that become labels of their targets: what names an application
#: (Kubernetes documentation, "Recommended Labels")
APP_LABELS: Final = ("app", *(f"app.kubernetes.io/{key}" for key in ("name", "instance", "component", "version")))
#: resources that are whole GPUs; shares of one (MIG, time slices) have other names and are not counted as GPUs
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
SERVICE_NAME: Final = "kubernetes.io/service-name"
#: as much of an object's uid as is needed to tell two pods of one name apart
UID_CHARACTERS: Final = 8

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of an object is scraped. None leaves it to the object's annotations, then to the usual."""

    port: str | None = None  # number or name
    path: str | None = None
    scheme: str | None = None
    annotations: bool = True
    ready_only: bool = False
    extra_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What one object is to us: its targets, and why there are none where one would expect some."""

    specs: tuple[TargetSpec, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Port:
    number: int
    container: str = ""
    gpus: float | None = None


def seen(role: Literal["pod", "endpoints"], one: Object, wanted: Wanted, defaults: Defaults) -> Seen:
    """Targets of one object of this role."""
    return of_pod(one, wanted, defaults) if role == "pod" else of_slice(one, wanted, defaults)


def of_pod(pod: Object, wanted: Wanted, defaults: Defaults) -> Seen:
    """Targets of one pod: none before it runs and after it ended; one that is terminating still serves."""
    meta, spec, status = _map(pod, "metadata"), _map(pod, "spec"), _map(pod, "status")
    notes = _texts(meta, "annotations") if wanted.annotations else {}
    address = str(status.get("podIP") or "")
    if status.get("phase") != "Running" or not address or notes.get("prometheus.io/scrape") == "false":
        return Seen()
    if wanted.ready_only and not _is_ready(status):
        return Seen()
    port = wanted.port or notes.get("prometheus.io/port", "")
    ports = _pod_ports(spec, port)
    if not ports:
        return Seen(note=_no_port(_declared(spec), port))
    labels = _texts(meta, "labels")
    name = identity(str(meta.get("namespace")), str(meta.get("name")), str(meta.get("uid", "")))
    specs = [
        spec_of(
            Found(
                name if len(ports) == 1 else f"{name}:{one.number}",
                address,
                one.number,
                scheme=wanted.scheme or _scheme(notes),
                path=wanted.path or _path(notes),
                service=_service(labels),
                labels=_kept(labels, wanted)
                | _known(
                    namespace=meta.get("namespace"),
                    pod=meta.get("name"),
                    node=spec.get("nodeName"),
                    container=one.container,
                ),
                gpus=one.gpus,
            ),
            defaults,
        )
        for one in ports
    ]
    return Seen(tuple(specs))


def of_slice(one: Object, wanted: Wanted, defaults: Defaults) -> Seen:
    """Targets of one EndpointSlice. Its labels are those of the service, and its pods are told apart by their uid."""
    meta = _map(one, "metadata")
    namespace, labels = str(meta.get("namespace")), _texts(meta, "labels")
    declared = [p for p in _maps(one, "ports") if p.get("protocol", "TCP") == "TCP" and isinstance(p.get("port"), int)]
    ports = [p["port"] for p in declared if wanted.port in (None, str(p["port"]), p.get("name"))]
    if not ports and wanted.port and wanted.port.isdigit():
        ports = [int(wanted.port)]  # metrics on a port that the service does not offer
    if wanted.port is None and len(ports) > 1:
        ports = []
    if not ports:
        named = {f"{p.get('name') or 'without a name'}": p["port"] for p in declared}
        return Seen(note=_no_port(named, wanted.port or "")) if _maps(one, "endpoints") else Seen()
    service = labels.get(SERVICE_NAME, "")
    found = [
        _of_endpoint(endpoint, ports[0], namespace, service, _kept(labels, wanted))
        for endpoint in _maps(one, "endpoints")
        if _serves(_map(endpoint, "conditions"), ready_only=wanted.ready_only)
    ]
    scheme, path = wanted.scheme or "", wanted.path or ""
    return Seen(tuple(spec_of(replace(one, scheme=scheme, path=path), defaults) for one in found if one is not None))


def _of_endpoint(endpoint: Object, port: int, namespace: str, service: str, labels: Mapping[str, str]) -> Found | None:
    # "Consumers must handle different types of addresses … use the first" (EndpointSlice v1 reference).
    addresses = [a for a in endpoint.get("addresses") or () if isinstance(a, str)]
    if not addresses:
        return None
    pod = _map(endpoint, "targetRef")
    is_pod = pod.get("kind") == "Pod"
    name = (
        identity(str(pod.get("namespace") or namespace), str(pod.get("name")), str(pod.get("uid", "")))
        if is_pod
        else f"{namespace}/{service}/{addresses[0]}"
    )
    known = _known(
        namespace=namespace,
        pod=pod.get("name") if is_pod else None,
        node=endpoint.get("nodeName"),
        kubernetes_service=service,
    )
    return Found(name, addresses[0], port, service=service, labels={**labels, **known})


def identity(namespace: str, pod: str, uid: str) -> str:
    """Name of a pod's target: a pod that is made again under its old name (StatefulSet) is another one."""
    return "/".join(part for part in (namespace, pod, uid[:UID_CHARACTERS]) if part)


def _pod_ports(spec: Object, port: str) -> list[_Port]:
    """Ports to scrape: the one that is asked for (a name may be in several containers), else the only one."""
    containers = [*_maps(spec, "containers"), *_sidecars(spec)]
    declared = [
        _Port(p["containerPort"], str(c.get("name", "")), _gpus([c]))
        for c in containers
        for p in _maps(c, "ports")
        if p.get("protocol", "TCP") == "TCP" and isinstance(p.get("containerPort"), int)
        and (not port or port in (str(p["containerPort"]), p.get("name")))
    ]  # fmt: skip
    if declared:
        if not port and len(declared) > 1:
            return []
        # The only engine of a pod holds what the pod holds, whichever container asked for it.
        return declared if len(declared) > 1 else [_Port(declared[0].number, declared[0].container, _gpus(containers))]
    if port.isdigit() and 0 < int(port) < 65536:
        only = str(containers[0].get("name", "")) if len(containers) == 1 else ""
        return [_Port(int(port), only, _gpus(containers))]  # listening needs no declaration
    return []


def _sidecars(spec: Object) -> Iterator[Object]:
    """Init containers that keep running (Kubernetes 1.29: restartPolicy Always)."""
    return (c for c in _maps(spec, "initContainers") if c.get("restartPolicy") == "Always")


def _declared(spec: Object) -> dict[str, int]:
    return {
        str(p.get("name") or f"of {c.get('name')}"): p["containerPort"]
        for c in _maps(spec, "containers")
        for p in _maps(c, "ports")
        if isinstance(p.get("containerPort"), int)
    }


def _no_port(declared: Mapping[str, int], asked: str) -> str:
    there = ", ".join(f"{number} ({name})" for name, number in declared.items()) or "none"
    if asked:
        return f"has no port {asked!r}; there are: {there}"
    return f"does not say which port has metrics, there are: {there}; write port, or annotate it prometheus.io/port"


def _gpus(containers: Sequence[Object]) -> float | None:
    """Whole GPUs that containers hold by their limits; None when none is named."""
    held = [
        float(text)
        for c in containers
        for key, text in _texts(_map(c, "resources"), "limits").items()
        if key in GPU_RESOURCES and re.fullmatch(r"[0-9]{1,4}", text)
    ]
    return sum(held) or None


def _is_ready(status: Object) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in _maps(status, "conditions"))


def _serves(conditions: Object, *, ready_only: bool) -> bool:
    """Unknown (null) counts as ready (EndpointSlice v1 reference)."""
    return not ready_only or conditions.get("ready") is not False


def _service(labels: Mapping[str, str]) -> str:
    return labels.get("app.kubernetes.io/name") or labels.get("app") or ""


def _scheme(notes: Mapping[str, str]) -> str:
    scheme = notes.get("prometheus.io/scheme", "")
    return scheme if scheme in ("http", "https") else ""


def _path(notes: Mapping[str, str]) -> str:
    path = notes.get("prometheus.io/path", "")
    return path if not path or path.startswith("/") else f"/{path}"


def _kept(labels: Mapping[str, str], wanted: Wanted) -> dict[str, str]:
    """Labels of an application, under names that Prometheus takes too (its rule for label names)."""
    return {
        re.sub(r"\W", "_", k, flags=re.ASCII): labels[k] for k in (*APP_LABELS, *wanted.extra_labels) if k in labels
    }


def _known(**labels: object) -> dict[str, str]:
    return {name: value for name, value in labels.items() if isinstance(value, str) and value}


def _map(one: Object, key: str) -> Object:
    value = one.get(key)
    return value if isinstance(value, dict) else {}


def _maps(one: Object, key: str) -> list[Object]:
    value = one.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(one: Object, key: str) -> dict[str, str]:
    return {name: str(value) for name, value in _map(one, key).items() if isinstance(value, str | int)}
