"""What would nearly do, where nothing does: one thing given up at a time, each tried for real."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from goodwatch.core.errors import ConfigError
from planner.search.answer import Answer, Near, Option
from planner.search.choose import search
from planner.search.question import Question
from planner.search.space import Space

#: instances that are simulated for each
_FEW: Final = 12
_SHOWN: Final = 3
#: targets are loosened by these factors, the first that helps
_LOOSER: Final = (1.5, 2.0, 4.0)
#: share of the load that a budget pays for by proportion: whole replicas carry a little less
_WHOLE: Final = (0.98, 0.9, 0.75, 0.5)


def nearest(answer: Answer, space: Space | None = None) -> Answer:
    """The same answer with what nearly does, where it has no best."""
    if answer.best is not None:
        return answer
    found: list[Near] = []
    for near in _tries(answer, space):
        if near.option is not None:
            found.append(near)
        if len(found) == _SHOWN:
            break
    return replace(answer, near=tuple(found))


def _best(question: Question, space: Space | None) -> Option | None:
    try:
        return search(question, space, most=_FEW).best
    except ConfigError:
        return None


def _tries(answer: Answer, space: Space | None) -> Iterator[Near]:
    question, allowed = answer.question, answer.question.allowed
    budget = question.budget_usd_per_month
    over = answer.front[0] if budget is not None and answer.front else None
    if over is not None and budget is not None:
        usd = over.usd_per_month.point
        yield Near(f"the budget: ${usd:,.0f} a month instead of ${budget:,.0f}", over)
        yield from _smaller_load(question, space, budget / usd)
    if allowed.gpus:
        yield Near("the card: any", _best(question.relaxed(allowed=replace(allowed, gpus=())), space))
    if allowed.gpu_count is not None or allowed.most_gpus is not None:
        wider = question.relaxed(allowed=replace(allowed, gpu_count=None, most_gpus=None))
        option = _best(wider, space)
        told = f"{option.setup.gpus} cards instead of {allowed.gpu_count or allowed.most_gpus}" if option else ""
        yield Near(f"the number of cards: {told}", option)
    if not allowed.four_bit and not allowed.schemes:
        yield Near(
            "quality: 4-bit weights, once answers were judged",
            _best(question.relaxed(allowed=replace(allowed, four_bit=True)), space),
        )
    yield _looser(question, space)
    if allowed.schemes or allowed.engines or allowed.regions or allowed.tp or allowed.pp or allowed.kv_dtypes:
        free = replace(allowed, schemes=(), engines=(), regions=(), tp=(), pp=(), kv_dtypes=())
        yield Near(
            "what is fixed of engine, weights, cache, layout and region", _best(question.relaxed(allowed=free), space)
        )


def _smaller_load(question: Question, space: Space | None, share: float) -> Iterator[Near]:
    """What the budget does carry."""
    load = question.arrivals
    for part in _WHOLE:
        rate = load.rate_per_s * share * part
        if load.trace is not None or rate <= 0:
            return
        option = _best(question.relaxed(arrivals=replace(load, rate_per_s=rate)), space)
        if option is not None:
            yield Near(f"the load: {rate:.3g} instead of {load.rate_per_s:g} requests/s", option)
            return


def _looser(question: Question, space: Space | None) -> Near:
    limits = question.limits
    for times in _LOOSER:
        wider = replace(
            limits, **{name: value * times for name in ("ttft_s", "tpot_s", "e2e_s") if (value := getattr(limits, name)) is not None}
        )  # fmt: skip
        option = _best(question.relaxed(limits=wider), space)
        if option is not None:
            return Near(f"the targets: {times:g} times as long", option)
    return Near("the targets", None)
