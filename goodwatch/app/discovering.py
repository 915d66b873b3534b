"""All discoveries of one configuration, and the tasks that run them."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from collector.discovery.port import Discovery
from collector.targets import TargetSpec

log = logging.getLogger(__name__)


class Discovering:
    """Runs discoveries on the event loop and calls ``on_change`` whenever one of them finds other targets."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.discoveries: Sequence[Discovery] = ()
        self._on_change = on_change
        self._made_from: object = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def targets(self) -> list[TargetSpec]:
        """Targets of all of them, in the order of the configuration."""
        return [spec for discovery in self.discoveries for spec in discovery.targets]

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
            self._tasks = [asyncio.create_task(self._run(one), name=one.name) for one in self.discoveries]
            for task in self._tasks:
                task.add_done_callback(_told_if_broken)

    async def _run(self, discovery: Discovery) -> None:
        await discovery.run(lambda _: self._on_change())

    async def stop(self) -> None:
        """End all tasks; the targets that were found stay listed."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _told_if_broken(task: asyncio.Task[None]) -> None:
    """A bug in one discovery must not go unnoticed, nor end the watch over what is known."""
    if not task.cancelled() and (bug := task.exception()) is not None:
        log.error("a discovery broke; this is a bug", extra={"discovery": task.get_name()}, exc_info=bug)
