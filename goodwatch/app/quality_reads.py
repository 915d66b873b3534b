"""What the API asks about quality, from the requests of a slice and the scores given to them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from goodwatch.app.judging import JudgeState, Judging
from goodwatch.app.request_view import RequestViews, Slice
from goodwatch.core.model import Deployment, Number
from goodwatch.core.quality import Agreement, QualityRules
from goodwatch.signals.quality import joined, unjoined, with_verdicts
from goodwatch.signals.quality_agreement import agreement
from goodwatch.signals.quality_shares import (
    DEPLOYED,
    QualityGroup,
    QualityNumbers,
    evaluators,
    quality,
    quality_by,
    with_deployments,
)

#: columns that quality can be split by
GROUPED_BY: Final = (
    "model", "tenant", "adapter", "route", "form", "target", "deployment", "engine_version", *DEPLOYED,
)  # fmt: skip

#: deployments of a service in ``[start_s, end_s)``, oldest first
Deployments = Callable[[str, float, float], Awaitable[Sequence[Deployment]]]


@dataclass(frozen=True, slots=True)
class QualityView:
    """Quality of a slice, split or not."""

    whole: QualityNumbers
    groups: tuple[QualityGroup, ...]
    evaluators: Mapping[str, Number]
    agreement: Mapping[str, Agreement]
    unjoined: int


@dataclass(slots=True)
class QualityReads:
    """The read side of quality. ``deployments`` None: a split by what was running says "not told"."""

    reads: RequestViews
    rules: QualityRules
    judging: Judging | None = None
    deployments: Deployments | None = None

    async def quality(self, of: Slice, by: str | None = None, step_s: float | None = None) -> QualityView:
        """Numbers of a slice; ``by`` is one of ``GROUPED_BY``. Raises ``StoreError`` when the store cannot be read."""
        # Whether a trace has one request only is told from all of them, not from those that the filters leave.
        every = Slice(of.service, of.start_s, of.end_s)
        facts, scores = await self.reads.scores(every)
        only = None if of == every else (await self.reads.scores(of))[0]
        ran: Sequence[Deployment] = ()
        if by in ("engine_version", *DEPLOYED) and self.deployments is not None:
            ran = await self.deployments(of.service, 0.0, of.end_s)
        return await asyncio.to_thread(view_of, facts, scores, self.rules, only=only, by=by, step_s=step_s, ran=ran)

    async def judge(self) -> JudgeState | None:
        """The judge today; None when there is none."""
        return None if self.judging is None else await self.judging.state()


def view_of(
    facts: pl.DataFrame,
    scores: pl.DataFrame,
    rules: QualityRules,
    *,
    only: pl.DataFrame | None = None,
    by: str | None = None,
    step_s: float | None = None,
    ran: Sequence[Deployment] = (),
) -> QualityView:
    """Quality of judged facts (``FACTS``, verdict, slo) with their scores (``SCORES``); of those in ``only``, if given."""
    told, lost = joined(facts, scores, rules), unjoined(facts, scores)
    if only is not None:
        key = ["trace_id", "fact_id"]
        facts, told = (
            frame.join(only.select(key), on=key, how="semi", maintain_order="left") for frame in (facts, told)
        )
    scored = with_verdicts(with_deployments(facts, ran), told)
    groups = quality_by(scored, by, step_s) if by is not None or step_s is not None else []
    return QualityView(quality(scored), tuple(groups), evaluators(scored, told), agreement(told), lost)
