"""The judge job: samples kept answers, asks the judge within a daily budget, keeps its grades and what they cost."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, TypeVar

import polars as pl

from collector.quality.texts import KeptText, Spent, TextStore
from goodwatch.core.clock import Clock
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Absence, Basis, Bounds, Number
from goodwatch.core.ports import RequestStore
from goodwatch.core.quality import Judge, JudgeBusyError, JudgeRefusedError, JudgeReply, Price
from goodwatch.signals.quality_judge import EDITION, UnreadableError, grades, questions, repair
from goodwatch.signals.request_frames import SCORES

_T = TypeVar("_T")

log = logging.getLogger(__name__)

_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
#: when it refuses so many texts one after the other, it is not the texts
_REFUSED_IN_A_ROW: Final = 3
#: tokens of the form around messages: roles and separators
_FORM_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class JudgeTerms:
    """How much may be judged. ``price`` None: cost is not known, and only calls are limited.

    ``look_back_s``: how old an answer may be. ``tries``: of one question, when the judge is busy.
    """

    model: str
    batch: int = 20
    calls_per_day: int = 1000
    usd_per_day: float | None = None
    price: Price | None = None
    max_output_tokens: int = 300
    look_back_s: float = 86_400.0
    tries: int = 4


@dataclass(frozen=True, slots=True)
class JudgeState:
    """What the judge did today and since the start; ``problem`` "" when it works."""

    model: str
    day: str
    calls: int
    calls_per_day: int
    usd: Number
    usd_per_day: float | None
    outcomes: Mapping[str, int]  # scored, nothing to judge, unreadable, refused, busy: since the start
    problem: str


@dataclass(slots=True)
class Judging:
    """Runs the judge over kept texts. ``thread`` is where the text store is used; ``wait`` sleeps."""

    judge: Judge
    texts: TextStore
    scores: RequestStore
    clock: Clock
    terms: JudgeTerms
    thread: Executor | None = None
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Random = field(default_factory=Random)
    problem: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)

    async def run_once(self) -> int:
        """Judge one batch; returns how many answers were judged. One run at a time.

        Ends early when the budget of the day is used up, the judge does not answer, or a store cannot be used; the rest
        waits for the next run, and ``problem`` says why.
        """
        now_s = self.clock.now_s()
        try:
            waiting = await self._in_thread(
                lambda: self.texts.waiting(now_s - self.terms.look_back_s, now_s, self.terms.batch)
            )
        except StoreError as error:
            self._failed("no texts to judge", error)
            return 0
        done = refused = 0
        for text in waiting:
            try:
                outcome = await self._one(text)
            except _OverBudget as over:
                self.problem = str(over)
                break
            except JudgeBusyError as error:
                self.outcomes["busy"] += 1
                self.problem = f"{error}; it is asked again at the next run"
                log.warning("judge is busy", extra={"problem": str(error)})
                break
            except JudgeRefusedError as error:
                self.outcomes["refused"] += 1
                self._failed("judge refuses", error)
                break
            except StoreError as error:
                self._failed("grades are not kept", error)
                break
            self.outcomes[outcome] += 1
            done += 1
            refused = refused + 1 if outcome == "refused" else 0
            if refused >= _REFUSED_IN_A_ROW:
                break
            if not refused:
                self.problem = ""
        return done

    def _failed(self, what: str, error: Exception) -> None:
        self.problem = str(error)
        log.error(what, extra={"problem": str(error)})

    async def state(self) -> JudgeState:
        """What was done and spent today (UTC)."""
        day = self._day()
        spent = await self._in_thread(lambda: self.texts.spent(day))
        terms = self.terms
        return JudgeState(
            terms.model, day, spent.calls, terms.calls_per_day, self._usd(spent), terms.usd_per_day,
            dict(self.outcomes), self.problem,
        )  # fmt: skip

    async def _one(self, text: KeptText) -> str:
        """What came of one answer; grades are on the disk before the text is marked."""
        asked = questions(text.input, text.output or "", text.context)
        rows: list[dict[str, Any]] = []
        try:
            reply, found = await self._graded(asked, documents=bool(text.context))
            rows = [self._row(text, reply, name, score) for name, score in found.items()]
            outcome = "scored" if rows else "nothing to judge"
        except UnreadableError:
            outcome = "unreadable"
        except JudgeRefusedError as error:
            if not error.of_text:
                raise
            outcome, self.problem = "refused", str(error)
            log.warning("judge refuses one text", extra={"problem": str(error)})
        if rows:
            await asyncio.to_thread(self.scores.append_scores, pl.DataFrame(rows, schema=SCORES))
        await self._in_thread(lambda: self.texts.judged(text, self.clock.now_s(), outcome))
        return outcome

    async def _graded(self, asked: Sequence[tuple[str, str]], *, documents: bool) -> tuple[JudgeReply, Any]:
        reply = await self._asked(asked)
        try:
            return reply, grades(reply.text, documents=documents)
        except UnreadableError as fault:
            again = repair(asked, reply.text, str(fault))
        reply = await self._asked(again)
        return reply, grades(reply.text, documents=documents)

    async def _asked(self, messages: Sequence[tuple[str, str]]) -> JudgeReply:
        """One question, again with longer and longer waits while the judge is busy."""
        wait_s = _FIRST_WAIT_S
        for left in range(self.terms.tries - 1, -1, -1):
            await self._check_budget(messages)
            # Noted before it is asked: a call that is cut short by a stop may be charged all the same.
            await self._spend(Spent(calls=1, untold_calls=1))
            try:
                reply = await self.judge.ask(messages)
            except JudgeBusyError as error:
                if not error.begun:
                    await self._spend(Spent(untold_calls=-1))
                asked_s = error.retry_after_s
                if left == 0 or (asked_s or 0.0) > _LONGEST_WAIT_S:
                    raise
                # some more than asked for, so that several who wait do not come back together
                await self.wait((wait_s if asked_s is None else asked_s) * self.random.uniform(1.0, 1.5))
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
            except JudgeRefusedError:
                await self._spend(Spent(untold_calls=-1))
                raise
            else:
                await self._spend(self._told(reply))
                return reply
        raise AssertionError("the last try returns or raises")

    # -- budget -------------------------------------------------------------------------------------------------------

    async def _check_budget(self, messages: Sequence[tuple[str, str]]) -> None:
        """Raise ``_OverBudget`` when one more call could go over what is allowed a day, at its worst."""
        day = self._day()
        spent = await self._in_thread(lambda: self.texts.spent(day))
        terms = self.terms
        if spent.calls >= terms.calls_per_day:
            raise _OverBudget(f"{spent.calls} calls today, which is all that quality.judge.calls_per_day allows")
        if terms.usd_per_day is None or terms.price is None:
            return
        worst = terms.price.usd(_most_tokens(messages), terms.max_output_tokens)
        # A call that did not tell its usage may have cost as much as any.
        held = spent.usd + spent.untold_calls * worst
        if held + worst > terms.usd_per_day:
            raise _OverBudget(
                f"{spent.usd:.4f} USD today; one more call could go over the {terms.usd_per_day:g} of usd_per_day"
            )

    def _told(self, reply: JudgeReply) -> Spent:
        """What a call that was noted turned out to cost; nothing is known when the endpoint does not tell."""
        if reply.input_tokens is None or reply.output_tokens is None:
            return Spent()
        price = self.terms.price
        usd = 0.0 if price is None else price.usd(reply.input_tokens, reply.output_tokens)
        return Spent(0, reply.input_tokens, reply.output_tokens, usd, -1)

    async def _spend(self, more: Spent) -> None:
        day = self._day()
        await self._in_thread(lambda: self.texts.spend(day, more))

    def _usd(self, spent: Spent) -> Number:
        if self.terms.price is None:
            return Number.none("USD", Absence.NOT_MEASURABLE, "no price: write usd_per_million_… of the judge")
        if spent.untold_calls:
            note = f"{spent.untold_calls} of {spent.calls} calls did not tell what they used"
            return Number("USD", Basis.BOUNDED, bounds=Bounds(spent.usd, None), note=note)
        return Number("USD", Basis.MEASURED, spent.usd, note=f"{spent.calls} calls today, by the usage that they told")

    def _day(self) -> str:
        return datetime.fromtimestamp(self.clock.now_s(), UTC).date().isoformat()

    def _row(self, text: KeptText, reply: JudgeReply, evaluator: str, score: float) -> dict[str, Any]:
        now_s = self.clock.now_s()
        return {
            **dict.fromkeys(SCORES),
            "ts": now_s, "received_s": now_s, "trace_id": text.trace_id, "span_id": text.span_id,
            "evaluator": evaluator, "annotator": "llm", "identifier": f"{reply.model or self.terms.model}#{EDITION}",
            "score": score,
        }  # fmt: skip

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)


class _OverBudget(Exception):  # noqa: N818
    """Today's budget is used up."""


def _most_tokens(messages: Sequence[tuple[str, str]]) -> int:
    """More tokens than these messages can have: every token of a byte-level tokenizer is one byte at least."""
    return len(json.dumps(messages, ensure_ascii=False).encode("utf-8", "replace")) + _FORM_TOKENS
