"""The series of a page gathered into families: counters, gauges, whole histograms, looked up by any spelling.

The same family reaches us as ``vllm:x``, ``vllm_x`` (agents that forbid colons), ``ray_vllm_x``, with or without
``_total`` (OpenMetrics, OpenTelemetry translation). One key stands for all of them; the wire's name is kept for show.
Which family a sample belongs to follows from names and labels, so it is found once as long as a page keeps its series.
"""

import copy
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from collector._families_placing import UNTYPED, WRAPPERS, FamilyId, Place, Placing, Series, family_key, series_at
from goodwatch.core.page import Page

__all__ = ["Families", "Family", "Series", "family_key"]

_NOWHERE: Final[frozenset[int]] = frozenset()
_SELECTOR: Final = re.compile(r'(?P<name>.*)\{(?P<label>\w+)(?P<compare>!?=)""\}')


@dataclass(slots=True)
class Family:
    """Series under one name and type.

    ``places`` is the same object as long as a page keeps its series and each of them has a value; else None.
    """

    name: str  # as declared on the wire
    type: str
    series: list[Series] = field(default_factory=list)
    places: Sequence[Place] | None = None


class Families:
    """All families of one page, those that are named without a single series included.

    ``get`` falls back to an untyped family of the same key, since some relays lose ``# TYPE``; a family of another
    declared type is another thing (SGLang's kv_transfer_* changed from gauge to histogram under one name).
    Families may be shared between pages and must not be changed. Values are read when a family is asked for: many
    families of a page never are.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._placing = Placing.of(page)
        self._read: dict[FamilyId, Family] = {}
        self._stale: dict[FamilyId, frozenset[int]] = {}  # places at which a family in ``_read`` is out of date
        self.created_count = self._placing.created_count
        self.nan_count = sum(self._is_nan(place) for _, places in self._placing.families.values() for place in places)

    def after(self, page: Page, moved: Iterable[int]) -> "tuple[Families, set[str]]":
        """The families of a page with the same series in the same order, and the keys of those that are not the same.

        ``moved`` are the positions of samples that may have other values; families without one are taken over.
        """
        places: dict[FamilyId, set[int]] = {}
        of_sample = self._placing.of_sample
        for position in moved:
            placed = of_sample[position]
            if placed is not None:
                places.setdefault(placed[0], set()).add(placed[1])
        found = copy.copy(self)
        found._page = page
        # In this order: a thread that reads a family meanwhile first keeps it and then strikes it off.
        found._stale = self._stale.copy()
        found._read = self._read.copy()
        for family_id, which in places.items():
            at = [self._placing.families[family_id][1][number] for number in which]
            found.nan_count += sum(found._is_nan(place) - self._is_nan(place) for place in at)
            if family_id in found._read:
                found._stale[family_id] = found._stale.get(family_id, _NOWHERE) | which
        return found, {key for key, _ in places}

    def _family(self, family_id: FamilyId) -> Family:
        """A family with the values of this page."""
        stale = self._stale.get(family_id)  # before ``_read``: another thread stores there first, then strikes off here
        old = self._read.get(family_id)
        if old is not None and stale is None:
            return old
        name, places = self._placing.families[family_id]
        samples = self._page.samples
        if old is not None and stale is not None and old.places is not None:
            found: list[Series | None] = [*old.series]
            for number in stale:
                found[number] = series_at(places[number], samples)
        else:
            found = [series_at(place, samples) for place in places]
        series = [one for one in found if one is not None]
        family = Family(name, family_id[1], series, places if len(series) == len(places) else None)
        self._read[family_id] = family
        self._stale.pop(family_id, None)
        return family

    def _is_nan(self, place: Place) -> bool:
        return isinstance(place, int) and math.isnan(self._page.samples[place].value)

    def __iter__(self) -> Iterator[Family]:
        """Every family, in the order of the page."""
        return map(self._family, self._placing.families)

    @property
    def wrapped(self) -> bool:
        """True when a wrapper (Ray Serve, KServe) renamed the families; such series are born at their first event."""
        return any(WRAPPERS.match(name.lower()) for name, _ in self._placing.families.values())

    def get(self, metric: str, kind: str) -> Family | None:
        """The family of this name and type that has series, by any spelling; None when the page has none."""
        key = family_key(metric)
        for wanted in (kind, *UNTYPED):
            if (key, wanted) in self._placing.families and (family := self._family((key, wanted))).series:
                return family
        return None

    def declared(self, metric: str) -> bool:
        """True when the page names the family at all, even without a single series.

        ``family{label!=""}`` asks for a series of it with that label, ``family{label=""}`` for one without. A name
        that ends in a colon stands for all families of that prefix.
        """
        selector = _SELECTOR.fullmatch(metric)
        if selector is None:
            return family_key(metric) in self._placing.keys
        name, label, present = selector["name"], selector["label"], selector["compare"] == "!="
        key, prefix = family_key(name), name.endswith(":")
        ids = (i for i in self._placing.families if i[0] == key or (prefix and i[0].startswith(key)))
        return any(bool(s.labels.get(label)) == present for i in ids for s in self._family(i).series)
