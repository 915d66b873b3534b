"""One body of one target → one ``Scrape`` of canonical samples, with what was learnt on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class TargetReader:
    """Reads the pages of one target; keeps the parser's cache of its series.

    ``told_version`` is what the engine's own version endpoint said; config wins over it, it wins over names.
    """

    target: Target
    engines: Mapping[str, Engine]
    told_version: str = ""
    parser: Parser = field(default_factory=Parser)

    def understand(self, body: bytes | str, content_type: str | None) -> Understood:
        """Parse and resolve one body. Raises ``PageTooLarge`` as the parser does."""
        page = self.parser.parse(body, content_type=content_type)
        families = Families(page)
        pinned = self.engines.get(self.target.engine) if self.target.engine else None
        detected = engine_of(families, self.engines)
        engine = pinned or detected
        if engine is None:
            return Understood(page, families, None, Version("", "", "no known engine"), None)
        version = self._version(families, engine)
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

    def _version(self, families: Families, engine: Engine) -> Version:
        for version, basis in (
            (self.target.engine_version, "set in the configuration"),
            (self.told_version, "told by the engine"),
        ):
            if version:
                return Version(version, version, basis)
        return version_of(families, engine)
