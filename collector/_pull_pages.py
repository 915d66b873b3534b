"""Raw series of a Prometheus → the pages that were scraped, one for each target and time. Pure.

Prometheus gives all samples of one scrape the time at which it began, so samples of equal time are one page again. What
Prometheus added (labels of the target) is taken off, what it renamed (``exported_x``) gets its name back.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from collector._pull_options import PullError
from collector._pull_query import SYNTHETIC
from goodwatch.core.engine import Engine
from goodwatch.core.page import Page, Problem, RawSample

#: labels by which highly available pairs tell their copies apart: one scrape, stored twice
_REPLICA: Final = ("prometheus_replica", "replica", "__replica__", "receive_replica", "rule_replica")
#: labels that scrapers put on everything, for stores without ``up``
_TARGET: Final = (
    "instance", "job", "namespace", "pod", "container", "endpoint", "node", "host", "cluster", "region", "zone",
    "prometheus", "tenant_id", *_REPLICA,
)  # fmt: skip
#: of these, the ones that tell one scraped process from another
_IDENTITY: Final = ("instance", "job", "namespace", "pod", "cluster")
_EXPORTED: Final = "exported_"

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Raw:
    """One stored series: name, labels without the name, samples by time. Staleness markers and NaN are left out."""

    name: str
    labels: Labels
    values: tuple[tuple[float, float], ...]


@dataclass(slots=True)
class TargetPages:
    """What was stored of one target: pages by time, whether each scrape worked and how long it took.

    ``labels`` are those that Prometheus put on it. ``replica`` is the copy that was taken, "" when there is only one.
    ``ambiguous`` is a sentence when the grouping mixes several processes; then there are no pages.
    """

    key: tuple[str, ...]
    labels: Labels = field(default_factory=dict)
    pages: dict[float, Page] = field(default_factory=dict)
    up: dict[float, bool] = field(default_factory=dict)
    duration_s: dict[float, float] = field(default_factory=dict)
    replica: str = ""
    ambiguous: str = ""

    @property
    def times(self) -> list[float]:
        """Every time at which something is known, ascending."""
        return sorted({*self.pages, *self.up})


def kept_labels(engines: Iterable[Engine]) -> frozenset[str]:
    """Labels that engine tables give a meaning: never taken off, even when the target carries one of the same name."""
    found: set[str] = set()
    for engine in engines:
        found.update(engine.model_labels, engine.sum_labels, engine.repeat_labels, engine.total_labels)
        found.update({engine.role_label} if engine.role_label else ())
        for source in (s for listed in engine.signals.values() for s in listed):
            found.update(source.where, source.labels, {source.part} if source.part else ())
    return frozenset(found - {*_TARGET})


def parsed(series: Sequence[Any]) -> list[Raw]:
    """Series of an answer. Raises ``PullError`` when one has not the shape of a range vector."""
    found: list[Raw] = []
    for one in series:
        try:
            labels = {str(k): str(v) for k, v in one["metric"].items()}
            values = tuple((float(at), float(value)) for at, value in one.get("values", ()))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise PullError("malformed", f"a series of the answer cannot be read: {error!r}") from error
        present = tuple(v for v in values if not math.isnan(v[1]))
        if present:
            found.append(Raw(labels.pop("__name__", ""), labels, present))
    # Servers answer in any order; sums of floats must not depend on it.
    return sorted(found, key=lambda one: (one.name, sorted(one.labels.items())))


@dataclass(frozen=True, slots=True)
class Before:
    """What was read of a target before: pages up to ``last_s`` are not made again, ``replica`` is kept to."""

    last_s: float = -math.inf
    replica: str = ""


def pages_of(
    series: Sequence[Raw], group_by: Sequence[str], keep: frozenset[str], before: Mapping[tuple[str, ...], Before]
) -> list[TargetPages]:
    """Pages by target, sorted by key; ``keep`` are the labels that are never taken off.

    Series without any of the ``group_by`` labels belong to no target and are left out.
    """
    groups: dict[tuple[str, ...], list[Raw]] = {}
    for one in series:
        key = tuple(one.labels.get(label, "") for label in group_by)
        if any(key):
            groups.setdefault(key, []).append(one)
    return [_target(key, members, group_by, keep, before.get(key, Before())) for key, members in sorted(groups.items())]


def _target(
    key: tuple[str, ...], members: Sequence[Raw], group_by: Sequence[str], keep: frozenset[str], before: Before
) -> TargetPages:
    out = TargetPages(key)
    copies: dict[str, list[Raw]] = {}
    for one in members:
        copies.setdefault(_replica(one, group_by), []).append(one)
    out.replica = _copy(copies, before.replica)
    members = copies[out.replica]
    ups = [one for one in members if one.name == "up"]
    native = [one for one in members if one.name not in SYNTHETIC]
    out.ambiguous = _mixed(ups or native, group_by, whole=bool(ups))
    target_labels = dict(ups[-1].labels) if ups else _common(native)
    out.labels = {k: v for k, v in target_labels.items() if k not in _REPLICA}
    for one in members:
        if one.name == "up":
            out.up.update((at, value > 0) for at, value in one.values)
        elif one.name == "scrape_duration_seconds":
            out.duration_s.update(one.values)
    if not out.ambiguous:
        out.pages = _pages(native, [one.labels for one in ups] or [target_labels], keep, before.last_s)
    return out


def _replica(one: Raw, group_by: Sequence[str]) -> str:
    return ",".join(f"{n}={one.labels[n]}" for n in _REPLICA if n in one.labels and n not in group_by)


def _copy(copies: Mapping[str, Sequence[Raw]], preferred: str) -> str:
    """The copy to read: the one before while it goes on, else the one with the newest sample.

    Two copies are never mixed: their clocks differ, and a counter that seems to fall by a few would be taken for one
    that began again.
    """
    newest = {name: max(one.values[-1][0] for one in members) for name, members in copies.items()}
    if preferred in newest and newest[preferred] >= max(newest.values()) - _gap_s(copies[preferred]):
        return preferred
    return max(sorted(newest), key=lambda name: (newest[name], sum(len(one.values) for one in copies[name])))


def _gap_s(members: Sequence[Raw]) -> float:
    """Two scrape intervals of a copy: what the other may be ahead without this one having stopped."""
    longest = max(members, key=lambda one: len(one.values)).values
    return 2 * (longest[-1][0] - longest[0][0]) / (len(longest) - 1) if len(longest) > 1 else 60.0


def _mixed(series: Sequence[Raw], group_by: Sequence[str], *, whole: bool) -> str:
    """A sentence when series of several processes were stored under one key at the same time; "" when not.

    One process that took the place of another (a new pod behind a name) has no time in common with it.
    """
    spans: dict[tuple[tuple[str, str], ...], tuple[float, float]] = {}
    for one in series:
        kept = one.labels if whole else {k: one.labels[k] for k in _IDENTITY if k in one.labels}
        identity = tuple(sorted((k, v) for k, v in kept.items() if k not in _REPLICA))
        first, last = one.values[0][0], one.values[-1][0]
        before = spans.get(identity, (first, last))
        spans[identity] = (min(first, before[0]), max(last, before[1]))
    ordered = sorted(spans.items(), key=lambda item: item[1])
    for (one_id, (_, end)), (other_id, (begin, _)) in pairwise(ordered):
        if begin < end:
            differ = sorted({k for k, _ in set(one_id) ^ set(other_id)})
            return (
                f"group_by [{', '.join(group_by)}] puts {len(spans)} scraped processes into one target; they differ in "
                f"{', '.join(differ)}: add what tells them apart, or narrow the selector"
            )
    return ""


def _common(series: Sequence[Raw]) -> Labels:
    """Well-known target labels that the series carry, where ``up`` is not stored."""
    names = {k for one in series for k in one.labels}
    renamed = {n.removeprefix(_EXPORTED) for n in names if n.startswith(_EXPORTED)} & names
    wanted = {*_TARGET, *renamed}
    return {k: v for one in series for k, v in one.labels.items() if k in wanted}


def _pages(
    native: Sequence[Raw], target_labels: Sequence[Labels], keep: frozenset[str], last_s: float
) -> dict[float, Page]:
    pages: dict[float, Page] = {}
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], set[float]] = {}
    twice = 0
    # Where one series had to give way (exported_x), x is the target's label on all the others too.
    renamed = frozenset(n.removeprefix(_EXPORTED) for one in native for n in one.labels if n.startswith(_EXPORTED))
    for one in native:
        labels = _own(one.labels, target_labels, keep - renamed)
        times = seen.setdefault((one.name, tuple(sorted(labels.items()))), set())
        for at, value in one.values:
            if at <= last_s:
                continue
            if at in times:
                twice += 1
                continue
            times.add(at)
            page = pages.get(at)
            if page is None:
                page = pages[at] = Page(format="prometheus")
            page.samples.append(RawSample(one.name, labels, value))
    if twice:
        text = f"{twice} samples are stored twice under one name, labels and time; the first of each was taken"
        for page in pages.values():
            page.problems.append(Problem(0, "duplicate_series", text))
    return pages


def _own(labels: Labels, target_labels: Sequence[Labels], keep: frozenset[str]) -> Labels:
    """Labels as the engine wrote them."""
    own: Labels = {}
    for name, value in labels.items():
        plain = name.removeprefix(_EXPORTED)
        if plain != name and plain in labels:
            own[plain] = value
        elif _EXPORTED + name in labels or name in _REPLICA:
            continue
        elif name in keep or not any(t.get(name) == value for t in target_labels):
            own[name] = value
    return own
