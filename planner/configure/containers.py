"""A configuration as containers: a Compose file for one host, Kubernetes manifests for a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from goodwatch.core.errors import ConfigError
from planner.choices.rules import Vendor, vendor_of
from planner.configure.blocks import Path, dumped
from planner.configure.forms import Server, argument_lines, file_in, head, servers, short_name, versioned
from planner.configure.spelling import Line
from planner.configure.values import Configuration

#: cards of the largest common host; a replica over more needs several pods that start together
_HOST_CARDS: Final = 8
#: how long weights may take to load before the server is called dead: 70B from a slow disk takes a quarter of an hour
_START_S: Final = 1800
_SHM_WHY: Final = "ranks pass data through shared memory; the usual 64 MiB is too little"
_HUB: Final = "/models"


@dataclass(frozen=True, slots=True)
class _Body:
    """A value with comments by path."""

    value: dict[str, object]
    notes: dict[Path, str]


def compose(one: Configuration, image: str = "", vendor: str = "NVIDIA", remarks: Sequence[str] = ()) -> str:
    """A Compose file: one service a replica, each with cards of its own.

    Parameters
    ----------
    one
        What to run.
    image, vendor
        Container image, "" for the engine's own of that version; maker of the cards.
    remarks
        Sentences above it.

    Raises
    ------
    ConfigError
        More cards than a host has, no known image, or what the engine cannot do.
    """
    kinds = servers(one)
    maker = vendor_of(vendor)
    total = one.copies * one.cards
    if total > _HOST_CARDS:
        raise ConfigError(
            f"--form compose: {total} cards are more than one host has ({_HOST_CARDS}); use --form kubernetes"
        )
    services: dict[str, object] = {}
    notes: dict[Path, str] = {}
    files: dict[str, str] = {}
    place = 0
    for kind in kinds:
        for number in range(kind.count):
            name = "-".join(
                [
                    short_name(one.model),
                    *([kind.role] if kind.role else []),
                    *([str(number + 1)] if kind.count > 1 else []),
                ]
            )
            body = _service(one, kind, _image(one, kind, image, vendor), maker, place)
            services[name] = body.value
            notes |= {("services", name, *path): text for path, text in body.notes.items()}
            files |= file_in(kind.spelled)
            place += 1
    value: dict[str, object] = {"services": services, "volumes": {"models": {}}}
    if files:
        value["configs"] = {_plain(name): {"content": _dollars(text)} for name, text in files.items()}
    return head(one, kinds, (*remarks, *maker.notes)) + dumped(value, notes)


def _service(one: Configuration, kind: Server, image: str, maker: Vendor, place: int) -> _Body:
    table = kind.spelled.table
    port, health = table.port, f"http://localhost:{table.port}{table.health}"
    lines = _container_lines(kind)
    ask = [*table.check] or ["python3", "-c", f"import urllib.request as u; u.urlopen('{health}', timeout=5)"]
    files = file_in(kind.spelled)
    value: dict[str, object] = {
        "image": image,
        "entrypoint": [_dollars(word) for word in _run(kind)],
        "command": [_dollars(word) for line in lines for word in line.argv],
        "ports": [f"127.0.0.1:{port + place}:{port}"],
        "environment": {"HF_HOME": _HUB, "HF_TOKEN": "${HF_TOKEN:-}"},
        "volumes": [f"models:{_HUB}", *_local(one.model)],
        "shm_size": "16gb" if one.cards > 1 else "2gb",
        **_devices(maker, [*range(place * one.cards, (place + 1) * one.cards)]),
        "healthcheck": {
            "test": ["CMD", *ask], "interval": "30s", "timeout": "10s", "retries": 3, "start_period": f"{_START_S}s",
        },
        "restart": "unless-stopped",
    }  # fmt: skip
    if files:
        value["configs"] = [{"source": _plain(name), "target": f"/etc/{name}"} for name in files]
    notes: dict[Path, str] = {
        **_argument_notes(("command",), lines),
        ("ports", 0): "this host only; put a load balancer or a token in front before it is opened",
        ("shm_size",): _SHM_WHY,
        ("healthcheck", "start_period"): "weights are loaded in this time",
    }
    return _Body(value, notes)


def _devices(maker: Vendor, cards: Sequence[int]) -> dict[str, object]:
    if maker.compose:
        device = {"driver": maker.compose, "device_ids": [str(card) for card in cards], "capabilities": ["gpu"]}
        return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}
    each = [maker.each.replace("{n}", str(card)) for card in cards] if maker.each else []
    return {"devices": [*maker.devices, *each]}


def _local(model: str) -> list[str]:
    """A folder or file of this host, handed in at the same place."""
    return [f"{model}:{model}:ro"] if model.startswith("/") else []


def kubernetes(one: Configuration, image: str = "", vendor: str = "NVIDIA", remarks: Sequence[str] = ()) -> str:
    """A Deployment and a Service for each kind of server, with probes, cards and shared memory.

    Raises
    ------
    ConfigError
        A replica over more than one host, no known image, or what the engine cannot do.
    """
    kinds = servers(one)
    maker = vendor_of(vendor)
    if one.cards > _HOST_CARDS:
        raise ConfigError(
            f"--form kubernetes: a replica of {one.cards} cards spans hosts; that takes a LeaderWorkerSet, which is not "
            "written here; use fewer cards a replica or --form command"
        )
    documents = []
    for kind in kinds:
        name = short_name(one.model) + (f"-{kind.role}" if kind.role else "")
        for name_of, text in file_in(kind.spelled).items():
            documents.append(_Body(_config_map(name, name_of, text), {}))
        documents.append(_deployment(one, kind, name, _image(one, kind, image, vendor), maker))
        documents.append(_Body(_balancer(name, kind.spelled.table.port), {}))
    return head(one, kinds, (*remarks, *maker.notes)) + "---\n".join(
        dumped(body.value, body.notes) for body in documents
    )


def _deployment(one: Configuration, kind: Server, name: str, image: str, maker: Vendor) -> _Body:
    labels = {"app.kubernetes.io/name": name}
    pod = _pod(one, kind, name, image, maker)
    value: dict[str, object] = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": kind.count,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod.value},
        },
    }  # fmt: skip
    notes = {("spec", "template", "spec", *path): text for path, text in pod.notes.items()}
    notes[("spec", "strategy", "rollingUpdate", "maxSurge")] = "a new pod needs the cards of an old one"
    return _Body(value, notes)


def _pod(one: Configuration, kind: Server, name: str, image: str, maker: Vendor) -> _Body:
    table, lines = kind.spelled.table, _container_lines(kind)
    asked = {"httpGet": {"path": table.health, "port": table.port}}
    files = file_in(kind.spelled)
    mounts: list[object] = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "models", "mountPath": _HUB}]  # noqa: S108
    mounts += [{"name": "engine-file", "mountPath": f"/etc/{file}", "subPath": file} for file in files]
    volumes: list[object] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi" if one.cards > 1 else "2Gi"}},
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
    ]
    volumes += [{"name": "engine-file", "configMap": {"name": name}}] if files else []
    container: dict[str, object] = {
        "name": "engine", "image": image, "command": _run(kind), "args": [word for line in lines for word in line.argv],
        "ports": [{"name": "http", "containerPort": table.port}],
        "env": [
            {"name": "HF_HOME", "value": _HUB},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}},
        ],
        "resources": {"limits": {maker.kubernetes: one.cards}},
        "startupProbe": {**asked, "periodSeconds": 10, "failureThreshold": _START_S // 10},
        "readinessProbe": {**asked, "periodSeconds": 5, "timeoutSeconds": 5},
        "livenessProbe": {**asked, "periodSeconds": 30, "timeoutSeconds": 10, "failureThreshold": 3},
        "volumeMounts": mounts,
    }  # fmt: skip
    at: Path = ("containers", 0)
    notes: dict[Path, str] = {
        **_argument_notes((*at, "args"), lines),
        (*at, "resources", "limits", maker.kubernetes): f"{one.gpu}" if one.gpu else "cards of one replica",
        (*at, "startupProbe", "failureThreshold"): f"{_START_S // 60} minutes to load the weights",
        ("volumes", 0, "emptyDir", "sizeLimit"): _SHM_WHY,
        ("volumes", 1, "persistentVolumeClaim", "claimName"): "make it first; the weights stay in it",
        ("terminationGracePeriodSeconds",): "running answers may end",
        ("enableServiceLinks",): "else a Service called vllm sets VLLM_PORT in here, which the engine reads as its own",
    }
    whole: dict[str, object] = {
        "terminationGracePeriodSeconds": 120,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": volumes,
    }
    return _Body(whole, notes)


def _balancer(name: str, port: int) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app.kubernetes.io/name": name}},
        "spec": {"selector": {"app.kubernetes.io/name": name},
                 "ports": [{"name": "http", "port": port, "targetPort": "http"}]},
    }  # fmt: skip


def _config_map(name: str, file: str, text: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {file: text}}


def _container_lines(kind: Server) -> list[Line]:
    """Lines of the command in a container: where it listens, its settings, and the place of the engine's file there."""
    table, found = kind.spelled.table, kind.spelled
    here = [Line("", extra.argv, extra.why) for extra in table.serving]
    rest = [line for line in argument_lines(found) if line.argv]
    file = table.own_file
    if file is not None and found.keys:
        rest = [
            Line("", (file.flag, f"/etc/{file.name}"), line.why) if line.argv == (file.flag, file.name) else line
            for line in rest
        ]
    return [*here, *rest]


def _argument_notes(path: Path, lines: Sequence[Line]) -> Mapping[Path, str]:
    return dict(_noted(path, lines))


def _noted(path: Path, lines: Sequence[Line]) -> Iterator[tuple[Path, str]]:
    place = 0
    for line in lines:
        yield (*path, place), line.why
        place += len(line.argv)


def _run(kind: Server) -> list[str]:
    entry = kind.spelled.table.entry
    return [*entry, *kind.spelled.run[1:]] if entry else [*kind.spelled.run]


def _image(one: Configuration, kind: Server, image: str, vendor: str) -> str:
    if image:
        return image
    found = kind.spelled.table.images.get(vendor)
    if found is None:
        raise ConfigError(f"--image: none is known of {kind.spelled.table.engine} for {vendor} cards; name one")
    return versioned(found, one, kind.spelled)


def _dollars(text: str) -> str:
    """Compose replaces $NAME by a variable; "$$" is the sign itself."""
    return text.replace("$", "$$")


def _plain(name: str) -> str:
    return name.replace(".", "-")
