"""The parts of the report about promises, anomalies and how far the data carry. Pure."""

from __future__ import annotations

from typing import Final

from planner.report.document import Cell, Section, Sentence, Table
from planner.report.facts import Anomaly, ServiceWeek, SloState, WeekFacts
from planner.report.words import Words

_MOST: Final = 15


def slo_section(facts: WeekFacts, words: Words) -> Section:
    """Attainment of the week, and what is left of the budgets: saving that breaks a promise is none."""
    title = words("section_slos")
    promised = [one for one in facts.services if one.objective is not None]
    if not promised and not facts.slos:
        return Section("slos", title, (Sentence(words("none_slos"), "muted"),))
    tables = []
    if promised:
        names = ("service", "attainment", "objective", "state")
        tables.append(Table(tuple(words(n) for n in names), tuple(_attained(one, words) for one in promised)))
    if facts.slos:
        wanted = ("slo", "service", "objective", "budget_left", "firing")
        tables.append(Table(tuple(words(n) for n in wanted), tuple(_budget(one, words) for one in facts.slos)))
    said = Sentence(words("slos_explain", at=words.moment(facts.made_s)), "muted")
    return Section("slos", title, (*tables, said))


def _attained(one: ServiceWeek, words: Words) -> tuple[Cell, ...]:
    share, objective = one.attainment_ratio, one.objective or 0.0
    goal = Cell(words.percent(objective), number=True)
    if share.value is None:
        return Cell(one.service), Cell(words(share.missing), "", "muted", number=True), goal, Cell("–", "", "muted")
    low, high = share.low, share.high
    span = "" if low is None or high is None else words("to", low=words.percent(low), high=words.percent(high))
    days = words("days_of", days=share.days) if 0 < share.days < 7 else ""
    small = words.joined(span, words(share.basis) if share.basis else "", days)
    if low is not None and high is not None and low < objective <= high:
        state = Cell(words("near"), "", "warning")
    else:
        held = share.value >= objective
        state = Cell(words("kept" if held else "missed"), "", "good" if held else "bad")
    return Cell(one.service), Cell(words.percent(share.value), small, number=True), goal, state


def _budget(one: SloState, words: Words) -> tuple[Cell, ...]:
    left = one.budget_left_ratio
    if left.value is None:
        cell = Cell(words(left.missing), "", "muted", number=True)
    elif left.value <= 0:
        cell = Cell(words.percent(left.value), words("overspent"), "bad", number=True)
    else:
        cell = Cell(words.percent(left.value), "", "warning" if left.value < 0.25 else "good", number=True)
    firing = Cell(str(one.firing), "", "bad" if one.firing else "", number=True)
    return Cell(one.slo), Cell(one.service), Cell(words.percent(one.objective), number=True), cell, firing


def anomaly_section(facts: WeekFacts, words: Words) -> Section:
    """Drifts of the week, those that go on first."""
    title = words("section_anomalies")
    if not facts.anomalies:
        return Section("anomalies", title, (Sentence(words("none_anomalies"), "muted"),))
    ordered = sorted(facts.anomalies, key=lambda one: (one.ended_s is not None, -one.began_s, one.service))
    rows = tuple(_anomaly(one, words) for one in ordered[:_MOST])
    names = ("kind", "service", "began", "ended", "value", "expected")
    table = Table(tuple(words(name) for name in names), rows)
    more = len(ordered) - len(rows)
    said = (Sentence(words("anomalies_more", count=more), "muted"),) if more else ()
    return Section("anomalies", title, (table, *said))


def _anomaly(one: Anomaly, words: Words) -> tuple[Cell, ...]:
    def figure(value: float | None) -> Cell:
        return Cell(words("no_data"), "", "muted", number=True) if value is None else Cell(f"{value:.3g}", number=True)

    ended = Cell(words("goes_on"), "", "warning") if one.ended_s is None else Cell(words.moment(one.ended_s))
    kind = Cell(words.named("kind", one.kind), one.signal)
    return kind, Cell(one.service), Cell(words.moment(one.began_s)), ended, figure(one.value), figure(one.expected)


def note_section(facts: WeekFacts, words: Words) -> Section:
    """What a reader must know of the data."""
    said = tuple(Sentence(words(f"note_{one.key}", **one.values)) for one in facts.notes)
    return Section("notes", words("section_notes"), said or (Sentence(words("none_notes"), "muted"),))
