"""Which engine wrote a page, and which versions fit the names on it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from collector._exposition_json import PREFIX as JSON_PREFIX
from collector.families import Families, family_key
from collector.neighbours import is_only_router
from goodwatch.core.engine import Engine

_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*")
_JSON_KEY: Final = family_key(JSON_PREFIX)


@dataclass(frozen=True, slots=True)
class Version:
    """The versions that fit, among those that were read: ``first`` and ``last``, "" when nothing is known.

    ``open_below`` and ``open_above`` say that nothing on the page excludes an older or a newer one than was read.
    """

    first: str
    last: str
    basis: str  # for a person: how it is known
    open_below: bool = False
    open_above: bool = False

    def __str__(self) -> str:
        """One version, or the range of read versions that fit."""
        if self.first == self.last:
            return self.first
        return f"{self.first or '?'}..{self.last or '?'}"

    @property
    def text(self) -> str:
        """For a person: "0.32.0 or newer" when nothing bounds it from above; "" when nothing bounds it at all."""
        if self.open_above:
            return "" if self.open_below else f"{self.first} or newer"
        return f"{self.last} or older" if self.open_below else str(self)


def version_key(version: str) -> tuple[int, ...]:
    """A key that orders versions by release: "0.10.2" after "0.9.1", "0.11" equal to "0.11.0rc1" and "0.11.0+cu12"."""
    release = _RELEASE.search(version)
    numbers = [int(n) for n in release[0].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def engine_of(families: Families, engines: Mapping[str, Engine]) -> Engine | None:
    """The engine whose families are most on the page; None when no known prefix is there.

    The longest prefix owns a family: ``vllm_router_`` is not vLLM's. A page that an agent relays, or a worker that
    passes its engine's metrics through, can carry several: an engine comes before what stands around it, then most
    families win, then the first by name. A router that re-exports an engine's names is no engine.
    """
    if is_only_router(families):
        return None
    owners = sorted((-len(p), family_key(p), name) for name in engines for p in engines[name].prefixes)
    found: dict[str, int] = {}
    for family in families:
        key = family_key(family.name)
        name = next((n for _, prefix, n in owners if key.startswith(prefix)), None)
        # Any JSON gets our own spelling: only statistics that a table reads tell of an engine.
        if name is not None and (not key.startswith(_JSON_KEY) or key in _read(engines[name])):
            found[name] = found.get(name, 0) + 1
    first = sorted(found, key=lambda n: (engines[n].role != "engine", -found[n], n))
    return engines[first[0]] if first else None


def _read(engine: Engine) -> set[str]:
    return {family_key(source.metric) for listed in engine.signals.values() for source in listed}


def version_of(families: Families, engine: Engine) -> Version:
    """Bracket the version by names: the newest birth, the earliest death, and always-there names that are missing."""
    lives = {name: life for name, life in engine.names.items() if families.declared(name)}
    newest = max(lives, key=lambda n: version_key(lives[n][0]), default=None)
    first = lives[newest][0] if newest else ""
    deaths = {name: until for name, (_, until) in lives.items() if until}
    oldest = min(deaths, key=lambda n: version_key(deaths[n]), default=None)
    last = deaths[oldest] if oldest else ""
    below = not first or first == engine.versions[0]
    why = [f"{_said(newest)} since {first}"] if newest and not below else []
    missing = _missing_marker(families, engine, first)
    before = _before(engine.versions, engine.names[missing][0]) if missing else ""
    if before and (not last or version_key(before) < version_key(last)):
        last = before
        why.append(f"no {missing}, so until {before}")
    elif oldest:
        why.append(f"{_said(oldest)} until {last}")
    top = engine.versions[-1] if engine.versions else ""
    basis = "from the names on the page: " + "; ".join(why) if why else "not told by the names on the page"
    if last and version_key(last) < version_key(first):
        # Names of two eras on one page (a hidden-metrics flag, a fork): only the newest birth is certain.
        return Version(first, top, f"{basis}; names of two eras", open_above=True)
    return Version(first, last or (top if first else ""), basis, open_below=below, open_above=not last)


def _missing_marker(families: Families, engine: Engine, first: str) -> str | None:
    """The first marker that is not on the page; None when the page is not whole, so that absence tells nothing.

    A page is not whole when it lacks a marker that was born before its newest name: relays and people cut pages, and
    wrappers create series at the first event.
    """
    missing = [m for m in engine.markers if not families.declared(m)]
    if not missing or not first or families.wrapped:
        return None
    due = any(version_key(engine.names[m][0]) <= version_key(first) for m in missing)
    return None if due else missing[0]


def _said(name: str) -> str:
    """An inventory name for a person: ``family{label=""}`` is a family without that label."""
    family, brace, label = name.partition("{")
    if not brace:
        return name
    how = "with" if "!=" in label else "without"
    return f"{family.removesuffix(':')} series {how} the label {re.split('!?=', label)[0]}"


def fits(version: str, since: str | None, until: str | None) -> bool | None:
    """Whether a version (or a range "a..b") lies in [since, until]; None when it cannot be told."""
    first, _, last = version.partition("..")
    last = last or first
    if not _RELEASE.search(first) or not _RELEASE.search(last):
        return None
    low, high = version_key(first), version_key(last)
    if (since and high < version_key(since)) or (until and low > version_key(until)):
        return False
    if (not since or low >= version_key(since)) and (not until or high <= version_key(until)):
        return True
    return None


def _before(versions: tuple[str, ...], born: str) -> str:
    older = [v for v in versions if version_key(v) < version_key(born)]
    return older[-1] if older else ""
