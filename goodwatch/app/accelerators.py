"""The devices of the running service: what exporters told last, which target holds which, and the rows that follow.

A step of an exporter becomes rows of the targets that hold its devices, by what is known when it arrives: a device
that moves to another pod is the new one's from then on.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from urllib.parse import urlsplit

from collector.accelerators._devices import Device, Registry, registry_of
from collector.accelerators._join import Claim, Held, join
from goodwatch.app.fleet import STEPS_S, TargetState, minute_of
from goodwatch.app.view import DeviceView
from goodwatch.core.model import Number
from goodwatch.signals.energy import NO_EXPORTER, device_rows, energy_numbers
from goodwatch.signals.increments import rows_frame
from goodwatch.signals.windows import target_windows

_HELD_BY: dict[str, str] = {"config": "configured", "pod": "by its pod", "host": "by its host", "": ""}


@dataclass(frozen=True, slots=True)
class Holding:
    """What the configuration says of the devices of a target."""

    devices: tuple[str, ...] = ()
    host: str = ""


@dataclass(slots=True)
class Holdings:
    """Which target holds which devices. Touched from the event loop only."""

    registries: dict[str, Registry] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    holders: dict[str, list[tuple[Held, list[Device]]]] = field(default_factory=dict)  # by exporter, with its devices
    claims: tuple[Claim, ...] = ()
    handed_s: dict[str, float] = field(default_factory=dict)  # by exporter: its steps until then were handed on
    stale: bool = True
    watching: bool = False  # some exporter is watched

    def follow(self, states: Mapping[str, TargetState], holding: Mapping[str, Holding]) -> None:
        """Take notice of the targets and exporters that are watched now."""
        claims = tuple(_claim(s, holding.get(s.spec.target.name, Holding())) for s in _engines(states))
        gone = set(self.registries) - set(states)
        self.registries = {n: r for n, r in self.registries.items() if n not in gone}
        self.stale = self.stale or claims != self.claims or bool(gone)
        self.claims = claims
        self.watching = any(s.spec.target.kind == "accelerator" for s in states.values())
        self.handed_s = {n: at for n, at in self.handed_s.items() if n in states}
        if not self.watching:
            self.held, self.holders = {}, {}

    async def take(self, state: TargetState, states: Mapping[str, TargetState], host: str | None) -> None:
        """What the last page of an exporter says; ``host`` is the configured one. Hands its steps on to the holders."""
        name, understood = state.spec.target.name, state.understood
        if understood is not None and state.last is not None and state.last.up:
            where, pinned = host or _host_of(state), host is not None
            registry = await asyncio.to_thread(registry_of, understood, name, where, pinned=pinned)
            self.stale = self.stale or registry != self.registries.get(name)
            self.registries[name] = registry
        exporters = [s for s in states.values() if s.spec.target.kind == "accelerator"]
        # One that was not heard yet may be the one that names the pods.
        if all(s.understood is not None or (s.last is not None and not s.last.up) for s in exporters):
            if self.stale:
                self._join()
            for exporter in exporters:
                self._hand_on(exporter, states)

    def _join(self) -> None:
        self.held, self.stale = join(list(self.registries.values()), self.claims), False
        self.holders = {}
        for held in self.held.values():
            for name in dict.fromkeys(d.exporter for d in held.devices):
                devices = [d for d in held.devices if d.exporter == name]
                self.holders.setdefault(name, []).append((held, devices))

    def _hand_on(self, exporter: TargetState, states: Mapping[str, TargetState]) -> None:
        name = exporter.spec.target.name
        since = self.handed_s.get(name, 0.0)
        steps = [*takewhile(lambda step: step[0] > since, reversed(exporter.steps))][::-1]
        if not steps:
            return
        self.handed_s[name] = steps[-1][0]
        for held, devices in self.holders.get(name, ()):
            state = states.get(held.target)
            if state is None:
                continue
            parts = {d.rank: held.parts[d.key] for d in devices}
            counted = {d.rank for d in devices if "gpu_energy_joules_total" in d.signals}
            for ts, rows in steps:
                found = device_rows(rows, parts, counted, target=held.target, service=state.spec.target.service)
                state.hold(ts, found, fold=minute_of(ts) in exporter.unfolded)

    def why_none(self, target: str) -> str:
        """What to say of a target without numbers of devices."""
        if not self.watching:
            return NO_EXPORTER
        held = self.held.get(target) if self.registries else None
        if held is None:
            return "no accelerator exporter was read yet"
        return held.note or "the accelerator exporter of its devices was not read in this window"

    def views(self, name: str, states: Mapping[str, TargetState]) -> tuple[DeviceView, ...]:
        """The devices that a target holds, or that an exporter tells of."""
        registry = self.registries.get(name)
        if registry is not None:
            holders = {d.key: [h.target for h in self.held.values() if d.key in h.parts] for d in registry.devices}
            return tuple(_view(d, ", ".join(holders[d.key]), "", states.get(name)) for d in registry.devices)
        held = self.held.get(name)
        if held is None:
            return ()
        basis = _HELD_BY[held.basis]
        return tuple(_view(d, _shared(held, d, name), basis, states.get(d.exporter)) for d in held.devices)

    def numbers(self, name: str, states: Mapping[str, TargetState], start_s: float, end_s: float) -> dict[str, Number]:
        """Power, use and energy of an exporter's devices over all targets that hold them together; {} of no exporter.

        Over the last minutes at most: longer windows are the services' own.
        """
        if name not in self.registries:
            return {}
        start_s = max(start_s, end_s - STEPS_S)
        holders = [states[h.target] for h, _ in self.holders.get(name, ()) if h.target in states]
        rows = [r for s in holders for r in (*s.rows(start_s, end_s), *s.device_rows(start_s, end_s))]
        windows = target_windows(rows_frame(rows), rows_frame([]), start_s, end_s)
        return energy_numbers(windows, why="no target holds these devices")


def _engines(states: Mapping[str, TargetState]) -> Iterable[TargetState]:
    return (states[n] for n in sorted(states) if states[n].spec.target.kind == "engine")


def _claim(state: TargetState, holding: Holding) -> Claim:
    target = state.spec.target
    labels = target.labels
    return Claim(
        target.name, _host_of(state), holding.devices, holding.host, labels.get("namespace", ""),
        labels.get("pod", ""), labels.get("node", ""), target.gpus,
    )  # fmt: skip


def _host_of(state: TargetState) -> str:
    return urlsplit(state.spec.target.url).hostname or ""


def _shared(held: Held, device: Device, name: str) -> str:
    part = held.parts[device.key]
    return ", ".join([*(h for h in part.holders if h != name), *filter(None, (part.strangers,))])


def _view(device: Device, holders: str, basis: str, exporter: TargetState | None) -> DeviceView:
    samples = exporter.last.samples if exporter is not None and exporter.last is not None else ()
    values = {s.signal: s.value for s in samples if s.rank == device.rank and s.value is not None}
    pods = tuple(f"{p.namespace}/{p.name or p.uid}".strip("/") for p in device.pods)
    return DeviceView(
        device.key, device.exporter, device.product, device.host, device.index, pods, holders, basis, values
    )
