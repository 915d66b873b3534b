"""Facts of a week for the report, from requests, SLOs and records."""

import math
from dataclasses import fields
from dataclasses import replace as changed
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collector.stores.sqlite_records import SqliteRecords
from goodwatch.app.report_reads import Gathering
from goodwatch.app.report_records import records_of, verified_of
from goodwatch.app.request_view import Slice
from goodwatch.core.drift import Drift
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Absence, Basis, Number
from goodwatch.signals.attainment import Sums, attainment
from goodwatch.signals.request_cost import CostLine, RequestCost
from planner.experiments.values import Arm, Effect, Experiment, Metric, Prediction, Verdict
from planner.recommendations import Recommendation, moved, to_body
from planner.report.facts import Figure
from planner.report.weeks import Week
from tests.planner.test_recommendations import recommendation as _recommendation

WEEK = Week(2026, 48, "Europe/Berlin")


def line(key: str | None, usd: float, good_tokens: float) -> CostLine:
    """Money with a fifth of it idle, and a tenth wasted."""
    rate = (
        Number("USD", Basis.ESTIMATED, usd / good_tokens * 1e6)
        if good_tokens
        else Number.none("USD", Absence.NO_TRAFFIC)
    )
    spent = {"good": usd * 0.7, "late": usd * 0.1}
    return CostLine(key, 10.0, 1.0, good_tokens, Number("USD", Basis.ESTIMATED, usd * 0.8), spent, rate, rate)


class Days:
    """A service of which each day is known but those in ``gone`` (unknown) and ``broken`` (unreadable)."""

    def __init__(self, gone: set[int] = set(), broken: set[int] = set()) -> None:  # noqa: B006
        self.gone, self.broken = gone, broken

    def services(self) -> list[str]:
        return ["chat"]

    async def cost(self, of: Slice, by: str | None = None) -> RequestCost:
        day = math.floor((of.start_s - WEEK.start_s) / 86_400)
        none = Number.none("USD", Absence.NO_DATA)
        if day in self.broken:
            raise StoreError("away")
        if day in self.gone:
            return RequestCost(none, none, {}, CostLine(None, 0, 0, 0, none, {}, none, none), (), none, 0.0)
        whole = line(None, 10.0 + day, 1e6 * (day + 8))
        usd, idle = (Number("USD", Basis.MEASURED, (10.0 + day) * share) for share in (1.0, 0.2))
        return RequestCost(usd, idle, whole.usd_by_class, whole, (changed(whole, key="acme"),), none, 0.0)

    async def attained(self, of: Slice) -> Any:
        found = Sums(facts=100, weighted=100, valid=100, good=95, valid_sq=100, good_sq=95)
        return attainment(found, 86_400.0), None


async def gathered(days: Days, folder: Path) -> Any:
    slos: Any = SimpleNamespace(slos=list, drifts=list)
    records = SqliteRecords(folder / "r.sqlite")
    facts = await Gathering(days, slos, records, lambda: {"chat": 0.9}).facts(WEEK, WEEK.end_s + 60)
    records.close()
    return facts


async def test_days_are_added_and_the_rate_is_a_quotient_of_sums(tmp_path: Path) -> None:
    facts = await gathered(Days(), tmp_path)
    (chat,) = facts.services
    assert chat.now.usd == Figure(91.0, basis="measured")  # 10 + 11 + … + 16
    assert chat.before.usd.value == 42.0  # 3 + 4 + … + 9
    assert chat.now.per_million_good_usd.value == pytest.approx(91.0 / 77)  # 8 + 9 + … + 14 million tokens
    assert chat.now.idle_usd.value == pytest.approx(18.2)
    assert chat.now.wasted_usd.value == pytest.approx(9.1)
    assert [t.tenant for t in chat.tenants] == ["acme"]
    assert chat.attainment_ratio.value == pytest.approx(0.95)
    assert [note.key for note in facts.notes] == ["price_now"]


@pytest.mark.parametrize(
    ("days", "notes"), [(Days({0, 1}), ["days_missing"]), (Days(set(), {0, 1}), ["store", "days_missing"])]
)
async def test_a_day_that_is_not_known_is_told_and_not_nought(days: Days, notes: list[str], tmp_path: Path) -> None:
    facts = await gathered(days, tmp_path)
    (chat,) = facts.services
    assert (chat.now.usd.value, chat.now.usd.days) == (70.0, 5)  # 12 + … + 16
    assert [note.key for note in facts.notes][:-1] == notes


def test_a_verified_change_is_worth_its_interval_of_this_weeks_spend() -> None:
    metric = Metric("usd_per_million_good_tokens", "USD", "lower")
    effect = Effect(metric.name, "better", "", 0.8, 0.75, 0.9)
    one = Experiment(
        "e", "q", "before_after", Arm("a"), Arm("b"), (metric,), service="chat",
        predictions=(Prediction(metric.name, 0.7, 0.85, 0.8),), verdict=Verdict("better", "", (effect,), at_s=1.0),
    )  # fmt: skip
    found = verified_of(one, Figure(400.0))
    assert found is not None
    assert (found.realised_usd.value, found.inside, found.saves) == (100.0, True, True)
    assert found.realised_usd.low == pytest.approx(400 / 0.9 - 400)
    unknown = verified_of(one, Figure())
    assert unknown is not None
    assert (unknown.realised_usd.value, unknown.saves) == (None, False)


WHEN_S = WEEK.start_s + 86_400


def recommendation(id: str = "a") -> Recommendation:
    """Proposed in the week."""
    one = _recommendation(id)
    return changed(one, steps=(changed(one.steps[0], at_s=WHEN_S),))


def kept(records: SqliteRecords, one: Recommendation, at_s: float) -> Recommendation:
    records.put("recommendation", one.id, at_s, to_body(one))
    return one


def test_advice_is_told_as_it_was_when_the_week_ended(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "r.sqlite")
    one = kept(records, recommendation(), WHEN_S)
    kept(records, moved(one, "declined", WEEK.end_s + 60, "ann", "no"), WEEK.end_s + 60)
    (told,) = records_of(records, WEEK, {}).advised
    assert told.state == "proposed"
    records.close()


def test_why_something_was_declined_is_told_and_what_goodwatch_withdrew_is_not(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "r.sqlite")
    kept(records, moved(recommendation("a"), "declined", WHEN_S, "ann", "we move next month"), WHEN_S)
    kept(
        records, moved(recommendation("b"), "declined", WHEN_S, "goodwatch", "newer evidence no longer says so"), WHEN_S
    )
    (told,) = records_of(records, WEEK, {}).advised
    assert (told.id, told.why) == ("a", "we move next month")
    records.close()


def test_drifts_that_ended_in_the_week_are_told(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "r.sqlite")
    over = Drift("over", "chat", "burn", "page", "burn_rate", "", WHEN_S, WHEN_S, ended_s=WHEN_S + 600)
    past = changed(over, id="past", began_s=WEEK.start_s - 7200, ended_s=WEEK.start_s - 3600)
    later = changed(over, id="later", began_s=WEEK.end_s + 60, ended_s=None)
    for one in (over, past, later):
        records.put("drift", one.id, one.began_s, {f.name: getattr(one, f.name) for f in fields(Drift)})
    (told,) = records_of(records, WEEK, {}).anomalies
    assert (told.began_s, told.ended_s) == (WHEN_S, WHEN_S + 600)
    records.close()


def test_a_saving_that_quality_does_not_carry_is_none() -> None:
    metric = Metric("usd_per_million_good_tokens", "USD", "lower")
    verdict = Verdict(
        "inconclusive", "", (Effect(metric.name, "better", "", 0.8, 0.75, 0.9),), gate="not_shown", at_s=1.0
    )
    one = Experiment("e", "q", "canary", Arm("a"), Arm("b"), (metric,), service="chat", verdict=verdict)
    found = verified_of(one, Figure(400.0))
    assert found is not None
    assert not found.saves
