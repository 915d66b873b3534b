"""Reports for a terminal: capability of a target, phases of a replay."""

from collections.abc import Iterable
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from collector.accelerators._report import DeviceReport
from collector.capability import SignalReport, display_model
from goodwatch.app.inspecting import Inspected
from goodwatch.core.catalogue import CATALOGUE
from goodwatch.core.model import SignalStatus

_GLYPH: Final = {
    SignalStatus.MEASURED: ("●", "green"),
    SignalStatus.DERIVED: ("◐", "cyan"),
    SignalStatus.ABSENT: ("○", "dim"),
}
_GROUPS: Final = (
    "requests",
    "latency",
    "tokens",
    "cache",
    "http",
    "process",
    "config",
    "speculation",
    "disaggregation",
    "accelerator",
)

#: columns of the table of devices: title, signal, what one unit of the column is
_DEVICE_COLUMNS: Final = (
    ("busy %", "gpu_utilisation_ratio", 0.01),
    ("tensor %", "gpu_tensor_active_ratio", 0.01),
    ("memory %", "gpu_memory_bandwidth_ratio", 0.01),
    ("used GiB", "gpu_memory_used_bytes", 1024.0**3),
    ("of GiB", "gpu_memory_total_bytes", 1024.0**3),
    ("W", "gpu_power_watts", 1.0),
    ("kJ", "gpu_energy_joules_total", 1000.0),
    ("°C", "gpu_temperature_celsius", 1.0),
)


def show_capability(console: Console, inspected: Inspected, *, every: bool) -> None:
    """Print one report. Without ``every``, absent signals that no derived number needs are only counted."""
    report = inspected.capability
    _headline(console, inspected)
    if report.remarks:
        console.print()
    for remark in report.remarks:
        mark, style = ("▲", "bold yellow") if remark.level == "warning" else ("·", "dim")
        console.print(_hanging(mark, style, Text(plain(remark.text), "" if mark == "▲" else "dim")))
    if not report.signals:
        return
    console.print()
    if report.devices:
        console.print(_devices(report.devices))
        console.print()
    console.print(_present(report.signals))
    _absent(console, [s for s in report.signals if s.status is SignalStatus.ABSENT], every=every)


def _headline(console: Console, inspected: Inspected) -> None:
    report = inspected.capability
    console.print()
    about = f"  ({inspected.about})" if inspected.about else ""
    console.print(Text(plain(f"  {inspected.name}{about}"), style="dim"))
    if not report.engine:
        console.print(
            Text("  no engine that goodwatch knows", style="bold"), Text(f"  {report.page_samples} series", "dim")
        )
        return
    if report.devices:
        console.print(Text.assemble("  ", (report.title, "bold"), f"  {len(report.devices)} devices"))
    else:
        models = plain(", ".join(display_model(m) for m in report.models)) or "no model label"
        console.print(Text.assemble("  ", (f"{report.title} {report.version}".rstrip(), "bold"), f"  serving {models}"))
        console.print(_hanging(" ", "", Text(plain(f"version {report.version_basis}"), "dim")))
    counts = report.counts
    console.print(
        Text(
            f"  {report.page_samples} series as {report.page_format}; of {len(report.signals)} signals "
            f"{counts[SignalStatus.MEASURED]} measured, {counts[SignalStatus.DERIVED]} derived, "
            f"{counts[SignalStatus.ABSENT]} absent",
            "dim",
        )
    )


def plain(text: str) -> str:
    """Text from outside without control characters, which could steer the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _hanging(mark: str, style: str, text: Text) -> Padding:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column()
    grid.add_row(Text(mark, style), text)
    return Padding(grid, (0, 0, 0, 2))


def _present(signals: Iterable[SignalReport]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(width=3, justify="right")
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for group in _GROUPS:
        members = [s for s in signals if CATALOGUE[s.name].group == group and s.status is not SignalStatus.ABSENT]
        for signal in sorted(members, key=lambda s: not s.kernel):
            glyph, style = _GLYPH[signal.status]
            table.add_row(Text(glyph, style), signal.name, Text(plain(signal.value)), Text(plain(_source(signal))))
        if members:
            table.add_row()
    return table


def _devices(devices: Iterable[DeviceReport]) -> Table:
    """One row a device; "–" is not told."""
    shown = [*devices]
    columns = [c for c in _DEVICE_COLUMNS if any(c[1] in d.values for d in shown)]
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for title in ("device", "model", "host", "held by pod"):
        table.add_column(title, overflow="fold")
    for title, _, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for one in shown:
        cells = [f"{one.values[name] / unit:,.4g}" if name in one.values else "–" for _, name, unit in columns]
        number = f"{one.index}  " if one.index and one.index != one.key else ""
        texts = (number + one.key, one.product or "–", one.host or "–", ", ".join(one.pods) or "–")
        table.add_row(*(Text(plain(t)) for t in texts), *cells)
    return table


def _source(signal: SignalReport) -> str:
    source = signal.source
    if signal.parts:
        source += " by " + ", ".join(sorted({p.partition("=")[0] for p in signal.parts}))
    if signal.bounds:
        source += f", {len(signal.bounds)} bounds {_bound(signal.bounds[0], signal.unit)}–{_bound(signal.bounds[-1], signal.unit)}"
    return source


def _bound(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:g}"
    return f"{value * 1e3:g} ms" if 0 < value < 1 else f"{value:g} s"


def _absent(console: Console, signals: list[SignalReport], *, every: bool) -> None:
    """Absent signals under their common reason, those first that derived numbers need."""
    shown = [s for s in signals if every or s.kernel]
    by_reason: dict[str, list[str]] = {}
    for signal in shown:
        by_reason.setdefault(signal.why, []).append(signal.name)
    for why, names in by_reason.items():
        console.print(
            _hanging("○", "yellow" if not every else "dim", Text.assemble(", ".join(names), "  ", (why, "dim")))
        )
    if len(signals) > len(shown):
        rest = len(signals) - len(shown)
        console.print(f"  [dim]○ {rest} more signals are absent that no derived number needs; --all says why[/dim]")
    console.print()


def show_replay(console: Console, report: dict[str, Any]) -> None:
    """Print the phases of a replay."""
    console.print()
    what = f"{report['engine'] or 'no known engine'} {report['version'] or ''}".rstrip()
    console.print(Text.assemble("  ", (what, "bold"), (f"  {report['version_basis'] or ''}", "dim")))
    console.print(f"  [dim]{report['scrapes']} scrapes, {report['failed_scrapes']} failed[/dim]\n")
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for name in (
        "phase",
        "s",
        "requests",
        "out tok/s",
        "TTFT p50",
        "TTFT p90",
        "TPOT p90",
        "E2E p90",
        "attainment",
        "lost",
        "preempt",
        "KV max",
    ):
        table.add_column(name, justify="left" if name == "phase" else "right", no_wrap=True)
    for phase in report["phases"]:
        table.add_row(*_phase(phase))
    console.print(table)
    for note in dict.fromkeys(n for p in report["phases"] for n in p["notes"]):
        console.print(Text(f"  · {note}", "dim"))


def _phase(phase: dict[str, Any]) -> Iterable[str | Text]:
    return (
        Text(plain(phase["name"])),
        f"{phase['end'] - phase['start']:.0f}",
        _number(phase["requests"]),
        _number(phase["output_tokens_per_s"]),
        _seconds(phase["ttft_s"]["p50"]),
        _seconds(phase["ttft_s"]["p90"]),
        _seconds(phase["tpot_s"]["p90"]),
        _seconds(phase["e2e_s"]["p90"]),
        _share(phase["attainment"]),
        _number(phase["unaccounted"]),
        _number(phase["preemptions"]),
        "–" if phase["kv_cache_used_ratio_max"] is None else f"{phase['kv_cache_used_ratio_max']:.0%}",
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _seconds(pair: list[float | None] | None) -> str:
    if pair is None or pair[0] is None:
        return "–"
    return f">{pair[0]:g}" if pair[1] is None else f"{pair[0]:g}–{pair[1]:g}"


def _share(pair: list[float] | None) -> str:
    if pair is None:
        return "–"
    return f"{pair[0]:.1%}" if pair[1] - pair[0] < 0.0005 else f"{pair[0]:.1%}–{pair[1]:.1%}"
