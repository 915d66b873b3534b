"""Which target holds which devices: by configuration, by pod, by host, and only where that is not ambiguous. Pure.

In this order, the first that says something decides:

1. ``accelerators.devices`` of the target: UUIDs or serial numbers, or numbers together with a host.
2. ``accelerators.host`` of the target: all devices of that host.
3. The pod of the target, from its labels ``namespace`` and ``pod`` or through ``kube_pod_info`` from its address:
   the devices that name this pod. Where no exporter names pods, the devices of the pod's node.
4. The host in the target's URL: the devices of that host that nobody else holds by 1 to 3.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from collector.accelerators._devices import Device, KubePod, Pod, Registry
from goodwatch.signals.energy import DevicePart

Basis = Literal["", "config", "pod", "host"]

#: of two exporters that tell of one device the one is taken that tells the most of energy
_WORTH: Final = ("gpu_energy_joules_total", "gpu_power_watts", "gpu_memory_total_bytes")


@dataclass(frozen=True, slots=True)
class Claim:
    """What is known of a target that may hold devices. ``host`` is that of its URL."""

    target: str
    host: str
    devices: tuple[str, ...] = ()  # configured
    device_host: str = ""  # configured
    namespace: str = ""
    pod: str = ""
    node: str = ""
    gpus: float | None = None  # how many it holds, where configured


@dataclass(frozen=True, slots=True)
class Held:
    """The devices of one target: ``basis`` says how they were found, ``note`` why there are none, or what to know."""

    target: str
    devices: tuple[Device, ...] = ()
    basis: Basis = ""
    note: str = ""
    parts: Mapping[str, DevicePart] = field(default_factory=dict)  # by Device.key


class _Pool:
    """All devices, each once, found by the hosts that each may be called by and by the pods that hold it."""

    def __init__(self, devices: Mapping[str, Device], hosts: Mapping[str, set[str]], kube: Iterable[KubePod]) -> None:
        self.devices = dict(sorted(devices.items()))
        self.kube_by_ip: dict[str, list[KubePod]] = {}
        self.kube_by_name: dict[tuple[str, str], KubePod] = {}
        self._by_host: dict[str, list[Device]] = {}
        self._by_short: dict[str, set[str]] = {}
        self._by_pod: dict[str, list[Device]] = {}
        for key, device in self.devices.items():
            for host in hosts[key]:
                self._by_host.setdefault(host, []).append(device)
                self._by_short.setdefault(_short(host), set()).add(host)
            for text in {t for p in device.pods for t in (p.name, p.uid) if t}:
                self._by_pod.setdefault(text, []).append(device)
        for pod in kube:
            self.kube_by_ip.setdefault(pod.pod_ip, []).append(pod)
            self.kube_by_name[pod.namespace, pod.name] = pod

    @property
    def names_pods(self) -> bool:
        """Whether any exporter says which pod holds a device."""
        return bool(self._by_pod)

    def of_host(self, wanted: Iterable[str]) -> tuple[list[Device], str]:
        """Devices of one of these hosts, else why it cannot be told which."""
        names = {_host(w) for w in wanted if w}
        hosts = names & self._by_host.keys()
        if not hosts:
            hosts = {h for n in names for h in self._by_short.get(_short(n), ()) if ("." in h) != ("." in n)}
            if len(hosts) > 1:
                return [], f"{', '.join(sorted(names))} may be any of the hosts {', '.join(sorted(hosts))}"
        found = {d.key: d for h in hosts for d in self._by_host[h]}
        return [found[key] for key in sorted(found)], ""

    def of_pod(self, pod: Pod) -> list[Device]:
        """Devices that name this pod."""
        listed = {d.key: d for t in (pod.name, pod.uid) for d in self._by_pod.get(t, ()) if t}
        return [d for _, d in sorted(listed.items()) if any(_same_pod(p, pod) for p in d.pods)]


def join(registries: Sequence[Registry], claims: Sequence[Claim]) -> dict[str, Held]:
    """What each target holds, by target name."""
    pool = _pool(registries)
    pods = {c.target: _pod(c, pool) for c in claims}
    held: dict[str, Held] = {}
    for claim in claims:
        if claim.devices or claim.device_host:
            held[claim.target] = _configured(claim, pool)
        elif (pod := pods[claim.target]) is not None:
            found = _by_pod(claim, pod, pool)
            if found is not None:
                held[claim.target] = found
    taken = {d.key for one in held.values() for d in one.devices}
    rest = [c for c in claims if c.target not in held]
    held.update(_by_host(rest, pods, pool, taken))
    return _with_parts(held, pods, pool)


def _pool(registries: Sequence[Registry]) -> _Pool:
    devices: dict[str, Device] = {}
    hosts: dict[str, set[str]] = {}
    for registry in registries:
        labelled = {d.host for d in registry.devices if d.host}
        for device in registry.devices:
            # The exporter's own host is that of its devices only where it tells of one host.
            names = {device.host, registry.host} if len(labelled) < 2 else {device.host}
            names = {registry.host} if registry.pinned else names
            hosts.setdefault(device.key, set()).update(_host(n) for n in names if n)
            devices[device.key] = _merged(devices.get(device.key), device)
    return _Pool(devices, hosts, (p for r in registries for p in r.pods))


def _merged(known: Device | None, new: Device) -> Device:
    """One device of two exporters: the numbers of the better, the pods of both."""
    if known is None:
        return new
    better, other = sorted((known, new), key=lambda d: ([s not in d.signals for s in _WORTH], d.exporter))
    return replace(
        better,
        host=better.host or other.host,
        product=better.product or other.product,
        pods=tuple(sorted({*better.pods, *other.pods})),
        containers=tuple(sorted({*better.containers, *other.containers})),
    )


def _configured(claim: Claim, pool: _Pool) -> Held:
    """The devices that the operator names."""
    there, why = pool.of_host([claim.device_host]) if claim.device_host else (list(pool.devices.values()), "")
    if not there:
        none = why or (f"no exporter tells of devices of {claim.device_host}" if claim.device_host else "")
        return Held(claim.target, basis="config", note=none or "no exporter told of its devices yet")
    if not claim.devices:
        return Held(claim.target, tuple(there), "config")
    found: dict[str, Device] = {}
    for text in claim.devices:
        named = [d for d in there if text in (d.key, d.card, d.rank.removeprefix("gpu="), *d.card.split("/")[:1])]
        named = named or [d for d in there if text == d.index]
        if not named:
            note = f"accelerators.devices: {text} is on no exporter's page; there are {_few(d.key for d in there)}"
            return Held(claim.target, basis="config", note=note)
        if len({d.card for d in named}) > 1:
            note = f"accelerators.devices: {text} is several devices ({_few(d.key for d in named)}); write the UUID, or host"
            return Held(claim.target, basis="config", note=note)
        found.update({d.key: d for d in named})
    return Held(claim.target, tuple(found[k] for k in sorted(found)), "config")


def _pod(claim: Claim, pool: _Pool) -> Pod | None:
    """The pod that a target is, from its labels or from its address; None when neither tells."""
    if claim.pod:
        known = pool.kube_by_name.get((claim.namespace, claim.pod))
        return Pod(claim.namespace, claim.pod, known.uid if known else "")
    found = [p for p in pool.kube_by_ip.get(claim.host, ()) if not p.on_the_host]
    return Pod(found[0].namespace, found[0].name, found[0].uid) if len(found) == 1 else None


def _by_pod(claim: Claim, pod: Pod, pool: _Pool) -> Held | None:
    """The devices that name the target's pod; None when no exporter names pods at all."""
    found = pool.of_pod(pod)
    namespaces = {p.namespace for d in found for p in d.pods if _same_pod(p, pod)}
    if len(namespaces) > 1:
        note = f"pod {pod.name} is in several namespaces ({_few(namespaces)}); add the label namespace to the target"
        return Held(claim.target, basis="pod", note=note)
    if found:
        return Held(claim.target, tuple(found), "pod")
    if pool.names_pods:
        where = f"{pod.namespace}/{pod.name}".strip("/")
        return Held(claim.target, basis="pod", note=f"no device names the pod {where}")
    return None


def _same_pod(one: Pod, other: Pod) -> bool:
    if one.uid and other.uid:
        return one.uid == other.uid
    return (
        bool(one.name)
        and one.name == other.name
        and (one.namespace == other.namespace or "" in (one.namespace, other.namespace))
    )


def _by_host(claims: Sequence[Claim], pods: Mapping[str, Pod | None], pool: _Pool, taken: set[str]) -> dict[str, Held]:
    """The free devices of each target's host; targets of one host share them."""
    groups: dict[tuple[str, ...], list[Claim]] = {}
    held: dict[str, Held] = {}
    for claim in claims:
        found, why = pool.of_host(_hosts_of(claim, pods.get(claim.target), pool))
        free = tuple(d.key for d in found if d.key not in taken)
        if free:
            groups.setdefault(free, []).append(claim)
        else:
            held[claim.target] = Held(claim.target, note=why or _nothing(claim, found, pool))
    for free, members in groups.items():
        there = tuple(pool.devices[key] for key in free)
        note = _unfit(members, there)
        for claim in members:
            held[claim.target] = Held(claim.target, note=note) if note else Held(claim.target, there, "host")
    return held


def _hosts_of(claim: Claim, pod: Pod | None, pool: _Pool) -> set[str]:
    node = None if pod is None else pool.kube_by_name.get((pod.namespace, pod.name))
    return {claim.host, claim.node} if node is None else {claim.host, node.node, node.host_ip}


def _nothing(claim: Claim, found: Sequence[Device], pool: _Pool) -> str:
    if found:
        return f"all devices of {claim.host} are held by other targets"
    if not pool.devices:
        return "no exporter told of its devices yet"
    return f"no exporter tells of devices of {claim.host}; write accelerators.host or devices on the target"


def _unfit(members: Sequence[Claim], devices: Sequence[Device]) -> str:
    """Why the devices of a host are not those of these targets; "" when they may be."""
    host = members[0].host
    pods = {p for d in devices for p in d.pods}
    if len(pods) > 1:
        return f"the devices of {host} name {len(pods)} pods; add the labels namespace and pod to the target"
    wanted = [c.gpus for c in members]
    cards = len({d.card for d in devices})
    total = sum(w for w in wanted if w is not None)
    if None not in wanted and total not in (cards, len(devices)):
        return f"{host} has {cards} devices and its targets hold {total:g}; list them under accelerators.devices of each target"
    return ""


def _with_parts(held: Mapping[str, Held], pods: Mapping[str, Pod | None], pool: _Pool) -> dict[str, Held]:
    """What each target holds, with who else holds it."""
    holders: dict[str, set[str]] = {}
    for one in held.values():
        for device in one.devices:
            holders.setdefault(device.card, set()).add(one.target)
    by_card: dict[str, list[Device]] = {}
    for device in pool.devices.values():
        by_card.setdefault(device.card, []).append(device)
    keys = {d.key for one in held.values() for d in one.devices}
    out: dict[str, Held] = {}
    for name, one in held.items():
        parts = {}
        for device in one.devices:
            targets = sorted(holders[device.card])
            known = [pods[t] for t in targets]
            strangers = _strangers(by_card[device.card], known, keys)
            parts[device.key] = DevicePart(
                device.key, device.card, tuple(targets) if len(targets) > 1 else (), strangers
            )
        out[name] = replace(one, parts=parts)
    return out


def _strangers(instances: Sequence[Device], known: Sequence[Pod | None], keys: set[str]) -> str:
    """Who holds a card beside the targets that are known, for a person; "" when nobody does."""
    pods = {p for d in instances for p in d.pods}
    others = sorted(p for p in pods if not any(k is not None and _same_pod(p, k) for k in known))
    # A target that does not say which pod it is may be one of them.
    if len(others) > sum(k is None for k in known):
        names = _few(f"{p.namespace}/{p.name or p.uid}".strip("/") for p in others)
        return f"pod{'s' * (len(others) != 1)} {names}"
    idle = sum(d.key not in keys for d in instances)
    return f"{idle} more instance{'s' * (idle != 1)} of the card" if idle else ""


def _few(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")


def _host(name: str) -> str:
    """A host name or address in one spelling; every spelling of this machine is one."""
    plain = name.strip("[]").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return plain
    return "localhost" if address.is_loopback else str(address)


def _short(name: str) -> str:
    """A host name without its domain; an address stays whole."""
    return name if ":" in name or name.replace(".", "").isdigit() else name.partition(".")[0]
