"""Power, use and energy of the devices that targets hold, and joules per million output tokens. Pure.

Rows of devices carry in their part which device they are of and who else holds it (``DevicePart``), so that every
scope can tell by itself whether a device is its own. What several scopes share is never split by guess: the energy is
told for all who share it together, or not at all.

Energy of a device = increase of its counter, else its mean power over the time that it was read. It is taken for the
time that the token counters cover, which differs from that by a scrape at each edge.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from goodwatch.core.catalogue import ACCELERATOR_SIGNALS
from goodwatch.core.model import Absence, Basis, Number
from goodwatch.signals.windows import TargetWindow

NO_EXPORTER: Final = "no accelerator exporter is scraped for these targets; add one under accelerators"
SEVERAL_MODELS: Final = "the devices serve several models, and their share of each is not told"

#: derived name → unit, meaning
ENERGY_MEANINGS: Final = {
    "gpu_power_watts": ("W", "power draw of the devices held, mean over the window"),
    "gpu_utilisation_ratio": ("ratio", "share of time in which those devices did any work; busy is not useful"),
    "gpu_memory_used_ratio": ("ratio", "memory of those devices in use"),
    "energy_joules_per_million_output_tokens": ("J", "energy of a million generated tokens, idle time in it"),
}

#: what a device's rows are made of; the rest stays with the exporter
JOINED: Final = (
    "gpu_energy_joules_total", "gpu_power_watts", "gpu_utilisation_ratio", "gpu_memory_used_bytes",
    "gpu_memory_total_bytes", "gpu_covered_seconds_total",
)  # fmt: skip

#: Read for less than this share of the time that the tokens cover, or more than its inverse, is no basis.
_LEAST_COVERED: Final = 0.5
#: Below this difference the two times are one: what remains is when the scrapes fell.
_SAME_TIME: Final = 0.1
_ESCAPED: Final = {ord(c): f"%{ord(c):02X}" for c in "%,=+"}


@dataclass(frozen=True, slots=True)
class DevicePart:
    """Which device a row is of.

    ``holders`` are the targets that hold it where it is more than one, ``strangers`` says who else does.
    """

    key: str
    card: str
    holders: tuple[str, ...] = ()
    strangers: str = ""

    def __str__(self) -> str:
        """The part of a row."""
        cells = {
            "gpu": _escaped(self.key),
            "card": "" if self.card == self.key else _escaped(self.card),
            "with": "+".join(map(_escaped, self.holders)),
            "also": _escaped(self.strangers),
        }
        return ",".join(f"{name}={text}" for name, text in cells.items() if text)

    @classmethod
    def of(cls, part: str) -> "DevicePart":
        """The device of a part.

        Examples
        --------
        >>> DevicePart.of(str(DevicePart("GPU-1/3", "GPU-1", ("a+b", "c"), "pod x/y")))
        DevicePart(key='GPU-1/3', card='GPU-1', holders=('a+b', 'c'), strangers='pod x/y')
        """
        cells = dict(cell.split("=", 1) for cell in part.split(","))
        key = _plain(cells.get("gpu", ""))
        holders = tuple(_plain(h) for h in cells.get("with", "").split("+") if h)
        return cls(key, _plain(cells["card"]) if "card" in cells else key, holders, _plain(cells.get("also", "")))


def device_rows(
    rows: Iterable[Mapping[str, Any]],
    parts: Mapping[str, DevicePart],
    counted: Collection[str],
    *,
    target: str,
    service: str,
) -> list[dict[str, Any]]:
    """Rows of an exporter's step as rows of a target that holds some of its devices.

    Parameters
    ----------
    rows
        ``frames.MINUTES`` of one step.
    parts
        Devices by the exporter's own part ("gpu=GPU-1").
    counted
        Those of ``parts`` with an energy counter: they count as read in a step when it has an increase, which the
        first one that is seen has not. The others do when they are on the page.
    """
    own = {"target": target, "service": service, "model": "", "engine": ""}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    covered: Mapping[str, Any] | None = None
    for row in rows:
        if row["signal"] == "covered_seconds_total":
            covered = row
        elif row["signal"] in JOINED and row["part"] in parts:
            found.setdefault(row["part"], {})[row["signal"]] = {**row, **own, "part": str(parts[row["part"]])}
    out: list[dict[str, Any]] = []
    for part, signals in found.items():
        out += signals.values()
        if covered is not None and (part not in counted or "gpu_energy_joules_total" in signals):
            out.append({**covered, **own, "signal": "gpu_covered_seconds_total", "part": str(parts[part])})
    return out


def without_devices(window: TargetWindow) -> TargetWindow:
    """The window without what its devices told."""
    return replace(
        window,
        counters={k: v for k, v in window.counters.items() if k[0] not in JOINED},
        gauges={k: v for k, v in window.gauges.items() if k[0] not in ACCELERATOR_SIGNALS},
    )


@dataclass(slots=True)
class _Device:
    """What the windows say of one device while it had one and the same holders."""

    part: DevicePart
    counters: dict[str, float] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)
    held_by: set[str] = field(default_factory=set)
    tokens_s: float = 0.0  # time that the token counters of its holders cover

    @property
    def watts(self) -> float | None:
        """Mean power: from the energy counter where there is one, else of the readings."""
        joules, read_s = self.counters.get("gpu_energy_joules_total"), self.counters.get("gpu_covered_seconds_total")
        return joules / read_s if joules is not None and read_s else self.means.get("gpu_power_watts")


@dataclass(frozen=True, slots=True)
class _Card:
    """Energy of one physical device: its power, the time it was read, the time that counts, and whether it is counted."""

    watts: float
    read_s: float
    tokens_s: float
    counted: bool


def energy_numbers(windows: Iterable[TargetWindow], *, why: str = NO_EXPORTER) -> dict[str, Number]:
    """Every name of ``ENERGY_MEANINGS`` for these windows together; ``why`` is said when they have no devices."""
    items = tuple(windows)
    found = _devices(items)
    if not found:
        return {n: Number.none(unit, Absence.NOT_MEASURABLE, why) for n, (unit, _) in ENERGY_MEANINGS.items()}
    note = _note(items, found)
    return {
        "gpu_power_watts": _power(found, note),
        "gpu_utilisation_ratio": _utilisation(found, note),
        "gpu_memory_used_ratio": _memory(found, note),
        "energy_joules_per_million_output_tokens": _per_million(items, found, note),
    }


def _devices(windows: tuple[TargetWindow, ...]) -> list[_Device]:
    """Devices by part; what several targets or models of this scope hold is there once."""
    found: dict[str, _Device] = {}

    def of(part: str, window: TargetWindow) -> _Device:
        device = found.setdefault(part, _Device(DevicePart.of(part)))
        device.held_by.add(window.target)
        device.tokens_s = max(device.tokens_s, window.seconds)
        return device

    for window in windows:
        for (signal, part), value in window.counters.items():
            if signal in JOINED:
                device = of(part, window)
                device.counters[signal] = max(value, device.counters.get(signal, 0.0))
        for (signal, part), gauge in window.gauges.items():
            if signal in JOINED:
                of(part, window).means[signal] = gauge.mean
    return [found[part] for part in sorted(found)]


def _cards(found: list[_Device]) -> list[_Card]:
    """Physical devices: instances of one card repeat its power, parts of one device follow each other in time."""
    by_key: dict[str, list[_Device]] = {}
    for device in found:
        if device.watts is not None:
            by_key.setdefault(device.part.key, []).append(device)
    cards: dict[str, _Card] = {}
    for parts in by_key.values():
        spans = [(p.watts or 0.0, p.counters.get("gpu_covered_seconds_total", 0.0)) for p in parts]
        read_s = sum(s for _, s in spans)
        joules = sum(w * s for w, s in spans)
        watts = joules / read_s if read_s else sum(w for w, _ in spans) / len(spans)
        counted = all("gpu_energy_joules_total" in p.counters for p in parts)
        card = _Card(watts, read_s, max(p.tokens_s for p in parts), counted)
        name = parts[0].part.card
        if name not in cards or card.read_s > cards[name].read_s:
            cards[name] = card
    return list(cards.values())


def _power(found: list[_Device], note: str) -> Number:
    cards = _cards(found)
    if not cards:
        return Number.none("W", Absence.NOT_MEASURABLE, "the exporter tells neither power nor energy")
    return Number("W", Basis.MEASURED, sum(c.watts for c in cards), note=note)


def _utilisation(found: list[_Device], note: str) -> Number:
    by_key = {d.part.key: v for d in found if (v := d.means.get("gpu_utilisation_ratio")) is not None}
    if not by_key:
        return Number.none("ratio", Absence.NOT_MEASURABLE, "the exporter does not tell how busy the devices are")
    return Number("ratio", Basis.MEASURED, sum(by_key.values()) / len(by_key), note=note)


def _memory(found: list[_Device], note: str) -> Number:
    pairs = {
        d.part.key: (d.means["gpu_memory_used_bytes"], d.means["gpu_memory_total_bytes"])
        for d in found
        if d.means.keys() >= {"gpu_memory_used_bytes", "gpu_memory_total_bytes"}
    }
    size = sum(total for _, total in pairs.values())
    if size <= 0:
        return Number.none("ratio", Absence.NOT_MEASURABLE, "the exporter does not tell both memory and memory in use")
    return Number("ratio", Basis.MEASURED, sum(used for used, _ in pairs.values()) / size, note=note)


def _per_million(windows: tuple[TargetWindow, ...], found: list[_Device], note: str) -> Number:
    holders = {target for device in found for target in device.held_by}
    shared = _shared(found, {w.target for w in windows})
    if shared:
        return Number.none("J", Absence.NOT_MEASURABLE, f"{shared}: their energy is not split by guess")
    cards = _cards(found)
    if not cards:
        return Number.none("J", Absence.NOT_MEASURABLE, "the exporter tells neither power nor energy")
    thin = [c for c in cards if not _LEAST_COVERED <= _share(c) <= 1 / _LEAST_COVERED]
    if thin:
        text = f"the devices were read for {thin[0].read_s:.0f} s, the tokens for {thin[0].tokens_s:.0f} s"
        return Number.none("J", Absence.NO_DATA, text)
    tokens = [w.counter("output_tokens_total") for w in windows if w.target in holders]
    known = [t for t in tokens if t is not None]
    if not known or len(known) < len(tokens):
        return Number.none("J", Absence.NOT_MEASURABLE, "this engine does not count tokens")
    joules = sum(c.watts * c.tokens_s for c in cards)
    if sum(known) <= 0:
        return Number.none("J", Absence.NO_TRAFFIC, f"no tokens in the window, though {joules:.0f} J were spent")
    notes = [note, *_doubts(cards), _idle(windows, holders)]
    return Number("J", Basis.MEASURED, joules / sum(known) * 1e6, note="; ".join(filter(None, notes)))


def _share(card: _Card) -> float:
    return card.read_s / card.tokens_s if card.tokens_s else 0.0


def _doubts(cards: list[_Card]) -> Iterable[str]:
    if not all(c.counted for c in cards):
        yield "derived: mean power times time, since not every device has an energy counter"
    odd = [c for c in cards if abs(_share(c) - 1) > _SAME_TIME]
    if odd:
        yield f"the devices were read for {odd[0].read_s:.0f} s of {odd[0].tokens_s:.0f} s; their mean power is taken for all of it"


def _idle(windows: tuple[TargetWindow, ...], holders: set[str]) -> str:
    """How much of the time nothing ran: that energy is in the number."""
    ratios = {w.target: g.mean for w in windows if w.target in holders and (g := w.gauge("idle_ratio")) is not None}
    share = sum(ratios.values()) / len(ratios) if ratios else 0.0
    return f"nothing ran in {share:.0%} of the time, whose energy is in it" if share > 0 else ""


def _shared(found: list[_Device], scope: set[str]) -> str:
    """Who else holds these devices, as the begin of a sentence; "" when nobody outside of the scope does."""
    others = sorted({h for d in found for h in d.part.holders if h not in scope})
    strangers = sorted({d.part.strangers for d in found if d.part.strangers})
    names = [*(f"target {o}" for o in others), *strangers]
    return (
        f"the devices are shared with {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}" if names else ""
    )


def _note(windows: tuple[TargetWindow, ...], found: list[_Device]) -> str:
    """What must be said beside every number: who shares the devices, and which targets have none."""
    scope = {w.target for w in windows}
    bare = len(scope) - len({t for d in found for t in d.held_by})
    without = f"{bare} of {len(scope)} targets have no devices joined" if bare else ""
    return "; ".join(filter(None, (_shared(found, scope), without)))


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)


def _plain(text: str) -> str:
    return re.sub(r"%([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), text)
