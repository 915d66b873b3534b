"""Which engine wrote a page, and which versions fit the names on it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from collector.families import Families, family_key
from goodwatch.core.engine import Engine

_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Version:
    """The versions that fit: ``first`` and ``last`` as read, "" when nothing bounds that side."""

    first: str
    last: str
    basis: str  # for a person: how it is known

    def __str__(self) -> str:
        """One version, or a range of those that fit."""
        if self.first == self.last:
            return self.first
        return f"{self.first or '?'}..{self.last or '?'}"


def version_key(version: str) -> tuple[int, ...]:
    """A key that orders versions: "0.10.2" after "0.9.1"."""
    return tuple(int(n) for n in _NUMBER.findall(version.split("+", maxsplit=1)[0].split("rc", maxsplit=1)[0]))


def engine_of(families: Families, engines: Mapping[str, Engine]) -> Engine | None:
    """The engine whose families are most on the page; None when no known prefix is there.

    A page that an agent relays can carry several; most families wins, ties go to the first by name.
    """
    found: dict[str, int] = {}
    keys = [family_key(f.name) for f in families]
    for name in sorted(engines):
        prefixes = tuple(family_key(p) for p in engines[name].prefixes)
        count = sum(key.startswith(prefixes) for key in keys) if prefixes else 0
        if count:
            found[name] = count
    return engines[max(found, key=lambda n: found[n])] if found else None


def version_of(families: Families, engine: Engine) -> Version:
    """Bracket the version by names: the newest birth, the earliest death, and always-there names that are missing."""
    on_page = {family_key(f.name) for f in families}
    first, last = "", ""
    why: list[str] = []
    for name, (since, until) in engine.names.items():
        if family_key(name) not in on_page:
            continue
        if not first or version_key(since) > version_key(first):
            first, newest = since, name
            why = [f"{newest} since {since}", *(w for w in why if "until" in w)]
        if until and (not last or version_key(until) < version_key(last)):
            last = until
            why = [*(w for w in why if "until" not in w), f"{name} until {until}"]
    for name in engine.markers:
        born = engine.names[name][0]
        if family_key(name) in on_page or version_key(born) <= version_key(first or "0"):
            continue
        before = _before(engine.versions, born)
        if before and (not last or version_key(before) < version_key(last)):
            last = before
            why = [*(w for w in why if "until" not in w), f"no {name}, so until {before}"]
    if first and not last and engine.versions:
        last = engine.versions[-1]
    if first and last and version_key(last) < version_key(first):
        # Names of two eras on one page (a hidden-metrics flag, a fork): only the newest birth is certain.
        return Version(first, engine.versions[-1] if engine.versions else "", "; ".join(why) + "; names of two eras")
    return Version(first, last, "from the names on the page: " + "; ".join(why) if why else "no name tells")


def fits(version: str, since: str | None, until: str | None) -> bool | None:
    """Whether a version (or a range "a..b") lies in [since, until]; None when it cannot be told."""
    first, _, last = version.partition("..")
    last = last or first
    if not _NUMBER.search(first) or not _NUMBER.search(last):
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
