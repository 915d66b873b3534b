"""What a window cost and what a million tokens cost in it (design §4). Pure.

Cost per million tokens = price of the GPUs held over the window / tokens in the window × 10^6. Idle time is paid for,
so it is in; how much of the bill was idle is told beside it. Per good token stays null until request facts exist: a
share of requests is no share of tokens.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from goodwatch.core.model import Absence, Basis, Number
from goodwatch.signals.windows import Span, TargetWindow


@dataclass(frozen=True, slots=True)
class Price:
    """What one target holds and what that costs; None is not configured."""

    gpus: float | None
    gpu_hour_usd: float | None
    source: str = ""  # where the price is from, with its date

    @property
    def usd_per_hour(self) -> float | None:
        """Price of everything the target holds, per hour."""
        return None if self.gpus is None or self.gpu_hour_usd is None else self.gpus * self.gpu_hour_usd


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a window over all targets. ``idle_usd`` is the part paid while nothing ran."""

    usd: Number
    idle_usd: Number
    usd_per_hour: Number
    usd_per_million_output_tokens: Number
    usd_per_million_tokens: Number
    usd_per_million_good_tokens: Number


def idle_ratio(window: TargetWindow) -> float | None:
    """Share of the window in which nothing ran; None when the engine does not say how many requests run."""
    idle = window.gauge("idle_ratio")
    return None if idle is None else idle.mean


def cost(windows: Iterable[TargetWindow], prices: dict[str, Price], seconds: float) -> Cost:
    """Cost of a window.

    Parameters
    ----------
    windows
        One per target and model; a target with several models is paid once.
    prices
        By target name.
    seconds
        Length of the window. A target is paid for as long as it was there (``TargetWindow.held``), up or down.
    """
    items = list(windows)
    targets = {w.target for w in items}
    if not items:
        return _nowhere(Absence.NO_DATA, "")
    missing = sorted(t for t in targets if t not in prices or prices[t].usd_per_hour is None)
    if missing:
        note = f"no price for {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
        return _nowhere(Absence.NOT_MEASURABLE, note + "; set gpus and gpu_hour_usd, or prices")
    hourly = {t: prices[t].usd_per_hour or 0.0 for t in targets}
    held = {w.target: _held_s(w, seconds) for w in items}
    spent = sum(price * held[t] for t, price in hourly.items()) / 3600
    note = "; ".join(sorted({prices[t].source for t in targets if prices[t].source}))
    output, entered = _sum(items, "output_tokens_total"), _sum(items, "input_tokens_total")
    every = None if output is None or entered is None else output + entered
    good = Number.none("USD", Absence.NOT_MEASURABLE, "needs request facts: a share of requests is no share of tokens")
    return Cost(
        Number("USD", Basis.MEASURED, spent, note=note),
        _idle(items, hourly, held),
        Number("USD/h", Basis.MEASURED, spent * 3600 / covered_s(items, seconds), note=note),
        _per_million(spent, output, note),
        _per_million(spent, every, note),
        good,
    )


def covered_s(windows: Iterable[TargetWindow], seconds: float) -> float:
    """Seconds of a window in which any target was there; all of it where that is not told, or nothing is."""
    covered, until = 0.0, -math.inf
    spans: list[Span] = []
    for window in windows:
        if window.held is None:
            return seconds
        spans += window.held
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return min(covered, seconds) or seconds


def _held_s(window: TargetWindow, seconds: float) -> float:
    return seconds if window.held is None else min(window.held_s, seconds)


def _idle(windows: list[TargetWindow], hourly: dict[str, float], held: Mapping[str, float]) -> Number:
    usd = 0.0
    for target, price in hourly.items():
        if not price:  # a router holds no GPUs: nothing of it can stand idle
            continue
        ratios = [idle_ratio(w) for w in windows if w.target == target]
        known = [r for r in ratios if r is not None]
        if len(known) < len(ratios):
            return Number.none("USD", Absence.NOT_MEASURABLE, f"{target} does not say how many requests run")
        usd += min(known) * price * held[target] / 3600
    return Number("USD", Basis.MEASURED, usd)


def _per_million(spent: float, tokens: float | None, note: str) -> Number:
    if tokens is None:
        return Number.none("USD", Absence.NOT_MEASURABLE, "this engine does not count tokens")
    if tokens <= 0:
        return Number.none("USD", Absence.NO_TRAFFIC, "no tokens in the window, though it was paid for")
    return Number("USD", Basis.MEASURED, spent / tokens * 1e6, note=note)


def _nowhere(absence: Absence, note: str) -> Cost:
    none = Number.none("USD", absence, note)
    return Cost(none, none, none, none, none, none)


def _sum(windows: list[TargetWindow], signal: str) -> float | None:
    """Tokens of the targets that were read; one that is down is paid for and makes none."""
    found = [w.counter(signal) for w in windows if (up := w.gauge("up")) is None or up.max > 0]
    known = [v for v in found if v is not None]
    return sum(known) if known and len(known) == len(found) else None
