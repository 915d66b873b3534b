"""Which native series carry a signal, from the engines' tables: names on the wire, matchers, versions."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from alerts.rules.promql import TARGET, labelled, matcher, one_of, selector
from alerts.rules.values import Options
from goodwatch.core.engine import Engine, Source

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
#: parts that say whether a request was streamed; the first token of one that was not says nothing to a user
_STREAMED: Final = frozenset({"is_streaming", "streaming"})
#: finish reasons of a client that hung up: not the service's failure (design: valid request)
_CANCELLED: Final = 'finished_reason!~"abort|cancel.*"'
#: a client's own mistake: every 4xx but 408 and 429, spelled as a code or as a class
CLIENT_FAULT: Final = "40[0-79]|41.|42[0-8]|4[3-9].|4xx"
FAILED: Final = "5..|5xx|408|429"


@dataclass(frozen=True, slots=True)
class Native:
    """One way to read one signal of one engine."""

    engine: Engine
    source: Source

    @property
    def name(self) -> str:
        """Name on the wire of a counter or gauge."""
        if self.source.type == "histogram":
            return self.histogram("_count" if self.source.read != "sum" else "_sum")
        return f"{self.source.metric}_total" if self.source.type == "counter" else self.source.metric

    def histogram(self, suffix: str) -> str:
        """Name on the wire of one series of a histogram."""
        return f"{self.source.metric}{suffix}"

    @property
    def matchers(self) -> tuple[str, ...]:
        """What the table demands of the labels."""
        return tuple(matcher(label, f"~{pattern}" if pattern else "") for label, pattern in self.source.where.items())


def natives(options: Options, engines: Iterable[str], signal: str) -> tuple[Native, ...]:
    """The ways to read a signal in order of preference, engine after engine; each name on the wire once."""
    found: dict[tuple[str, tuple[str, ...]], Native] = {}
    for name in engines:
        engine = options.engines[name]
        for source in engine.signals.get(signal, ()):
            native = Native(engine, source)
            if usable(source) and lives(source, options.versions.get(name)):
                found.setdefault((native.name, native.matchers), native)
    return tuple(found.values())


def usable(source: Source) -> bool:
    """Whether Prometheus can hold it: a metric name, not read from a label, not a quotient of two."""
    return (
        bool(_NAME.fullmatch(source.metric))
        and source.read != "label"
        and not source.over
        and "_json:" not in source.metric
    )


def lives(source: Source, version: str | None) -> bool:
    """Whether this version of the engine has the name; without a version, whether any has."""
    if version is None:
        return True
    at = numbers(version)
    return not (source.since and at < numbers(source.since)) and not (source.until and at > numbers(source.until))


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare; what is not a number ends it."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+", maxsplit=1)[0])[:3])


def latency_matchers(native: Native, signal: str) -> tuple[str, ...]:
    """Matchers of a latency histogram: only streamed requests have a first token and a time per token."""
    streamed = native.source.part in _STREAMED and signal in ("ttft_seconds", "tpot_seconds")
    return (*native.matchers, *((f'{native.source.part}!~"(?i)false|0"',) if streamed else ()))


def level(found: Iterable[Native], select: tuple[str, ...], over: str = "", *, combine: str = "sum") -> str:
    """A gauge for each target: ranks that repeat a value are taken once, the others added.

    ``combine`` is "max" for ratios, which do not add up. ``over`` is a function over a range, as "avg_over_time [10m]" or "avg_over_time [10m] offset 1d"; "" reads it now.
    """
    function, _, window = over.partition(" ")
    alternatives = []
    for native in found:
        totals = tuple(f'{label}=""' for label in native.engine.total_labels)
        series = selector(native.name, (*select, *native.matchers, *totals)) + window
        value = f"{function}({series})" if function else series
        repeats = ", ".join((*native.engine.repeat_labels, *native.engine.ignore_labels))
        alternatives.append(f"max without ({repeats}) ({value})" if repeats else value)
    return f"{combine} by ({TARGET}) ({one_of(alternatives)})"


def gain(found: Iterable[Native], select: tuple[str, ...], window: str, suffix: str = "") -> str:
    """What a counter (or a histogram's ``suffix``) gained in a window, series by series; ranks that repeat, once."""
    alternatives = []
    for native in found:
        name = native.histogram(suffix) if suffix else native.name
        value = f"increase({selector(name, (*select, *native.matchers))}[{window}])"
        repeats = ", ".join(native.engine.repeat_labels)
        value = f"max without ({repeats}) ({value})" if repeats and not suffix else value
        for family in () if suffix else native.source.plus:
            wire = f"{family}_total" if native.source.type == "counter" else family
            value += f" or {labelled(f'increase({selector(wire, select)}[{window}])', wire)}"
        alternatives.append(f"({value})" if native.source.plus else value)
    return one_of(alternatives)


@dataclass(frozen=True, slots=True)
class HttpTerm:
    """HTTP responses as a count of requests: the name on the wire, matchers of valid ones, matchers of failed ones."""

    name: str
    valid: tuple[str, ...]
    failed: tuple[str, ...]


def served_terms(options: Options, engine: str) -> tuple[HttpTerm, ...]:
    """How an engine counts what it answered, where it says with which status."""
    return tuple(
        HttpTerm(
            native.name,
            (*native.matchers, f'{native.source.part}!~"{CLIENT_FAULT}"'),
            (*native.matchers, f'{native.source.part}=~"{FAILED}"'),
        )
        for native in natives(options, (engine,), "http_requests_total")
        if native.source.part
    )


def finished_matchers(native: Native) -> tuple[str, ...]:
    """Matchers of requests that ended and were not given up by their client."""
    return (*native.matchers, *((_CANCELLED,) if native.source.part == "finished_reason" else ()))
