"""Which devices a page tells of, who holds them as far as its labels say, and which pods a cluster has. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from collector.accelerators import _labels
from collector.families import Families
from collector.normalise import Reading, rank_of
from collector.pipeline import Understood
from goodwatch.core.engine import Engine

_RANK: Final = "gpu="


@dataclass(frozen=True, slots=True, order=True)
class Pod:
    """A pod that holds a device. ``namespace`` is "" where the exporter names the pod alone, ``uid`` where not told."""

    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class KubePod:
    """A pod as the cluster knows it (``kube_pod_info``)."""

    namespace: str
    name: str
    uid: str
    node: str
    pod_ip: str
    host_ip: str

    @property
    def on_the_host(self) -> bool:
        """True when the pod uses its node's network, so that its address says only which node it is on."""
        return self.pod_ip == self.host_ip


@dataclass(frozen=True, slots=True)
class Device:
    """One device, or one instance of a partitioned one, as one exporter tells of it.

    ``key`` is its identity over all exporters: its UUID or serial number; where the page has only a number, the number
    at this exporter. ``card`` is the physical device, for an instance of it as well.
    """

    key: str
    card: str
    exporter: str
    rank: str  # as in the samples of the exporter
    index: str = ""  # number on its host
    host: str = ""  # as a label says it
    product: str = ""
    instance: str = ""  # of a partitioned card; "" for a whole one
    pods: tuple[Pod, ...] = ()
    containers: tuple[str, ...] = ()
    signals: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Registry:
    """What one exporter told last. ``host`` is where it runs; ``pinned`` when the operator says whose devices it has."""

    exporter: str
    host: str
    pinned: bool = False
    devices: tuple[Device, ...] = ()
    pods: tuple[KubePod, ...] = ()


@dataclass(slots=True)
class _Labels:
    """The labels of all series of one device: the first value of a kind that is not empty, and every pod."""

    one: dict[str, str] = field(default_factory=dict)
    pods: set[Pod] = field(default_factory=set)
    containers: set[str] = field(default_factory=set)


def devices(reading: Reading, families: Families, exporter: str) -> tuple[Device, ...]:
    """The devices of a page by rank; ``exporter`` is the name of its target."""
    signals: dict[str, set[str]] = {}
    for name, resolved in reading.resolved.items():
        for value in resolved.values:
            if value.rank:
                signals.setdefault(value.rank, set()).add(name)
    told = _told(families, reading.engine)
    # A page of HAMi may name a device for its pods alone, without a number of its own.
    return tuple(
        _device(rank, told.get(rank, _Labels()), signals.get(rank, set()), exporter)
        for rank in sorted(signals.keys() | {r for r, labels in told.items() if labels.pods})
    )


def kube_pods(families: Families) -> tuple[KubePod, ...]:
    """The pods of the cluster, when the page is kube-state-metrics'."""
    family = families.get("kube_pod_info", "gauge")
    wanted = ("namespace", "pod", "uid", "node", "pod_ip", "host_ip")
    return tuple(KubePod(*(s.labels.get(name, "") for name in wanted)) for s in (family.series if family else ()))


def _told(families: Families, engine: Engine) -> dict[str, _Labels]:
    found: dict[str, _Labels] = {}
    for family in families if engine.sum_labels else ():
        for series in family.series:
            rank = rank_of(series, engine)
            if rank:
                _take(found.setdefault(rank, _Labels()), series.labels)
    return found


def _take(known: _Labels, labels: Mapping[str, str]) -> None:
    for kind, names in (("host", _labels.HOST), ("index", _labels.INDEX), ("product", _labels.PRODUCT)):
        known.one.setdefault(kind, "")
        known.one[kind] = known.one[kind] or _first(labels, names)
    known.one["instance"] = known.one.get("instance") or labels.get(_labels.INSTANCE, "")
    pod, uid = _first(labels, _labels.POD), _first(labels, _labels.POD_UID)
    if pod or uid:
        known.pods.add(Pod(_first(labels, _labels.NAMESPACE), pod, uid))
    container = _first(labels, _labels.CONTAINER)
    if container:
        known.containers.add(container)


def _device(rank: str, labels: _Labels, signals: set[str], exporter: str) -> Device:
    identity = rank.removeprefix(_RANK)
    instance = labels.one.get("instance", "")
    # A number is one host's own: 0 is on every host.
    key = f"{exporter}:{identity}" if identity.isdigit() else identity
    card = key.removesuffix(f"/{instance}") if instance else key
    return Device(
        key, card, exporter, rank, labels.one.get("index", ""), labels.one.get("host", ""),
        labels.one.get("product", ""), instance, tuple(sorted(labels.pods)), tuple(sorted(labels.containers)),
        frozenset(signals),
    )  # fmt: skip


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[n] for n in names if labels.get(n)), "")


def registry_of(understood: Understood, exporter: str, host: str, *, pinned: bool = False) -> Registry:
    """What a page of an exporter tells; nothing when no known exporter wrote it."""
    if understood.reading is None:
        return Registry(exporter, host, pinned)
    families = understood.families
    return Registry(exporter, host, pinned, devices(understood.reading, families, exporter), kube_pods(families))
