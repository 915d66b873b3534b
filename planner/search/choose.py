"""The search: screen everything in closed form, simulate the best, and choose by the slow end of the bands. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, Final

import polars as pl

from goodwatch.core.errors import ConfigError
from planner.choices.rules import Load, engine_choices
from planner.search.answer import Answer, Counted, Option, pareto
from planner.search.memory import memory
from planner.search.pace import doubts
from planner.search.question import Question
from planner.search.reasons import losers, nothing_fits
from planner.search.screen import screened, switched
from planner.search.space import FOUR_BIT, Enumerated, Instance, Space, enumerated
from planner.search.trial import Figures, Setup, setup_of, tried
from planner.speed.calibrate import CARRIED

#: configurations (an instance each) that are simulated
SIMULATED: Final = 64
#: what leaving the usual must pay, as a share of the cost: another engine (a model cannot tell two apart: the error of such
#: predictions), workers apart (more parts that fail), a switch away from its default, a cache or weights with fewer bits,
#: pipeline stages
_WORTH: Final[Mapping[str, float]] = {
    "engine": CARRIED["engine"][1], "apart": 0.05, "chunked": 0.03, "cache": 0.02, "weights": 0.02, "stages": 0.02,
    "draft": 0.05,
}  # fmt: skip
_MOST_COPIES: Final = 4096
#: an instance is left untried where this share of its cost in closed form is not below the best so far
_OFF: Final = 0.75
_HEADROOMS: Final = (1.1, 1.25, 1.5, 2.0)
_FRONT: Final = 6


@dataclass(slots=True)
class _Trials:
    """Simulations of one question, each done once; counts the configurations that were looked at."""

    question: Question
    known: dict[tuple[Any, ...], Figures] = field(default_factory=dict)
    setups: set[Setup] = field(default_factory=set)

    def slow(self, setup: Setup, times: float = 1.0) -> Figures | None:
        """The slow end; None where a request fits no cache."""
        key = (setup, times)
        if key not in self.known:
            self.setups.add(setup)
            try:
                self.known[key] = tried(self.question, setup, "slow", times=times)
            except ConfigError:
                return None
        return self.known[key]

    def holds(self, setup: Setup, times: float = 1.0) -> bool:
        """Whether the objective is met at the slow end."""
        found = self.slow(setup, times)
        return found is not None and found.attained_ratio >= self.question.objective

    def option(self, setup: Setup, *, headroom: bool = True) -> Option | None:
        """Everything about one setup; None where a request fits no cache."""
        slow = self.slow(setup)
        if slow is None:
            return None
        ends = {
            "slow": slow,
            "point": tried(self.question, setup, "point"),
            "fast": tried(self.question, setup, "fast"),
        }
        holds, most = slow.attained_ratio >= self.question.objective, None
        if headroom and holds:
            most = 1.0
            for times in _HEADROOMS:
                if not self.holds(setup, times):
                    break
                most = times
        return Option(setup, ends, holds, most)  # type: ignore[arg-type]


def search(question: Question, space: Space | None = None, *, most: int = SIMULATED, prune: bool = True) -> Answer:
    """Find the cheapest configuration that meets a question's targets at the slow end of the bands.

    Parameters
    ----------
    question, space
        What is asked, and the values that settings may take.
    most
        Instances that are simulated, best of the closed form first.
    prune
        Whether an instance is left as soon as it cannot beat the best so far. Without it each is followed to the least
        number of replicas that holds.

    Returns
    -------
    Answer
        Deterministic: the same question has the same answer.

    Raises
    ------
    ConfigError
        A name that is not known, or a card that was asked for without a bandwidth or a price.
    """
    space = space or Space()
    found = enumerated(question, space)
    frames = _screen(question, space, found.instances)
    if frames is None:
        reason = "; ".join(dict.fromkeys(f"{one.name}: {one.reason}" for one in found.lost if one.kind != "draft"))
        return Answer(question, None, (), found.lost, (), Counted(0, 0, 0, 0), reason or "no layout fits the model")
    starts, rows = frames
    trials = _Trials(question)
    ranked = ranking(question, found.instances, rows)
    best = _winner(question, trials, [*ranked.head(most).iter_rows(named=True)], found.instances, prune=prune)
    budget = question.budget_usd_per_month
    if best is not None and budget is not None and best.usd_per_month.point > budget:
        # what is usual does not pay for itself here: cost alone decides
        plain = (
            ranked.with_columns(worth=pl.lit(1.0), rank_usd=pl.col("usd_per_month"))
            .sort("usd_per_month", "part", "instance", "apart")
            .head(most)
        )
        best = _winner(question, trials, [*plain.iter_rows(named=True)], found.instances, prune=prune) or best
    return _answer(question, found, (starts, rows, ranked), trials, best)


def _screen(
    question: Question, space: Space, instances: Sequence[Instance]
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    needed, model = question.needed_tokens, question.model
    lengths = sorted({min(model.max_positions, int(needed * step)) for step in space.length_steps})
    starts = memory(model, instances, lengths=lengths, sequences=space.max_num_seqs, tokens=space.batched_tokens,
                    context_tokens=question.context_tokens)  # fmt: skip
    if starts.is_empty():
        return None
    return starts, screened(switched(starts, question, instances), question)


def preferred(question: Question, instances: Sequence[Instance]) -> str:
    """The engine that is taken unless another is better by more than the error of such comparisons."""
    names = list(dict.fromkeys(one.engine.name for one in instances))
    for told in question.allowed.engines:
        if told in names:
            return told
    shared = question.arrivals.shared_ratio
    for choice in engine_choices(instances[0].gpu, Load(shared_ratio=shared)):
        if choice.engine in names:
            return choice.engine
    return names[0]


def ranking(question: Question, instances: Sequence[Instance], rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that meet the targets in closed form, the best of each instance, by cost times what leaving the usual must pay.

    Instances that differ in how experts are cut alone count as one.

    ``worth``: that factor; ``rank_usd``: cost times worth.
    """
    usual = preferred(question, instances)
    single = len(question.allowed.engines) == 1
    worth = pl.DataFrame(
        [
            {"instance": i, "engine": one.engine.name, "card": one.gpu.name, "four_bit": one.scheme.name in FOUR_BIT, "alike": _alike(one),
             "own": (1 + _WORTH["engine"] * (one.engine.name != usual and not single)) * (1 + _WORTH["cache"] * (one.kv_dtype != "auto"))
             * (1 + _WORTH["weights"] * (not one.native)) * (1 + _WORTH["stages"] * (one.layout.pp > 1))
             * (1 + _WORTH["draft"] * bool(one.draft_tokens))}
            for i, one in enumerate(instances)
        ],
        schema_overrides={"instance": pl.UInt32},
    )  # fmt: skip
    frame = rows.filter(pl.col("replicas").is_not_null()).join(worth, on="instance")
    told = question.allowed
    if told.most_gpus is not None:
        frame = frame.filter(pl.col("cards") <= told.most_gpus)
    if not (told.four_bit or told.schemes):
        frame = frame.filter(~pl.col("four_bit"))
    factor = pl.col("own") * pl.when("apart").then(1 + _WORTH["apart"]).otherwise(1.0) * pl.when("chunked_prefill").then(1.0).otherwise(1 + _WORTH["chunked"])  # fmt: skip
    frame = frame.with_columns(
        worth=factor, part=pl.col("usd_per_month") / pl.min_horizontal(pl.col("headroom_ratio"), pl.lit(1.5))
    )
    frame = frame.with_columns(rank_usd=pl.col("worth") * pl.col("usd_per_month"))
    order = ["rank_usd", "part", "instance", "max_num_seqs", "batched_tokens"]
    # of equal cost the roomiest limits: the engine's own defaults are at that end too
    frame = frame.sort(order, descending=[False, False, False, True, False])
    return frame.group_by("alike", "apart", maintain_order=True).first().sort("rank_usd", "part", "instance", "apart")


def _alike(one: Instance) -> str:
    """What instances share that differ in how experts are cut alone: the step model can hardly tell them apart."""
    layout = one.layout
    parts = (
        one.gpu.name,
        one.engine.name,
        one.scheme.name,
        one.kv_dtype,
        layout.tp,
        layout.pp,
        layout.dp,
        one.draft_tokens,
    )
    return "|".join(str(part) for part in parts)


def copies(setup: Setup, count: int) -> Setup:
    """The same with ``count`` replicas; prefill workers in proportion."""
    if not setup.prefill_replicas:
        return replace(setup, replicas=count)
    return replace(
        setup, replicas=count, prefill_replicas=max(1, ceil(count * setup.prefill_replicas / setup.replicas))
    )


def fewest_at_point(question: Question, setup: Setup) -> Setup:
    """The same layout with the fewest replicas that hold at the point of the bands: half of the time it is enough."""
    for count in range(1, setup.replicas):
        one = copies(setup, count)
        if tried(question, one, "point").attained_ratio >= question.objective:
            return one
    return setup


def _winner(question: Question, trials: _Trials, rows: Sequence[Mapping[str, Any]], instances: tuple[Instance, ...], *,
            prune: bool) -> Setup | None:  # fmt: skip
    """The cheapest setup, by rank, that holds in the simulator."""
    best, least, ratio = None, inf, 1.0
    for row in rows:
        first, worth = setup_of(row, instances), float(row["worth"])
        if question.allowed.gpu_count is not None:
            cost = first.usd_per_month.point * worth
            if cost < least and trials.holds(first):
                best, least = first, cost
            continue
        if prune and float(row["rank_usd"]) * _OFF >= least:
            break
        start = max(1, ceil(first.replicas * ratio))
        if prune and best is not None:
            start = _affordable(first, least / worth)
            if start < 1 or not trials.holds(copies(first, start)):
                continue
        fewest = _fewest(trials, first, start, most=question.allowed.most_gpus)
        if fewest is None:
            continue
        if best is None:
            ratio = fewest.replicas / first.replicas
        cost = fewest.usd_per_month.point * worth
        if cost < least:
            best, least = fewest, cost
    return best


def _affordable(setup: Setup, usd_per_month: float) -> int:
    """Most replicas that cost less than this."""
    count = int(setup.replicas * usd_per_month / setup.usd_per_month.point * 1.0001) + 1
    while count > 0 and copies(setup, count).usd_per_month.point >= usd_per_month * (1 - 1e-9):
        count -= 1
    return count


def _fewest(trials: _Trials, setup: Setup, start: int, *, most: int | None) -> Setup | None:
    """The fewest replicas that hold, by doubling and halving from ``start``; None where no number does."""
    low, high = 0, start
    while not trials.holds(copies(setup, high)):
        low, high = high, max(high + 1, ceil(high * 1.5))
        if high > min(_MOST_COPIES, max(8, 6 * setup.replicas)) or (most and copies(setup, high).gpus > most):
            return None
    while high - low > max(1, high // 50):
        middle = (low + high) // 2 if low else max(1, high * 3 // 4 if high > 2 else high - 1)
        if middle in (low, high):
            break
        if trials.holds(copies(setup, middle)):
            high = middle
        else:
            low = middle
    return copies(setup, high)


def _rivals(trials: _Trials, best: Setup, rows: pl.DataFrame, instances: tuple[Instance, ...]) -> Iterator[Setup]:
    """Setups for the front: more replicas, and the best of other cards."""
    yield best
    if trials.question.allowed.gpu_count is None:
        for more in (1, 2):
            if (
                not trials.question.allowed.most_gpus
                or copies(best, best.replicas + more).gpus <= trials.question.allowed.most_gpus
            ):
                yield copies(best, best.replicas + more)
    others = rows.filter(pl.col("card") != best.instance.gpu.name).group_by("card", maintain_order=True).first()
    for row in others.head(_FRONT - 3).iter_rows(named=True):
        found = _fewest(
            trials, setup_of(row, instances), max(1, int(row["replicas"])), most=trials.question.allowed.most_gpus
        )
        if found is not None:
            yield found


def _answer(question: Question, found: Enumerated, frames: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame], trials: _Trials,
            best: Setup | None) -> Answer:  # fmt: skip
    starts, rows, ranked = frames
    switches = 2 * 2 * (2 if question.arrivals.shared_ratio else 1)
    sure = starts.filter((pl.col("outcome") == "ok") & pl.col("certain"))
    meet = rows.filter(pl.col("replicas").is_not_null())

    def counted() -> Counted:
        return Counted(len(starts) * switches, len(sure) * switches, len(meet), len(trials.setups))

    if best is None:
        lost = losers(question, found, starts, rows, None)
        return Answer(question, None, (), lost, (), counted(), nothing_fits(question, starts, rows))
    options = [
        one for setup in _rivals(trials, best, ranked, found.instances) if (one := trials.option(setup)) is not None
    ]
    own = next(one for one in options if one.setup == best)
    front = pareto([one for one in options if one.holds])
    lost = losers(question, found, starts, rows, own)
    unknown = doubts(question, best.instance)
    budget = question.budget_usd_per_month
    if budget is not None and own.usd_per_month.point > budget:
        reason = f"the cheapest that holds costs ${own.usd_per_month.point:,.0f} a month; ${budget:,.0f} are allowed"
        return Answer(question, None, front, lost, (), counted(), reason, unknown)
    return Answer(question, own, front, lost, (), counted(), "", unknown)
