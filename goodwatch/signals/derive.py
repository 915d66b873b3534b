"""Every derived number of a scope (service, model or target) in a window, under one stable name each. Pure.

The same names are shown on the pages, kept in the store, and exported (``goodwatch_`` + name).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from goodwatch.core.engine import Engine
from goodwatch.core.model import Absence, Basis, Bounds, Limits, Number
from goodwatch.signals.cost import Price, cost
from goodwatch.signals.energy import ENERGY_MEANINGS, NO_EXPORTER, energy_numbers
from goodwatch.signals.goodput import Goodput, service_goodput
from goodwatch.signals.latency import QUANTILES, observed, observed_mean
from goodwatch.signals.windows import TargetWindow

LATENCIES: Final = ("ttft", "tpot", "itl", "e2e", "queue", "prefill", "decode")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a derived name says: unit, one line for a person."""

    unit: str
    text: str


def _latency_meanings() -> dict[str, Meaning]:
    out: dict[str, Meaning] = {}
    for name in LATENCIES:
        for q in QUANTILES:
            out[f"{name}_p{q * 100:.0f}_seconds"] = Meaning(
                "s", f"{name} p{q * 100:.0f}, engine's clock, as an interval"
            )
        out[f"{name}_mean_seconds"] = Meaning("s", f"{name} mean, engine's clock")
    return out


#: every derived name, its unit and meaning; order is the order in which pages show them
MEANINGS: Final[dict[str, Meaning]] = {
    "attainment_ratio": Meaning("ratio", "good over valid requests that ended in the window"),
    "goodput_per_s": Meaning("1/s", "requests a second that met every target"),
    "request_rate_per_s": Meaning("1/s", "requests a second that ended"),
    "unaccounted_per_s": Meaning("1/s", "requests a second that reached the server and left no finished entry"),
    "failed_per_s": Meaning("1/s", "requests a second that the server answered with an error or refused"),
    "input_tokens_per_s": Meaning("1/s", "prompt tokens a second, cached ones included"),
    "output_tokens_per_s": Meaning("1/s", "generated tokens a second"),
    **_latency_meanings(),
    "requests_running": Meaning("requests", "requests in the batch, mean over the window"),
    "requests_waiting": Meaning("requests", "requests that wait, mean over the window"),
    "kv_cache_used_ratio": Meaning("ratio", "KV pool in use, mean over the window"),
    "kv_cache_used_max_ratio": Meaning("ratio", "KV pool in use, fullest moment of the fullest engine"),
    "prefix_hit_ratio": Meaning("ratio", "prompt tokens found in the prefix cache over those looked up"),
    "preemptions_per_s": Meaning("1/s", "running requests a second that lost their KV space"),
    "usd_per_hour": Meaning("USD/h", "price of the GPUs held"),
    "idle_ratio": Meaning("ratio", "share of the window in which nothing ran"),
    "idle_usd_per_hour": Meaning("USD/h", "price of the GPUs held while nothing ran"),
    "usd_per_million_output_tokens": Meaning("USD", "cost of a million generated tokens, idle time in it"),
    "usd_per_million_tokens": Meaning("USD", "cost of a million tokens, prompt and generated, idle time in it"),
    "usd_per_million_good_tokens": Meaning("USD", "cost of a million tokens of good requests"),
    **{name: Meaning(unit, text) for name, (unit, text) in ENERGY_MEANINGS.items()},
}


#: names that one scrape can already tell; all others need an increase between two
_FROM_GAUGES: Final = frozenset(
    {
        "requests_running", "requests_waiting", "kv_cache_used_ratio", "kv_cache_used_max_ratio", "usd_per_hour",
        "idle_ratio",
    }
)  # fmt: skip
_FROM_COUNTERS: Final = tuple(name for name in MEANINGS if name not in _FROM_GAUGES)
_ONE_SCRAPE: Final = "one scrape so far; counts need two"


@dataclass(frozen=True, slots=True)
class Derived:
    """All numbers of one scope in one window; ``goodput`` keeps the counts behind the attainment."""

    start_s: float
    end_s: float
    numbers: Mapping[str, Number]
    goodput: Goodput | None
    windows: tuple[TargetWindow, ...]


def derive(
    windows: Iterable[TargetWindow],
    engines: Mapping[str, Engine],
    limits: Limits,
    prices: Mapping[str, Price],
    *,
    start_s: float,
    end_s: float,
    no_devices: str = NO_EXPORTER,
) -> Derived:
    """Every name of ``MEANINGS`` for these windows together; a name that cannot be told says why.

    ``no_devices`` is what to say of energy where the windows hold no accelerator.
    """
    items = tuple(windows)
    seconds = max((w.seconds for w in items), default=0.0) or end_s - start_s
    if not items or not any((g := w.gauge("up")) and g.max > 0 for w in items):
        note = "no target was read in this window" if items else "no target"
        none = {name: Number.none(m.unit, Absence.NO_DATA, note) for name, m in MEANINGS.items()}
        return Derived(start_s, end_s, none, None, items)
    goodput = service_goodput(items, engines, limits)
    numbers = {
        **_goodput_numbers(goodput, limits, seconds),
        "input_tokens_per_s": _rate(items, "input_tokens_total", seconds),
        "output_tokens_per_s": _rate(items, "output_tokens_total", seconds),
        **_latencies(items),
        **_load(items, seconds),
        **_costs(items, dict(prices), seconds),
        **energy_numbers(items, why=no_devices),
    }
    if not any(_tells_failures(w) for w in items):
        numbers["failed_per_s"] = Number.none("1/s", Absence.NOT_MEASURABLE, "no counter of failures is on these pages")
    if not any(w.seconds for w in items):
        numbers |= {name: Number.none(MEANINGS[name].unit, Absence.NO_DATA, _ONE_SCRAPE) for name in _FROM_COUNTERS}
    return Derived(start_s, end_s, {name: numbers[name] for name in MEANINGS}, goodput, items)


def _tells_failures(window: TargetWindow) -> bool:
    """Whether anything on the page would move when a request fails; without it, none counted is not none failed."""
    counters = ("http_requests_total", "requests_failed_total", "requests_rejected_total")
    told = any(window.counter(name) is not None for name in counters)
    return told or window.counter("requests_finished_total", "finished_reason=error") is not None


def _goodput_numbers(goodput: Goodput | None, limits: Limits, seconds: float) -> dict[str, Number]:
    names = ("attainment_ratio", "goodput_per_s", "request_rate_per_s", "unaccounted_per_s", "failed_per_s")
    if goodput is None:
        return {n: Number.none(MEANINGS[n].unit, Absence.NOT_MEASURABLE, "no counter of ended requests") for n in names}
    note = "; ".join((*goodput.broken, *goodput.notes))
    unaccounted = (
        Number.none("1/s", Absence.NOT_MEASURABLE, "this engine does not count arrivals")
        if goodput.unaccounted is None
        else Number("1/s", Basis.MEASURED, goodput.unaccounted / seconds)
    )
    return {
        "attainment_ratio": _attainment(goodput, limits, note),
        "goodput_per_s": _good_rate(goodput, limits, seconds, note),
        "request_rate_per_s": Number("1/s", Basis.MEASURED, goodput.ended / seconds),
        "unaccounted_per_s": unaccounted,
        "failed_per_s": Number("1/s", Basis.MEASURED, goodput.failed / seconds),
    }


def _attainment(goodput: Goodput, limits: Limits, note: str) -> Number:
    if not limits.items():
        return Number.none("ratio", Absence.NOT_MEASURABLE, "this service has no latency targets; set services[].slo")
    if not goodput.valid.high:
        return Number.none("ratio", Absence.NO_TRAFFIC, "no request ended in the window")
    if goodput.attainment is None:
        return Number.none("ratio", Absence.NOT_MEASURABLE, note)
    return Number("ratio", Basis.BOUNDED, bounds=goodput.attainment, note=note)


def _good_rate(goodput: Goodput, limits: Limits, seconds: float, note: str) -> Number:
    if not limits.items():
        return Number.none("1/s", Absence.NOT_MEASURABLE, "this service has no latency targets; set services[].slo")
    if goodput.broken:
        return Number.none("1/s", Absence.NOT_MEASURABLE, note)
    high = None if goodput.good.high is None else goodput.good.high / seconds
    return Number("1/s", Basis.BOUNDED, bounds=Bounds(goodput.good.low / seconds, high))


def _latencies(windows: tuple[TargetWindow, ...]) -> dict[str, Number]:
    out: dict[str, Number] = {}
    for name in LATENCIES:
        signal = f"{name}_seconds"
        for q in QUANTILES:
            out[f"{name}_p{q * 100:.0f}_seconds"] = observed(windows, signal, q)
        out[f"{name}_mean_seconds"] = observed_mean(windows, signal)
    return out


def _load(windows: tuple[TargetWindow, ...], seconds: float) -> dict[str, Number]:
    return {
        "requests_running": _gauge(windows, "requests_running", sum, "requests"),
        "requests_waiting": _gauge(windows, "requests_waiting", sum, "requests"),
        "kv_cache_used_ratio": _kv_mean(windows),
        "kv_cache_used_max_ratio": _kv_max(windows),
        "prefix_hit_ratio": prefix_hit_ratio(windows),
        "preemptions_per_s": _rate(windows, "preemptions_total", seconds),
    }


def prefix_hit_ratio(windows: Iterable[TargetWindow]) -> Number:
    """Prompt tokens found over looked up, from counter increases (never from an engine-made ratio)."""
    items = list(windows)
    hits, queries = total(items, "prefix_cache_hits_total"), total(items, "prefix_cache_queries_total")
    if hits is None or queries is None:
        return Number.none("ratio", Absence.NOT_MEASURABLE, "no counters of prefix-cache lookups")
    if queries <= 0:
        return Number.none("ratio", Absence.NO_TRAFFIC, "nothing was looked up")
    again = total(items, "preemptions_total") and total(items, "cached_input_tokens_total") is None
    note = "preempted requests are looked up again, which this version counts as hits" if again else ""
    return Number("ratio", Basis.MEASURED, min(1.0, hits / queries), note=note)


def total(windows: Iterable[TargetWindow], signal: str) -> float | None:
    """Increase of a counter over windows; None when no target counts it."""
    found = [v for w in windows if (v := w.counter(signal)) is not None]
    return sum(found) if found else None


def _rate(windows: tuple[TargetWindow, ...], signal: str, seconds: float) -> Number:
    gained = total(windows, signal)
    if gained is None or seconds <= 0:
        return Number.none("1/s", Absence.NOT_MEASURABLE, f"no target tells {signal}")
    silent = sum(w.counter(signal) is None for w in windows)
    note = f"{silent} of {len(windows)} targets do not tell" if silent else ""
    return Number("1/s", Basis.MEASURED, gained / seconds, note=note)


def _gauge(
    windows: tuple[TargetWindow, ...], signal: str, combine: Callable[[list[float]], float], unit: str
) -> Number:
    values = [g.mean for w in windows if (g := w.gauge(signal)) is not None]
    if not values:
        return Number.none(unit, Absence.NOT_MEASURABLE, f"no target tells {signal}")
    return Number(unit, Basis.MEASURED, combine(values))


def _kv_mean(windows: tuple[TargetWindow, ...]) -> Number:
    pairs = [
        (g.mean, (c.mean if (c := w.gauge("kv_cache_capacity_tokens")) else None))
        for w in windows
        if (g := w.gauge("kv_cache_used_ratio")) is not None
    ]
    if not pairs:
        return Number.none("ratio", Absence.NOT_MEASURABLE, "no target tells its KV-cache use")
    known = all(c for _, c in pairs)
    weights = [(c or 1.0) if known else 1.0 for _, c in pairs]
    mean = sum(v * w for (v, _), w in zip(pairs, weights, strict=True)) / sum(weights)
    return Number("ratio", Basis.MEASURED, mean, note="" if known or len(pairs) == 1 else "not weighted by pool size")


def _kv_max(windows: tuple[TargetWindow, ...]) -> Number:
    values = [g.max for w in windows if (g := w.gauge("kv_cache_used_ratio")) is not None]
    if not values:
        return Number.none("ratio", Absence.NOT_MEASURABLE, "no target tells its KV-cache use")
    return Number("ratio", Basis.MEASURED, max(values))


def _costs(windows: tuple[TargetWindow, ...], prices: dict[str, Price], seconds: float) -> dict[str, Number]:
    bill = cost(windows, prices, seconds)
    idle = bill.idle_usd
    if idle.value is not None and seconds > 0:
        idle = Number("USD/h", idle.basis, idle.value * 3600 / seconds)
    ratios = [g.mean for w in windows if (g := w.gauge("idle_ratio")) is not None]
    return {
        "usd_per_hour": bill.usd_per_hour,
        "idle_ratio": Number("ratio", Basis.MEASURED, sum(ratios) / len(ratios))
        if ratios
        else Number.none("ratio", Absence.NOT_MEASURABLE, "no target says how many requests run"),
        "idle_usd_per_hour": idle,
        "usd_per_million_output_tokens": bill.usd_per_million_output_tokens,
        "usd_per_million_tokens": bill.usd_per_million_tokens,
        "usd_per_million_good_tokens": bill.usd_per_million_good_tokens,
    }
