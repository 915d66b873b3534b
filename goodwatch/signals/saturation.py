"""Which limit binds first, and whether work stands still. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from goodwatch.signals.windows import TargetWindow

#: A pool fuller than this leaves no room for another long request; vLLM and SGLang start to preempt near full.
_FULL_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit and how near the target came to it; ``used_ratio`` 1 is at the limit, None unknown."""

    name: str
    used_ratio: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Saturation:
    """All limits of a target, fullest first; ``binding`` is the one that binds now, None when none does."""

    target: str
    limits: tuple[Limit, ...]
    binding: Limit | None


def saturation(window: TargetWindow) -> Saturation:
    """Which limit of one target binds first in a window.

    Preemptions prove that the KV cache binds. Requests that wait with KV room left are held by the batch's slots
    where the engine names its limit and is at it, else by compute: the prefill budget or the batch limit.
    """
    limits = [limit for limit in (_kv(window), _slots(window)) if limit is not None]
    binding = _binding(window, limits)
    if binding is not None and binding.name not in {limit.name for limit in limits}:
        limits.append(binding)
    ordered = sorted(limits, key=lambda limit: -(limit.used_ratio or 0.0))
    return Saturation(window.target, tuple(ordered), binding)


def _kv(window: TargetWindow) -> Limit | None:
    used = window.gauge("kv_cache_used_ratio")
    return None if used is None else Limit("kv_cache", used.max, f"KV cache at most {used.max:.0%} used")


def _slots(window: TargetWindow) -> Limit | None:
    running, slots = window.gauge("requests_running"), window.gauge("max_running_requests")
    if running is None or slots is None or slots.max <= 0:
        return None
    return Limit("batch_slots", running.max / slots.max, f"at most {running.max:.0f} of {slots.max:.0f} slots used")


def _binding(window: TargetWindow, limits: Sequence[Limit]) -> Limit | None:
    preempted = window.counter("preemptions_total")
    by_name = {limit.name: limit for limit in limits}
    if preempted:
        kv = by_name.get("kv_cache")
        return Limit(
            "kv_cache",
            kv.used_ratio if kv else None,
            f"{preempted:.0f} preemption{'s' * (preempted != 1)}: requests lost their KV space",
        )
    waiting = window.gauge("requests_waiting")
    if waiting is None or waiting.mean < 1:
        return None
    full = [limit for limit in limits if limit.used_ratio is not None and limit.used_ratio >= _FULL_RATIO]
    if full:
        return max(full, key=lambda limit: limit.used_ratio or 0.0)
    return Limit(
        "compute", None, f"{waiting.mean:.0f} requests wait on average with KV room left: the batch is at its limit"
    )


@dataclass(frozen=True, slots=True)
class Stall:
    """Work is there and nothing moves. ``since_s`` is the last scrape that saw progress."""

    target: str
    since_s: float
    intervals: int
    running: float
    waiting: float


def stalls(rows: pl.DataFrame, *, intervals: int = 3) -> list[Stall]:
    """Targets whose last ``intervals`` scrapes had work and no progress, though each was answered.

    ``rows`` are steps (``frames.MINUTES`` with scrape instants), any number of targets.
    """
    found: list[Stall] = []
    for (target,), steps in rows.group_by("target"):
        stall = _stall(str(target), steps, intervals)
        if stall is not None:
            found.append(stall)
    return sorted(found, key=lambda s: s.target)


def _stall(target: str, steps: pl.DataFrame, intervals: int) -> Stall | None:
    times = steps["minute_s"].unique().sort(descending=True).to_list()
    idle_times: list[float] = []
    running = waiting = 0.0
    for at in times:
        one = steps.filter(pl.col("minute_s") == at)
        if not _stands_still(one):
            break
        if not idle_times:
            running, waiting = _gauge(one, "requests_running"), _gauge(one, "requests_waiting")
        idle_times.append(at)
    if len(idle_times) < intervals:
        return None
    earlier = [t for t in times if t < idle_times[-1]]
    return Stall(target, earlier[0] if earlier else idle_times[-1], len(idle_times), running, waiting)


def _stands_still(one: pl.DataFrame) -> bool:
    if _gauge(one, "up") != 1.0 or _gauge(one, "requests_running") + _gauge(one, "requests_waiting") < 1:
        return False
    moving = one.filter(pl.col("signal") == "progress_total")
    return moving.height > 0 and float(moving["increase"].sum()) == 0.0


def _gauge(one: pl.DataFrame, signal: str) -> float:
    values = one.filter(pl.col("signal") == signal)["last"]
    return float(values.sum()) if len(values) else 0.0


def binding_limits(windows: Iterable[TargetWindow]) -> list[Saturation]:
    """Saturation of every target in which a limit binds."""
    return [s for s in (saturation(w) for w in windows) if s.binding is not None]
