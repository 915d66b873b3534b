"""The series of a page gathered into families: counters, gauges, whole histograms, looked up by any spelling.

The same family reaches us as ``vllm:x``, ``vllm_x`` (agents that forbid colons), ``ray_vllm_x``, with or without
``_total`` (OpenMetrics, OpenTelemetry translation). One key stands for all of them; the wire's name is kept for show.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from goodwatch.core.histogram import cumulative
from goodwatch.core.model import Histogram
from goodwatch.core.page import Page

_WRAPPERS: Final = re.compile(r"^(?:ray_|kserve_)+")
_HISTOGRAM_SUFFIXES: Final = ("_bucket", "_count", "_sum")
_UNTYPED: Final = ("unknown", "untyped", "")
_SELECTOR: Final = re.compile(r'(?P<name>.*)\{(?P<label>\w+)(?P<compare>!?=)""\}')


@lru_cache(maxsize=8192)
def family_key(name: str) -> str:
    """The spelling-free key of a family name."""
    key = _WRAPPERS.sub("", name.lower().replace(":", "_"))
    return key.removesuffix("_total")


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a family: labels (``le`` left out), and a value or a whole histogram."""

    labels: Mapping[str, str]
    value: float
    histogram: Histogram | None = None
    closed: bool = True  # False: a histogram without _count and +Inf, so its total is only what the buckets show


@dataclass(slots=True)
class Family:
    """Series under one name and type."""

    name: str  # as declared on the wire
    type: str
    series: list[Series] = field(default_factory=list)


@dataclass(slots=True)
class _Parts:
    labels: Mapping[str, str]
    buckets: dict[float, float] = field(default_factory=dict)
    count: float | None = None
    sum: float | None = None


class Families:
    """All families of one page, those that are named without a single series included.

    ``get`` falls back to an untyped family of the same key, since some relays lose ``# TYPE``; a family of another
    declared type is another thing (SGLang's kv_transfer_* changed from gauge to histogram under one name).
    """

    def __init__(self, page: Page) -> None:
        self._families: dict[tuple[str, str], Family] = {}
        self.created_count = 0
        self.nan_count = 0
        parts: dict[tuple[str, str], dict[tuple[tuple[str, str], ...], _Parts]] = {}
        for name, kind in page.types.items():  # nothing happened yet, or a flag is off: named all the same
            if not name.endswith("_created"):
                self._families.setdefault((family_key(name), kind), Family(name, kind))
        bucketed = {s.name.removesuffix("_bucket") for s in page.samples if s.name.endswith("_bucket")}
        for sample in page.samples:
            if sample.name.endswith("_created"):
                self.created_count += 1
                continue
            name, kind, suffix = _place(sample.name, page.types, bucketed)
            family = self._families.setdefault((family_key(name), kind), Family(name, kind))
            if kind != "histogram":
                if math.isnan(sample.value):
                    self.nan_count += 1
                    continue
                family.series.append(Series(sample.labels, sample.value))
                continue
            labels = {k: v for k, v in sample.labels.items() if k != "le"}
            group = parts.setdefault((family_key(name), kind), {})
            one = group.setdefault(tuple(sorted(labels.items())), _Parts(labels))
            _take(one, suffix, sample.labels.get("le"), sample.value)
        for key, group in parts.items():
            self._families[key].series = [_series(p) for p in group.values()]
        self._keys = {key for key, _ in self._families}

    def __iter__(self) -> Iterator[Family]:
        """Every family, in the order of the page."""
        return iter(self._families.values())

    @property
    def wrapped(self) -> bool:
        """True when a wrapper (Ray Serve, KServe) renamed the families; such series are born at their first event."""
        return any(_WRAPPERS.match(family.name.lower()) for family in self)

    def get(self, metric: str, kind: str) -> Family | None:
        """The family of this name and type that has series, by any spelling; None when the page has none."""
        key = family_key(metric)
        for wanted in (kind, *_UNTYPED):
            family = self._families.get((key, wanted))
            if family is not None and family.series:
                return family
        return None

    def declared(self, metric: str) -> bool:
        """True when the page names the family at all, even without a single series.

        ``family{label!=""}`` asks for a series of it with that label, ``family{label=""}`` for one without. A name
        that ends in a colon stands for all families of that prefix.
        """
        selector = _SELECTOR.fullmatch(metric)
        if selector is None:
            return family_key(metric) in self._keys
        name, label, present = selector["name"], selector["label"], selector["compare"] == "!="
        key, prefix = family_key(name), name.endswith(":")
        families = (f for (k, _), f in self._families.items() if k == key or (prefix and k.startswith(key)))
        return any(bool(s.labels.get(label)) == present for f in families for s in f.series)


def _place(name: str, types: Mapping[str, str], bucketed: set[str]) -> tuple[str, str, str]:
    """Family name, type and histogram suffix of one sample name."""
    for suffix in _HISTOGRAM_SUFFIXES:
        if name.endswith(suffix):
            base = name[: -len(suffix)]
            if types.get(base) == "histogram" or (types.get(base, "") in _UNTYPED and base in bucketed):
                return base, "histogram", suffix
    if name in types:
        return name, types[name], ""
    base = name.removesuffix("_total")
    if types.get(base) in ("counter", "unknown"):
        return base, "counter", ""
    return name, ("counter" if name.endswith("_total") else "untyped"), ""


def _take(parts: _Parts, suffix: str, le: str | None, value: float) -> None:
    if not math.isfinite(value):  # no count and no sum: unknown
        return
    if suffix == "_count":
        parts.count = value
    elif suffix == "_sum":
        parts.sum = value
    elif le is not None:
        try:
            bound = float(le)
        except ValueError:
            return
        if not math.isnan(bound):
            parts.buckets.setdefault(bound, value)


def _series(parts: _Parts) -> Series:
    closed = parts.count is not None or float("inf") in parts.buckets
    histogram = cumulative(parts.buckets, count=parts.count, total_sum=parts.sum)
    return Series(parts.labels, histogram.total, histogram, closed)
