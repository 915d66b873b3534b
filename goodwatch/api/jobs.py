"""What the service does again and again, by APScheduler on the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from apscheduler.schedulers.asyncio import AsyncIOScheduler

Work = Callable[[], Awaitable[object]]


def scheduled(jobs: Iterable[tuple[Work, float]], stopping: Callable[[], bool]) -> AsyncIOScheduler:
    """A running scheduler of (work, seconds between two runs). A run that is still on is not started again."""
    scheduler = AsyncIOScheduler(timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1})
    for work, every_s in jobs:
        scheduler.add_job(_job(work, stopping), "interval", seconds=every_s, misfire_grace_time=None)
    scheduler.start()
    return scheduler


def _job(work: Work, stopping: Callable[[], bool]) -> Callable[[], Awaitable[None]]:
    """A job that the scheduler may cut short when the service stops: that is no error."""

    async def run() -> None:
        try:
            await work()
        except asyncio.CancelledError:
            if not stopping():
                raise

    return run
