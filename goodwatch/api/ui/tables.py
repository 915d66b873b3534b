"""The tables of the pages: models, targets, limits that bind, and what a target can tell. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from collector.capability import Capability, SignalReport, display_model
from goodwatch.api.ui.bars import Tone, tone_above, tone_below
from goodwatch.api.ui.format import Shown, digits, scalar, seconds, shown
from goodwatch.api.ui.tiles import tail
from goodwatch.app.view import DeviceView, ServiceView, TargetView
from goodwatch.core.catalogue import CATALOGUE
from goodwatch.core.model import Limits, Number
from goodwatch.signals.derive import MEANINGS, Derived
from goodwatch.signals.saturation import Saturation

TargetState = Literal["up", "down", "not read yet"]

#: bounds of a histogram that are named; the rest is counted
_NAMED_BOUNDS: Final = 6
LIMIT_TITLES: Final = {"kv_cache": "KV cache", "batch_slots": "batch slots", "compute": "compute"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A number in a table and how it stands to its target."""

    number: Shown
    tone: Tone = ""
    prefix: str = ""  # which quantile, where that can differ


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model of a service: its short name, and its full one."""

    name: str
    full: str
    cells: tuple[Cell, ...]


MODEL_COLUMNS: Final = (
    "Attainment", "Goodput", "Requests", "TTFT", "TPOT", "Output tokens", "KV max", "Cost / 1M output",
)  # fmt: skip


def model_rows(service: ServiceView) -> tuple[ModelRow, ...]:
    """One row a model, in the order of ``MODEL_COLUMNS``."""
    return tuple(
        ModelRow(display_model(name), name, derived_cells(derived, service.limits, service.objective))
        for name, derived in sorted(service.by_model.items())
    )


def derived_cells(derived: Derived, limits: Limits, objective: float | None) -> tuple[Cell, ...]:
    """The numbers of one row, in the order of ``MODEL_COLUMNS``."""
    numbers = derived.numbers
    attainment = numbers["attainment_ratio"]
    return (
        Cell(shown(attainment), tone_above(attainment.bounds, objective)),
        Cell(shown(numbers["goodput_per_s"])),
        Cell(shown(numbers["request_rate_per_s"])),
        _latency(numbers, "ttft", limits.ttft_s),
        _latency(numbers, "tpot", limits.tpot_s),
        Cell(shown(numbers["output_tokens_per_s"])),
        Cell(shown(numbers["kv_cache_used_max_ratio"])),
        Cell(shown(numbers["usd_per_million_output_tokens"])),
    )


def _latency(numbers: Mapping[str, Number], name: str, limit_s: float | None) -> Cell:
    q, number = tail(numbers, name)
    return Cell(shown(number), tone_below(number.bounds, limit_s), "" if number.absence else q)


@dataclass(frozen=True, slots=True)
class NumberRow:
    """One derived number with its name and meaning."""

    name: str
    number: Shown
    meaning: str


def number_rows(derived: Derived | None) -> tuple[NumberRow, ...]:
    """Every derived number in the order of ``MEANINGS``; empty until there are some."""
    if derived is None:
        return ()
    return tuple(NumberRow(name, shown(derived.numbers[name]), m.text) for name, m in MEANINGS.items())


def named_rows(numbers: Mapping[str, Number]) -> tuple[NumberRow, ...]:
    """Some derived numbers in the order of ``MEANINGS``."""
    return tuple(NumberRow(n, shown(numbers[n]), m.text) for n, m in MEANINGS.items() if n in numbers)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One accelerator; "–" is not told."""

    device: DeviceView
    busy: str
    memory: str
    power: str


def device_table(devices: Iterable[DeviceView]) -> tuple[DeviceRow, ...]:
    """One row a device."""
    rows = []
    for one in devices:
        busy, watts = one.values.get("gpu_utilisation_ratio"), one.values.get("gpu_power_watts")
        used, size = one.values.get("gpu_memory_used_bytes"), one.values.get("gpu_memory_total_bytes")
        amounts = ["–" if v is None else digits(v / 1024**3) for v in (used, size)]
        rows.append(
            DeviceRow(
                one,
                "–" if busy is None else " ".join(scalar("ratio", busy)),
                "–" if used is None and size is None else f"{' of '.join(amounts)} GiB",
                "–" if watts is None else f"{digits(watts)} W",
            )
        )
    return tuple(rows)


def target_state(target: TargetView) -> TargetState:
    """Whether a target answers, in a word."""
    return "not read yet" if target.up is None else "up" if target.up else "down"


def up_count(targets: Iterable[TargetView]) -> tuple[int, int]:
    """How many targets answer, of how many."""
    states = [t.up is True for t in targets]
    return sum(states), len(states)


@dataclass(frozen=True, slots=True)
class BindingRow:
    """What holds a target back, and how near it is to its other limits."""

    target: str
    limit: str
    reason: str
    others: str


def binding_rows(saturations: Iterable[Saturation]) -> tuple[BindingRow, ...]:
    """One row a target in which a limit binds."""
    rows = []
    for found in saturations:
        if found.binding is None:
            continue
        others = [limit.reason for limit in found.limits if limit.name != found.binding.name]
        title = LIMIT_TITLES.get(found.binding.name, found.binding.name)
        rows.append(BindingRow(found.target, title, found.binding.reason, "; ".join(others)))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One signal of the capability report."""

    report: SignalReport
    bounds: str


@dataclass(frozen=True, slots=True)
class SignalGroup:
    """The signals of one group of the catalogue, those first that every number stands on."""

    name: str
    rows: tuple[SignalRow, ...]


def signal_groups(report: Capability) -> tuple[SignalGroup, ...]:
    """The capability report in the catalogue's groups and order."""
    groups: dict[str, list[SignalReport]] = {}
    for signal in report.signals:
        groups.setdefault(CATALOGUE[signal.name].group, []).append(signal)
    return tuple(
        SignalGroup(name, tuple(SignalRow(s, bounds_text(s)) for s in sorted(members, key=lambda s: not s.kernel)))
        for name, members in groups.items()
    )


def bounds_text(signal: SignalReport) -> str:
    """The bucket bounds of a histogram: all of a few, else the ends and how many there are."""
    texts = [seconds(b) if signal.unit == "s" else digits(b) for b in signal.bounds]
    if len(texts) <= _NAMED_BOUNDS:
        return ", ".join(texts)
    return f"{', '.join(texts[:3])} … {texts[-1]} ({len(texts)} bounds)"
