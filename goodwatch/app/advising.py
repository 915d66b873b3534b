"""Recommendations of the running service: asked for by drifts, by the week, by what runs, by people; kept, and checked.

Nothing is applied by itself. What was applied is checked against the traffic before it as soon as enough requests came.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import polars as pl

from goodwatch.app.evidencing import Evidencing, Gathered
from goodwatch.app.experimenting import entries, keep
from goodwatch.app.request_view import Slice
from goodwatch.core.clock import Clock
from goodwatch.core.drift import Drift
from goodwatch.core.errors import ConfigError, NoDataError, StoreError
from goodwatch.core.model import Deployment
from goodwatch.core.ports import RecordStore
from planner import gathering
from planner.advisors import known_strategies
from planner.candidate import Advice
from planner.checking import checked
from planner.experiments.values import Experiment
from planner.recommend import Mode, recommend
from planner.recommendations import KIND, Recommendation, State, fresh, from_record, made, moved, to_body

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
#: requests right after a start are slow and are no part of a check
_WARM_S: Final = 60.0
#: how often it is looked whether enough requests came for a check
_CHECK_EVERY_S: Final = 60.0
#: traffic that is not alike yet is looked at again after so long
_WAIT_S: Final = 900.0
#: a check that never gets enough requests ends
_LONGEST_CHECK_S: Final = 14 * 86_400.0
#: a check that says nothing is made again with so many times the requests, and so often in all: looking on until
#: something shows would find what is not there
_MORE, _LOOKS = 4, 3


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
    waiting: dict[str, str] = field(default_factory=dict)  # why an applied one has no verdict yet, by id
    refused: dict[str, str] = field(default_factory=dict)  # why the last look at a service came to nothing
    _asked: list[Asked] = field(default_factory=list)
    _last_s: dict[str, float] = field(default_factory=dict)
    _known_s: dict[str, float] = field(default_factory=dict)  # when each service was first seen
    _checked_s: dict[str, float] = field(default_factory=dict)
    _ran: dict[str, str] = field(default_factory=dict)  # what each target was seen to run
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    # -- triggers ---------------------------------------------------------------------------------------------------

    def drifted(self, drift: Drift) -> None:
        """A drift began or ended: the first asks for advice."""
        if drift.ended_s is None:
            window_s = 3600.0 if drift.kind == "burn" else WINDOW_S
            self._want(Asked(drift.service, "drift", window_s, None, drift))

    def _want(self, asked: Asked) -> None:
        """Once an hour a service, whoever asks but a person."""
        waits = any(one.service == asked.service for one in self._asked)
        last = self._last_s.get(asked.service)
        if not waits and (last is None or self.clock.now_s() - last >= _AGAIN_S):
            self._asked.append(asked)

    async def recover(self) -> None:
        """Take up what is kept; a record that cannot be read is left out and told."""
        self.known = await asyncio.to_thread(self._read)
        self.experiments = await asyncio.to_thread(lambda: tuple(entries(self.records)))
        for record in await asyncio.to_thread(self.records.latest, RUN_KIND):
            self._last_s[record.id] = record.at_s

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
        await self._guarded(self._see_deployments())
        self._schedule()
        now = self.clock.now_s()
        for asked in [one for one in self._asked if one.due_s <= now]:
            self._asked.remove(asked)
            await self._guarded(self._answered(asked))
        for one in [r for r in self.known.values() if r.state in ("applied", "inconclusive")]:
            if now - self._checked_s.get(one.id, 0.0) >= _CHECK_EVERY_S:
                self._checked_s[one.id] = now
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
            if now - self._last_s.get(view.name, known_s) >= WEEK_S:
                self._want(Asked(view.name, "schedule", WEEK_S))

    async def _see_deployments(self) -> None:
        """What an engine tells anew may be a recommendation that was applied; any other change asks for advice."""
        for view in self.evidencing.watch.services():
            told = [one.deployment for one in view.targets if one.deployment is not None]
            for one in told:
                text = repr((one.engine, one.engine_version, one.model, sorted(one.facts.items())))
                before = self._ran.get(one.target)
                self._ran[one.target] = text
                if before not in (None, text) and not await self._seen_applied(view.name, told):
                    due_s = self.clock.now_s() + _AGAIN_S  # it has to serve for a while before it can be judged
                    self._want(Asked(view.name, "deployment", due_s=due_s))

    async def _seen_applied(self, service: str, told: Sequence[Deployment]) -> bool:
        args = self.evidencing.args()
        for one in list(self.known.values()):
            if one.service != service or one.state not in ("proposed", "accepted"):
                continue
            if all(gathering.is_made(one.changes, d, args.get(d.target, "")) for d in told):
                at_s = max(d.ts for d in told)
                await self._move(one, "applied", at_s, "the engine", "its own deployment tells the new values")
                return True
        return False

    async def _answered(self, asked: Asked) -> None:
        """As a trigger asks: what keeps it from an answer is there to be read."""
        try:
            await self._answer(asked)
        except (NoDataError, ConfigError) as error:
            self.refused[asked.service] = str(error)
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
            start_s = await self._since(asked.service, now - asked.window_s, now)
            gathered = await self.evidencing.gather(asked.service, start_s, now, asked.drift)
            self._last_s[asked.service] = now
            advice = await asyncio.to_thread(self._advice, gathered, asked.mode)
            found = await asyncio.to_thread(self._made, gathered, advice, asked, now)
            mine = [one for one in self.known.values() if one.service == asked.service]
            new, over = fresh(found, mine, now)
            for one in over:
                await self._move(one, "declined", now, "goodwatch", "newer evidence no longer says so")
            for one in new:
                await self._keep(one, now)
            keys = {one.key for one in found} - {one.key for one in new}
            answer = Answer(advice, tuple(new), tuple(o for o in mine if o.key in keys), gathered.running.findings)
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

    async def move(self, id: str, to: State, by: str, note: str = "", at_s: float | None = None) -> Recommendation:
        """Accept, decline (with a reason), or tell that it was applied, ``at_s`` (now without).

        Raises
        ------
        NoDataError
            There is none of this id.
        ConfigError
            That cannot follow from its state.
        StoreError
            It cannot be kept.
        """
        one = self.known.get(id)
        if one is None:
            raise NoDataError(f"recommendation {id[:100]}: there is none; GET /api/v1/recommendations lists them")
        return await self._move(one, to, self.clock.now_s() if at_s is None else at_s, by, note)

    async def _move(self, one: Recommendation, to: State, at_s: float, by: str, note: str) -> Recommendation:
        told = moved(one, to, at_s, by, note)
        await self._keep(told, self.clock.now_s())
        return told

    async def _keep(self, one: Recommendation, at_s: float) -> None:
        await asyncio.to_thread(self.records.put, KIND, one.id, at_s, to_body(one))
        self.known[one.id] = one

    # -- checking ---------------------------------------------------------------------------------------------------

    async def check(self, id: str) -> Recommendation | None:
        """Check an applied recommendation if enough requests came since; None while there are too few, or no like ones.

        A check that finds nothing is made again with four times the requests, and a third time; then it stays at that.
        Raises ``StoreError`` when a store cannot be read.
        """
        one = self.known.get(id)
        if one is None or one.applied_s is None or one.state not in ("applied", "inconclusive"):
            return None
        now, start = self.clock.now_s(), one.applied_s + self.warm_s
        looks = sum(step.state == "inconclusive" and step.at_s >= one.applied_s for step in one.steps)
        over = now - one.applied_s > _LONGEST_CHECK_S
        if looks >= _LOOKS or (looks and one.steps[-1].at_s - one.applied_s > _LONGEST_CHECK_S):
            return None
        needed = one.check_requests * _MORE**looks
        if not over and await asyncio.to_thread(self.evidencing.reads.count, Slice(one.service, start, now)) < needed:
            return None
        after = await self._judged(one.service, start, now)
        if after.height < needed and not over:
            return None
        before = await self._judged(one.service, self._before_s(one), one.applied_s)
        effective, cost = self._effective(one.service), await self._cost_ratio(one, start, now)
        try:
            found = await asyncio.to_thread(checked, one, before, after, effective, now, cost_ratio=cost)
        except NoDataError as error:
            self.waiting[one.id] = str(error)
            if not over:
                self._checked_s[one.id] = now + _WAIT_S
                return None
            return await self._move(one, "inconclusive", now, "goodwatch", str(error))
        told, experiment = found
        self.waiting.pop(one.id, None)
        await asyncio.to_thread(keep, self.records, experiment)
        await self._keep(told, now)
        self.experiments = (experiment, *(e for e in self.experiments if e.id != experiment.id))
        return told

    @staticmethod
    def _before_s(one: Recommendation) -> float:
        """Where the traffic before a change begins: with its evidence, and not a day longer than that before it."""
        length = max(WINDOW_S, one.window[1] - one.window[0])
        return max(one.window[0], (one.applied_s or one.window[1]) - length)

    async def _cost_ratio(self, one: Recommendation, start_s: float, end_s: float) -> tuple[float, float] | None:
        """Cost per million good tokens after the change over that before, and the cost after; None where it is not known."""
        assert one.applied_s is not None
        spans = ((self._before_s(one), one.applied_s), (start_s, end_s))
        found = [await self.evidencing.reads.cost(Slice(one.service, *span)) for span in spans]
        a, b = (cost.whole.usd_per_million_good_tokens.value for cost in found)
        return None if not a or not b else (b / a, b)

    async def _judged(self, service: str, start_s: float, end_s: float) -> pl.DataFrame:
        facts, _ = await self.evidencing.reads.scores(Slice(service, start_s, end_s))
        return gathering.ready_columns(facts, self.evidencing.reads.vantage(service))

    def _effective(self, service: str) -> Mapping[str, str] | None:
        view = self.evidencing.watch.service(service)
        told = [] if view is None else [t.deployment for t in view.targets if t.deployment is not None]
        return gathering.effective_texts(told[0]) if told else None
