"""What a target can tell: every canonical signal's status, source and value, and what to watch out for. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from collector._capability_notes import Remark, moment, remarks
from collector.accelerators._report import DeviceReport, device_remarks, device_reports
from collector.detect import fits
from collector.normalise import Resolved, Value
from collector.pipeline import Understood
from goodwatch.core.catalogue import ACCELERATOR_SIGNALS, CATALOGUE, OWN, Signal
from goodwatch.core.engine import Absent, Engine
from goodwatch.core.histogram import INF, mean, merged, quantile
from goodwatch.core.model import Histogram, Limits, SignalKind, SignalStatus

#: Below this many observations a bucket edge says little and the mean is the better number.
_FEW: Final = 10
#: Models or ranks that a value is split into on one line.
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class SignalReport:
    """One canonical signal on one page. ``value`` is a short text of what the page says now; ``why`` for absent ones."""

    name: str
    unit: str
    status: SignalStatus
    source: str  # native names, or "" when absent
    value: str
    number: float | None  # gauges and counters summed over series; observations of a histogram
    bounds: tuple[float, ...]  # finite bucket bounds of a histogram
    parts: tuple[str, ...]
    ranks: tuple[str, ...]
    why: str
    definition: str
    kernel: bool


@dataclass(frozen=True, slots=True)
class Capability:
    """The report of one page."""

    engine: str  # "" when no known engine wrote it
    title: str
    version: str
    version_basis: str
    models: tuple[str, ...]
    page_format: str
    page_samples: int
    signals: tuple[SignalReport, ...]
    remarks: tuple[Remark, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    unknown_families: int = 0
    devices: tuple[DeviceReport, ...] = ()  # of an accelerator exporter

    @property
    def counts(self) -> dict[SignalStatus, int]:
        """How many signals have each status."""
        return {status: sum(s.status is status for s in self.signals) for status in SignalStatus}


def capability(understood: Understood, limits: Limits | None = None, *, now_s: float | None = None) -> Capability:
    """The capability report of an understood page; with ``limits``, targets are held against the buckets."""
    page, engine, reading = understood.page, understood.engine, understood.reading
    if engine is None or reading is None:
        return Capability(
            "", "", "", "no known engine", (), page.format, len(page.samples), (), remarks(understood, Limits(), now_s)
        )
    of_devices = engine.role == "accelerator"
    signals = tuple(
        _report(signal, reading.resolved.get(signal.name), understood, engine)
        for signal in CATALOGUE.values()
        if signal.name not in OWN and (signal.name in ACCELERATOR_SIGNALS) == of_devices
    )
    found = remarks(understood, limits or Limits(), now_s)
    devices: tuple[DeviceReport, ...] = ()
    if of_devices:
        devices = device_reports(reading, understood.families, engine.name)
        told = device_remarks(reading, understood.families, engine.name)
        found = tuple(sorted((*found, *told), key=lambda r: r.level != "warning"))
    known = {f.name for f in understood.families}
    used = {r.wire for r in reading.resolved.values()}
    return Capability(
        engine.name, engine.title, understood.version.text, understood.version.basis, reading.models, page.format,
        len(page.samples), signals, found, dict(reading.facts), len(known - used), devices,
    )  # fmt: skip


def display_model(model: str) -> str:
    """A short name for a model label that is a path.

    Examples
    --------
    >>> display_model("/srv/models/Llama-3.2-3B/rev1/"), display_model("Qwen/Qwen3-8B")
    ('Llama-3.2-3B (rev1)', 'Qwen/Qwen3-8B')
    >>> display_model("/data/hub/models--Qwen--Qwen3-8B/snapshots/0a1b2c3d4e5f")
    'Qwen/Qwen3-8B'
    """
    hub = re.search(r"models--([^/]+?)--([^/]+)", model)
    if hub:
        return f"{hub[1]}/{hub[2]}"
    if not model.startswith(("/", "./", "../", "~")) and model.count("/") <= 1:
        return model
    steps = [s for s in model.split("/") if s]
    if len(steps) > 1 and re.fullmatch(r"(rev|v|r)?\d+(\.\d+)*|main|latest|[0-9a-f]{7,}", steps[-1]):
        return f"{steps[-2]} ({steps[-1]})"
    return steps[-1] if steps else model


def _report(signal: Signal, resolved: Resolved | None, understood: Understood, engine: Engine) -> SignalReport:
    if resolved is None:
        why = _why(signal, understood, engine)
        return SignalReport(
            signal.name, signal.unit, SignalStatus.ABSENT, "", "", None, (), (), (), why, signal.definition,
            signal.kernel,
        )  # fmt: skip
    source = resolved.source
    there = understood.families.get
    parts_of = (
        *(m for m in source.plus if there(m, source.type)),
        *(f"-{m}" for m in source.minus if there(m, source.type)),
        *(f"×{m}" for m in source.times),
        *(f"/{m}" for m in source.over),
    )
    text = resolved.wire + "".join(f" {p if p[0] in '-×/' else '+ ' + p}" for p in parts_of)
    if source.read == "label":
        text += "{" + ("×" if source.product else "|").join(source.labels) + "}"
    elif source.read != "value":
        text += f" ({source.read})"
    value, number, bounds = _value_text(signal, resolved)
    status = SignalStatus.DERIVED if source.derived or parts_of or source.read != "value" else SignalStatus.MEASURED
    if source.read == "label" and not source.product:
        status = SignalStatus.MEASURED
    return SignalReport(
        signal.name, signal.unit, status, text, value, number, bounds,
        tuple(sorted({v.part for v in resolved.values if v.part})),
        tuple(sorted({v.rank for v in resolved.values if v.rank})),
        source.note, signal.definition, signal.kernel,
    )  # fmt: skip


def _why(signal: Signal, understood: Understood, engine: Engine) -> str:
    """Why a signal is not on the page: named but without values, or the engine's own reason."""
    sources = engine.signals.get(signal.name, ())
    for source in sources:
        if understood.families.declared(source.metric) and understood.families.get(source.metric, source.type) is None:
            return f"{source.metric} is named on the page but has no values yet (no such event, or its flag is off)."
    reason = engine.absent.get(signal.name, Absent("the engine has no such series in this version"))
    version = str(understood.version)
    why = reason.why
    # Counters that are zeros from the start are there from the first page of a version on, unless a flag hides them.
    if (
        engine.zeros_from_start
        and not reason.flag
        and any(s.since and fits(version, s.since, s.until) for s in sources)
    ):
        why = f"{engine.title} {understood.version.text} has it, but this page does not: statistics are off, or it was cut"
    flag = f" Switch it on with {reason.flag}." if reason.flag else ""
    instead = f" Instead: {reason.instead}." if reason.instead else ""
    return f"{why}.{flag}{instead}"


def _value_text(signal: Signal, resolved: Resolved) -> tuple[str, float | None, tuple[float, ...]]:
    if signal.kind is SignalKind.HISTOGRAM:
        return _histogram_value(signal, resolved)
    values = [v.value for v in resolved.values if v.value is not None]
    number = sum(values) if signal.merge == "sum" else max(values)
    if signal.name == "process_start_seconds":
        return moment(number), number, ()
    text = _scalar_text(number, signal.unit)
    if signal.group == "accelerator":  # the devices are listed one by one beside it
        return (f"highest {text} of {len(values)} devices" if len(values) > 1 else text), number, ()
    split = _split(signal, resolved.values)
    return f"highest {text}{split}" if split and signal.merge != "sum" else text + split, number, ()


def _histogram_value(signal: Signal, resolved: Resolved) -> tuple[str, float | None, tuple[float, ...]]:
    whole = merged(v.histogram for v in resolved.values if v.histogram is not None)
    if whole is None:
        return "", None, ()
    bounds = tuple(b for b in whole.le if b != INF)
    if all(v.closed for v in resolved.values):
        return _histogram_text(whole, signal.unit), whole.total, bounds
    amount = "" if whole.sum is None else f"sum {_amount(whole.sum, signal.unit)}{_split(signal, resolved.values)}"
    if whole.total < 1 or whole.sum is None:
        return f"{amount}; count not on the page".lstrip("; "), None, bounds
    most = _amount(whole.sum / whole.total, signal.unit)
    return f"at least {whole.total:,.0f} seen, {amount}, so the mean is at most {most}", None, bounds


def _split(signal: Signal, values: Iterable[Value]) -> str:
    """The values of several models or ranks behind their sum; nothing for one."""
    found: dict[tuple[str, str], list[float]] = {}
    for v in values:
        value = v.value if v.histogram is None else v.histogram.sum
        if value is not None:
            found.setdefault((v.model, v.rank), []).append(value)
    if len(found) < 2:
        return ""
    models = len({model for model, _ in found}) > 1
    fold = sum if signal.merge == "sum" else max
    texts = [
        f"{' '.join(filter(None, (display_model(model) if models else '', rank)))}: "
        f"{_scalar_text(fold(numbers), signal.unit) if signal.unit == 'ratio' else _number(fold(numbers))}"
        for (model, rank), numbers in found.items()
    ]
    more = f", and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f" ({', '.join(texts[:_SHOWN])}{more})"


def _amount(value: float, unit: str) -> str:
    return _time(value) if unit == "s" else f"{_number(value)} {unit}"


def _scalar_text(number: float, unit: str) -> str:
    if unit == "ratio":
        return f"{number:.1%}"
    return f"{_number(number)} {unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"


def _histogram_text(whole: Histogram, unit: str) -> str:
    """Count, and the mean or the bucket of the median: with few observations only the mean says something."""
    if whole.total <= 0:
        return "no observation yet"
    average = mean(whole)
    text = f"{whole.total:,.0f} seen"
    if average is not None:
        text += f", mean {_time(average) if unit == 's' else _number(average) + ' ' + unit}"
    middle = quantile(whole, 0.5)
    if whole.total >= _FEW and middle is not None and unit == "s":
        high = f"{_time(middle.high)}" if middle.high is not None else "∞"
        text += f", p50 in {_time(middle.low)}–{high}"
    return text


def _time(seconds: float) -> str:
    if seconds == 0:
        return "0"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
