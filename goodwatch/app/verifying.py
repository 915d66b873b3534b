"""Checks of applied recommendations in the running service: which traffic is compared, how often it is looked, why not yet.

Looking on until something shows would find what is not there: a check that says nothing is made again with four times
the requests, and three times in all.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from goodwatch.app.evidencing import Evidencing
from goodwatch.app.request_view import Slice
from goodwatch.core.clock import Clock, within
from goodwatch.core.errors import NoDataError
from goodwatch.core.model import Deployment
from goodwatch.signals.quality import with_quality
from planner import gathering
from planner.applied import effective_of, ran_after, traffic_after_s, traffic_before_s
from planner.checking import checked
from planner.experiments.values import Experiment
from planner.recommendations import LEAST_CHECK, Recommendation, moved

_DAY_S: Final = 86_400.0
#: how often it is looked whether enough requests came for a check
_CHECK_EVERY_S: Final = 60.0
#: traffic that is not alike yet is looked at again after so long
_WAIT_S: Final = 900.0
#: a check that never gets enough requests ends
_LONGEST_CHECK_S: Final = 14 * _DAY_S
#: a check that says nothing is made again with so many times the requests, and so often in all
_MORE, _LOOKS = 4, 3
#: money is told by the day: what runs at night is part of the bill
_LEAST_SAVE_S: Final = _DAY_S

#: what came of a check: the recommendation after it, and the experiment for the ledger where there was one
Checked = tuple[Recommendation, Experiment | None]


@dataclass(frozen=True, slots=True)
class _Window:
    """Traffic before, ``[before[0], before[1])``, and after, and whether more can come after it."""

    before: tuple[float, float]
    after: tuple[float, float]
    over: str  # why no more will come; "" while more may
    ran: Sequence[Deployment]  # what replicas told that they ran in the time after


@dataclass(slots=True)
class Verifying:
    """Checks what was applied. ``waiting``: why there is no verdict yet, by id of the recommendation.

    ``warm_s``: requests so soon after a start are slow and are left out.
    """

    evidencing: Evidencing
    clock: Clock
    warm_s: float
    waiting: dict[str, str] = field(default_factory=dict)
    _looked_s: dict[str, float] = field(default_factory=dict)
    _pause_s: dict[str, float] = field(default_factory=dict)

    def is_due(self, one: Recommendation) -> bool:
        """Whether it is time to look at an applied recommendation again; notes that it is looked at."""
        now = self.clock.now_s()
        if one.state not in ("applied", "inconclusive") or within(
            self._looked_s.get(one.id), now, self._pause_s.get(one.id, _CHECK_EVERY_S)
        ):
            return False
        self._looked_s[one.id] = now
        self._pause_s.pop(one.id, None)
        return True

    async def check(self, one: Recommendation) -> Checked | None:
        """The verdict on an applied recommendation; None while too few requests came, or none like those before.

        Raises ``StoreError`` when a store cannot be read.
        """
        if one.applied_s is None or one.state not in ("applied", "inconclusive"):
            return None
        looks = sum(step.state == "inconclusive" and step.at_s >= one.applied_s for step in one.steps)
        if looks >= _LOOKS or (looks and one.steps[-1].at_s - one.applied_s > _LONGEST_CHECK_S):
            return None
        window = await self._window(one, one.applied_s)
        needed = one.check_requests * _MORE**looks
        lacking = await self._lacking(one, window, needed)
        if not lacking:
            return await self._verdict(one, window, needed, early=looks + 1 < _LOOKS and not window.over)
        if window.over:
            return self._ended(one, f"{window.over}; {lacking}")
        self._wait(one, lacking)
        return None

    async def _window(self, one: Recommendation, applied_s: float) -> _Window:
        now, watch = self.clock.now_s(), self.evidencing.watch
        told = await watch.keeper.call(lambda: watch.store.deployments(0.0, now, service=one.service))
        before_s, after_s = traffic_before_s(one, told, applied_s), traffic_after_s(one, told, applied_s, now)
        length = max(_DAY_S, one.window[1] - one.window[0])
        first_s = max(one.window[0], before_s - length)
        over = "what runs was changed again" if after_s < now else ""
        if now - applied_s > _LONGEST_CHECK_S:
            over = over or "a check ends after 14 days"
        ran = ran_after(one, told, after_s) if after_s < now else self._running(one.service)
        return _Window((min(first_s, before_s), before_s), (min(applied_s + self.warm_s, after_s), after_s), over, ran)

    def _running(self, service: str) -> Sequence[Deployment]:
        """What the replicas of a service tell that they run now, those that tell."""
        view = self.evidencing.watch.service(service)
        return [] if view is None else [t.deployment for t in view.targets if t.deployment is not None]

    async def _lacking(self, one: Recommendation, window: _Window, needed: float) -> str:
        """What a check still lacks; "" when it can be made."""
        start_s, end_s = window.after
        if one.mode == "save" and end_s - start_s < _LEAST_SAVE_S:
            return f"{(end_s - start_s) / 3600:.1f} hours since the change; money is told by the day"
        came = await asyncio.to_thread(self.evidencing.reads.count, Slice(one.service, start_s, end_s))
        if came < needed and not (came >= LEAST_CHECK and window.over):
            return f"{came:,.0f} of {needed:,.0f} requests that a check needs came since the change"
        return ""

    async def _verdict(self, one: Recommendation, window: _Window, needed: float, *, early: bool) -> Checked | None:
        sides = [await self._judged(one, span) for span in (window.before, window.after)]
        (before, passed), (after, passes) = sides
        if after.height < needed and not window.over:
            reason = f"{after.height:,} of {needed:,.0f} requests that can be judged came since the change"
            self._wait(one, reason, _WAIT_S)
            return None
        quality = None if passed is None or passes is None else (passed, passes)
        bill = await self._bill(one, window)
        effective = effective_of(window.ran)
        at_s = self.clock.now_s()
        try:
            found = await asyncio.to_thread(
                checked, one, before, after, effective, at_s, bill=bill, quality=quality, early=early
            )  # fmt: skip
        except NoDataError as error:
            if window.over:
                return self._ended(one, str(error))
            self._wait(one, str(error), _WAIT_S)
            return None
        self.waiting.pop(one.id, None)
        return found

    def _wait(self, one: Recommendation, reason: str, pause_s: float = _CHECK_EVERY_S) -> None:
        self.waiting[one.id] = reason
        self._pause_s[one.id] = pause_s

    def _ended(self, one: Recommendation, reason: str) -> Checked:
        self.waiting.pop(one.id, None)
        return moved(one, "inconclusive", self.clock.now_s(), "goodwatch", reason), None

    async def _judged(
        self, one: Recommendation, span: tuple[float, float]
    ) -> tuple[pl.DataFrame, tuple[int, int] | None]:
        """Requests of one side, and for a change with a quality gate how many answers passed and were judged.

        Of more than can be read at once those nearest the change are taken.
        """
        reads = self.evidencing.reads
        start_s, end_s = span
        if span[1] <= (one.applied_s or 0.0):
            start_s = await asyncio.to_thread(self.evidencing.readable_since, one.service, start_s, end_s)
        else:
            end_s = await asyncio.to_thread(self.evidencing.readable_until, one.service, start_s, end_s)
        facts, scores = await reads.scores(Slice(one.service, start_s, end_s))

        def ready() -> tuple[pl.DataFrame, tuple[int, int] | None]:
            made = gathering.ready_columns(facts, reads.vantage(one.service))
            if not one.gate or scores.is_empty():
                return made, None
            passed = with_quality(facts, scores, reads.loop.terms.rules)["passed"].drop_nulls()
            return made, (int(passed.sum()), len(passed)) if len(passed) else None

        return await asyncio.to_thread(ready)

    async def _bill(self, one: Recommendation, window: _Window) -> tuple[float, float] | None:
        """USD an hour before and after; None where it is not known."""
        paid = [
            await self.evidencing.reads.usd_per_hour(Slice(one.service, *span))
            for span in (window.before, window.after)
        ]
        return None if paid[0] is None or paid[1] is None else (paid[0], paid[1])
