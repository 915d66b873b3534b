"""What a page of an accelerator exporter says of each device, and what to watch out for on it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from collector._capability_notes import Remark
from collector.accelerators._devices import Device, devices, kube_pods
from collector.families import Families
from collector.normalise import Reading, Value

_SEEN_ONCE: Final = "gpu_error_code"


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device on one page. ``values`` are by canonical signal, in canonical units; what is not told is not there."""

    key: str
    index: str
    product: str
    host: str
    pods: tuple[str, ...]
    values: Mapping[str, float]


def device_reports(reading: Reading, families: Families, exporter: str) -> tuple[DeviceReport, ...]:
    """Every device of a page."""
    found: dict[str, dict[str, float]] = {}
    for name, resolved in reading.resolved.items():
        for value in resolved.values:
            if value.value is not None:
                of = found.setdefault(value.rank, {})
                of[name] = max(value.value, of.get(name, value.value))
    return tuple(
        DeviceReport(
            d.rank.removeprefix("gpu="), d.index, d.product, d.host,
            tuple(f"{p.namespace}/{p.name or p.uid}".strip("/") for p in d.pods), found.get(d.rank, {}),
        )
        for d in devices(reading, families, exporter)
    )  # fmt: skip


def device_remarks(reading: Reading, families: Families, exporter: str) -> Iterable[Remark]:
    """What to know of a page of an accelerator exporter."""
    found = devices(reading, families, exporter)
    pods = kube_pods(families)
    if pods:
        yield Remark("kube_pods", "note", f"{len(pods)} pods are named here with their addresses and nodes.")
    elif not found:
        yield Remark(
            "no_devices", "warning", f"No device is on this page. {reading.engine.hints.get('off', '')}".strip()
        )
    yield from _shared(found)
    yield from _energy(found)
    if any(v.value for v in _values(reading, _SEEN_ONCE)):
        yield Remark(
            "error_code", "warning", "A device tells an error code. It is the last one seen and stays there: no count."
        )
    if any(v.value == 0 for v in _values(reading, "gpu_healthy")):
        yield Remark("unhealthy", "warning", "A device calls itself unhealthy.")


def _values(reading: Reading, name: str) -> Iterable[Value]:
    return reading.resolved[name].values if name in reading.resolved else ()


def _shared(found: tuple[Device, ...]) -> Iterable[Remark]:
    sliced = [d for d in found if len(d.pods) > 1]
    if sliced:
        yield Remark(
            "time_sliced", "warning",
            f"{len(sliced)} of {len(found)} devices are held by several pods at once: each pod is shown the whole "
            "device's numbers. They are taken once, and their energy is not split.",
        )  # fmt: skip
    split = {d.card for d in found if d.instance}
    if split:
        yield Remark(
            "instances", "note",
            f"{len(split)} cards are split into instances. Memory and activity are the instance's own; power and energy "
            "are the card's, and are taken once.",
        )  # fmt: skip


def _energy(found: tuple[Device, ...]) -> Iterable[Remark]:
    if not found or any("gpu_energy_joules_total" in d.signals for d in found):
        return
    if any("gpu_power_watts" in d.signals for d in found):
        yield Remark("no_energy_counter", "note", "There is no energy counter: energy is the mean power over time.")
    else:
        yield Remark(
            "no_power", "note", "Neither power nor energy is on this page: energy per token needs one of them."
        )
