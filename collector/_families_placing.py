"""Which sample of a page is what: a value of its family, or a bucket, count or sum of one histogram of it.

All of this follows from names, labels and declared types; values only fill it.
"""

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from goodwatch.core.histogram import INF, cumulative
from goodwatch.core.model import Histogram
from goodwatch.core.page import Page, RawSample

WRAPPERS: Final = re.compile(r"^(?:ray_|kserve_)+")
UNTYPED: Final = ("unknown", "untyped", "")
_HISTOGRAM_SUFFIXES: Final = ("_bucket", "_count", "_sum")

FamilyId = tuple[str, str]  # spelling-free key, type


@lru_cache(maxsize=8192)
def family_key(name: str) -> str:
    """The spelling-free key of a family name."""
    key = WRAPPERS.sub("", name.lower().replace(":", "_"))
    return key.removesuffix("_total")


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a family: labels (``le`` left out), and a value or a whole histogram."""

    labels: Mapping[str, str]
    value: float
    histogram: Histogram | None = None
    closed: bool = True  # False: a histogram without _count and +Inf, so its total is only what the buckets show


@dataclass(slots=True)
class Bucketed:
    """One histogram: the positions of its samples on the page, in the order of the page."""

    labels: Mapping[str, str]
    bounds: list[float] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)  # one a bound
    counts: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    le: tuple[float, ...] | None = None  # bounds that ascend, closed by +Inf; None when they do not ascend

    def take(self, suffix: str, le: str | None, position: int) -> None:
        """One more sample of this histogram."""
        if suffix == "_count":
            self.counts.append(position)
        elif suffix == "_sum":
            self.sums.append(position)
        elif (bound := _bound(le)) is not None:
            self.bounds.append(bound)
            self.buckets.append(position)

    def close(self) -> None:
        """To be called when all samples were taken."""
        if self.bounds and all(a < b for a, b in zip(self.bounds, self.bounds[1:], strict=False)):
            self.le = (*self.bounds,) if self.bounds[-1] == INF else (*self.bounds, INF)

    def read(self, samples: Sequence[RawSample]) -> Series:
        """The histogram with the values of a page; a value that is not finite is unknown."""
        count, total_sum = _last_finite(self.counts, samples), _last_finite(self.sums, samples)
        values = [samples[position].value for position in self.buckets]
        # A finite sum: all of them are finite. Most histograms are whole, and then nothing is to be lifted.
        if self.le is not None and values[0] >= 0 and math.isfinite(sum(values)) and sorted(values) == values:
            if len(values) < len(self.le):
                values.append(values[-1] if count is None else max(values[-1], count))
            histogram, closed = Histogram(self.le, tuple(values), total_sum), self.bounds[-1] == INF
        else:
            buckets: dict[float, float] = {}
            for bound, value in zip(self.bounds, values, strict=True):
                if math.isfinite(value):
                    buckets.setdefault(bound, value)
            histogram, closed = cumulative(buckets, count=count, total_sum=total_sum), INF in buckets
        return Series(self.labels, histogram.total, histogram, closed or count is not None)


Place = int | Bucketed  # the position of a sample that is a value, or a histogram


def series_at(place: Place, samples: Sequence[RawSample]) -> Series | None:
    """The series at one place of a family; None for a value that is not a number."""
    if isinstance(place, Bucketed):
        return place.read(samples)
    sample = samples[place]
    return None if math.isnan(sample.value) else Series(sample.labels, sample.value)


@dataclass(slots=True)
class Placing:
    """The families of a page with the places of their series, and where each sample belongs."""

    families: dict[FamilyId, tuple[str, list[Place]]] = field(default_factory=dict)  # name on the wire, places
    of_sample: list[tuple[FamilyId, int] | None] = field(default_factory=list)  # family and number of the place in it
    created_count: int = 0
    keys: Set[str] = frozenset()  # of all families

    @classmethod
    def of(cls, page: Page) -> "Placing":
        """Place every sample of a page."""
        placing = cls()
        for name, kind in page.types.items():  # nothing happened yet, or a flag is off: named all the same
            if not name.endswith("_created"):
                placing.families.setdefault((family_key(name), kind), (name, []))
        bucketed = {s.name.removesuffix("_bucket") for s in page.samples if s.name.endswith("_bucket")}
        named: dict[str, tuple[FamilyId, str, list[Place]] | None] = {}
        histograms: dict[tuple[FamilyId, tuple[tuple[str, str], ...]], tuple[int, Bucketed]] = {}
        for position, sample in enumerate(page.samples):
            if sample.name not in named:
                named[sample.name] = placing._family(sample.name, page.types, bucketed)
            placed = named[sample.name]
            if placed is None:
                placing.created_count += 1
                placing.of_sample.append(None)
                continue
            family_id, suffix, places = placed
            if family_id[1] != "histogram":
                placing.of_sample.append((family_id, len(places)))
                places.append(position)
                continue
            labels = {k: v for k, v in sample.labels.items() if k != "le"}
            identity = (family_id, tuple(sorted(labels.items())))
            if identity not in histograms:
                histograms[identity] = (len(places), Bucketed(labels))
                places.append(histograms[identity][1])
            number, histogram = histograms[identity]
            histogram.take(suffix, sample.labels.get("le"), position)
            placing.of_sample.append((family_id, number))
        for _, histogram in histograms.values():
            histogram.close()
        placing.keys = {key for key, _ in placing.families}
        return placing

    def _family(
        self, name: str, types: Mapping[str, str], bucketed: set[str]
    ) -> tuple[FamilyId, str, list[Place]] | None:
        """Family, histogram suffix and the family's places of one sample name; None when it is a time of creation."""
        if name.endswith("_created"):
            return None
        base, kind, suffix = _place(name, types, bucketed)
        family_id = (family_key(base), kind)
        return family_id, suffix, self.families.setdefault(family_id, (base, []))[1]


def _place(name: str, types: Mapping[str, str], bucketed: set[str]) -> tuple[str, str, str]:
    """Family name, type and histogram suffix of one sample name."""
    for suffix in _HISTOGRAM_SUFFIXES:
        if name.endswith(suffix):
            base = name[: -len(suffix)]
            if types.get(base) == "histogram" or (types.get(base, "") in UNTYPED and base in bucketed):
                return base, "histogram", suffix
    if name in types:
        return name, types[name], ""
    base = name.removesuffix("_total")
    if types.get(base) in ("counter", "unknown"):
        return base, "counter", ""
    return name, ("counter" if name.endswith("_total") else "untyped"), ""


def _bound(le: str | None) -> float | None:
    """A bucket's upper bound; None when it is not one."""
    try:
        bound = math.nan if le is None else float(le)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _last_finite(positions: Sequence[int], samples: Sequence[RawSample]) -> float | None:
    for position in reversed(positions):
        if math.isfinite(value := samples[position].value):
            return value
    return None
