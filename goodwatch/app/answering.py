"""What every answer of a target leads to: its state, counters, and what the engine is asked besides."""

import logging
from collections.abc import Awaitable, Callable, Container
from typing import Final

from collector.probe import told_version
from collector.scrape import Fetched, Session
from collector.targets import TargetSpec
from exporters.prometheus import SelfMetrics
from goodwatch.app.fleet import DESTRUCTIVE, TargetState
from goodwatch.app.telemetry import span
from goodwatch.app.watch import Watch
from goodwatch.core.clock import Clock
from goodwatch.core.engine import Engine
from goodwatch.core.model import Scrape

log = logging.getLogger(__name__)

_ASK_VERSION_EVERY_S: Final = 600.0


class Answering:
    """Takes answers of targets. ``session`` must be set before the first of them comes.

    ``background`` runs work that nobody waits for, ``retarget`` is called when a target must not be read again.
    """

    session: Session

    def __init__(
        self,
        watch: Watch,
        own: SelfMetrics,
        clock: Clock,
        *,
        background: Callable[[Awaitable[object]], None],
        retarget: Callable[[], None],
    ) -> None:
        self._watch, self._own, self._clock = watch, own, clock
        self._background, self._retarget = background, retarget
        self._asked: dict[str, tuple[int, float]] = {}  # restarts seen and when
        self._withheld: set[str] = set()

    @property
    def withheld(self) -> frozenset[str]:
        """Targets that must not be read again until the configuration changes."""
        return frozenset(self._withheld)

    def read_all_again(self) -> None:
        """The configuration has changed: what was withheld may be read."""
        self._withheld.clear()

    def follow(self, targets: Container[str]) -> None:
        """Let go of what was known of targets that are gone."""
        self._asked = {name: asked for name, asked in self._asked.items() if name in targets}

    async def on_page(self, spec: TargetSpec, fetched: Fetched) -> None:
        """One answer of a target that is scraped."""
        with span("scrape", target=spec.target.name, reason=fetched.reason or "ok"):
            try:
                await self._watch.take(spec, fetched)
            except Exception:
                log.exception("a page could not be taken; this is a bug", extra={"target": spec.target.name})
                self._own.refused("page_bug")
        state = self._watch.states.get(spec.target.name)
        if state is None:
            return
        reason = state.last.reason if state.last is not None else fetched.reason
        self._own.scraped(reason, fetched.duration_s)
        if reason == DESTRUCTIVE and spec.target.name not in self._withheld:
            self._withhold(spec.target.name, state)
        if state.understood is not None:
            for problem in state.understood.page.problems if fetched.up else ():
                self._own.refused(problem.reason)
            self._ask_version(spec, state, state.understood.engine)

    def on_pulled(self, scrape: Scrape) -> None:
        """One scrape that a Prometheus kept."""
        self._own.scraped(scrape.reason, scrape.duration_s)

    def _withhold(self, name: str, state: TargetState) -> None:
        problem = state.last and state.last.error
        log.error("target is not read again", extra={"target": name, "problem": problem})
        self._withheld.add(name)
        self._retarget()

    def _ask_version(self, spec: TargetSpec, state: TargetState, engine: Engine | None) -> None:
        """Ask the engine's own endpoint at first sight, after each restart, and now and then."""
        if engine is None:
            return
        if not engine.version_paths or spec.target.engine_version:
            state.version_settled = True
            return
        name, now = spec.target.name, self._clock.monotonic_s()
        asked = self._asked.get(name)
        if asked is not None and asked[0] == state.restarts and now - asked[1] < _ASK_VERSION_EVERY_S:
            return
        self._asked[name] = (state.restarts, now)
        self._background(self._learn_version(spec, state, engine))

    async def _learn_version(self, spec: TargetSpec, state: TargetState, engine: Engine) -> None:
        version = await told_version(self.session, spec, engine)
        state.reader.told_version = version or state.reader.told_version
        state.version_settled = True
