"""Facts of a week to a document: what stands first, what is compared, what may be called a saving. Pure."""

from __future__ import annotations

from datetime import timedelta

from planner.report.compose_money import money_section, tenant_section, total_of, waste_section
from planner.report.compose_rest import anomaly_section, note_section, slo_section
from planner.report.compose_steps import (
    advice_section,
    best_open,
    declined_section,
    open_total,
    verified_section,
    verified_total,
)
from planner.report.document import Document, Section, Sentence, Tile, Tiles
from planner.report.facts import Figure, WeekFacts, change_ratio
from planner.report.words import Words

#: a change of spend that is told as none
_SAME_RATIO = 0.02


def composed(facts: WeekFacts, words: Words) -> Document:
    """The report of a week. ``words`` should have the week's own zone."""
    week = facts.week
    last = week.first + timedelta(days=6)
    return Document(
        words("language"),
        words("title", week=week.id),
        words("subtitle", start=week.first.isoformat(), end=last.isoformat(), zone=week.zone),
        (
            _summary(facts, words),
            money_section(facts, words),
            advice_section(facts, words),
            verified_section(facts, words),
            waste_section(facts, words),
            tenant_section(facts, words),
            slo_section(facts, words),
            anomaly_section(facts, words),
            declined_section(facts, words),
            note_section(facts, words),
        ),
        words("footer", made=words.moment(facts.made_s)),
    )


def _summary(facts: WeekFacts, words: Words) -> Section:
    lines = (_broken(facts, words), _spent(facts, words), _wasted(facts, words), _first(facts, words))
    said = tuple(line for line in lines if line is not None)
    return Section("summary", words("section_summary"), (_tiles(facts, words), *said))


def _tiles(facts: WeekFacts, words: Words) -> Tiles:
    spend, before = total_of(facts, "usd"), total_of(facts, "usd", before=True)
    waste, share = _waste(facts)
    advice, count = open_total(facts)
    saved, verified = verified_total(facts)
    per = facts.services[0] if len(facts.services) == 1 else None
    per_good = (
        Tile(
            words("sum_per_good"), words.money(per.now.per_million_good_usd),
            _against(per.now.per_million_good_usd, per.before.per_million_good_usd, words),
        )
        if per
        else Tile(words("sum_per_good"), "–", words("no_comparison_mixed"), "muted")
    )  # fmt: skip
    return Tiles(
        (
            Tile(words("sum_spend"), words.money(spend), words.joined(_against(spend, before, words), _days(spend, words))),
            per_good,
            Tile(
                words("sum_waste"), words.money(waste),
                words.joined(words("of_spend", share=words.percent(share)) if share is not None else "", _days(waste, words)),
                "warning" if share is not None and share > 0.3 else "",
            ),
            Tile(
                words("sum_possible"), words.usd(advice) if count else words("count_none"),
                words("count_open_one" if count == 1 else "count_open", count=count) if count else "",
            ),
            Tile(
                words("sum_verified"), words.money(saved) if verified else words("count_none"),
                words("count_verified", count=verified) if verified else "", "good" if verified else "",
            ),
        )
    )  # fmt: skip


def _days(figure: Figure, words: Words) -> str:
    return "" if figure.value is None or figure.whole else words.basis(Figure(figure.value, days=figure.days))


def _against(now: Figure, before: Figure, words: Words) -> str:
    ratio = change_ratio(now, before)
    return words("no_comparison") if ratio is None else words("against_last", change=words.percent(ratio, sign=True))


def _waste(facts: WeekFacts) -> tuple[Figure, float | None]:
    """Idle and wasted money, and its share of the spend where both are known of the same days."""
    idle, wasted, spend = (total_of(facts, name) for name in ("idle_usd", "wasted_usd", "usd"))
    known = [one for one in (idle, wasted) if one.value is not None]
    if not known:
        return idle, None
    days = min(one.days for one in known) if len(known) == 2 else 0
    lost = Figure(sum(one.value or 0.0 for one in known), basis="estimated", days=days)
    alike = spend.value and spend.days == lost.days and lost.days > 0
    return lost, (lost.value or 0.0) / spend.value if alike and spend.value else None


def _broken(facts: WeekFacts, words: Words) -> Sentence | None:
    spent = [one for one in facts.slos if (left := one.budget_left_ratio.value) is not None and left <= 0]
    if not spent:
        return None
    return Sentence(words("lead_broken", count=len(spent), all=len(facts.slos)), "bad")


def _spent(facts: WeekFacts, words: Words) -> Sentence:
    now, before = total_of(facts, "usd"), total_of(facts, "usd", before=True)
    if now.value is None:
        return Sentence(words("lead_unknown"), "warning")
    ratio, usd = change_ratio(now, before), words.usd(now.value)
    if ratio is None:
        return Sentence(words("lead_known", usd=usd))
    if abs(ratio) < _SAME_RATIO:
        return Sentence(words("lead_same", usd=usd, change=words.percent(ratio, sign=True)))
    size = words.percent(ratio, sign=True) if words.hidden else words.percent(abs(ratio))
    return Sentence(words("lead_up" if ratio > 0 else "lead_down", usd=usd, change=size))


def _wasted(facts: WeekFacts, words: Words) -> Sentence | None:
    lost, share = _waste(facts)
    if lost.value is None or share is None:
        return None
    return Sentence(words("lead_waste", usd=words.usd(lost.value), share=words.percent(share)))


def _first(facts: WeekFacts, words: Words) -> Sentence:
    best = best_open(facts)
    if not best or best[0].saving_usd.value is None:
        return Sentence(words("lead_no_advice"))
    first = best[0]
    span = words.interval(first.saving_usd)
    key = "lead_first" if span else "lead_first_point"
    what = words.named("strategy", first.strategy, "strategy_other")
    saving = words.usd(first.saving_usd.value or 0.0)
    return Sentence(words(key, what=what, service=first.service, saving=saving, interval=span), "good")
