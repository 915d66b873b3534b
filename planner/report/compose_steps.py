"""The parts of the report about changes: what to do, what changes brought, what was declined. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planner.report.compose_money import money_cell
from planner.report.document import Bar, Bars, Block, Cell, Section, Sentence, Table, Tone
from planner.report.facts import Advised, Figure, Verified, WeekFacts
from planner.report.words import Words

_OPEN: Final = ("proposed", "accepted")
_MOST: Final = 10


def best_open(facts: WeekFacts) -> list[Advised]:
    """Open advice whose whole interval saves, by the certain end of it, the largest first."""
    found = [one for one in facts.advised if one.state in _OPEN and _certain(one.saving_usd) > 0]
    return sorted(found, key=lambda one: (-_certain(one.saving_usd), one.id))


def _certain(saving: Figure) -> float:
    """What is saved at the least; nothing where nobody knows."""
    least = saving.low if saving.low is not None else saving.value
    return least if least is not None else 0.0


def open_total(facts: WeekFacts) -> tuple[float, int]:
    """USD a week of the largest open advice of each service, for advice on one service excludes each other; how many."""
    largest: dict[str, float] = {}
    for one in best_open(facts):
        largest.setdefault(one.service, one.saving_usd.value or 0.0)
    return math.fsum(largest.values()), len(best_open(facts))


def verified_total(facts: WeekFacts) -> tuple[Figure, int]:
    """USD a week of what may be called a saving, and how many there are."""
    least: dict[tuple[str, str], float] = {}
    for one in facts.verified:
        if one.saves:  # two experiments on one change of a service are one saving, and the smaller is the surer
            key, worth = (one.service, one.factor or one.id), one.realised_usd.value or 0.0
            least[key] = min(worth, least.get(key, worth))
    saved = list(least)
    total = math.fsum(least.values())
    return (Figure(total, basis="estimated") if saved else Figure()), len(saved)


def saving_cell(saving: Figure, words: Words) -> Cell:
    """Money saved; what costs more says so and is no negative saving, what changes no bill says that."""
    if saving.value is not None and not any(round(x or 0.0, 2) for x in (saving.value, saving.low, saving.high)):
        return Cell(words("same_cost"), words.basis(saving), "muted", number=True)
    if saving.value is None or (saving.value > 0 and _certain(saving) > 0):
        return money_cell(saving, words)
    if (saving.high is not None and saving.high <= 0) or (saving.high is None and saving.value < 0):
        return Cell(
            words("more_cost", usd=words.usd(abs(saving.value))), words.basis(_turned(saving)), "bad", number=True
        )
    return Cell(words("not_saving"), words.basis(saving), "muted", number=True)


def _turned(saving: Figure) -> Figure:
    """The same as money that is spent more, its interval turned round."""
    low, high = (None if x is None else -x for x in (saving.high, saving.low))
    return replace(saving, value=None if saving.value is None else -saving.value, low=low, high=high)


def _settings(one: Advised) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sorted(one.changes.items()))


def _needs(one: Advised, words: Words) -> str:
    restart = words("unknown") if one.restart is None else words("restart" if one.restart else "no_restart")
    return words.joined(restart, words("gate") if one.gate else "")


def advice_section(facts: WeekFacts, words: Words) -> Section:
    """Open advice, the surest money first."""
    title, sure = words("section_advice"), best_open(facts)
    rest = [one for one in facts.advised if one.state in _OPEN and one not in sure]
    saving = [*sure, *(one for one in rest if one.mode != "restore")][:_MOST]
    restoring = [one for one in rest if one.mode == "restore"][:_MOST]
    if not saving and not restoring:
        return Section("advice", title, (Sentence(words("none_advice"), "muted"),))
    bars = tuple(_bar(one, words) for one in sure[:_MOST])
    parts: list[Block] = [Bars(words("figure_saving"), bars)] if bars else []
    parts += [_table(saving, words), Sentence(words("advice_explain"), "muted")] if saving else []
    parts += [Sentence(words("advice_restores")), _table(restoring, words)] if restoring else []
    return Section("advice", title, tuple(parts))


def _table(advised: Sequence[Advised], words: Words) -> Table:
    rows = tuple(
        (
            Cell(words.named("strategy", one.strategy, "strategy_other"), _settings(one)), Cell(one.service),
            saving_cell(one.saving_usd, words), Cell(words.named("confidence", one.confidence or "untold")),
            Cell(_needs(one, words)), Cell(words.named("state", one.state)),
        )
        for one in advised
    )  # fmt: skip
    names = ("advice", "service", "saving", "confidence", "needs", "state")
    return Table(tuple(words(name) for name in names), rows)


def _bar(one: Advised, words: Words) -> Bar:
    label = words.joined(one.service, words.named("strategy", one.strategy, "strategy_other"))
    saving = one.saving_usd
    low, high = words.drawn(saving.low), words.drawn(saving.high)
    return Bar(label, words.drawn(saving.value), words.money(saving), low=low, high=high)


def verified_section(facts: WeekFacts, words: Words) -> Section:
    """Experiments on cost: what was predicted and what came."""
    title = words("section_verified")
    if not facts.verified:
        return Section("verified", title, (Sentence(words("none_verified"), "muted"),))
    names = ("factor", "service", "outcome", "predicted_week", "realised", "inside")
    table = Table(tuple(words(name) for name in names), tuple(_verified(one, words) for one in facts.verified))
    return Section("verified", title, (table, Sentence(words("verified_explain"), "muted")))


def _verified(one: Verified, words: Words) -> tuple[Cell, ...]:
    inside = words("unknown") if one.inside is None else words("yes" if one.inside else "no")
    if one.vetoed:
        outcome = Cell(words("vetoed"), "", "bad")
    else:
        tone: Tone = "good" if one.outcome == "better" else "bad" if one.outcome == "worse" else ""
        outcome = Cell(words.named("outcome", one.outcome), "", tone)
    realised = saving_cell(one.realised_usd, words)
    if realised.tone == "" and one.realised_usd.value is not None and not one.saves:
        realised = Cell(words("not_saving"), realised.small, "muted", number=True)
    return (
        Cell(one.factor or words("unknown")), Cell(one.service), outcome, saving_cell(one.predicted_usd, words), realised,
        Cell(inside, tone="warning" if one.inside is False else ""),
    )  # fmt: skip


def declined_section(facts: WeekFacts, words: Words) -> Section:
    """What people declined, in their own words."""
    title = words("section_declined")
    rows = tuple(
        (
            Cell(words.named("strategy", one.strategy, "strategy_other"), _settings(one)), Cell(one.service),
            saving_cell(one.saving_usd, words), Cell(one.why or words("not_said")),
        )
        for one in facts.advised if one.state == "declined"
    )  # fmt: skip
    if not rows:
        return Section("declined", title, (Sentence(words("none_declined"), "muted"),))
    return Section("declined", title, (Table(tuple(words(n) for n in ("advice", "service", "saving", "why")), rows),))
