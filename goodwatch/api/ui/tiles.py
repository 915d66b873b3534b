"""The big numbers of a service or target, each with what it is held against. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from goodwatch.api.ui.bars import Bar, Tone, attainment_bar, latency_bar, tone_above, tone_below
from goodwatch.api.ui.format import Shown, scalar, seconds, shown
from goodwatch.app.view import ServiceView, TargetView
from goodwatch.core.model import Absence, Basis, Limits, Number
from goodwatch.signals.derive import MEANINGS

#: latencies that can have a target: name, title, field of Limits
_TARGETED: Final = (("ttft", "TTFT", "ttft_s"), ("tpot", "TPOT", "tpot_s"), ("e2e", "E2E", "e2e_s"))


@dataclass(frozen=True, slots=True)
class Tile:
    """One big number: ``note`` is the line below it, ``help`` says what it means."""

    label: str
    number: Shown
    note: str
    help: str
    tone: Tone = ""
    bar: Bar | None = None
    note_tone: Tone = ""

    @property
    def size(self) -> str:
        """How large the number is written, so that none is ever cut off."""
        length = len(self.number.text)
        return "" if length <= 8 else "long" if length <= 11 else "longer"

    @property
    def basis(self) -> str:
        """The basis where it is not the plain one, which would only be noise on every tile."""
        return "" if self.number.basis == Basis.MEASURED else self.number.basis


def service_tiles(service: ServiceView) -> tuple[Tile, ...]:
    """What the overview and the head of a service page show."""
    return _tiles(service.derived.numbers, service.limits, service.objective)


def target_tiles(target: TargetView, limits: Limits, objective: float | None) -> tuple[Tile, ...]:
    """The same numbers for one target; empty until it was read."""
    return _tiles(target.derived.numbers, limits, objective) if target.derived else ()


def _tiles(numbers: Mapping[str, Number], limits: Limits, objective: float | None) -> tuple[Tile, ...]:
    latencies = [_latency(numbers, name, title, getattr(limits, field)) for name, title, field in _TARGETED]
    shown_latencies = [t for (_, _, field), t in zip(_TARGETED, latencies, strict=True) if _wanted(limits, field)]
    return (
        _attainment(numbers, objective),
        *shown_latencies,
        _goodput(numbers),
        _rate(numbers),
        _cost(numbers),
        _kv(numbers),
        _load(numbers),
    )


def _wanted(limits: Limits, field: str) -> bool:
    """E2E is shown where it has a target; the other two always."""
    return field != "e2e_s" or limits.e2e_s is not None


def _attainment(numbers: Mapping[str, Number], objective: float | None) -> Tile:
    number = numbers["attainment_ratio"]
    note = "no objective" if objective is None else "objective " + " ".join(scalar("ratio", objective))
    return Tile(
        "Attainment", shown(number), note, MEANINGS["attainment_ratio"].text,
        tone_above(number.bounds, objective), attainment_bar(number, objective),
    )  # fmt: skip


def _latency(numbers: Mapping[str, Number], name: str, title: str, limit_s: float | None) -> Tile:
    q, number = tail(numbers, name)
    note = "no target" if limit_s is None else f"target {seconds(limit_s)}"
    return Tile(
        f"{title} {q}", shown(number), note, MEANINGS[f"{name}_{q}_seconds"].text, tone_below(number.bounds, limit_s),
        latency_bar(number, limit_s),
    )  # fmt: skip


def tail(numbers: Mapping[str, Number], name: str) -> tuple[str, Number]:
    """The highest quantile that the traffic supports: p99, else p90, else p50; the p99's reason when none is."""
    for q in ("p99", "p90", "p50"):
        number = numbers[f"{name}_{q}_seconds"]
        if number.absence is None:
            return q, number
    return "p99", numbers[f"{name}_p99_seconds"]


def _goodput(numbers: Mapping[str, Number]) -> Tile:
    number = numbers["goodput_per_s"]
    return Tile("Goodput", shown(number), "good requests", MEANINGS["goodput_per_s"].text)


def _rate(numbers: Mapping[str, Number]) -> Tile:
    number = numbers["request_rate_per_s"]
    lost = [
        (word, n)
        for word, name in (("failed", "failed_per_s"), ("unaccounted", "unaccounted_per_s"))
        if (n := numbers[name]).value
    ]
    tone: Tone = "bad" if any(word == "failed" for word, _ in lost) else "warning" if lost else ""
    note = " · ".join(f"{shown(n).line} {word}" for word, n in lost) or _none_lost(numbers)
    return Tile("Requests", shown(number), note, MEANINGS["request_rate_per_s"].text, note_tone=tone)


def _none_lost(numbers: Mapping[str, Number]) -> str:
    if numbers["request_rate_per_s"].absence is not None:
        return ""
    return "arrivals unknown" if numbers["unaccounted_per_s"].absence else "ended; none lost"


def _cost(numbers: Mapping[str, Number]) -> Tile:
    idle, hour = numbers["idle_ratio"], numbers["usd_per_hour"]
    parts = [] if hour.absence else [shown(hour).line.replace(" /h", "/h")]
    if idle.absence is None and hour.absence is None:
        parts.append(f"{shown(idle).line} idle")
    number = numbers["usd_per_million_output_tokens"]
    note = " · ".join(parts) or ("no price" if number.absence is Absence.NOT_MEASURABLE else "")
    return Tile("Cost / 1M output", shown(number), note, MEANINGS["usd_per_million_output_tokens"].text)


def _kv(numbers: Mapping[str, Number]) -> Tile:
    number, mean = numbers["kv_cache_used_max_ratio"], numbers["kv_cache_used_ratio"]
    preempted = numbers["preemptions_per_s"].value
    note = "preempting" if preempted else "" if mean.absence else f"mean {shown(mean).line}"
    text = MEANINGS["kv_cache_used_max_ratio"].text
    tone: Tone = "warning" if preempted else ""
    return Tile("KV cache max", shown(number), note, text, note_tone=tone)


def _load(numbers: Mapping[str, Number]) -> Tile:
    running, waiting = shown(numbers["requests_running"]), shown(numbers["requests_waiting"])
    help_text = "requests in the batch / waiting, mean over the window"
    if running.kind != "value":
        return Tile("Running / waiting", running, "", help_text)
    both = Shown(f"{running.text} / {waiting.text}", "", running.title, "value", running.basis)
    tone: Tone = "warning" if (numbers["requests_waiting"].value or 0.0) >= 1 else ""
    return Tile("Running / waiting", both, "requests, mean", help_text, tone)
