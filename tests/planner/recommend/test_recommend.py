"""When there is advice, in which order, and when there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from planner.advisors import known_strategies
from planner.candidate import Abstained, Lever, Proposal, Strategy, World
from planner.estimate import exactly
from planner.evidence import Evidence
from planner.recommend import LEAST_REQUESTS, recommend, staying
from planner.simulate.run import Limits
from tests.planner.recommend.services import COST, on_card, service, traffic


@dataclass(frozen=True)
class Told:
    """A strategy that proposes what it is told to: a step ``faster`` times as quick, on ``usd`` per hour."""

    name: str
    faster: float = 1.0
    lever: Lever = "flags"
    usd: float = 2.5
    gate: str = ""
    canary_only: bool = False
    refused: float = 0.0

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        stay = staying(evidence)
        fleet = replace(stay.fleet, cost=stay.fleet.cost.scaled(1 / self.faster))
        world = World(fleet, stay.trace, exactly(self.usd), turned_away_ratio=self.refused)
        return [
            Proposal(
                self.name,
                self.lever,
                self.name,
                {self.name: True},
                world,
                "told",
                gate=self.gate,
                canary_only=self.canary_only,
            )
        ]


def titles(evidence: Evidence, *strategies: Strategy) -> list[str]:
    return [one.proposal.title for one in recommend(evidence, strategies).candidates]


LATE = service(traffic(9.0))
FINE = service(traffic(2.0))


def test_the_tests_services_are_what_they_are_called() -> None:
    assert LATE.seen.attained is not None
    assert LATE.seen.attained[1] < 0.5
    assert FINE.seen.attained is not None
    assert FINE.seen.attained[0] > 0.95


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (service(traffic(count=LEAST_REQUESTS - 1)), "requests in 6 h"),
        (replace(LATE, seen=replace(LATE.seen, off_scale=("ttft_s",))), "above the engine's last bucket"),
        (replace(LATE, limits=Limits()), "no latency target"),
        (replace(FINE, seen=replace(FINE.seen, attained=(0.30, 0.35))), "does not know what limits"),
    ],
)
def test_evidence_that_cannot_carry_advice_gets_the_reason(evidence: Evidence, words: str) -> None:
    advice = recommend(evidence, [Told("any", 3.0)])
    assert advice.best is None
    assert advice.mode == "none"
    assert words in advice.reason


def test_of_two_that_reach_the_objective_for_the_same_money_the_gentler_leads() -> None:
    assert titles(LATE, Told("topology", 3.0, "topology"), Told("flag", 3.0)) == ["flag", "topology"]


def test_more_cards_never_lead_where_a_flag_surely_reaches_the_objective() -> None:
    assert titles(LATE, Told("cards", 9.0, "hardware", usd=5.0), Told("flag", 3.0))[0] == "flag"


def test_a_flag_that_likely_reaches_it_is_tried_before_money_is_spent() -> None:
    # 1.35 times as fast carries the load at the fitted step and not at the slow end of its band; twice the cards surely do
    evidence = replace(LATE, sigma=0.12, seen=replace(LATE.seen, attained=None))
    advice = recommend(evidence, [Told("cards", 9.0, "hardware", usd=5.0), Told("flag", 1.35)])
    flag = next(one for one in advice.candidates if one.proposal.title == "flag")
    assert flag.effect.attainment.low < evidence.objective <= flag.effect.attainment.point
    assert advice.candidates[0] is flag


def test_of_two_that_save_alike_the_one_without_a_gate_leads() -> None:
    assert titles(FINE, Told("gated", 1.2, "flags", 1.0, gate="quality"), Told("plain", 1.2, "flags", 1.0)) == [
        "plain",
        "gated",
    ]


def test_what_saves_more_leads_though_it_is_harder_to_undo() -> None:
    assert titles(FINE, Told("little", 1.0, "flags", 2.2), Told("much", 1.0, "hardware", 1.0)) == ["much", "little"]


def test_a_gain_inside_the_band_is_no_advice() -> None:
    advice = recommend(LATE, [Told("flag", 1.001)])
    assert advice.best is None
    assert "inside the band" in advice.lost[0].why_not
    assert advice.reason.startswith("stay: attainment")


def test_a_saving_of_two_in_a_hundred_is_no_advice() -> None:
    assert titles(FINE, Told("cheap", 1.0, "flags", 2.5 * 0.98)) == []


def test_a_saving_that_could_miss_the_objective_is_no_advice() -> None:
    advice = recommend(FINE, [Told("slow", 0.25, "hardware", 0.5)])
    assert advice.best is None
    assert "attainment could fall to" in advice.lost[0].why_not


def test_a_canary_promises_nothing_however_good_the_model_says_it_is() -> None:
    for evidence in (LATE, FINE):
        advice = recommend(evidence, [Told("engine", 5.0, "topology", 0.5, canary_only=True)])
        assert advice.best is None
        assert "try it on one replica" in advice.lost[0].why_not


def test_without_a_price_nothing_is_said_to_save() -> None:
    advice = recommend(replace(service(traffic(2.0), replicas=4), usd_per_gpu_hour=None), known_strategies())
    assert advice.best is None
    assert any("no price is known" in one.why_not for one in advice.lost)


def test_the_measured_attainment_decides_what_is_wanted() -> None:
    assert recommend(LATE, [Told("flag", 3.0)]).mode == "restore"
    assert recommend(FINE, [Told("cheap", 1.0, "flags", 1.0)]).mode == "save"


def test_the_same_question_has_the_same_answer() -> None:
    evidence = on_card(service(traffic(9.0)))
    assert recommend(evidence, known_strategies()) == recommend(evidence, known_strategies())


def test_idle_replicas_are_given_back_but_for_one_to_spare() -> None:
    # one replica carries 2 requests a second (attainment above 0.95, see FINE): two remain
    advice = recommend(service(traffic(2.0), replicas=5), known_strategies())
    assert advice.best is not None
    assert advice.best.proposal.changes == {"replicas": 2}
    assert advice.best.saving_usd_per_week is not None
    assert advice.best.saving_usd_per_week.point == pytest.approx(3 * 2.5 * 168)


def test_too_few_seats_are_mended_by_a_flag_and_not_by_cards() -> None:
    advice = recommend(service(traffic(2.5), max_num_seqs=4, cost=replace(COST, running_s=1e-4)), known_strategies())
    assert advice.best is not None
    assert set(advice.best.proposal.changes) == {"max_num_seqs"}


def test_no_advice_ever_touches_the_memory_fraction() -> None:
    for evidence in (on_card(LATE), on_card(service(traffic(3.0), kv_tokens=12_000))):
        advice = recommend(evidence, known_strategies())
        for one in (*advice.candidates, *advice.lost):
            assert "memory_fraction" not in one.proposal.changes


def test_what_changes_answers_carries_its_gate() -> None:
    evidence = replace(on_card(LATE), input_spare_ratio=0.4, small_model_ratio=0.5, small_usd_per_million=exactly(0.1))
    advice = recommend(evidence, known_strategies())
    changing = {"weight_quantisation", "kv_dtype", "small_model", "context_trimming", "engine_swap", "api_instead"}
    found = [one for one in (*advice.candidates, *advice.lost) if one.proposal.strategy in changing]
    assert {one.proposal.strategy for one in found} >= {"weight_quantisation", "small_model", "context_trimming"}
    assert all(one.proposal.gate for one in found)
