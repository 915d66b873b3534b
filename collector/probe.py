"""Ask one target what it is: its page, and the version that its own endpoint tells."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

from collector.exposition import PageTooLarge
from collector.pipeline import TargetReader
from collector.scrape import Fetched, Session, fetch
from collector.targets import TargetSpec
from goodwatch.core.clock import SystemClock
from goodwatch.core.engine import Engine

#: A version answer is a few bytes; anything long is another page.
_VERSION_LIMIT_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Probed:
    """What a target answered; ``version`` is "" when it does not tell."""

    fetched: Fetched
    engine: str
    version: str


async def probe(spec: TargetSpec, engines: Mapping[str, Engine]) -> Probed:
    """Read a target once and, when its engine has a version endpoint, that too. Failures are values."""
    async with Session() as session:
        fetched = await fetch(session, spec, SystemClock())
        if not fetched.up:
            return Probed(fetched, "", "")
        try:
            understood = TargetReader(spec.target, engines).understand(fetched.body, fetched.content_type)
        except PageTooLarge as error:
            return Probed(replace(fetched, up=False, reason="sample_limit", error=str(error)), "", "")
        if understood.engine is None:
            return Probed(fetched, "", "")
        version = await told_version(session, spec, understood.engine)
        return Probed(fetched, understood.engine.name, version)


async def told_version(session: Session, spec: TargetSpec, engine: Engine) -> str:
    """The version that the engine's own endpoint tells, beside its metrics page; "" when it does not."""
    parts = urlsplit(spec.target.url)
    page = next((m for m in engine.metrics_paths if parts.path.endswith(m)), parts.path)
    prefix = parts.path.removesuffix(page)  # of a gateway, or of --root-path
    for path, key in engine.version_paths:
        url = urlunsplit(parts._replace(path=prefix + path, query=""))
        options = replace(spec.options, body_limit_bytes=_VERSION_LIMIT_BYTES)
        answer = await fetch(session, TargetSpec(replace(spec.target, url=url), options), SystemClock())
        version = _version_in(answer.body, key) if answer.up else ""
        if version:
            return version
    return ""


def _version_in(body: bytes, key: str) -> str:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    value = answer.get(key) if isinstance(answer, dict) else None
    return value.partition("+")[0] if isinstance(value, str) and value[:1].isdigit() else ""
