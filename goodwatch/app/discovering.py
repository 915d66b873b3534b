"""All discoveries of one configuration, and the tasks that run them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from collector.discovery.port import Discovery
from collector.targets import TargetSpec

log = logging.getLogger(__name__)

_BROKEN: Final = (
    "stopped looking because of a bug in goodwatch; the targets it had found stay. The log has the traceback: please "
    "report it, and restart goodwatch to have it look again"
)


@dataclass(frozen=True, slots=True)
class DiscoveryView:
    """One discovery now, as pages and the API show it."""

    name: str  # its place in the configuration: dns_sd[0]
    targets: int  # as last seen; those it could not look for again count while they stay
    problems: tuple[tuple[str, str], ...] = ()  # where (a file, a DNS name, a pod) and what is wrong, for a person
    running: bool = True  # it looks again by itself


class Discovering:
    """Runs discoveries on the event loop and calls ``on_change`` whenever one of them finds other targets."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.discoveries: Sequence[Discovery] = ()
        self._on_change = on_change
        self._made_from: object = None
        self._tasks: list[asyncio.Task[None]] = []
        self._broken: set[str] = set()

    @property
    def targets(self) -> list[TargetSpec]:
        """Targets of all of them, in the order of the configuration."""
        return [spec for discovery in self.discoveries for spec in discovery.targets]

    def views(self) -> tuple[DiscoveryView, ...]:
        """All of them in the order of the configuration, with what is wrong with each now."""
        return tuple(
            DiscoveryView(d.name, len(d.targets), self._problems_of(d), running=d.name not in self._broken)
            for d in self.discoveries
        )

    def _problems_of(self, discovery: Discovery) -> tuple[tuple[str, str], ...]:
        broken = ((discovery.name, _BROKEN),) if discovery.name in self._broken else ()
        return (*broken, *discovery.problems.items())

    async def follow(self, discoveries: Sequence[Discovery], made_from: object) -> None:
        """Run these from now on, after one look of each; ``on_change`` is not called for that look.

        ``made_from`` is what they were made from: when it is what the running ones were made from, those go on with
        all they know, and look once more.
        """
        if made_from != self._made_from:
            await self.stop()
            self.discoveries, self._made_from = tuple(discoveries), made_from
        await asyncio.gather(*(discovery.refresh() for discovery in self.discoveries))
        if not self._tasks:
            self._broken.clear()
            self._tasks = [asyncio.create_task(self._run(one), name=one.name) for one in self.discoveries]
            for task in self._tasks:
                task.add_done_callback(self._told_if_broken)

    async def _run(self, discovery: Discovery) -> None:
        await discovery.run(lambda _: self._on_change())

    async def stop(self) -> None:
        """End all tasks; the targets that were found stay listed."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _told_if_broken(self, task: asyncio.Task[None]) -> None:
        """A bug in one discovery must not go unnoticed, nor end the watch over what is known."""
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._broken.add(task.get_name())
            log.error("a discovery broke; this is a bug", extra={"discovery": task.get_name()}, exc_info=bug)
