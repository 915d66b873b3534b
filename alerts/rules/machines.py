"""Alerts of accelerators: faults, and clocks that are held down. One alert for each kind, never one for each device."""

from collections.abc import Iterator

from alerts.rules.promql import selector
from alerts.rules.sources import lives, usable
from alerts.rules.values import Alert, Group, Options
from goodwatch.core.engine import Source

#: NVIDIA's XIDs that a program causes, not the hardware: page faults, illegal instructions, resets by the driver
_SOFTWARE_XIDS = (13, 31, 43, 45, 68)


def machine_group(options: Options) -> Group | None:
    """Alerts over the accelerators whose exporters are known; None without any."""
    alerts = (*_fault(options), *_throttled(options))
    return Group("goodwatch-accelerators", options.interval_s, alerts) if alerts else None


def _sources(options: Options, signal: str) -> Iterator[Source]:
    for table in options.accelerators.values():
        yield from (
            s for s in table.signals.get(signal, ()) if usable(s) and lives(s, options.versions.get(table.name))
        )


def _fault(options: Options) -> Iterator[Alert]:
    parts = []
    for source in _sources(options, "gpu_error_code"):
        code = selector(source.metric)
        soft = "".join(f" != {xid}" for xid in _SOFTWARE_XIDS)
        # The last code stays for good, also for a Prometheus that has just begun to look: only a change is news.
        parts.append(f"({code} > 0{soft} and changes({code}[15m]) > 0)")
    parts += [f"({selector(source.metric)} == 0)" for source in _sources(options, "gpu_healthy")]
    for source in _sources(options, "gpu_errors_total"):
        name = f"{source.metric}_total" if source.type == "counter" else source.metric
        parts.append(f"(increase({selector(name)}[15m]) > 0)")
    if parts:
        yield Alert(
            "LlmGpuFault", "gpu-fault", f"count({' or '.join(dict.fromkeys(parts))}) > 0", options.ticket,
            "{{ $value }} accelerators reported a hardware fault within the last 15 minutes.",
            description="A new error code, a failed health check or uncorrectable memory errors.",
            keep_firing_for_s=1_800.0,
        )  # fmt: skip


def _throttled(options: Options) -> Iterator[Alert]:
    """A busy device far under the clock that it reached within a day; idle ones clock down by themselves."""
    parts = []
    for table in options.accelerators.values():
        busy = next((s for s in table.signals.get("gpu_utilisation_ratio", ()) if usable(s)), None)
        clock = next((s for s in table.signals.get("gpu_clock_hertz", ()) if usable(s)), None)
        if busy is None or clock is None:
            continue
        low = f"avg_over_time({clock.metric}[10m]) < 0.75 * max_over_time({clock.metric}[1d])"
        load = f"avg_over_time({busy.metric}[10m]) > {0.5 / busy.scale:.12g}"
        parts.append(f"({low} and {load})")
    if parts:
        yield Alert(
            "LlmGpuThrottled", "gpu-throttled", f"count({' or '.join(parts)}) > 0", options.ticket,
            "{{ $value }} busy accelerators run under three quarters of the clock that they reached within a day.",
            description="Heat, a power cap or a fault holds the clock down: the same work takes longer.",
            for_s=900.0,
        )  # fmt: skip
