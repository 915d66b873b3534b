"""Recommendations of the running service: asked for by drifts, by the week, by what runs, by people; kept, and checked.

Nothing is applied by itself. What was applied is checked against the traffic before it as soon as enough requests came.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from goodwatch.app.evidencing import Evidencing, Gathered
from goodwatch.app.experiment_ledger import Summaries, without_values
from goodwatch.app.experimenting import keep
from goodwatch.app.verifying import Verifying
from goodwatch.app.view import ServiceView
from goodwatch.core.clock import Clock, within
from goodwatch.core.drift import Drift
from goodwatch.core.errors import ConfigError, NoDataError, StoreError
from goodwatch.core.model import Deployment
from goodwatch.core.ports import RecordStore
from planner import gathering
from planner.advisors import known_strategies
from planner.applied import is_made, running_text, settings_of
from planner.candidate import Advice
from planner.experiments.values import Experiment
from planner.recommend import Mode, recommend
from planner.recommendations import KIND, Recommendation, State, fresh, from_record, made, moved, same_advice, to_body

log = logging.getLogger(__name__)

#: kind of the records of runs, by service: when it was last looked at, and what came of it
RUN_KIND: Final = "recommendation_run"
Trigger = Literal["drift", "schedule", "deployment", "person"]
#: evidence of a run that nobody chose a window for
WINDOW_S: Final = 24 * 3600.0
WEEK_S: Final = 7 * 86_400.0
#: a service that drifts again and again is looked at once in so long
_AGAIN_S: Final = 3600.0
#: advice that is kept of one run; a person reads no more
_KEPT: Final = 3
#: a store that could not be read is tried again after so long
_RETRY_S: Final = 300.0
#: requests right after a start are slow and are no part of a check
_WARM_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: whose, why, over which window, for what; not before ``due_s``."""

    service: str
    trigger: Trigger
    window_s: float = WINDOW_S
    mode: Mode | None = None
    drift: Drift | None = None
    due_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one run came to: the advice, the recommendations that it made anew, and what else was found."""

    advice: Advice
    made: tuple[Recommendation, ...]
    known: tuple[Recommendation, ...] = ()
    findings: tuple[str, ...] = ()


def changed_s(told: Sequence[Deployment]) -> list[float]:
    """When what targets run changed; the first that is known of a target is no change."""
    known: set[str] = set()
    found: list[float] = []
    for one in told:
        if one.target in known:
            found.append(one.ts)
        known.add(one.target)
    return found


@dataclass(slots=True)
class Advising:
    """Implements ``DriftListener``; ``work`` is called every few seconds on the event loop.

    ``warm_s``: how long after a change requests are left out of its check; ``weekly``: whether every service is looked at
    once a week without anybody asking.
    """

    evidencing: Evidencing
    records: RecordStore
    clock: Clock
    warm_s: float = _WARM_S
    weekly: bool = True
    problem: str = ""  # of the last run by itself; "" when it went well
    known: dict[str, Recommendation] = field(default_factory=dict)  # by id
    experiments: tuple[Experiment, ...] = ()
    answers: dict[str, Answer] = field(default_factory=dict)  # the last of each service
    refused: dict[str, str] = field(default_factory=dict)  # why the last look at a service came to nothing
    _asked: list[Asked] = field(default_factory=list)
    _last_s: dict[str, float] = field(default_factory=dict)
    _known_s: dict[str, float] = field(default_factory=dict)  # when each service was first seen
    _tried_s: dict[str, float] = field(default_factory=dict)  # as _last_s, looks that came to nothing too
    _ran: dict[str, frozenset[str]] = field(default_factory=dict)  # what the replicas of each service were seen to run
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    _moving: asyncio.Lock = field(default_factory=asyncio.Lock)  # from reading a state to keeping the next
    verifying: Verifying = field(init=False)
    summaries: Summaries = field(init=False)

    def __post_init__(self) -> None:
        self.verifying = Verifying(self.evidencing, self.clock, self.warm_s)
        self.summaries = Summaries(self.records)

    @property
    def waiting(self) -> dict[str, str]:
        """Why an applied recommendation has no verdict yet, by id."""
        return self.verifying.waiting

    # -- triggers ---------------------------------------------------------------------------------------------------

    def drifted(self, drift: Drift) -> None:
        """A drift began or ended: the first asks for advice."""
        if drift.ended_s is None:
            window_s = 3600.0 if drift.kind == "burn" else WINDOW_S
            self._want(Asked(drift.service, "drift", window_s, None, drift))

    def _want(self, asked: Asked) -> None:
        """Once an hour a service, whoever asks but a person; what comes sooner waits, for a drift is told only once."""
        tried = [at_s for of in (self._last_s, self._tried_s) if (at_s := of.get(asked.service)) is not None]
        recent = [at_s for at_s in tried if within(at_s, self.clock.now_s(), _AGAIN_S)]
        asked = replace(asked, due_s=max([asked.due_s, *(at_s + _AGAIN_S for at_s in recent)]))
        waits = next((one for one in self._asked if one.service == asked.service), None)
        if waits is None:
            self._asked.append(asked)
        elif asked.drift is not None and waits.drift is None:  # a drift says more than a week or a new version
            self._asked[self._asked.index(waits)] = replace(asked, due_s=min(asked.due_s, waits.due_s))

    async def recover(self) -> None:
        """Take up what is kept; a record that cannot be read is left out and told."""
        self.known = await asyncio.to_thread(self._read)
        await self.count()
        for record in await asyncio.to_thread(self.records.latest, RUN_KIND):
            self._last_s[record.id] = record.at_s

    async def count(self) -> None:
        """Read the ledger of experiments again: others write to it too. Raises ``StoreError``."""
        self.experiments = await asyncio.to_thread(self.summaries.read)

    def _read(self) -> dict[str, Recommendation]:
        found: dict[str, Recommendation] = {}
        for record in self.records.latest(KIND):
            try:
                found[record.id] = from_record(record)
            except ConfigError as error:
                log.warning("a recommendation cannot be read", extra={"problem": str(error)})
        return found

    async def work(self) -> None:
        """Answer what was asked for, see what runs, check what was applied. Does not raise for what it cannot do."""
        self.problem = ""
        for view in self.evidencing.watch.services():
            await self._guarded(self._see(view))
        self._schedule()
        now = self.clock.now_s()
        for asked in [one for one in self._asked if one.due_s <= now]:
            self._asked.remove(asked)
            await self._guarded(self._answered(asked))
        for one in [r for r in self.known.values() if self.verifying.is_due(r)]:
            await self._guarded(self.check(one.id))

    async def _guarded(self, work: Awaitable[object]) -> None:
        try:
            await work
        except (NoDataError, ConfigError) as error:
            log.info("no advice", extra={"reason": str(error)})
        except StoreError as error:
            self.problem = str(error)
            log.error("advice cannot be kept", extra={"problem": str(error)})

    def _schedule(self) -> None:
        if not self.weekly:
            return
        now = self.clock.now_s()
        for view in self.evidencing.watch.services():
            # a service that is new is not judged on its first minute
            known_s = self._known_s.setdefault(view.name, now)
            last_s = self._last_s.get(view.name, known_s)
            waits = any(one.service == view.name for one in self._asked)
            if not waits and not within(last_s, now, WEEK_S):
                self._want(Asked(view.name, "schedule", WEEK_S))

    async def _see(self, view: ServiceView) -> None:
        """What replicas tell may be a recommendation that was applied; any other change asks for advice.

        Looked at each time and not at changes only: a change may be made while goodwatch is down, or by new replicas
        under new names.
        """
        told = [one.deployment for one in view.targets if one.deployment is not None]
        runs = frozenset(map(running_text, told))
        before = self._ran.get(view.name)
        if told:
            self._ran[view.name] = runs
        silent = any(one.up and one.deployment is None for one in view.targets)
        applied = bool(told) and not silent and await self._seen_applied(view.name, told)
        if before is not None and runs - before and not applied:
            due_s = self.clock.now_s() + _AGAIN_S  # it has to serve for a while before it can be judged
            self._want(Asked(view.name, "deployment", due_s=due_s))

    async def _seen_applied(self, service: str, told: Sequence[Deployment]) -> bool:
        # Only what engines tell: a configuration may name new flags hours before or after the engine runs with them.
        waiting = [r for r in self.known.values() if r.service == service and r.state in ("proposed", "accepted")]
        made = sorted(
            ((-count, one.state != "accepted", one.rank, one) for one in waiting if (count := is_made(one, told, {}))),
            key=lambda each: each[:3],
        )
        now, taken = self.clock.now_s(), frozenset[tuple[str, str]]()
        for *_, one in made:
            if taken and settings_of(one) <= taken:  # one restart must not be two savings
                note = "what it would have set came into effect with another recommendation"
                await self._move(one.id, "declined", now, "goodwatch", note)
                continue
            at_s = min(now, max(one.steps[0].at_s if one.steps else 0.0, *(d.ts for d in told)))
            await self._move(one.id, "applied", at_s, "the engine", "its own deployment tells the new values")
            taken |= settings_of(one)
        return bool(made)

    async def _answered(self, asked: Asked) -> None:
        """As a trigger asks: what keeps it from an answer is there to be read."""
        self._tried_s[asked.service] = self.clock.now_s()
        try:
            await self._answer(asked)
        except (NoDataError, ConfigError) as error:
            self.refused[asked.service] = str(error)
            raise
        except StoreError:
            self._asked.append(replace(asked, due_s=self.clock.now_s() + _RETRY_S))
            raise

    # -- asking -----------------------------------------------------------------------------------------------------

    async def ask(self, asked: Asked) -> Answer:
        """Advice now, for a person or a test; the same as what a trigger gets.

        Raises
        ------
        NoDataError
            Unknown service, or nothing to say anything from.
        ConfigError
            The window is empty, or no target tells what it runs.
        StoreError
            A store cannot be read or written.
        """
        return await self._answer(asked)

    async def _answer(self, asked: Asked) -> Answer:
        if asked.window_s <= 0:
            raise ConfigError(f"window: {asked.window_s:g} s: write a time above 0, as 24h")
        async with self._busy:  # one at a time: fitting and simulating take a processor
            now = self.clock.now_s()
            since_s = await self._since(asked.service, now - asked.window_s, now)
            start_s = await asyncio.to_thread(self.evidencing.readable_since, asked.service, since_s, now)
            gathered = await self.evidencing.gather(asked.service, start_s, now, asked.drift)
            self._last_s[asked.service] = now
            advice = await asyncio.to_thread(self._advice, gathered, asked.mode)
            found = await asyncio.to_thread(self._made, gathered, advice, asked, now)
            mine = [one for one in self.known.values() if one.service == asked.service]
            advised = [(one.proposal.strategy, one.proposal.changes) for one in advice.candidates]
            new, over = fresh(found, mine, now, advised)
            for one in over:
                if advice.stay is not None and asked.mode in (None, one.mode):  # to abstain is to say nothing of it
                    await self._withdraw(one, now)
            for one in new:
                await self._keep(one, now)
            again = [same_advice(one, mine[::-1]) for one in found if one not in new]
            known = tuple({o.id: o for o in again if o is not None}.values())
            answer = Answer(advice, tuple(new), known, gathered.running.findings)
            self.answers[asked.service] = answer
            self.refused.pop(asked.service, None)
            told = {
                "trigger": asked.trigger,
                "mode": advice.mode,
                "reason": advice.reason,
                "made": [one.id for one in new],
            }
            await asyncio.to_thread(self.records.put, RUN_KIND, asked.service, now, told)
        log.info("advice", extra={"service": asked.service, "trigger": asked.trigger, "made": len(new)})
        return answer

    async def _since(self, service: str, start_s: float, now: float) -> float:
        """The start of the evidence: not before the last change of what runs, as the engine or a person told it."""
        watch = self.evidencing.watch
        told = await watch.keeper.call(lambda: watch.store.deployments(0.0, now, service=service))
        applied = [one.applied_s for one in self.known.values() if one.service == service]
        found = [*changed_s(told), *(at_s for at_s in applied if at_s is not None)]
        return max([start_s, *found])

    @staticmethod
    def _advice(gathered: Gathered, mode: Mode | None) -> Advice:
        return recommend(gathered.evidence, known_strategies(), mode=mode)

    def _made(self, gathered: Gathered, advice: Advice, asked: Asked, now: float) -> list[Recommendation]:
        told = gathered.deployments[0]
        before = gathering.effective_texts(told)
        return [
            replace(
                made(one, advice, gathered.evidence, gathered.running.configuration, at_s=now, rank=rank, noise=gathered.noise),
                trigger=asked.trigger, before=before, findings=gathered.running.findings,
            )
            for rank, one in enumerate(advice.candidates[:_KEPT], 1)
        ]  # fmt: skip

    # -- what people say --------------------------------------------------------------------------------------------

    def one(self, id: str) -> Recommendation | None:
        """A recommendation by id."""
        return self.known.get(id)

    def all(self, service: str | None = None) -> list[Recommendation]:
        """Recommendations, newest first; of one run the best first."""
        found = [one for one in self.known.values() if service in (None, one.service)]
        return sorted(found, key=lambda one: (-(one.steps[0].at_s if one.steps else 0.0), one.rank))

    async def _withdraw(self, one: Recommendation, now: float) -> None:
        with suppress(ConfigError, NoDataError):  # somebody accepted it meanwhile
            await self._move(one.id, "declined", now, "goodwatch", "newer evidence no longer says so")

    async def move(self, id: str, to: State, by: str, note: str = "", at_s: float | None = None) -> Recommendation:
        """Accept, decline (with a reason), or tell that it was applied, ``at_s`` (now without).

        Raises
        ------
        NoDataError
            There is none of this id.
        ConfigError
            That cannot follow from its state, or was before it was recommended.
        StoreError
            It cannot be kept.
        """
        return await self._move(id, to, self.clock.now_s() if at_s is None else at_s, by, note)

    async def _move(self, id: str, to: State, at_s: float, by: str, note: str) -> Recommendation:
        async with self._moving:  # of two who say something at once the second is told what the first said
            one = self.known.get(id)
            if one is None:
                raise NoDataError(f"recommendation {id[:100]}: there is none; GET /api/v1/recommendations lists them")
            told = moved(one, to, at_s, by, note)
            await self._keep(told, self.clock.now_s())
            return told

    async def _keep(self, one: Recommendation, at_s: float) -> None:
        await asyncio.to_thread(self.records.put, KIND, one.id, at_s, to_body(one))
        self.known[one.id] = one

    # -- checking ---------------------------------------------------------------------------------------------------

    async def check(self, id: str) -> Recommendation | None:
        """Check an applied recommendation; None while it has no verdict (``waiting`` says why).

        Raises ``StoreError`` when a store cannot be read or written.
        """
        one = self.known.get(id)
        found = None if one is None else await self.verifying.check(one)
        if one is None or found is None:
            return None
        told, experiment = found
        async with self._moving:
            if self.known.get(id) != one:  # somebody said something meanwhile, and that stands
                return None
            if experiment is not None:
                await asyncio.to_thread(keep, self.records, experiment)
                light = without_values(experiment)
                self.experiments = (light, *(e for e in self.experiments if e.id != experiment.id))
            await self._keep(told, self.clock.now_s())
        return told
