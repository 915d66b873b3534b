"""Advice, experiments and weekly reports in the running service, put together: what would help, what it did, what it saved."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import Metric

from exporters.recommendations import recommendation_families
from goodwatch.app.advice_view import advice_now
from goodwatch.app.advising import Advising
from goodwatch.app.config import Settings
from goodwatch.app.evidencing import Evidencing
from goodwatch.app.experiment_ledger import ExperimentLedger
from goodwatch.app.promises import Ground, Promises
from goodwatch.app.report_reads import Gathering
from goodwatch.app.reporting import Archive, Reporting
from goodwatch.core.errors import StoreError

#: how often it is looked whether advice is due, and how often experiments are counted anew
WORK_EVERY_S: Final = 15.0
COUNT_EVERY_S: Final = 60.0
_SINCE: Final = "first_seen"


@dataclass(frozen=True, slots=True)
class Improvement:
    """The parts; made by ``improvement``."""

    advising: Advising
    ledger: ExperimentLedger
    archive: Archive
    reporting: Reporting

    async def count(self) -> None:
        """Read the ledger again for the exported series: others write to it too."""
        with suppress(StoreError):  # told where it is asked; the series stay as they were
            await self.advising.count()

    def families(self) -> Iterator[Metric]:
        """What is exported of recommendations and experiments."""
        return recommendation_families(advice_now(self.advising))


def _since(ground: Ground) -> float:
    """When anything was first seen: kept, since the stores forget and a report that was missed in downtime is made up."""
    record = ground.records.get(_SINCE, _SINCE)
    if record is not None and isinstance(since_s := record.body.get("since_s"), float):
        return since_s
    oldest = (ground.samples.health().oldest_s, ground.intake.store.health().oldest_s)
    since_s = min([ground.clock.now_s(), *(at_s for at_s in oldest if at_s is not None)])
    ground.records.put(_SINCE, _SINCE, ground.clock.now_s(), {"since_s": since_s})
    return since_s


@asynccontextmanager
async def improvement(settings: Settings, ground: Ground, promises: Promises) -> AsyncIterator[Improvement]:
    """Everything recovered and listening to drifts, as long as it is entered. Raises ``StoreError``."""
    watch = ground.watch

    def args() -> dict[str, str]:
        return {name: state.spec.target.args for name, state in watch.states.items() if state.spec.target.args}

    advising = Advising(Evidencing(ground.intake.reads, watch, args), ground.records, ground.clock)
    await advising.recover()
    promises.listen(advising)

    def objectives() -> dict[str, float]:
        return {view.name: view.objective for view in watch.services() if view.objective is not None}

    archive = Archive(ground.records, Path(settings.data_dir))
    since_s = await asyncio.to_thread(_since, ground)
    reporting = Reporting(
        settings.report, Gathering(ground.intake.reads, promises.loop.reads, ground.records, objectives), archive,
        ground.clock, sinks={name: promises.sinks[name] for name in settings.report.sinks},
        since_s=since_s, external_url=watch.external_url,
    )  # fmt: skip
    yield Improvement(advising, ExperimentLedger(ground.records, ground.clock), archive, reporting)
