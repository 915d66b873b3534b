"""Which target of a service tells which signal, so that no request is counted twice. Pure: windows in, windows out.

A router or gateway and the engines behind it see the same requests: one layer per signal. The innermost layer that
tells a signal is taken for the service's numbers; those of the others stay on their own targets. What decides about a
request as a whole (its end, its outcome, its duration) is taken from one layer together.

With prefill and decode apart each request is on both legs with a part of its latency: prompt tokens are counted on
prefill, ended requests and output tokens on decode, and the first token of neither is the client's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from goodwatch.core.engine import Engine, Role
from goodwatch.core.model import Absence, Number
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import LATENCIES, Derived
from goodwatch.signals.latency import QUANTILES
from goodwatch.signals.windows import TargetWindow

Leg = Literal["", "prefill", "decode"]

#: innermost first
LAYERS: Final[tuple[Role, ...]] = ("engine", "worker", "router", "gateway")

#: A request's end, outcome and duration, with what goodwatch knows of those that have not ended.
_ENDS: Final = frozenset(
    {
        "requests_finished_total", "requests_aborted_total", "requests_failed_total", "requests_rejected_total",
        "http_requests_total", "e2e_seconds", "requests_decoding_max", "ttft_top_seconds",
    }
)  # fmt: skip
_OF_PREFILL: Final = frozenset(
    {
        "input_tokens_total", "cached_input_tokens_total", "input_length_tokens", "prefix_cache_queries_total",
        "prefix_cache_hits_total", "prefix_cache_hit_ratio", "prefill_seconds", "queue_seconds",
    }
)  # fmt: skip
_OF_DECODE: Final = _ENDS | {
    "output_tokens_total", "output_length_tokens", "tpot_seconds", "itl_seconds", "decode_seconds", "inference_seconds",
}  # fmt: skip
#: goodwatch's own, which prove no count of ends
_BESIDE_ENDS: Final = frozenset({"requests_decoding_max", "ttft_top_seconds"})
_TTFT: Final = "ttft_seconds"
#: About a target, not about requests: it stays with every window.
_OF_TARGET: Final = frozenset(
    {"up", "covered_seconds_total", "restarts_total", "process_start_seconds", "progress_total"}
)
#: A target that another one stands for adds nothing to these, which is not the same as not telling.
_TOKENS: Final = ("input_tokens_total", "output_tokens_total")

_SAME_REQUESTS: Final = "it sees the same requests as the engines behind it"
_OTHER_LEG: Final = "the other leg counts them, since each request is on both"
_PART_OF_TTFT: Final = "prefill and decode run apart, and neither sees the client's first token; a router would"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a target stands: its layer, and its leg where prefill and decode run apart."""

    role: Role = "engine"
    leg: Leg = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Signals of one target that the service's numbers do not use, and why, for a person."""

    target: str
    signals: frozenset[str]
    why: str


@dataclass(frozen=True, slots=True)
class Layered:
    """The windows that a service's numbers are made of, and what they leave out.

    ``outer`` are targets that stand around engines which are there too. ``lent`` names, for a signal that no engine
    tells, the outer targets that do.
    """

    windows: tuple[TargetWindow, ...]
    left_out: tuple[LeftOut, ...] = ()
    outer: frozenset[str] = frozenset()
    lent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def prices(self, given: Mapping[str, Price]) -> dict[str, Price]:
        """Prices by target; an outer target without one holds no GPUs, so it costs nothing."""
        free = {t: Price(0.0, 0.0) for t in self.outer if t not in given or given[t].usd_per_hour is None}
        return {**given, **free}


def layered(
    windows: Iterable[TargetWindow],
    engines: Mapping[str, Engine],
    places: Mapping[str, Place] | None = None,
    *,
    prices: Mapping[str, Price] | None = None,
) -> Layered:
    """The windows of a service with every signal left on one layer.

    Parameters
    ----------
    windows
        One per target and model.
    engines
        Engine tables by name: their roles are the layers.
    places
        By target, where more is known than the engine's role: its leg, or a router under an engine's names.
    prices
        By target: one that is paid for stays, with what nobody else tells, also when that is nothing.
    """
    items = tuple(windows)
    stands = {w.target: _stand(w, engines, places or {}) for w in items}
    told = {name: _told(w for w in items if w.target == name) for name in stands}
    left = [*_by_leg(stands, told)]
    for one in left:
        told[one.target] -= one.signals
    present = [role for role in LAYERS if any(s.role == role for s in stands.values())]
    outer = {t for t, s in stands.items() if present and s.role in present[1:]}
    left += _by_layer(stands, told)
    dropped = {t: frozenset().union(*(o.signals for o in left if o.target == t)) for t in stands}
    told = {t: signals - dropped[t] for t, signals in told.items()}
    paid = {t for t, price in (prices or {}).items() if price.usd_per_hour}
    stay = {t for t in stands if t not in outer or t in paid or told[t] - _OF_TARGET}
    kept = [_without(w, dropped[w.target]) for w in items if w.target in stay]
    shared = {t for t, s in stands.items() if s.leg or t in outer}
    lent = {
        signal: tuple(sorted(t for t in outer if signal in told[t]))
        for signal in frozenset().union(*(told[t] - _OF_TARGET for t in outer))
    }
    return Layered(tuple(_attributed(kept, shared)), tuple(left), frozenset(outer), lent)


def explained(derived: Derived, found: Layered) -> Derived:
    """The numbers with a word on what was left out of them and who lent what; values stay as they are."""
    if not found.left_out and not found.lent:
        return derived
    numbers = {name: _noted(name, number, found) for name, number in derived.numbers.items()}
    return replace(derived, numbers=numbers)


def _stand(window: TargetWindow, engines: Mapping[str, Engine], places: Mapping[str, Place]) -> Place:
    if window.target in places:
        return places[window.target]
    engine = engines.get(window.engine)
    return Place(engine.role) if engine is not None else Place()


def _told(windows: Iterable[TargetWindow]) -> frozenset[str]:
    return frozenset(s for w in windows for s, _ in (*w.counters, *w.histograms, *w.gauges))


def _by_leg(stands: Mapping[str, Place], told: Mapping[str, frozenset[str]]) -> Iterable[LeftOut]:
    """What the other leg counts, and the first token of both."""
    legs = {leg: [t for t, s in stands.items() if s.leg == leg] for leg in ("prefill", "decode")}
    on = {leg: frozenset().union(*(told[t] for t in members)) for leg, members in legs.items()}
    for leg, other, its in (("prefill", "decode", _OF_DECODE), ("decode", "prefill", _OF_PREFILL)):
        counted = its & on[other]
        if counted & _ENDS - _BESIDE_ENDS:
            counted |= _ENDS
        for target in legs[leg]:
            if told[target] & counted:
                yield LeftOut(target, told[target] & counted, _OTHER_LEG)
    for target in (*legs["prefill"], *legs["decode"]):
        if _TTFT in told[target]:
            yield LeftOut(target, frozenset({_TTFT}), _PART_OF_TTFT)


def _by_layer(stands: Mapping[str, Place], told: Mapping[str, frozenset[str]]) -> Iterable[LeftOut]:
    """Every signal that a layer further in tells."""
    inner: frozenset[str] = frozenset()
    for role in LAYERS:
        members = [t for t, s in stands.items() if s.role == role]
        for target in members:
            if told[target] & inner:
                yield LeftOut(target, told[target] & inner, _SAME_REQUESTS)
        here = frozenset().union(*(told[t] for t in members)) - _OF_TARGET
        if here & _ENDS - _BESIDE_ENDS:
            here |= _ENDS
        inner |= here


def _without(window: TargetWindow, signals: frozenset[str]) -> TargetWindow:
    if not signals:
        return window
    return replace(
        window,
        counters={k: v for k, v in window.counters.items() if k[0] not in signals},
        histograms={k: v for k, v in window.histograms.items() if k[0] not in signals},
        gauges={k: v for k, v in window.gauges.items() if k[0] not in signals},
    )


def _attributed(windows: list[TargetWindow], shared: set[str]) -> Iterable[TargetWindow]:
    """Token counts that another target stands for are nothing here, so that sums over targets stay whole."""
    told = _told(windows)
    for window in windows:
        missing = [s for s in _TOKENS if s in told and window.counter(s) is None] if window.target in shared else []
        yield replace(window, counters={**window.counters, **{(s, ""): 0.0 for s in missing}}) if missing else window


def _signals_of(name: str) -> frozenset[str]:
    """The signals behind a derived number that layers decide about."""
    if name in ("attainment_ratio", "goodput_per_s"):
        return _ENDS | {_TTFT}
    if name in ("request_rate_per_s", "unaccounted_per_s", "failed_per_s"):
        return _ENDS
    return _BEHIND.get(name, frozenset())


_BEHIND: Final[dict[str, frozenset[str]]] = {
    **{
        f"{latency}_{suffix}_seconds": frozenset({f"{latency}_seconds"})
        for latency in LATENCIES
        for suffix in (*(f"p{q * 100:.0f}" for q in QUANTILES), "mean")
    },
    "input_tokens_per_s": frozenset({"input_tokens_total"}),
    "output_tokens_per_s": frozenset({"output_tokens_total"}),
    "prefix_hit_ratio": frozenset({"prefix_cache_hits_total"}),
    "requests_running": frozenset({"requests_running"}),
    "requests_waiting": frozenset({"requests_waiting"}),
}


def _noted(name: str, number: Number, found: Layered) -> Number:
    behind = _signals_of(name)
    reasons: dict[str, list[str]] = {}
    for one in found.left_out:
        if one.signals & behind:
            reasons.setdefault(one.why, []).append(one.target)
    notes = [f"without {_names(targets)}: {why}" for why, targets in reasons.items()]
    lenders = sorted({t for signal in behind for t in found.lent.get(signal, ())})
    if lenders:
        notes.append(f"as {_names(lenders)} sees it, from outside the engine")
    if name.startswith("ttft_") and number.absence is not None and _PART_OF_TTFT in reasons and not lenders:
        return Number.none(number.unit, Absence.NOT_MEASURABLE, _PART_OF_TTFT)
    if not notes:
        return number
    return replace(number, note="; ".join(n for n in (number.note, *notes) if n))


def _names(targets: list[str]) -> str:
    more = f" and {len(targets) - 1} more" if len(targets) > 1 else ""
    return f"{targets[0]}{more}"
