"""Queries of an engine's own series from its table: old and new names are both met and never added.

Every query keeps to the targets that are picked (``$job``, ``$instance``) and, where the engine labels its series
with a model, to ``$model``. Of two names of one signal each target gives the one that it has.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dashboards.promql import RATE, quoted, ratio, selector, summed
from goodwatch.core.engine import Engine, Source

#: what tells one scraped target from another in every Prometheus
TARGET: Final = ("job", "instance")
PICKED: Final = 'job=~"$job",instance=~"$instance"'
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
#: parts that say whether a request was streamed; the first token of one that was not says nothing to a user
_STREAMED: Final = frozenset({"is_streaming", "streaming"})
#: labels of engines that one server runs side by side
_RANKS: Final = ("engine", "dp_rank")
_BY_REQUEST: Final = frozenset({"ttft_seconds", "tpot_seconds"})


@dataclass(frozen=True, slots=True)
class Natives:
    """The series of one engine table; ``version`` "" meets the names of all versions."""

    table: Engine
    version: str = ""

    def has(self, *signals: str, scaled: bool = True) -> bool:
        """Whether Prometheus can hold a series of each of the signals."""
        return all(any(True for _ in self.sources(signal, scaled=scaled)) for signal in signals)

    def names(self, signals: Iterable[str]) -> tuple[str, ...]:
        """Names on the wire of signals, each once."""
        return tuple(dict.fromkeys(_wire(source) for signal in signals for source in self.sources(signal)))

    def parts(self, signal: str) -> tuple[str, ...]:
        """Native labels that split the signal."""
        return tuple(dict.fromkeys(source.part for source in self.sources(signal) if source.part))

    def sources(self, signal: str, *, scaled: bool = True) -> Iterator[Source]:
        """Sources that a Prometheus can hold, in order of preference; ``scaled`` leaves out those that need a factor.

        Without a version old names stand beside new ones, but a signal that only old versions have has no source.
        """
        found: dict[tuple[str, str, str, tuple[tuple[str, str], ...]], Source] = {}
        for source in self.table.signals.get(signal, ()):
            key = (source.metric, source.type, source.read, tuple(source.where.items()))
            if _readable(source) and not (scaled and source.times):
                found.setdefault(key, source)
        alive = [source for source in found.values() if self._lives(source.metric, source)]
        yield from alive if self.version or not alive else found.values()

    def _lives(self, family: str, source: Source | None = None) -> bool:
        """Whether the version (the newest, when none is pinned) has the family, as far as the table knows."""
        since, until = self.table.names.get(family, (source.since, source.until) if source else (None, None))
        version = self.version or next(reversed(self.table.versions), "")
        at = _numbers(version)
        return not version or not ((since and at < _numbers(since)) or (until and at > _numbers(until)))

    def notes(self, signal: str) -> str:
        """What the table says of the signal's sources, as sentences."""
        sources = list(self.sources(signal))
        names = ", ".join(dict.fromkeys(_wire(source) for source in sources))
        said = "; ".join(dict.fromkeys(source.note for source in sources if source.note))
        return f"Series: {names}." + (f" Note: {said}." if said else "")

    def level(self, signal: str, by: tuple[str, ...] = TARGET, *, combine: str = "sum") -> str:
        """A gauge now: ranks that repeat a value are taken once; ``combine`` "max" for what does not add up."""
        each = _each(by)
        found = [f"{combine} by ({', '.join(each)}) ({self._gauge(source)})" for source in self.sources(signal)]
        return _first(found, by, combine)

    def _gauge(self, source: Source) -> str:
        totals = tuple(f'{label}=""' for label in self.table.total_labels)
        parts = [
            self._once(selector(name, self._matchers(source, *totals)), labelled=i > 0, name=name)
            for i, name in enumerate((source.metric, *filter(self._lives, source.plus)))
        ]
        whole = " or ".join(parts) if len(parts) == 1 else f"sum without (counted_as) ({' or '.join(parts)})"
        scaled = whole if source.scale == 1 else f"{source.scale:.12g} * ({whole})"
        there = "".join(f" and on (job, instance) {selector(name, PICKED)}" for name in source.needs)
        return f"({scaled}){there}" if there else scaled

    def _once(self, series: str, *, labelled: bool, name: str) -> str:
        labels = ", ".join((*self.table.repeat_labels, *self.table.ignore_labels))
        value = f"max without ({labels}) ({series})" if labels else series
        return f'label_replace({value}, "counted_as", {quoted(name)}, "", "")' if labelled else value

    def rate(self, signal: str, by: tuple[str, ...] = TARGET, over: str = RATE, function: str = "rate") -> str:
        """A counter per second (``function`` "increase": over the range)."""
        return _first([summed(_each(by), self._gain(source, over, function)) for source in self.sources(signal)], by)

    def _gain(self, source: Source, over: str, function: str) -> str:
        names = [
            _wire(source),
            *(f"{name}_total" if source.type == "counter" else name for name in filter(self._lives, source.plus)),
        ]
        parts = [
            self._once(f"{function}({selector(name, self._matchers(source))}{over})", labelled=i > 0, name=name)
            for i, name in enumerate(names)
        ]
        text = " or ".join(parts)
        return text if source.scale == 1 else f"{source.scale:.12g} * ({text})"

    def share(self, part: str, whole: str, by: tuple[str, ...] = TARGET) -> str:
        """One counter over another, as increases; a factor that both sources need cancels out."""
        gains = [
            _first([summed(_each(by), self._gain(s, RATE, "rate")) for s in self.sources(signal, scaled=False)], by)
            for signal in (part, whole)
        ]
        return ratio(*gains)

    def buckets(self, signal: str, function: str = "rate", *, by: tuple[str, ...] = ()) -> str:
        """Buckets of a histogram by ``le``, added up over the picked targets."""
        each = (*TARGET, *by, "le")
        found = [
            summed(each, f"{function}({selector(f'{s.metric}_bucket', self._streamed(s, signal))}{RATE})")
            for s in self._histograms(signal)
        ]
        return summed((*by, "le"), " or on (job, instance) ".join(found))

    def quantile(self, signal: str, q: float, by: tuple[str, ...] = ()) -> str:
        """A quantile from merged buckets: interpolated inside one, and no more than the top bound."""
        return f"histogram_quantile({q:g}, {self.buckets(signal, by=by)})"

    def mean(self, signal: str, by: tuple[str, ...] = TARGET) -> str:
        """Mean of a histogram over the range: increase of its sum over increase of its count."""
        ends = []
        for end in ("sum", "count"):
            gains = [
                f"rate({selector(f'{s.metric}_{end}', self._streamed(s, signal))}{RATE})"
                for s in self._histograms(signal)
            ]
            ends.append(_first([summed(_each(by), gain) for gain in gains], by))
        return ratio(*ends)

    def _histograms(self, signal: str) -> Iterator[Source]:
        return (s for s in self.sources(signal) if s.type == "histogram" and s.read == "value")

    def _streamed(self, source: Source, signal: str) -> str:
        only = source.part in _STREAMED and signal in _BY_REQUEST
        return self._matchers(source, *((f'{source.part}!~"(?i)false|0"',) if only else ()))

    def _matchers(self, source: Source, *more: str) -> str:
        own = [
            f"{label}={quoted('')}" if not pattern else f"{label}=~{quoted(pattern)}"
            for label, pattern in source.where.items()
        ]
        return ",".join((PICKED, *self._picked(source), *own, *more))

    def _picked(self, source: Source) -> tuple[str, ...]:
        """The picked models and ranks, on families that carry the engine's prefix; others (http_requests) know neither."""
        if not source.metric.startswith(self.table.prefixes):
            return ()
        pairs = ((self.model_label, "$model"), (self.rank_label, "$engine"))
        return tuple(f'{label}=~"{variable}"' for label, variable in pairs if label)

    @property
    def model_label(self) -> str:
        """The label that names the model, "" where the series have none."""
        return next(iter(self.table.model_labels), "")

    @property
    def rank_label(self) -> str:
        """The label that tells the engines inside one server apart (data-parallel ranks), "" where there is none."""
        return next((label for label in self.table.sum_labels if label in _RANKS), "")


def _each(by: tuple[str, ...]) -> tuple[str, ...]:
    """The labels, and those that tell one target from another."""
    return (*TARGET, *(label for label in by if label not in TARGET))


def _first(alternatives: list[str], by: tuple[str, ...], combine: str = "sum") -> str:
    """For each target the first alternative that it has, then combined to the labels that are wanted."""
    met = " or on (job, instance) ".join(alternatives)
    if set(TARGET) <= set(by):
        return met
    return f"{combine} by ({', '.join(by)}) ({met})" if by else f"{combine}({met})"


def _readable(source: Source) -> bool:
    """Whether Prometheus can hold it: a metric name, no number from a label, no quotient, no name that anyone may use."""
    told = source.read != "label" and "_json:" not in source.metric and not (source.over or source.declared_only)
    return told and bool(_NAME.fullmatch(source.metric))


def _wire(source: Source) -> str:
    """Name on the wire of what is counted or read."""
    if source.type == "histogram":
        return f"{source.metric}_sum" if source.read == "sum" else f"{source.metric}_count"
    return f"{source.metric}_total" if source.type == "counter" else source.metric


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
