"""One body of one target → one ``Scrape`` of canonical samples, with what was learnt on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from collector.detect import Version, engine_of, version_of
from collector.exposition import Parser
from collector.families import Families
from collector.normalise import Reading, read
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
    """What the series of the last page told, values aside: the next page mostly has the same."""

    page: Page
    detected: Engine | None
    by_names: Version

    def same(self, page: Page) -> bool:
        """Whether a page has the same series in the same order. The parser hands out one label set a series."""
        mine, theirs = self.page.samples, page.samples
        return (
            len(mine) == len(theirs)
            and len(self.page.types) == len(page.types)
            and all(a.labels is b.labels and a.name == b.name for a, b in zip(mine, theirs, strict=True))
        )


@dataclass(slots=True)
class TargetReader:
    """Reads the pages of one target; keeps the parser's cache of its series.

    ``told_version`` is what the engine's own version endpoint said; config wins over it, it wins over names.
    """

    target: Target
    engines: Mapping[str, Engine]
    told_version: str = ""
    parser: Parser = field(default_factory=Parser)
    _seen: "_Seen | None" = None

    def understand(self, body: bytes | str, content_type: str | None) -> Understood:
        """Parse and resolve one body. Raises ``PageTooLarge`` as the parser does."""
        return self.understand_page(self.parser.parse(body, content_type=content_type))

    def understand_page(self, page: Page) -> Understood:
        """Resolve a page that was read elsewhere."""
        families = Families(page)
        pinned = self.engines.get(self.target.engine) if self.target.engine else None
        if self._seen is None or not self._seen.same(page):
            detected = engine_of(families, self.engines)
            named = pinned or detected
            self._seen = _Seen(page, detected, version_of(families, named) if named else _NOTHING)
        detected = self._seen.detected
        engine = pinned or detected
        if engine is None:
            return Understood(page, families, None, _NOTHING, None)
        version = self._version(self._seen.by_names)
        reading = read(families, engine, pinned=pinned is not None)
        return Understood(page, families, engine, version, reading, detected)

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
