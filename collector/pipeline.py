"""One body of one target → one ``Scrape`` of canonical samples, with what was learnt on the way."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from collector.detect import Version, engine_of, version_of
from collector.exposition import Parser
from collector.families import Families
from collector.normalise import Reading, Resolver
from goodwatch.core.engine import Engine
from goodwatch.core.model import Deployment, Scrape, Target
from goodwatch.core.page import Page


@dataclass(frozen=True, slots=True)
class Understood:
    """One page and everything that was made of it; ``reading`` is None when no known engine wrote it.

    ``detected`` is the engine that the names tell of, which is another than ``engine`` when that one was set wrongly.
    """

    page: Page
    families: Families
    engine: Engine | None
    version: Version
    reading: Reading | None
    detected: Engine | None = None


_NOTHING: Final = Version("", "", "no known engine")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the last page told; what follows from its series holds for every page that has the same ones."""

    page: Page
    families: Families
    detected: Engine | None
    by_names: Version
    resolver: Resolver | None  # None: no known engine wrote it


@dataclass(slots=True)
class TargetReader:
    """Reads the pages of one target; keeps the parser's cache of its series, and what follows from them.

    ``told_version`` is what the engine's own version endpoint said; config wins over it, it wins over names.
    """

    target: Target
    engines: Mapping[str, Engine]
    told_version: str = ""
    parser: Parser = field(default_factory=Parser)
    _seen: "_Seen | None" = None

    def understand(self, body: bytes | str, content_type: str | None) -> Understood:
        """Parse and resolve one body. Raises ``PageTooLarge`` as the parser does."""
        again = self.understand_again(body, content_type)
        if again is not None:
            return again
        return self.understand_page(self.parser.parse_whole(body, content_type=content_type))

    def understand_again(self, body: bytes | str, content_type: str | None) -> Understood | None:
        """The same for a body in which nothing but values changed since the last one; None when more did.

        The work grows with what changed: where it is this much less, it is the same to the last digit.
        """
        again = self.parser.reread(body, content_type=content_type)
        if again is None:
            return None
        seen = self._seen
        if seen is None or again.before is not seen.page:  # the parser went on without us
            return self.understand_page(again.page)
        families, moved = seen.families.after(again.page, again.moved)
        self._seen = replace(seen, page=again.page, families=families)
        return self._understood(self._seen, moved)

    def understand_page(self, page: Page) -> Understood:
        """Resolve a page that was read elsewhere."""
        families = Families(page)
        pinned = self.engines.get(self.target.engine) if self.target.engine else None
        seen = self._seen
        if seen is None or not _same_series(seen.page, page):
            detected = engine_of(families, self.engines)
            named = pinned or detected
            by_names = version_of(families, named) if named else _NOTHING
            resolver = Resolver(named, pinned=pinned is not None) if named else None
            self._seen = _Seen(page, families, detected, by_names, resolver)
        else:
            self._seen = replace(seen, page=page, families=families)
        return self._understood(self._seen)

    def _understood(self, seen: _Seen, moved: Set[str] | None = None) -> Understood:
        if seen.resolver is None:
            return Understood(seen.page, seen.families, None, _NOTHING, None)
        reading = seen.resolver.read(seen.families, moved)
        version = self._version(seen.by_names)
        return Understood(seen.page, seen.families, seen.resolver.engine, version, reading, seen.detected)

    def scrape(self, understood: Understood, ts: float, duration_s: float, body_bytes: int) -> Scrape:
        """The scrape of an understood page."""
        samples = () if understood.reading is None else tuple(
            understood.reading.samples(self.target, ts, str(understood.version))
        )  # fmt: skip
        return Scrape(
            ts, self.target.name, self.target.service, up=True, duration_s=duration_s, samples=samples,
            body_bytes=body_bytes, page_samples=len(understood.page.samples),
        )  # fmt: skip

    def deployment(self, understood: Understood, ts: float) -> Deployment | None:
        """What the page says that the target runs; None when no known engine wrote it."""
        reading = understood.reading
        if reading is None:
            return None
        facts = dict(reading.facts)
        for name in (
            "kv_cache_capacity_tokens",
            "kv_block_size_tokens",
            "max_model_len_tokens",
            "max_running_requests",
        ):
            values = [v.value for v in reading.resolved[name].values] if name in reading.resolved else []
            if values and values[0] is not None:
                facts[name] = f"{values[0]:g}"
        return Deployment(
            ts, self.target.name, self.target.service, reading.engine.name, understood.version.text,
            ", ".join(reading.models), facts,
        )  # fmt: skip

    def _version(self, by_names: Version) -> Version:
        for version, basis in (
            (self.target.engine_version, "set in the configuration"),
            (self.told_version, "told by the engine"),
        ):
            if version:
                return Version(version, version, basis)
        return by_names


def _same_series(one: Page, other: Page) -> bool:
    """Whether two pages have the same series in the same order. The parser hands out one label set a series."""
    return (
        len(one.samples) == len(other.samples)
        and len(one.types) == len(other.types)
        and all(a.labels is b.labels and a.name == b.name for a, b in zip(one.samples, other.samples, strict=True))
    )
