"""Each kind of advice: where it speaks, what it proposes, and why it keeps silent. Right answers by hand."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from planner.advisors import known_strategies
from planner.candidate import LEVERS, Abstained, Proposal, Strategy
from planner.estimate import exactly
from planner.evidence import Evidence
from planner.simulate.trace import Trace, trace
from planner.strategies._models import carried_cost, grounded
from tests.planner.recommend.services import COST, on_card, service, traffic

STRATEGIES = {one.name: one for one in known_strategies()}
LATE = service(traffic(9.0))
FINE = service(traffic(2.0))


def asked(name: str, evidence: Evidence) -> list[Proposal] | Abstained:
    return STRATEGIES[name].propose(evidence)


def proposals(name: str, evidence: Evidence) -> list[Proposal]:
    found = asked(name, evidence)
    assert not isinstance(found, Abstained), found.reason
    return found


def silence(name: str, evidence: Evidence) -> Abstained:
    found = asked(name, evidence)
    assert isinstance(found, Abstained), [one.title for one in found]
    return found


def seen(evidence: Evidence, **changed: object) -> Evidence:
    return replace(evidence, seen=replace(evidence.seen, **changed))  # type: ignore[arg-type]


def ruled(evidence: Evidence, **changed: object) -> Evidence:
    scheduler = replace(evidence.fleet.scheduler, **changed)  # type: ignore[arg-type]
    return replace(evidence, fleet=replace(evidence.fleet, scheduler=scheduler))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize(
    "evidence", [LATE, FINE, on_card(service(traffic(9.0), replicas=2), tp=2)], ids=["late", "fine", "two"]
)
def test_every_strategy_speaks_with_numbers_or_says_why_not(strategy: Strategy, evidence: Evidence) -> None:
    found = strategy.propose(evidence)
    if isinstance(found, Abstained):
        assert len(found.reason) > 10
        return
    for one in found:
        assert one.strategy == strategy.name
        assert one.lever in LEVERS
        assert any(letter.isdigit() for letter in one.reason), one.reason
        assert one.changes
        assert one.risks
        assert one.rollback


def test_concurrency_raises_a_limit_that_makes_requests_wait() -> None:
    evidence = service(traffic(2.5), max_num_seqs=4, cost=replace(COST, running_s=1e-4))
    values = [
        one.changes["max_num_seqs"] for one in proposals("concurrency", evidence) if "max_num_seqs" in one.changes
    ]
    assert values
    assert min(values) > 4  # type: ignore[type-var, operator]


def test_concurrency_keeps_silent_where_all_is_well() -> None:
    assert "no other value" in silence("concurrency", FINE).reason


def test_concurrency_leaves_slots_that_reserve_their_context_to_max_model_len() -> None:
    evidence = on_card(service(traffic(5.0), max_num_seqs=4), engine="llama.cpp", max_model_len=8192, context_slots=4)
    found = asked("concurrency", evidence)
    assert isinstance(found, Abstained) or all("max_num_seqs" not in one.changes for one in found)


def test_prefix_caching_comes_on_where_prompts_share_their_beginning() -> None:
    off = ruled(replace(LATE, shared_ratio=0.6), prefix_cache=False)
    (one,) = proposals("prefix_caching", off)
    assert one.changes == {"prefix_caching": True}
    assert sum(one.world.trace.cached_tokens) == pytest.approx(0.6 * sum(LATE.trace.input_tokens), rel=0.01)
    assert "only 2%" in silence("prefix_caching", replace(off, shared_ratio=0.02)).reason
    assert "trace" in silence("prefix_caching", replace(off, shared_ratio=None)).missing


def test_routing_by_prefix_needs_replicas_and_a_gap_to_what_could_hit() -> None:
    two = seen(replace(service(traffic(9.0), replicas=2), shared_ratio=0.7), prefix_hit_ratio=0.3)
    assert proposals("prefix_caching", two)[0].changes == {"routing": "prefix_aware"}
    assert (
        "end of prompts"
        in silence("prefix_caching", seen(replace(LATE, shared_ratio=0.7), prefix_hit_ratio=0.3)).reason
    )
    assert silence("prefix_caching", seen(two, prefix_hit_ratio=0.68))


def test_an_fp8_cache_needs_a_cache_that_limits_a_known_card_and_fp8() -> None:
    full = seen(on_card(LATE), kv_used_ratio=0.95)
    (one,) = proposals("kv_dtype", full)
    assert one.gate
    # half the bytes for each token: twice the tokens, less what the ledger's doubt takes
    assert 1.7 <= one.world.fleet.scheduler.kv_tokens / LATE.fleet.scheduler.kv_tokens <= 2.05
    assert "does not limit" in silence("kv_dtype", seen(on_card(LATE), kv_used_ratio=0.2)).reason
    assert silence("kv_dtype", seen(LATE, kv_used_ratio=0.95)).missing == "model and card"
    assert "no fp8" in silence("kv_dtype", seen(on_card(LATE, gpu="A100-SXM4-80GB"), kv_used_ratio=0.95)).reason
    assert "already" in silence("kv_dtype", replace(full, settings={"kv_dtype": "fp8_e5m2"})).reason


def test_weights_in_fp8_make_a_step_shorter_but_not_by_more_than_half() -> None:
    (one,) = proposals("weight_quantisation", on_card(LATE))
    assert one.changes == {"quantisation": "fp8"}
    assert one.gate
    # halved bytes cannot do more than halve a step
    assert 0.5 <= one.world.fleet.cost.fixed_s / COST.fixed_s < 1
    (other,) = proposals("weight_quantisation", on_card(LATE, gpu="A100-SXM4-80GB"))
    assert other.changes == {"quantisation": "awq"}


def test_speculation_goes_where_few_drafts_are_accepted_and_stays_where_many_are() -> None:
    drafting = ruled(service(traffic(5.0)), draft_tokens=5, acceptance_ratio=0.1, draft_s=0.004)
    assert any(
        one.changes == {"speculative_tokens": 0}
        for one in proposals("speculative", seen(drafting, acceptance_ratio=0.1))
    )
    paying = service(
        traffic(2.0), draft_tokens=3, acceptance_ratio=0.9, draft_s=0.0002, cost=replace(COST, running_s=1e-5)
    )
    assert "pay for themselves" in silence("speculative", seen(paying, acceptance_ratio=0.9)).reason
    assert silence("speculative", drafting).missing == "acceptance ratio"
    assert silence("speculative", LATE).missing


def test_tensor_parallel_halves_until_one_card_and_keeps_the_cards() -> None:
    evidence = on_card(service(traffic(9.0)), tp=4)
    for one in proposals("tensor_parallel", evidence):
        assert one.changes["tp"] * one.changes["replicas"] == 4  # type: ignore[operator]
        assert one.world.usd_per_hour == exactly(10.0)
    assert "one card already" in silence("tensor_parallel", on_card(LATE)).reason
    big = on_card(service(traffic(9.0)), model="Llama-3.3-70B-Instruct", tp=2)
    assert "does not surely start" in silence("tensor_parallel", big).reason  # 141 GB on a card of 80


def test_replicas_go_down_to_what_carries_the_load_and_one_more() -> None:
    found = proposals("replicas", service(traffic(2.0), replicas=5))
    assert [one.changes["replicas"] for one in found] == [2, 3, 4]
    assert "spare" in silence("replicas", service(traffic(2.0), replicas=2)).reason


def test_replicas_go_up_where_the_load_needs_them() -> None:
    assert [one.changes["replicas"] for one in proposals("replicas", LATE)] == [2, 3]
    assert all(one.lever == "hardware" for one in proposals("replicas", LATE))
    impossible = replace(LATE, limits=replace(LATE.limits, tpot_s=0.001))
    assert "it is not load" in silence("replicas", impossible).reason


def _day(requests: Trace, *, night: float) -> Evidence:
    rates = tuple(night if hour < 12 else 1000.0 for hour in range(24))
    return replace(service(requests, replicas=4), requests_by_hour=rates, end_s=72 * 3600.0)


def test_a_schedule_follows_the_hours_and_is_simulated_hour_by_hour() -> None:
    (one,) = proposals("scale_by_hour", _day(traffic(9.0), night=200.0))
    needed = one.changes["replicas_by_hour"]
    # a fifth of the peak's load needs 4 × 0.2 × 1.2 = 0.96 replicas
    assert needed == [1] * 12 + [4] * 12
    assert [fleet.replicas for _, fleet, _ in one.world.parts] == [1, 4]
    assert one.world.usd_per_hour == exactly(2.5 * 2.5)
    assert "nothing to gain" in silence("scale_by_hour", _day(traffic(9.0), night=990.0)).reason
    assert "48 hours" in silence("scale_by_hour", replace(_day(traffic(9.0), night=200.0), end_s=3600.0)).missing


def test_the_small_model_gets_what_it_was_judged_good_on_and_only_that() -> None:
    four = replace(service(traffic(9.0), replicas=4), small_model_ratio=0.5, small_usd_per_million=exactly(0.2))
    (one,) = proposals("small_model", four)
    assert one.gate
    assert one.changes["routed_ratio"] == 0.5
    assert len(one.world.trace) == 300
    assert one.world.served_elsewhere_ratio == 0.5
    assert 1 < one.world.fleet.replicas < 4  # one carries the rest, and one is to spare
    assert silence("small_model", replace(four, small_model_ratio=None)).missing == "quality scores of both"
    assert silence("small_model", replace(four, small_usd_per_million=None)).missing


def test_a_flood_is_held_to_what_the_others_send() -> None:
    flooded = replace(LATE, requests_by_tenant={"a": 300, "b": 60, "c": 40})
    (one,) = proposals("tenant_limits", flooded)
    # 300 of 400 are held to 100: 200 of 400 are refused
    assert one.changes == {"tenant": "a", "refused_ratio": 0.5}
    assert one.world.turned_away_ratio == 0.5
    assert "no tenant" in silence("tenant_limits", replace(LATE, requests_by_tenant={"a": 5, "b": 5, "c": 4})).reason
    assert silence("tenant_limits", LATE).missing


def test_admission_speaks_where_a_queue_spoils_all_and_counts_who_is_refused() -> None:
    for one in proposals("admission", LATE):
        assert one.world.turned_away_ratio == pytest.approx(1 - one.changes["admitted_ratio"])  # type: ignore[operator]
        assert not one.restart
    assert "no queue" in silence("admission", FINE).reason


def test_a_shorter_limit_frees_slots_where_each_reserves_its_context() -> None:
    cpp = on_card(service(traffic(5.0), max_num_seqs=2), engine="llama.cpp", max_model_len=32_768, context_slots=2)
    told = replace(seen(cpp, longest_tokens=2000), settings={"max_model_len": 32_768})
    (one,) = proposals("max_model_len", told)
    # 2,000 × 1.5 = 3,000, in whole 1,024: 3,072; 2 × 32,768 / 3,072 = 21.3 slots in the same memory
    assert one.changes == {"max_model_len": 3072, "max_num_seqs": 21}
    assert (
        "pages its cache" in silence("max_model_len", replace(on_card(LATE), settings={"max_model_len": 32_768})).reason
    )
    assert silence("max_model_len", replace(told, settings={})).missing


def test_a_card_swap_needs_prices_and_a_model_that_surely_starts() -> None:
    evidence = on_card(FINE)
    assert silence("gpu_swap", evidence).missing == "prices of other cards"
    priced = replace(evidence, card_usd_per_hour={"L40S-48GB": exactly(1.0), "no such card": exactly(0.1)})
    (one,) = proposals("gpu_swap", priced)
    assert one.changes == {"gpu": "L40S-48GB"}
    # 864 GB/s instead of 3,350: a step that reads weights takes longer
    assert one.world.fleet.cost.fixed_s > 2 * COST.fixed_s
    big = on_card(FINE, model="Llama-3.3-70B-Instruct", tp=4)
    assert silence("gpu_swap", replace(big, card_usd_per_hour={"RTX 4090": exactly(0.3)}))


def test_prompts_get_workers_of_their_own_only_where_they_take_the_time() -> None:
    long = service(traffic(3.0, inputs=6000, outputs=60), replicas=4)
    (one,) = proposals("disaggregation", long)
    assert one.changes["prefill_replicas"] + one.changes["decode_replicas"] == 4  # type: ignore[operator]
    assert "too little" in silence("disaggregation", service(traffic(3.0, inputs=100, outputs=300), replicas=4)).reason
    assert "one replica" in silence("disaggregation", LATE).reason


def test_shorter_prompts_need_to_be_told_what_is_spare() -> None:
    (one,) = proposals("context_trimming", replace(LATE, input_spare_ratio=0.5))
    assert sum(one.world.trace.input_tokens) == pytest.approx(0.5 * sum(LATE.trace.input_tokens), rel=0.01)
    assert one.gate
    assert silence("context_trimming", LATE).missing


def test_engine_swap_and_api_are_canaries_only() -> None:
    (one,) = proposals("engine_swap", replace(LATE, shared_ratio=0.8))
    assert one.canary_only
    dear = seen(replace(LATE, api_usd_per_million=exactly(0.01)), usd_per_hour=100.0)
    assert proposals("api_instead", dear)[0].canary_only
    assert "cost" in silence("api_instead", seen(dear, usd_per_hour=0.001)).reason


def test_chunked_prefill_comes_on_where_it_is_off() -> None:
    assert proposals("chunked_prefill", ruled(LATE, mixed=False))[0].changes == {"chunked_prefill": True}
    there = replace(ruled(LATE, mixed=False), engine="sglang")  # cuts prompts by default, and runs the pieces alone
    assert proposals("chunked_prefill", there)[0].changes == {"mixed_chunk": True}
    assert silence("chunked_prefill", LATE).reason == "chunked prefill is on"


def test_an_engine_slower_than_its_prior_is_not_promised_half_of_that_back() -> None:
    # the same change, on an engine that takes 3 and 6 times what the model says: the step shrinks by the same share
    found = []
    for times in (3.0, 6.0):
        evidence = on_card(service(traffic(1.0), cost=COST.scaled(times)))
        carried = carried_cost(evidence, "precision", precision="fp8")
        assert carried is not None
        found.append(carried[0].fixed_s / evidence.fleet.cost.fixed_s)
    assert found[0] == pytest.approx(found[1])
    assert found[0] < 1


def test_a_step_seen_at_one_load_only_is_split_as_the_model_splits_it() -> None:
    full = seen(on_card(LATE), running=3.9, running_peak=4.0)
    cost = grounded(full).fleet.cost
    assert cost.running_s < COST.running_s / 2  # an H100 adds tens of microseconds for a request, not 600
    now, then = (one.fixed_s + 3.9 * (one.running_s + one.context_s * 875) for one in (COST, cost))
    assert then == pytest.approx(now, rel=0.15)  # and the step stays as measured
    varied = seen(on_card(LATE), running=20.0, running_peak=90.0)
    assert grounded(varied) is varied
    assert grounded(seen(LATE, running=3.9, running_peak=4.0)).fleet.cost == COST


def test_trimming_never_leaves_more_in_the_cache_than_in_the_prompt() -> None:
    came = trace([0.0, 1.0], [100, 10], [5, 5], cached_tokens=[90, 9])
    (one,) = proposals("context_trimming", replace(LATE, trace=came, input_spare_ratio=0.9))
    assert one.world.trace.input_tokens == array("q", [10, 1])
    assert one.world.trace.cached_tokens == array("q", [9, 0])
