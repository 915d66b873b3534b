"""``goodwatch config check --probe``: ask every target what it is."""

import asyncio
from collections.abc import Mapping

from collector.probe import probe
from collector.scrape import Session
from goodwatch.app.config import Settings
from goodwatch.app.engines import known_accelerators
from goodwatch.app.pulling import probe_sources
from goodwatch.app.wiring import discoveries_of, exporter_of, spec_of
from goodwatch.core.engine import Engine

#: Enough to be quick on a fleet, few enough to be kind to a proxy.
_AT_ONCE = 32


async def probe_all(settings: Settings, engines: Mapping[str, Engine]) -> list[tuple[bool, str]]:
    """(fine, line for a person) for every configured and discovered target, and for what discovery could not do.

    Raises ``ConfigError`` when a discovery cannot work here.
    """
    specs = [spec_of(settings, t) for t in settings.targets]
    specs += [exporter_of(settings, e) for e in settings.accelerators]
    troubles: list[tuple[bool, str]] = []
    async with Session() as session:
        for discovery in discoveries_of(settings, engines, session):
            await discovery.refresh()
            specs += discovery.targets
            troubles += [(False, f"{discovery.name}: {at}: {problem}") for at, problem in discovery.problems.items()]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(index: int) -> tuple[bool, str]:
        spec = specs[index]
        async with gate:
            probed = await probe(spec, known_accelerators() if spec.target.kind == "accelerator" else engines)
        if not probed.fetched.up:
            return False, f"{spec.target.name}: {probed.fetched.error}"
        version = "" if spec.target.kind == "accelerator" else f" {probed.version or '(does not tell its version)'}"
        what = f"{probed.engine}{version}" if probed.engine else ""
        return bool(what), f"{spec.target.name}: {what or 'answers, but no known engine wrote the page'}"

    found = await asyncio.gather(*(one(i) for i in range(len(specs))))
    return [*troubles, *found, *await probe_sources(settings, engines)]
