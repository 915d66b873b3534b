"""The parts of the report about money: by service, by tenant, and what was idle or wasted. Pure."""

from __future__ import annotations

from typing import Final, Literal

from planner.report.document import Bar, Bars, Cell, Section, Sentence, Table
from planner.report.facts import Figure, Spend, WeekFacts, added, change_ratio
from planner.report.words import Words

Name = Literal["usd", "idle_usd", "wasted_usd", "per_million_good_usd"]
#: tenants that are named one by one
_MOST_TENANTS: Final = 12


def total_of(facts: WeekFacts, name: Literal["usd", "idle_usd", "wasted_usd"], *, before: bool = False) -> Figure:
    """The sum of one kind of money over all services; services that do not know it make it a part."""
    return added(tuple(getattr(one.before if before else one.now, name) for one in facts.services))


def money_cell(figure: Figure, words: Words) -> Cell:
    """Money with its interval and basis, or why there is none."""
    return Cell(words.money(figure), words.basis(figure), "muted" if figure.value is None else "", number=True)


def change_cell(now: Figure, before: Figure, words: Words) -> Cell:
    """How much more or less than last week."""
    ratio = change_ratio(now, before)
    if ratio is None:
        return Cell("–", "", "muted", number=True)
    return Cell(
        words.percent(ratio, sign=True), "", "bad" if ratio > 0.02 else "good" if ratio < -0.02 else "", number=True
    )


def _pair(now: Spend, before: Spend, words: Words) -> tuple[Cell, ...]:
    return (
        money_cell(now.usd, words), money_cell(before.usd, words), change_cell(now.usd, before.usd, words),
        money_cell(now.per_million_good_usd, words), money_cell(before.per_million_good_usd, words),
        change_cell(now.per_million_good_usd, before.per_million_good_usd, words),
    )  # fmt: skip


def _headings(words: Words, *first: str) -> tuple[str, ...]:
    return (
        *first, words("spend"), words("last_week"), words("change"), words("per_good"), words("per_good_last"),
        words("change"),
    )  # fmt: skip


def money_section(facts: WeekFacts, words: Words) -> Section:
    """Spend and cost per million good tokens of each service against last week."""
    title = words("section_money")
    if not facts.services:
        return Section("money", title, (Sentence(words("none_money"), "muted"),))
    rows = [(Cell(one.service), *_pair(one.now, one.before, words)) for one in facts.services]
    if len(facts.services) > 1:
        now, before = total_of(facts, "usd"), total_of(facts, "usd", before=True)
        blank = Cell("", number=True)
        both = (money_cell(now, words), money_cell(before, words), change_cell(now, before, words))
        rows.append((Cell(words("total")), *both, blank, blank, blank))
    return Section(
        "money", title,
        (
            _bars(facts, words, "usd", "figure_spend"), _bars(facts, words, "per_million_good_usd", "figure_per_good"),
            Table(_headings(words, words("service")), tuple(rows)),
        ),
    )  # fmt: skip


def _bars(facts: WeekFacts, words: Words, name: Name, title: str) -> Bars:
    bars = []
    for one in facts.services:
        now, before = getattr(one.now, name), getattr(one.before, name)
        bars.append(
            Bar(one.service, words.drawn(now.value), words.money(now), words.drawn(before.value), words.money(before))
        )
    return Bars(words(title), tuple(bars), (words("this_week"), words("last_week")))


def tenant_section(facts: WeekFacts, words: Words) -> Section:
    """The same by tenant, most expensive first; the small ones are counted."""
    title, every = words("section_tenants"), [(s.service, t) for s in facts.services for t in s.tenants]
    if not any(tenant.tenant is not None for _, tenant in every):
        return Section("tenants", title, (Sentence(words("none_tenants"), "muted"),))
    every.sort(key=lambda pair: -(pair[1].now.usd.value or 0.0))
    rows = tuple(
        (Cell(t.tenant if t.tenant is not None else words("other_tenant")), Cell(s), *_pair(t.now, t.before, words))
        for s, t in every[:_MOST_TENANTS]
    )
    said = [words("tenants_explain")]
    if len(every) > _MOST_TENANTS:
        said.append(words("tenants_more", count=len(every) - _MOST_TENANTS))
    table = Table(_headings(words, words("tenant"), words("service")), rows)
    return Section("tenants", title, (table, *(Sentence(one, "muted") for one in said)))


def waste_section(facts: WeekFacts, words: Words) -> Section:
    """What was paid and brought no good token."""
    title = words("section_waste")
    known = [one for one in facts.services if (one.now.idle_usd.value, one.now.wasted_usd.value) != (None, None)]
    if not known:
        return Section("waste", title, (Sentence(words("none_waste"), "muted"),))
    rows = []
    for one in facts.services:
        now, before = one.now, one.before
        rows.append(
            (
                Cell(one.service), money_cell(now.idle_usd, words), _share(now.idle_usd, now.usd, words),
                change_cell(now.idle_usd, before.idle_usd, words), money_cell(now.wasted_usd, words),
                _share(now.wasted_usd, now.usd, words), change_cell(now.wasted_usd, before.wasted_usd, words),
            )
        )  # fmt: skip
    share = words("of_spend", share="%")
    headings = (words("service"), words("idle"), share, words("change"), words("wasted"), share, words("change"))
    return Section("waste", title, (Table(headings, tuple(rows)), Sentence(words("waste_explain"), "muted")))


def _share(part: Figure, whole: Figure, words: Words) -> Cell:
    if part.value is None or not whole.value or part.days != whole.days:
        return Cell("–", "", "muted", number=True)
    return Cell(words.percent(part.value / whole.value), number=True)
