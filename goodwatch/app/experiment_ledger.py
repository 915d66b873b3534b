"""The ledger of experiments for pages and the API: what is wanted of it, what is kept, how the planner fares."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from goodwatch.app.experimenting import new_id, predictions
from goodwatch.core.clock import Clock
from goodwatch.core.errors import ConfigError
from goodwatch.core.ports import RecordStore
from goodwatch.core.record import Record
from planner.experiments.benchmark import Benchmark
from planner.experiments.calibration import Calibration, Checked, calibration, checked, over_time
from planner.experiments.designs import aa_noise, judge
from planner.experiments.importing import compared, metrics_of, read_benchmarks, run_of
from planner.experiments.values import KIND, Arm, Experiment, FixedInput, from_record, to_body

log = logging.getLogger(__name__)

#: raw values of one entry: more would keep a judge busy for long, and no load test of ours makes so many
MOST_VALUES: Final = 100_000
#: entries that are read for a list or the calibration, newest first
MOST_ENTRIES: Final = 5_000
#: entries that are read at once for a summary, and how far back it is looked again: clocks are set back
_PAGE: Final = 50
_OVERLAP_S: Final = 3600.0
_WEEK_S: Final = 7 * 86_400.0
#: more steps than this are months instead of weeks
_MOST_WEEKS: Final = 26
_MONTH_S: Final = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which experiments; None is all. ``verdict`` "none" are those without one. ``since_s``: kept at or after it."""

    service: str | None = None
    state: str | None = None
    verdict: str | None = None
    since_s: float | None = None
    limit: int = 100

    def fits(self, one: Experiment) -> bool:
        """Whether an experiment is among them."""
        outcome = one.verdict.outcome if one.verdict is not None else "none"
        asked = ((self.service, one.service), (self.state, one.state), (self.verdict, outcome))
        return all(wanted is None or wanted == told for wanted, told in asked)


@dataclass(frozen=True, slots=True)
class Listed:
    """Experiments, newest first. ``fitting`` is how many there are; ``unreadable`` are (id, what is wrong)."""

    experiments: tuple[Experiment, ...]
    fitting: int
    services: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The planner's predictions against results: in all, by metric, and by step of time."""

    whole: Calibration
    by_metric: Mapping[str, Calibration]
    steps: tuple[tuple[float, Calibration], ...]
    step_s: float
    checked: tuple[Checked, ...]


@dataclass(frozen=True, slots=True)
class Files:
    """Result files of two sides as (name, text); ``candidate`` () keeps the baseline's runs without a verdict."""

    baseline: tuple[tuple[str, str], ...]
    candidate: tuple[tuple[str, str], ...] = ()
    question: str = ""
    primary: str | None = None
    service: str = ""


@dataclass(slots=True)
class Summaries:
    """Every experiment without its raw values, read again where it is new; one that cannot be read is left out and told.

    A ledger of some years holds gigabytes of values, and what counts verdicts needs none of them. Blocking.
    """

    records: RecordStore
    _known: dict[str, Experiment] = field(default_factory=dict)
    _until_s: float | None = None
    _told: set[str] = field(default_factory=set)  # that cannot be read

    def read(self) -> tuple[Experiment, ...]:
        """All that are kept, newest first. Raises ``StoreError``."""
        start_s = None if self._until_s is None else self._until_s - _OVERLAP_S
        end_s, seen = None, set[str]()
        while found := [r for r in self._page(start_s, end_s) if r.id not in seen]:
            seen.update(one.id for one in found)
            for record in found:
                self._take(record)
            end_s = math.nextafter(found[-1].at_s, math.inf)  # others may have been kept in the same moment
        return tuple(sorted(self._known.values(), key=lambda one: -(one.created_s or 0.0)))

    def _page(self, start_s: float | None, end_s: float | None) -> list[Record]:
        return self.records.latest(KIND, start_s=start_s, end_s=end_s, limit=_PAGE)

    def _take(self, record: Record) -> None:
        self._until_s = max(record.at_s, self._until_s or record.at_s)
        try:
            self._known[record.id] = without_values(from_record(record))
        except ConfigError as error:
            if self._known.pop(record.id, None) is not None or record.id not in self._told:
                log.warning("an experiment cannot be read", extra={"id": record.id, "problem": str(error)})
            self._told.add(record.id)


def without_values(one: Experiment) -> Experiment:
    """An experiment with its verdict and without its runs; predictions that nothing can be said of are left out too."""
    told = {each.metric for each in checked(one)}
    return replace(
        one, baseline=replace(one.baseline, runs=()), candidate=replace(one.candidate, runs=()),
        predictions=tuple(p for p in one.predictions if p.metric in told),
    )  # fmt: skip


class IdTakenError(ConfigError):
    """There is an experiment of this id already."""


class ExperimentLedger:
    """Reads and writes of experiments in a store of records; everything slow is done in a thread."""

    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self._records, self._clock = records, clock
        self._writing = asyncio.Lock()

    async def listed(self, wanted: Wanted) -> Listed:
        """Experiments that fit, newest first. Raises ``StoreError``."""
        return await asyncio.to_thread(self._listed, wanted)

    async def one(self, id: str) -> Experiment | None:
        """One experiment; None when there is none. Raises ``StoreError``, or ``ConfigError`` when it cannot be read."""
        record = await asyncio.to_thread(self._records.get, KIND, id)
        return None if record is None else await asyncio.to_thread(from_record, record)

    async def calibrated(self, service: str | None = None) -> Calibrated:
        """How the planner's predictions fared. Raises ``StoreError``."""
        return await asyncio.to_thread(lambda: calibrated(self._listed(_all(service)).experiments))

    async def keep(self, experiment: Experiment, *, update: bool = False) -> Experiment:
        """Judge and keep an entry; whatever verdict came with it is not believed.

        Raises
        ------
        IdTakenError
            The id is in use and ``update`` is false.
        ConfigError
            It holds more raw values than ``MOST_VALUES``.
        StoreError
            It cannot be kept.
        """
        _bounded(experiment)
        async with self._writing:  # one judge at a time, and no id twice
            return await asyncio.to_thread(self._keep, experiment, update=update)

    async def keep_files(self, files: Files) -> Experiment:
        """Read, judge and keep result files. Raises ``ConfigError`` (says what is wrong with which) and ``StoreError``."""
        return await self.keep(await asyncio.to_thread(imported, files, self._clock.now_s()))

    def _listed(self, wanted: Wanted) -> Listed:
        fitting, services, unreadable = [], set(), []
        for record in self._records.latest(KIND, start_s=wanted.since_s, limit=MOST_ENTRIES):
            try:
                one = from_record(record)
            except ConfigError as error:  # one odd entry must not hide the others
                unreadable.append((record.id, str(error)))
                continue
            services.add(one.service)
            if wanted.fits(one):
                fitting.append(one)
        return Listed(
            tuple(fitting[: wanted.limit]), len(fitting), tuple(sorted(services - {""})), tuple(unreadable)
        )  # fmt: skip

    def _keep(self, experiment: Experiment, *, update: bool) -> Experiment:
        at_s = self._clock.now_s()
        if not update and self._records.get(KIND, experiment.id) is not None:
            raise IdTakenError(f"experiment {experiment.id} is there already; choose another id, or send ?update=true")
        if experiment.created_s is None:
            experiment = replace(experiment, created_s=at_s)
        verdict = None
        if experiment.design != "sweep" and experiment.state != "planned":
            noise = aa_noise(self._listed(_all(None)).experiments, experiment.service or None)
            verdict = judge(experiment, at_s=at_s, noise=noise)
        kept = replace(experiment, verdict=verdict)
        self._records.put(KIND, kept.id, at_s, to_body(kept))
        return kept


def imported(files: Files, at_s: float) -> Experiment:
    """An entry of result files, not judged yet. Raises ``ConfigError`` as ``read_benchmarks`` and ``compared``."""
    sides = [
        [run for name, text in side for run in read_benchmarks(name, text)]
        for side in (files.baseline, files.candidate)
    ]
    texts = dict((*files.baseline, *files.candidate))
    hashes = {name: hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() for name, text in texts.items()}
    if files.candidate:
        made = compared(
            new_id("compare", at_s), sides[0], sides[1], question=files.question, hashes=hashes, primary=files.primary,
            at_s=at_s,
        )  # fmt: skip
    else:
        made = _alone(sides[0], files, hashes, at_s)
    return replace(made, service=files.service)


def _alone(runs: Sequence[Benchmark], files: Files, hashes: Mapping[str, str], at_s: float) -> Experiment:
    """Runs of one side, kept to be looked at or compared later; there is nothing to judge."""
    made = tuple(run_of(one, place) for place, one in enumerate(runs))
    metrics = [one for one in metrics_of(runs) if any(one.name in run.measures for run in made)]
    if files.primary is not None:
        metrics.sort(key=lambda metric: metric.name != files.primary)
    if not metrics or (files.primary is not None and metrics[0].name != files.primary):
        raise ConfigError(f"metric: {files.primary or 'none that can be compared'} is not in the files")
    first = runs[0]
    return Experiment(
        new_id("import", at_s), files.question or f"What did {files.baseline[0][0]} measure?", "sweep",
        Arm("runs", made), Arm("none"), tuple(metrics), state="done", created_s=at_s, model=first.model,
        engine=first.engine, inputs=tuple(FixedInput(name, sha) for name, sha in sorted(hashes.items())),
        boundary=f"client: {first.tool}'s own stopwatch",
        notes=tuple(dict.fromkeys(said for one in runs for said in one.findings)),
    )  # fmt: skip


def calibrated(experiments: Sequence[Experiment]) -> Calibrated:
    """How the predictions of some experiments fared; steps are weeks, or months of 30 days over a long time."""
    found = predictions(experiments)
    names = sorted({one.metric for one in found})
    times = [one.at_s for one in found if one.at_s is not None]
    long = bool(times) and max(times) - min(times) > _MOST_WEEKS * _WEEK_S
    step_s = _MONTH_S if long else _WEEK_S
    by_metric = {name: calibration([one for one in found if one.metric == name]) for name in names}
    newest = tuple(sorted(found, key=lambda one: -(one.at_s or 0.0)))
    return Calibrated(calibration(found), by_metric, over_time(found, step_s), step_s, newest)


def _all(service: str | None) -> Wanted:
    return Wanted(service, limit=MOST_ENTRIES)


def _bounded(experiment: Experiment) -> None:
    runs = [run for arm in (experiment.baseline, experiment.candidate) for run in arm.runs]
    count = sum(len(one.values) for run in runs for one in run.measures.values())
    if count > MOST_VALUES:
        raise ConfigError(
            f"the runs hold {count:,} raw values; send at most {MOST_VALUES:,}: fewer requests or metrics"
        )
