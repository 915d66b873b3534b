"""What the engines' tables say about a name on the wire: kind, signal, versions, bucket bounds."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from alerts.bounds import BOUNDS
from alerts.rules.sources import lives, numbers
from goodwatch.core.catalogue import CATALOGUE
from goodwatch.core.engine import Engine, Source
from goodwatch.core.model import SignalKind

Wire = Literal["counter", "gauge", "histogram", "unknown"]
_SUFFIXES: Final = ("_bucket", "_count", "_sum")


@dataclass(frozen=True, slots=True)
class Known:
    """One name as it is on a page. ``scale`` turns its unit into the canonical one; ``until`` None: still there."""

    name: str
    family: str
    wire: Wire
    engine: str
    signal: str = ""
    since: str | None = None
    until: str | None = None
    scale: float = 1.0

    @property
    def is_ratio(self) -> bool:
        """Whether it is a level that is canonically a ratio 0..1."""
        return self.wire == "gauge" and bool(self.signal) and CATALOGUE[self.signal].unit == "ratio"


@dataclass(frozen=True, slots=True)
class Names:
    """Every name of every engine and exporter, by name on the wire."""

    engines: Mapping[str, Engine]
    versions: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, tuple[Known, ...]] = field(default_factory=dict)
    bare_counters: Mapping[str, str] = field(default_factory=dict)  # name without _total → name with it

    def of(self, name: str) -> Known | None:
        """What the name is; the engine that tells most about it comes first."""
        found = self.known.get(name, ())
        return max(found, key=lambda one: bool(one.signal), default=None)

    def signal(self, name: str) -> str:
        """Canonical signal that the name carries, or ""."""
        found = self.of(name)
        return found.signal if found else ""

    def engine_of(self, name: str) -> Engine | None:
        """The engine whose prefix the name has."""
        return next((e for e in self.engines.values() if any(name.startswith(p) for p in e.prefixes)), None)

    def dead(self, name: str) -> Known | None:
        """The name if the engine's version (the newest, or the one that is pinned) no longer or not yet has it."""
        found = self.known.get(name, ())
        told = [one for one in found if self.engines[one.engine].versions] or found  # without versions nothing dies
        gone = [one for one in told if not self._alive(one)]
        return gone[0] if told and len(gone) == len(told) else None

    def _alive(self, one: Known) -> bool:
        engine = self.engines[one.engine]
        version = self.versions.get(one.engine) or (engine.versions[-1] if engine.versions else None)
        return lives(Source(one.family, since=one.since, until=one.until), version)

    def close_to(self, name: str) -> str:
        """The name that was probably meant, or ""."""
        return next(iter(difflib.get_close_matches(name, list(self.known), n=1, cutoff=0.75)), "")

    def successors(self, signal: str, engine: str) -> tuple[str, ...]:
        """Names of the same signal that the engine still has."""
        found = (one for many in self.known.values() for one in many)
        return tuple(
            one.name for one in found if signal and one.signal == signal and one.engine == engine and self._alive(one)
        )

    def bounds(self, family: str) -> tuple[float, ...]:
        """Bucket bounds (native unit) of the newest version, () when they are not known."""
        return BOUNDS[family][-1].bounds if family in BOUNDS else ()


def names(engines: Iterable[Engine], versions: Mapping[str, str] | None = None) -> Names:
    """An index over the tables of engines and of accelerators."""
    by_name = {engine.name: engine for engine in engines}
    known: dict[str, list[Known]] = {}
    bare: dict[str, str] = {}
    for engine in by_name.values():
        for one in _of_engine(engine):
            known.setdefault(one.name, []).append(one)
            if one.wire == "counter" and one.name != one.family:
                bare[one.family] = one.name
    bare = {family: name for family, name in bare.items() if family not in known}
    return Names(by_name, versions or {}, {name: tuple(many) for name, many in known.items()}, bare)


def _of_engine(engine: Engine) -> Iterator[Known]:
    typed: set[str] = set()
    for signal, sources in engine.signals.items():
        for source in sources:
            typed.add(source.metric)
            yield from _of_source(engine, signal, source)
            for family in (*source.plus, *source.minus, *source.over, *source.times, *source.needs):
                if family not in typed and "{" not in family:
                    yield from _spelled(engine, family)
    for family in engine.names:
        if family not in typed and "{" not in family:
            yield from _spelled(engine, family)
    yield from (one for family in engine.info for one in _spelled(engine, family) if family not in engine.names)


def _of_source(engine: Engine, signal: str, source: Source) -> Iterator[Known]:
    since, until = _life(engine, source.metric, source)
    counts = CATALOGUE[signal].kind is SignalKind.COUNTER
    if source.type == "histogram":
        whole = source.read == "value"
        for suffix in _SUFFIXES:
            yield Known(
                source.metric + suffix,
                source.metric,
                "histogram",
                engine.name,
                signal if whole else "",
                since,
                until,
                source.scale,
            )
    elif source.type == "counter":
        yield Known(f"{source.metric}_total", source.metric, "counter", engine.name, signal, since, until, source.scale)
    else:
        label = source.read == "label"
        kind: Wire = "counter" if counts else "gauge"  # some engines type a total as a gauge
        yield Known(
            source.metric, source.metric, kind, engine.name, "" if label else signal, since, until, source.scale
        )


def _life(engine: Engine, family: str, source: Source) -> tuple[str | None, str | None]:
    """First and last version of the family: the inventory knows best, a source may end before its family does."""
    since, until = engine.names.get(family, (source.since, source.until))
    first = engine.versions[0] if engine.versions else None
    return (None if since is not None and since == first else since), until


def _spelled(engine: Engine, family: str) -> Iterator[Known]:
    """A family whose type no signal tells: it may be met in each spelling."""
    since, until = engine.names.get(family, (None, None))
    since = None if engine.versions and since == engine.versions[0] else since
    for suffix in ("", "_total", *_SUFFIXES):
        yield Known(family + suffix, family, "unknown", engine.name, "", since, until)


def newest(engine: Engine) -> str:
    """The newest version that the table knows, for a message."""
    return max(engine.versions, key=numbers, default="now")
