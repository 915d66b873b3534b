"""Native series → canonical samples, by an engine's table. Pure; what was taken and from where is part of the answer.

Ranks: series of data-parallel engines are kept apart (``rank``), series that repeat one value per tensor or pipeline
rank are taken once, everything else under one signal adds up (engine-metrics reference, section 4).
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from collector.families import Families, Family, Series, family_key
from goodwatch.core.catalogue import CATALOGUE, Signal
from goodwatch.core.engine import Engine, Source
from goodwatch.core.histogram import merged
from goodwatch.core.model import Histogram, Sample, SignalKind, Target

_PROCESS_LABELS: Final = ("pid",)  # one copy a process: prometheus_client multiprocess mode without a gauge mode

#: gauges that hold a size or a mean which cannot be 0: there 0 is the engine's word for "not known" or "off"
_NEVER_ZERO: Final = frozenset({
    "kv_cache_capacity_tokens", "kv_block_size_tokens", "kv_blocks", "max_model_len_tokens", "max_running_requests",
    "spec_accept_length", "process_start_seconds",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """One canonical value on one page, before it gets a time and a target."""

    model: str
    rank: str
    part: str
    value: float | None = None
    histogram: Histogram | None = None
    closed: bool = True


@dataclass(frozen=True, slots=True)
class Resolved:
    """A signal that is on the page: values, where they come from, how many series were folded into one."""

    signal: Signal
    source: Source
    wire: str  # the family's name on this page
    values: tuple[Value, ...]
    repeated: int = 1  # series that repeated one value (ranks, processes); 1: none did
    unlike_bounds: bool = False  # histograms of unlike bounds were merged on the shared ones


@dataclass(frozen=True, slots=True)
class Reading:
    """All canonical signals of one page."""

    engine: Engine
    models: tuple[str, ...]
    resolved: Mapping[str, Resolved] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    def samples(self, target: Target, ts: float, engine_version: str) -> list[Sample]:
        """The reading as samples of a target at a time."""
        return [
            Sample(
                ts, target.name, target.service, v.model, self.engine.name, engine_version, v.rank, name, v.part,
                v.value, v.histogram,
            )
            for name, r in self.resolved.items()
            for v in r.values
        ]  # fmt: skip


def read(families: Families, engine: Engine, *, pinned: bool = False) -> Reading:
    """Resolve every signal of the catalogue that the page carries.

    ``pinned`` says that an operator declared this engine, which lets unprefixed names be claimed.
    """
    return Resolver(engine, pinned=pinned).read(families)


class Resolver:
    """Resolves pages of one target. A signal is resolved again when a family that it looks at is another."""

    def __init__(self, engine: Engine, *, pinned: bool = False) -> None:
        self.engine = engine
        self.pinned = pinned
        self._sources = {
            name: tuple(s for s in sources if pinned or not s.declared_only) for name, sources in engine.signals.items()
        }
        self._signals_of: dict[str, list[str]] = {}  # family key → signals that look at it
        for name, sources in self._sources.items():
            for key in {family_key(metric.partition("{")[0]) for s in sources for metric in _metrics(s)}:
                self._signals_of.setdefault(key, []).append(name)
        self._groups = _Groups()
        self._found: dict[str, Resolved] = {}  # as read: before series without a model get the page's only one
        self._reading = Reading(engine, ())

    def read(self, families: Families, moved: Set[str] | None = None) -> Reading:
        """The reading of a page.

        ``moved`` are the keys of the families that are not those of the page that was read last (see
        ``Families.after``); without it everything is resolved.
        """
        last = self._reading
        names = self._sources if moved is None else {n for key in moved for n in self._signals_of.get(key, ())}
        fresh = {n: found for n in names if (found := self._first(n, families)) is not None}
        same_names = moved is not None and all((n in fresh) == (n in self._found) for n in names)
        if same_names:
            self._found |= fresh
        else:
            self._found = {n: r for n in self._sources if (r := fresh.get(n) if n in names else self._found.get(n))}
        models = tuple(sorted({v.model for r in self._found.values() for v in r.values if v.model}))
        taken = fresh if same_names and models == last.models else self._found
        filled = {n: _with_model(r, models[0]) for n, r in taken.items()} if len(models) == 1 else taken
        resolved = {**last.resolved, **filled} if taken is fresh and moved is not None else filled
        facts = last.facts if moved is not None and not self._tells_facts(moved) else _facts(families, self.engine)
        self._reading = Reading(self.engine, models, resolved, facts)
        return self._reading

    def _first(self, name: str, families: Families) -> Resolved | None:
        """A signal from the first of its sources that is on the page."""
        return next(
            (r for s in self._sources[name] if (r := _resolve(name, s, families, self.engine, self._groups))), None
        )

    def _tells_facts(self, moved: Set[str]) -> bool:
        return any(family_key(metric) in moved for metric in self.engine.info)


def _metrics(source: Source) -> tuple[str, ...]:
    """Every family that a source looks at."""
    return (source.metric, *source.plus, *source.minus, *source.times, *source.over, *source.needs)


@dataclass(frozen=True, slots=True)
class _Group:
    """Series of a family that make up one canonical value, by labels alone."""

    model: str
    rank: str
    part: str
    at: tuple[int, ...]  # in the family's series
    same: tuple[object, ...] | None  # equal for series that repeat one value; None when none does


def _resolve(name: str, source: Source, families: Families, engine: Engine, groups: "_Groups") -> Resolved | None:
    family = families.get(source.metric, source.type)
    if family is None:
        return None
    signal = CATALOGUE[name]
    repeated, unlike = 1, False
    values: list[Value] = []
    for group in groups.of(family, source, engine):
        members = [
            (family.series[i], value, None if group.same is None else group.same[n])
            for n, i in enumerate(group.at)
            if (value := _value(family.series[i], source, signal, families, engine)) is not None
        ]
        if not members:
            continue
        kept = [(s, v) for s, v, _ in members] if group.same is None else _once(members)
        repeated = max(repeated, len(members) - len(kept) + 1)
        value, mixed = _combined([v for _, v in kept], signal, source)
        closed = all(s.closed for s, _ in kept)
        unlike = unlike or (mixed and closed)  # what was cut is unlike for that reason
        if isinstance(value, Histogram):
            values.append(Value(group.model, group.rank, group.part, histogram=value, closed=closed))
        else:
            values.append(Value(group.model, group.rank, group.part, value=value))
    if not values:
        return None
    unlike = unlike or len({v.histogram.le for v in values if v.histogram and v.closed}) > 1
    return Resolved(signal, source, family.name, tuple(values), repeated, unlike)


class _Groups:
    """The groups of every source, found once as long as its family keeps its series."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Source, object, tuple[_Group, ...]]] = {}

    def of(self, family: Family, source: Source, engine: Engine) -> tuple[_Group, ...]:
        """The groups of a family's series for one source, sorted by model, rank and part."""
        known = self._known.get(id(source))
        if known is not None and family.places is not None and known[1] is family.places:
            return known[2]
        groups = _grouped(family.series, source, engine)
        self._known[id(source)] = (source, family.places, groups)  # the source is held, so that its id is its own
        return groups


def _grouped(series: Sequence[Series], source: Source, engine: Engine) -> tuple[_Group, ...]:
    at = {id(one): i for i, one in enumerate(series)}
    groups: dict[tuple[str, str, str], list[Series]] = {}
    for one in _totals_only(series, engine.total_labels):
        if _matches(one, source.where):
            groups.setdefault((_model(one, engine), rank_of(one, engine), _part(one, source)), []).append(one)
    found = []
    for key, members in sorted(groups.items()):
        same = tuple(_apart_from_copies(one, engine) for one in members)
        repeats = len(set(same)) < len(same)
        found.append(_Group(*key, tuple(at[id(one)] for one in members), same if repeats else None))
    return tuple(found)


def _value(
    series: Series, source: Source, signal: Signal, families: Families, engine: Engine
) -> float | Histogram | None:
    """The canonical value of one native series, or None when it cannot be told."""
    if source.read == "sum":
        total = series.histogram.sum if series.histogram else None
        return None if total is None else total * source.scale
    if source.read == "count":
        return series.histogram.total if series.histogram else None
    if signal.kind is SignalKind.HISTOGRAM:
        return None if series.histogram is None else _scaled(series.histogram, source.scale)
    value = _label_number(series, source) if source.read == "label" else _computed(series, source, families, engine)
    if value is None or not math.isfinite(value):
        return None
    # vLLM's V0 engine says -1 for a ratio that is not available.
    unsaid = value == 0 if signal.name in _NEVER_ZERO else signal.unit == "ratio" and value < 0
    return None if unsaid else value * source.scale


def _computed(series: Series, source: Source, families: Families, engine: Engine) -> float | None:
    """The value of a series with the families that are added to, taken from, or scale it; None when one is missing."""
    value = series.value
    if not all(_partners(series, metric, families, engine) for metric in source.needs):
        return None
    for metric, sign in (*((m, 1.0) for m in source.plus), *((m, -1.0) for m in source.minus)):
        value += sign * sum(s.value for s in _partners(series, metric, families, engine))
    for metric in source.times:
        partners = _partners(series, metric, families, engine)
        if not partners:
            return None
        value *= partners[0].value
    for metric in source.over:
        partners = _partners(series, metric, families, engine)
        if not partners or partners[0].value == 0:
            return None
        value /= partners[0].value
    return value


def _partners(series: Series, metric: str, families: Families, engine: Engine) -> list[Series]:
    """Series of another family that agree on every label both carry; totals only, and one of those that repeat."""
    name, _, where = metric.partition("{")
    wanted = dict(w.split("=", 1) for w in where.rstrip("}").replace('"', "").split(",") if w)
    family = families.get(name, "gauge") or families.get(name, "counter")
    found: list[tuple[Series, float | Histogram, object]] = []
    for s in _totals_only(family.series, engine.total_labels) if family else ():
        shared = (k for k in s.labels if k in series.labels and k not in wanted and k not in _PROCESS_LABELS)
        if all(s.labels.get(k) == v for k, v in wanted.items()) and all(
            s.labels[k] == series.labels[k] for k in shared
        ):
            found.append((s, s.value, _apart_from_copies(s, engine)))
    return [s for s, _ in _once(found)]


def _label_number(series: Series, source: Source) -> float | None:
    numbers: list[float] = []
    for label in source.labels:
        try:
            number = float(series.labels.get(label, ""))
        except ValueError:
            if source.product:
                return None
            continue
        numbers.append(number)
        if not source.product:
            break
    return math.prod(numbers) if numbers else None


def _scaled(histogram: Histogram, scale: float) -> Histogram:
    if scale == 1.0:
        return histogram
    total = None if histogram.sum is None else histogram.sum * scale
    return Histogram(tuple(b * scale for b in histogram.le), histogram.count, total)


def _matches(series: Series, where: Mapping[str, str]) -> bool:
    return all(re.fullmatch(pattern, series.labels.get(label, "")) for label, pattern in where.items())


def _totals_only(series: Sequence[Series], total_labels: tuple[str, ...]) -> Sequence[Series]:
    """Where a label's empty value is already the total of its other values, keep the totals.

    A label without a value and no label are the same to Prometheus, so either may be on the wire.
    """
    for label in total_labels:
        series = [s for s in series if not s.labels.get(label)] or series
    return series


def _model(series: Series, engine: Engine) -> str:
    return next((series.labels[label] for label in engine.model_labels if series.labels.get(label)), "")


def rank_of(series: Series, engine: Engine) -> str:
    """Which of several engines or devices on one page a series belongs to; "" when its labels do not say."""
    found = [(label, series.labels[label]) for label in engine.sum_labels if series.labels.get(label)]
    if engine.rank_as is not None and found:
        return f"{engine.rank_as}={'/'.join(value for _, value in found)}"
    return ",".join(f"{label}={value}" for label, value in found)


def _part(series: Series, source: Source) -> str:
    if source.part is None or source.part not in series.labels:
        return ""
    return f"{source.part_as or source.part}={series.labels[source.part]}"


def _apart_from_copies(series: Series, engine: Engine) -> tuple[tuple[str, str], ...]:
    """The labels of a series without those that tell copies of one value apart: ranks that repeat it, processes."""
    repeat = {*engine.repeat_labels, *engine.ignore_labels, *_PROCESS_LABELS}
    return tuple(sorted((k, v) for k, v in series.labels.items() if k not in repeat))


def _once(members: list[tuple[Series, float | Histogram, object]]) -> list[tuple[Series, float | Histogram]]:
    """Of series that repeat one value keep one: the largest, since a lagging copy is behind."""
    best: dict[object, tuple[Series, float | Histogram]] = {}
    for one, value, same in members:
        if same not in best or _size(value) > _size(best[same][1]):
            best[same] = (one, value)
    return list(best.values())


def _size(value: float | Histogram) -> float:
    return value.total if isinstance(value, Histogram) else value


def _combined(values: list[float | Histogram], signal: Signal, source: Source) -> tuple[float | Histogram, bool]:
    """Fold series that differ in labels without a meaning of their own; True when unlike bounds were merged."""
    if len(values) == 1:
        return values[0], False
    histograms = [v for v in values if isinstance(v, Histogram)]
    if histograms:
        whole = merged(histograms)
        assert whole is not None
        return whole, any(h.le != whole.le for h in histograms)
    numbers = [v for v in values if not isinstance(v, Histogram)]
    # An info series changes its labels when a setting does, and the old one may stay: two are one thing twice.
    adds = signal.merge == "sum" and source.read != "label"
    return (sum(numbers) if adds else max(numbers)), False


def _with_model(resolved: Resolved, model: str) -> Resolved:
    """Give the page's only model to series that carry no model label (cache_config_info, http_*)."""
    if all(v.model for v in resolved.values):
        return resolved
    values = tuple(Value(v.model or model, v.rank, v.part, v.value, v.histogram, v.closed) for v in resolved.values)
    return Resolved(resolved.signal, resolved.source, resolved.wire, values, resolved.repeated, resolved.unlike_bounds)


def _facts(families: Families, engine: Engine) -> dict[str, str]:
    """Labels of the engine's info series, as what runs; "None" is the engine's word for not set."""
    facts: dict[str, str] = {}
    for metric in engine.info:
        family = families.get(metric, "gauge")
        for series in _first(family):
            facts.update({k: v for k, v in series.labels.items() if v not in ("", "None") and k not in ("engine",)})
    return facts


def _first(family: Family | None) -> Iterable[Series]:
    return family.series[:1] if family else ()
