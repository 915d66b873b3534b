"""Sources that are read from a Prometheus, run beside the scraper: poll, hand on, tell when targets come and go."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from collector.pull import Poll, PrometheusSource, PullOptions, open_http
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.app.config import PrometheusEntry, ScrapeSettings, Settings
from goodwatch.app.watch import Watch
from goodwatch.app.wiring import options_of
from goodwatch.core.clock import SystemClock
from goodwatch.core.engine import Engine
from goodwatch.core.model import Scrape

log = logging.getLogger(__name__)

#: a source that met a bug is asked again after this
_AGAIN_S: Final = 30.0


def pull_options_of(entry: PrometheusEntry) -> PullOptions:
    """How one source is read, secrets opened."""
    access = options_of(ScrapeSettings(), entry)
    return PullOptions(
        url=entry.url, selector=entry.selector, service=entry.service, group_by=entry.group_by, step_s=entry.step_s,
        lookback_s=entry.lookback_s, settle_s=entry.settle_s, timeout_s=entry.timeout_s,
        body_limit_bytes=entry.body_limit_bytes, rate_limit_per_s=entry.rate_limit_per_s, engine=entry.engine,
        engine_version=entry.engine_version, gpus=entry.gpus, gpu_hour_usd=entry.gpu_hour_usd,
        labels={**entry.labels, **({"gpu": entry.gpu} if entry.gpu else {})}, bearer=access.bearer, basic=access.basic,
        headers=access.headers, ca_file=access.ca_file, cert_file=access.cert_file, key_file=access.key_file,
        server_name=access.server_name, insecure_skip_verify=access.insecure_skip_verify,
    )  # fmt: skip


def source_options(settings: Settings) -> list[PullOptions]:
    """Every configured source. Raises ``ConfigError`` when the package that reads them is not installed."""
    found = [pull_options_of(entry) for entry in settings.prometheus]
    for options in found:
        open_http(options).close()
    return found


async def probe_sources(settings: Settings, engines: Mapping[str, Engine]) -> list[tuple[bool, str]]:
    """(fine, line for a person) for every target of every source, from one poll. Raises ``ConfigError``."""
    lines: list[tuple[bool, str]] = []
    for options in await asyncio.to_thread(source_options, settings):
        source = PrometheusSource.of(options, engines, SystemClock())
        try:
            poll = await source.poll()
        finally:
            await source.close()
        last = {reading.target.name: reading for reading in poll.readings}
        for name, reading in sorted(last.items()):
            understood = reading.understood
            engine = understood.engine if understood is not None else None
            version = understood.version.text if understood is not None else ""
            what = (
                f"{engine.name} {version or '(its names do not tell the version)'}" if engine else reading.scrape.error
            )
            lines.append((engine is not None, f"{options.place}: {name}: {what}"))
    return lines


class Pulling:
    """Polls every source at its own step. ``retarget`` is called when the targets differ from before."""

    def __init__(self, watch: Watch, *, retarget: Callable[[], None], scraped: Callable[[Scrape], None]) -> None:
        self._watch = watch
        self._retarget = retarget
        self._scraped = scraped
        self._sources: tuple[PrometheusSource, ...] = ()
        self._failing: set[PrometheusSource] = set()
        self._changed = asyncio.Event()

    @property
    def specs(self) -> list[TargetSpec]:
        """Targets of all sources; one whose name was there before is left out."""
        found: dict[str, TargetSpec] = {}
        for source in self._sources:
            options = ScrapeOptions(interval_s=source.options.step_s)
            for target in source.targets:
                found.setdefault(target.name, TargetSpec(target, options))
        return list(found.values())

    def beside(self, scraped: Sequence[TargetSpec]) -> list[TargetSpec]:
        """``specs`` without those whose name is scraped already, which would be counted twice."""
        names = {spec.target.name for spec in scraped}
        return [spec for spec in self.specs if spec.target.name not in names]

    def use(self, wanted: Iterable[PullOptions]) -> None:
        """Poll these; a source whose options stay goes on with what it knows. Raises ``ConfigError``."""
        watch, before = self._watch, self._sources
        self._sources = tuple(
            next((s for s in before if s.options == options), None)
            or PrometheusSource.of(options, watch.engines, watch.clock)
            for options in wanted
        )
        self._changed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        tasks: dict[PrometheusSource, asyncio.Task[None]] = {}
        try:
            while True:
                self._changed.clear()
                for source in self._sources:
                    if source not in tasks:
                        tasks[source] = asyncio.create_task(self._follow(source), name="prometheus")
                for source in set(tasks) - set(self._sources):
                    await _ended(source, tasks.pop(source))
                await self._changed.wait()
        finally:
            for task in tasks.values():
                task.cancel()
            for source, task in tasks.items():
                await _ended(source, task)

    async def _follow(self, source: PrometheusSource) -> None:
        clock = self._watch.clock
        while True:
            began_s = clock.monotonic_s()
            await self._guarded(source)
            await asyncio.sleep(max(0.0, began_s + source.options.step_s - clock.monotonic_s()))

    async def _guarded(self, source: PrometheusSource) -> None:
        """One poll as a task of its own: a bug that one answer brings out must not end the watch over the others."""
        task = asyncio.create_task(self._poll(source))
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            text = "an answer could not be taken; this is a bug"
            log.error(text, extra={"prometheus": source.options.place}, exc_info=error)
            await asyncio.sleep(_AGAIN_S)

    async def _poll(self, source: PrometheusSource) -> None:
        before = source.targets
        poll = await source.poll()
        if source not in self._sources:
            return
        self._tell(source, poll)
        known = set(self._watch.states)
        if source.targets != before or any(t.name not in known for t in poll.targets):
            self._retarget()
            new = set(self._watch.states) - known
            if new:
                await self._watch.recover(new)
        for reading in poll.readings:
            if self._watch.take_scrape(reading.target, reading.scrape, reading.understood, reading.deployment):
                self._scraped(reading.scrape)

    def _tell(self, source: PrometheusSource, poll: Poll) -> None:
        """Log the edges of an outage, and what the server says of partial answers."""
        failing = source in self._failing
        if poll.error and not failing:
            self._failing.add(source)
            log.error("prometheus cannot be read", extra={"prometheus": source.options.place, "problem": poll.error})
        elif not poll.error and failing:
            self._failing.discard(source)
            log.info("prometheus can be read again", extra={"prometheus": source.options.place})
        if poll.warnings:
            told = "; ".join(poll.warnings)
            log.warning("prometheus answers in part", extra={"prometheus": source.options.place, "problem": told})


async def _ended(source: PrometheusSource, task: "asyncio.Task[None]") -> None:
    """Stop following a source; its query in flight ends by its own time limit."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await source.close()
