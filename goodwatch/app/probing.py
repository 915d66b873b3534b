"""``goodwatch config check --probe``: ask every target what it is."""

import asyncio
from collections.abc import Mapping

from collector.probe import probe
from goodwatch.app.config import Settings
from goodwatch.app.wiring import discovery_of, spec_of
from goodwatch.core.engine import Engine

#: Enough to be quick on a fleet, few enough to be kind to a proxy.
_AT_ONCE = 32


async def probe_all(settings: Settings, engines: Mapping[str, Engine]) -> list[tuple[bool, str]]:
    """(answers, line for a person) for every configured and discovered target."""
    specs = [spec_of(settings, t) for t in settings.targets]
    for entry in settings.file_sd:
        discovery = discovery_of(settings, entry, engines)
        await discovery.refresh()
        specs += discovery.targets
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(index: int) -> tuple[bool, str]:
        spec = specs[index]
        async with gate:
            probed = await probe(spec, engines)
        if not probed.fetched.up:
            return False, f"{spec.target.name}: {probed.fetched.error}"
        what = f"{probed.engine} {probed.version or '(does not tell its version)'}" if probed.engine else ""
        return bool(what), f"{spec.target.name}: {what or 'answers, but no known engine wrote the page'}"

    return list(await asyncio.gather(*(one(i) for i in range(len(specs)))))
